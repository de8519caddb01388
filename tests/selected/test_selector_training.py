"""`selector train`: the checkpoint, resuming at every stage, the command, and bad input."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch

import smoothcert as sc
from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.data import load_dataset
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError, ModelError
from smoothcert.models.architectures import build
from smoothcert.models.checkpoints import CheckpointHeader, load_checkpoint, save_checkpoint
from smoothcert.sigma.selected import SelectorFacts, read_selector_facts
from smoothcert.training import selector_training, selector_votes
from smoothcert.training.selector_votes import VotesRequest, sample_level_votes

LEVELS = (0.1, 0.4)


@pytest.fixture(autouse=True)
def few_samples(monkeypatch):
    monkeypatch.setattr(selector_training, "_SAMPLES_REPORTED", 50)
    monkeypatch.setattr(selector_votes, "_SAMPLES_OF_CALIBRATION", 100)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two checkpoints of small networks, hardly trained: they differ in what they answer under noise."""
    folder = tmp_path_factory.mktemp("models")
    for name, sigma in (("a", 0.1), ("b", 0.4)):
        sc.train(
            "mlp-16", "digits", sigma=sigma, epochs=3, seed=1, threads=1, device="cpu", progress=False,
            out=folder / f"{name}.safetensors",
        )  # fmt: skip
    return [folder / "a.safetensors", folder / "b.safetensors"]


@pytest.fixture(scope="module")
def small():
    digits = load_dataset("digits", split="train")
    return digits.inputs(range(200)), digits.labels[:200]


def train(models, data, **changes):
    settings = {
        "levels": LEVELS, "sigma": 0.3, "n": 10, "softness": 0.05, "epochs": 2, "batch": 32, "seed": 4, "threads": 1,
        "device": "cpu", "progress": False,
    }  # fmt: skip
    return sc.train_selector(models, data, **(settings | changes))


def assert_same_weights(found, expected):
    assert found.state_dict().keys() == expected.state_dict().keys()
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, expected.state_dict()[name]), name


def test_the_checkpoint_says_what_certify_needs(models, small, tmp_path):
    out = tmp_path / "selector.safetensors"
    module, report = selector = train(models, small, out=out)
    assert read_selector_facts(str(out)) == SelectorFacts(LEVELS, 0.3)
    loaded = load_checkpoint(out)
    assert_same_weights(loaded.module, module)
    assert (loaded.header.arch, loaded.header.num_classes) == ("mlp-16", 2)
    training = loaded.header.training
    assert (training["softness"], training["noise_levels"], training["votes"]["n"]) == (0.05, list(LEVELS), 10)
    assert report.inputs == training["noisy_accuracy_inputs"] == 20
    assert selector.votes.votes.shape == (200, 2)
    assert 0 <= report.right <= 1
    assert sum(report.chosen) == pytest.approx(1)
    assert max(report.radii) <= report.oracle


def test_an_interruption_of_the_training_changes_no_bit(models, small, tmp_path):
    whole = train(models, small)
    out = tmp_path / "selector.safetensors"

    def fail(report):
        if report.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(models, small, out=out, progress=fail)
    resumed = train(models, small, out=out)
    assert_same_weights(resumed.trained.module, whole.trained.module)
    assert resumed.report == whole.report


def test_an_interruption_while_the_levels_are_sampled_changes_no_bit(models, small, tmp_path, monkeypatch):
    whole = train(models, small)
    out = tmp_path / "selector.safetensors"
    monkeypatch.setattr(selector_votes, "_SAMPLES_AT_ONCE", 500)
    monkeypatch.setattr(selector_votes, "_SECONDS_BETWEEN_STATES", 0.0)
    sample, left = selector_votes.Sampler, [5]

    def sampler(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return sample(*arguments, **options)

    monkeypatch.setattr(selector_votes, "Sampler", sampler)
    with pytest.raises(KeyboardInterrupt):
        train(models, small, out=out)
    resumed = train(models, small, out=out, seed=None)  # the seed is that of the stored votes
    assert 8 - left[0] < 16  # jobs in all: four parts of two levels, two of them sampled before
    assert_same_weights(resumed.trained.module, whole.trained.module)


def test_other_settings_of_an_unfinished_training_are_refused(models, small, tmp_path):
    out = tmp_path / "selector.safetensors"

    def fail(report):
        if report.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(models, small, out=out, progress=fail)
    with pytest.raises(ManifestMismatchError, match=r"softness was 0\.05, now 0\.1"):
        train(models, small, out=out, softness=0.1)


def test_softness_is_what_the_network_is_trained_with(models, small):
    """The weights after training on soft targets are not those after training on the best levels alone."""
    soft, hard = (train(models, small, softness=softness).trained for softness in (0.5, 0.0))
    assert soft.header.training["data"] != hard.header.training["data"]
    names = hard.module.state_dict().items()
    assert any(not torch.equal(tensor, soft.module.state_dict()[name]) for name, tensor in names)


def test_votes_serve_several_selectors(models, small, tmp_path, monkeypatch):
    votes = tmp_path / "votes.safetensors"
    first = train(models, small, votes=votes)
    monkeypatch.setattr(selector_votes, "Sampler", None)  # nothing is sampled at the levels any more
    second = train(models, small, votes=votes, softness=0.0, seed=5, sigma=0.2)
    assert np.array_equal(first.votes.votes, second.votes.votes)
    assert second.trained.header.training["votes"]["seed"] == 4


def test_one_model_may_serve_all_levels(models, small):
    selector = train(models[:1], small)
    classifier = sc.load_classifier(models[0], input_shape=(1, 8, 8), device="cpu")
    dataset = sc.training.training_data.as_dataset(small, split="train")
    votes = sample_level_votes(VotesRequest(dataset, [classifier, classifier], LEVELS, 10, 4, 1), None)
    assert np.array_equal(selector.votes.votes, votes.votes)
    assert not np.array_equal(votes.votes[:, 0], votes.votes[:, 1])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"levels": (0.1, 0.2, 0.4)}, "2 models were given for 3 noise levels: give one for each level"),
        ({"levels": (0.4, 0.1)}, "ascending order"),
        ({"levels": (0.1,)}, "at least two noise levels"),
        ({"levels": (0.1, -0.4)}, "is not a noise level"),
        ({"levels": (0.1, float("nan"))}, "is not a noise level"),
        ({"sigma": 0.0}, "expected a positive number"),
        ({"n": 0}, "n"),
        ({"softness": -1.0}, "softness is -1.0: expected a finite number, at least 0"),
        ({"objective": "macer"}, "the objective macer takes one level for each input: use softness 0"),
        ({"out": "selector.pth"}, "must end in .safetensors"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_sampled(models, small, monkeypatch, changes, said):
    monkeypatch.setattr(selector_votes, "Sampler", None)
    with pytest.raises(InputError, match=said):
        train(models, small, **changes)


def test_models_that_do_not_fit_are_refused(models, small, tmp_path):
    other = tmp_path / "other.safetensors"
    header = CheckpointHeader(arch="mlp-16", num_classes=11, input_shape=(1, 8, 8))
    save_checkpoint(other, build("mlp-16", num_classes=11, input_shape=(1, 8, 8)), header)
    with pytest.raises(ModelError, match=r"the same classes: .* has 10, and .* has 11"):
        train([models[0], other], small)
    x, y = small
    with pytest.raises(sc.SmoothcertError, match="labels in 0 … 12, and the models have 10 classes"):
        train(models, (x, np.where(y == 3, 12, y)))
    with pytest.raises(InputError, match="does not say which network the selector should be"):
        train([lambda batch: np.zeros(len(batch), dtype=np.int64)], small)


def test_an_existing_checkpoint_is_refused_before_anything_is_sampled(models, small, tmp_path, monkeypatch):
    monkeypatch.setattr(selector_votes, "Sampler", None)
    (tmp_path / "selector.safetensors").write_text("x")
    with pytest.raises(InputError, match="never overwritten"):
        train(models, small, out=tmp_path / "selector.safetensors")


def test_the_command(models, tmp_path):
    out = tmp_path / "selector.safetensors"
    arguments = (
        "selector", "train", "--data", "digits", "--models", ",".join(map(str, models)), "--levels", "0.1,0.4",
        "--n", 5, "--epochs", 1, "--seed", 3, "--threads", 1, "--device", "cpu",
    )  # fmt: skip
    result = invoke(app, *arguments, "--out", out)
    assert result.exit_code == 0, result.output
    assert "the best level chosen for" in result.stdout
    assert "smoothcert certify --sigma-rule" in result.stdout
    assert read_selector_facts(str(out)) == SelectorFacts(LEVELS, 0.4)  # the largest level
    assert (tmp_path / "selector.votes.safetensors").exists()
    votes = tmp_path / "selector.votes.safetensors"
    again = invoke(app, *arguments, "--votes", votes, "--out", tmp_path / "b.safetensors", "--json")
    document = json.loads(again.stdout)
    assert document["selector"] == {"levels": list(LEVELS), "sigma": 0.4}
    assert document["report"]["inputs"] == 135
    assert_same_weights(load_checkpoint(tmp_path / "b.safetensors").module, load_checkpoint(out).module)
    options = ("--objective", "exclusion:noises=2", "--average", 0.9, "--precision", "bfloat16", "--softness", 0.1)
    third = invoke(app, *arguments, *options, "--votes", votes, "--out", tmp_path / "c.safetensors", "--json")
    facts = json.loads(third.stdout)
    assert (facts["objective"]["name"], facts["average"], facts["precision"]) == ("exclusion", 0.9, "bfloat16")
    with pytest.raises(InputError, match="is invalid: expected numbers such as"):
        invoke(app, *(word if word != "0.1,0.4" else "0.1,x" for word in arguments), "--out", out)


def test_a_file_without_a_test_split_is_held_out_like_that_of_the_base_classifiers(models, small, tmp_path):
    file = tmp_path / "mine.npz"
    np.savez(file, x=small[0], y=small[1])
    for name in ("a", "b"):
        invoke(
            app, "train", "--data", file, "--arch", "mlp-16", "--sigma", 0.1, "--epochs", 1, "--seed", 3,
            "--threads", 1, "--out", tmp_path / f"{name}.safetensors",
        )  # fmt: skip
    invoke(
        app, "selector", "train", "--data", file, "--models", f"{tmp_path}/a.safetensors,{tmp_path}/b.safetensors",
        "--levels", "0.1,0.4", "--n", 5, "--epochs", 1, "--seed", 3, "--threads", 1,
        "--out", tmp_path / "s.safetensors",
    )  # fmt: skip
    with np.load(tmp_path / "a.held-out.npz") as base, np.load(tmp_path / "s.held-out.npz") as own:
        assert np.array_equal(base["x"], own["x"])
        assert np.array_equal(base["y"], own["y"])


def test_a_stop_is_noticed_in_both_stages(models, small):
    stop = threading.Event()
    stop.set()
    dataset = sc.training.training_data.as_dataset(small, split="train")
    classifiers = [sc.load_classifier(model, input_shape=(1, 8, 8), device="cpu") for model in models]
    with pytest.raises(InterruptedRunError, match="nothing was stored"):
        sc.training.train_selector_network(
            sc.training.SelectorConfig(
                levels=LEVELS, n=10_000, training=sc.training.TrainingConfig(arch="mlp-16", sigma=0.3, seed=1)
            ),
            dataset, classifiers, out=None, stop=stop,
        )  # fmt: skip

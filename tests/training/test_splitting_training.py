"""Training on inputs that are split: the copies of certification, which objectives, resuming, and what it is worth."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats

import smoothcert as sc
from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.errors import DataError, InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.noise import draw_offsets, evaluations_of, level_of, split_inputs
from smoothcert.records import Noise
from smoothcert.sigma.constant import ConstantRule
from smoothcert.training import (
    OBJECTIVES,
    Augment,
    Batch,
    CarriedSigma,
    Splitting,
    TrainingConfig,
    load_state,
    noisy_accuracy,
    partial_path,
    run_training,
)
from smoothcert.training.noisy_inputs import add_batch_noise, draw_copies
from smoothcert.training.objectives.augmentation import NoiseAugmentation

CPU = torch.device("cpu")
EVALUATIONS = 16
LEVEL = level_of(EVALUATIONS, levels=256)
COPIES_ONLY = {"augmentation", "stability", "consistency"}


def every_evaluation(inputs, level, splitting):
    """All copies in order: (N, B, *input_shape)."""
    numbers = torch.arange(splitting.count_evaluations(level)).unsqueeze(1).expand(-1, len(inputs))
    return splitting.split(inputs, numbers, level=level)


def batch_of(inputs, level, splitting):
    labels = torch.zeros(len(inputs), dtype=torch.int64)
    return Batch(inputs, labels, level, noise=Noise.SPLITTING, splitting=splitting)


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def configured(**changes):
    settings = {"arch": "mlp-32", "sigma": LEVEL, "noise": Noise.SPLITTING, "seed": 7, "epochs": 2, "batch": 64}
    return TrainingConfig(**(settings | changes))


def run(data, *, out=None, config=None, **options):
    return run_training(config or configured(), data, out=out, device="cpu", threads=1, **options)


def assert_same_weights(first, second):
    for name, tensor in first.module.state_dict().items():
        assert torch.equal(tensor, second.module.state_dict()[name]), name


@pytest.mark.parametrize("splitting", [Splitting(), Splitting(levels=17, offset_seed=5)])
@pytest.mark.parametrize("level", [0.07, 1.1])
def test_copies_are_those_of_certification_to_the_bit(splitting, level):
    q = splitting.levels - 1
    inputs = torch.rand(3, 2, 4, 5, generator=seeded())
    inputs[0, 0, 0] = torch.tensor([0.0, 1.0, 1.0 / q, 0.5 / q, 1.5 / q])
    n = evaluations_of(level, levels=splitting.levels)
    copies = every_evaluation(inputs, level, splitting)
    assert copies.shape == (n, 3, 2, 4, 5)
    assert copies.dtype == torch.float32
    for place, given in enumerate(inputs.numpy()):
        k = np.rint(given.astype(np.float64) * q).astype(np.int32).ravel()
        expected = np.empty((n, k.size), dtype=np.float32)
        offsets = draw_offsets(splitting.offset_seed, evaluations=n, size=k.size)
        split_inputs(expected, k, offsets, evaluations=n, levels=splitting.levels, start=0)
        assert copies[:, place].numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("offset_seed", [0, 3])
def test_a_smoothed_classifier_counts_the_classes_of_these_copies(offset_seed):
    """The whole path of certification, with inputs off the grid, which it rounds."""
    inputs = torch.rand(6, 1, 3, 4, generator=seeded())
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4))
    with torch.no_grad():
        net[1].weight.normal_(generator=seeded(2))
        net[1].bias.copy_(-0.5 * net[1].weight.sum(dim=1))
    smoothed = sc.SmoothedClassifier(net, noise="splitting", evaluations=101, grid=64, seed=offset_seed, device="cpu")
    points = smoothed.certify(inputs.numpy())
    level = level_of(101, levels=64)
    copies = every_evaluation(inputs, level, Splitting(levels=64, offset_seed=offset_seed))
    for place, point in enumerate(points):
        votes = net(copies[:, place]).argmax(dim=1).detach()
        counts = np.bincount(votes, minlength=4)
        assert tuple(point.tallies[-1].counts[:4]) == tuple(counts)
        assert np.count_nonzero(counts) > 1


def test_every_copy_is_an_independent_uniform_evaluation():
    inputs = torch.rand(2, 40, generator=seeded())
    splitting = Splitting(offset_seed=1)
    table = every_evaluation(inputs, LEVEL, splitting)
    drawn = draw_copies(batch_of(inputs, LEVEL, splitting), 4000, seeded(9))
    assert drawn.shape == (4000, 2, 40)
    numbers = (drawn.unsqueeze(1) == table).all(dim=3).long()
    assert (numbers.sum(dim=1) == 1).all()
    chosen = numbers.argmax(dim=1).numpy()
    pairs = np.bincount(chosen[:, 0] * EVALUATIONS + chosen[:, 1], minlength=EVALUATIONS**2)
    assert stats.chisquare(pairs).pvalue > 1e-4
    following = np.bincount(chosen[:-1, 0] * EVALUATIONS + chosen[1:, 0], minlength=EVALUATIONS**2)
    assert stats.chisquare(following).pvalue > 1e-4


def test_one_copy_is_the_first_of_several():
    inputs = torch.rand(5, 1, 4, 4, generator=seeded())
    batch = batch_of(inputs, 0.5, Splitting(levels=17))
    one = add_batch_noise(batch, seeded(3))
    assert one.shape == inputs.shape
    assert torch.equal(one, draw_copies(batch, 1, seeded(3))[0])


@pytest.mark.parametrize("noise", [Noise.GAUSSIAN, Noise.UNIFORM])
@pytest.mark.parametrize("sigma", [0.3, torch.tensor([0.1, 0.2, 0.5])])
def test_copies_under_added_noise_are_what_they_were(noise, sigma):
    inputs = torch.rand(3, 1, 4, 4, generator=seeded())
    batch = Batch(inputs, torch.zeros(3, dtype=torch.int64), sigma, noise=noise)
    draw = torch.randn if noise is Noise.GAUSSIAN else torch.rand
    units = draw((2, *inputs.shape), generator=seeded(4))
    if noise is Noise.UNIFORM:
        units = units * 2.0 - 1.0
    levels = torch.as_tensor(sigma).expand(3).reshape(3, 1, 1, 1)
    assert torch.equal(draw_copies(batch, 2, seeded(4)), inputs + units * levels)


class Watching(NoiseAugmentation):
    """Keeps what the network saw, and the batches."""

    __slots__ = ()
    seen: ClassVar[list] = []
    batches: ClassVar[list] = []

    def terms(self, module, batch, generator):
        def spy(inputs):
            self.seen.append(inputs.clone())
            return module(inputs)

        self.batches.append(batch)
        return super().terms(spy, batch, generator)


@pytest.fixture
def watching(monkeypatch):
    monkeypatch.setattr(Watching, "seen", [])
    monkeypatch.setattr(Watching, "batches", [])
    return Watching()


def test_a_training_sees_evaluations_of_inputs_that_were_augmented_first(digits, watching):
    """With the offsets and the grid of its settings; pictures are moved before they are split."""
    splitting = Splitting(levels=33, offset_seed=8)
    config = configured(objective=watching, splitting=splitting, augment=Augment.SHIFT, epochs=1, batch=200, sigma=0.2)
    run(digits, config=config)
    given = {row.tobytes() for row in digits.inputs(slice(None))}
    assert len(watching.seen) == len(watching.batches) == 7
    for inputs, batch in zip(watching.seen[-2:], watching.batches[-2:], strict=True):
        table = every_evaluation(batch.inputs, 0.2, splitting)
        found = (table == inputs).flatten(2).all(dim=2).any(dim=0)
        assert found.all()
        assert sum(row.tobytes() in given for row in batch.inputs.numpy()) < len(inputs) / 2


def test_accuracy_is_measured_at_one_evaluation_of_each_input(held_out):
    seen, splitting = [], Splitting(offset_seed=2)

    def spy(inputs):
        seen.append(inputs.clone())
        return torch.nn.functional.one_hot(torch.zeros(len(inputs), dtype=torch.int64), 10).float()

    module = torch.nn.Identity()
    module.forward = spy
    given = {"noise": Noise.SPLITTING, "sigma": LEVEL, "seed": 0, "device": CPU, "splitting": splitting}
    assert noisy_accuracy(module, held_out, **given) == np.mean(held_out.labels == 0)
    (inputs,) = seen
    table = every_evaluation(torch.from_numpy(held_out.inputs(slice(None))), LEVEL, splitting)
    matches = (table == inputs).flatten(2).all(dim=2)
    assert matches.any(dim=0).all()
    assert len(set(matches.long().argmax(dim=0).tolist())) == EVALUATIONS
    noisy_accuracy(module, held_out, **given)
    assert torch.equal(seen[1], inputs)


def test_a_training_measures_accuracy_with_its_own_cells(digits, held_out):
    splitting = Splitting(levels=17, offset_seed=8)
    trained = run(digits, config=configured(sigma=1.0, splitting=splitting), held_out=held_out)
    given = {"noise": Noise.SPLITTING, "sigma": 1.0, "seed": 7, "device": CPU}
    assert trained.accuracy == noisy_accuracy(trained.module, held_out, **given, splitting=splitting)
    assert trained.accuracy != noisy_accuracy(trained.module, held_out, **given)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_objectives_that_need_copies_only_are_allowed(name, digits):
    objective = OBJECTIVES[name]()
    if name in COPIES_ONLY:
        trained = run(digits, config=configured(objective=objective, epochs=1, batch=256))
        assert np.isfinite(trained.history[0].loss)
        return
    with pytest.raises(
        InputError,
        match=f"the objective {name} supports .*gaussian.* noise, not splitting: its formula, or its attack along a "
        "gradient, is about x \\+ noise.*: augmentation, consistency, stability$",
    ):
        configured(objective=objective)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma": 0.0}, "sigma=0.0 must be a positive finite number, half the width of a cell"),
        ({"sigma": 0.003}, "sigma=0.003 on a grid of 256 levels makes 1 evaluations"),
        ({"sigma": ConstantRule(0.25)}, "with splitting noise, sigma must be one number"),
        ({"carried": CarriedSigma()}, "an optimised sigma needs noise that is added"),
        ({"noise": Noise.GAUSSIAN, "splitting": Splitting()}, "are for splitting, and the noise is gaussian"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        configured(**changes)


@pytest.mark.parametrize(("settings", "message"), [({"levels": 1}, "2 … 2"), ({"offset_seed": -1}, "seed of the off")])
def test_impossible_splittings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Splitting(**settings)


@pytest.mark.parametrize("wrong", [-0.01, 1.01, 255.0])
def test_inputs_outside_the_grid_are_refused(wrong):
    x, y = np.full((40, 1, 2, 2), 0.5, dtype=np.float32), np.arange(40) % 2
    bad = x.copy()
    bad[33, 0, 1, 1] = wrong
    options = {"noise": "splitting", "evaluations": 4, "epochs": 1, "seed": 1, "device": "cpu", "progress": False}
    with pytest.raises(DataError, match=r"splitting is for inputs in \[0, 1\]"):
        sc.train("mlp-4", (bad, y), **options)
    with pytest.raises(DataError, match=r"splitting is for inputs in \[0, 1\]"):
        sc.train("mlp-4", (x, y), validation=(bad, y), **options)
    sc.train("mlp-4", (x, y), **options)


def test_what_the_cells_depend_on_is_recorded(digits, tmp_path):
    run(digits, out=tmp_path / "m.safetensors", config=configured(splitting=Splitting(levels=17), sigma=0.5, epochs=1))
    facts = load_checkpoint(tmp_path / "m.safetensors").header.training
    stated = {name: facts[name] for name in ("noise", "sigma", "evaluations", "grid", "offset_seed")}
    assert stated == {"noise": "splitting", "sigma": 0.5, "evaluations": 16, "grid": 17, "offset_seed": 0}
    for noise in (Noise.GAUSSIAN, Noise.UNIFORM):
        assert not {"evaluations", "grid", "offset_seed"} & configured(noise=noise).to_json().keys()


@pytest.mark.parametrize("stop_at", [1, 22, 30])
def test_stopped_and_resumed_ends_with_the_same_bits(digits, tmp_path, stop_at):
    clean, out = run(digits), tmp_path / "m.safetensors"
    stop, steps = threading.Event(), []

    class Stopping(NoiseAugmentation):
        __slots__ = ()

        def terms(self, *arguments):
            steps.append(1)
            if len(steps) == stop_at:
                stop.set()
            return super().terms(*arguments)

    with pytest.raises(InterruptedRunError):
        run(digits, out=out, config=configured(objective=Stopping()), stop=stop)
    assert load_state(partial_path(out)).settings["offset_seed"] == 0
    others = {
        "offset_seed was 0, now 1": {"splitting": Splitting(offset_seed=1)},
        "evaluations was 16, now 17; .*sigma was": {"sigma": level_of(17, levels=256)},
        "evaluations was 16, now 15; grid was 256, now 255": {"splitting": Splitting(levels=255)},
    }
    for message, changes in others.items():
        with pytest.raises(ManifestMismatchError, match=message):
            run(digits, out=out, config=configured(**changes), resume=True)
    resumed = run(digits, out=out, resume=True)
    assert_same_weights(resumed, clean)
    assert [dataclasses.replace(one, seconds=0.0) for one in resumed.history] == [
        dataclasses.replace(one, seconds=0.0) for one in clean.history
    ]


def test_the_offsets_decide_the_weights(digits):
    one = run(digits, config=configured(epochs=1)).module.state_dict()
    other = run(digits, config=configured(epochs=1, splitting=Splitting(offset_seed=1))).module.state_dict()
    assert any(not torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_python_takes_evaluations_or_sigma(digits):
    options = {"epochs": 1, "seed": 3, "device": "cpu", "threads": 1, "progress": False}
    data = (digits.inputs(slice(0, 200)), digits.labels[:200])
    one = sc.train("mlp-16", data, noise="splitting", evaluations=8, grid=17, offset_seed=4, **options)
    other = sc.train("mlp-16", data, noise=Noise.SPLITTING, sigma=8 / 32, grid=17, offset_seed=4, **options)
    assert_same_weights(one, other)
    assert one.header.training["offset_seed"] == 4
    with pytest.raises(InputError, match="sigma and evaluations decide the same"):
        sc.train("mlp-16", data, noise="splitting", sigma=0.25, evaluations=8, **options)
    with pytest.raises(InputError, match="evaluations are counted for splitting, and the noise here is gaussian"):
        sc.train("mlp-16", data, evaluations=8, **options)
    with pytest.raises(InputError, match="grid and offset_seed are for splitting, and the noise is gaussian"):
        sc.train("mlp-16", data, sigma=0.25, grid=256, **options)
    with pytest.raises(InputError, match="give sigma"):
        sc.train("mlp-16", data, **options)


@pytest.mark.parametrize("objective", ["gaussian", "consistency"])
def test_most_digits_are_certified_after_a_short_training(objective, digits, held_out):
    """With cells as wide as the range of a pixel; a network that was trained without noise certifies fewer."""
    options = {"epochs": 8, "batch": 64, "seed": 1, "device": "cpu", "threads": 1, "progress": False, "lr": 0.2}
    splitting = {"noise": "splitting", "evaluations": 64, "grid": 65}

    def certify(module):
        smoothed = sc.SmoothedClassifier(module, **splitting, device="cpu")
        return smoothed.certify(held_out.inputs(slice(None)), labels=held_out.labels)

    trained = sc.train("mlp-64", digits, objective=objective, validation=held_out, **splitting, **options)
    plain = sc.train("mlp-64", digits, sigma=0.0, validation=held_out, **options)
    assert trained.accuracy > 0.8
    results = certify(trained.module)
    assert results.accuracy > 0.88
    assert results.certified_accuracy(0.25) > 0.77
    assert results.certified_accuracy(0.4) > certify(plain.module).certified_accuracy(0.4) + 0.05


def train_by_command(*arguments):
    return invoke(app, "train", "--device", "cpu", "--threads", 1, "--seed", 3, *arguments)


def test_the_command_trains_and_certify_says_what_differs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).integers(0, 256, (60, 4), dtype=np.uint8), np.arange(60) % 2
    x[:, 0] = y * 255
    np.savez("tiny.npz", x=x, y=y)
    settings = ["--data", "tiny.npz", "--arch", "mlp-8", "--noise", "splitting", "--batch", 8, "--epochs", 2]
    done = train_by_command(*settings, "--evaluations", 20, "--offset-seed", 6, "--out", "m.safetensors")
    assert "one of 20 evaluations of an input; offsets by seed 6" in done.stderr
    assert "correct under splitting with 20 evaluations" in done.stdout
    verb, *suggested = done.stdout.strip().splitlines()[-1].split()[1:]
    assert (verb, suggested[4:]) == ("certify", ["--noise", "splitting", "--evaluations", "20", "--seed", "6"])
    same = invoke(app, verb, *suggested, "--out", "same")
    assert "was trained" not in same.stderr
    other = invoke(app, verb, *suggested[:6], "--evaluations", 24, "--out", "other")
    assert (
        "m.safetensors was trained for 20 evaluations, offsets by seed 6, and this run has 24 evaluations, offsets by "
        "seed 0, which may cost accuracy" in other.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noise", "splitting", "--evaluations", 9, "--sigma", 0.1], "sigma and evaluations decide the same"),
        (["--noise", "splitting", "--evaluations", 9, "--objective", "smoothadv"], "not splitting"),
        (["--noise", "splitting"], "a noise level is required"),
        (["--sigma", 0.1, "--offset-seed", 1], "grid and offset_seed are for splitting"),
        (["--noise", "uniform", "--evaluations", 9], "evaluations are counted for splitting"),
    ],
)
def test_the_command_refuses_what_is_contradictory(arguments, message, tmp_path):
    with pytest.raises(InputError, match=message):
        train_by_command("--data", "digits", "--arch", "mlp-8", "--out", tmp_path / "m.safetensors", *arguments)


def test_the_command_takes_sigma_and_a_grid(tmp_path):
    settings = ["--noise", "splitting", "--sigma", 0.5, "--grid", 17, "--epochs", 1, "--json"]
    done = train_by_command("--data", "digits", "--arch", "mlp-8", *settings, "--out", tmp_path / "m.safetensors")
    document = json.loads(done.stdout)
    assert (document["evaluations"], document["grid"], document["offset_seed"]) == (16, 17, 0)

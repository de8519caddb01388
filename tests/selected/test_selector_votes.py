"""The votes at the levels: equal to those drawn one by one, stored, resumed, and refused where they do not fit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from smoothcert.data import load_dataset
from smoothcert.data.splits import DatasetPart
from smoothcert.errors import CorruptRunError, InterruptedRunError, ManifestMismatchError, RunBusyError
from smoothcert.files import hold_lock
from smoothcert.models import as_classifier
from smoothcert.noise import unit_noise
from smoothcert.records import Noise, Stage, StreamId
from smoothcert.training import selector_votes
from smoothcert.training.selector_votes import VotesRequest, sample_level_votes

LEVELS = (0.1, 0.4)
N = 7


@pytest.fixture(autouse=True)
def few_samples(monkeypatch):
    monkeypatch.setattr(selector_votes, "_SAMPLES_OF_CALIBRATION", 100)


def networks():
    """One linear network for each level."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        found.append(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).eval())
    return found


def request(**changes):
    dataset = DatasetPart(load_dataset("digits", split="train"), np.arange(3, 43), split="train")
    classifiers = [as_classifier(network, input_shape=(1, 8, 8), device="cpu") for network in networks()]
    settings = {"dataset": dataset, "classifiers": classifiers, "levels": LEVELS, "n": N, "seed": 9, "workers": 1}
    return VotesRequest(**(settings | changes))


def count_by_hand(asked):
    """The votes from the noise of each stream, one level and one input after the other."""
    votes = np.zeros((len(asked.dataset), 2), dtype=np.int64)
    for level, (network, sigma) in enumerate(zip(networks(), LEVELS, strict=True)):
        seed = selector_votes.seed_of_level(asked.seed, sigma)
        for index in range(len(asked.dataset)):
            x = asked.dataset.inputs([index])
            noise = unit_noise(Noise.GAUSSIAN, StreamId(seed, index, Stage.SELECTION), start=0, count=N, size=64)
            noisy = (x.reshape(1, 64) + np.float32(sigma) * noise.reshape(N, 64)).astype(np.float32)
            answers = network(torch.from_numpy(noisy).reshape(N, 1, 8, 8)).argmax(dim=1).numpy()
            votes[index, level] = (answers == asked.dataset.labels[index]).sum()
    return votes


def test_votes_equal_those_counted_by_hand():
    asked = request()
    votes = sample_level_votes(asked, None)
    assert np.array_equal(votes.votes, count_by_hand(asked))
    assert 0 < votes.votes.sum() < 2 * N * len(votes.votes)


def test_a_model_without_scores_is_judged_by_votes():
    """The answers of the same networks, without their scores: the same votes."""

    def hide_scores(network):
        return lambda batch: network(torch.from_numpy(batch)).argmax(dim=1).numpy()

    hidden = [as_classifier(hide_scores(one), num_classes=10, digest="hidden") for one in networks()]
    votes, seen = sample_level_votes(request(classifiers=hidden), None), sample_level_votes(request(), None)
    assert np.array_equal(votes.votes, seen.votes)
    assert np.isnan(votes.depths).all()
    assert np.isfinite(seen.depths).all()


def test_votes_do_not_depend_on_how_many_inputs_are_sampled_at_once(monkeypatch):
    whole = sample_level_votes(request(), None)
    monkeypatch.setattr(selector_votes, "_SAMPLES_AT_ONCE", 3 * N)
    assert np.array_equal(sample_level_votes(request(workers=2), None).votes, whole.votes)


def test_interrupted_sampling_is_resumed(tmp_path, monkeypatch):
    """Nothing is sampled twice, and the votes are those of an uninterrupted sampling."""
    monkeypatch.setattr(selector_votes, "_SAMPLES_AT_ONCE", 16 * N)
    whole, store = sample_level_votes(request(), None), tmp_path / "votes.safetensors"
    stop, seen = threading.Event(), []

    def progress(done, total):
        seen.append(done)
        if len(seen) == 1:
            stop.set()

    with pytest.raises(InterruptedRunError, match=r"after 16 of 40 inputs; the votes so far are in .*votes"):
        sample_level_votes(request(), store, progress=progress, stop=stop)
    stop.clear()
    resumed = sample_level_votes(request(), store, progress=progress)
    assert seen == [16, 32, 40]
    assert np.array_equal(resumed.votes, whole.votes)
    assert np.array_equal(resumed.radii, whole.radii)
    assert np.array_equal(resumed.depths, whole.depths)
    monkeypatch.setattr(selector_votes, "Sampler", None)
    again = sample_level_votes(request(), store, progress=progress)
    assert np.array_equal(again.votes, whole.votes)
    assert np.array_equal(again.radii, whole.radii)  # by the stored curves
    assert seen == [16, 32, 40]
    assert selector_votes.read_votes_seed(store) == 9


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"n": 8}, "n was 7, now 8"), ({"seed": 10}, "seed was 9, now 10"), ({"levels": (0.1, 0.5)}, "levels was")],
)
def test_votes_of_other_settings_are_refused(tmp_path, changes, named):
    store = tmp_path / "votes.safetensors"
    sample_level_votes(request(), store)
    with pytest.raises(ManifestMismatchError, match=named):
        sample_level_votes(request(**changes), store)


def test_votes_of_other_models_are_refused(tmp_path):
    store = tmp_path / "votes.safetensors"
    sample_level_votes(request(), store)
    with pytest.raises(ManifestMismatchError, match="models was"):
        sample_level_votes(request(classifiers=request().classifiers[::-1]), store)


def test_a_file_of_something_else_is_refused(tmp_path):
    store = tmp_path / "votes.safetensors"
    store.write_bytes(b"not tensors")
    with pytest.raises(CorruptRunError, match="holds no votes"):
        sample_level_votes(request(), store)


def test_curves_are_fitted_to_other_votes_of_the_same_inputs():
    """At each depth of the curve it says about what 100 votes in streams of their own say."""
    asked = request()
    votes = sample_level_votes(asked, None)
    for level, curve in enumerate(votes.curves):
        assert (np.diff(curve.quantiles) >= 0).all()
        chosen = np.isin(votes.depths[:, level], curve.depths)
        share = votes.votes[chosen, level].mean() / N
        assert ndtr(curve.read(votes.depths[chosen, level])).mean() == pytest.approx(share, abs=0.1)


def test_complete_votes_are_read_while_another_selector_holds_them(tmp_path):
    store = tmp_path / "votes.safetensors"
    whole = sample_level_votes(request(), store)
    with hold_lock(store):
        assert np.array_equal(sample_level_votes(request(), store).votes, whole.votes)
        store.unlink()
        with pytest.raises(RunBusyError):
            sample_level_votes(request(), store)

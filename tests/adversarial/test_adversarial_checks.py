"""The model checks: how many rows are compared with the user's object, and what they find or tolerate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adversarial_models import ORDINARY, ROOM, SHAPE, SIZE, THRESHOLD, Judge, bright
from adversarial_votes import SEED, SIGMA, images
from smoothcert import SmoothedClassifier
from smoothcert.errors import ModelError
from smoothcert.models import as_classifier
from smoothcert.models.base import BaseClassifier
from smoothcert.models.torch_classifier import TorchClassifier

CALIBRATED = 0.1999
"""Around a constant image of this brightness the models below have no radius: half of the noisy copies alone go either
way.
"""


def smoothed(model: Any, **settings: Any) -> SmoothedClassifier:
    chosen = {"sigma": SIGMA, "seed": SEED, "batch": 4096, "num_classes": 2, "device": "cpu", **settings}
    return SmoothedClassifier(model, **chosen)


def constant_images(count: int, value: float = CALIBRATED) -> np.ndarray:
    """Not on a grid, and all different."""
    offsets = 1e-5 * np.sqrt(np.arange(count) + 2.0)
    return (value + offsets[:, None] * np.ones(SIZE)).astype(np.float32).reshape(count, *SHAPE)


class ByBatchMean(nn.Module):
    """Classifies all rows by the mean of the batch, which reveals the clean input."""

    def forward(self, inputs: Tensor) -> Tensor:
        margin = (inputs.mean() - CALIBRATED + 0.01).expand(len(inputs))
        return torch.stack([margin, -margin], dim=1)


class ByRowPosition(nn.Module):
    """Classifies the first row of a batch by its brightness; all others are class 0."""

    def forward(self, inputs: Tensor) -> Tensor:
        margin = inputs.flatten(1).mean(dim=1) - CALIBRATED
        margin = torch.where(torch.arange(len(inputs)) == 0, margin, margin.abs() + 0.1)
        return torch.stack([margin, -margin], dim=1)


class ByBatchSize(nn.Module):
    """One vote in a hundred differs between a batch and a single row."""

    def forward(self, inputs: Tensor) -> Tensor:
        margin = inputs.flatten(1).mean(dim=1) - CALIBRATED
        flip = rare(inputs) & (inputs.new_tensor(len(inputs)) > 1)
        margin = torch.where(flip, -margin, margin)
        return torch.stack([margin, -margin], dim=1)


def rare(inputs: Tensor) -> Tensor:
    """True for about one row in a hundred, by its content."""
    digits = inputs.flatten(1)[:, 7] * 1000.0
    return (digits - digits.floor()) < 0.01


DEPENDENT = {"batch mean": ByBatchMean, "row position": ByRowPosition, "batch size": ByBatchSize}


@pytest.fixture(scope="module")
def dependent() -> dict[str, BaseClassifier]:
    """Adapted once; they keep no state."""
    return {
        name: as_classifier(kind(), num_classes=2, input_shape=SHAPE, device="cpu") for name, kind in DEPENDENT.items()
    }


WAYS = {
    "one input, large batches": (1, 10_000, 4096, 1),
    "one input, two workers": (1, 10_000, 4096, 2),
    "one input, one batch": (1, 10_000, 10_000, 1),
    "one input, small batches": (1, 10_000, 100, 2),
    "many shards": (40, 250, 32, 1),
    "many inputs in a batch": (20, 500, 4096, 2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DEPENDENT)
def test_dependence_on_the_batch_is_caught_six_times_of_six(
    name: str, way: str, dependent: dict[str, BaseClassifier]
) -> None:
    """Fails if one row per batch is checked, or if the search restarts with every worker and shard."""
    inputs, n, batch, workers = WAYS[way]
    for seed in range(6):
        with pytest.raises(ModelError):
            smoothed(dependent[name], batch=batch, workers=workers, seed=seed).certify(
                constant_images(inputs), n0=100, n=n
            )


SETTINGS: dict[str, dict[str, Any]] = {
    "pairs": {"certificate": "dipole"},
    "gradients": {"certificate": "second-order"},
    "scores": {"certificate": "gaussian-soft"},
    "uniform noise": {"noise": "uniform"},
    "shared noise": {"shared_noise": True},
    "grid noise": {"grid": 256},
    "a question": {"decide": 0.3},
    "onnxruntime": {"backend": "onnxruntime"},
}


@pytest.mark.parametrize(("name", "setting"), [
    *(("batch mean", setting) for setting in SETTINGS),
    # One vote in a hundred is not found among the few that answer a question.
    *(("batch size", setting) for setting in SETTINGS if setting not in ("a question", "onnxruntime")),
])  # fmt: skip
def test_dependence_on_the_batch_is_caught_in_every_kind_of_run(name: str, setting: str) -> None:
    """Fails if only plain votes under plain noise are checked."""
    chosen = dict(SETTINGS[setting])
    asked = {key: chosen.pop(key) for key in ("certificate", "decide") if key in chosen}
    inputs = np.full((2, *SHAPE), 51 / 255, dtype=np.float32) if "grid" in chosen else constant_images(2)
    with pytest.raises(ModelError):
        smoothed(DEPENDENT[name](), batch=1000, **chosen).certify(inputs, n0=100, n=5000, **asked)


def test_dependence_on_the_batch_is_caught_when_predicting() -> None:
    with pytest.raises(ModelError):
        smoothed(ByBatchMean()).predict(constant_images(1), n=10_000)


class ColderInBatches(nn.Module):
    """The votes of a row are the same in every batch; its scores are not."""

    def __init__(self) -> None:
        super().__init__()
        self.head = bright()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1)) * (0.1 if len(inputs) == 1 else 1.0)


def test_scores_are_compared_where_scores_are_counted() -> None:
    """Fails if only votes are compared: the mean score is nearly 1 here, and .7 for the model itself."""
    with pytest.raises(ModelError):
        smoothed(ColderInBatches(), batch=500).certify(images(), n0=100, n=2000, certificate="gaussian-soft")


# --- a fast form that is wrong ----------------------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, *, share: float) -> None:
    """Make every torch classifier vote differently for this share of the rows, unless called with a single row."""
    right = TorchClassifier.classify

    def classify(self: TorchClassifier, batch: np.ndarray, /) -> np.ndarray:
        votes = np.array(right(self, batch))
        if len(batch) == 1:
            return votes
        digits = np.abs(batch.reshape(len(batch), -1)[:, 5].astype(np.float64)) * 1e4
        return np.where(digits % 1.0 < share, 1 - votes, votes)

    monkeypatch.setattr(TorchClassifier, "classify", classify)


@pytest.mark.parametrize(("batch", "workers"), [(64, 1), (4096, 2)])
def test_one_wrong_vote_in_a_hundred_stops_the_run(monkeypatch: pytest.MonkeyPatch, batch: int, workers: int) -> None:
    """Fails if fewer than 2000 rows are checked, or if some wrong answers are tolerated. False alarm: once in 10⁸."""
    spoil(monkeypatch, share=0.01)
    with ROOM["plain_mlp"].opened() as model, pytest.raises(ModelError):
        smoothed(model, batch=batch, workers=workers).certify(images()[:1], n0=100, n=10_000)


def test_votes_that_are_never_wrong_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control of the test above: the same wrapper without wrong votes."""
    spoil(monkeypatch, share=0.0)
    with ROOM["plain_mlp"].opened() as model:
        assert smoothed(model).certify(images()[:1], n0=100, n=10_000)


# --- how many are asked -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clean() -> BaseClassifier:
    with ROOM["plain_mlp"].opened() as model:
        return as_classifier(model, num_classes=2, input_shape=SHAPE, device="cpu")


@pytest.mark.parametrize(("inputs", "n", "batch", "workers"), [
    (1, 30_000, 64, 1), (1, 30_000, 4096, 1), (1, 30_000, 4096, 2), (1, 30_000, 30_000, 1), (30, 1000, 128, 1),
    (30, 1000, 4096, 2),
])  # fmt: skip
def test_two_thousand_rows_are_asked_whatever_batch_workers_and_shards(
    inputs: int, n: int, batch: int, workers: int, clean: BaseClassifier
) -> None:
    """Fails if the number of checked rows depends on batches, workers or shards."""
    classifier = smoothed(clean, batch=batch, workers=workers)
    classifier.predict(constant_images(inputs), n=n)
    assert classifier.checks.drawn == inputs * n
    assert 2000 <= classifier.checks.asked <= 2500
    assert classifier.checks.ties == 0


@pytest.mark.parametrize(("batch", "workers"), [(256, 1), (8192, 2)])
def test_one_in_a_thousand_is_asked_afterwards(batch: int, workers: int, clean: BaseClassifier) -> None:
    """Fails if nothing is checked after the first rows, or if checking continues at the initial rate."""
    classifier = smoothed(clean, batch=batch, workers=workers)
    classifier.predict(constant_images(1), n=20_000)
    first = classifier.checks.asked
    classifier.predict(constant_images(4), n=50_000)
    assert classifier.checks.drawn == 220_000
    assert 100 <= classifier.checks.asked - first <= 400


def test_small_runs_are_asked_whole(clean: BaseClassifier) -> None:
    """Fails if a share of very few rows is rounded to none."""
    classifier = smoothed(clean, batch=64)
    classifier.certify(constant_images(3), n0=20, n=400)
    assert classifier.checks.drawn == 3 * 420
    assert classifier.checks.asked >= 3 * 420


def test_a_small_beginning_is_made_up_for(clean: BaseClassifier) -> None:
    """Fails if the two thousand rows are counted for the first call only."""
    classifier = smoothed(clean)
    classifier.predict(constant_images(1), n=500)
    assert classifier.checks.asked >= 500
    classifier.predict(constant_images(2), n=100_000)
    assert classifier.checks.asked >= 2000


# --- no false alarm ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ORDINARY, "pre_hook_on_linear", "float64_module", "autocast_inside"])
def test_thousands_of_checks_raise_no_false_alarm(name: str) -> None:
    with ROOM[name].opened() as model:
        classifier = smoothed(model, batch=1000, workers=2)
        assert len(classifier.certify(images(), n0=100, n=10_000)) == 3
        assert classifier.checks.asked >= 2000


class AllEqual(nn.Module):
    """Exact ties, everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(SIZE, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, 0.3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1))


def test_exact_ties_raise_no_alarm() -> None:
    """All ties go to the lowest class, in every mode."""
    classifier = smoothed(AllEqual(), batch=500)
    points = classifier.certify(images(), n0=100, n=5000)
    assert [point.prediction for point in points] == [0, 0, 0]
    assert classifier.checks.asked >= 2000
    assert classifier.checks.ties == 0


class SometimesATie(Judge):
    """For one row in fifty both logits are the same sum in another order, and a rounding error decides."""

    def forward(self, inputs: Tensor) -> Tensor:
        flat, weights = inputs.flatten(1), self.head.weight[0]
        clear = flat @ weights - THRESHOLD / 2.0
        there, back = flat @ weights, flat.flip(1) @ weights.flip(0)
        tied = (flat[:, 3] > 1.0)[:, None]
        return torch.where(tied, torch.stack([there, back], dim=1), torch.stack([clear, -clear], dim=1))


def test_near_ties_raise_no_alarm() -> None:
    """Fails if a vote decided by rounding counts as another function."""
    classifier = smoothed(SometimesATie(), batch=500)
    assert classifier.certify(images(), n0=100, n=5000)
    assert classifier.checks.asked >= 2000
    assert 0 <= classifier.checks.ties < 0.05 * classifier.checks.asked


def test_near_ties_are_no_excuse() -> None:
    """Control of the test above: a model with near ties that is wrong elsewhere is refused."""

    class WrongElsewhere(SometimesATie):
        def forward(self, inputs: Tensor) -> Tensor:
            logits = super().forward(inputs)
            return torch.where(rare(inputs)[:, None] & (len(inputs) > 1), logits.flip(1), logits)

    with pytest.raises(ModelError):
        smoothed(WrongElsewhere(), batch=500).certify(images(), n0=100, n=5000)

"""The cases of the golden votes: tiny fixed models, sampled at fixed seeds through the public interface.

The models compute with thresholds and bits of float32 only, so their answers do not depend on a BLAS library, on the
number of threads or on the order of additions. `Bits` is the sensitive one: it folds all bits of a noisy copy into its
class by exclusive or, so that one changed bit in one coordinate of one copy always moves that vote to another class.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.statistics.thinning import first_samples

SHAPE, SIZE = (2, 4), 8
FLOATS = (np.arange(3 * SIZE).reshape(3, *SHAPE) * 7 % 24 / np.float32(23)).astype(np.float32)
"""Three inputs that lie on no grid."""
LEVELS = (np.arange(3 * SIZE).reshape(3, *SHAPE) * 91 % 256).astype(np.uint8)
"""Three inputs of 256 levels."""
ODD = (np.arange(3 * 21).reshape(3, 3, 7) * 37 % 256).astype(np.uint8)
"""Three inputs of 21 coordinates, which fill no block of a generator."""
SEED = 2**100 + 12345
INDICES = [3, 70_000, 2**32 - 2]
"""Numbers of the noise streams: small, above 16 bits, and nearly as large as allowed."""

Golden = dict[str, Any]
"""The tallies of one case, and the grid its noise went in steps of."""


class _Model:
    """What all models of the cases share: a base classifier in host memory with scores."""

    num_classes = 4
    input_shape: tuple[int, ...] | None = None
    digest = "golden"
    description = "golden"
    backend = "numpy"
    concurrency = 2
    gives_scores = True

    def classify(self, batch: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def votes_and_scores(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores of one half, one quarter, one eighth and one sixteenth, the largest for the class voted for."""
        votes = self.classify(batch)
        distance = (np.arange(self.num_classes) - votes[:, None]) % self.num_classes
        return votes, np.where(distance < 4, 2.0 ** -(1 + distance), 0.0)

    def prepare_thread(self) -> None:
        pass

    def release_threads(self) -> None:
        pass


class Corners(_Model):
    """Two thresholds make four classes; copies whose third coordinate is large have no valid answer."""

    def classify(self, batch: np.ndarray) -> np.ndarray:
        flat = batch.reshape(len(batch), -1)
        votes = (flat[:, 0] > 0.75).astype(np.int64) + 2 * (flat[:, 1] > 0.75)
        return np.where(flat[:, 2] > 1.25, self.num_classes, votes)


class DarkIsInvalid(Corners):
    """`Corners` within [0, 1]: copies whose third coordinate is small have no valid answer."""

    def classify(self, batch: np.ndarray) -> np.ndarray:
        third = batch.reshape(len(batch), -1)[:, 2]
        return np.where(third < 0.25, self.num_classes, super().classify(batch))


class Bits(_Model):
    """Sixteen classes: all bits of a copy, folded by exclusive or into four."""

    num_classes = 16

    def classify(self, batch: np.ndarray) -> np.ndarray:
        words = np.ascontiguousarray(batch, dtype=np.float32).reshape(len(batch), -1).view(np.uint32)
        folded = np.bitwise_xor.reduce(words, axis=1)
        for shift in (16, 8, 4):
            folded ^= folded >> np.uint32(shift)
        return (folded & np.uint32(15)).astype(np.int64)


class MostlyZero(Bits):
    """`Bits` where the first coordinate is large, else class 0: one class wins, which adaptive rounds need."""

    def classify(self, batch: np.ndarray) -> np.ndarray:
        return np.where(batch.reshape(len(batch), -1)[:, 0] > 1.0, super().classify(batch), 0)


class OnDevice:
    """The same model as one whose inputs live on a device: noise and counters in torch, on CPU tensors."""

    input_shape: tuple[int, ...] | None = None
    digest = "golden device"
    description = "golden on a device"
    backend = "torch"
    concurrency = 1
    gives_scores = True
    device = torch.device("cpu")

    def __init__(self, model: _Model) -> None:
        self._model = model
        self.num_classes = model.num_classes

    def classify(self, batch: np.ndarray) -> np.ndarray:
        return self._model.classify(batch)

    def votes_and_scores(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._model.votes_and_scores(batch)

    def classify_tensor(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self._model.classify(batch.numpy()))

    def votes_and_scores_tensor(self, batch: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        return self._model.votes_and_scores(batch.numpy())

    def prepare_thread(self) -> None:
        pass

    def release_threads(self) -> None:
        pass


def first_layer_network() -> nn.Module:
    """A network whose first layer is narrow, with weights that keep every product and sum exact but one.

    The transposed weights of the first layer are upper triangular, so their QR factorisation is exact.
    """
    first, last = nn.Linear(SIZE, 2), nn.Linear(2, 4)
    with torch.no_grad():
        first.weight.zero_()
        first.weight[0, 0], first.weight[1, 0], first.weight[1, 1] = 2.0, 1.0, 4.0
        first.bias.copy_(torch.tensor([-1.0, -2.0]))
        last.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
        last.bias.zero_()
    return nn.Sequential(nn.Flatten(), first, nn.Identity(), last).eval()


def describe(tally: Any) -> dict[str, Any]:
    """One tally as plain JSON: whole numbers, and long arrays as a digest."""
    told: dict[str, Any] = {
        "kind": str(tally.kind),
        "index": tally.stream.index,
        "stage": tally.stream.stage.name,
        "sigma": tally.sigma.hex(),
        "ranges": [list(span) for span in tally.ranges],
    }
    match told["kind"]:
        case "pairs":
            return told | {name: getattr(tally, name).tolist() for name in ("both", "first_only", "second_only")}
        case "votes":
            more = {}
        case "gradients":
            more = {"group": tally.group.tolist(), "products": tally.products.tolist(), "sums": _digest(tally.sums)}
        case "scores":
            more = {"label": tally.label, "cells": tally.cells.tolist(), "hits": tally.hits.tolist()}
        case other:
            raise AssertionError(f"there are no golden votes for tallies of kind {other}: add a case")
    return told | {"counts": tally.counts.tolist(), "invalid": tally.invalid} | more


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(str(array.shape).encode() + array.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Case:
    """What is sampled: a model, inputs, and the settings of `SmoothedClassifier` and of `certify` or `predict`.

    on_device: whether the counters for a device must count the same.
    """

    x: np.ndarray
    model: Callable[[], Any] = Bits
    setup: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    verb: str = "certify"
    on_device: bool = True
    thinned_to: tuple[int, ...] = ()

    def sample(self, *, on_device: bool = False, model: Any = None) -> Golden:
        """The tallies of all inputs. model: used instead of the one of the case."""
        made = self.model() if model is None else model
        smoothed = SmoothedClassifier(
            OnDevice(made) if on_device else made,
            **{"sigma": 0.5, "seed": SEED, "batch": 64, "workers": 2, "device": "cpu"} | dict(self.setup),
        )
        few = {"n": 100} if self.verb == "predict" else {"n0": 30, "n": 100}
        if not smoothed.noise.sampled:
            few = {}
        settings = {"indices": INDICES} | few | dict(self.asked)
        points = getattr(smoothed, self.verb)(self.x, **settings)
        tallies = [tally for point in points for tally in point.tallies]
        if self.thinned_to:
            proving = [
                [tally for tally in point.tallies if tally.stream.stage.name == "ESTIMATION"] for point in points
            ]
            tallies = [first_samples(segments, n) for segments in proving for n in self.thinned_to]
        return {"grid": smoothed.grid, "tallies": [describe(tally) for tally in tallies]}


def _sigma_of_input(x: np.ndarray) -> float:
    """A power of two for every input."""
    return 0.25 if float(np.asarray(x).reshape(-1)[0]) < 0.25 else 0.5


def _every_kind() -> dict[str, Case]:
    """All kinds of tallies that exist for a noise, in floating point and on a grid."""
    gaussian = {"votes": "gaussian", "pairs": "dipole", "gradients": "second-order", "scores": "gaussian-soft"}
    uniform = {"votes": "uniform-l1", "scores": "uniform-l1-soft"}
    return {
        f"{noise}, {place}, {kind}": Case(x, setup={"noise": noise, "grid": grid}, asked={"certificate": certificate})
        for noise, kinds in (("gaussian", gaussian), ("uniform", uniform))
        for place, x, grid in (("float", FLOATS, "float"), ("256 levels", LEVELS, 256))
        for kind, certificate in kinds.items()
    } | {"splitting, 256 levels, votes": Case(LEVELS, setup={"noise": "splitting", "grid": 256})}


def _invalid_votes() -> dict[str, Case]:
    kinds = {"votes": "gaussian", "pairs": "dipole", "gradients": "second-order", "scores": "gaussian-soft"}
    return {
        f"invalid votes, {kind}": Case(
            FLOATS, model=Corners, setup={"grid": "float"}, asked={"certificate": certificate}
        )
        for kind, certificate in kinds.items()
    }


def _shared_noise() -> dict[str, Case]:
    places = {"float": (FLOATS, "float"), "256 levels": (LEVELS, 256)}
    shared = {
        f"shared noise, {place}, {kind}": Case(
            x, setup={"shared_noise": True, "grid": grid}, asked={"certificate": certificate}
        )
        for place, (x, grid) in places.items()
        for kind, certificate in (("votes", "gaussian"), ("pairs", "dipole"), ("gradients", "second-order"))
    }
    levels = Case(LEVELS, setup={"shared_noise": True, "sigma": _sigma_of_input, "grid": 256}, verb="predict")
    return shared | {"shared noise, two levels of sigma": levels}


def _first_layer() -> dict[str, Case]:
    setup = {"noise_at": "first-layer", "grid": "float"}
    kinds = {"votes": "gaussian", "pairs": "dipole"}
    return {
        f"first layer, {kind}": Case(
            FLOATS, model=first_layer_network, setup=setup, asked={"certificate": certificate}, on_device=False
        )
        for kind, certificate in kinds.items()
    } | {
        "first layer, prediction": Case(FLOATS, model=first_layer_network, setup=setup, verb="predict", on_device=False)
    }


def _others() -> dict[str, Case]:
    return {
        "gradients of every class": Case(LEVELS, model=Corners, asked={"certificate": "second-order-multi-class"}),
        "prediction, float": Case(FLOATS, setup={"grid": "float"}, verb="predict"),
        "prediction, 256 levels": Case(LEVELS, setup={"grid": 256}, verb="predict"),
        "prediction, uniform": Case(LEVELS, setup={"noise": "uniform"}, verb="predict"),
        "21 coordinates, float": Case(ODD / np.float32(255), setup={"grid": "float"}),
        "21 coordinates, 256 levels": Case(ODD, setup={"grid": 256}),
        "24 levels, gaussian": Case(FLOATS, setup={"grid": 24, "sigma": 0.25}),
        "65536 levels, gaussian": Case(LEVELS / np.float32(255), setup={"grid": 65536, "sigma": 0.125}),
        "65536 levels, uniform": Case(LEVELS / np.float32(255), setup={"grid": 65536, "noise": "uniform"}),
        "a sigma for every input": Case(FLOATS, setup={"sigma": _sigma_of_input, "grid": "float"}, verb="predict"),
        "adaptive rounds, decide": Case(LEVELS, model=MostlyZero, asked={"decide": [0.125, 0.5], "n": 5000}),
        "adaptive rounds, precision": Case(
            FLOATS, model=MostlyZero, setup={"grid": "float"}, asked={"precision": 0.125, "n": 5000}
        ),
        "adaptive rounds, uniform": Case(
            LEVELS, model=MostlyZero, setup={"noise": "uniform"}, asked={"decide": 0.25, "n": 5000}
        ),
        "splitting, 24 levels": Case(FLOATS, setup={"noise": "splitting", "grid": 24, "sigma": 0.25}),
        "splitting, 65536 levels": Case(
            LEVELS / np.float32(255), setup={"noise": "splitting", "grid": 65536, "sigma": 0.002}
        ),
        "splitting, 21 coordinates": Case(ODD, setup={"noise": "splitting", "sigma": 0.86603}),
        "splitting, prediction": Case(LEVELS, setup={"noise": "splitting"}, verb="predict"),
        "splitting, invalid votes": Case(LEVELS, model=DarkIsInvalid, setup={"noise": "splitting"}),
        "thinned": Case(LEVELS, asked={"n": 1000}, thinned_to=(7, 333, 500, 999), on_device=False),
    }


CASES = _every_kind() | _invalid_votes() | _shared_noise() | _first_layer() | _others()

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "votes.json"
REGENERATE = "python tests/golden/regenerate.py"


def read_golden() -> dict[str, Any]:
    return dict(json.loads(GOLDEN.read_text()))


def write_golden(version: int, cases: Mapping[str, Golden]) -> None:
    """One line for each tally, so that a diff shows which ones changed."""
    lines = ["{", f'"sampling_version": {version},', '"cases": {']
    for at, (name, golden) in enumerate(cases.items()):
        tallies = ",\n".join("  " + json.dumps(tally) for tally in golden["tallies"])
        comma = "," if at < len(cases) - 1 else ""
        lines.append(f'{json.dumps(name)}: {{"grid": {json.dumps(golden["grid"])}, "tallies": [\n{tallies}]}}{comma}')
    GOLDEN.write_text("\n".join([*lines, "}", "}"]) + "\n")


def check_version(stored: Mapping[str, Any], version: int) -> None:
    """AssertionError unless the stored votes were made for this SAMPLING_VERSION."""
    made_for = stored["sampling_version"]
    assert made_for == version, (
        f"smoothcert.sampling.SAMPLING_VERSION is {version}, but the golden votes were made for {made_for}. If votes "
        f"changed on purpose, regenerate the file: {REGENERATE}. If they did not, set the number back to {made_for}"
    )


def check_votes(name: str, expected: Golden | None, found: Golden) -> None:
    """AssertionError where a case counts other votes than the stored ones."""
    assert expected is not None, f"there are no golden votes for {name!r}: add them with {REGENERATE}"
    assert found["grid"] == expected["grid"], _changed(name)
    assert len(found["tallies"]) == len(expected["tallies"]), _changed(name)
    for one, other in zip(found["tallies"], expected["tallies"], strict=True):
        assert one == other, f"{_changed(name)}\nstored: {other}\nfound:  {one}"


def _changed(name: str) -> str:
    return (
        f"the votes of a seed changed ({name}). Half-finished runs and stored seeds no longer mean the same. If this "
        "is intended, raise SAMPLING_VERSION in src/smoothcert/sampling/__init__.py and regenerate the golden votes "
        f"with {REGENERATE}. If not, undo the change"
    )

"""The model and the data of a run, for a replay: the one module that uses smoothcert, and only when it is called.

A replay has to ask the model, so it loads model and data with smoothcert's adapters. `ReplayModel` and `ReplayData` are
all that `replay` sees of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.findings import Finding, MissingPackageError, note
from smoothcert_verify.noise_forms import FloatNoise
from smoothcert_verify.noise_kinds import NoisyInput, round_to_grid
from smoothcert_verify.run_facts import RunFacts

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ReplayData:
    """A dataset of smoothcert."""

    dataset: Any

    def read_input(self, index: int) -> Rows:
        """An input, flat."""
        return np.ascontiguousarray(self.dataset.inputs([index]), dtype=np.float32).reshape(-1)

    def read_label(self, index: int) -> int | None:
        label = int(self.dataset.labels[index])
        return label if label >= 0 else None

    def compare(self, run: RunFacts) -> Iterator[Finding]:
        """How the data differs from what a manifest states of it."""
        ends, stated = self.dataset.input_range, run.manifest["data"]
        facts = {
            "digest": (self.dataset.digest, run.manifest["digests"]["data"]),
            "input_shape": (list(self.dataset.input_shape), stated["input_shape"]),
            "levels": (self.dataset.levels, stated["levels"]),
            "size": (len(self.dataset), stated["size"]),
            "input_range": (None if ends is None else [float(end) for end in ends], stated["input_range"]),
        }
        for name, (value, expected) in facts.items():
            if value != expected:
                yield note("other-data", field=name, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class ReplayModel:
    """A base classifier of smoothcert, as the run asked it. input_shape: of the data."""

    classifier: Any
    input_shape: tuple[int, ...]

    @property
    def _is_split(self) -> bool:
        """Whether noise is added after the first layer."""
        return hasattr(self.classifier, "colour")

    def compare(self, run: RunFacts) -> Iterator[Finding]:
        """How the model differs from what a manifest states of it, and from its stored answers to fixed inputs."""
        from smoothcert.models.probe import probe_differences

        facts = {
            "digest": (self.classifier.digest, run.manifest["digests"]["model"]),
            "num_classes": (self.classifier.num_classes, run.num_classes),
        }
        for name, stated in (("class_names", run.class_names), ("feature_names", run.feature_names)):
            own = list(getattr(self.classifier, name, ()))
            if own and stated:
                facts[name] = (own, stated)
        different = [
            note("other-model", field=name, value=value, expected=expected)
            for name, (value, expected) in facts.items()
            if value != expected
        ]
        yield from different
        if not different:
            for line in probe_differences(run.manifest["model"]["probe"], self.classifier, self.input_shape):
                yield note("other-answers", difference=str(line))

    def make_copies(self, run: RunFacts, x: Rows, sigma: float) -> NoisyInput:
        """The noisy copies of an input, or of what the first layer makes of it. x: flat."""
        if run.grid is not None:
            x = round_to_grid(x, run.grid) if run.rounds else x
            return run.form.copies_on_grid(x, sigma=sigma, levels=run.grid)
        if not self._is_split:
            return FloatNoise(run.kind, x, sigma=sigma)
        hidden = self.classifier.hidden(x.reshape(1, *self.input_shape)).reshape(-1)
        return FloatNoise(run.kind, hidden, sigma=sigma, colour=self.classifier.colour)

    def shape_rows(self, rows: Rows) -> Rows:
        """Flat noisy copies as the model takes them."""
        return np.ascontiguousarray(rows if self._is_split else rows.reshape(len(rows), *self.input_shape))

    def answer(self, rows: Rows, *, scores: bool) -> tuple[NDArray[Any], ...]:
        """Votes, and scores if they are wanted. The model may change the rows."""
        tail = self.classifier.tail if self._is_split else self.classifier
        return tuple(tail.votes_and_scores(rows)) if scores else (tail.classify(rows),)

    def compare_original(self, x: Rows, sigma: float) -> Callable[[Rows, int], int | None]:
        """A function of a noisy row and its vote. It returns the vote of the user's own object if that differs by more
        than rounding, else None. x: the input, flat."""
        from smoothcert.models.original import is_tie, original_of

        original = original_of(self.classifier)

        def compare(row: Rows, vote: int) -> int | None:
            noisy = self.classifier.lift(x.reshape(self.input_shape), row, sigma=sigma) if self._is_split else row
            answer = original.answer(noisy)
            return None if answer.vote == vote or is_tie(original, noisy, answer, vote) else int(answer.vote)

        return compare


def open_data(run: RunFacts, *, place: str | None, root: Path | None) -> ReplayData:
    """The data of a run, loaded as its manifest says. place, root: where it is now; by default where the run had it."""
    try:
        from smoothcert.data import load_dataset
        from smoothcert.data.matching import match_dataset
    except ImportError as error:
        raise MissingPackageError("smoothcert", "verify", "loading the data of a run") from error
    spec = run.manifest["spec"]["data"]
    ends, shape, size = spec["input_range"], spec["input_shape"], spec.get("resize")
    dataset = load_dataset(
        spec["place"] if place is None else place,
        split=spec["split"],
        root=root if root is not None or spec["root"] is None else Path(spec["root"]),
        input_range=ends if ends == "default" or ends is None else tuple(ends),
        input_shape=None if shape is None else tuple(shape),
        resize=None if size is None else tuple(size),
        shorter_side=spec.get("shorter_side"),
        label_column=spec.get("label_column"),
    )
    return ReplayData(match_dataset(dataset, class_names=run.class_names, feature_names=run.feature_names))


def open_model(run: RunFacts, data: ReplayData, *, place: str, weights: str | None = None) -> ReplayModel:
    """The model at this place, loaded as the manifest says. weights: of code, by default where the run had them.

    Code is imported from here, never from the folder that the manifest names, and an architecture that is code is not
    taken from it: the author of the run chose that.
    """
    from smoothcert.models import load_classifier
    from smoothcert.models.scaled_classifier import ScaledClassifier
    from smoothcert.records.feature_scale import FeatureScale
    from smoothcert.user_code import is_code_name

    spec = run.manifest["spec"]["model"]
    recorded = spec.get("weights") if is_code_name(place) else None
    standardise = spec["standardise"]
    classifier = load_classifier(
        place,
        num_classes=spec["num_classes"],
        input_shape=data.dataset.input_shape,
        device=spec["device"],
        arch=None if is_code_name(spec["arch"] or "") else spec["arch"],
        standardise=None if standardise is None else (tuple(standardise[0]), tuple(standardise[1])),
        noise_at=run.noise["place"],
        backend=spec["backend"],
        dtype=spec.get("dtype"),
        weights=recorded if weights is None else weights,
    )
    if run.scale is not None:
        # The manifest was not checked yet; what cannot be scaled has another digest than the run states.
        classifier = ScaledClassifier(classifier, FeatureScale(tuple(run.scale)))
    return ReplayModel(classifier, tuple(data.dataset.input_shape))

"""What fresh samples of a selector and of its levels prove at a point: only what holds whichever level is selected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from coverage_judge import Seen
from sample_points import POINT
from smoothcert.attacks.attack_record import Fate, FreshVerdict
from smoothcert.attacks.selected_attack import AttackedSelection
from smoothcert.errors import InputError
from smoothcert.records import CertifiedPoint
from smoothcert.runs.selected_reopening import OpenedPart, OpenedSelection
from smoothcert.smoothed import SmoothedClassifier

Votes = Callable[[np.ndarray], np.ndarray]


def side(batch: np.ndarray) -> np.ndarray:
    """0 left of the origin, 1 right of it: at the origin both are equally frequent."""
    return (batch[:, 0] > 0).astype(np.int64)


def always(label: int) -> Votes:
    return lambda batch: np.full(len(batch), label)


def nearly_never_finite(batch: np.ndarray) -> np.ndarray:
    scores = np.stack([-batch[:, 0], batch[:, 0]], axis=1).astype(np.float64)
    scores[batch[:, 0] < 0.5] = np.nan
    return scores


def judge(
    selector: Votes, levels: list[Votes], *, at: float, count: int = 1, n: int = 200, level: float = 0.001
) -> list[FreshVerdict]:
    """Verdicts at `count` equal points, whose answer was 0 when they were attacked; each with samples of its own."""

    def part(name: str, model: Votes, sigma: float) -> OpenedPart:
        smoothed = SmoothedClassifier(
            model, sigma=sigma, num_classes=3 if model is not selector else 2, seed=1, batch=2000, grid="float",
            input_range=None, input_shape=(2,),
        )  # fmt: skip
        return OpenedPart(name, None, smoothed)  # type: ignore[arg-type]  # only searching needs the spec

    opened = OpenedSelection(
        part("selector", selector, 1.0),
        tuple(part(f"level-{k}", model, 0.5 + k) for k, model in enumerate(levels)),
        None,  # type: ignore[arg-type]
    )
    points = np.tile(np.array([[at, 0.0]], dtype=np.float32), (count, 1))
    group = [_answered(index) for index in range(count)]
    return AttackedSelection(opened).judge(points, group, seed=5, n=n, level=level, progress=None)


def _answered(index: int) -> CertifiedPoint:
    return replace(POINT, index=index, verdict=replace(POINT.verdict, prediction=0))


@pytest.mark.parametrize(
    ("at", "levels", "fate", "answer"),
    [
        # One level is certain.
        (-3.0, (0, 1), Fate.UNCHANGED, 0),
        (3.0, (0, 1), Fate.CHANGED, 1),
        (3.0, (1, 0), Fate.UNCHANGED, 0),
        # Both levels are possible.
        (0.0, (0, 0), Fate.UNCHANGED, 0),
        (0.0, (0, 1), Fate.ABSTAINED, None),
        (0.0, (1, 0), Fate.ABSTAINED, None),
        (0.0, (1, 1), Fate.CHANGED, 1),
    ],
)
def test_fates(at: float, levels: tuple[int, int], fate: Fate, answer: int | None) -> None:
    (found,) = judge(side, [always(label) for label in levels], at=at)
    assert (found.fate, found.answer) == (fate, answer)
    assert found.stages is not None
    assert found.samples == 200 * len(found.stages)
    assert len(found.stages) == (3 if at == 0 else 2)


def test_levels_that_answer_different_other_classes_are_a_change() -> None:
    (found,) = judge(side, [always(1), always(2)], at=0.0)
    assert found.fate is Fate.CHANGED
    assert found.answer in (1, 2)


def test_a_level_that_proves_nothing_is_no_change() -> None:
    """Neither where it is the only one, nor where the other one proves another class."""
    assert judge(always(0), [side, always(1)], at=0.0)[0].fate is Fate.ABSTAINED
    assert judge(side, [side, always(1)], at=0.0)[0].fate is Fate.ABSTAINED


def test_a_selector_without_answers_proves_nothing() -> None:
    (found,) = judge(nearly_never_finite, [always(1), always(1)], at=-1.0)
    assert (found.fate, found.answer, found.leads) == (Fate.ABSTAINED, None, False)
    assert found.stages is not None
    assert [stage.part for stage in found.stages] == ["selector"]


def test_too_few_samples_are_refused() -> None:
    opened = OpenedSelection(None, (None,) * 3, None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="can never predict"):
        AttackedSelection(opened).check_samples(8, level=0.02)
    AttackedSelection(opened).check_samples(9, level=0.02)


@pytest.mark.slow
def test_false_reports_of_a_change_are_as_rare_as_said() -> None:
    """At a tie of the levels, the one that is called selected answers 0: a change is reported if it is left out.

    At a tie of the classes of the selected level, a change is reported if the votes mislead. The control tests
    nothing: the level with most votes is believed.
    """
    level = 0.3
    by_levels = judge(side, [always(0), always(1)], at=0.0, count=400, n=101, level=level)
    by_classes = judge(always(0), [side, always(0)], at=0.0, count=400, n=101, level=level)
    changed = [[one.fate is Fate.CHANGED for one in found] for found in (by_levels, by_classes)]
    for found in changed:
        assert Seen.of(found).failures > 0
        assert not Seen.of(found).refutes(level / 2)
    assert Seen.of([not one.leads for one in by_levels]).refutes(level)

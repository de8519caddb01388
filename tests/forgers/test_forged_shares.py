"""Selected runs in which α is spent twice, or shared by another rule than that of the run, are not accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")

from counted_selections import INPUTS, CountedInput, make_spec_of_selection, store_counted
from smoothcert.questions import selected_points
from smoothcert_verify.selection_checks import verify_selection

FEW = (INPUTS[1], INPUTS[5], INPUTS[4], INPUTS[2])


def codes(run: Path) -> set[str]:
    return {finding.code for finding in verify_selection(run).discrepancies}


def rewrite(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def test_shares_that_add_up_to_more(tmp_path: Path) -> None:
    """As if one level were sampled, with two of them, by the rule of earlier versions; all else is consistent."""
    spec = make_spec_of_selection()
    share = spec.alpha - spec.selector_alpha
    doubled = make_spec_of_selection(alpha=spec.selector_alpha + 2 * share, upper_alpha=None)
    run = store_counted(tmp_path / "run", doubled)
    assert codes(run) == set()
    rewrite(run / "selection.json", lambda document: document["spec"].update(alpha=spec.alpha))
    assert codes(run) == {"alpha-overspent"}


def test_a_run_of_today_that_poses_as_one_of_an_earlier_version(tmp_path: Path) -> None:
    """There every sampled level was paid for; its lower and upper bounds shared what the selector has."""
    run = store_counted(tmp_path / "run", inputs=FEW)
    rewrite(run / "selection.json", lambda document: document["spec"].pop("upper_alpha"))
    assert {"alpha-overspent", "radius-not-certified"} <= codes(run)


def test_a_run_of_an_earlier_version_that_poses_as_one_of_today(tmp_path: Path) -> None:
    """What it does not spend is reported."""
    run = store_counted(tmp_path / "run", make_spec_of_selection(upper_alpha=None), FEW)
    rewrite(run / "selection.json", lambda document: document["spec"].update(upper_alpha=0.0))
    assert "alpha-not-spent" in codes(run)


@pytest.mark.parametrize("mistake", ["answering", "proved", "upper"])
def test_shares_that_are_spent_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """The lower bound has the share of a level whose own radius is used; or an upper bound has that of the lower one.

    Level 0.25 leads; level 0.5 answers the same class, but proves hardly anything.
    """
    other = (430, 480, 45, 45) if mistake == "proved" else (380, 560, 30, 30)
    one = CountedInput((39, 1, 0), (700, 295, 5), ((0, 1000, 0, 0), other, (0, 1000, 0, 0)))
    honest, bound = selected_points.exclude_levels, selected_points._bound_above

    def nobody_answers(*of: Any, answering: object) -> list[float]:
        return honest(*of, answering=())

    def bound_closely(*of: Any, alpha: float) -> list[float]:
        return bound(*of, alpha=2 * alpha)

    if mistake == "proved":  # what a level answers is decided by the votes that prove it
        monkeypatch.setattr(selected_points, "_chosen_class", lambda point: point.prediction)
    elif mistake == "answering":
        monkeypatch.setattr(selected_points, "exclude_levels", nobody_answers)
    else:
        monkeypatch.setattr(selected_points, "_bound_above", bound_closely)
    assert codes(store_counted(tmp_path / "run", inputs=(one,))) == {"radius-not-certified"}
    monkeypatch.undo()
    assert codes(store_counted(tmp_path / "honest", inputs=(one,))) == set()


def test_the_share_of_the_selector_is_not_forgotten(tmp_path: Path) -> None:
    """Negative control: the levels spend all of alpha, the selector as much again."""
    run = store_counted(tmp_path / "run", make_spec_of_selection(alpha=0.02, selector_alpha=0.01, upper_alpha=0.0))
    rewrite(run / "selection.json", lambda document: document["spec"].update(alpha=0.01 * (1 + 1e-9)))
    assert codes(run) == {"alpha-overspent"}


@pytest.mark.parametrize("share", [-1e-9, 0.0076, 0.5, "0.001"])
def test_a_share_of_upper_bounds_that_leaves_nothing_to_the_levels(tmp_path: Path, share: object) -> None:
    run = store_counted(tmp_path / "run", inputs=FEW)
    rewrite(run / "selection.json", lambda document: document["spec"].update(upper_alpha=share))
    assert codes(run) == {"invalid-value"}

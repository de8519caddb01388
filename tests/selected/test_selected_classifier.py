"""`SelectedClassifier`: the same points as a run, whatever the order, the batches and the number of inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smoothcert as sc
from sample_models import digits_by_brightness
from selected_runs import LEVELS, make_selected, selected_spec, without_seconds
from selector_models import by_brightness, never_finite, of_two_levels
from smoothcert.errors import InputError, ModelError, RunError
from smoothcert.records import Outcome
from smoothcert.runs.selected_run import SelectedRun

INPUTS = [0, 60, 120, 180, 240]
ASKED: dict[str, Any] = {"n": 60, "n0": 10, "alpha": 0.05, "certificate": ("selected", "selected-published")}


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, int | None]:
    data = sc.load_dataset("digits", split="test")
    return data.inputs(INPUTS), data.labels[INPUTS], data.levels


def make(selector: Any = by_brightness, models: Any = digits_by_brightness, **options: Any) -> sc.SelectedClassifier:
    settings = {"levels": LEVELS, "selector_sigma": 0.1, "seed": 7, "grid": 17, **options}
    return sc.SelectedClassifier(selector, models, **settings)


def test_a_call_gives_the_points_of_the_run_of_the_command_line(digits: Any, tmp_path: Path) -> None:
    x, y, _ = digits
    results = make().certify(x, labels=y, indices=INPUTS, **ASKED)
    run = make_selected(selected_spec(), tmp_path / "run")
    assert without_seconds(list(results)) == without_seconds(run.points())
    assert results.certificates == ("selected", "selected-published")
    assert "among" not in repr(results)
    assert results[1].guarantee is not None
    assert results[1].guarantee.alpha == pytest.approx(0.05)


@pytest.mark.slow
def test_order_batch_workers_and_further_inputs_change_nothing(digits: Any) -> None:
    x, y, _ = digits
    all_together = without_seconds(list(make().certify(x, labels=y, indices=INPUTS, **ASKED)))
    order = [3, 0, 4]
    some = make(models=[digits_by_brightness] * 3, batch=13, workers=1).certify(
        x[order], labels=y[order], indices=[INPUTS[k] for k in order], **ASKED
    )
    assert without_seconds(list(some)) == [all_together[k] for k in order]


@pytest.mark.slow
def test_calls_draw_fresh_noise_and_seeds_differ(digits: Any) -> None:
    x, _, _ = digits
    classifier = make()
    first, second = classifier.certify(x[:2], **ASKED), classifier.certify(x[:2], **ASKED)
    assert [point.index for point in (*first, *second)] == [0, 1, 2, 3]
    assert make(seed=None).seed != make(seed=None).seed


@pytest.mark.slow
def test_results_are_recertified_selected_and_exported(digits: Any, tmp_path: Path) -> None:
    pytest.importorskip("flint")
    x, y, _ = digits
    results = make().certify(x, labels=y, **ASKED)
    again = results.recertify(alpha=0.2)
    assert without_seconds(list(again)) == without_seconds(list(make().certify(x, labels=y, **{**ASKED, "alpha": 0.2})))
    assert without_seconds(list(results[1:3].recertify(alpha=0.2))) == without_seconds(list(again[1:3]))
    assert results.verify().consistent
    assert results[2:].verify().consistent
    assert len(list(results.export(tmp_path / "c", "certificate").glob("*.json"))) == len(INPUTS)
    with pytest.raises(InputError, match="use selected or selected-published"):
        results.recertify(certificate="gaussian")


@pytest.mark.slow
def test_runs_of_python_are_resumed_and_opened(digits: Any, tmp_path: Path) -> None:
    x, y, _ = digits
    results = make(seed=None).certify(x, labels=y, out=tmp_path / "run", **ASKED)
    (tmp_path / "run" / "claims.json").unlink()
    again = make(seed=None).certify(x, labels=y, out=tmp_path / "run", **ASKED)  # with the seed of the run
    assert list(again) == list(results) == list(sc.open_run(tmp_path / "run"))
    assert SelectedRun.open(tmp_path / "run").spec.selector.place.startswith("<")
    with pytest.raises(RunError, match="made with other settings"):
        make(seed=8).certify(x, labels=y, out=tmp_path / "run", **ASKED)
    with pytest.raises(InputError, match="leave indices or out away"):
        make().certify(x, out=tmp_path / "other", indices=INPUTS, **ASKED)


def test_predictions(digits: Any) -> None:
    x, y, _ = digits
    results = make().predict(x, labels=y, n=60, alpha=0.05)
    assert {point.outcome for point in results} <= {Outcome.PREDICTED, Outcome.ABSTAINED}
    assert any(point.outcome is Outcome.PREDICTED for point in results)
    assert not results.certificates


def test_a_selector_without_answers_certifies_nothing(digits: Any) -> None:
    x, y, _ = digits
    results = make(never_finite).certify(x, labels=y, **ASKED)
    assert {point.outcome for point in results} == {Outcome.FAILED}
    assert [point.label for point in results] == y.tolist()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"levels": None}, "does not say which noise levels"),
        ({"selector_sigma": None}, "does not say its own noise level"),
        ({"levels": (0.1, -0.2, 0.3)}, "-0.2 is not a noise level"),
        ({"levels": 0.5}, "levels must be a list of noise levels"),
        ({"levels": ["a", "b", "c"]}, "levels is 'a'; expected a number"),
        ({"selector_sigma": "a"}, "selector_sigma is 'a'; expected a number"),
        ({"selector_sigma": float("nan")}, "must be a positive finite number"),
        ({"models": [digits_by_brightness] * 2}, "2 models were given for 3 noise levels"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        make(**options)


def test_levels_may_be_an_array() -> None:
    assert make(levels=np.array([0.1, 0.2, 0.5])).levels == (0.1, 0.2, 0.5)


def test_what_does_not_fit_together_is_refused(digits: Any) -> None:
    x, _, _ = digits
    with pytest.raises(ModelError, match="has 2 outputs, and 3 noise levels were given"):
        make(of_two_levels).certify(x, **ASKED)
    with pytest.raises(ModelError, match="must have the same classes"):
        make(models=[digits_by_brightness, digits_by_brightness, by_brightness]).certify(x, **ASKED)
    with pytest.raises(InputError, match="selector bounds 'both' are unknown"):
        make().certify(x, selector_bounds="both", **ASKED)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no certificate is named"):
        make().certify(x, **(ASKED | {"certificate": []}))
    with pytest.raises(InputError, match="use two-class bounds"):
        make().certify(x, decide=[0.1], selector_bounds="multi-class", n=60, alpha=0.05)
    with pytest.raises(InputError, match="must be positive and smaller than alpha"):
        make().certify(x, selector_alpha=0.05, **ASKED)

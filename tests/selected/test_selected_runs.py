"""Selected runs on disk: resumed after a stop, recertified, read and exported like ordinary runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import smoothcert as sc
from cli_runner import invoke
from selected_runs import LEVELS, StoppingMaker, make_selected, read_claims, selected_spec, without_seconds
from smoothcert.cli.main import app
from smoothcert.errors import DataError, InputError, InterruptedRunError, ManifestMismatchError, ModelError, RunError
from smoothcert.records import Outcome
from smoothcert.runs import rigorous, selected_combining
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.selected_combining import combine_parts
from smoothcert.runs.selected_run import SelectedRun, hold_stored
from smoothcert.runs.store import RunStore
from smoothcert.spec import DataSpec, Decide, FixedN, LocalEngineSpec, ModelSpec, Precision

TWO_CLASSES = "sample_models:roll_by_side"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("selected") / "run"
    make_selected(selected_spec(), out)
    return out


def test_a_run_is_its_parts_and_their_combination(run: Path) -> None:
    stored = SelectedRun.open(run)
    points = stored.points()
    assert [point.index for point in points] == [0, 60, 120, 180, 240]
    assert sum(point.outcome is Outcome.CERTIFIED for point in points) >= 2  # otherwise little is tested here
    assert without_seconds(points) == without_seconds(combine_parts(stored.read_parts()))
    labels = sc.load_dataset("digits", split="test").labels
    assert [point.label for point in points] == [int(labels[point.index]) for point in points]
    for point in points:
        assert point.sigma in LEVELS


def test_claims_can_be_deleted_and_made_again(run: Path) -> None:
    before = (run / "claims.json").read_bytes()
    (run / "claims.json").unlink()
    with pytest.raises(RunError, match=r"unfinished. Resume it with: smoothcert certify --resume"):
        sc.open_run(run)
    maker = StoppingMaker()
    make_selected(selected_spec(seed=7), run, maker=maker)
    assert (run / "claims.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("again", ["the same command", "--resume"])
def test_a_run_of_an_earlier_version_is_resumed_by_its_own_rule(tmp_path: Path, again: str) -> None:
    """Its spec says nothing of upper bounds, and every sampled level has a third of what the selector leaves."""
    out, before = tmp_path / "run", selected_spec(upper_alpha=None)
    with pytest.raises(InterruptedRunError):
        make_selected(before, out, maker=StoppingMaker(2))
    stored = json.loads((out / "selection.json").read_text())
    assert stored["spec"].pop("upper_alpha", "absent") is None
    (out / "selection.json").write_text(json.dumps(stored))
    if again == "--resume":
        run_command("certify", "--resume", out)
    else:
        make_selected(selected_spec(), out)
    assert SelectedRun.open(out).spec.upper_alpha is None
    with RunStore.open(out / "level-0.2") as store:
        assert store.manifest.spec.alpha == pytest.approx(0.025 / 3, rel=1e-12)
    make_selected(before, tmp_path / "whole")
    assert read_claims(out) == read_claims(tmp_path / "whole")
    recertified = recertify_run(out, alpha=0.2)
    fresh = make_selected(selected_spec(upper_alpha=None, alpha=0.2, selector_alpha=0.1), tmp_path / "fresh")
    assert without_seconds(list(recertified.points)) == without_seconds(fresh.points())


@pytest.mark.slow
@pytest.mark.parametrize("complete", [0, 1, 3])
def test_a_run_stopped_between_and_inside_parts_is_resumed(run: Path, tmp_path: Path, complete: int) -> None:
    spec = selected_spec(batch=16, engine=LocalEngineSpec(workers=1))  # a shard for each input
    with pytest.raises(InterruptedRunError):
        make_selected(spec, tmp_path / "stopped", maker=StoppingMaker(complete))
    with RunStore.open(tmp_path / "stopped" / ["selector", "level-0.05", "", "level-0.2"][complete]) as store:
        assert 0 < len(store.indices()) < 5
    with pytest.raises(RunError, match="unfinished"):
        SelectedRun.open(tmp_path / "stopped").read_parts({})
    make_selected(spec, tmp_path / "stopped")
    assert read_claims(tmp_path / "stopped") == read_claims(run)


def test_a_model_that_moved_must_fit_the_others(tmp_path: Path) -> None:
    spec = selected_spec()
    with pytest.raises(InterruptedRunError):
        make_selected(spec, tmp_path / "run", maker=StoppingMaker(1))
    other = msgspec.structs.replace(spec, models=(*[spec.model_of(0)] * 2, ModelSpec(place=TWO_CLASSES)))
    stored = json.loads((tmp_path / "run" / "selection.json").read_text())
    stored["spec"]["models"] = stored["spec"]["models"] * 3
    (tmp_path / "run" / "selection.json").write_text(json.dumps(stored))
    with pytest.raises(ModelError, match="must have the same classes"):
        make_selected(other, tmp_path / "run")


@pytest.mark.slow
def test_batch_and_workers_change_nothing(run: Path, tmp_path: Path) -> None:
    make_selected(selected_spec(batch=33, engine=LocalEngineSpec(workers=2)), tmp_path / "other")
    assert read_claims(tmp_path / "other") == read_claims(run)


@pytest.mark.parametrize(
    "changed", [{"alpha": 0.06}, {"seed": 8}, {"sampled": 2}, {"rigorous": True}, {"certificates": ("selected",)}]
)
def test_a_run_is_not_resumed_with_other_settings(run: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(ManifestMismatchError, match=f"{next(iter(changed))}: the run has"):
        make_selected(selected_spec(**changed), run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "fresh"),
    [
        ({"alpha": 0.2}, {"alpha": 0.2, "selector_alpha": 0.1}),
        ({"n": 50}, {"question": FixedN(n=50, n0=10)}),
        ({"certificate": "selected-published"}, {"certificates": ("selected-published",)}),
    ],
)
def test_recertified_claims_are_those_of_a_fresh_run(
    run: Path, tmp_path: Path, asked: dict[str, Any], fresh: dict[str, Any]
) -> None:
    recertified = recertify_run(run, **asked)
    make_selected(selected_spec(**fresh), tmp_path / "fresh")
    assert without_seconds(list(recertified.points)) == without_seconds(SelectedRun.open(tmp_path / "fresh").points())
    recertified.save(tmp_path / "saved")
    assert read_claims(tmp_path / "saved") == read_claims(tmp_path / "fresh")
    assert without_seconds(list(hold_stored(tmp_path / "saved").points)) == without_seconds(list(recertified.points))
    with pytest.raises(InputError, match="cannot be resumed by certify"):
        run_command("certify", "--resume", tmp_path / "saved")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"certificate": "gaussian"}, "use selected or selected-published"),
        ({"best_of": True}, "cannot share alpha"),
        ({"n": 10_000}, "n=10000 is not possible"),
        *[({"alpha": alpha}, rf"^alpha={alpha} is outside \(0, 0.5\)") for alpha in (0.7, math.nan, math.inf, -1.0)],
    ],
)
def test_what_cannot_be_recertified_is_refused(run: Path, asked: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        recertify_run(run, **asked)


@pytest.mark.slow
@pytest.mark.parametrize("question", [Decide(radii=(0.02, 0.05), n=400, n0=10), Precision(width=0.02, n=400, n0=10)])
def test_adaptive_questions(tmp_path: Path, question: Decide | Precision) -> None:
    spec = selected_spec(
        question=question,
        selector_bounds="two-class",
        certificates=("selected",),
        data=DataSpec(place="digits", skip=120, max_inputs=2),
    )
    make_selected(spec, tmp_path / "run")
    results = sc.open_run(tmp_path / "run")
    samples = results.columns.extra["samples"]
    assert (samples <= 4 * 410).all()
    assert (samples < 4 * 410).any()
    assert "= 1,640 samples" in str(results.columns.notes)
    again = results.recertify(alpha=0.05)
    assert without_seconds(list(again)) == without_seconds(list(results))


def test_a_selector_without_answers_certifies_nothing_and_keeps_the_labels(tmp_path: Path) -> None:
    spec = selected_spec(selector=ModelSpec(place="selector_models:finite_where_dark"))
    make_selected(spec, tmp_path / "run")
    points = SelectedRun.open(tmp_path / "run").points()
    failed = [point for point in points if point.outcome is Outcome.FAILED]
    assert failed
    assert all(point.label is not None for point in points)
    assert all(point.radius == 0 and point.prediction is None for point in failed)


def test_nothing_is_sampled_if_the_selector_never_answers(tmp_path: Path) -> None:
    spec = selected_spec(selector=ModelSpec(place="selector_models:never_finite"))
    make_selected(spec, tmp_path / "run")
    results = sc.open_run(tmp_path / "run")
    assert {point.outcome for point in results} == {Outcome.FAILED}
    assert not SelectedRun.open(tmp_path / "run").list_levels()
    assert "failed" in str(results.table()).lower()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"selector": ModelSpec(place="selector_models:of_two_levels")},
            "of_two_levels has 2 outputs, and 3 noise levels were given",
        ),
        (
            {"selector": ModelSpec(place="selector_models:of_two_levels", num_classes=3)},
            "of_two_levels has 2 outputs, and 3 noise levels were given",
        ),
        (
            {"models": (*[ModelSpec(place="sample_models:digits_by_brightness")] * 2, ModelSpec(place=TWO_CLASSES))},
            "digits_by_brightness has 10, and sample_models:roll_by_side has 2",
        ),
        (
            {"models": (ModelSpec(place=TWO_CLASSES),), "certificates": ("selected",)},
            "digits has labels up to 9, but sample_models:roll_by_side knows only 2 classes",
        ),
    ],
)
def test_models_that_do_not_fit_together_are_refused(tmp_path: Path, changed: dict[str, Any], expected: str) -> None:
    with pytest.raises((ModelError, DataError), match=expected):
        make_selected(selected_spec(**changed), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_predictions(tmp_path: Path) -> None:
    spec = selected_spec(task="predict", certificates=(), question=FixedN(n=60))
    make_selected(spec, tmp_path / "run")
    results = sc.open_run(tmp_path / "run")
    assert {point.outcome for point in results} <= {Outcome.PREDICTED, Outcome.ABSTAINED}
    assert any(point.outcome is Outcome.PREDICTED for point in results)
    with pytest.raises(RunError, match="only the votes of a certify run"):
        results.recertify(alpha=0.1)


@pytest.mark.slow
def test_rigorous_stores_no_combination_that_is_not_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flint")
    make_selected(selected_spec(rigorous=True), tmp_path / "run")
    (tmp_path / "run" / "claims.json").unlink()
    honest = selected_combining.combine_points

    def forget_the_other_levels(selector: Any, levels: Any, *further: Any) -> Any:
        return honest(selector, dict.fromkeys(range(3), max(levels.values(), key=lambda point: point.radius)), *further)

    monkeypatch.setattr(selected_combining, "combine_points", forget_the_other_levels)
    with pytest.raises(rigorous.UnverifiedError, match="not confirmed by the independent checker"):
        make_selected(selected_spec(rigorous=True), tmp_path / "run")
    assert not (tmp_path / "run" / "claims.json").exists()


# Commands.


def run_command(*words: object) -> str:
    return str(invoke(app, *words).output)


@pytest.mark.slow
def test_verbs_that_read_runs_read_selected_runs(run: Path, tmp_path: Path) -> None:
    assert "run@selected-published" in run_command("table", run)
    assert "counted" in run_command("compare", f"{run}@selected", f"{run}@selected-published")
    run_command("plot", run, "-o", tmp_path / "curve.svg")
    page = tmp_path / "page.html"
    run_command("report", run, "-o", page)
    text = page.read_text()
    assert "Which noise level the selector chose." in text
    assert "chosen by a selector whose own is 0.1" in text
    assert "no bound is known" not in text  # this σ is not heuristic
    for form in ("csv", "json", "cohen-tsv"):
        assert "wrote 5 inputs" in run_command("export", run, "-o", tmp_path / form, "--format", form)
    assert "wrote 5 certificates" in run_command("export", run, "-o", tmp_path / "c", "--format", "certificate")
    document = json.loads((tmp_path / "c" / "certificate-000060.json").read_text())
    assert document["selector"]["run"]["model"]["num_classes"] == len(LEVELS)
    assert len(document["levels"]) == len(LEVELS)


def refusal(words: Sequence[object]) -> str:
    with pytest.raises(sc.SmoothcertError) as caught:
        run_command(*words)
    return str(caught.value)


def test_a_part_is_not_resumed_by_itself(run: Path) -> None:
    assert f"is a part of {run}: resume that" in refusal(["certify", "--resume", run / "selector"])
    assert "cannot be resumed by predict" in refusal(["predict", "--resume", run])


OPTIONS = [
    "certify", "--data", "digits", "--model", "sample_models:digits_by_brightness", "--levels", "0.05,0.1,0.2",
    "--selector-sigma", "0.1", "--selector", "selector_models:by_brightness", "--out", "none",
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--levels", "0.1,x"], "--levels '0.1,x' is invalid"),
        (["--levels", "0.1"], "at least two noise levels"),
        (["--selector-sigma", "nan"], "must be a positive finite number"),
        (["--selector-sigma", "inf"], "must be a positive finite number"),
        (["--model", "a:b,a:c"], "2 models were given for 3 noise levels"),
        (["--sigma", "0.5"], "--sigma does not go with a selector"),
        (["--memory", "x.db"], "--memory does not go with a selector"),
        (["--best-of"], "--best-of does not go with a selector"),
        (["--selector-bounds", "other"], "selector bounds 'other' are unknown"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], expected: str) -> None:
    assert expected in refusal([*OPTIONS, *words])


def test_options_of_a_selector_need_one() -> None:
    words = ["certify", "--data", "digits", "--model", "a:b", "--sigma", "0.5", "--levels", "0.1,0.2"]
    assert "--levels is about a selector: it needs --selector" in refusal(words)
    assert "does not say which noise levels" in refusal([*OPTIONS[:5], "--selector", "a:b", "--out", "none"])


def test_end_to_end_on_the_command_line_is_the_run_of_its_spec(run: Path, tmp_path: Path) -> None:
    settings = [
        "--n", 60, "--n0", 10, "--alpha", 0.05, "--seed", 7, "--batch", 256, "--skip", 60, "--max", 5,
        "--certificate", "selected", "--certificate", "selected-published",
    ]  # fmt: skip
    run_command(*OPTIONS, "--out", tmp_path / "run", *settings)
    assert read_claims(tmp_path / "run") == read_claims(run)
    assert np.isfinite(sc.open_run(tmp_path / "run").acr)

"""Attacks on a selected sigma: selector and levels together, judged by fresh samples of both.

In the half-space worlds G changes at a known distance, which takes the selector alone, the leading level alone, or both
at once. So an attack must change nothing just inside and everything just beyond, and it must find out radii that are a
little too large.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from cli_runner import invoke
from selected_attack_models import BORDER, save_around_origin
from smoothcert.attacks.attack_record import open_record
from smoothcert.attacks.attack_run import prepare_attack, run_attack
from smoothcert.attacks.attack_settings import AttackSettings
from smoothcert.cli.main import app
from smoothcert.errors import BrokenCertificateError, InputError, ManifestMismatchError
from smoothcert.runs.resumption import Moved
from smoothcert.spec import LocalEngineSpec

COUNT = 4
QUICK = ("--steps", 20, "--draws", 20, "--n", 2000, "--seed", 3, "--workers", 1)
MODELS = "selected_attack_models:"

# World: models of the two levels, and the distance at which G changes.
WORLDS = {
    "the selector alone": ("far_class", "other_class", BORDER),
    "the leading level alone": ("near_class", "near_class", 0.5),
    "both, one behind the other": ("far_class", "beyond_class", 0.5),
    "both, in a corner": ("far_class", "slanted_class", math.hypot(0.3, 0.416 / 0.96)),
}


def _certified(
    folder: Path, models: tuple[str, str], *options: object, selector: str = "selector", verb: str = "certify"
) -> Path:
    data, run = save_around_origin(folder / "inputs.npz", count=COUNT), folder / "run"
    invoke(
        app, verb, "--selector", MODELS + selector, "--levels", "0.02,0.03", "--selector-sigma", 0.02,
        "--model", ",".join(MODELS + model for model in models), "--data", data, "--input-range", "any",
        "--num-classes", 2, "--batch", 500, "--seed", 1, "--n", 1000, "--out", run, *options,
    )  # fmt: skip
    return run


@pytest.fixture(scope="module", params=WORLDS, ids=str)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    first, second, radius = WORLDS[request.param]
    return _certified(tmp_path_factory.mktemp("world"), (first, second)), radius


def _attack(*arguments: object) -> dict[str, dict[str, float]]:
    answer = json.loads(invoke(app, "attack", *arguments, "--json").stdout)
    return {row["radius"]: row for row in answer["rows"]}


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def _set_radii(run: Path, radius: float | None = None, *, factor: float = 1.0) -> None:
    """Claims with other radii than those that are proved."""
    claims = json.loads((run / "claims.json").read_text())
    for point in claims["points"]:
        for verdict in point["verdicts"]:
            if verdict["outcome"] == "certified":
                verdict["radius"] = verdict["radius"] * factor if radius is None else radius
    (run / "claims.json").write_text(json.dumps(claims))


@pytest.mark.slow
def test_nothing_changes_just_inside_and_everything_just_beyond(world: tuple[Path, float], tmp_path: Path) -> None:
    run, radius = world
    inside, beyond = f"{0.96 * radius:.6f}", f"{1.04 * radius:.6f}"
    # Steps of a few standard deviations jump over a corner.
    steps = ("--steps", 60, "--step-size", radius / 40)
    rows = _attack(run, "--radius", f"certified,{inside},{beyond}", *QUICK, *steps, "--out", tmp_path / "a.jsonl")
    assert [rows[at]["attacked"] for at in ("certified", inside, beyond)] == [COUNT] * 3
    assert [rows[at]["changed"] for at in ("certified", inside, beyond)] == [0, 0, COUNT]
    assert rows["certified"]["broken"] == rows[inside]["broken"] == 0
    for line in _lines(tmp_path / "a.jsonl"):
        stages = line["stages"]
        assert stages[0]["part"] == "selector"
        assert {stage["part"] for stage in stages[1:]} <= {"level-0.02", "level-0.03"}
        assert line["samples"] == sum(sum(stage["counts"]) + stage["invalid"] for stage in stages)
        assert all(sum(stage["counts"]) == 2000 for stage in stages)


@pytest.mark.slow
def test_radii_a_little_too_large_are_found_out(tmp_path: Path) -> None:
    """The negative control, where both stages must change. At 0.96 of the radius the same attack finds nothing."""
    first, second, radius = WORLDS["both, in a corner"]
    run = _certified(tmp_path, (first, second))
    options = (*QUICK, "--steps", 60, "--step-size", radius / 40)
    _set_radii(run, 1.05 * radius)
    with pytest.raises(BrokenCertificateError, match=f"to {COUNT} of {COUNT} inputs") as failure:
        invoke(app, "attack", run, *options, "--out", tmp_path / "broken.jsonl")
    assert failure.value.exit_code == 7
    assert all(line["point"] for line in _lines(tmp_path / "broken.jsonl"))
    _set_radii(run, 0.96 * radius)
    row = _attack(run, *options, "--out", tmp_path / "kept.jsonl")["certified"]
    assert (row["attacked"], row["changed"], row["unsettled"]) == (COUNT, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "selector"), [("ddn", "selector"), ("pgd", "votes_of_selector")])
def test_methods_and_gradients(tmp_path: Path, method: str, selector: str) -> None:
    """Also with a selector that gives votes alone: its part of the gradient is estimated."""
    models, radius = ("far_class", "slanted_class"), WORLDS["both, in a corner"][2]
    run = _certified(tmp_path, models, selector=selector)
    inside, beyond = f"{0.96 * radius:.6f}", f"{1.1 * radius:.6f}"
    restarts = ("--restarts", 2, "--steps", 30)
    rows = _attack(run, "--radius", f"{inside},{beyond}", *QUICK, *restarts, "--method", method)
    assert rows[inside]["changed"] == 0
    header = json.loads((run / "attack.jsonl").read_text().splitlines()[0])
    assert set(header["run"]["models"]) == {"selector", "level-0.02", "level-0.03"}
    if selector == "selector":
        assert rows[beyond]["changed"] == COUNT
        assert header["settings"]["gradient"] == "exact"
    else:
        assert header["settings"]["gradient"] == "votes, exact"


@pytest.mark.slow
def test_a_selector_without_gradients_is_attacked_near_its_border(tmp_path: Path) -> None:
    """More noise than distance: the votes show the way."""
    options = ("--selector-sigma", 0.3)
    run = _certified(tmp_path, ("far_class", "other_class"), *options, selector="votes_of_selector")
    rows = _attack(run, "--radius", "0.15,0.6", *QUICK, "--draws", 400)
    assert (rows["0.15"]["changed"], rows["0.6"]["changed"]) == (0, COUNT)


@pytest.mark.slow
def test_a_prediction_run_and_what_is_refused(tmp_path: Path) -> None:
    run = _certified(tmp_path, ("far_class", "other_class"), verb="predict")
    # Level 2 was sampled for no input, and is attacked all the same.
    assert not (run / "level-0.03").exists()
    row = _attack(run, "--radius", 0.33, *QUICK)["0.33"]
    assert (row["changed"], row["certified_accuracy"]) == (COUNT, None)
    with pytest.raises(InputError, match="2 models, and --model names 1"):
        invoke(app, "attack", run, "--radius", 0.33, *QUICK, "--model", MODELS + "far_class")
    with pytest.raises(ManifestMismatchError, match="another model"):
        invoke(app, "attack", run, "--radius", 0.33, *QUICK, "--selector", MODELS + "beyond_class")
    moved = ",".join(MODELS + model for model in ("near_class", "other_class"))
    with pytest.raises(ManifestMismatchError, match="another model"):
        invoke(app, "attack", run, "--radius", 0.33, *QUICK, "--model", moved)
    with pytest.raises(InputError, match="can never predict"):
        invoke(app, "attack", run, "--radius", 0.33, *QUICK, "--n", 5, "--out", tmp_path / "b.jsonl")


@pytest.mark.slow
def test_a_resumed_attack_is_the_same(tmp_path: Path) -> None:
    run = _certified(tmp_path, ("far_class", "other_class"), "--batch", 2, "--n", 100)  # groups of 2 inputs
    settings = AttackSettings(radii=("0.2", "0.35"), steps=3, draws=10, n=100, looks=1, seed=3)

    def attack(out: Path) -> list[object]:
        with prepare_attack(run, settings, out=out, moved=Moved(engine=LocalEngineSpec(workers=1))) as prepared:
            run_attack(prepared)
            return list(prepared.record.results)

    whole = attack(tmp_path / "whole.jsonl")
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_bytes(b"".join(lines[:4]))
    assert attack(tmp_path / "part.jsonl") == whole
    assert (tmp_path / "part.jsonl").read_bytes() == b"".join(lines)
    # Results with the votes of all stages are read as they were written.
    header = {key: value for key, value in json.loads(lines[0]).items() if key in ("run", "settings")}
    with open_record(tmp_path / "whole.jsonl", header) as record:
        assert record.results == whole


@pytest.mark.slow
def test_digits_by_the_command_line(tmp_path: Path) -> None:
    """Images on a grid, three times the certified radius as the negative control."""
    run = tmp_path / "run"
    models = f"{MODELS}digits_quiet,{MODELS}digits_noisy"
    invoke(
        app, "certify", "--selector", MODELS + "brightness", "--levels", "0.25,0.5", "--selector-sigma", 0.5,
        "--model", models, "--data", "digits", "--max", 6, "--batch", 500, "--seed", 1, "--n", 2000, "--out", run,
        "--certificate", "selected", "--certificate", "selected-published",
    )  # fmt: skip
    done = invoke(app, "attack", run, *QUICK, "--out", tmp_path / "a.jsonl", "--json")
    assert f"attacked within the radii of selected; for the others give {run}@selected-published" in done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["attacked"] > 3
    assert (row["changed"], row["broken"]) == (0, 0)
    distances = [line["distance"] / line["certified_radius"] for line in _lines(tmp_path / "a.jsonl")]
    assert 0.8 < np.median(distances) < 1.0
    invoke(app, "attack", f"{run}@selected-published", *QUICK, "--max", 1)
    assert (run / "attack-selected-published.jsonl").is_file()
    _set_radii(run, factor=4.0)
    with pytest.raises(BrokenCertificateError, match="CERTIFICATES BROKEN"):
        invoke(app, "attack", run, *QUICK, "--out", tmp_path / "b.jsonl")

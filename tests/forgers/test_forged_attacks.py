"""Records of attacks: an edited line is refused by `attack` and by `verify`, and a re-sealed one by `verify`.

What only repeating the attack shows: votes that were made up together with all that follows from them, a shorter
distance, whether the attack saw a gradient, and the seed of the attack.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")
pytest.importorskip("torch")

from attack_models import saved_inputs
from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.errors import CorruptRunError
from smoothcert_verify.attack_records import check_attack_record
from smoothcert_verify.run_checks import verify_run
from verified_runs import altered, copy_of, resealed

QUICK = ("--steps", 2, "--draws", 20, "--n", 1000, "--seed", 7, "--workers", 1)
Line = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on half-spaces with the record of an attack: certificates hold, and beyond them answers change."""
    folder = tmp_path_factory.mktemp("attack")
    data = saved_inputs(folder / "inputs.npz", 0.25, count=4)
    model = ("--model", "attack_models:HalfSpace", "--num-classes", 2, "--input-range", "any", "--data", data)
    invoke(app, "certify", *model, "--sigma", 0.25, "--batch", 500, "--seed", 1, "--n", 2000, "--out", folder / "run")
    invoke(app, "attack", folder / "run", *QUICK, "--radius", "certified,0.6")
    return folder / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return copy_of(made, tmp_path)


def lines_of(run: Path) -> list[Line]:
    return [json.loads(line) for line in (run / "attack.jsonl").read_text().splitlines()]


def write(run: Path, lines: list[Line], *, reseal: bool = True) -> None:
    seal, written = "", []
    for line in lines:
        rest = {name: value for name, value in line.items() if name != "seal"}
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
        seal = hashlib.sha256(f"{seal}\n{text}".encode()).hexdigest()
        written.append(json.dumps({**rest, "seal": seal} if reseal else line))
    (run / "attack.jsonl").write_text("\n".join(written) + "\n")


def verified(run: Path, *more: object) -> tuple[int, str]:
    result = invoke(app, "verify", run, *more)
    return result.exit_code, result.stdout


def assert_refused(run: Path, reason: str) -> None:
    code, told = verified(run)
    assert code == 1, told
    assert re.search(f"attack.jsonl: .*({reason})", told), told


def test_resealed_as_it_was(run: Path) -> None:
    """The positive control; and there is something to forge: certificates that hold, and answers that change."""
    lines = lines_of(run)
    assert {line["fate"] for line in lines[1:]} == {"unchanged", "changed"}
    write(run, lines)
    code, told = verified(run)
    assert code == 0, told
    assert "attack.jsonl was compared with the run" in told
    invoke(app, "attack", run, *QUICK, "--radius", "certified,0.6")


EDITS: dict[str, tuple[Callable[[Line], None], str]] = {
    "certified_radius": (lambda r: r.update(certified_radius=r["certified_radius"] / 2), "certified_radius is"),
    "label": (lambda r: r.update(label=1 - r["label"]), "label is"),
    "no label": (lambda r: r.update(label=None), "label is"),
    "prediction": (lambda r: r.update(prediction=1 - r["prediction"]), "prediction is"),
    "counts": (lambda r: r["counts"].reverse(), "fate, answer and lead are"),
    "one vote": (lambda r: r["counts"].__setitem__(0, r["counts"][0] + 1), "draws cannot give"),
    "counts, one moved": (
        lambda r: r.update(counts=[r["counts"][0] + 1, r["counts"][1] - 1] if r["counts"][1] else [999, 1]),
        "p_value is",
    ),
    "another class": (lambda r: r["counts"].append(0), "draws cannot give"),
    "distance": (lambda r: r.update(distance=r["distance"] + 0.5), "the distance is"),
    "negative distance": (lambda r: r.update(distance=-0.1), "distance is -0.1"),
    "samples": (lambda r: r.update(samples=1001), "there are 1001 samples"),
    "invalid": (lambda r: r.update(invalid=1), "draws cannot give"),
    "fate": (lambda r: r.update(fate={"changed": "unchanged"}.get(r["fate"], "changed")), "fate, answer and lead are"),
    "no fate": (lambda r: r.update(fate="fine"), "fate is 'fine'"),
    "answer": (lambda r: r.update(answer=1 - r["answer"]), "fate, answer and lead are"),
    "leads": (lambda r: r.update(leads=not r["leads"]), "fate, answer and lead are"),
    "p_value": (lambda r: r.update(p_value=min(1.0, r["p_value"] + 0.01)), "p_value is"),
    "sigma": (lambda r: r.update(sigma=0.5), "sigma is 0.5"),
    "radius": (lambda r: r.update(radius="0.7"), "there was nothing to attack"),
    "index": (lambda r: r.update(index=77), "there was nothing to attack"),
    "point": (lambda r: r.update(point="AAAA"), "a point is stored exactly if"),
    "another field": (lambda r: r.update(more=1), "more is not a field"),
    "a field less": (lambda r: r.pop("moved"), "moved is missing"),
}


@pytest.mark.parametrize("place", [1, -1])
@pytest.mark.parametrize("edit", EDITS)
def test_one_field_of_a_result(run: Path, edit: str, place: int) -> None:
    change, reason = EDITS[edit]
    lines = lines_of(run)
    change(lines[place])
    write(run, lines, reseal=False)
    assert_refused(run, "the seal of line")
    if place == 1:
        with pytest.raises(CorruptRunError, match="does not match its seal"):
            invoke(app, "attack", run, *QUICK, "--radius", "certified,0.6")
    write(run, lines)
    assert_refused(run, reason)


def test_two_fields_of_a_result(made: Path, tmp_path: Path) -> None:
    """All pairs of edits, of which none makes up for the other: two reasons, of which one at least is given."""
    run = copy_of(made, tmp_path)
    original, entries = lines_of(run), verify_run(made).entries
    # Reversed counts with everything that follows from them are votes that were made up, which nobody can tell.
    together = {"counts", "fate", "answer", "leads", "p_value"}
    for first, second in itertools.combinations(EDITS, 2):
        if {first, second} <= together:
            continue
        lines = json.loads(json.dumps(original))
        try:
            EDITS[first][0](lines[1])
            EDITS[second][0](lines[1])
        except (IndexError, TypeError, KeyError):
            continue
        write(run, lines)
        assert check_attack_record(run / "attack.jsonl", entries), (first, second)


@pytest.mark.parametrize(
    ("section", "field", "value", "reason"),
    [
        ("run", "seed", 2, "run.seed is 2"),
        ("run", "model", "0" * 64, "run.model is"),
        ("run", "data", "0" * 64, "run.data is"),
        ("run", "alpha", 0.5, "run.alpha is 0.5"),
        ("run", "inputs", 5, "run.inputs is 5"),
        ("run", "answers", "0" * 64, "other answers or radii"),
        ("settings", "alpha", 0.7, "settings.alpha is 0.7"),
        ("settings", "n", 2000, "there are 1000 samples"),
        ("settings", "radii", ["certified"], "there was nothing to attack"),
        ("settings", "radii", ["far"], "settings.radii is"),
        ("settings", "skip", 2, "other answers or radii"),
        ("settings", "max_inputs", 3, "other answers or radii"),
    ],
)
def test_one_field_of_the_header(run: Path, section: str, field: str, value: object, reason: str) -> None:
    lines = lines_of(run)
    lines[0][section][field] = value
    write(run, lines)
    assert_refused(run, reason)


def test_lines_taken_out_put_in_or_exchanged(run: Path) -> None:
    lines = lines_of(run)
    for forged in ([*lines[:1], *lines[2:]], [*lines, lines[1]], [lines[0], lines[2], lines[1], *lines[3:]]):
        write(run, forged, reseal=False)
        assert_refused(run, "the seal of line")
    write(run, [*lines, lines[1]])
    assert_refused(run, "stored twice")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none(run: Path, text: str) -> None:
    lines = lines_of(run)
    distance = json.dumps(lines[1]["distance"])
    content = (run / "attack.jsonl").read_text()
    (run / "attack.jsonl").write_text(content.replace(distance, text, 1))
    assert_refused(run, "not a number|too large")
    with pytest.raises(CorruptRunError):
        invoke(app, "attack", run, *QUICK, "--radius", "certified,0.6")


def test_the_run_was_changed_below_it(run: Path) -> None:
    altered(run / "results.sqlite", "UPDATE verdicts SET radius = radius * 0.9 WHERE idx = 0")
    resealed(run)
    assert_refused(run, "other answers or radii")


def test_a_broken_certificate_cannot_be_hidden_by_its_distance(made: Path, tmp_path: Path) -> None:
    """The evidence has a point, and with the data its distance is measured."""
    import base64

    import numpy as np

    run = copy_of(made, tmp_path)
    lines = lines_of(run)
    broken = next(line for line in lines[1:] if line["fate"] == "changed")
    inside = broken["certified_radius"] / 2
    x = np.load(made.parent / "inputs.npz")
    first = next(x[name] for name in x if x[name].ndim > 1)[broken["index"]].reshape(-1).astype(np.float32)
    moved = first.copy()
    moved[0] += np.float32(inside)
    broken["point"] = base64.b64encode(moved.astype("<f4").tobytes()).decode()
    broken["distance"] = float(abs(np.float64(moved[0]) - np.float64(first[0]))) * (1 + 1e-12)
    write(run, lines)
    data = ("--data", made.parent / "inputs.npz")
    assert verified(run, *data)[0] == 0
    broken["distance"] *= 1.1
    write(run, lines)
    code, told = verified(run, *data)
    assert code == 1
    assert "distance is" in told

"""Records of greedy attacks under splitting: what the checker computes again, and forged lines that it refuses."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("torch")

from cli_runner import invoke
from smoothcert.attacks.attack_run import prepare_attack, run_attack
from smoothcert.attacks.attack_settings import AttackSettings
from smoothcert.cli.main import app
from smoothcert.data import load_dataset
from smoothcert_verify.attack_records import check_attack_record
from smoothcert_verify.run_checks import verify_run
from verified_runs import copy_of

Line = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("split") / "run"
    noise = ("--noise", "splitting", "--evaluations", 24, "--grid", 17)
    invoke(app, "certify", "--model", "sample_models:logistic_digits", "--data", "digits", *noise, "--max", 12,
           "--out", run)  # fmt: skip
    invoke(app, "attack", run, "--radius", "certified,1", "--seed", 1)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return copy_of(made, tmp_path)


def lines_of(run: Path) -> list[Line]:
    return [json.loads(line) for line in (run / "attack.jsonl").read_text().splitlines()]


def write(run: Path, lines: list[Line]) -> None:
    seal, written = "", []
    for line in lines:
        rest = {name: value for name, value in line.items() if name != "seal"}
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
        seal = hashlib.sha256(f"{seal}\n{text}".encode()).hexdigest()
        written.append(json.dumps({**rest, "seal": seal}))
    (run / "attack.jsonl").write_text("\n".join(written) + "\n")


def verified(run: Path) -> tuple[int, str]:
    result = invoke(app, "verify", run)
    return result.exit_code, result.stdout


def test_an_honest_record_passes_and_there_is_something_to_forge(run: Path) -> None:
    lines = lines_of(run)
    assert {line["fate"] for line in lines[1:]} == {"unchanged", "changed"}
    write(run, lines)
    assert verified(run)[0] == 0


def first(lines: list[Line], fate: str) -> Line:
    return next(line for line in lines[1:] if line["fate"] == fate)


FORGERIES: dict[str, tuple[Callable[[list[Line]], object], str]] = {
    "fewer evaluations": (lambda lines: lines[1].update(samples=23), "samples"),
    "a vote more": (lambda lines: lines[1]["counts"].__setitem__(0, lines[1]["counts"][0] + 1), "votes"),
    "a change hidden": (lambda lines: first(lines, "changed").update(fate="unchanged"), "fate"),
    "an abstention": (lambda lines: first(lines, "changed").update(fate="abstained", answer=None), "fate"),
    "a change made up": (lambda lines: first(lines, "unchanged").update(fate="changed", answer=3), "fate"),
    "a p-value": (lambda lines: lines[1].update(p_value=0.5), "p_value"),
    "an open ball": (lambda lines: lines[1].update(closed=False), "closed"),
    "nothing of the ball": (lambda lines: lines[1].pop("closed"), "closed"),
    "farther than the radius": (
        lambda lines: lines[1].update(distance=float(np.nextafter(lines[1]["certified_radius"], 9)) + 1 / 16), "far",
    ),
    "another level": (lambda lines: lines[1].update(sigma=0.5), "samples"),
    "samples after all": (lambda lines: lines[0]["settings"].update(alpha=0.001), "alpha"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_line_is_refused(run: Path, name: str) -> None:
    lines = lines_of(run)
    forge, reason = FORGERIES[name]
    forge(lines)
    write(run, lines)
    code, told = verified(run)
    assert code != 0
    assert reason in told


def break_certificates(made: Path, folder: Path) -> Path:
    """A run whose radii were doubled, and the record of the attack that shows it."""
    run = copy_of(made, folder)
    (run / "attack.jsonl").unlink()
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute("UPDATE verdicts SET radius = radius * 2.0")
    connection.close()
    with prepare_attack(run, AttackSettings(radii=("certified",), seed=1)) as attack:
        run_attack(attack)
        assert any(result.breaks_certificate for result in attack.record.results)
    return run


def test_points_that_break_certificates_are_measured_with_the_data(made: Path, tmp_path: Path) -> None:
    run = break_certificates(made, tmp_path)
    data, record = load_dataset("digits", split="test"), run / "attack.jsonl"
    entries = verify_run(run).entries

    def findings() -> list[str]:
        return [
            str(finding)
            for finding in check_attack_record(record, entries, inputs=lambda i: data.inputs([i])[0].ravel())
        ]

    assert findings() == []
    lines = lines_of(run)
    broken = next(line for line in lines[1:] if line["point"] is not None)
    broken["distance"] -= 1 / 16
    write(run, lines)
    assert any("distance" in finding for finding in findings())
    broken["distance"] += 1 / 16
    write(run, lines)
    assert findings() == []
    place = np.frombuffer(base64.b64decode(broken["point"]), dtype="<f4") + np.float32(1e-5)
    broken["point"] = base64.b64encode(place.astype("<f4").tobytes()).decode()
    write(run, lines)
    assert any("distance" in finding for finding in findings())  # it is not on the grid

"""The greedy attack on a run under splitting whose memory answers inside the regions it has promised."""

from __future__ import annotations

import json
from pathlib import Path

from cli_runner import invoke
from smoothcert.cli.main import app


def test_points_in_promised_regions_are_answered_by_the_memory(tmp_path: Path) -> None:
    run, record = tmp_path / "run", tmp_path / "a.jsonl"
    options = ("--noise", "splitting", "--evaluations", 24, "--grid", 17, "--memory", tmp_path / "memory.sqlite")
    model = ("--model", "sample_models:logistic_digits", "--data", "digits", "--max", 12)
    invoke(app, "certify", *model, *options, "--out", run)
    answer = invoke(app, "attack", run, "--radius", "certified,0.5", "--seed", 1, "--out", record, "--json")
    inside, further = json.loads(answer.stdout)["rows"]
    assert inside["attacked"] > 5
    assert (inside["changed"], inside["broken"], further["broken"]) == (0, 0, 0)
    assert inside["from_memory"] == inside["attacked"]
    assert 0 < further["from_memory"] < further["attacked"]

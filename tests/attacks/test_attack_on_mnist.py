"""A small network for MNIST: no attack inside certified radii succeeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import invoke
from smoothcert.cli.main import app


@pytest.mark.network
def test_no_certificate_of_a_lenet_is_broken(tmp_path: Path) -> None:
    model, run = tmp_path / "lenet.safetensors", tmp_path / "run"
    data = ("--data", "mnist", "--sigma", 0.5)
    invoke(app, "train", *data, "--arch", "lenet", "--epochs", 1, "--seed", 1, "--out", model)
    invoke(app, "certify", *data, "--model", model, "--n", 1000, "--skip", 500, "--seed", 1, "--out", run)
    attack = ("attack", run, "--radius", "certified,0.25", "--draws", 32, "--steps", 10, "--n", 1000, "--json")
    rows = {row["radius"]: row for row in json.loads(invoke(app, *attack).stdout)["rows"]}
    assert rows["certified"]["attacked"] >= 15
    assert rows["certified"]["changed"] == 0
    assert rows["0.25"]["broken"] == 0
    assert rows["0.25"]["certified_accuracy"] <= rows["0.25"]["empirical_accuracy"]

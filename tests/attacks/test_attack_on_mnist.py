"""A small network for MNIST: no attack inside certified radii succeeds, on 200 images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import invoke
from smoothcert.cli.main import app


@pytest.mark.network
def test_no_certificate_of_a_small_network_is_broken(tmp_path: Path) -> None:
    model, run = tmp_path / "net.safetensors", tmp_path / "run"
    data = ("--data", "mnist", "--sigma", 0.5)
    invoke(app, "train", *data, "--arch", "mlp", "--epochs", 1, "--batch", 512, "--seed", 1, "--out", model)
    invoke(app, "certify", *data, "--model", model, "--n", 1000, "--skip", 50, "--seed", 1, "--out", run)
    attack = ("attack", run, "--radius", "certified,0.5", "--draws", 32, "--steps", 10, "--n", 1000, "--seed", 2)
    rows = {row["radius"]: row for row in json.loads(invoke(app, *attack, "--json").stdout)["rows"]}
    inside, further = rows["certified"], rows["0.5"]
    assert inside["inputs"] == 200
    assert inside["attacked"] >= 150
    assert (inside["changed"], inside["broken"], inside["not_moved"]) == (0, 0, 0)
    assert further["broken"] == 0
    # The attack is worth something, and less than it would take to contradict the certificates.
    assert further["changed"] > 0
    assert further["certified_accuracy"] <= further["empirical_accuracy"]

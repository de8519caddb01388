"""`smoothcert sigma` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from cli_runner import invoke, smoothcert
from smoothcert.cli.sigma import app
from smoothcert.errors import DataError, InputError
from smoothcert.sigma.rule_files import load_rule
from tabular_models import write_csv

GIVEN = ["fit", "--data", "digits", "--sigma", 0.25, "--k", 5, "--rate", 0.1, "--offset", 1.2]


def test_fit_explains_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    out, plot = tmp_path / "knn.safetensors", tmp_path / "hist.png"
    result = smoothcert("sigma", "fit", "--data", "digits", "--sigma", 0.25, "--out", out, "--plot", plot)
    assert result.returncode == 0, result.stderr
    for text in ("k = ", "offset = ", "rate = ", "stability", "sigma of 445 test inputs: min 0.2", "█", "semi-elastic"):
        assert text in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    counts = [int(line.split()[-1]) for line in result.stdout.splitlines() if "█" in line or line.endswith(" 0")]
    assert sum(counts) == 445


def test_json_and_show_say_the_same(tmp_path):
    out = tmp_path / "knn.safetensors"
    fitted = json.loads(invoke(app, *GIVEN, "--out", out, "--most", 0.3, "--json").stdout)
    shown = json.loads(invoke(app, "show", out, "--json").stdout)
    assert fitted == shown
    rule = load_rule(out)
    assert shown["digest"] == rule.digest
    assert shown["envelope"] == {"kind": "semi-elastic", "rate": 0.1}
    assert shown["rule"] == {
        "kind": "knn", "base_sigma": 0.25, "rate": 0.1, "k": 5, "offset": 1.2, "most": 0.3, "points": 1352,
        "input_shape": [1, 8, 8],
    }  # fmt: skip
    assert shown["sigma"]["split"] == "test"
    assert shown["sigma"]["min"] < shown["sigma"]["mean"] < shown["sigma"]["max"] <= 0.3


def test_show_for_people(tmp_path):
    out = tmp_path / "knn.safetensors"
    invoke(app, *GIVEN, "--out", out, "--max-points", 100)
    text = invoke(app, "show", out).stdout
    assert "0.25·exp(0.1·(mean distance to the 5 nearest of 100 points - 1.2))" in text
    assert "a factor of at most exp(0.1·a)" in text
    assert "fitted on: digits, split train" in text


def test_a_file_with_training_data_only_is_shown_on_that(tmp_path):
    x = np.random.default_rng(0).random((60, 3), dtype=np.float32)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(60) % 2)
    arguments = ["fit", "--data", tmp_path / "d.npz", "--sigma", 0.1, "--out", tmp_path / "r.safetensors", "--json"]
    document = json.loads(invoke(app, *arguments).stdout)
    assert document["sigma"]["split"] == "train"
    assert document["rule"]["points"] == 60


def test_a_csv_file_with_a_column_of_labels_of_any_name(tmp_path):
    data = write_csv(tmp_path / "pets.csv", label="kind", count=20)
    arguments = ["fit", "--data", data, "--input-range", "any", "--sigma", 0.5, "--out", tmp_path / "r.safetensors"]
    with pytest.raises(DataError, match="--label-column"):
        invoke(app, *arguments)
    document = json.loads(invoke(app, *arguments, "--label-column", "kind", "--json").stdout)
    assert document["rule"]["input_shape"] == [3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--offset", "highest"], "expected lowest, mean, or a number"),
        (["--out", "rule.pth"], "must end in .safetensors"),
        (["--out", "nowhere/rule.safetensors"], "does not exist"),
        (["--plot", "hist.txt"], "expected .png"),
        (["--k", "0"], "k=0"),
        (["--loss", "2"], "loss 2"),
        (["--sigma", "-1"], "positive finite"),
    ],
)
def test_mistakes_get_a_sentence(tmp_path, change, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        invoke(app, *GIVEN, "--out", tmp_path / "r.safetensors", *change)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    out = tmp_path / "r.safetensors"
    out.write_text("precious")
    with pytest.raises(InputError, match="never overwritten"):
        invoke(app, *GIVEN, "--out", out)
    result = smoothcert("sigma", "show", out)
    assert result.returncode == 4
    assert "not a readable safetensors file" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_module_imports_nothing_heavy():
    program = "import sys, smoothcert.cli.sigma; print([m for m in ('torch', 'numpy', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

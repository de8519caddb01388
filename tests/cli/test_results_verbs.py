"""The commands `table`, `plot` and `export`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import Result

from cli_runner import invoke
from smoothcert.cli.export import export
from smoothcert.cli.plot import plot
from smoothcert.cli.table import table
from smoothcert.errors import InputError, RunError

app = typer.Typer()
for verb in (table, plot, export):
    app.command()(verb)

LOG = (
    "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
    "0\t0\t0\t0.5\t1\t1.0\n1\t0\t1\t2.0\t0\t1.0\n2\t1\t1\t1.2367\t1\t1.0\n3\t1\t-1\t0.0\t0\t1.0\n"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text(LOG)
    return path


def call(*arguments: object) -> Result:
    return invoke(app, *arguments)


def test_json_has_the_promised_shape(log: Path) -> None:
    (document,) = json.loads(call("table", log, "--radii", "0,0.50,1", "--json").stdout)
    assert document["run"] == "log"
    assert document["points"] == 4
    assert document["acr"] == pytest.approx((0.5 + 1.2367) / 4)
    assert document["abstention"] == 0.25
    assert document["certified_accuracy"] == {"0": 0.5, "0.50": 0.5, "1": 0.25}


def test_json_carries_what_was_asked_for(log: Path) -> None:
    options = ["--json", "--radii", "0", "--bound", "exact", "--alpha", "0.001", "--classes", "--envelope"]
    run, envelope = json.loads(call("table", log, *options).stdout)
    assert run["classes"] == {"0": 0.5, "1": 0.5}
    assert run["class_spread"] == 0
    assert run["bound"] == {"method": "exact", "rho": 0.001, "alpha": 0.001}
    assert envelope["run"] == "envelope"
    assert envelope["lower_bound"] == run["lower_bound"]
    (compared,) = json.loads(call("table", log, "--json", "--gold", log).stdout)
    assert compared["gold"]["correct_accurate"] == 0.5


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "csv"])
def test_every_format_shows_acr_rounded_down(log: Path, form: str) -> None:
    # ACR is 0.434175: rounding down and to nearest agree for two and three digits and differ for four.
    assert "0.4341" in call("table", log, "--format", form, "--digits", "4").stdout


def test_different_inputs_are_pointed_out_and_common_aligns_them(log: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    half.write_text("".join(LOG.splitlines(keepends=True)[:3]))
    assert "different inputs" in call("table", log, half).stdout
    together = json.loads(call("table", log, half, "--common", "--json").stdout)
    assert [document["points"] for document in together] == [2, 2]


def test_mistakes_are_sentences(log: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="use one of them"):
        call("table", log, "--classes", "--gold", log)
    with pytest.raises(InputError, match="one radius"):
        call("table", log, "--classes", "--radii", "0,1")
    with pytest.raises(InputError, match="is not a radius"):
        call("table", log, "--radii", "x")
    with pytest.raises(InputError, match="error probability"):
        call("table", log, "--bound", "exact")
    with pytest.raises(RunError, match="does not exist"):
        call("table", tmp_path / "absent")
    assert call("table", log, "--format", "html").exit_code == 2
    assert call("table").exit_code == 2


def test_envelope_of_predictions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "predictions"
    path.write_text("idx\tlabel\tpredict\tcorrect\ttime\n0\t0\t0\t1\t1.0\n")
    with pytest.raises(RunError, match="envelope needs radii"):
        call("table", path, "--envelope")
    assert call("table", path, "--radii", "0,0.5").stdout.split("\n")[2].split()[-1] == "1.000"


def test_plot_writes_the_figure(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = call("plot", log, "-o", tmp_path / "figure.svg", "--bound", "bernstein", "--alpha", "0.001", "--common")
    assert "figure.svg" in result.stdout
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


def test_export_round_trip_rounds_down(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    call("export", log, "--format", "cohen-tsv", "-o", out, "--digits", "3")
    assert out.read_text().splitlines()[3] == "2\t1\t1\t1.236\t1\t1.000000"
    with pytest.raises(RunError, match="already exists"):
        call("export", log, "-o", out)
    call("export", log, "--format", "json", "-o", out, "--force")
    assert len(json.loads(out.read_text())["points"]) == 4
    call("export", log, "--format", "csv", "-o", out, "--force")
    assert out.read_text().startswith("index,label,prediction,outcome,radius")


@pytest.mark.parametrize(
    ("call_", "forbidden"),
    [
        ("table([log])", {"torch", "scipy", "matplotlib", "pandas", "rich"}),
        ("export(log, out)", {"torch", "scipy", "matplotlib", "pandas"}),
        ("plot([log], out.with_suffix('.png'))", {"torch", "scipy", "matplotlib.pyplot", "pandas"}),
    ],
)
def test_no_heavy_import(log: Path, tmp_path: Path, call_: str, forbidden: set[str]) -> None:
    code = (
        "import sys; from pathlib import Path; log, out = map(Path, sys.argv[1:]);"
        "from smoothcert.cli.table import table; from smoothcert.cli.plot import plot;"
        f"from smoothcert.cli.export import export; assert 'numpy' not in sys.modules; {call_};"
        f"found = {forbidden!r} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code, str(log), str(tmp_path / "out")], check=True, timeout=60)

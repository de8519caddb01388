"""`smoothcert plan` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from cli_runner import invoke, smoothcert
from smoothcert.certificates import envelope_radius
from smoothcert.cli.plan import plan
from smoothcert.cli.radius import radius
from smoothcert.errors import InputError
from smoothcert.records.envelopes import SemiElastic

app = typer.Typer()
app.command()(plan)
app.command()(radius)

MNIST = ("plan", "--dim", 784, "--sigma", 0.25, "--p-a", 0.999)
KEYS = {
    "dimension", "sigma", "p_a", "radius", "constant_radius", "rate", "lipschitz", "floor", "smallest_ratio",
    "largest_ratio", "rate_curve", "lipschitz_curve",
}  # fmt: skip


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(app, *MNIST, "--radius", 0.7, "--floor", 0.2, "--json").stdout)
    return found


def test_json(document: dict[str, Any]) -> None:
    assert document.keys() == KEYS
    assert (document["dimension"], document["sigma"], document["p_a"], document["radius"]) == (784, 0.25, 0.999, 0.7)
    assert document["constant_radius"] == pytest.approx(0.25 * 3.0902323061678132, rel=1e-9)
    for curve, fastest in (("rate_curve", "rate"), ("lipschitz_curve", "lipschitz")):
        slopes, radii = zip(*document[curve], strict=True)
        assert list(slopes) == sorted(slopes)
        assert list(radii) == sorted(radii, reverse=True)
        assert slopes[0] < document[fastest] < slopes[-1]
    assert document["floor"] == 0.2
    assert 0.9076 < document["smallest_ratio"] < 1 < document["largest_ratio"] < 1.1  # table 1 of the paper: .9076


def test_what_is_planned_is_what_radius_gives(document: dict[str, Any]) -> None:
    """`radius` certifies the radius at the printed rate and constant."""
    known = ("--dim", 784, "--sigma", 0.25, "--p-a", 0.999, "--json")
    by_rate = invoke(app, "radius", "envelope", *known, "--rate", document["rate"])
    by_constant = invoke(app, "radius", "envelope", *known, "--lipschitz", document["lipschitz"], "--floor", 0.2)
    for found in (by_rate, by_constant):
        assert 0.7 <= json.loads(found.stdout)["radius"] < 0.7001


def test_text_is_rounded_to_the_safe_side_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = invoke(app, *MNIST, "--plot", tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert f"wrote {tmp_path / 'plan.png'}" in result.stderr
    text = result.stdout
    assert "A constant sigma certifies 0.772558." in text
    assert "To certify 0.733930 (95% of that)" in text
    rate = float(text.split("exp(")[1].split(" x")[0])
    assert float(envelope_radius(0.999, sigma=0.25, dimension=784, envelope=SemiElastic(rate=rate))) >= 0.73393
    rows = [line.split() for line in text.splitlines()[text.splitlines().index("") + 2 :]]
    assert len(rows) == 9
    for column, falling in ((0, False), (1, True), (2, False), (3, True)):
        values = [float(row[column]) for row in rows]
        assert values == sorted(values, reverse=falling)


def test_a_plot_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected \.png"):
        invoke(app, *MNIST, "--plot", tmp_path / "plan.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_one_sentence_and_no_traceback() -> None:
    result = smoothcert("plan", "--dim", 784, "--sigma", 0.25, "--p-a", 0.999, "--radius", 1)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("smoothcert: --radius 1 is not possible")
    assert len(result.stderr.strip().splitlines()) == 1
    missing = smoothcert("plan", "--dim", 784)
    assert missing.returncode == 2
    assert "--sigma" in missing.stderr

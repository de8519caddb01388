"""`smoothcert radius` where sigma varies with the input."""

from __future__ import annotations

import json
import math

import pytest
import typer

from cli_runner import invoke, smoothcert
from smoothcert.cli.radius import radius
from smoothcert.errors import InputError

app = typer.Typer()
app.command()(radius)


def value(*arguments: object) -> float:
    document = json.loads(invoke(app, *arguments, "--json").stdout)
    assert document.keys() == {"radius"}
    return float(document["radius"])


CHECKS = [
    (2, 0.5, 0.1, 0.99, 1.16003484),
    (49, 0.5, 0.01, 0.999, 1.54324616),
    (784, 0.25, 0.01, 0.99993, 0.94738778),
    (784, 0.5, 0.05, 0.999, 1.08835444),
    (3072, 1.0, 0.01, 0.999, 2.42471562),
    (150528, 0.25, 0.05, 0.999, 0.11126053),
]


@pytest.mark.parametrize(("dim", "sigma", "rate", "p_a", "expected"), CHECKS)
def test_known_radii(dim: int, sigma: float, rate: float, p_a: float, expected: float) -> None:
    known = ("envelope", "--dim", dim, "--sigma", sigma, "--rate", rate, "--p-a", p_a)
    assert value(*known) == pytest.approx(expected, abs=1e-8)
    text = invoke(app, *known).stdout.strip()
    assert float(text) <= value(*known) < float(text) + 1e-6


def test_through_the_console() -> None:
    result = smoothcert(
        "radius", "envelope", "--dim", 784, "--sigma", 0.25, "--rate", 0.01, "--p-a", 0.99993, "--json"
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["radius"] == pytest.approx(0.94738778, abs=1e-8)


KNOWN = ("--dim", 784, "--sigma", 0.25, "--p-a", 0.999)
COHEN = 0.25 * 3.0902323061678132


def test_a_sigma_that_does_not_change_gives_cohens_radius() -> None:
    constant = value("gaussian", "--sigma", 0.25, "--p-a", 0.999)
    assert constant == pytest.approx(COHEN, rel=1e-9)
    assert value("envelope", *KNOWN) == constant
    for still in (("--rate", 0), ("--lipschitz", 0, "--floor", 0.25), ("--lipschitz", 0, "--floor", 0.01)):
        assert value("envelope", *KNOWN, *still) == pytest.approx(constant, rel=1e-8)


def test_faster_is_smaller() -> None:
    by_rate = [value("envelope", *KNOWN, "--rate", rate) for rate in (0, 0.01, 0.05, 0.2, 1, 100)]
    by_constant = [
        value("envelope", *KNOWN, "--lipschitz", constant, "--floor", 0.1) for constant in (0, 0.003, 0.05, 0.5, 5)
    ]
    for radii in (by_rate, by_constant):
        assert radii == sorted(radii, reverse=True)
        assert len(set(radii)) == len(radii)
        assert all(found > 0 for found in radii)


def test_two_bounds() -> None:
    """Another class bounded apart gives more; a bound that says nothing gives the same; constant σ gives Cohen's."""
    known = ("envelope", "--dim", 784, "--sigma", 0.25, "--rate", 0.02)
    one = value(*known, "--p-a", 0.9)
    assert value(*known, "--p-a", 0.9, "--p-b", 0.01) > one
    assert value(*known, "--p-a", 0.9, "--p-b", 0.1) == pytest.approx(one, rel=1e-6)
    assert value("envelope", "--dim", 784, "--sigma", 0.25, "--p-a", 0.9, "--p-b", 0.01) == pytest.approx(
        0.125 * (1.2815515655446004 + 2.3263478740408408), rel=1e-9
    )
    assert value(*known, "--p-a", 0.4, "--p-b", 0.1) > 0
    assert value(*known, "--p-a", 0.4, "--p-b", 0.5) == 0


def test_lipschitz_of_the_paper() -> None:
    """d = 784, floor .65, constant .5: L = 34.71, so that nothing above 0.1498 comes out (MATH, section 4)."""
    settings = ("--dim", 784, "--sigma", 0.65, "--lipschitz", 0.5, "--floor", 0.65)
    loose = value("lipschitz", *settings, "--num-classes", 10, "--p-a", 0.999)
    assert loose == pytest.approx(2 * 3.0902 / (2 * 34.71), rel=1e-3)
    assert 0.1 < value("lipschitz", *settings, "--num-classes", 10, "--p-a", 1 - 1e-12) < 0.1498
    most = value("lipschitz", *settings, "--num-classes", 2, "--p-a", 1 - 1e-12)
    assert most == pytest.approx(0.1498, abs=1e-4)
    assert value("envelope", *settings, "--p-a", 0.999) > loose


def test_renyi_is_never_above_the_tight_one() -> None:
    for varying in ((), ("--rate", 0.01), ("--lipschitz", 0.01, "--floor", 0.1)):
        assert 0 < value("renyi", *KNOWN, *varying) <= value("envelope", *KNOWN, *varying)
    assert value("renyi", "--sigma", 1, "--dim", 3, "--p-a", 0.9, "--p-b", 0.1) == pytest.approx(1.03193, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["envelope", "--sigma", 0.25, "--p-a", 0.9, "--rate", 0.1], "--dim is required"),
        (["envelope", "--sigma", 0.25, "--p-a", 0.9], "depends on the dimension"),
        (
            ["envelope", *KNOWN, "--rate", 0.1, "--lipschitz", 0.1, "--floor", 0.1],
            "--rate cannot be combined with --lipschitz",
        ),
        (["envelope", *KNOWN, "--rate", 0.1, "--floor", 0.1], "--rate cannot be combined with --lipschitz"),
        (["envelope", *KNOWN, "--lipschitz", 0.1], "--lipschitz and --floor must be given together"),
        (["envelope", *KNOWN, "--floor", 0.1], "--lipschitz and --floor must be given together"),
        (["envelope", *KNOWN, "--rate", -0.1], "must be a finite number of at least 0"),
        (["envelope", *KNOWN, "--rate", math.nan], "must be a finite number of at least 0"),
        (["envelope", *KNOWN, "--lipschitz", math.inf, "--floor", 0.1], "must be a finite number"),
        (["envelope", *KNOWN, "--lipschitz", 0.1, "--floor", 0], "floor 0.0 must be a positive"),
        (
            ["envelope", "--dim", 0, "--sigma", 0.25, "--p-a", 0.9, "--rate", 0.1],
            "--dim is 0; the dimension of an input must be at least 1",
        ),
        (["envelope", "--dim", 3, "--sigma", 0.25, "--p-a", 1.5, "--rate", 0.1], "strictly between 0 and 1"),
        (["envelope", "--dim", 3, "--sigma", 0.25, "--rate", 0.1], "the envelope radius needs --p-a"),
        (["gaussian", *KNOWN, "--rate", 0.1], "holds for a constant sigma only; for one that varies use envelope"),
        (["li", *KNOWN, "--p-b", 0.0005, "--rate", 0.1], "holds for a constant sigma only"),
        (["lipschitz", *KNOWN, "--rate", 0.1, "--num-classes", 10], "needs a sigma with a Lipschitz constant"),
        (["lipschitz", *KNOWN, "--lipschitz", 0.1, "--floor", 0.1], "classes"),
        (["envelop", *KNOWN], "did you mean envelope"),
    ],
)
def test_mistakes_get_a_sentence(arguments: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        invoke(app, *arguments)


def test_nothing_is_certified_by_a_floor_above_sigma() -> None:
    """σ(x) is at least the floor at every input, this one included: what was said cannot be true."""
    untrue = (*KNOWN, "--lipschitz", 0.1, "--floor", 0.5)
    with pytest.raises(InputError, match=r"sigma 0\.25 .*'floor': 0\.5"):
        invoke(app, "envelope", *untrue)
    assert value("lipschitz", "--num-classes", 10, *untrue) == 0

"""Certificates by name and several at a time; and all of them against classifiers whose probabilities are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from smoothcert.certificates import CERTIFICATES, Portfolio, get_certificate, get_portfolio, radius_of_family
from smoothcert.errors import InputError
from smoothcert.records import FloatArray, Norm, Proof, Quantity, Smoothing, TallyKind

Q = Quantity
NAMES = sorted(name for name, one in CERTIFICATES.items() if one.noise.sampled)
"""Those about any real inputs; of inputs on a grid there are none on a line."""


# Names.


def test_every_certificate_is_found_by_its_name() -> None:
    for name, certificate in CERTIFICATES.items():
        assert certificate.name == name
        assert get_certificate(name) is certificate
        assert certificate.needs
        assert certificate.proofs
    assert {"dipole", "dipole-separate", "dipole-multi-class"} <= set(CERTIFICATES)
    assert {"second-order", "second-order-pairs", "second-order-multi-class"} <= set(CERTIFICATES)


@pytest.mark.parametrize(("wrong", "meant"), [("diploe", "dipole"), ("second_order", "second-order")])
def test_a_misspelt_name_is_answered_with_the_right_one(wrong: str, meant: str) -> None:
    for ask in (get_certificate, get_portfolio):
        with pytest.raises(InputError, match=f"there is no certificate '{wrong}'; did you mean .*{meant}"):
            ask(wrong)


def names_of(portfolio: Portfolio) -> list[str]:
    return [certificate.name for certificate in portfolio.certificates]


@pytest.mark.parametrize(
    ("chosen", "names", "best"),
    [
        ("gaussian", ["gaussian"], False),
        ("dipole,gaussian", ["dipole", "gaussian"], False),
        (" dipole , gaussian ", ["dipole", "gaussian"], False),
        ("best-of(gaussian,dipole)", ["gaussian", "dipole"], True),
        (" best-of( gaussian, dipole ) ", ["gaussian", "dipole"], True),
        (["gaussian", "second-order"], ["gaussian", "second-order"], False),
        (("gaussian", CERTIFICATES["li"]), ["gaussian", "li"], False),
        (CERTIFICATES["dipole"], ["dipole"], False),
    ],
)
def test_portfolio_from_what_a_person_writes(chosen: object, names: list[str], best: bool) -> None:
    portfolio = get_portfolio(chosen)  # type: ignore[arg-type]
    assert names_of(portfolio) == names
    assert portfolio.best_of is best
    assert get_portfolio(str(portfolio)) == portfolio
    assert get_portfolio(portfolio) is portfolio


@pytest.mark.parametrize("chosen", ["gaussian,dipole", ["gaussian", "dipole"], "best-of(gaussian,dipole)"])
def test_best_of_may_be_asked_for_apart(chosen: str | list[str]) -> None:
    portfolio = get_portfolio(chosen, best_of=True)
    assert portfolio.best_of
    assert str(portfolio) == "best-of(gaussian,dipole)"


def test_a_certificate_of_ones_own() -> None:
    @dataclass(frozen=True)
    class Own:
        name: str = "own"
        family: str = "own"
        norm: Norm = Norm.L2
        needs: tuple[Quantity, ...] = (Q.TOP_LOWER,)
        proofs: tuple[Proof, ...] = (Proof.TOP,)

        def radius(self, quantities: object, *, sigma: object) -> FloatArray:
            return np.zeros(1)

    own = Own()
    assert get_portfolio(own).certificates == (own,)
    assert names_of(get_portfolio(["gaussian", own], best_of=True)) == ["gaussian", "own"]


@pytest.mark.parametrize(
    ("chosen", "best_of", "message"),
    [
        ([], False, "at least one certificate is needed"),
        ("", False, "there is no certificate ''"),
        ("gaussian,,dipole", False, "there is no certificate ''"),
        ("best-of()", False, "there is no certificate ''"),
        ("dipole,dipole", False, "a certificate was named twice: dipole, dipole"),
        ("dipole", True, "the best of one certificate is that one: name another beside dipole"),
        ("best-of(dipole)", False, "the best of one certificate is that one"),
        ("dipole,second-order", False, "dipole and second-order cannot share their samples"),
        ("best-of(gaussian,second-order-pairs,dipole-multi-class)", False, "cannot share their samples"),
        ("dipole,second-order-multi-class", False, "cannot share their samples"),
        ("gaussian-soft,dipole", False, "dipole and gaussian-soft cannot share their samples"),
        ("second-order,gaussian,gaussian-soft-two-class", False, "the other independent scores"),
        ("gaussian,gaussian-soft", True, "the best of gaussian and gaussian-soft cannot be taken: they speak of two"),
        (
            "best-of(gaussian-soft-two-class,li,gaussian-soft)",
            False,
            "the best of li and gaussian-soft-two-class, gaus",
        ),
    ],
)
def test_what_cannot_be_computed_together(chosen: str | list[str], best_of: bool, message: str) -> None:
    with pytest.raises(InputError) as caught:
        get_portfolio(chosen, best_of=best_of)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("chosen", "tally", "every_class"),
    [
        ("gaussian", TallyKind.VOTES, False),
        ("gaussian,gaussian-two-class,li,lecuyer", TallyKind.VOTES, False),
        ("gaussian,dipole", TallyKind.PAIRS, False),
        ("dipole-separate,dipole-multi-class", TallyKind.PAIRS, False),
        ("gaussian,second-order", TallyKind.GRADIENTS, False),
        ("second-order-pairs", TallyKind.GRADIENTS, False),
        ("gaussian,second-order-multi-class", TallyKind.GRADIENTS, True),
        ("gaussian-soft", TallyKind.SCORES, False),
        ("gaussian,gaussian-soft-bernstein,li", TallyKind.SCORES, False),
        ("best-of(gaussian-soft,gaussian-soft-two-class)", TallyKind.SCORES, False),
    ],
)
def test_what_must_be_sampled(chosen: str, tally: TallyKind, every_class: bool) -> None:
    portfolio = get_portfolio(chosen)
    assert portfolio.tally is tally
    assert portfolio.every_class is every_class


def test_a_proof_that_two_certificates_need_is_made_once() -> None:
    portfolio = get_portfolio("best-of(gaussian,gaussian-two-class,li)")
    assert portfolio.proofs == (Proof.TOP, Proof.RUNNER_UP)
    assert get_portfolio("second-order,gaussian").proofs == (Proof.TOP, Proof.GRADIENT_HALVES)
    assert get_portfolio("dipole").proofs == (Proof.PAIR_REGION,)
    assert get_portfolio("dipole-separate").proofs == (Proof.PAIR_BOTH, Proof.PAIR_ONE_SIDED)


def test_alternatives_are_bounded_apart_unless_the_best_is_taken() -> None:
    apart = get_portfolio("gaussian,dipole")
    assert [names_of(one) for one in apart.alternatives()] == [["gaussian"], ["dipole"]]
    assert not any(one.best_of for one in apart.alternatives())
    together = get_portfolio("best-of(gaussian,dipole)")
    assert together.alternatives() == (together,)


# One radius from numbers a person types.


@pytest.mark.parametrize(
    ("family", "quantities", "sigma", "radius"),
    [
        ("dipole", {Q.PAIR_BOTH_LOWER: 0.89476036, Q.PAIR_ONE_SIDED_LOWER: 0.04725806}, 0.25, 0.40492846),
        ("dipole", {Q.PAIR_ONE_SIDED_LOWER: 0.0, Q.PAIR_BOTH_LOWER: 0.8}, 1.0, 1.26803403),
        ("dipole", {Q.PAIR_BOTH_LOWER: 0.0, Q.PAIR_ONE_SIDED_LOWER: 0.5}, 1.0, 0.0),
        ("second-order", {Q.TOP_LOWER: 0.8, Q.GRADIENT_NORM_UPPER: 0.1}, 1.0, 1.07518066),
        ("second-order", {Q.GRADIENT_NORM_UPPER: 0.0, Q.TOP_LOWER: 0.6}, 2.0, 2 * 0.68054353),
        ("second-order", {Q.TOP_LOWER: 0.4, Q.GRADIENT_NORM_UPPER: 0.0}, 1.0, 0.0),
        ("gaussian", {Q.TOP_LOWER: 0.8}, 1.0, 0.84162123),
        ("gaussian", {Q.TOP_LOWER: 0.8, Q.RUNNER_UP_UPPER: 0.2}, 1.0, 0.84162123),
    ],
)
def test_radius_of_family(family: str, quantities: dict[Quantity, float], sigma: float, radius: float) -> None:
    found = radius_of_family(family, quantities, sigma=sigma)
    assert isinstance(found, float)
    assert found == pytest.approx(radius, abs=2e-8)


def test_multi_class_forms_are_chosen_by_what_is_given() -> None:
    pair = {Q.PAIR_BOTH_LOWER: 0.7, Q.PAIR_ONE_SIDED_LOWER: 0.05}
    others = {Q.OTHER_NEITHER_LOWER: 0.9, Q.OTHER_ONE_SIDED_LOWER: 0.03}
    assert radius_of_family("dipole", pair | others, sigma=1.0) > radius_of_family("dipole", pair, sigma=1.0)
    top = {Q.TOP_LOWER: 0.8, Q.GRADIENT_NORM_UPPER: 0.1}
    other = {Q.OTHER_UPPER: 0.05, Q.OTHER_GRADIENT_NORM_UPPER: 0.02}
    several = radius_of_family("second-order", top | other, sigma=1.0)
    assert several > radius_of_family("second-order", top, sigma=1.0)


@pytest.mark.parametrize(
    ("family", "quantities", "sigma", "message"),
    [
        ("dipol", {}, 1.0, "did you mean dipole?"),
        ("dipole-multi-class", {}, 1.0, "the dipole radius needs --both and --one-sided, or"),
        ("dipole", {Q.PAIR_BOTH_LOWER: 0.8}, 1.0, "needs --both and --one-sided"),
        ("dipole", {}, 1.0, "nothing was given"),
        ("second-order", {Q.TOP_LOWER: 0.8}, 1.0, "needs --p-a and --gradient-norm"),
        ("dipole", {Q.PAIR_BOTH_LOWER: 0.8, Q.PAIR_ONE_SIDED_LOWER: 0.2}, 1.0, "cannot both be true"),
        ("dipole", {Q.PAIR_BOTH_LOWER: 1.0, Q.PAIR_ONE_SIDED_LOWER: 0.0}, 1.0, "--both 1.0 must lie in [0, 1)"),
        ("dipole", {Q.PAIR_BOTH_LOWER: 0.8, Q.PAIR_ONE_SIDED_LOWER: -0.1}, 1.0, "--one-sided -0.1 must lie"),
        ("dipole", {Q.PAIR_BOTH_LOWER: math.nan, Q.PAIR_ONE_SIDED_LOWER: 0.1}, 1.0, "--both nan must lie"),
        ("dipole", {Q.PAIR_BOTH_LOWER: 0.8, Q.PAIR_ONE_SIDED_LOWER: 0.1}, 0.0, "--sigma 0.0 must be"),
        ("dipole", {Q.PAIR_BOTH_LOWER: 0.8, Q.PAIR_ONE_SIDED_LOWER: 0.1}, math.inf, "--sigma inf must be"),
        ("second-order", {Q.TOP_LOWER: 0.8, Q.GRADIENT_NORM_UPPER: -0.1}, 1.0, "--gradient-norm -0.1 must be"),
        ("second-order", {Q.TOP_LOWER: 0.8, Q.GRADIENT_NORM_UPPER: math.nan}, 1.0, "--gradient-norm nan must be"),
        ("second-order", {Q.TOP_LOWER: 1.0, Q.GRADIENT_NORM_UPPER: 0.0}, 1.0, "--p-a 1.0 must lie strictly"),
        ("second-order", {Q.TOP_LOWER: 0.8, Q.GRADIENT_NORM_UPPER: 0.0}, math.nan, "--sigma nan must be"),
    ],
)
def test_mistakes_are_answered_with_what_to_do(
    family: str, quantities: dict[Quantity, float], sigma: float, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        radius_of_family(family, quantities, sigma=sigma)
    assert message in str(caught.value)


# The truth. Classifiers on a line cut it into pieces; they stand for parallel slabs in any dimension, and moving along
# the line is the fastest way out of a class.

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class LineClassifier:
    """Class labels[i] between cuts[i-1] and cuts[i], in standard deviations from x; class 0 is the one certified."""

    cuts: FloatArray
    labels: Labels

    @property
    def classes(self) -> range:
        return range(int(self.labels.max()) + 1)

    def label_at(self, z: FloatArray) -> Labels:
        return self.labels[np.searchsorted(self.cuts, z)]

    def probabilities(self, shift: float = 0.0) -> FloatArray:
        mass = np.diff(np.concatenate([[0.0], special.ndtr(self.cuts - shift), [1.0]]))
        return np.bincount(self.labels, weights=mass, minlength=len(self.classes))

    def gradients(self) -> FloatArray:
        density = np.concatenate([[0.0], np.exp(-0.5 * self.cuts**2) / math.sqrt(2.0 * math.pi), [0.0]])
        return np.abs(np.bincount(self.labels, weights=-np.diff(density), minlength=len(self.classes)))

    def pairs(self, inside: list[int]) -> tuple[float, float]:
        """P(both votes are of these classes), P(the first is and the second is not)."""
        edges = np.unique(np.concatenate([self.cuts, -self.cuts, [0.0, -40.0, 40.0]]))
        middle, mass = 0.5 * (edges[1:] + edges[:-1]), np.diff(special.ndtr(edges))
        first, second = (np.isin(self.label_at(z), inside) for z in (middle, -middle))
        return float(mass[first & second].sum()), float(mass[first & ~second].sum())

    def leads(self, shift: float) -> bool:
        own, *others = self.probabilities(shift)
        return bool(own > max(others))

    def distance(self) -> float:
        """To the nearest place found, in either direction, where class 0 is not the largest; 0 if that is here."""
        if not self.leads(0.0):
            return 0.0
        return min(self._distance(sign) for sign in (-1.0, 1.0))

    def _distance(self, sign: float) -> float:
        steps = np.arange(0.0, 15.0, 0.02)
        lost = next((i for i, step in enumerate(steps) if not self.leads(sign * step)), None)
        if lost is None:
            return math.inf
        good, bad = steps[lost - 1], steps[lost]
        for _ in range(50):
            middle = 0.5 * (good + bad)
            good, bad = (middle, bad) if self.leads(sign * middle) else (good, middle)
        return float(bad)

    def quantities(self, sigma: float) -> dict[Quantity, FloatArray]:
        """What every certificate may ask for, loosened by more than the rounding errors made here."""
        slack = 1e-14
        p, gradient = self.probabilities(), self.gradients() / sigma
        others = list(self.classes)[1:]
        both, one_sided = self.pairs([0])
        turned = np.array([self.pairs([c for c in self.classes if c != other]) for other in others])
        exact = {
            Q.TOP_LOWER: p[0],
            Q.RUNNER_UP_UPPER: p[1:].max(),
            Q.PAIR_BOTH_LOWER: both,
            Q.PAIR_ONE_SIDED_LOWER: one_sided,
            Q.OTHER_NEITHER_LOWER: turned[:, 0],
            Q.OTHER_ONE_SIDED_LOWER: turned[:, 1],
            Q.GRADIENT_NORM_UPPER: gradient[0],
            Q.OTHER_UPPER: p[1:],
            Q.OTHER_GRADIENT_NORM_UPPER: gradient[1:],
        }
        loosened = {}
        for quantity, value in exact.items():
            wider = np.asarray(value) + slack * (1.0 / sigma if "gradient" in quantity else 1.0) * (
                -1.0 if quantity.name.endswith("LOWER") else 1.0
            )
            loosened[quantity] = np.maximum(wider, 0.0)
        return loosened


def certified(name: str, quantities: dict[Quantity, FloatArray], *, sigma: float) -> float:
    """The radius by this certificate: the smallest over the other classes."""
    certificate = CERTIFICATES[name]
    needed = {quantity: quantities[quantity] for quantity in certificate.needs}
    return float(np.min(certificate.radius(needed, sigma=sigma, smoothing=Smoothing(dimension=3, num_classes=3))))


THREE_CLASSES = LineClassifier(np.array([-2.5, -1.1, 0.9, 2.2]), np.array([1, 2, 0, 1, 2]))


def test_line_classifier_by_counting() -> None:
    """The oracle itself, against plain sampling."""
    z = np.random.default_rng(1).normal(size=400_000)
    first, second = THREE_CLASSES.label_at(z), THREE_CLASSES.label_at(-z)
    np.testing.assert_allclose(THREE_CLASSES.probabilities(), np.bincount(first) / z.size, atol=4e-3)
    both, one_sided = THREE_CLASSES.pairs([0])
    assert both == pytest.approx(np.mean((first == 0) & (second == 0)), abs=4e-3)
    assert one_sided == pytest.approx(np.mean((first == 0) & (second != 0)), abs=4e-3)
    slope = [(THREE_CLASSES.probabilities(1e-6) - THREE_CLASSES.probabilities(-1e-6)) / 2e-6]
    np.testing.assert_allclose(np.abs(slope[0]), THREE_CLASSES.gradients(), atol=1e-9)


def test_three_classes_in_parallel_slabs() -> None:
    """All certificates hold; those that know more come closer to the truth, and the truth is not far."""
    quantities, distance = THREE_CLASSES.quantities(1.0), THREE_CLASSES.distance()
    radius = {name: certified(name, quantities, sigma=1.0) for name in NAMES}
    assert all(0.0 <= found <= distance for found in radius.values())
    assert radius["dipole"] > radius["gaussian"]
    assert radius["second-order"] > radius["gaussian"]
    assert radius["dipole-multi-class"] > radius["dipole"]
    assert radius["second-order-multi-class"] > radius["second-order"]
    assert max(radius.values()) > 0.7 * distance


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(2, 7))
def test_no_certificate_is_above_the_truth(seed: int, classes: int, pieces: int) -> None:
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.normal(scale=2.0, size=pieces - 1))
    home = int(np.searchsorted(cuts, 0.0))
    labels = rng.integers(0, classes, size=pieces)
    labels[home] = 0  # so that class 0 leads more often
    labels[(home + 1) % pieces] = classes - 1
    classifier = LineClassifier(cuts, labels)
    distance, sigma = classifier.distance(), float(10.0 ** rng.uniform(-3, 3))
    quantities = classifier.quantities(sigma)
    for name in NAMES:
        assert certified(name, quantities, sigma=sigma) <= sigma * distance * (1 + 1e-12), name


@settings(max_examples=100)
@given(st.floats(0.05, 4.0), st.floats(0.0, 4.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_three_classes_with_tails_of_two_others(wall: float, extra: float, left: float, right: float) -> None:
    """Class 0 around x, the rest of either side divided between classes 1 and 2: the form the theorems fear most."""
    lower, upper = -wall - extra, wall
    cut_left, cut_right = special.ndtri(left * special.ndtr(lower)), -special.ndtri(right * special.ndtr(-upper))
    assume(math.isfinite(cut_left) and math.isfinite(cut_right) and cut_left < lower and cut_right > upper)
    classifier = LineClassifier(np.array([cut_left, lower, upper, cut_right]), np.array([1, 2, 0, 1, 2]))
    quantities, distance = classifier.quantities(1.0), classifier.distance()
    for name in NAMES:
        assert certified(name, quantities, sigma=1.0) <= distance * (1 + 1e-12), name


# Balls and cones.

NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)


def integral(values_at: object, low: float, high: float) -> float:
    """Gauss-Legendre on [low, high] for smooth functions."""
    assert callable(values_at)
    points = 0.5 * (high - low) * NODES + 0.5 * (high + low)
    return float(0.5 * (high - low) * np.sum(WEIGHTS * values_at(points)))


def normal_density(z: FloatArray) -> FloatArray:
    return np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)


BINARY = ["gaussian", "second-order", "second-order-pairs", "dipole", "dipole-separate"]


def binary_quantities(p: float, gradient: float, both: float) -> dict[Quantity, FloatArray]:
    """Loosened by more than the errors of the quadrature."""
    slack = 1e-9
    return {
        Q.TOP_LOWER: np.asarray(p - slack),
        Q.GRADIENT_NORM_UPPER: np.asarray(gradient + slack),
        Q.PAIR_BOTH_LOWER: np.asarray(both - slack),
        Q.PAIR_ONE_SIDED_LOWER: np.asarray(max(p - both - slack, 0.0)),
    }


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("ball", [1.9, 2.5, 4.0])
@pytest.mark.parametrize("offset", [0.0, 0.2, 0.6])
def test_ball(dimension: int, ball: float, offset: float) -> None:
    """x lies at `offset` from the centre of a ball; the probability falls with the distance from the centre.

    With t = ball·sin θ along the axis, the other coordinates lie in a ball of radius ball·cos θ. A pair x ± ε lies in
    the ball if |t| + offset takes the place of t.
    """

    def across(angle: FloatArray) -> FloatArray:
        rest: FloatArray = special.gammainc(0.5 * (dimension - 1), 0.5 * (ball * np.cos(angle)) ** 2)
        return rest * ball * np.cos(angle)

    def value(s: float) -> float:
        return integral(
            lambda a: across(a) * normal_density(ball * np.sin(a) - s),
            -0.5 * math.pi,
            0.5 * math.pi,
        )

    gradient = integral(
        lambda a: across(a) * (ball * np.sin(a) - offset) * normal_density(ball * np.sin(a) - offset),
        -0.5 * math.pi,
        0.5 * math.pi,
    )
    both = 2.0 * integral(
        lambda a: across(a) * normal_density(ball * np.sin(a) - offset),
        math.asin(offset / ball),
        0.5 * math.pi,
    )
    p = value(offset)
    assert gradient <= 1e-12
    assert both <= p + 1e-12
    quantities = binary_quantities(p, abs(gradient), both)
    positive = 0
    for name in BINARY:
        radius = certified(name, quantities, sigma=1.0)
        positive += radius > 0
        assert radius == 0.0 or value(offset + radius) >= 0.5
    assert positive == (len(BINARY) if p > 0.5 + 1e-6 else 0)
    if offset == 0.0 and positive:
        assert certified("dipole", quantities, sigma=1.0) > certified("gaussian", quantities, sigma=1.0) + 0.05


@pytest.mark.parametrize("slope", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("height", [1.5, 3.0, 5.0])
def test_cone(slope: float, height: float) -> None:
    """Class A = {|y| < slope·x} in the plane, x on its axis: certified points in all directions keep the class."""

    def value(x: float, y: float) -> float:
        def strip(u: FloatArray) -> FloatArray:
            width = special.ndtr(slope * u - y) - special.ndtr(-slope * u - y)
            return normal_density(u - x) * width

        return integral(strip, max(0.0, x - 10.0), x + 10.0)

    def half_width(u: FloatArray) -> FloatArray:
        return special.erf(slope * u / math.sqrt(2.0))

    p = value(height, 0.0)
    gradient = abs(integral(lambda u: (u - height) * normal_density(u - height) * half_width(u), 0.0, height + 10.0))
    both = 2.0 * integral(lambda u: normal_density(u - height) * half_width(u), 0.0, height)
    assert both <= p + 1e-12
    quantities = binary_quantities(p, gradient, both)
    for name in BINARY:
        radius = certified(name, quantities, sigma=1.0)
        assert (radius > 0) == (p > 0.5)
        for angle in np.linspace(0.0, 2.0 * math.pi, 24, endpoint=False):
            away = value(height + radius * math.cos(angle), radius * math.sin(angle))
            assert away >= min(p, 0.5) - 1e-12

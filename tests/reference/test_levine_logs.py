"""Every row of the logs released with Levine et al. 2021, computed again from its raw counts.

The authors print bounds with six significant digits and radii with three, rounded to nearest. Their logs on principal
components are checked too where somebody has put them beside the others.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from smoothcert.certificates import dipole_radius, gaussian_radius, second_order_radius
from smoothcert.data import load_dataset
from smoothcert.records import FloatArray
from smoothcert.statistics import clopper_pearson_lower
from smoothcert.statistics.gradient import pair_product_margin

ALPHA = 0.001
DIMENSIONS = {"small_mnist": 49, "small_mnist_10pcs": 10, "swiss_roll": 2, "cifar10": 3072, "imagenet": 150_528}
COMPONENTS = "small_mnist_10pcs"
LOGS = 22
ROWS = 14_600


@dataclass(frozen=True)
class Log:
    """One file: its columns by name, as text."""

    method: str
    dataset: str
    dimension: int
    sigma: float
    n: int
    columns: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path, root: Path) -> Log:
        dataset, _, noise, _, name = path.relative_to(root).parts
        method, _, n = name.rpartition("N_")
        with path.open(newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        sigma = float(noise.removeprefix("noise_"))
        return cls(method.rstrip("_"), dataset, DIMENSIONS[dataset], sigma, int(n), columns)

    def __len__(self) -> int:
        return len(self.columns["idx"])

    def numbers(self, column: str) -> FloatArray:
        return np.array([float(text) for text in self.columns[column]])

    def counts(self, column: str) -> np.ndarray:
        return np.array([int(text) for text in self.columns[column]])


@pytest.fixture(scope="module")
def all_logs(shared_reference: Path) -> list[Log]:
    root = shared_reference / "levine2021" / "certify"
    if not root.is_dir():
        pytest.skip("the logs of Levine et al. (../shared/reference/levine2021) are not on this machine")
    return [Log.read(path, root) for path in sorted(root.rglob("*N_*")) if path.is_file()]


@pytest.fixture(scope="module")
def logs(all_logs: list[Log]) -> list[Log]:
    return [log for log in all_logs if log.dataset != COMPONENTS]


def of_method(logs: list[Log], method: str) -> Iterator[Log]:
    chosen = [log for log in logs if log.method == method]
    assert chosen
    yield from chosen


def as_printed(values: FloatArray, digits: int) -> list[str]:
    """As the authors' code writes a number."""
    return [f"{value:.{digits}}" for value in values]


def disagreements(found: list[str], printed: list[str]) -> list[tuple[int, str, str]]:
    pairs = enumerate(zip(found, printed, strict=True))
    return [(row, ours, theirs) for row, (ours, theirs) in pairs if float(ours) != float(theirs)]


def assert_abstains_where_they_do(log: Log, radius: FloatArray) -> None:
    np.testing.assert_array_equal(radius == 0.0, log.counts("predict") == -1)


def test_nothing_is_left_out(logs: list[Log]) -> None:
    assert len(logs) == LOGS
    assert sum(len(log) for log in logs) == ROWS
    assert {log.method for log in logs} == {"", "dipole", "second_order"}


def test_first_order(logs: list[Log]) -> None:
    checked = 0
    for log in of_method(logs, ""):
        check_first_order(log)
        checked += len(log)
    assert checked == 5_300


def check_first_order(log: Log) -> None:
    p_a = clopper_pearson_lower(log.counts("raw_count"), log.n, alpha=ALPHA)
    assert np.abs(p_a - log.numbers("p_A_bar")).max() <= 5.001e-7
    radius = gaussian_radius(p_a, sigma=log.sigma)
    assert not disagreements(as_printed(radius, 3), log.columns["radius"])
    assert_abstains_where_they_do(log, radius)


def test_dipole(logs: list[Log]) -> None:
    checked = 0
    for log in of_method(logs, "dipole"):
        check_dipole(log)
        checked += len(log)
    assert checked == 5_200


def check_dipole(log: Log) -> None:
    """n/2 pairs, and half of α for each of the two bounds."""
    both, one_sided = (
        clopper_pearson_lower(log.counts(f"raw_count_{kind}"), log.n // 2, alpha=ALPHA / 2)
        for kind in ("symmetric", "asymmetric")
    )
    assert np.abs(both - log.numbers("p_A_symmetric_bar")).max() <= 5.001e-7
    assert np.abs(one_sided - log.numbers("p_A_asymmetric_bar")).max() <= 5.001e-7
    radius = dipole_radius(both, one_sided, sigma=log.sigma)
    assert not disagreements(as_printed(radius, 3), log.columns["radius"])
    assert_abstains_where_they_do(log, radius)


def authors_gradient_bound(log: Log, p_a: FloatArray, raw: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Theorem 2, cut at the largest gradient that p_a allows; and where it was not cut.

    With V the mean of the products, `raw_grad_norm` is sqrt(|V|)/σ² with the sign of V.
    """
    square = np.sign(raw) * np.square(raw)
    margin = pair_product_margin(log.dimension, log.n // 2, alpha=ALPHA / 2) / log.sigma**2
    bound = np.sqrt(np.maximum(square + margin, 0.0))
    largest = np.exp(-0.5 * special.ndtri(p_a) ** 2) / np.sqrt(2.0 * np.pi) / log.sigma
    return np.minimum(bound, largest), bound < largest


def test_second_order(logs: list[Log]) -> None:
    checked = told_something = 0
    for log in of_method(logs, "second_order"):
        told_something += check_second_order(log)
        checked += len(log)
    assert checked == 4_100
    assert told_something == 339 + 685 + 72


def check_second_order(log: Log) -> int:
    """How many gradient bounds told something.

    The gradient is computed from a number printed with six digits, hence the wider tolerance of its bound.
    """
    p_a = clopper_pearson_lower(log.counts("raw_count"), log.n, alpha=ALPHA / 2)
    assert np.abs(p_a - log.numbers("p_A_bar")).max() <= 5.001e-7

    raw, logged = log.numbers("raw_grad_norm"), log.numbers("grad_norm_bound")
    gradient, informative = authors_gradient_bound(log, p_a, raw)
    assert np.abs(gradient - logged).max() <= 1e-5
    np.testing.assert_array_equal(informative, log.counts("grad_norm_bound_nonvacuous") == 1)

    radius = second_order_radius(p_a, gradient, sigma=log.sigma)
    assert not disagreements(as_printed(radius, 3), log.columns["radius"])
    assert_abstains_where_they_do(log, radius)
    return int(informative.sum())


def test_logs_on_principal_components(all_logs: list[Log]) -> None:
    found = [log for log in all_logs if log.dataset == COMPONENTS]
    if not found:
        pytest.skip(f"the logs of Levine et al. on {COMPONENTS} are not on this machine")
    check = {"": check_first_order, "dipole": check_dipole, "second_order": check_second_order}
    for log in found:
        check[log.method](log)


def test_points_of_the_swiss_roll_are_those_of_the_logs(logs: list[Log]) -> None:
    """100 labels in the order of the draws: those of another random state would agree with probability 2^-100."""
    labels = load_dataset("levine-swiss-roll", split="test").labels
    on_the_roll = [log for log in logs if log.dataset == "swiss_roll"]
    assert len(on_the_roll) == 2
    for log in on_the_roll:
        np.testing.assert_array_equal(log.counts("label"), labels)

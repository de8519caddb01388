"""The networks Levine et al. released, certified again: our counts against those in their logs.

For every input the two counts are binomial with the same p if and only if the same network was fed the same image with
the same noise law. The test: z = (ours - theirs)/sqrt(2 n p(1-p)), p pooled; under that hypothesis the sum of z² over
the inputs is chi-square distributed. It is refused at a false-alarm rate of 1e-6 per method. For the gradient estimate
the variance of z·z' 1[both votes] is taken as d p². A network fed images that are one pixel off fails by far.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from smoothcert.data import load_dataset
from smoothcert.models import load_classifier
from smoothcert.records import CertifiedPoint, GradientTally, PairTally, Stage, Tally
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.tsv import read_log
from smoothcert.smoothed import SmoothedClassifier

SIGMA, SAMPLES, DIMENSION, INPUTS = 0.25, 100_000, 49, 12
FALSE_ALARM = 1e-6
LOGS = "levine2021/certify/small_mnist/small_mnist_net/noise_0.25/test"
NETWORK = "levine2021/models/small_mnist_net_noise_0.25.pth.tar"


class Released(NamedTuple):
    """A released network, which is looked for as `ARCH_noise_SIGMA.pth.tar` beside NETWORK, and its first log."""

    arch: str
    data: str
    log: str
    sigma: float
    samples: int
    step: int


OTHERS = [
    Released("small_mnist_pca_net", "levine-mnist-pca", "small_mnist_10pcs", 0.25, 100_000, 10),
    Released("swiss_roll_net", "levine-swiss-roll", "swiss_roll", 0.5, 100_000_000, 1),
]

pytestmark = [
    pytest.mark.network,  # MNIST is fetched where it is not there yet
    pytest.mark.filterwarnings("ignore:.*was not written by smoothcert.*"),
]


@pytest.fixture(scope="module")
def certify(shared_reference: Path) -> Callable[..., list[CertifiedPoint]]:
    data = load_dataset("small-mnist", split="test")
    classifier = load_classifier(str(shared_reference / NETWORK), input_shape=data.input_shape)
    smoothed = SmoothedClassifier(classifier, sigma=SIGMA, seed=2021, batch=256, input_shape=data.input_shape)
    indices = list(range(0, 10 * INPUTS, 10))

    @cache
    def run(certificate: str, shift: int = 0) -> list[CertifiedPoint]:
        images = np.roll(data.inputs(indices), shift, axis=-1)
        return smoothed.certify(images, n=SAMPLES, certificate=certificate, indices=indices)

    return run


@pytest.fixture(scope="module")
def logs(shared_reference: Path) -> Callable[[str], ResultColumns]:
    return lambda name: read_log(shared_reference / LOGS / name)


def common(
    points: list[CertifiedPoint], log: ResultColumns
) -> list[tuple[Tally | PairTally | GradientTally, int, int]]:
    """(tally, class, row of the log) for every input that both are certain about; the log hides the class otherwise."""
    rows = {int(index): row for row, index in enumerate(log.index)}
    found = []
    for point in points:
        row, tally = rows[point.index], point.tally(Stage.ESTIMATION)
        assert tally is not None
        assert point.bounds is not None
        if log.decided[row] and log.prediction[row] == point.bounds.label:
            found.append((tally, point.bounds.label, row))
    assert len(found) >= INPUTS - 3
    return found


def chi_square(ours: list[int], theirs: list[float], trials: int, their_trials: int | None = None) -> float:
    """p-value of the hypothesis that both counts of every input come from the same probability."""
    a, b, others = np.array(ours, dtype=float), np.array(theirs, dtype=float), their_trials or trials
    pooled = (a + b) / (trials + others)
    z = (a / trials - b / others) / np.sqrt((1 / trials + 1 / others) * pooled * (1 - pooled))
    return float(stats.chi2.sf(np.sum(z**2), len(z)))


def test_first_order_counts(certify: Callable[..., list[CertifiedPoint]], logs: Callable[[str], ResultColumns]) -> None:
    log = logs(f"N_{SAMPLES}")
    found = common(certify("second-order"), log)
    ours = [int(tally.independent_votes().counts[label]) for tally, label, _ in found]
    assert chi_square(ours, [log.extra["raw_count"][row] for *_, row in found], SAMPLES) > FALSE_ALARM


def test_dipole_counts(certify: Callable[..., list[CertifiedPoint]], logs: Callable[[str], ResultColumns]) -> None:
    log = logs(f"dipole_N_{SAMPLES}")
    found = common(certify("dipole"), log)
    pairs = [(tally, label) for tally, label, _ in found if isinstance(tally, PairTally)]
    both, first = [int(t.both[c]) for t, c in pairs], [int(t.first_only[c]) for t, c in pairs]
    rows = [row for *_, row in found]
    assert chi_square(both, list(log.extra["raw_count_symmetric"][rows]), SAMPLES // 2) > FALSE_ALARM
    assert chi_square(first, list(log.extra["raw_count_asymmetric"][rows]), SAMPLES // 2) > FALSE_ALARM


def test_second_order_counts_and_gradients(
    certify: Callable[..., list[CertifiedPoint]], logs: Callable[[str], ResultColumns]
) -> None:
    log = logs(f"second_order_N_{SAMPLES}")
    found = common(certify("second-order"), log)
    rows = [row for *_, row in found]
    ours = [int(tally.independent_votes().counts[label]) for tally, label, _ in found]
    assert chi_square(ours, list(log.extra["raw_count"][rows]), SAMPLES) > FALSE_ALARM
    products = np.array([t.products[t.own_group(c)] for t, c, _ in found if isinstance(t, GradientTally)])
    mine = products * GRADIENT_UNIT / (SAMPLES // 2)
    raw = log.extra["raw_grad_norm"][rows]
    theirs = raw * np.abs(raw) * SIGMA**2
    p = np.array(ours) / SAMPLES
    z = (mine - theirs) / np.sqrt(2 * DIMENSION * p**2 / (SAMPLES // 2))
    assert float(stats.chi2.sf(np.sum(z**2), len(z))) > FALSE_ALARM


def test_the_test_can_fail(certify: Callable[..., list[CertifiedPoint]], logs: Callable[[str], ResultColumns]) -> None:
    log = logs(f"N_{SAMPLES}")
    rows = {int(index): row for row, index in enumerate(log.index)}
    shifted = certify("gaussian", 1)
    ours, theirs = [], []
    for point in shifted:
        tally = point.tally(Stage.ESTIMATION)
        if tally is not None and log.decided[rows[point.index]]:
            ours.append(int(tally.independent_votes().counts[log.prediction[rows[point.index]]]))
            theirs.append(float(log.extra["raw_count"][rows[point.index]]))
    assert chi_square(ours, theirs, SAMPLES) < FALSE_ALARM


@pytest.mark.parametrize("mirrored", [False, True], ids=["as given", "one coordinate mirrored"])
@pytest.mark.parametrize("released", OTHERS, ids=lambda released: released.arch)
def test_other_networks(shared_reference: Path, released: Released, mirrored: bool) -> None:
    """Also that a wrong sign of a component would be seen. The files are not on every machine that has the others."""
    noise = f"noise_{released.sigma:.2f}"
    network = shared_reference / "levine2021" / "models" / f"{released.arch}_{noise}.pth.tar"
    path = shared_reference / "levine2021/certify" / released.log / released.arch / noise / f"test/N_{released.samples}"
    if not (network.is_file() and path.is_file()):
        pytest.skip(f"the network {released.arch} of Levine et al. or its log is not on this machine")
    data, log = load_dataset(released.data, split="test"), read_log(path)
    classifier = load_classifier(str(network), input_shape=data.input_shape)
    smoothed = SmoothedClassifier(
        classifier, sigma=released.sigma, seed=2021, batch=256, input_shape=data.input_shape, input_range=None
    )
    indices = list(range(0, released.step * INPUTS, released.step))
    inputs = data.inputs(indices)
    if mirrored:
        inputs[:, -1] *= -1
    ours, theirs = [], []
    for point in smoothed.certify(inputs, n=SAMPLES, certificate="gaussian", indices=indices):
        row, tally = list(log.index).index(point.index), point.tally(Stage.ESTIMATION)
        if tally is not None and log.decided[row]:
            ours.append(int(tally.independent_votes().counts[log.prediction[row]]))
            theirs.append(float(log.extra["raw_count"][row]))
    assert len(ours) >= INPUTS - 3
    assert (chi_square(ours, theirs, SAMPLES, released.samples) < FALSE_ALARM) == mirrored

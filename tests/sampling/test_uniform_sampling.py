"""Votes and scores under uniform noise: recomputed, against known probabilities, independent of batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from smoothcert.errors import InputError
from smoothcert.models import as_classifier
from smoothcert.noise import unit_noise
from smoothcert.records import AnyTally, Noise, ScoreTally, Stage, StreamId, Tally, TallyKind, merge
from smoothcert.records.score_cells import SCORE_CEILING, SCORE_FLOOR
from smoothcert.sampling import Request, Sampler, measure_batch

SHAPE = (2, 3)
SIZE = 6
FALSE_ALARM = 1e-6
"""Probability with which a right sampler would fail one of the tests below, over the choice of a seed."""


class Threshold:
    """Class 1 where the first coordinate is above `at`, class 0 elsewhere; its score rises linearly over [0, 1]."""

    num_classes = 2
    input_shape: tuple[int, ...] = SHAPE
    digest = description = "threshold"
    backend = "numpy"
    gives_scores = True

    def __init__(self, at: float, *, concurrency: int = 8) -> None:
        self.at = np.float32(at)
        self.concurrency = concurrency

    def classify(self, batch: np.ndarray) -> np.ndarray:
        return (batch.reshape(len(batch), -1)[:, 0] > self.at).astype(np.int64)

    def votes_and_scores(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rising = np.clip(batch.reshape(len(batch), -1)[:, 0].astype(np.float64), 0.0, 1.0)
        return self.classify(batch), np.stack([1.0 - rising, rising], axis=1)

    def prepare_thread(self) -> None:
        pass

    def release_threads(self) -> None:
        pass


def request(
    row: int = 0,
    *,
    start: int = 0,
    stop: int = 100,
    sigma: float = 0.5,
    kind: TallyKind = TallyKind.VOTES,
    noise: Noise = Noise.UNIFORM,
) -> Request:
    stream = StreamId(2**40 + 3, 10 * row, Stage.ESTIMATION)
    return Request(row=row, stream=stream, sigma=sigma, start=start, stop=stop, kind=kind, label=1, noise=noise)


def inputs(m: int) -> np.ndarray:
    return np.random.default_rng(0).random((m, *SHAPE), dtype=np.float32)


def votes_at(at: float, *, x0: float, sigma: float, n: int, noise: Noise = Noise.UNIFORM) -> Tally:
    x = np.full((1, *SHAPE), x0, dtype=np.float32)
    (tally,) = Sampler(Threshold(at), batch=1000).tally(x, [request(stop=n, sigma=sigma, noise=noise)])
    assert isinstance(tally, Tally)
    return tally


def test_counts_are_those_of_the_definition() -> None:
    x = inputs(3)
    wanted = [request(row, start=4 * row, stop=200 + 10 * row, sigma=0.5 + row) for row in range(3)]
    for tally, one in zip(Sampler(Threshold(0.5), batch=16).tally(x, wanted), wanted, strict=True):
        z = unit_noise(Noise.UNIFORM, one.stream, start=one.start, count=one.stop - one.start, size=SIZE)
        noisy = x[one.row].ravel() + (z.astype(np.float64) * one.sigma).astype(np.float32)
        above = int((noisy[:, 0] > np.float32(0.5)).sum())
        assert isinstance(tally, Tally)
        assert tally.counts.tolist() == [len(noisy) - above, above]
        assert 0 < above < len(noisy)


@pytest.mark.parametrize(
    ("at", "x0", "sigma"),
    [(0.1, 0.3, 0.5), (0.3, 0.3, 0.5), (0.79, 0.3, 0.5), (-0.4, 0.0, 0.401), (2.0, -5.0, 10.0), (0.2, 0.2, 1e-3)],
)
def test_a_threshold_gets_the_votes_of_its_probability(at: float, x0: float, sigma: float) -> None:
    """P(x₀ + λz > t) = (1 + (x₀ - t)/λ)/2 exactly; an exact two-sided binomial test at level FALSE_ALARM."""
    n = 200_000
    p = 0.5 * (1.0 + (x0 - at) / sigma)
    above = int(votes_at(at, x0=x0, sigma=sigma, n=n).counts[1])
    assert stats.binomtest(above, n, p).pvalue > FALSE_ALARM


def test_negative_control_gaussian_noise_of_that_level_has_another_probability() -> None:
    n, p = 200_000, 0.7
    above = int(votes_at(0.1, x0=0.3, sigma=0.5, n=n, noise=Noise.GAUSSIAN).counts[1])
    assert stats.binomtest(above, n, p).pvalue < FALSE_ALARM
    assert stats.binomtest(above, n, float(special.ndtr(0.4))).pvalue > FALSE_ALARM


def test_noise_never_goes_beyond_its_half_width() -> None:
    assert votes_at(0.5, x0=0.0, sigma=0.5, n=100_000).counts.tolist() == [100_000, 0]
    assert votes_at(-0.5, x0=0.0, sigma=0.5, n=100_000).counts.tolist() == [0, 100_000]


def test_mean_scores_are_those_of_the_law() -> None:
    """x₀ = 0.5 and λ = 0.5: the score is uniform on [0, 1]. Its mean is within Hoeffding's bound at FALSE_ALARM, and
    the number in each tenth passes a χ² test at that level.
    """
    n = 100_000
    x = np.full((1, *SHAPE), 0.5, dtype=np.float32)
    (tally,) = Sampler(Threshold(0.5), batch=1000).tally(x, [request(stop=n, kind=TallyKind.SCORES)])
    assert isinstance(tally, ScoreTally)
    cells, hits = tally.top_scores()
    width = np.sqrt(np.log(2 / FALSE_ALARM) / (2 * n))
    assert (hits * SCORE_FLOOR[cells]).sum() / n < 0.5 + width
    assert (hits * SCORE_CEILING[cells]).sum() / n > 0.5 - width
    tenth = np.minimum((SCORE_FLOOR[cells] + SCORE_CEILING[cells]) * 5, 9.99).astype(np.int64)
    edge_cells = 1e-3 * n / 10  # cells that lie across the end of a tenth hold far less than this
    counts = np.bincount(tenth, weights=hits, minlength=10)
    assert ((np.abs(counts - n / 10) - edge_cells).clip(0) ** 2 / (n / 10)).sum() < stats.chi2(9).isf(FALSE_ALARM)


@pytest.mark.parametrize("kind", [TallyKind.VOTES, TallyKind.SCORES])
def test_batch_size_workers_and_shards_change_nothing(kind: TallyKind) -> None:
    x = inputs(3)

    @settings(max_examples=25, deadline=None)
    @given(st.integers(1, 3), st.integers(2, 120), st.integers(1, 300), st.integers(1, 4), st.data())
    def check(m: int, n: int, batch: int, workers: int, data: st.DataObject) -> None:
        wanted = [request(row, stop=n, kind=kind) for row in range(m)]
        reference = Sampler(Threshold(0.5, concurrency=1), batch=2).tally(x, wanted)
        sampler = Sampler(Threshold(0.5), batch=batch, workers=workers)
        assert sampler.tally(x, wanted) == reference
        cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=4)))
        pieces = [request(start=a, stop=b, kind=kind) for a, b in itertools.pairwise((0, *cuts, n))]
        assert merge(sampler.tally(x, pieces)) == reference[0]

    check()


@pytest.mark.parametrize("kind", [TallyKind.VOTES, TallyKind.SCORES])
@pytest.mark.parametrize("noise", [noise for noise in Noise if noise.sampled])
def test_the_device_path_counts_like_the_host_path(kind: TallyKind, noise: Noise) -> None:
    torch = pytest.importorskip("torch")
    from smoothcert.models.base import DeviceClassifier
    from smoothcert.models.torch_classifier import TorchDeviceClassifier

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, 4)).eval()
    on_device = TorchDeviceClassifier(module, device=torch.device("cpu"), num_classes=4, input_shape=SHAPE)
    on_host = as_classifier(module, num_classes=4, input_shape=SHAPE, device="cpu")
    assert isinstance(on_device, DeviceClassifier)
    assert not isinstance(on_host, DeviceClassifier)
    wanted = [request(row, stop=333, sigma=1.0 + row, kind=kind, noise=noise) for row in range(3)]

    def counted(classifier: object) -> list[AnyTally]:
        return Sampler(classifier, batch=50).tally(inputs(3), wanted)  # type: ignore[arg-type]

    votes = [tally.independent_votes() for tally in counted(on_device)]
    assert votes == [tally.independent_votes() for tally in counted(on_host)]
    if kind is TallyKind.SCORES:
        for one, other in zip(counted(on_device), counted(on_host), strict=True):
            assert mean_score(one) == pytest.approx(mean_score(other), abs=1e-3)


def mean_score(tally: AnyTally) -> float:
    assert isinstance(tally, ScoreTally)
    cells, hits = tally.top_scores()
    return float((hits * SCORE_FLOOR[cells]).sum() / hits.sum())


def test_gaussian_noise_is_what_is_drawn_unless_said_otherwise() -> None:
    x, stream = inputs(1), StreamId(2**40 + 3, 0, Stage.ESTIMATION)
    plain = Request(row=0, stream=stream, sigma=0.5, start=0, stop=500)
    sampler = Sampler(Threshold(0.5), batch=64)
    assert sampler.tally(x, [plain]) == sampler.tally(x, [request(stop=500, noise=Noise.GAUSSIAN)])
    assert sampler.tally(x, [plain]) != sampler.tally(x, [request(stop=500)])


@pytest.mark.parametrize("kind", [TallyKind.PAIRS, TallyKind.GRADIENTS])
def test_pairs_and_gradients_are_refused(kind: TallyKind) -> None:
    with pytest.raises(
        InputError, match=f"{kind} cannot be counted under uniform noise: no certificate.*Count votes or scores"
    ):
        request(kind=kind)


def test_two_kinds_of_noise_do_not_share_a_call() -> None:
    mixed = [request(0), request(1, noise=Noise.GAUSSIAN)]
    with pytest.raises(InputError, match="different kinds of noise"):
        Sampler(Threshold(0.5), batch=16).tally(inputs(2), mixed)


def test_the_batch_size_is_measured_under_the_noise_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[Noise] = set()
    tally = Sampler.tally

    def spy(self: Sampler, batch: np.ndarray, wanted: list[Request]) -> list[AnyTally]:
        seen.update(one.noise for one in wanted)
        return tally(self, batch, wanted)

    monkeypatch.setattr(Sampler, "tally", spy)
    assert measure_batch(Threshold(0.5), SHAPE, samples=1000, noise=Noise.UNIFORM) >= 1
    assert seen == {Noise.UNIFORM}

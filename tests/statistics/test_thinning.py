"""Fewer samples from stored segments: exact at the cuts, the right law between them."""

import numpy as np
import pytest
from scipy import stats

from smoothcert.errors import InputError
from smoothcert.records import Stage, StreamId, Tally
from smoothcert.statistics import first_samples


def stored(index: int = 0, seed: int = 1) -> list[Tally]:
    stream = StreamId(seed, index, Stage.ESTIMATION)

    def part(start: int, *counts: int, invalid: int = 0) -> Tally:
        stop = start + sum(counts) + invalid
        return Tally(stream, sigma=0.5, counts=np.array(counts), invalid=invalid, ranges=((start, stop),))

    return [part(0, 8, 2), part(10, 7, 2, invalid=1), part(20, 20, 9, invalid=1)]


def test_exact_at_the_cuts() -> None:
    parts = stored()
    assert first_samples(parts, 10) == parts[0]
    assert first_samples(parts, 20) == parts[0] + parts[1]
    assert first_samples(list(reversed(parts)), 50) == parts[0] + parts[1] + parts[2]


def test_between_the_cuts_the_law_is_hypergeometric() -> None:
    draws = np.array([first_samples(stored(index=i), 35).counts[0] for i in range(4000)]) - 15
    law = stats.hypergeom(30, 20, 15)
    assert abs(draws.mean() - law.mean()) < 5 * law.std() / np.sqrt(4000)
    values = np.arange(6, 15)
    seen = np.array([(draws == v).sum() for v in values])
    expected = 4000 * law.pmf(values)
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected) + 5).all()


def test_the_same_every_time_and_never_impossible() -> None:
    for n in range(1, 51):
        tally = first_samples(stored(), n)
        assert tally == first_samples(stored(), n)
        assert tally.n == n
        assert (tally.counts <= [35, 13]).all()


@pytest.mark.parametrize("n", [0, -1, 51])
def test_more_than_there_is(n: int) -> None:
    with pytest.raises(InputError, match="1 … 50"):
        first_samples(stored(), n)

"""The tally of fewer samples, from stored segments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import AnyTally, Stage, Tally, merge

_LARGEST_THINNED = 10**9
"""numpy draws hypergeometric counts only below this number."""


def first_samples(segments: Sequence[AnyTally], n: int) -> AnyTally:
    """The votes of the first n samples of a stream that was stored in segments.

    If n is the end of a segment, the result is exactly the tally of a run with n samples. Otherwise the last segment is
    thinned: given its counts, the votes of a fixed-size part of it follow a multivariate hypergeometric law, from which
    one value is drawn by a generator that depends on the stream and n. The result has the law of n independent votes,
    which is all a bound needs, but is not the vote-for-vote prefix. Pairs, gradients and scores cannot be thinned: with
    them only the ends of segments are possible.
    """
    ordered = sorted(segments, key=lambda tally: tally.ranges[0])
    available = sum(tally.n for tally in ordered)
    if not 1 <= n <= available:
        raise InputError(f"n={n} is not possible: the run holds 1 … {available} samples for an input")
    chosen: list[AnyTally] = []
    missing = n
    for tally in ordered:
        if missing == 0:
            break
        if tally.n > missing:
            if not isinstance(tally, Tally):
                raise InputError(f"n={n} is not possible with {tally.kind}: use one of {_ends(ordered)}")
            tally = _thin(tally, missing)
        chosen.append(tally)
        missing -= tally.n
    return merge(chosen)


def _ends(ordered: Sequence[AnyTally]) -> str:
    return ", ".join(str(total) for total in itertools.accumulate(tally.n for tally in ordered))


def _thin(tally: Tally, n: int) -> Tally:
    start = tally.ranges[0][0]
    if len(tally.ranges) != 1:
        raise InputError("only a tally of one contiguous range can be thinned")
    if tally.n >= _LARGEST_THINNED:
        raise InputError(f"n={start + n} lies inside a stored segment too long to be thinned; use n={start}")
    generator = np.random.Generator(
        np.random.Philox(
            key=tally.stream.seed,
            counter=[n, start, tally.stream.index, (int(tally.stream.stage) << 8) | int(Stage.THINNING)],
        )
    )
    drawn = generator.multivariate_hypergeometric(np.append(tally.counts, tally.invalid), n, method="marginals")
    return Tally(
        stream=tally.stream,
        sigma=tally.sigma,
        counts=drawn[:-1],
        invalid=int(drawn[-1]),
        ranges=((start, start + n),),
    )

"""Mean scores of noisy copies of an input: the only data that a search for its noise level uses."""

from __future__ import annotations

import hashlib

import numpy as np

from smoothcert.models.base import BaseClassifier
from smoothcert.models.scores import gives_scores
from smoothcert.noise import unit_noise
from smoothcert.records import FloatArray, InputArray, IntArray, Noise, Stage, StreamId

_MOST_BYTES = 64 << 20
"""Size of a batch for the model: 5461 inputs of size 3072, 111 of size 150528."""
_ROWS_STAND_ALONE = ("torch cpu frozen", "torch cpu eager", "onnxruntime cpu from torch")
"""Back ends that pad batches, so that the logits of a row do not depend on the other rows."""


class NoisyScores:
    """The mean scores of m inputs under noise of any level. Each input has its own endless stream of noise.

    The stream is identified by 64 bits of SHA-256 over the seed, the noise and the bytes of the input, and drawn in
    order. So the scores of an input depend on no other input. On most back ends the logits of a row depend on its batch
    (by rounding: matrix kernels choose their order of summation by the size of the batch); there, inputs do not share a
    call. On the back ends in _ROWS_STAND_ALONE they do.

    evaluations: (m,) int64, how many noisy copies of each input the model has seen.
    """

    def __init__(
        self, classifier: BaseClassifier, inputs: InputArray, *, noise: Noise, seed: int, most_rows: int
    ) -> None:
        self._classifier = classifier
        self._shape = inputs.shape[1:]
        self._inputs = np.ascontiguousarray(inputs.reshape(len(inputs), -1), dtype=np.float32)
        self._splits = not noise.sampled
        self._noise = Noise.UNIFORM if self._splits else noise
        self._streams = [_name_stream(x, noise=noise, seed=seed) for x in self._inputs]
        self._drawn = [0] * len(inputs)
        self._rows = max(1, min(most_rows, _MOST_BYTES // (4 * max(1, self._inputs.shape[1]))))
        stands_alone = getattr(classifier, "has_independent_rows", True)  # False in half precision
        self._together = stands_alone and classifier.backend.startswith(_ROWS_STAND_ALONE)
        self.evaluations: IntArray = np.zeros(len(inputs), dtype=np.int64)

    def uniform(self, *, count: int, size: int) -> FloatArray:
        """Draw numbers in (-1, 1) from the stream of every input: (m, count, size)."""
        drawn = [
            unit_noise(Noise.UNIFORM, stream, start=self._advance(i, count), count=count, size=size)
            for i, stream in enumerate(self._streams)
        ]
        return np.array(drawn, dtype=np.float64).reshape(len(drawn), count, size)

    def mean_scores(self, chosen: IntArray, sigmas: FloatArray, *, noises: int) -> FloatArray:
        """Mean scores of input chosen[i] at each of the levels sigmas[i], over `noises` fresh draws of noise.

        chosen: (k,), repetitions allowed; sigmas: (k, s). All levels of a place i share the same draws, so that they
        differ by the level alone. Returns (k, s, num_classes + 1) float64. The last column counts answers that are not
        finite; they belong to no class.
        """
        places, levels = sigmas.shape
        each = noises * levels
        means = np.empty((places, levels, self._classifier.num_classes + 1))
        starts = [self._advance(int(i), noises) for i in chosen]
        np.add.at(self.evaluations, chosen, each)
        step = max(1, self._rows // each) if self._together else 1
        for first in range(0, places, step):
            group = range(first, min(first + step, places))
            scores = self._score_group([(int(chosen[p]), starts[p], sigmas[p]) for p in group], each=each)
            for p, own in zip(group, scores, strict=True):
                # One sum per place, over arrays of one shape, so that the order of summation is always the same.
                means[p] = own.reshape(noises, levels, -1).sum(axis=0) / noises
        return means

    def _score_group(self, group: list[tuple[int, int, FloatArray]], *, each: int) -> FloatArray:
        """(len(group), each, num_classes + 1). A place whose rows fill more than one call is a group of its own."""
        parts = []
        for begin in range(0, each, self._rows):
            end = min(begin + self._rows, each)
            batch = np.empty((len(group), end - begin, self._inputs.shape[1]), dtype=np.float32)
            for out, (i, start, sigmas) in zip(batch, group, strict=True):
                self._write_noisy(out, i, sigmas, start=start, begin=begin, end=end)
            parts.append(self._score(batch.reshape(-1, *self._shape)).reshape(len(group), end - begin, -1))
        return np.concatenate(parts, axis=1)

    def _write_noisy(self, out: InputArray, i: int, sigmas: FloatArray, *, start: int, begin: int, end: int) -> None:
        """Rows begin … end-1 of input i, ordered by draw, then by level: x + sigma · noise in float32.

        Under splitting, every coordinate has an offset of its own, drawn anew: the middle of a cell around x whose
        place is uniform, without a grid. That is near enough for an estimate.
        """
        rows = np.arange(begin, end)
        draws, levels = rows // len(sigmas), rows % len(sigmas)
        first, last = int(draws[0]), int(draws[-1])
        noise = unit_noise(
            self._noise, self._streams[i], start=start + first, count=last - first + 1, size=out.shape[1]
        )
        scale = sigmas[levels][:, np.newaxis]
        np.multiply(noise[draws - first], scale, out=out, dtype=np.float64, casting="same_kind")
        out += self._inputs[i]
        if self._splits:
            half = scale.astype(np.float32)
            out[:] = (np.maximum(out - half, 0.0) + np.minimum(out + half, 1.0)) / 2.0

    def _score(self, batch: InputArray) -> FloatArray:
        """Scores (B, num_classes + 1); 1 in the last column for a row without a valid answer.

        If the model gives votes only, the class it votes for has score 1.
        """
        unit_rows = np.eye(self._classifier.num_classes + 1)
        if not gives_scores(self._classifier):
            return unit_rows[self._classifier.classify(batch)]
        votes, scores = self._classifier.votes_and_scores(batch)
        invalid = votes == self._classifier.num_classes
        return np.where(invalid[:, np.newaxis], unit_rows[-1], np.pad(scores, ((0, 0), (0, 1))))

    def _advance(self, i: int, count: int) -> int:
        """Reserve the next `count` draws of the stream of input i and return the number of the first."""
        start = self._drawn[i]
        self._drawn[i] = start + count
        return start


def _name_stream(x: InputArray, *, noise: Noise, seed: int) -> StreamId:
    # Adding zero turns -0.0 into 0.0: equal inputs have equal bytes.
    digest = hashlib.sha256(f"search {seed} {noise}\0".encode() + (x + np.float32(0)).tobytes()).digest()
    return StreamId(seed=int.from_bytes(digest[:8], "little"), index=0, stage=Stage.SEARCH)

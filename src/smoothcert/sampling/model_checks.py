"""Checks that the counted votes are those of the model the user gave, on noisy copies picked at random.

A base classifier may compute the model by a fused graph, by another back end, many rows at once, in several threads or
on other machines. The original object classifies each picked copy again, alone. The copies are picked by the operating
system's randomness from all copies of a job, before they are sampled. So the share does not depend on batches, workers
and shards, and a model cannot predict it.

If none of m copies differed, then with confidence 1-β less than ln(1/β)/m of the votes differ from the original's
(docs/explanation/security.md).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smoothcert.errors import ModelMismatchError
from smoothcert.models.base import BaseClassifier, FirstLayerNoise
from smoothcert.models.original import Answer, Changeable, asking, is_tie, original_of, same_scores
from smoothcert.records import CheckCounts, InputArray, StreamId, TallyKind
from smoothcert.sampling.noisy_copies import noisy_copies, of_added_noise
from smoothcert.sampling.picked import PickedVote
from smoothcert.sampling.requests import Request, Slice, samples_per_draw

ONE_IN = 1000
"""At least one copy in this many is checked."""
LEAST_ASKED = 2000
"""The least number of checks over the life of a run or of a SmoothedClassifier, if that many copies are drawn."""
_LEAST_OF_A_CALL = 8
"""The least number of checks in a call of a SmoothedClassifier: the model may have changed since the last call."""
_ASKED_TWICE = 64
"""Copies that are kept and checked again at the end."""
_FEW_TIES, _LARGEST_SHARE_OF_TIES = 10, 0.05
"""A vote may differ where two classes tie to the last digits. With more ties than this, votes are made by rounding."""

_random = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class _Kept:
    """A checked noisy copy, and the vote that was counted for it."""

    noisy: InputArray
    vote: int


class ModelChecks:
    """Picks copies, asks the original about them, and raises a ModelMismatchError if its answer differs.

    earlier: the counts of the processes that worked on the run before.
    """

    def __init__(self, classifier: BaseClassifier, *, earlier: CheckCounts | None = None) -> None:
        self._classifier = classifier
        self._original = original_of(classifier)
        # Once: comparing an object with a protocol takes longer than a small model.
        self._changeable = self._original if isinstance(self._original, Changeable) else None
        self._behind_layer = classifier if isinstance(classifier, FirstLayerNoise) else None
        self.counts = earlier or CheckCounts()
        self._stored = self.counts
        self._expected = 0
        self._least = LEAST_ASKED
        self._is_planned = False
        self._kept: list[_Kept] = []
        self._seen = 0

    @property
    def drawn(self) -> int:
        return self.counts.drawn

    @property
    def asked(self) -> int:
        return self.counts.asked

    @property
    def ties(self) -> int:
        return self.counts.ties

    def __repr__(self) -> str:
        return f"ModelChecks(drawn={self.drawn}, asked={self.asked}, ties={self.ties})"

    def check_unchanged(self) -> None:
        """ModelMismatchError if the model was changed since it was given. A user's `BaseClassifier` is not checked."""
        if self._changeable is not None:
            self._changeable.check_unchanged()

    def expect(self, copies: int) -> None:
        """Announce at the start of a run or a call how many copies will be drawn; the checks are spread over them.

        Raises a ModelMismatchError if the model was changed since it was given.
        """
        self.check_unchanged()
        self._expected = copies
        self._least = max(LEAST_ASKED, self.counts.asked + _LEAST_OF_A_CALL)

    def expect_run(self, copies: int) -> None:
        """As `expect`, for a whole run; the calls that belong to it are then not announced."""
        self.expect(copies)
        self._is_planned = True

    def expect_call(self, copies: int) -> None:
        """As `expect`, unless the call belongs to a run."""
        if not self._is_planned:
            self.expect(copies)

    def pick(self, requests: Sequence[Request]) -> list[Request]:
        """The requests of a job, with the copies that will be checked."""
        sizes = [request.samples for request in requests]
        total = sum(sizes)
        count = self._quota(total)
        self._expected = max(0, self._expected - total)
        chosen = np.sort(np.array(_random.sample(range(total), count), dtype=np.int64))
        ends = np.concatenate([[0], np.cumsum(sizes)])
        places = np.searchsorted(chosen, ends)
        # One copy in a thousand is picked: most requests stay as they are.
        found = [replace(request, picks=()) if request.picks else request for request in requests]
        for number in np.flatnonzero(np.diff(places)).tolist():
            request, first = requests[number], requests[number].start * samples_per_draw(requests[number].kind)
            numbers = chosen[places[number] : places[number + 1]] - ends[number] + first
            found[number] = replace(request, picks=tuple(numbers.tolist()))
        self.counts += CheckCounts(drawn=total)
        return found

    def _quota(self, copies: int) -> int:
        """The number of checks among so many copies; rounded up or down at random, so that its mean is exact."""
        wanted = copies / ONE_IN
        missing = max(0, self._least - self.counts.asked)
        if missing:
            wanted = max(wanted, copies * min(1.0, missing / max(copies, self._expected)))
            # Rounded up, so that the least number is always reached.
            return min(copies, math.ceil(wanted))
        return min(copies, math.floor(wanted) + (_random.random() < wanted % 1.0))

    def compare(self, inputs: InputArray, requests: Sequence[Request], picked: Sequence[PickedVote]) -> None:
        """Ask the original about the picked copies. inputs: (m, *input_shape), the rows of the requests."""
        makers: dict[tuple[int, StreamId, float], CopyMaker] = {}
        with asking(self._original, scores=any(vote.scores is not None for vote in picked)) as ask:
            for vote in picked:
                request = requests[vote.request]
                key = request.row, request.stream, request.sigma  # shared by the segments of an input
                if key not in makers:
                    makers[key] = CopyMaker(self._behind_layer, inputs, request)
                noisy = makers[key].copy(vote.copy)
                self._judge(noisy, ask(noisy), vote)
        if self.ties > max(_FEW_TIES, _LARGEST_SHARE_OF_TIES * self.asked):
            raise ModelMismatchError(
                f"for {self.ties} of {self.asked} noisy copies the model gives another class when it is asked again "
                "alone, because two classes tie to the last digits: its votes are made by rounding, and no certificate "
                "about them holds for the model itself. Does it give nearly equal logits to all classes?"
            )

    def _judge(self, noisy: InputArray, answer: Answer, vote: PickedVote) -> None:
        """Compare the answer of the original with the counted vote of a copy."""
        tie = answer.vote != vote.vote
        if tie:
            self._explain(noisy, answer, vote.vote)
        elif vote.scores is not None and not same_scores(answer, vote.scores):
            raise ModelMismatchError(self._mismatch("scores", f"{vote.scores}", f"{answer.scores}"))
        self.counts += CheckCounts(asked=1, ties=int(tie))
        self._keep(_Kept(noisy, vote.vote))

    def ask_again(self) -> None:
        """Ask about some copies again; raise a ModelMismatchError if an answer has changed.

        A base classifier must be a fixed function. One that keeps state or reads a clock may change during sampling.
        """
        if self._kept:
            with asking(self._original, scores=False) as ask:
                for kept, vote in zip(self._kept, self._sample_again(), strict=True):
                    self._compare_again(kept, vote, ask(kept.noisy))
        self._kept, self._seen = [], 0

    def _sample_again(self) -> list[int]:
        """The votes of the kept copies now: together, where a row has the same logits in any batch, which is faster."""
        copies = np.stack([kept.noisy for kept in self._kept])
        if getattr(self._classifier, "has_independent_rows", False):
            return [int(vote) for vote in self._classifier.classify(copies)]
        return [int(self._classifier.classify(copy[None].copy())[0]) for copy in copies]

    def _compare_again(self, kept: _Kept, sampled: int, later: Answer) -> None:
        """sampled: the vote of what is sampled now. later: the answer of the original now."""
        for vote in (sampled, later.vote):
            if vote != kept.vote and not is_tie(self._original, kept.noisy, later, kept.vote):
                raise ModelMismatchError(
                    f"the model gives class {vote} to a noisy copy to which it gave class {kept.vote} earlier: a base "
                    "classifier must be a fixed function of its input. Look for state that is changed by calls, for a "
                    "clock, and for weights that were changed in the meantime"
                )

    def take_unsaved(self) -> CheckCounts:
        """The counts since the last call."""
        new = self.counts - self._stored
        self._stored = self.counts
        return new

    def _explain(self, noisy: InputArray, answer: Answer, vote: int) -> None:
        """Raise a ModelMismatchError unless rounding explains the difference."""
        # Checked first: a model with random answers seems to tie everywhere.
        if any(self._original.answer(noisy).vote != answer.vote for _ in range(3)):
            raise ModelMismatchError(
                "the model gives different classes for the same input; a base classifier must be a fixed function: "
                "noise belongs to the smoothing, and dropout must follow eval mode"
            )
        if is_tie(self._original, noisy, answer, vote):
            return
        raise ModelMismatchError(self._mismatch("class", str(vote), str(answer.vote)))

    def _mismatch(self, what: str, counted: str, found: str) -> str:
        return (
            f"the model gives a noisy copy the {what} {found} when it is asked alone, and the {what} {counted} was "
            f"counted for it by {self._classifier.backend} (after {self.asked} copies that agreed): what was sampled "
            "is not the model that was given, so nothing is certified. Either its answer to one input depends on the "
            "others in the batch (batch statistics must be frozen, in `eval` mode), or it was changed after it was "
            "given, or it keeps state. Otherwise please report that its faster form differs from it"
        )

    def _keep(self, one: _Kept) -> None:
        """Keep a random sample of the checked copies."""
        self._seen += 1
        most = min(_ASKED_TWICE, math.ceil(self._seen / 10))
        if len(self._kept) < most:
            self._kept.append(one)
        elif (place := _random.randrange(self._seen)) < len(self._kept):
            self._kept[place] = one


class CopyMaker:
    """Reproduces single noisy copies of one request.

    layer: the classifier, if the noise was drawn after its first layer.
    """

    def __init__(self, layer: FirstLayerNoise | None, inputs: InputArray, request: Request) -> None:
        self._layer = layer
        self._request = request
        self._x: InputArray = np.ascontiguousarray(inputs[request.row], dtype=np.float32)
        flat = self._x.reshape(1, -1) if layer is None else layer.hidden(self._x[None]).reshape(1, -1)
        colour = None if layer is None else layer.colour
        self._copies = noisy_copies(flat, [replace(request, row=0, picks=())], draws=1, colour=colour)
        self._size = flat.shape[1]

    def copy(self, number: int) -> InputArray:
        """The noisy copy, (*input_shape) float32. number: as in `Request.picks`."""
        draw, half = divmod(number, samples_per_draw(self._request.kind))
        piece = Slice(request=0, first_row=0, last_row=1, counter=draw)
        out = np.empty((2, self._size), dtype=np.float32)
        if self._request.kind is TallyKind.PAIRS:
            copies = of_added_noise(self._copies)
            copies.prepare([piece])
            copies.pair(piece, out[:1], out[1:])
        elif self._request.kind is TallyKind.GRADIENTS:
            copies = of_added_noise(self._copies)
            copies.prepare([piece])
            copies.add_to_input(piece, out[:1])
        else:
            self._copies.write([piece], out[:1])
        made: InputArray = out[half]
        if self._layer is not None:
            return self._layer.lift(self._x, made, sigma=self._request.sigma)
        return made.reshape(self._x.shape)

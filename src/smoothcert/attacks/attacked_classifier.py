"""The classifier of a run under attack: what it takes, and what fresh samples prove of its answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from smoothcert.attacks.attack_record import FreshVerdict
from smoothcert.attacks.attack_verdicts import count_points, judge_points, samples_of_selection
from smoothcert.certificates import get_portfolio
from smoothcert.questions import check_predict_is_possible, check_question
from smoothcert.records import CertifiedPoint, FloatArray, InputArray
from smoothcert.sampling.sampler import Progress
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import FixedN


class AttackedClassifier(Protocol):
    """What an attack asks of the classifier that it attacks, besides gradients."""

    @property
    def description(self) -> str: ...

    @property
    def batch(self) -> int:
        """Inputs that are attacked together are no more than that."""

    @property
    def workers(self) -> int | None: ...

    @property
    def remembers(self) -> bool:
        """Whether a memory may answer."""

    def check_inputs(self, inputs: InputArray) -> InputArray: ...

    def find_sigmas(self, inputs: InputArray, points: Sequence[CertifiedPoint]) -> FloatArray:
        """(B,): the noise levels of the run; nan where no single one is used."""

    def check_samples(self, n: int, *, level: float) -> None:
        """Raise an InputError if n fresh samples cannot prove anything at this level."""

    def count_samples(self, n: int) -> int:
        """The most samples of one check."""

    def judge(
        self,
        points: InputArray,
        group: Sequence[CertifiedPoint],
        *,
        seed: int,
        n: int,
        level: float,
        progress: Progress | None,
    ) -> list[FreshVerdict]:
        """One verdict per point (B, *shape), each wrong about a change with probability at most `level`.

        group: the attacked inputs. n: fresh samples; a selected sigma takes as many of each part.
        """


@dataclass(frozen=True, slots=True)
class AttackedSmoothed:
    """An ordinary run: one smoothed classifier. soft: the run is about mean scores."""

    smoothed: SmoothedClassifier
    soft: bool

    @property
    def description(self) -> str:
        return self.smoothed.classifier.description

    @property
    def batch(self) -> int:
        return self.smoothed.known_batch()

    @property
    def workers(self) -> int | None:
        return self.smoothed.workers

    @property
    def remembers(self) -> bool:
        return self.smoothed.memory is not None

    def check_inputs(self, inputs: InputArray) -> InputArray:
        return self.smoothed.check_inputs(inputs)

    def find_sigmas(self, inputs: InputArray, points: Sequence[CertifiedPoint]) -> FloatArray:
        """Computed now for inputs that a memory answered without one."""
        sigmas = np.array([point.sigma for point in points], dtype=np.float64)
        missing = [row for row, point in enumerate(points) if not math.isfinite(point.sigma)]
        if missing:
            levels = self.smoothed.sigmas(inputs[missing], [points[row].index for row in missing])
            sigmas[missing] = list(levels.values())
        return sigmas

    def check_samples(self, n: int, *, level: float) -> None:
        if not self.smoothed.noise.sampled:
            return
        if not self.soft:
            check_predict_is_possible(n=n, alpha=level)
            return
        portfolio = get_portfolio(self.smoothed.noise.soft_certificate)
        question = FixedN(n=n, n0=samples_of_selection(n))
        check_question(question, portfolio, alpha=level, num_classes=self.smoothed.classifier.num_classes)

    def count_samples(self, n: int) -> int:
        return n

    def judge(
        self,
        points: InputArray,
        group: Sequence[CertifiedPoint],
        *,
        seed: int,
        n: int,
        level: float,
        progress: Progress | None,
    ) -> list[FreshVerdict]:
        if not self.smoothed.noise.sampled:  # its seed is a part of the classifier
            return count_points(self.smoothed, points, group, progress=progress)
        smoothed = self.smoothed.derive(seed=seed)
        return judge_points(smoothed, points, group, n=n, level=level, soft=self.soft, progress=progress)

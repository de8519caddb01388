"""What an attack on a run comes to: accuracies by radius, and what is said where a certificate was broken."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import special

from smoothcert.attacks.attack_record import AttackResult, Fate
from smoothcert.attacks.attack_settings import CERTIFIED, AttackSettings
from smoothcert.errors import BrokenCertificateError
from smoothcert.numerics.rounding import format_down, format_up
from smoothcert.records import CertifiedPoint, Norm, Outcome

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class AttackRow:
    """One radius. inputs: those taken from the run. attacked: those with an answer to change.

    certified_accuracy: the share of labelled inputs rightly classified and certified at that radius by the run; None
    where the run has no radii, or no labels. empirical_accuracy: the share rightly classified by the run whose answer
    no attack changed, as far as fresh samples prove it; for the radius "certified", of the certified ones.

    Numbers of attacked inputs: not_moved: the attack saw no gradient. from_memory: a memory answered, and nothing was
    sampled. abstained: fresh samples settle on nothing; unsettled: and that inside the certified radius, at every
    look; not_leading: of these, the certified class is not even in the lead. changed: they settle on another answer;
    broken: and that inside the certified radius.
    """

    radius: str
    inputs: int
    attacked: int
    certified_accuracy: float | None
    empirical_accuracy: float | None
    not_moved: int
    from_memory: int
    abstained: int
    changed: int
    unsettled: int
    not_leading: int
    broken: int

    @property
    def gap(self) -> float | None:
        """What is neither certified nor broken."""
        if self.certified_accuracy is None or self.empirical_accuracy is None:
            return None
        return self.empirical_accuracy - self.certified_accuracy

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "gap": self.gap}


def attack_rows(
    points: Sequence[CertifiedPoint], results: Sequence[AttackResult], radii: Sequence[str], *, has_radii: bool
) -> list[AttackRow]:
    """One row for each radius. has_radii: whether the run certified anything, or only predicted."""
    return [
        _row(radius, points, [result for result in results if result.radius == radius], has_radii) for radius in radii
    ]


def _row(radius: str, points: Sequence[CertifiedPoint], results: Sequence[AttackResult], has_radii: bool) -> AttackRow:
    labelled = sum(point.label is not None for point in points)
    changed = {result.index for result in results if result.fate is Fate.CHANGED}
    right = [point for point in points if point.correct]
    if radius == CERTIFIED:
        right = [point for point in right if point.outcome is Outcome.CERTIFIED]
        certified = len(right)
    else:
        limit = AttackSettings.limit(radius, certified=0.0)
        certified = sum(point.radius >= limit for point in right)  # as in the tables of the field
    standing = sum(point.index not in changed for point in right)
    return AttackRow(
        radius=radius,
        inputs=len(points),
        attacked=len(results),
        certified_accuracy=certified / labelled if labelled and has_radii else None,
        empirical_accuracy=standing / labelled if labelled else None,
        not_moved=sum(not result.moved for result in results),
        from_memory=sum(result.samples == 0 for result in results),
        abstained=sum(result.fate is Fate.ABSTAINED for result in results),
        changed=len(changed),
        unsettled=sum(result.unsettled for result in results),
        not_leading=sum(result.unsettled and not result.leads for result in results),
        broken=sum(result.breaks_certificate for result in results),
    )


def remarks(results: Sequence[AttackResult], settings: AttackSettings) -> list[str]:
    """What a reader must know of the rows, in sentences: what is not settled, and what was not put to the test."""
    found = []
    if unsettled := {result.index for result in results if result.unsettled}:
        behind = {result.index for result in results if result.unsettled and not result.leads}
        found.append(
            f"NOT SETTLED: {len(unsettled)} inputs could not be settled inside their certified radius with up to "
            f"{settings.samples(settings.looks - 1):,} fresh samples each; the class is not in the lead for "
            f"{len(behind)} of them. More --looks than {settings.looks}, with another --out, may settle them"
        )
    if still := sum(not result.moved for result in results):
        found.append(
            f"NOT MOVED: {still} of {len(results)} attacks never saw a gradient, so that their answer stands says "
            "nothing about the model: try another --gradient, more --draws or --restarts"
        )
    if remembered := sum(result.samples == 0 for result in results):
        found.append(
            f"{remembered} of {len(results)} points lie in regions that the memory has promised: it answers there, and "
            "nothing was sampled"
        )
    return found


def fail_if_broken(
    results: Sequence[AttackResult], *, norm: Norm, run_alpha: float, check_alpha: float, evidence: Path
) -> None:
    """Raise a BrokenCertificateError that names every input whose certificate an attack broke, and what chance allows.

    run_alpha: of each certificate. check_alpha: of all checks together.
    """
    broken = [result for result in results if result.breaks_certificate]
    if not broken:
        return
    inputs = {result.index for result in broken}
    tested = {result.index for result in results if result.is_inside}
    # P(at least k of m certificates are false), each with probability at most α and independent of the others.
    by_chance = float(special.bdtrc(len(inputs) - 1, len(tested), run_alpha))
    more = f"\n  … and {len(broken) - _MOST_NAMED} more" if len(broken) > _MOST_NAMED else ""
    raise BrokenCertificateError(
        f"CERTIFICATES BROKEN: inside their certified radius the answer to {len(inputs)} of {len(tested)} inputs "
        "changes:\n"
        + "\n".join(_sentence(result, norm) for result in broken[:_MOST_NAMED])
        + more
        + f"\nChance: each certificate may be false with probability {run_alpha:g}, so of {len(tested)} at most "
        f"{run_alpha * len(tested):.3g} are expected to be, and {len(inputs)} or more are with probability at most "
        f"{by_chance:.2g}. That any of the checks is wrong has probability at most {check_alpha:g}.\n"
        f"The points themselves are in {evidence}. If this is more than chance, the run was changed or smoothcert is "
        "wrong: do not use these certificates, and please report it with that file"
    )


def _sentence(result: AttackResult, norm: Norm) -> str:
    answer = "no valid answer" if result.answer is None else f"class {result.answer}"
    votes = "a memory answers" if result.counts is None else f"votes {list(result.counts)}"
    invalid = f" and {result.invalid} without a valid answer" if result.invalid else ""
    p_value = "" if result.p_value is None else f", p-value {result.p_value:.2g}"
    sigma = "" if result.sigma is None else f", sigma {result.sigma:g}"
    return (
        f"  input {result.index}: class {result.prediction} is certified closer than "
        f"{format_down(result.certified_radius, decimals=6)} in {norm}, but at distance "
        f"{format_up(result.distance, decimals=6)} it is {answer} ({votes}{invalid}{p_value}{sigma})"
    )

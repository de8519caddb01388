"""The report of an attack: accuracies per radius, remarks, and the error for broken certificates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scipy import special

from smoothcert.attacks.attack_record import AttackResult, Fate
from smoothcert.attacks.attack_settings import CERTIFIED, AttackSettings
from smoothcert.errors import BrokenCertificateError
from smoothcert.numerics.rounding import format_down, format_up
from smoothcert.records import Outcome
from smoothcert.records.feature_scale import name_norm
from smoothcert.records.sentences import describe_scale

if TYPE_CHECKING:
    from smoothcert.attacks.attack_run import Attack

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class AttackRow:
    """The results for one radius. inputs: number taken from the run. attacked: number with an answer to change.

    certified_accuracy: share of the labelled inputs that the run classifies correctly and certifies at that radius;
    None without radii or labels. empirical_accuracy: share that the run classifies correctly and whose answer no attack
    provably changed. For the radius "certified", only certified inputs count.

    Numbers of attacked inputs:
    not_moved: the attack saw no gradient. from_memory: a memory answered, without samples.
    abstained: fresh samples prove nothing. unsettled: the same, within the certified radius. not_leading: unsettled,
    and the certified class does not have the most votes.
    changed: fresh samples prove another answer. broken: the same, within the certified radius.
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
        """Share of inputs that are neither certified nor changed by an attack."""
        if self.certified_accuracy is None or self.empirical_accuracy is None:
            return None
        return self.empirical_accuracy - self.certified_accuracy

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "gap": self.gap}


def attack_rows(attack: Attack) -> list[AttackRow]:
    """One row per radius, from what is recorded."""
    return [_summarise_radius(attack, radius) for radius in attack.settings.radii]


def _summarise_radius(attack: Attack, radius: str) -> AttackRow:
    points = attack.points
    results = [result for result in attack.record.results if result.radius == radius]
    has_radii = attack.manifest.task == "certify"
    labelled = sum(point.label is not None for point in points)
    changed = {result.index for result in results if result.fate is Fate.CHANGED}
    correct = [point for point in points if point.correct]
    if radius == CERTIFIED:
        correct = [point for point in correct if point.outcome is Outcome.CERTIFIED]
        certified = len(correct)
    else:
        limit = AttackSettings.limit(radius, certified=0.0)
        certified = sum(point.radius >= limit for point in correct)  # ≥, as in published tables
    unbroken = sum(point.index not in changed for point in correct)
    return AttackRow(
        radius=radius,
        inputs=len(points),
        attacked=len(results),
        certified_accuracy=certified / labelled if labelled and has_radii else None,
        empirical_accuracy=unbroken / labelled if labelled else None,
        not_moved=sum(not result.moved for result in results),
        from_memory=sum(result.samples == 0 for result in results),
        abstained=sum(result.fate is Fate.ABSTAINED for result in results),
        changed=len(changed),
        unsettled=sum(result.is_unsettled for result in results),
        not_leading=sum(result.is_unsettled and not result.leads for result in results),
        broken=sum(result.breaks_certificate for result in results),
    )


def list_remarks(attack: Attack) -> list[str]:
    """Sentences about what the rows do not show: unsettled certificates, and attacks that tested nothing."""
    results, settings = attack.record.results, attack.settings
    remarks = []
    if unsettled := [result for result in results if result.is_unsettled]:
        behind = {result.index for result in unsettled if not result.leads}
        remarks.append(
            f"NOT SETTLED: {len({result.index for result in unsettled})} inputs could not be settled inside their "
            f"certified radius with up to {settings.samples(settings.looks - 1):,} fresh samples each; the class is "
            f"not in the lead for {len(behind)} of them. To settle them, use more than {settings.looks} --looks and "
            "another --out"
        )
    if still := sum(not result.moved for result in results):
        saw = "changed an evaluation" if settings.certain else "saw a gradient"
        other = "" if settings.certain else "another --gradient, "
        remarks.append(
            f"NOT MOVED: {still} of {len(results)} attacks never {saw}, so their unchanged answers say nothing about "
            f"the model: try {other}more --draws or more --restarts"
        )
    if remembered := sum(result.samples == 0 for result in results):
        remarks.append(
            f"{remembered} of {len(results)} points lie in regions that the memory has promised: it answered there, "
            "without samples"
        )
    if attack.scale is not None:
        remarks.append(
            f"distances are in the scaled {attack.search.norm} norm, {describe_scale(attack.scale.numbers)}; the "
            "points in the record are divided by it too"
        )
    return remarks


def fail_if_broken(attack: Attack) -> None:
    """Raise a BrokenCertificateError if an attack broke a certificate. It lists the inputs and the role of chance."""
    results = attack.record.results
    broken = [result for result in results if result.breaks_certificate]
    if not broken:
        return
    run_alpha = attack.manifest.spec.alpha
    inputs, norm = {result.index for result in broken}, name_norm(attack.search.norm, attack.scale)
    tested = {result.index for result in results if result.is_inside}
    chance = "No chance is involved: nothing was sampled, neither for these certificates nor for the checks."
    if run_alpha > 0:
        # P(at least k of m certificates are false), if each is false with probability α, independently of the others.
        by_chance = float(special.bdtrc(len(inputs) - 1, len(tested), run_alpha))
        chance = (
            f"Chance: each certificate may be false with probability {run_alpha:g}, so of {len(tested)} at most "
            f"{run_alpha * len(tested):.3g} are expected to be false, and {len(inputs)} or more are false with "
            f"probability at most {by_chance:.2g}. The probability that any of the checks is wrong is at most "
            f"{attack.settings.alpha:g}."
        )
    more = f"\n  … and {len(broken) - _MOST_NAMED} more" if len(broken) > _MOST_NAMED else ""
    raise BrokenCertificateError(
        f"CERTIFICATES BROKEN: inside their certified radius the answer to {len(inputs)} of {len(tested)} inputs "
        "changes:\n"
        + "\n".join(_describe_break(result, norm) for result in broken[:_MOST_NAMED])
        + more
        + f"\n{chance}\nThe points are in {attack.record.path}. If chance does not explain this, the run was changed "
        "or smoothcert has a bug: do not use these certificates, and please report the bug with that file"
    )


def _describe_break(result: AttackResult, norm: str) -> str:
    answer = "no valid answer" if result.answer is None else f"class {result.answer}"
    votes = "answered by a memory" if result.counts is None else f"votes {list(result.counts)}"
    invalid = f" and {result.invalid} without a valid answer" if result.invalid else ""
    p_value = "" if result.p_value is None else f", p-value {result.p_value:.2g}"
    sigma = "" if result.sigma is None else f", sigma {result.sigma:g}"
    return (
        f"  input {result.index}: class {result.prediction} is certified {'up to' if result.closed else 'closer than'} "
        f"{format_down(result.certified_radius, decimals=6)} in {norm}, but at distance "
        f"{format_up(result.distance, decimals=6)} it is {answer} ({votes}{invalid}{p_value}{sigma})"
    )

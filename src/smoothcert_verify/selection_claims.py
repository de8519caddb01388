"""What follows from the parts of a selected run: the levels to sample, and whether a claim about an input is proved.

Let the selector H answer level j at x. A class c and a distance r are claimed. Every level k either is not selected at
any point closer than r, or answers c at all of them; level j itself must answer it. For the first, with bounds p_j and
p_k that hold at once, σ_s/2 (Φ⁻¹(p_j) - Φ⁻¹(p_k)) ≥ r (Cohen et al. 2019, Theorem 1); for the second, the verified
radius of level k for c is at least r. Both are used forward, at the claimed r.

Why the failures of several levels are not added up. Selection votes alone say which j, which c, which levels are
sampled, and of which of them the radius for c counts. Given them, for each level the nearest point where it is selected
and does not answer c is fixed; let k be the level of the nearest one, at the distance d. The claim is false if r > d.
Then what was said of this one k is false: its exclusion up to r, which rests on p_j and p_k, or its answer up to r. The
probability is at most the sum of the shares of these two bounds and of one level; and of the bounds alone where the
radius of k does not count, so that the lower bound may have the share of a level too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from smoothcert_verify.arithmetic import lower_limit, upper_limit
from smoothcert_verify.findings import Finding, note, refuse
from smoothcert_verify.json_values import Document, ListOf, Number, OneOf, Optional, Record, Whole, is_same
from smoothcert_verify.manifest_shapes import MOST_INDEX
from smoothcert_verify.proof_checks import LOOSE, sign_test_holds
from smoothcert_verify.reason_rules import is_one_of
from smoothcert_verify.run_facts import SMALLEST_ALPHA, RunFacts
from smoothcert_verify.samples import Samples, merge_samples, read_samples
from smoothcert_verify.selection_facts import PUBLISHED, SelectionFacts
from smoothcert_verify.theorems import certifies
from smoothcert_verify.varying_theorems import Setting, SigmaEnvelope, gaussian_holds
from smoothcert_verify.verdict_checks import VERDICTS, price_noise

OF_SELECTOR, OF_LEVELS = "bounds on the levels of a selector", "certificates of the levels that may be selected"
"""What α is spent on."""

_SCHEMA = 1
_CLAIM = Record(
    index=Whole(0, MOST_INDEX),
    label=Optional(Whole()),
    sigma=Optional(Number(1e-100, 1e100)),
    seconds=Number(0),
    verdicts=VERDICTS,
)
_DOCUMENT = Record(schema=OneOf((_SCHEMA,)), points=ListOf(_CLAIM))
_SECONDS_ERROR = 2.0**-45
_ROUNDED_UP = Fraction(2001, 1000)
"""By so much the price of the noise may be rounded up: to a power of two."""


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """What a part says of an input. verdict: its only one. stages: merged samples. seconds: 0 if they are not known."""

    label: int | None
    verdict: Mapping[str, Any]
    seconds: float
    stages: Mapping[str, Samples]

    @classmethod
    def read(cls, document: Document, run: RunFacts, *, seconds: float) -> PartAnswer:
        """Of the certificate document of one input of the part."""
        verdicts = document["verdicts"]
        if len(verdicts) != 1:
            raise refuse("rows-of-input", table="verdicts", rows=len(verdicts))
        stages: dict[str, list[Samples]] = {}
        for entry in document["tallies"]:
            found = read_samples(entry, dimension=run.dimension)
            stages.setdefault(found.stage, []).append(found)
        merged = {stage: merge_samples(parts) for stage, parts in stages.items()}
        return cls(document["input"]["label"], verdicts[0], seconds, merged)


@dataclass(frozen=True, slots=True)
class Selected:
    """An input of a selected run. levels: the answers of those that were sampled, by number, ascending.

    run: of the selector. level_alpha: the share of a level; 0 if none was sampled at all.
    """

    facts: SelectionFacts
    run: RunFacts
    selector: PartAnswer
    levels: Mapping[int, PartAnswer]
    level_alpha: Fraction

    @property
    def leading(self) -> int | None:
        """The level with most of the votes that choose; None if there is none."""
        return self.selector.stages[self.facts.voting_stage].plurality()


def read_claims(document: Any) -> list[Document]:
    """The claims of a `claims.json`; MalformedError if it is not one of this format."""
    _DOCUMENT(document, "claims")
    points: list[Document] = document["points"]
    return points


# --- the levels that are sampled ------------------------------------------------------------------------------------


def choose_again(facts: SelectionFacts, run: RunFacts, votes: Samples, sampled: tuple[int, ...]) -> tuple[int, ...]:
    """The levels that these votes choose. run: of the selector.

    sampled: those that were sampled. In a prediction a level that is almost, but not certainly, refuted may be either.
    """
    leading = votes.plurality()
    if leading is None:
        return ()
    if facts.task != "predict":
        return _find_most_voted(votes, facts.sampled)
    # One level is left out wrongly only if one of the K-1 others wins against it: a one-sided test for each.
    price, tests = price_noise(run, votes.sigma, votes.draws), len(facts.levels) - 1
    share, least = ((facts.selector_alpha - factor * price) / tests for factor in (1, _ROUNDED_UP))
    possible = {leading}
    for level, count in enumerate(votes.votes):
        limit = least * (1 - LOOSE) if level in sampled else share
        if not sign_test_holds(votes.votes[leading], count, 2 * limit):
            possible.add(level)
    return tuple(sorted(possible))


def _find_most_voted(votes: Samples, count: int) -> tuple[int, ...]:
    """The levels with most votes, ascending; of two with as many votes the lower one comes first."""
    ranked = sorted(range(votes.num_classes), key=lambda level: (-votes.votes[level], level))
    return tuple(sorted(ranked[:count]))


# --- one claim ------------------------------------------------------------------------------------------------------


def check_claim(claim: Document, of: Selected) -> Iterator[Finding]:
    """Whether a claim follows from what the parts say of its input."""
    facts, answers = of.facts, [of.selector, *of.levels.values()]
    level = None if of.leading is None else facts.levels[of.leading]
    if claim["sigma"] != level:
        yield _differ("sigma", claim["sigma"], level)
    for label in {answer.label for answer in of.levels.values()} or {claim["label"]}:
        if claim["label"] != label:
            yield _differ("label", claim["label"], label)
    seconds = math.fsum(answer.seconds for answer in answers)
    if abs(claim["seconds"] - seconds) > _SECONDS_ERROR * seconds:
        yield _differ("seconds", claim["seconds"], seconds)
    names = [verdict["certificate"] for verdict in claim["verdicts"]]
    if names != (list(facts.certificates) or [""]):
        yield note("other-certificates", certificates=names, expected=list(facts.certificates) or [""])
        return
    for verdict in claim["verdicts"]:
        found = _check_prediction(verdict, of) if facts.task == "predict" else _check_verdict(verdict, of)
        yield from (finding.at(verdict["certificate"] or "prediction") for finding in found)


def _check_common(
    verdict: Document, *, outcome: str, label: int | None, reason: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """What must be exactly as the parts have it."""
    for name, expected in (("outcome", outcome), ("prediction", label), ("norm", "l2")):
        if verdict[name] != expected:
            yield _differ(f"verdicts.{name}", verdict[name], expected)
    if not is_one_of(verdict["reason"], [reason]):
        yield note("reason-differs", value=verdict["reason"], expected=reason)


def _check_verdict(verdict: Document, of: Selected) -> Iterator[Finding]:
    leading, radius = of.leading, Fraction(verdict["radius"])
    if leading is None or leading not in of.levels:
        yield from _check_common(verdict, outcome="failed", label=None, reason=of.selector.verdict["reason"])
        if radius > 0 or verdict["bounds"] is not None:
            yield note("impossible-verdict", outcome="failed", radius=radius, prediction=verdict["prediction"])
        return
    own, sigma = of.levels[leading].verdict, of.facts.levels[leading]
    label, proof = own["prediction"], _RadiusProof(of, leading, sharper=verdict["certificate"] != PUBLISHED)
    certified = radius > 0
    reason: Mapping[str, Any] | None = None
    if not certified:
        reason = {"code": "level-proves-nothing", "sigma": sigma}
        if label is not None and verdict["certificate"] == PUBLISHED:
            reason = {"code": "level-not-proved", "sigma": sigma}
        elif label is not None:
            reason = {"code": "levels-disagree", "label": label, "sigma": sigma}
    outcome = "certified" if certified else "abstained"
    yield from _check_common(verdict, outcome=outcome, label=label if certified else None, reason=reason)
    yield from _check_spent(verdict, label, of)
    if certified and not (label is not None and proof.holds(label, radius)):
        yield note("radius-not-certified", radius=radius)
        return
    more = radius * (1 + LOOSE) if certified else Fraction(of.facts.sigma) * LOOSE
    if label is not None and proof.holds(label, more, closely=False):
        yield note("radius-too-small", radius=radius)


def _check_spent(verdict: Document, label: int | None, of: Selected) -> Iterator[Finding]:
    """The class that is bounded is that of the leading level; α is spent on selector and levels as they state it."""
    facts, bounds = of.facts, verdict["bounds"]
    of_selector, of_levels = facts.find_share(verdict["certificate"]), facts.shared_by * of.level_alpha
    spent = {OF_SELECTOR: float(of_selector), OF_LEVELS: float(of_levels)}
    expected = None if label is None else {"label": label, "quantities": {}, "spent": spent}
    if not is_same(bounds, expected):
        yield _differ("verdicts.bounds", bounds, expected)


class _RadiusProof:
    """Whether every level that may be selected within a distance answers a class there. leading: at the input itself.

    sharper: any level may answer; otherwise the leading one alone.
    """

    def __init__(self, of: Selected, leading: int, *, sharper: bool) -> None:
        self._of, self._leading = of, leading
        self._levels = range(len(of.facts.levels))
        self._sharper = sharper
        verdict = of.selector.verdict
        self._reach = Fraction(verdict["radius"]) if verdict["prediction"] == leading else Fraction(0)

    def holds(self, label: int, radius: Fraction, *, closely: bool = True) -> bool:
        """closely: at the full share of α; otherwise what is left of it if the price of the noise is rounded up."""
        counting = {k for k, answer in self._of.levels.items() if self._sharper and _chooses(answer) == label}
        counting.add(self._leading)
        return all(
            (level in counting and self._answers(level, label, radius))
            or (level != self._leading and self._is_excluded(level, radius, counts=level in counting, closely=closely))
            for level in self._levels
        )

    def _answers(self, level: int, label: int, radius: Fraction) -> bool:
        answer = self._of.levels[level]
        return answer.verdict["prediction"] == label and Fraction(answer.verdict["radius"]) >= radius

    def _is_excluded(self, level: int, radius: Fraction, *, counts: bool, closely: bool) -> bool:
        """Whether this level is not selected at any point closer than the radius. counts: its own radius does."""
        facts = self._of.facts
        if not (self._sharper and facts.each_level):
            return self._reach >= radius
        votes = self._of.selector.stages["ESTIMATION"]
        price = price_noise(self._of.run, votes.sigma, votes.draws) * (1 if closely else _ROUNDED_UP)
        left = facts.selector_alpha - price
        if facts.upper_alpha is None:
            # One lower and K-1 upper bounds at once.
            return self._are_apart(level, radius, below=left / len(self._levels), above=left / len(self._levels))
        # The reach of the selector rests on the lower bound alone, at what is left.
        below = left if counts else left + self._of.level_alpha
        return self._reach >= radius or self._are_apart(level, radius, below=below, above=facts.upper_alpha)

    def _are_apart(self, level: int, radius: Fraction, *, below: Fraction, above: Fraction) -> bool:
        """By bounds at these shares of α; an upper bound at no share is 1, and 1 - p_j is taken.

        A sample without a finite answer is a vote for no level.
        """
        votes = self._of.selector.stages["ESTIMATION"]
        if not SMALLEST_ALPHA <= below < Fraction(1, 2):
            return False
        bounds = {"p-a": lower_limit(votes.votes[self._leading], votes.draws, below), "p-b": Fraction(1)}
        if above >= SMALLEST_ALPHA:
            bounds["p-b"] = upper_limit(votes.votes[level], votes.draws, above)
        setting = Setting(Fraction(self._of.facts.sigma), self._of.run.dimension, len(self._levels), SigmaEnvelope())
        return certifies(gaussian_holds, bounds, radius, setting)


def _chooses(level: PartAnswer) -> int | None:
    """The class that the selection votes of a level are for."""
    return level.stages["SELECTION"].plurality()


def _check_prediction(verdict: Document, of: Selected) -> Iterator[Finding]:
    """The class that every level which may be selected predicts."""
    answers = {level: answer.verdict["prediction"] for level, answer in of.levels.items()}
    agreed = next(iter(answers.values())) if len(set(answers.values())) == 1 else None
    reason: Mapping[str, Any] | None = None
    if not answers:
        outcome, reason = "failed", of.selector.verdict["reason"]
    elif agreed is not None:
        outcome = "predicted"
    else:
        silent = [level for level, label in answers.items() if label is None]
        reason = {"code": "possible-levels-differ", "levels": len(answers)}
        if silent:
            reason = {"code": "level-proves-nothing", "sigma": of.facts.levels[silent[0]]}
        outcome = "abstained"
    yield from _check_common(verdict, outcome=outcome, label=agreed, reason=reason)
    if verdict["bounds"] is not None or verdict["radius"]:
        yield note("more-than-a-prediction")


def _differ(field: str, value: Any, expected: Any) -> Finding:
    return note("differs", field=field, value=value, expected=expected)

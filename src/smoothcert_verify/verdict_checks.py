"""One verdict of a document: what α was spent on, every bound, and the radius that follows from them."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from smoothcert_verify.findings import Finding, note, refuse
from smoothcert_verify.json_values import TEXT, ListOf, Number, OneOf, Optional, Record, TableOf, Whole
from smoothcert_verify.noise_forms import AdditiveForm
from smoothcert_verify.proof_checks import (
    LOOSE,
    NOISE_TABLES,
    NOT_PROBABILITIES,
    PROOFS,
    TOP_DECIDED,
    TOP_SEQUENCE,
    UPPER,
    Evidence,
    ProofCheck,
    check_proof,
    noise_price,
)
from smoothcert_verify.reason_rules import check_reason_shape
from smoothcert_verify.run_facts import NEARLY_ALL, SMALLEST_ALPHA, RunFacts
from smoothcert_verify.theorems import CERTIFICATE_FORMS, CertificateForm, certifies
from smoothcert_verify.varying_theorems import Setting, SigmaEnvelope

_BOUND = Record(value=Number(0), side=OneOf(("lower", "upper")), alpha=Number(0, 1), method=TEXT)
_VERDICT = Record(
    certificate=TEXT,
    prediction=Optional(Whole()),
    radius=Number(0),
    norm=OneOf(("l1", "l2")),
    outcome=OneOf(("certified", "predicted", "abstained", "failed")),
    reason=check_reason_shape,
    bounds=Optional(Record(label=Whole(), quantities=TableOf(_BOUND), spent=TableOf(Number(0, 1)))),
)
VERDICTS = ListOf(_VERDICT, 1, 1000)


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the verdicts about one input rest on.

    envelope: what is assumed of σ. selected_class: by the selection votes. evidence: of the estimation samples.
    """

    run: RunFacts
    sigma: float
    envelope: SigmaEnvelope
    selected_class: int
    evidence: Evidence | None

    @property
    def sequential_proof(self) -> str | None:
        """The proof that answers the question of the run, if it asks one."""
        if self.run.radii is not None:
            return TOP_DECIDED
        return None if self.run.width is None else TOP_SEQUENCE


def price_noise(run: RunFacts, sigma: float, draws: int) -> Fraction:
    """What finite tables of the noise cost; nothing in floating point, or where no noise is added."""
    if run.grid is None or not isinstance(run.form, AdditiveForm):
        return Fraction(0)
    reach = run.form.table_reach
    return noise_price(reach=reach, levels=run.grid, sigma=Fraction(sigma), dimension=run.dimension, draws=draws)


def read_verdict(verdict: Mapping[str, Any], run: RunFacts) -> None:
    """Refuse a verdict whose parts cannot occur together."""
    outcome, radius, prediction = verdict["outcome"], verdict["radius"], verdict["prediction"]
    if (radius > 0) != (outcome == "certified") or (prediction is None) == (outcome in ("certified", "predicted")):
        raise refuse("impossible-verdict", outcome=outcome, radius=radius, prediction=prediction)
    if verdict["norm"] != run.form.norm:
        raise refuse("differs", field="verdicts.norm", value=verdict["norm"], expected=run.form.norm)
    bounds = verdict["bounds"]
    for name, label in (("prediction", prediction), ("bounds.label", bounds and bounds["label"])):
        Optional(Whole(most=run.num_classes - 1))(label, f"verdicts.{name}")
    for proof, share in (bounds["spent"] if bounds else {}).items():
        form = PROOFS.get(proof)
        if not (share > 0 if form is None else form.may_cost(share)) or (form is None and proof != NOISE_TABLES):
            raise refuse("unknown-proof", proof=proof, alpha=share)
    for quantity, bound in (bounds["quantities"] if bounds else {}).items():
        side = "upper" if quantity in UPPER else "lower"
        if bound["side"] != side:
            raise refuse("differs", field=f"{quantity}.side", value=bound["side"], expected=side)
        if bounds["spent"].get(bound["method"]) != bound["alpha"]:
            spent = bounds["spent"].get(bound["method"])
            raise refuse("differs", field=f"{quantity}.alpha", value=bound["alpha"], expected=spent)
        if bound["value"] > 1 and quantity not in NOT_PROBABILITIES:
            raise refuse("invalid-value", field=quantity, value=bound["value"], expected="a probability")


def check_verdict(
    verdict: Mapping[str, Any], sampled: Sampled, *, claimed_radius: float, has_promise: bool
) -> Iterator[Finding]:
    """The class, the price in α, the bounds and the radius. claimed_radius: the radius that the bounds must certify."""
    run, bounds, selected_class = sampled.run, verdict["bounds"], sampled.selected_class
    if bounds["label"] != selected_class:
        yield note("not-the-selected-class", what="bounds", label=bounds["label"], chosen=selected_class)
    if verdict["outcome"] == "certified" and not has_promise and verdict["prediction"] != selected_class:
        yield note("not-the-selected-class", what="certifies", label=verdict["prediction"], chosen=selected_class)
    form = CERTIFICATE_FORMS.get(verdict["certificate"])
    if form is None:
        yield note("unknown-certificate")
        return
    if form.noise != run.kind:
        yield note("certificate-of-other-noise", noise=form.noise, norm=form.norm, kind=run.kind)
    if not (sampled.envelope.constant or form.varying):
        yield note("constant-sigma-only")
    proofs = form.proofs if sampled.sequential_proof is None else (sampled.sequential_proof,)
    yield from _check_spent(bounds["spent"], _list_paid(proofs, run), sampled)
    values = {quantity: Fraction(bound["value"]) for quantity, bound in bounds["quantities"].items()}
    proof_check = yield from _check_bounds(bounds, values, proofs, sampled)
    if proof_check is not None:
        yield from _check_radius(Fraction(claimed_radius), form, values, proof_check, sampled)
    if run.radii is not None and verdict["radius"] > 0 and Fraction(claimed_radius) not in run.radii:
        yield note("radius-not-asked", radius=claimed_radius)


def _list_paid(proofs: tuple[str, ...], run: RunFacts) -> set[str]:
    """All proofs that share α: those of all certificates if the best of them is taken."""
    if not run.best_of:
        return set(proofs)
    forms = [CERTIFICATE_FORMS[name] for name in run.certificates if name in CERTIFICATE_FORMS]
    return {proof for form in forms for proof in form.proofs}


def _check_spent(stored: Mapping[str, float], proofs: set[str], sampled: Sampled) -> Iterator[Finding]:
    """α is spent once, in equal shares, after the price of finite noise tables."""
    run, evidence = sampled.run, sampled.evidence
    spent = {proof: Fraction(share) for proof, share in stored.items()}
    total, tables = sum(spent.values(), Fraction(0)), spent.pop(NOISE_TABLES, None)
    if spent.keys() != proofs:
        yield note("alpha-on-other-proofs", spent=sorted(spent), expected=sorted(proofs))
    draws = run.n if run.is_sequential else 0 if evidence is None else evidence.samples.draws
    needed = price_noise(run, sampled.sigma, draws)
    if not run.has_tables and tables is not None:
        yield note("no-noise-tables", paid=tables)
    if run.has_tables and (tables is None or tables < needed):
        yield note("unpaid-noise-tables", paid=tables or 0, needed=needed)
    if total > run.alpha:
        yield note("alpha-overspent", total=total, alpha=run.alpha)
    elif total < run.alpha * NEARLY_ALL:
        yield note("alpha-not-spent", total=total, alpha=run.alpha)
    if len(set(spent.values())) > 1:
        yield note("uneven-shares", shares=stored)


def _check_bounds(
    bounds: Mapping[str, Any], stored: Mapping[str, Fraction], proofs: tuple[str, ...], sampled: Sampled
) -> Generator[Finding, None, ProofCheck | None]:
    """All proofs of one certificate. Returns the alternatives; None if nothing can be said of a radius."""
    methods = {quantity: bound["method"] for quantity, bound in bounds["quantities"].items()}
    needed = {quantity: proof for proof in proofs for quantity in PROOFS[proof].bounds}
    if sampled.run.is_sequential and not stored:
        return ProofCheck()
    if methods != needed:
        yield note("other-bounds", bounds=sorted(methods), expected=sorted(needed))
        return None
    if sampled.evidence is None:
        yield note("bounds-without-samples")
        return None
    found = ProofCheck()
    for proof in proofs:
        share = Fraction(bounds["spent"].get(proof, 0))
        if not PROOFS[proof].certain and not SMALLEST_ALPHA <= share < Fraction(1, 2):
            yield note("invalid-value", field=f"spent.{proof}", value=share, expected="a probability below 1/2")
            return None
        values = {quantity: stored[quantity] for quantity in PROOFS[proof].bounds}
        proof_check = check_proof(proof, values, sampled.evidence, alpha=share)
        yield from proof_check.discrepancies
        found.alternatives += proof_check.alternatives
    return found


def _check_radius(
    radius: Fraction, form: CertificateForm, stored: Mapping[str, Fraction], proof_check: ProofCheck, sampled: Sampled
) -> Iterator[Finding]:
    """The theorem at the claimed radius, for every alternative; and that the stored bounds do not give more."""
    run = sampled.run
    setting = Setting(Fraction(sampled.sigma), run.dimension, run.num_classes, sampled.envelope, run.grid)
    # Of an envelope that is a Python function, the radius is only compared with that of a constant σ.
    theorem = form.theorem if sampled.envelope.known or form.one_level is None else form.one_level
    if radius > 0 and not stored:
        yield note("radius-without-bounds", radius=radius)
    if not stored:
        return
    alternatives: list[Mapping[str, Fraction]] = [{**stored, **values} for values in proof_check.alternatives]
    if radius > 0 and not all(certifies(theorem, values, radius, setting) for values in alternatives or [stored]):
        yield note("radius-not-certified", radius=radius)
        return
    if form.tight and run.radii is None:
        more = radius * (1 + LOOSE) if radius > 0 else setting.sigma * LOOSE
        if form.exact:
            more = Fraction(math.nextafter(float(radius), math.inf))
        if all(certifies(theorem, values, more, setting) for values in [stored, *alternatives]):
            yield note("radius-too-small", radius=radius)

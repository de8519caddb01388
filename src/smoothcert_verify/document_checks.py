"""One certificate document: its digests, its manifest, and everything that follows from its tallies.

The same function checks exported certificates, the inputs of a run, and points before `certify --rigorous` stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoothcert_verify.findings import Finding, Findings, MalformedError, note, refuse
from smoothcert_verify.json_values import (
    BOOLEAN,
    OBJECT,
    Document,
    ListOf,
    Number,
    OneOf,
    Optional,
    Record,
    Text,
    Whole,
    accept_anything,
    canonical_digest,
    is_same,
)
from smoothcert_verify.manifest_shapes import MOST_INDEX, NOISE
from smoothcert_verify.proof_checks import PROOFS, Evidence, sign_test_holds
from smoothcert_verify.reason_rules import (
    Reason,
    explain_abstention,
    explain_failure,
    explain_prediction,
    explain_promise,
    is_one_of,
)
from smoothcert_verify.run_facts import RunFacts, check_run, read_run
from smoothcert_verify.samples import TALLY, Samples, merge_samples, read_samples
from smoothcert_verify.score_checks import Order
from smoothcert_verify.theorems import CERTIFICATE_FORMS
from smoothcert_verify.varying_theorems import read_envelope, shift_to_grid
from smoothcert_verify.verdict_checks import VERDICTS, Sampled, check_verdict, price_noise, read_verdict

FORMAT, VERSION = "smoothcert certificate", 3

PROMISE = Record(
    label=Whole(),
    radius=Number(0),
    position=Whole(1),
    settlement=OneOf(("WHOLE", "CUT", "OVERRULED", "INHERITED")),
    asked_label=Optional(Whole()),
    asked_radius=Number(0),
    memory=Text(32),
    entry=Text(64),
)
_SMOOTHING = Record(
    noise=NOISE,
    sigma=Optional(Number(1e-100, 1e100)),
    dimension=Whole(1),
    num_classes=Whole(2),
    envelope=Optional(OBJECT),
    remembered=BOOLEAN,
)
_FROM_RUN = Record(
    format=OneOf((FORMAT,)),
    version=OneOf((VERSION,)),
    input=Record(index=Whole(0, MOST_INDEX), label=Optional(Whole())),
    smoothing=_SMOOTHING,
    verdicts=VERDICTS,
    tallies=ListOf(TALLY),
    promise=Optional(PROMISE),
    run=accept_anything,
)
_EXPORTED = Record(**_FROM_RUN.fields, run_digest=Text(64), digest=Text(64))


@dataclass(frozen=True, slots=True)
class Answer:
    """What the verdict of one certificate says, without what proves it."""

    certificate: str
    prediction: int | None
    radius: float
    outcome: str


@dataclass(frozen=True, slots=True)
class CheckedInput:
    """An input whose document could be read, in little memory: `read_again` reads the document."""

    run: RunFacts
    index: int
    label: int | None
    sigma: float | None
    promise: Document | None
    answers: tuple[Answer, ...]
    read_again: Callable[[], Document]

    @classmethod
    def of(cls, document: Document, run: RunFacts, read_again: Callable[[], Document]) -> CheckedInput:
        """document: has the shape of a certificate."""
        return cls(
            run,
            index=document["input"]["index"],
            label=document["input"]["label"],
            sigma=document["smoothing"]["sigma"],
            promise=document["promise"],
            answers=tuple(
                Answer(verdict["certificate"], verdict["prediction"], verdict["radius"], verdict["outcome"])
                for verdict in document["verdicts"]
            ),
            read_again=read_again,
        )

    @property
    def by_another_claim(self) -> bool:
        """Whether the first verdict rests on a claim for another input."""
        return self.promise is not None and self.promise["settlement"] in ("OVERRULED", "INHERITED")


def check_document(document: Any, run: RunFacts | None = None, *, before_claims: bool = False) -> Findings:
    """Everything that can be checked of one document. Never raises: what cannot be read is a discrepancy.

    run: of a document that was read from a run directory, whose manifest was checked before. It has no digests.
    before_claims: the input is certified, and its region is still to be claimed from the memory of the run, if any.
    """
    findings = Findings()
    try:
        if run is None:
            check_version(document)
            findings.discrepancies += _check_digests(document)
            _EXPORTED(document, "")
            run = read_run(document["run"])
            findings.discrepancies += check_run(run)
        else:
            _FROM_RUN(document, "")
        findings.is_readable = True
        _PointCheck(document, run, findings, before_claims=before_claims).check()
    except MalformedError as error:
        findings.discrepancies.append(error.finding)
    except Exception as error:  # any effect of a hostile document is a discrepancy of it
        findings.add("cannot-be-checked", error=f"{type(error).__name__}: {error}")
    return findings


def check_version(document: Any) -> None:
    """Refuse what is not a certificate of this version, by a message that says so."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise refuse("unknown-format", expected=FORMAT)
    if not is_same(document.get("version"), VERSION):
        raise refuse("unknown-version", value=document.get("version"), expected=VERSION)


def _check_digests(document: Mapping[str, Any]) -> Iterator[Finding]:
    rest = {key: value for key, value in document.items() if key != "digest"}
    for name, content in (("run_digest", document.get("run")), ("digest", rest)):
        if document.get(name) != canonical_digest(content):
            yield note("digest-differs", field=name)


class _PointCheck:
    """The check of the content of one document, which has the right shape."""

    def __init__(self, document: Document, run: RunFacts, findings: Findings, *, before_claims: bool) -> None:
        self._document, self._run, self._findings = document, run, findings
        self._before_claims = before_claims
        self._sigma: float | None = document["smoothing"]["sigma"]
        self._verdicts: list[Document] = document["verdicts"]
        self._promise: Document | None = document["promise"]
        envelope = read_envelope(document["smoothing"]["envelope"], remembered=document["smoothing"]["remembered"])
        self._envelope = envelope if run.grid is None else shift_to_grid(envelope, dimension=run.dimension)

    def check(self) -> None:
        for verdict in self._verdicts:
            read_verdict(verdict, self._run)
        self._check_input()
        self._check_smoothing()
        stages = self._read_stages()
        self._check_names()
        self._check_memory()
        if self._run.task == "predict":
            self._check_prediction(stages)
        else:
            self._check_certificates(stages)

    def _differ(self, field: str, value: Any, expected: Any) -> None:
        self._findings.add("differs", field=field, value=value, expected=expected)

    def _check_input(self) -> None:
        index, label = self._document["input"]["index"], self._document["input"]["label"]
        if index not in self._run.indices:
            self._findings.add("index-not-requested", index=index)
        Optional(Whole(most=self._run.num_classes - 1))(label, "input.label")

    def _check_smoothing(self) -> None:
        """What the document says of the smoothed classifier is what the manifest says."""
        stated, run, sigma = self._document["smoothing"], self._run, self._sigma
        for name, fact in run.smoothing.items():
            if not is_same(stated[name], fact):
                self._differ(f"smoothing.{name}", stated[name], fact)
        if sigma is not None and run.level is not None and sigma != run.level:
            self._differ("smoothing.sigma", sigma, run.level)
        if (sigma is None) != (not self._document["tallies"]):
            self._findings.add("sigma-without-samples", sigma=sigma)
        if run.envelope is None and run.memory is None and run.task != "predict":
            self._findings.add("nothing-assumed-of-sigma")
        if run.grid is not None and sigma is not None and not run.form.has_room(sigma=sigma, levels=run.grid):
            raise refuse("sigma-beyond-grid", sigma=sigma, grid=run.grid)

    def _read_stages(self) -> dict[str, list[Samples]]:
        """The tallies by stage, in the order of their draws; they are those that the manifest says were drawn."""
        run, stages = self._run, dict[str, list[Samples]]()
        for entry in self._document["tallies"]:
            if entry["sigma"] != self._sigma:
                self._differ("tallies.sigma", entry["sigma"], self._sigma)
            if entry["num_classes"] != run.num_classes:
                raise refuse(
                    "differs", field="tallies.num_classes", value=entry["num_classes"], expected=run.num_classes
                )
            stages.setdefault(entry["stage"], []).append(read_samples(entry, dimension=run.dimension))
        if not stages and self._promise is not None and run.task == "predict":
            return {}  # a memory answered
        wanted = self._list_wanted()
        for stage in stages.keys() - wanted.keys():
            self._findings.add("unexpected-stage", stage=stage, task=run.task)
        for stage, (least, most) in wanted.items():
            parts = stages.get(stage, [])
            parts.sort(key=lambda part: part.spans)
            at = 0
            for part in parts:
                if part.spans[0][0] != at:
                    self._findings.add("gap-in-samples", stage=stage, at=at)
                at = part.spans[0][1]
                if part.kind != "votes" and (stage != "ESTIMATION" or run.is_sequential or not run.is_sampled):
                    self._findings.add("not-plain-votes", stage=stage, kind=part.kind)
            if not run.is_sampled and len(parts) > 1:
                self._findings.add("evaluations-in-parts", stage=stage, parts=len(parts))
            drawn = sum(part.samples for part in parts)
            if not least <= drawn <= most:
                self._findings.add("sample-count", stage=stage, drawn=drawn, least=least, most=most)
        return stages

    def _list_wanted(self) -> dict[str, tuple[int, int]]:
        """How many samples there are of each stage, at least and at most."""
        run, evaluations = self._run, self._count_evaluations()
        if evaluations is not None:
            return {"PREDICTION" if run.task == "predict" else "ESTIMATION": (evaluations, evaluations)}
        if run.task == "predict":
            return {"PREDICTION": (run.n, run.n)}
        return {"SELECTION": (run.n0, run.n0), "ESTIMATION": (0 if run.is_sequential else run.n, run.n)}

    def _count_evaluations(self) -> int | None:
        """How many evaluations of the input there are; None if they are sampled."""
        run = self._run
        if run.is_sampled or run.grid is None or self._sigma is None:
            return None
        return run.form.count_evaluations(sigma=self._sigma, levels=run.grid)

    def _check_names(self) -> None:
        """The verdicts are those of the requested certificates, and α is shared out as the manifest states."""
        run, names = self._run, [verdict["certificate"] for verdict in self._verdicts]
        wanted = list(run.certificates) or [""]
        if sorted(names) != sorted(wanted) or (not run.best_of and names != wanted):
            self._findings.add("other-certificates", certificates=names, expected=wanted)
        radii = [verdict["radius"] for verdict in self._verdicts]
        if run.best_of and radii != sorted(radii, reverse=True):
            self._findings.add("best-not-first", radii=radii)
        split = run.manifest["alpha_split"]
        for verdict in self._verdicts if not run.has_tables and run.task != "predict" else ():
            stated = next(iter(split.values()), None) if run.best_of else split.get(verdict["certificate"])
            if verdict["bounds"] is not None and verdict["bounds"]["spent"] != stated:
                self._differ("bounds.spent", verdict["bounds"]["spent"], stated)

    def _check_memory(self) -> None:
        certified = any(verdict["outcome"] == "certified" for verdict in self._verdicts)
        if self._promise is not None and self._run.memory is None:
            self._findings.add("promise-without-memory")
        if self._promise is None and self._run.memory is not None and certified and not self._before_claims:
            self._findings.add("certified-without-promise")
        if self._promise is not None:
            for name in ("label", "asked_label"):
                Optional(Whole(most=self._run.num_classes - 1))(self._promise[name], f"promise.{name}")
            self._findings.discrepancies += _check_promise(self._verdicts[0], self._promise, task=self._run.task)

    def _check_reason(self, verdict: Mapping[str, Any], known: Sequence[Reason]) -> None:
        if not is_one_of(verdict["reason"], list(known)):
            expected = known[0] if known else None
            finding = note("reason-differs", value=verdict["reason"], expected=expected)
            self._findings.discrepancies.append(finding.at(_name(verdict)))

    def _check_prediction(self, stages: Mapping[str, list[Samples]]) -> None:
        """PREDICT (Cohen et al. 2019): the two-sided sign test of the class with most votes against the second."""
        verdict, add = self._verdicts[0], self._findings.add
        if len(self._verdicts) > 1 or verdict["certificate"] or verdict["bounds"] is not None or verdict["radius"]:
            add("more-than-a-prediction")
        if self._promise is not None:
            if self._promise["settlement"] != "INHERITED":
                add("prediction-with-claim", settlement=self._promise["settlement"])
            position = self._promise["position"]
            self._check_reason(verdict, [{"code": "in-promised-region", "position": position}])
            return
        if "PREDICTION" not in stages:
            raise refuse("no-samples", stage="PREDICTION")
        samples = merge_samples(stages["PREDICTION"])
        best, outcome = samples.plurality(), verdict["outcome"]
        self._check_reason(verdict, [explain_prediction(outcome, samples)])
        if (outcome == "failed") != (best is None) or (outcome == "abstained" and not self._run.is_sampled):
            add("impossible-outcome", outcome=outcome, best=best)
        if outcome != "predicted" or best is None:
            return
        alpha = self._run.alpha - price_noise(self._run, samples.sigma, samples.draws)
        votes, other = samples.votes[best], samples.largest_other(best)
        if verdict["prediction"] != best:
            add("not-the-selected-class", what="predicts", label=verdict["prediction"], chosen=best)
        elif self._run.is_sampled and not sign_test_holds(votes, other, alpha):
            add("not-significant", label=best, votes=votes, other=other, alpha=alpha)

    def _check_certificates(self, stages: Mapping[str, list[Samples]]) -> None:
        run, findings = self._run, self._findings
        deciding = "SELECTION" if run.is_sampled else "ESTIMATION"
        if deciding not in stages:
            raise refuse("no-samples", stage=deciding)
        selection, parts = merge_samples(stages[deciding]), stages.get("ESTIMATION", [])
        selected_class, total = selection.plurality(), merge_samples(parts) if parts else None
        for place, verdict in enumerate(self._verdicts):
            promise = self._promise if place == 0 else None
            if selected_class is None:
                if verdict["outcome"] != "failed" or verdict["bounds"] is not None:
                    findings.add("no-class-selected", outcome=verdict["outcome"])
                self._check_reason(verdict, [explain_failure(selection)])
                continue
            self._check_reason(verdict, self._known_reasons(verdict, promise, total, selected_class))
            if verdict["bounds"] is None:
                findings.discrepancies.append(note("no-bounds").at(_name(verdict)))
                continue
            if verdict["outcome"] not in ("certified", "abstained") and promise is None:
                findings.add("impossible-outcome", outcome=verdict["outcome"], best=selected_class)
            assert self._sigma is not None  # there are samples, so there is a level
            sampled = Sampled(
                run, self._sigma, self._envelope, selected_class, self._make_evidence(parts, total, selected_class)
            )
            claimed_radius = verdict["radius"] if promise is None else promise["asked_radius"]
            problems = check_verdict(verdict, sampled, claimed_radius=claimed_radius, has_promise=promise is not None)
            findings.discrepancies += [finding.at(_name(verdict)) for finding in problems]
            if not self._envelope.known:
                findings.unchecked.append(note("envelope-is-a-function").at(_name(verdict)))

    def _make_evidence(self, parts: Sequence[Samples], total: Samples | None, label: int) -> Evidence | None:
        if total is None:
            return None
        looks, hits, trials = [], 0, 0
        for part in parts:
            hits, trials = hits + part.votes[label], trials + part.draws
            looks.append((hits, trials))
        order = Order(seed=self._run.seed, index=self._document["input"]["index"])
        on_grid, evaluations = self._run.grid is not None, self._count_evaluations()
        return Evidence(total, label, tuple(looks), order, on_grid=on_grid, evaluations=evaluations)

    def _known_reasons(
        self, verdict: Mapping[str, Any], promise: Document | None, total: Samples | None, selected_class: int
    ) -> Sequence[Reason]:
        if promise is not None:
            return [explain_promise(promise["settlement"], radius=promise["radius"])]
        if verdict["outcome"] == "certified":
            return [None]
        form = CERTIFICATE_FORMS.get(verdict["certificate"])
        soft = form is not None and any(PROOFS[proof].sampled == "scores" for proof in form.proofs)
        return explain_abstention(total, selected_class, self._run, soft=soft)


def _check_promise(verdict: Mapping[str, Any], promise: Mapping[str, Any], *, task: str) -> Iterator[Finding]:
    """The verdict is what a memory granted, which is never more than what was asked."""
    radius = 0.0 if task == "predict" else promise["radius"]
    stated = {"prediction": promise["label"], "radius": radius}
    stated |= {"outcome": "predicted"} if task == "predict" else {}
    for name, value in stated.items():
        if verdict[name] != value:
            yield note("differs", field=f"verdicts.{name}", value=verdict[name], expected=value)
    settlement, asked = promise["settlement"], promise["asked_radius"]
    if settlement == "INHERITED":
        if promise["asked_label"] is not None or asked:
            yield note("inherited-with-claim", label=promise["asked_label"], radius=asked)
        return
    bounded = None if verdict["bounds"] is None else verdict["bounds"]["label"]
    if promise["asked_label"] != bounded:
        yield note("differs", field="promise.asked_label", value=promise["asked_label"], expected=bounded)
    if promise["radius"] > asked or not asked > 0 or (settlement == "WHOLE" and promise["radius"] != asked):
        yield note("promise-of-more", settlement=settlement, radius=promise["radius"], asked=asked)
    if (promise["label"] == promise["asked_label"]) != (settlement in ("WHOLE", "CUT")):
        yield note("promise-of-class", settlement=settlement, label=promise["label"], asked=promise["asked_label"])


def _name(verdict: Mapping[str, Any]) -> str:
    return verdict["certificate"] or "prediction"

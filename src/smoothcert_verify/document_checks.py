"""One certificate document, checked from its tallies on: class, α, every bound, every radius, and what is promised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from smoothcert_verify import catalogue, reasons
from smoothcert_verify.arithmetic import MOST_TRIALS
from smoothcert_verify.bounds import LOOSE, Checked, Evidence, check_proof, noise_price, sign_test_holds
from smoothcert_verify.manifests import supposed_envelope
from smoothcert_verify.radii import Envelope, Setting, certifies, moved, read_envelope
from smoothcert_verify.samples import Samples, UnreadableError, mapping, merged, number, read_samples, text, whole
from smoothcert_verify.scores import Order
from smoothcert_verify.statements import statement_of

FORMAT, VERSION = "smoothcert certificate", 2

_OUTCOMES = ("certified", "predicted", "abstained", "failed")
_SETTLEMENTS = ("WHOLE", "CUT", "OVERRULED", "INHERITED")
_TASKS = ("certify", "predict", "recertify")
_NORMS = {"gaussian": "l2", "uniform": "l1"}
_MOST_DIMENSIONS = 10**9
_LARGEST_GRID = 2**23 + 1
_FARTHEST = {"gaussian": Fraction(2**23) * 4 / 37, "uniform": Fraction(2**23)}
"""The largest σ on a grid, in steps of it: no noise is ever more than 2^23 steps, which is 9.25 σ of a Gaussian."""
_NEARLY_ALL = 1 - Fraction(1, 10**9)
"""Of α that must be spent: less would be another split than the one that was asked for."""
_SMALLEST_ALPHA = Fraction(1, 10**100)


def check_document(document: Mapping[str, Any]) -> list[str]:
    """One sentence for every discrepancy of a certificate document; [] if all of it is proved."""
    return check_document_with_remarks(document)[0]


def check_document_with_remarks(document: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Discrepancies, and sentences about what could not be checked. Never raises: what cannot be read is a discrepancy.

    Digests are not looked at here.
    """
    check = _Check()
    try:
        check.document(document)
    except UnreadableError as error:
        check.discrepancies.append(str(error))
    except Exception as error:  # whatever a hostile document brings about is a discrepancy of it
        check.discrepancies.append(f"the document cannot be checked ({type(error).__name__}: {error!s:.200})")
    return check.discrepancies, check.remarks


@dataclass(frozen=True, slots=True)
class _Run:
    """What the manifest says."""

    task: str
    alpha: Fraction
    seed: int
    n: int
    n0: int | None
    certificates: tuple[str, ...]
    best_of: bool
    decide: tuple[Fraction, ...] | None
    precision: float | None

    @property
    def anytime(self) -> str | None:
        """The proof that answers the question of the run, if it asks one."""
        if self.decide is not None:
            return catalogue.TOP_DECIDED
        return None if self.precision is None else catalogue.TOP_SEQUENCE


@dataclass(frozen=True, slots=True)
class _Smoothing:
    noise: str
    sigma: float | None
    dimension: int
    num_classes: int
    grid: int | None
    envelope: Envelope
    remembered: bool


@dataclass(frozen=True, slots=True)
class _Verdict:
    certificate: str
    prediction: int | None
    radius: Fraction
    norm: str
    outcome: str
    reason: str
    bounds: _Bounds | None


@dataclass(frozen=True, slots=True)
class _Bounds:
    label: int
    values: dict[str, Fraction]
    methods: dict[str, str]
    spent: dict[str, Fraction]


@dataclass(frozen=True, slots=True)
class _Promise:
    label: int
    radius: Fraction
    position: int
    settlement: str
    asked_label: int | None
    asked_radius: Fraction
    memory: str


@dataclass(slots=True)
class _Check:
    """The check of one document, and what was found so far."""

    discrepancies: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def document(self, given: Any) -> None:
        document = mapping(given, "a certificate document")
        if document.get("format") != FORMAT or type(document.get("version")) is not int:
            raise UnreadableError(f"this is no {FORMAT}: its format is {document.get('format')!r:.60}")
        if document["version"] != VERSION:
            raise UnreadableError(f"the document is of version {document['version']!r:.20}; version {VERSION} is known")
        run = _read_run(document.get("run"))
        smoothing = self._smoothing(document, run)
        index = self._input(document, smoothing)
        stages = self._stages(document.get("tallies"), run, smoothing)
        verdicts = [_read_verdict(entry, smoothing) for entry in _list(document.get("verdicts"), "verdicts")]
        if not verdicts:
            raise UnreadableError("the document holds no verdict")
        promise = _read_promise(document.get("promise"), smoothing)
        if (promise is not None) and not smoothing.remembered:
            self._says("a region is promised by a memory, and the run had none")
        if run.task == "predict":
            self._prediction(verdicts, stages, run, smoothing, promise)
        else:
            self._certificates(verdicts, stages, run, smoothing, promise, index)
        self._statement(document)

    def _says(self, sentence: str) -> None:
        self.discrepancies.append(sentence)

    def _input(self, document: Mapping[str, Any], smoothing: _Smoothing) -> int:
        entry = mapping(document.get("input"), "input")
        index = whole(entry, "index", most=2**32 - 1)
        if entry.get("label") is not None:
            whole(entry, "label", most=smoothing.num_classes - 1)
        return index

    def _smoothing(self, document: Mapping[str, Any], run: _Run) -> _Smoothing:
        """What the document says of the smoothed classifier, which must be what the manifest says."""
        smoothing = _read_smoothing(document.get("smoothing"))
        manifest = mapping(document.get("run"), "run")
        parameters = mapping(manifest.get("parameters"), "parameters")
        said = mapping(document["smoothing"], "smoothing")
        shape = mapping(manifest.get("data"), "data").get("input_shape")
        if not isinstance(shape, list) or not all(type(size) is int for size in shape):
            raise UnreadableError("the manifest does not say what shape its inputs have")
        facts = {
            "noise": (smoothing.noise, str(parameters.get("noise", "gaussian")).partition(" ")[0].removesuffix(",")),
            "dimension": (smoothing.dimension, math.prod(shape)),
            "num_classes": (smoothing.num_classes, mapping(manifest.get("model"), "model").get("num_classes")),
            "grid": (smoothing.grid, parameters.get("grid")),
            "envelope": (said.get("envelope"), supposed_envelope(parameters)),
            "remembered": (smoothing.remembered, "memory" in parameters),
        }
        for name, (here, there) in facts.items():
            if here != there:
                self._says(f"smoothing has {name} {here!r:.60}, and the manifest {there!r:.60}")
        supposed = supposed_envelope(parameters)
        if isinstance(supposed, dict) and "sigma" in supposed and smoothing.sigma is not None:
            constant = number(supposed, "sigma")
            if smoothing.sigma != constant:
                self._says(f"the noise level is {smoothing.sigma!r}, and {constant!r} everywhere is supposed")
        if supposed is None and not smoothing.remembered and run.task != "predict":
            self._says("the noise level varies from input to input, and neither an envelope nor a memory makes it safe")
        return smoothing

    def _stages(self, tallies: Any, run: _Run, smoothing: _Smoothing) -> dict[str, list[Samples]]:
        """The tallies by stage, each in the order of its draws."""
        stages: dict[str, list[Samples]] = {}
        for entry in _list(tallies, "tallies"):
            samples = read_samples(entry, dimension=smoothing.dimension)
            if samples.sigma != smoothing.sigma:
                self._says(f"a tally has the noise level {samples.sigma!r}, the document {smoothing.sigma!r}")
            if samples.num_classes != smoothing.num_classes:
                raise UnreadableError(f"a tally is of {samples.num_classes} classes, not {smoothing.num_classes}")
            stages.setdefault(samples.stage, []).append(samples)
        for parts in stages.values():
            parts.sort(key=lambda part: part.spans)
            merged(parts)
        allowed = {"PREDICTION"} if run.task == "predict" else {"SELECTION", "ESTIMATION"}
        if stages.keys() - allowed:
            self._says(f"a {run.task} run has no samples of the stage {', '.join(sorted(stages.keys() - allowed))}")
        return stages

    def _prediction(
        self,
        verdicts: Sequence[_Verdict],
        stages: Mapping[str, list[Samples]],
        run: _Run,
        smoothing: _Smoothing,
        promise: _Promise | None,
    ) -> None:
        """PREDICT (Cohen et al. 2019): the two-sided sign test of the class with most votes against the second."""
        verdict = verdicts[0]
        if len(verdicts) > 1 or verdict.certificate or verdict.bounds is not None or verdict.radius:
            self._says("a prediction has one verdict, without certificate, bounds and radius")
        parts = stages.get("PREDICTION")
        if promise is not None:
            self._promised(verdict, promise)
            if promise.settlement != "INHERITED":
                self._says("a prediction claims no region")
            self._reason(verdict, reasons.of_answer_by_memory(promise.position))
            return
        if parts is None:
            raise UnreadableError("there are no votes that predict anything")
        samples = merged(parts)
        if samples.draws != run.n:
            self._says(f"{samples.draws} votes were drawn, and {run.n} were asked for")
        best = samples.plurality()
        self._reason(verdict, reasons.of_prediction(verdict.outcome, samples))
        if (verdict.outcome == "failed") != (best is None):
            self._says(f"a prediction cannot end as {verdict.outcome}: most votes are for {best}")
        if verdict.outcome != "predicted":
            return
        alpha = run.alpha - self._noise_price(samples.draws, smoothing)
        if best is None or verdict.prediction != best:
            self._says(f"class {verdict.prediction} is predicted, and most votes are for {best}")
        elif not sign_test_holds(samples.votes[best], samples.largest_other(best), alpha):
            self._says(
                f"{samples.votes[best]} votes for class {best} against {samples.largest_other(best)} are not "
                f"significant at alpha {float(alpha):g}"
            )

    def _certificates(
        self,
        verdicts: Sequence[_Verdict],
        stages: Mapping[str, list[Samples]],
        run: _Run,
        smoothing: _Smoothing,
        promise: _Promise | None,
        index: int,
    ) -> None:
        chosen, parts = self._selected(stages, run), stages.get("ESTIMATION", [])
        self._named(verdicts, run)
        total = merged(parts) if parts else None
        self._enough(total, parts, run, chosen)
        order = Order(seed=run.seed, index=index)
        for place, verdict in enumerate(verdicts):
            kept = promise if place == 0 else None
            if kept is not None:
                self._promised(verdict, kept)
            if chosen is None:
                if verdict.outcome != "failed" or verdict.bounds is not None:
                    self._says(f"{_name(verdict)} speaks of a class, and the selection votes settle on none")
                self._reason(verdict, reasons.of_failure(merged(stages["SELECTION"])))
                continue
            self._reason(verdict, *self._known_reasons(verdict, total, chosen, run, kept))
            if verdict.bounds is None:
                self._says(f"{_name(verdict)} has no bounds to be checked")
                continue
            if verdict.outcome not in ("certified", "abstained") and kept is None:
                self._says(f"{_name(verdict)} cannot end as {verdict.outcome}: the selection votes settle on a class")
            looks, hits, trials = [], 0, 0
            for part in parts:
                hits, trials = hits + part.votes[chosen], trials + part.draws
                looks.append((hits, trials))
            evidence = (
                None
                if total is None
                else Evidence(total, chosen, tuple(looks), order, on_grid=smoothing.grid is not None)
            )
            self._verdict(verdict, evidence, chosen, run, smoothing, kept)

    def _reason(self, verdict: _Verdict, *known: str) -> None:
        """What a person reads as the reason must be one of those that these tallies have."""
        if verdict.reason not in known:
            self._says(f"{_name(verdict)} gives a reason that its tallies do not: {verdict.reason!r:.80}")

    @staticmethod
    def _known_reasons(
        verdict: _Verdict, total: Samples | None, chosen: int, run: _Run, promise: _Promise | None
    ) -> tuple[str, ...]:
        if promise is not None:
            return (reasons.of_promise(promise.settlement, radius=promise.radius),)
        if verdict.outcome == "certified":
            return ("",)
        if run.decide is not None:
            return reasons.of_undecided(total, chosen, radii=run.decide, n=run.n)
        if run.precision is not None:
            return reasons.of_unmeasured(total, chosen, width=run.precision, n=run.n)
        claim = catalogue.CLAIMS.get(verdict.certificate)
        soft = claim is not None and any(catalogue.SAMPLED.get(proof) == "scores" for proof in claim.proofs)
        return () if total is None else reasons.of_abstention(total, chosen, soft=soft)

    def _selected(self, stages: Mapping[str, list[Samples]], run: _Run) -> int | None:
        parts = stages.get("SELECTION")
        if parts is None:
            raise UnreadableError("there are no selection votes, which choose the class")
        selection = merged(parts)
        if selection.kind != "votes":
            self._says(f"the class was selected by {selection.kind}, not by votes")
        if run.n0 is not None and selection.draws != run.n0:
            self._says(f"{selection.draws} selection votes were drawn, and {run.n0} were asked for")
        return selection.plurality()

    def _named(self, verdicts: Sequence[_Verdict], run: _Run) -> None:
        names = [verdict.certificate for verdict in verdicts]
        if sorted(names) != sorted(run.certificates) or (not run.best_of and names != list(run.certificates)):
            self._says(f"the verdicts are by {', '.join(names)}, and {', '.join(run.certificates)} were asked for")

    def _enough(self, total: Samples | None, parts: Sequence[Samples], run: _Run, chosen: int | None) -> None:
        """As many samples as were fixed in advance; where a question is asked, at most so many, without a gap."""
        if total is None:
            if run.anytime is None and chosen is not None:
                raise UnreadableError("there are no estimation samples, which alone prove something")
            return
        if run.anytime is None:
            if total.samples != run.n:
                self._says(f"{total.samples} estimation samples were drawn, and {run.n} were fixed in advance")
            return
        if total.samples > run.n:
            self._says(f"{total.samples} estimation samples were drawn, and at most {run.n} were to be")
        at = 0
        for part in parts:
            if part.spans[0][0] != at or part.kind != "votes":
                self._says(f"the votes that were looked at have a gap after {at}")
            at = part.spans[-1][1]

    def _verdict(
        self,
        verdict: _Verdict,
        evidence: Evidence | None,
        chosen: int,
        run: _Run,
        smoothing: _Smoothing,
        promise: _Promise | None,
    ) -> None:
        bounds, name = verdict.bounds, _name(verdict)
        assert bounds is not None
        if bounds.label != chosen:
            self._says(f"{name} bounds class {bounds.label}, and the selection votes are for class {chosen}")
        if verdict.outcome == "certified" and promise is None and verdict.prediction != chosen:
            self._says(f"{name} certifies class {verdict.prediction}, and the selection votes are for class {chosen}")
        claim = catalogue.CLAIMS.get(verdict.certificate)
        if claim is None:
            self._says(f"{name} is no certificate this checker knows: nothing about it is proved")
            return
        if (verdict.norm, smoothing.noise) != (claim.norm, claim.noise):
            self._says(
                f"{name} is about {claim.noise} noise and {claim.norm}, not {smoothing.noise} and {verdict.norm}"
            )
        if not (smoothing.envelope.constant or claim.varying):
            self._says(f"{name} holds for a constant noise level only")
        proofs = claim.proofs if run.anytime is None else (run.anytime,)
        self._spent(name, bounds, self._paid_for(proofs, run), run, smoothing, evidence)
        checked = self._bounds(name, bounds, proofs, evidence, anytime=run.anytime is not None)
        claimed = verdict.radius if promise is None else promise.asked_radius
        if checked is not None:
            self._radius(verdict, claim, bounds, checked, claimed, smoothing, run)
        if run.decide is not None and verdict.radius > 0 and claimed not in run.decide:
            self._says(f"{name}: the radius {float(claimed)!r} is none of those that were to be decided")

    def _paid_for(self, proofs: tuple[str, ...], run: _Run) -> set[str]:
        """All proofs that share α: those of all certificates where the best of them is taken."""
        if not run.best_of:
            return set(proofs)
        claims = [catalogue.CLAIMS[name] for name in run.certificates if name in catalogue.CLAIMS]
        return {proof for claim in claims for proof in claim.proofs}

    def _spent(
        self,
        name: str,
        bounds: _Bounds,
        proofs: set[str],
        run: _Run,
        smoothing: _Smoothing,
        evidence: Evidence | None,
    ) -> None:
        """α is spent once, in equal shares, after the price of finite noise tables."""
        shares = {proof: share for proof, share in bounds.spent.items() if proof != catalogue.NOISE_TABLES}
        tables = bounds.spent.get(catalogue.NOISE_TABLES)
        if shares.keys() != proofs:
            self._says(f"{name} spends alpha on {', '.join(sorted(shares)) or 'nothing'}, not on what it has to prove")
        draws = evidence.samples.draws if evidence is not None else 0
        needed = self._noise_price(run.n if run.anytime else draws, smoothing)
        if smoothing.grid is None and tables is not None:
            self._says(f"{name} pays for noise tables, and the noise has none")
        if smoothing.grid is not None and (tables is None or tables < needed):
            paid = "nothing" if tables is None else f"{float(tables)!r}"
            self._says(f"{name} pays {paid} of alpha for noise tables, which take {float(needed):.3g}")
        total = sum(bounds.spent.values(), Fraction(0))
        if total > run.alpha:
            self._says(f"{name} spends {float(total)!r} in all, more than alpha {float(run.alpha)!r}")
        elif total < run.alpha * _NEARLY_ALL:
            self._says(f"{name} spends {float(total)!r} in all, not alpha {float(run.alpha)!r}")
        if len(set(shares.values())) > 1:
            self._says(f"{name} does not split alpha in equal shares")

    @staticmethod
    def _noise_price(draws: int, smoothing: _Smoothing) -> Fraction:
        if smoothing.grid is None or smoothing.sigma is None:
            return Fraction(0)
        return noise_price(
            levels=smoothing.grid, sigma=Fraction(smoothing.sigma), dimension=smoothing.dimension, draws=draws
        )

    def _bounds(
        self, name: str, bounds: _Bounds, proofs: tuple[str, ...], evidence: Evidence | None, *, anytime: bool
    ) -> Checked | None:
        """All proofs of one certificate. Returns the alternatives; None where nothing can be said of a radius."""
        needed = {quantity: proof for proof in proofs for quantity in catalogue.BOUNDED[proof]}
        if anytime and not bounds.values:
            return Checked()
        if bounds.methods != needed:
            self._says(f"{name} bounds {', '.join(sorted(bounds.methods)) or 'nothing'}, not what its theorem takes")
            return None
        if evidence is None:
            self._says(f"{name} has bounds, and there are no samples that prove them")
            return None
        found = Checked()
        for proof in proofs:
            values = {quantity: bounds.values[quantity] for quantity in catalogue.BOUNDED[proof]}
            share = bounds.spent.get(proof)
            if share is None or not _SMALLEST_ALPHA <= share < Fraction(1, 2):
                self._says(f"{name}: a proof cannot be had at alpha {share if share is None else float(share)}")
                return None
            checked = check_proof(proof, values, evidence, alpha=share)
            found.discrepancies += [f"{name}: {sentence}" for sentence in checked.discrepancies]
            found.alternatives += checked.alternatives
        self.discrepancies += found.discrepancies
        return found

    def _radius(
        self,
        verdict: _Verdict,
        claim: catalogue.Claim,
        bounds: _Bounds,
        checked: Checked,
        radius: Fraction,
        smoothing: _Smoothing,
        run: _Run,
    ) -> None:
        """The theorem at the claimed radius, for every alternative; and that the stored bounds do not give more."""
        name = _name(verdict)
        assert smoothing.sigma is not None
        setting = Setting(Fraction(smoothing.sigma), smoothing.dimension, smoothing.num_classes, smoothing.envelope)
        theorem = claim.theorem
        if not smoothing.envelope.known:
            self.remarks.append(
                f"{name}: the envelope of sigma is a function of the user's own, so the radius was only compared with "
                "that of a constant sigma"
            )
            theorem = "gaussian"
        if radius > 0:
            if not bounds.values:
                self._says(f"{name} has a radius, and no bounds")
            for values in checked.alternatives or [bounds.values]:
                if values and not certifies(theorem, {**bounds.values, **values}, radius, setting):
                    self._says(f"{name}: the bounds do not certify the radius {float(radius)!r}")
                    return
        if claim.tight and bounds.values and run.decide is None:
            more = radius * (1 + LOOSE) if radius > 0 else setting.sigma * LOOSE
            if all(
                certifies(theorem, {**bounds.values, **values}, more, setting)
                for values in [bounds.values, *checked.alternatives]
            ):
                self._says(f"{name}: the bounds certify more than the radius {float(radius)!r}")

    def _promised(self, verdict: _Verdict, promise: _Promise) -> None:
        """What a memory granted is what the verdict says, and never more than what was asked."""
        if (verdict.prediction, verdict.radius) != (promise.label, promise.radius) and verdict.certificate:
            self._says("the verdict is not the class and the radius that the memory promised")
        if not verdict.certificate and (verdict.prediction != promise.label or verdict.outcome != "predicted"):
            self._says("the verdict is not the class that the memory promised")
        bounded = None if verdict.bounds is None else verdict.bounds.label
        if promise.settlement == "INHERITED":
            if promise.asked_label is not None or promise.asked_radius:
                self._says("an inherited answer claims nothing, and this one asked for a region")
            return
        if promise.asked_label != bounded:
            self._says(f"class {promise.asked_label} was claimed, and the votes were bounded for class {bounded}")
        if promise.radius > promise.asked_radius or not promise.asked_radius > 0:
            self._says(
                f"the radius {float(promise.radius)!r} is promised, and {float(promise.asked_radius)!r} was asked"
            )
        if promise.settlement == "WHOLE" and promise.radius != promise.asked_radius:
            self._says("a region that was promised whole has another radius than was asked")
        if (promise.label == promise.asked_label) != (promise.settlement in ("WHOLE", "CUT")):
            self._says(f"class {promise.asked_label} was asked, {promise.label} is promised as {promise.settlement}")

    def _statement(self, document: Mapping[str, Any]) -> None:
        """The sentence a person reads must say what the numbers say."""
        if document.get("statement") != statement_of(document):
            self._says("the statement does not say what the verdict says")


def _name(verdict: _Verdict) -> str:
    return verdict.certificate or "the prediction"


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise UnreadableError(f"{what} must be a list, not {type(value).__name__}")
    return value


def _read_run(given: Any) -> _Run:
    manifest = mapping(given, "run")
    parameters = mapping(manifest.get("parameters"), "parameters")
    task = text(manifest, "task")
    if task not in _TASKS:
        raise UnreadableError(f"a run with the task {task!r:.40} certifies nothing")
    alpha = Fraction(number(parameters, "alpha"))
    if not _SMALLEST_ALPHA <= alpha < Fraction(1, 2):
        raise UnreadableError(f"alpha {float(alpha)!r} is no probability of being wrong")
    predicting = task == "predict"
    names, best_of = ([], False) if predicting else catalogue.names_in(text(parameters, "certificate"))
    decide, precision = parameters.get("decide"), parameters.get("precision")
    if decide is not None and precision is not None:
        raise UnreadableError("a run asks one question, not two")
    radii = None
    if decide is not None:
        radii = tuple(Fraction(number({"radius": radius}, "radius")) for radius in _list(decide, "decide"))
    return _Run(
        task=task,
        alpha=alpha,
        seed=whole(manifest, "seed", most=2**128 - 1),
        n=whole(parameters, "n", least=1, most=2 * MOST_TRIALS),
        n0=None if predicting else whole(parameters, "n0", least=1, most=MOST_TRIALS),
        certificates=tuple(names),
        best_of=best_of,
        decide=radii,
        precision=None if precision is None else number(parameters, "precision"),
    )


def _read_smoothing(given: Any) -> _Smoothing:
    entry = mapping(given, "smoothing")
    noise = text(entry, "noise")
    if noise not in _NORMS:
        raise UnreadableError(f"nothing is known of {noise!r:.40} noise")
    sigma = None if entry.get("sigma") is None else number(entry, "sigma")
    if sigma is not None and not 1e-100 <= sigma <= 1e100:
        raise UnreadableError(f"the noise level {sigma!r} cannot be")
    grid = None if entry.get("grid") is None else whole(entry, "grid", least=2, most=_LARGEST_GRID)
    if grid is not None and sigma is not None and Fraction(sigma) * (grid - 1) > _FARTHEST[noise]:
        raise UnreadableError(f"the noise level {sigma!r} on a grid of {grid} levels is more than float32 can hold")
    remembered = entry.get("remembered")
    if type(remembered) is not bool:
        raise UnreadableError("smoothing does not say whether there is a memory")
    dimension = whole(entry, "dimension", least=1, most=_MOST_DIMENSIONS)
    envelope = read_envelope(entry.get("envelope"), remembered=remembered)
    return _Smoothing(
        noise=noise,
        sigma=sigma,
        dimension=dimension,
        num_classes=whole(entry, "num_classes", least=2, most=10**6),
        grid=grid,
        envelope=envelope if grid is None else moved(envelope, dimension=dimension),
        remembered=remembered,
    )


def _read_verdict(given: Any, smoothing: _Smoothing) -> _Verdict:
    entry = mapping(given, "a verdict")
    outcome, norm = text(entry, "outcome"), text(entry, "norm")
    radius = Fraction(number(entry, "radius"))
    prediction = entry.get("prediction")
    if prediction is not None:
        prediction = whole(entry, "prediction", most=smoothing.num_classes - 1)
    if outcome not in _OUTCOMES:
        raise UnreadableError(f"a verdict cannot be {outcome!r:.40}")
    if radius < 0 or (radius > 0) != (outcome == "certified"):
        raise UnreadableError(f"a verdict cannot be {outcome} with the radius {float(radius)!r}")
    if (prediction is None) == (outcome in ("certified", "predicted")):
        raise UnreadableError(f"a verdict cannot be {outcome} with the class {prediction}")
    if norm != _NORMS[smoothing.noise]:
        raise UnreadableError(f"{smoothing.noise} noise gives no radius in {norm!r:.40}")
    bounds = None if entry.get("bounds") is None else _read_bounds(entry["bounds"], smoothing)
    return _Verdict(
        certificate=text(entry, "certificate"),
        prediction=prediction,
        radius=radius,
        norm=norm,
        outcome=outcome,
        reason=text(entry, "reason"),
        bounds=bounds,
    )


def _read_bounds(given: Any, smoothing: _Smoothing) -> _Bounds:
    entry = mapping(given, "bounds")
    spent: dict[str, Fraction] = {}
    for proof, share in mapping(entry.get("spent"), "spent").items():
        spent[proof] = Fraction(number({"alpha": share}, "alpha"))
        if (proof not in catalogue.BOUNDED and proof != catalogue.NOISE_TABLES) or not spent[proof] > 0:
            raise UnreadableError(f"alpha {share!r:.40} cannot be spent on {proof!r:.60}")
    values: dict[str, Fraction] = {}
    methods: dict[str, str] = {}
    for quantity, stored in mapping(entry.get("quantities"), "quantities").items():
        bound = mapping(stored, quantity)
        methods[quantity] = text(bound, "method")
        values[quantity] = Fraction(number(bound, "value"))
        if text(bound, "side") != ("upper" if quantity in catalogue.UPPER else "lower"):
            raise UnreadableError(f"{quantity} is bounded from the wrong side")
        if spent.get(methods[quantity]) != Fraction(number(bound, "alpha")):
            raise UnreadableError(f"{quantity} is bounded at another alpha than what was spent on it")
        if values[quantity] < 0 or (values[quantity] > 1 and not quantity.endswith("gradient-norm")):
            raise UnreadableError(f"{quantity} cannot be {float(values[quantity])!r}")
    label = whole(entry, "label", most=smoothing.num_classes - 1)
    return _Bounds(label=label, values=values, methods=methods, spent=spent)


def _read_promise(given: Any, smoothing: _Smoothing) -> _Promise | None:
    if given is None:
        return None
    entry = mapping(given, "promise")
    settlement = text(entry, "settlement").upper()
    if settlement not in _SETTLEMENTS:
        raise UnreadableError(f"a claim cannot be settled as {settlement!r:.40}")
    asked = entry.get("asked_label")
    radius, asked_radius = Fraction(number(entry, "radius")), Fraction(number(entry, "asked_radius"))
    if radius < 0 or asked_radius < 0:
        raise UnreadableError("a region cannot have a negative radius")
    return _Promise(
        label=whole(entry, "label", most=smoothing.num_classes - 1),
        radius=radius,
        position=whole(entry, "position", least=1),
        settlement=settlement,
        asked_label=None if asked is None else whole(entry, "asked_label", most=smoothing.num_classes - 1),
        asked_radius=asked_radius,
        memory=text(entry, "memory"),
    )

"""A finished run at another α, with fewer samples, or by another certificate: from its tallies, without the model."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from smoothcert.certificates import Portfolio, get_portfolio
from smoothcert.errors import CorruptRunError, InputError, RunError
from smoothcert.questions import (
    Inquiry,
    check_question,
    describe_smoothing,
    make_inquiry,
    split_alpha_of,
    stored_votes,
)
from smoothcert.questions.smoothing_setup import check_levels
from smoothcert.records import (
    CertifiedPoint,
    ConstantSigma,
    Envelope,
    GradientTally,
    Smoothing,
    Stage,
    TallyKind,
    envelope_from_json,
)
from smoothcert.runs.held_run import HeldRun, list_kinds
from smoothcert.runs.load import CollectedResults
from smoothcert.runs.manifest import state_environment
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.run_files import is_selected
from smoothcert.runs.scales import scale_of_run
from smoothcert.runs.selected_combining import hold_parts, recertify_parts
from smoothcert.runs.selected_run import hold_stored
from smoothcert.runs.store import RunStore
from smoothcert.settings_text import real_number, whole_number
from smoothcert.spec import FixedN, RunManifest, RunSpec, to_json
from smoothcert.statistics import first_samples


def recertify_run(
    path: Path,
    *,
    alpha: float | None = None,
    n: int | None = None,
    certificate: str | Sequence[str] | None = None,
    best_of: bool = False,
) -> HeldRun:
    """Recompute every point of a run. Omitted settings keep their value. best_of: of the certificates given, or of
    those of the run.

    Each result is valid at its own α. Trying many settings and keeping the best is a choice after looking, which α does
    not cover, unless best_of pays for it.

    A run that was sampled until a question was answered is asked the same question again, by the same anytime-valid
    tests: bounds for a fixed n do not hold for its votes. Its votes end where they end, so a smaller α certifies less
    than a run made with that α would.
    """
    if not path.exists() and "@" in path.name:
        run, _, name = str(path).rpartition("@")
        raise RunError(
            f"{path} does not exist; to choose a certificate: smoothcert recertify {run} --certificate {name}"
        )
    return recertify_points(hold_stored(path), str(path), alpha=alpha, n=n, certificate=certificate, best_of=best_of)


def recertify_points(
    run: HeldRun,
    name: str,
    *,
    alpha: float | None = None,
    n: float | None = None,
    certificate: str | Sequence[str] | None = None,
    best_of: bool = False,
) -> HeldRun:
    """`recertify_run` for a run in memory. name: of the run, for messages."""
    if run.parts is not None:
        changed = recertify_parts(run.parts, name, alpha=alpha, n=n, certificate=certificate, best_of=best_of)
        return hold_parts(changed, selected=run.selected)
    _check_can_recertify(run.manifest, name, inputs=len(run.points))
    drawn = max((tally.ranges[-1][1] for point in run.points for tally in point.tallies), default=0)
    source = _Source(name, run.manifest, list_kinds(run.points), run.points[0], drawn)
    judge = _make_judge(source, alpha=alpha, n=n, certificate=certificate, best_of=best_of)
    return HeldRun(points=judge.answer(run.points), manifest=judge.manifest, selected=run.selected)


def recertify_stored(
    path: Path,
    out: Path | None,
    *,
    alpha: float | None = None,
    n: int | None = None,
    certificate: str | Sequence[str] | None = None,
    best_of: bool = False,
) -> tuple[list[ResultColumns], RunSpec]:
    """`recertify_run` for a run of any size, as columns; few inputs are held at once. The new spec, too.

    out: also store the result there, as a run of its own, whole or not at all.
    """
    if is_selected(path) or not path.exists():
        changed = recertify_run(path, alpha=alpha, n=n, certificate=certificate, best_of=best_of)
        if out is not None:
            changed.save(out)
        return changed.results(name=(out or path).name), changed.spec
    with RunStore.open(path) as run, contextlib.ExitStack() as stack:
        judge = _make_judge(_source_of_store(run), alpha=alpha, n=n, certificate=certificate, best_of=best_of)
        store = None
        if out is not None:
            store = stack.enter_context(RunStore.create_whole(out, state_environment(judge.manifest)))
        collected = CollectedResults(judge.manifest, name=(out or path).name)
        spent: dict[int, int] = {}
        for batch in run.batches():
            points = judge.answer(batch)
            spent |= {point.index: sum(tally.n for tally in point.tallies) for point in points}
            collected.add(points)
            if store is not None:
                store.add(points)
        return collected.finish(judge.kinds, spent=spent), judge.manifest.spec


@dataclass(frozen=True, slots=True)
class _Source:
    """What is known of a run before its points are judged. kinds: of its tallies. first: its first point.

    drawn: draws of the input that was sampled most.
    """

    name: str
    manifest: RunManifest
    kinds: Set[TallyKind]
    first: CertifiedPoint
    drawn: int


def _source_of_store(run: RunStore) -> _Source:
    indices, name = run.indices(), str(run.path)
    _check_can_recertify(run.manifest, name, inputs=len(indices))
    (first,) = run.points_of([min(indices)])
    return _Source(name, run.manifest, run.kinds(), first, run.furthest_draw())


@dataclass(slots=True)
class _Judge:
    """Answers the new question of stored points. manifest: of the new run. kinds: of its tallies.

    levels: the noise levels of the points so far, which must be one unless σ may vary.
    """

    name: str
    inquiry: Inquiry
    manifest: RunManifest
    kinds: Set[TallyKind]
    n: int | None
    levels: set[float] = field(default_factory=set)

    def answer(self, points: Sequence[CertifiedPoint]) -> list[CertifiedPoint]:
        _check_every_class(points, self.inquiry.portfolio, self.name)
        answers = self.inquiry.answer([stored_votes(point, self.inquiry, n=self.n) for point in points])
        self.levels |= {point.sigma for point in answers}
        check_levels(sorted(self.levels), self.inquiry.smoothing)
        return answers


def _make_judge(
    source: _Source, *, alpha: float | None, n: float | None, certificate: str | Sequence[str] | None, best_of: bool
) -> _Judge:
    manifest = source.manifest
    alpha = None if alpha is None else real_number(alpha, name="alpha")
    n = None if n is None else whole_number(n, name="n")
    spec = _change_spec(manifest.spec, alpha=alpha, n=n, certificate=certificate, best_of=best_of)
    portfolio = get_portfolio(spec.certificates, best_of=spec.best_of)
    _check_kinds(source.kinds, portfolio, source.name)
    inquiry = _make_inquiry(spec, portfolio, source, _smoothing_of(manifest, source.name), n=n)
    changed = msgspec.structs.replace(
        manifest,
        spec=spec,
        alpha_split=split_alpha_of(spec.question, portfolio, alpha=spec.alpha),
        recertified_from=to_json(manifest),
    )
    return _Judge(source.name, inquiry, changed, source.kinds, n)


def _check_can_recertify(manifest: RunManifest, name: str, *, inputs: int) -> None:
    if manifest.task == "predict":
        raise RunError(f"{name} is a {manifest.task} run; only the votes of a certify run can be certified again")
    if not inputs:
        raise RunError(f"{name} holds no finished input yet")
    if manifest.digests.memory is not None:
        raise RunError(
            f"the radii of {name} are regions that a memory has promised; no memory would promise another radius. "
            "Certify the inputs again: `smoothcert certify … --memory`"
        )


def _change_spec(
    spec: RunSpec, *, alpha: float | None, n: int | None, certificate: str | Sequence[str] | None, best_of: bool
) -> RunSpec:
    """As another task: such a run is complete, and must not be taken for one that sampled with this n."""
    portfolio = get_portfolio(spec.certificate_text if certificate is None else certificate, best_of=best_of)
    return msgspec.structs.replace(
        spec,
        task="recertify",
        alpha=spec.alpha if alpha is None else alpha,
        question=spec.question if n is None else msgspec.structs.replace(spec.question, n=n),
        certificates=tuple(one.name for one in portfolio.certificates),
        best_of=portfolio.best_of,
    )


def _make_inquiry(
    spec: RunSpec, portfolio: Portfolio, source: _Source, smoothing: Smoothing, *, n: int | None
) -> Inquiry:
    """The question of the run. Plain votes that are taken from pairs are half as many."""
    question = spec.question
    if not isinstance(question, FixedN):
        if n is not None and n > source.drawn:
            raise InputError(f"n={n} is not possible: no input was sampled further than {source.drawn}")
    elif n is not None:
        # Before n is judged: this error names the n at which the stored samples can be cut.
        first_samples([tally for tally in source.first.tallies if tally.stream.stage is Stage.ESTIMATION], n)
    if isinstance(question, FixedN) and portfolio.tally is TallyKind.VOTES and TallyKind.PAIRS in source.kinds:
        halved = msgspec.structs.replace(question, n=question.n // 2)
        check_question(halved, portfolio, alpha=spec.alpha, num_classes=smoothing.num_classes or 2)
    return make_inquiry(question, portfolio, alpha=spec.alpha, smoothing=smoothing)


def _smoothing_of(manifest: RunManifest, name: str) -> Smoothing:
    """What the manifest says about the smoothed classifier."""
    envelope: Envelope = ConstantSigma()
    if manifest.sigma is not None:
        envelope = _read_envelope(manifest.sigma.envelope, name)
    return describe_smoothing(
        envelope,
        dimension=math.prod(manifest.data.input_shape),
        num_classes=manifest.model.num_classes,
        noise=manifest.spec.noise.kind,
        grid=manifest.grid,
        scale=scale_of_run(manifest),
        dtype=manifest.spec.model.precision,
    )


def _read_envelope(document: dict[str, Any] | None, name: str) -> Envelope:
    if document is None:
        raise CorruptRunError(f"{name} does not state the envelope of its sigma, without which it was not certified")
    if document.get("kind") == "user":
        raise RunError(
            f"{name} was certified with a user-defined envelope, {document.get('name')!r}: a function, which a run "
            "cannot contain; so its votes cannot be certified again from the run alone"
        )
    try:
        return envelope_from_json(document)
    except (InputError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRunError(f"{name} does not state a valid envelope for its sigma: {error}") from error


def _check_kinds(sampled: Set[TallyKind], portfolio: Portfolio, name: str) -> None:
    """Plain votes can be taken from every tally; other kinds must have been sampled."""
    wanted = portfolio.certificates[0].name
    if portfolio.tally is not TallyKind.VOTES and sampled != {portfolio.tally}:
        raise RunError(
            f"{name} holds {' and '.join(sorted(sampled))}, but {portfolio} is computed from {portfolio.tally}: these "
            f"must be sampled, by `smoothcert certify --certificate {wanted}`"
        )


def _check_every_class(points: Sequence[CertifiedPoint], portfolio: Portfolio, name: str) -> None:
    """The gradients of all classes must have been sampled, if they are needed."""
    tallies = [tally for point in points for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION]
    if portfolio.every_class and not all(
        isinstance(tally, GradientTally) and tally.products.size == tally.num_classes + 1 for tally in tallies
    ):
        raise RunError(
            f"{name} holds the gradient of one class, but {portfolio} is computed from those of all: they must be "
            "sampled, by `smoothcert certify --certificate second-order-multi-class`"
        )

"""What must be read with the figures of a report: warnings, cautions and notes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smoothcert.analysis.metrics import same_inputs
from smoothcert.analysis.notes import count_inputs
from smoothcert.records import Outcome, RemarkCode, TallyKind
from smoothcert.report.sources import Source


class Weight(enum.StrEnum):
    """How important a notice is."""

    SERIOUS = "serious"
    CAUTION = "caution"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Notice:
    """title: the subject. text: the sentence. runs: which runs it is about, if the sentence does not name them."""

    weight: Weight
    title: str
    text: str
    runs: tuple[str, ...] = ()


_LOG = Notice(
    Weight.CAUTION, "log", "a log: its radii cannot be checked, because it does not contain the votes they come from."
)
_FLOAT_NOISE = Notice(
    Weight.SERIOUS,
    "float noise",
    "the noise was added in floating point, which is not sound: the theorems are about real numbers, and a model "
    "designed to look at the last bits of its input could invalidate these certificates. For ordinary models no such "
    "effect is known. 8-bit inputs get exact noise.",
)
_SHARED_NOISE = Notice(
    Weight.CAUTION,
    "shared noise",
    "all inputs shared their noise. Each certificate holds as stated, but many may be wrong together, so no statement "
    "about the whole test set holds with high probability.",
)
_HEURISTIC_SIGMA = Notice(
    Weight.SERIOUS,
    "heuristic σ",
    "σ was chosen for each input, and no bound is known on how it varies around an input: a different classifier is "
    "certified at every input.",
)
_REMEMBERED_SIGMA = Notice(
    Weight.CAUTION,
    "heuristic σ",
    "σ was chosen for each input without a bound on how it varies. The radii hold only because a memory keeps the "
    "promised regions, for as long as it is kept and consulted.",
)
_SELECTED_SIGMA = Notice(
    Weight.NOTE,
    "selected σ",
    "a second smoothed classifier, the selector, chooses σ from a short list. The radii hold without a memory: within "
    "them, every level that may be chosen answers the same class. α covers the selector and the levels together.",
)
_SEVERAL_CERTIFICATES = Notice(
    Weight.CAUTION,
    "several certificates",
    "several certificates were computed from the same samples. Each holds with its own error probability; choosing the "
    "larger radius afterwards is not covered (--best-of covers it).",
)
_RECERTIFIED = Notice(
    Weight.NOTE,
    "recertified",
    "recomputed from the votes of an earlier run. It holds if the changed setting (α, n or the certificate) was fixed "
    "before looking at the results; choosing the better of two such runs is not covered.",
)
_CHOSEN_SEED = Notice(
    Weight.NOTE,
    "chosen seed",
    "the seed of the noise was given, not drawn when the run started. The guarantee supposes that the seed was not "
    "selected among several, and that the model was not built for it.",
)
_INPUTS_DIFFER = Notice(
    Weight.CAUTION,
    "different inputs",
    "The runs contain different inputs, so their figures cannot be compared directly.",
)
_DATA_DIFFER = Notice(
    Weight.CAUTION,
    "different data",
    "The runs are about different data: inputs and classes with the same number are not the same.",
)
_NORMS_DIFFER = Notice(
    Weight.SERIOUS,
    "different norms",
    "The runs measure changes in different norms: their radii cannot be compared.",
)
_SEVERAL_RUNS = Notice(
    Weight.NOTE,
    "several runs",
    "Several runs are shown side by side. The best of them at each radius, chosen afterwards, is not a single "
    "classifier, and its error probability is not covered.",
)


def list_notices(sources: Sequence[Source], contradictions: Sequence[Notice]) -> list[Notice]:
    """Everything that must be read with the figures, the most serious first. A notice about several runs is merged."""
    # One source for each run directory or log.
    by_place = {source.place: source for source in reversed(sources)}
    notices = [
        replace(notice, runs=(source.run_name,))
        for source in reversed(by_place.values())
        for notice in _list_about_run(source)
    ]
    notices += [notice for source in sources for notice in _list_about_results(source)]
    notices += _list_about_all(sources)
    runs: dict[Notice, list[str]] = {}
    for notice in notices:
        runs.setdefault(replace(notice, runs=()), []).extend(notice.runs)
    merged = [replace(notice, runs=tuple(dict.fromkeys(names))) for notice, names in runs.items()]
    order = list(Weight)
    return sorted([*merged, *contradictions], key=lambda notice: order.index(notice.weight))


def _list_about_run(source: Source) -> list[Notice]:
    manifest = source.manifest
    if manifest is None:
        return [_LOG]
    selected = bool(source.selectable_levels)
    heuristic = manifest.sigma is not None and manifest.sigma.envelope is None and not selected
    conditions = [
        (_FLOAT_NOISE, manifest.grid is None),
        (_SHARED_NOISE, manifest.spec.noise.shared),
        (_HEURISTIC_SIGMA, heuristic and not source.has_memory),
        (_REMEMBERED_SIGMA, heuristic and source.has_memory),
        (_SELECTED_SIGMA, selected),
        (_SEVERAL_CERTIFICATES, source.has_several_certificates),
        (_RECERTIFIED, manifest.recertified_from is not None),
        (_CHOSEN_SEED, manifest.spec.seed is not None),
    ]
    return [notice for notice, applies in conditions if applies]


def _list_about_results(source: Source) -> list[Notice]:
    results = source.results
    notices = []
    if results.unfinished is not None:
        notices.append(Notice(Weight.CAUTION, "unfinished", str(results.unfinished)))
    failed = int(results.is_outcome(Outcome.FAILED).sum())
    if failed:
        text = f"{count_inputs(failed)} failed: no valid statement can be made about them."
        notices.append(Notice(Weight.CAUTION, "failures", text, (results.name,)))
    unanimous = count_unanimous(source)
    if unanimous:
        text = (
            f"{count_inputs(unanimous)} of {len(results):,} won every vote. This number of votes cannot prove a larger "
            "radius, so the curve falls steeply there; with more samples it would fall at a larger radius."
        )
        notices.append(Notice(Weight.NOTE, "waterfall", text, (results.name,)))
    remarks = [remark for remark in results.list_remarks() if remark.code is not RemarkCode.UNFINISHED]
    return notices + [Notice(Weight.NOTE, "about the run", str(remark)) for remark in remarks]


def _list_about_all(sources: Sequence[Source]) -> list[Notice]:
    if len(sources) < 2:
        return []
    data = {source.results.settings.get("data") for source in sources} - {None}
    conditions = [
        (_INPUTS_DIFFER, not same_inputs([source.results for source in sources])),
        (_DATA_DIFFER, len(data) > 1),
        (_NORMS_DIFFER, len({(source.results.norm, source.results.scale) for source in sources}) > 1),
        (_SEVERAL_RUNS, True),
    ]
    return [notice for notice, applies in conditions if applies]


def count_unanimous(source: Source) -> int | None:
    """How many certified inputs won every vote, so that this number of votes cannot prove a larger radius.

    None for logs, and if radii depend on more than votes or sampling stopped early.
    """
    results = source.results
    if source.manifest is None or not results.has_radius or results.most_samples is not None:
        return None
    if not source.kinds or source.kinds & {TallyKind.SCORES, TallyKind.GRADIENTS}:
        return None
    winners = np.array([source.unanimous.get(int(index), -1) for index in results.index])
    return int((results.is_outcome(Outcome.CERTIFIED) & (results.prediction == winners)).sum())

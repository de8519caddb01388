"""The first sentences of a report: the result, how it was obtained, and what is guaranteed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.analysis.metrics import certified_counts
from smoothcert.analysis.summary import Radii
from smoothcert.numerics.rounding import format_down_as_read, format_nearest
from smoothcert.records import Norm, Outcome, TallyKind
from smoothcert.report.gallery import picture_shape
from smoothcert.report.sources import Source
from smoothcert.runs.result_columns import ResultColumns

_LENGTHS = {
    Norm.L2: "ℓ₂ length (the root of the sum of squared changes)",
    Norm.L1: "ℓ₁ length (the sum of all changes)",
}
_ONE_COLOUR_PIXEL = {Norm.L2: "1.73", Norm.L1: "3"}


@dataclass(frozen=True, slots=True)
class Headline:
    """sentence: the result. how: what was done. guarantee: what the sentence guarantees, and what not.

    radius: that of the sentence, as in the table, or None. run: the number of the run that the sentence is about.
    """

    sentence: str
    how: str
    guarantee: str
    radius: str | None = None
    run: int = 0


def write_headline(sources: Sequence[Source], radii: Radii) -> Headline:
    """The result of the best run at a telling radius, in one sentence."""
    sentence, radius, about = _write_result(sources, radii)
    how, guarantee = _describe_method(sources), _describe_guarantee(sources)
    return Headline(sentence, how, guarantee, radius, run=next(k for k, one in enumerate(sources) if one is about))


def percent(count: int, total: int) -> str:
    """A share of inputs as in "94.0 %"; 100.0 % only if it is all of them. The space does not break."""
    nearest = format_nearest(100 * count / total, decimals=1)
    return f"{'99.9' if nearest == '100.0' and count < total else nearest}\N{NO-BREAK SPACE}%"


def _write_result(sources: Sequence[Source], radii: Radii) -> tuple[str, str | None, Source]:
    """The sentence, its radius, and the run that it is about."""
    certified = [source for source in sources if source.has_curve]
    if certified:
        return _write_certified(sources, certified, radii)
    first = sources[0]
    if first.results.has_radius:
        return _write_unlabelled(first), None, first
    which = f" (run {first.name})" if len(sources) > 1 else ""
    if first.results.labelled.all():
        correct = int(first.results.correct.sum())
        sentence = f"{_part(correct, first)} {_be(correct)} classified correctly by the smoothed classifier{which}"
    else:
        sentence = f"{_part(int(first.results.decided.sum()), first)} got an answer{which}"
    return f"{sentence}; no radii were computed.", None, first


def _write_certified(sources: Sequence[Source], certified: Sequence[Source], radii: Radii) -> tuple[str, str, Source]:
    # Radii in different norms cannot be compared.
    comparable = [source for source in certified if source.results.has_norm_of(certified[0].results)]
    text, best = _choose_radius(comparable, radii)
    results = best.results
    robust = int(certified_counts(results, radii[text]))
    rank = f", the best of {len(comparable)} at this radius" if len(comparable) > 1 else ""
    which = f" (run {best.name}{rank})" if len(sources) > 1 else ""
    if radii[text] == 0:
        return f"{_part(robust, best)} {_be(robust)} classified correctly{_why_none(results)}{which}.", text, best
    stay = "stays" if robust <= 1 else "stay"
    sentence = (
        f"{_part(robust, best)} {_be(robust)} classified correctly and provably {stay} so under every change smaller "
        f"than {text} ({results.norm_symbol} length){which}."
    )
    return sentence, text, best


def _why_none(results: ResultColumns) -> str:
    """Why nothing is certified, if that is so."""
    if (results.radius > 0).any():
        return ""
    if results.is_outcome(Outcome.FAILED).all():
        return ": the model gave no valid answer for any input"
    if not results.decided.any():
        return ": no vote was clear enough for an answer, so nothing is certified"
    return ", and nothing is certified"


def _part(count: int, source: Source) -> str:
    """As in "80 of 150 test inputs of digits (53.3 %)"."""
    number, manifest = len(source.results), source.manifest
    noun = "input" if number == 1 else "inputs"
    if manifest is not None:
        noun = f"{manifest.spec.data.split} {noun} of {manifest.data.name}"
    inputs = f"{number:,} {noun}"
    return f"{count:,} of {inputs} ({percent(count, number)})" if count else f"None of {inputs}"


def _be(count: int) -> str:
    return "is" if count <= 1 else "are"


def _choose_radius(certified: Sequence[Source], radii: Radii) -> tuple[str, Source]:
    """The largest radius of the table at which a run still certifies half of its inputs, and the best run there."""

    def share(source: Source, radius: float) -> float:
        if source.results.is_unknown_at(radius):
            return -1.0
        return int(certified_counts(source.results, radius)) / len(source.results)

    ascending = sorted(radii.items(), key=lambda item: item[1])
    best = [(text, max(certified, key=lambda s, r=radius: share(s, r))) for text, radius in ascending]  # type: ignore[misc]
    half = [(text, source) for text, source in best if share(source, radii[text]) >= 0.5]
    positive = [(text, source) for text, source in best if radii[text] > 0]
    return half[-1] if half and (radii[half[-1][0]] > 0 or not positive) else (positive or best)[0]


def _write_unlabelled(source: Source) -> str:
    results = source.results
    certified = int(results.is_outcome(Outcome.CERTIFIED).sum())
    have = "has" if certified <= 1 else "have"
    median = format_down_as_read(float(np.median(results.radius)), decimals=3)
    known = int(results.labelled.sum())
    return (
        f"{_part(certified, source)} {have} an answer that provably stays the same within some distance; for half of "
        f"all inputs that distance is at least {median} ({results.norm_symbol} length). Whether the answers are "
        "correct is " + (f"known for {known:,} of them only." if known else "not known: there are no labels.")
    )


def _describe_method(sources: Sequence[Source]) -> str:
    """What was done to each input; if the runs differ, everything that was done is listed."""
    stored = [source for source in sources if source.manifest is not None]
    if not stored:
        return "The figures are read from a log, which does not state how it was made."
    specs = [source.manifest.spec for source in sources if source.manifest is not None]
    noise = " or ".join(dict.fromkeys(spec.noise.kind.facts.title for spec in specs))
    most = "up to " if any(source.results.most_samples is not None for source in stored) else ""
    times = " or ".join(f"{n:,}" for n in sorted({spec.question.n for spec in specs}))
    how = "each time with fresh" if all(spec.noise.kind.sampled for spec in specs) else "with every outcome of"
    text = f"Each input was classified {most}{times} times, {how} {noise} noise of {_levels(stored)}"
    text += _mention_scales(stored)
    if all(TallyKind.SCORES in source.kinds for source in stored):
        text += (
            ", and the scores of each answer were averaged. The final answer is the one with the largest mean; the "
            "larger its lead, the further the input can be moved before another answer could win."
        )
    else:
        text += (
            ", and the answers were counted. The final answer is the one that wins this vote; the more one-sided the "
            "vote, the further the input can be moved before another answer could win."
        )
    if any(source.selectable_levels for source in stored):
        text += (
            " The level was chosen by the vote of a second smoothed classifier, the selector; the answers at the other "
            "levels that it may choose were counted too."
        )
    names = ", ".join(dict.fromkeys(spec.certificate_text for spec in specs if spec.certificates))
    if names and names != "gaussian":
        text += f" The radii follow from the theorems called {names}."
    if any(source.has_memory for source in stored):
        text += " An input in a region that was promised before got the answer promised there."
    if any(source.results.decided_radii for source in stored):
        text += " Only some radii were decided."
    return text if len(stored) == len(sources) else f"{text} How the logs among them were made is not known."


def _mention_scales(sources: Sequence[Source]) -> str:
    scaled = [source.name for source in sources if source.results.scale is not None]
    if not scaled:
        return ""
    which = "" if len(scaled) == len(sources) else f" in {', '.join(scaled)}"
    return f" times the scale of each feature{which}"


def _levels(sources: Sequence[Source]) -> str:
    """As in "level σ = 0.25", over all runs."""
    known = np.unique(np.concatenate([source.levels for source in sources]))
    if not known.size:
        return "a level that is not recorded"
    if any(np.unique(source.levels).size > 1 for source in sources):
        return f"a level σ that depends on the input ({known[0]:.3g} to {known[-1]:.3g})"
    symbols = {source.noise.facts.level_symbol for source in sources}
    *others, last = [f"{level:g}" for level in known]
    together = f"{', '.join(others)} or {last}" if others else last
    return f"level {symbols.pop() if len(symbols) == 1 else 'σ'}\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{together}"


def _describe_guarantee(sources: Sequence[Source]) -> str:
    certified = [source for source in sources if source.results.has_radius]
    if not certified:
        alphas = _alphas(sources)
        text = f"Each answer is wrong about the vote with probability at most {alphas[-1]}." if alphas else ""
        return f"{text} {_list_unknown_alphas(sources)}".strip()
    size = " and ".join(dict.fromkeys(_name_length(source.results) for source in certified))
    wrong = " or ".join(map(str, _alphas(certified)))
    text = f"The size of a change is its {size}."
    if wrong:
        kinds = dict.fromkeys("the mean score" if TallyKind.SCORES in s.kinds else "the vote" for s in certified)
        decision = " or ".join(kinds)
        text += (
            f" {compare_with_pixel(sources)}{_state_error(certified, wrong)}{_list_suppositions(certified)}. It "
            "assumes that the model answers each noisy input by itself; apart from that and the warnings below, "
            "nothing is assumed about the model or the attacker. It is about the smoothed classifier "
            f"({decision}), not about the bare model: deploy {decision}. It states that the answer stays the same, not "
            "that it is correct."
        )
    return f"{text} {_list_unknown_alphas(certified)}".strip()


def _state_error(sources: Sequence[Source], wrong: str) -> str:
    """How the statement about one input may be wrong. wrong: its probabilities."""
    if any(source.noise.sampled for source in sources):
        return (
            f"The statement about one input is wrong with probability at most {wrong}, by bad luck in the noise that "
            "was drawn"
        )
    steps = " or ".join(dict.fromkeys(f"1/{source.grid - 1}" for source in sources if source.grid is not None))
    return (
        "The statement about one input is certain, for inputs whose values are multiples of "
        f"{steps}: every evaluation that there is was made, and no probability is involved"
    )


def _name_length(results: ResultColumns) -> str:
    text = _LENGTHS[results.norm]
    if results.scale is None:
        return text
    return f"scaled {text.removesuffix(')')}, after the change of each feature was divided by its scale)"


def _alphas(sources: Sequence[Source]) -> list[float]:
    return sorted({source.results.alpha for source in sources if source.results.alpha is not None})


def _list_unknown_alphas(sources: Sequence[Source]) -> str:
    """A sentence about sources that do not state their error probability, or nothing."""
    silent = [source.name for source in sources if source.results.alpha is None]
    if not silent:
        return ""
    do = "does" if len(silent) == 1 else "do"
    return f"{', '.join(silent)} {do} not state an error probability."


def _list_suppositions(sources: Sequence[Source]) -> str:
    """What the guarantee supposes in addition; the warnings have the details."""
    supposed = []
    if any(source.manifest is not None and source.grid is None for source in sources):
        supposed.append("that noise added in floating point is as good as ideal noise")
    if any(source.has_memory for source in sources):
        supposed.append("that the memory of promised regions is kept and consulted")
    return f", and supposes {' and '.join(supposed)} (see the warnings)" if supposed else ""


def compare_with_pixel(sources: Sequence[Source]) -> str:
    """A sentence that compares a radius with one pixel, if all inputs are pictures of one kind; else empty."""
    sizes = {_size_of_one_pixel(source) for source in sources}
    size = sizes.pop() if len(sizes) == 1 else None
    return "" if size is None else f"For scale: turning one pixel from black to white is a change of size {size}. "


def _size_of_one_pixel(source: Source) -> str | None:
    dataset = source.inputs.dataset
    shape = None if dataset is None else picture_shape(dataset.input_shape)
    if dataset is None or shape is None or dataset.input_range != (0.0, 1.0):
        return None
    return "1" if len(shape) == 2 else _ONE_COLOUR_PIXEL[source.results.norm]

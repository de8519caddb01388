"""The sentences of a report: what was certified, how, with what guarantee; and what a reader must be warned of."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smoothcert.analysis.comparison import Comparison
from smoothcert.analysis.metrics import certified_counts, same_inputs
from smoothcert.analysis.summary import Radii
from smoothcert.numerics.rounding import format_down_as_read, format_nearest
from smoothcert.records import Norm, Outcome, TallyKind
from smoothcert.report.gallery import picture_shape
from smoothcert.report.sources import Source
from smoothcert.runs.results import Results

NORMS = {Norm.L2: "ℓ₂", Norm.L1: "ℓ₁"}
_LENGTHS = {
    Norm.L2: "ℓ₂ length (the root of the sum of squared changes)",
    Norm.L1: "ℓ₁ length (the sum of all changes)",
}


class Weight(enum.StrEnum):
    """How much a remark matters."""

    SERIOUS = "serious"
    CAUTION = "caution"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence with its weight. title: what it is about; runs: whom, where the sentence does not say it itself."""

    weight: Weight
    title: str
    text: str
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """sentence: the result, for anyone. how: what was done. guarantee: what the sentence promises, and what not.

    radius: the one the sentence speaks of, as the table has it; None where it speaks of none.
    """

    sentence: str
    how: str
    guarantee: str
    radius: str | None = None


def percent(count: int, total: int) -> str:
    """A share of inputs to one decimal, as in "94.0 %"; 100.0 % only where it is all of them. The space does not
    break."""
    nearest = format_nearest(100 * count / total, decimals=1)
    return f"{'99.9' if nearest == '100.0' and count < total else nearest}\N{NO-BREAK SPACE}%"


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def headline(sources: Sequence[Source], radii: Radii) -> Headline:
    """In one sentence what the best of the runs achieves at a telling radius."""
    certified = [s for s in sources if s.has_curve]
    if certified:
        return _certified_headline(sources, certified, radii)
    first = sources[0]
    if first.results.has_radius:
        return Headline(_unlabelled_sentence(first), _how(sources), _guarantee(sources))
    answered = int(first.results.decided.sum())
    which = f" (run {first.name})" if len(sources) > 1 else ""
    sentence = f"{_part(answered, first)} got an answer{which}; how far the inputs may be changed was not asked."
    if first.results.labelled.all():
        right = int(first.results.correct.sum())
        sentence = (
            f"{_part(right, first)} {_be(right)} classified correctly by the smoothed classifier{which}; how far the "
            "inputs may be changed was not asked."
        )
    return Headline(sentence, _how(sources), _guarantee(sources))


def _certified_headline(sources: Sequence[Source], certified: Sequence[Source], radii: Radii) -> Headline:
    # Radii in different norms are of different things: none of them is the better one.
    comparable = [source for source in certified if source.results.norm is certified[0].results.norm]
    text, best = _telling(comparable, radii)
    results = best.results
    held = int(certified_counts(results, radii[text]))
    chosen = f", the best of {len(comparable)} at this radius" if len(comparable) > 1 else ""
    which = f" (run {best.name}{chosen})" if len(sources) > 1 else ""
    if radii[text] == 0:
        sentence = f"{_part(held, best)} {_be(held)} classified correctly{_but(results)}{which}."
    else:
        stay = "stays" if held <= 1 else "stay"
        sentence = (
            f"{_part(held, best)} {_be(held)} classified correctly and provably {stay} so under every change smaller "
            f"than {text} ({NORMS[results.norm]} length), whoever makes it{which}."
        )
    return Headline(sentence, _how(sources), _guarantee(sources), text)


def _but(results: Results) -> str:
    """Why so little is certified, where nothing is."""
    if (results.radius > 0).any():
        return ""
    if results.is_outcome(Outcome.FAILED).all():
        return ": the model gave no valid answer for any input"
    if not results.decided.any():
        return ": no vote was clear enough for an answer, so nothing is certified"
    return ", and nothing is certified"


def _part(count: int, source: Source) -> str:
    """As in "80 of 150 test inputs of digits (53.3 %)"."""
    of = _inputs(source)
    return f"{count:,} of {of} ({percent(count, len(source.results))})" if count else f"None of {of}"


def _be(count: int) -> str:
    return "is" if count <= 1 else "are"


def _telling(certified: Sequence[Source], radii: Radii) -> tuple[str, Source]:
    """The largest radius in the table at which some run still holds half of its inputs, and the best run there."""

    def share(source: Source, radius: float) -> float:
        if source.results.says_nothing_of(radius):
            return -1.0
        return int(certified_counts(source.results, radius)) / len(source.results)

    ascending = sorted(radii.items(), key=lambda item: item[1])
    at = [(text, max(certified, key=lambda s, r=radius: share(s, r))) for text, radius in ascending]  # type: ignore[misc]
    half = [(text, source) for text, source in at if share(source, radii[text]) >= 0.5]
    positive = [(text, source) for text, source in at if radii[text] > 0]
    return half[-1] if half and (radii[half[-1][0]] > 0 or not positive) else (positive or at)[0]


def _unlabelled_sentence(source: Source) -> str:
    results = source.results
    certified = results.radius[results.is_outcome(Outcome.CERTIFIED)]
    median = format_down_as_read(float(np.median(results.radius)), decimals=3)
    has = "has" if certified.size <= 1 else "have"
    known = int(results.labelled.sum())
    return (
        f"{_part(certified.size, source)} {has} an answer that provably stays the same within some distance; for half "
        f"of all inputs that distance is at least {median} ({NORMS[results.norm]} length). Whether the answers are "
        "right is " + (f"known for {known:,} of them only." if known else "not known: there are no labels.")
    )


def _inputs(source: Source) -> str:
    """As in "150 test inputs of digits"."""
    number = len(source.results)
    if source.manifest is None:
        return counted(number, "input")
    data = source.origin.get("data")
    split = source.parameters.get("split")
    inputs = f"{split} input" if isinstance(split, str) else "input"
    return counted(number, inputs) + (f" of {data}" if isinstance(data, str) else "")


def _how(sources: Sequence[Source]) -> str:
    """What was done to each input, in words; where runs differ, all that was done is listed."""
    stored = [source for source in sources if source.manifest is not None]
    if not stored:
        return "The figures are read from a log, which says neither how it was made nor what it rests on."
    noise = " or ".join(dict.fromkeys(s.noise.facts.title for s in stored))
    told = f"Each input was shown to the model {_times(stored)}, each time with fresh {noise} noise of "
    told += f"{_levels(stored)} added, and "
    if all(TallyKind.SCORES in s.kinds for s in stored):
        told += (
            "the scores of each answer were averaged. The answer given is the one with the largest mean; the further "
            "ahead it is, the further the input can be moved before another answer could win."
        )
    else:
        told += (
            "the answers were counted. The answer given is the one that wins this vote; the more one-sided the vote, "
            "the further the input can be moved before another answer could win."
        )
    names = _certificates(stored)
    if names and names != "gaussian":
        told += f" The radii follow by the theorems called {names}."
    if any("memory" in s.parameters for s in stored):
        told += " An input in a region that was promised before got the answer promised there."
    if any("decide" in s.parameters for s in stored):
        told += " Only some radii were asked about."
    return told if len(stored) == len(sources) else told + " How the logs among them were made is not known."


def _times(stored: Sequence[Source]) -> str:
    """As in "1,000 or 10,000 times", over all runs."""
    numbers = {n for source in stored if type(n := source.parameters.get("n")) is int}
    if not numbers:
        return "many times"
    most = "up to " if any(source.results.most_samples is not None for source in stored) else ""
    return f"{most}{' or '.join(f'{n:,}' for n in sorted(numbers))} times"


def _certificates(sources: Sequence[Source]) -> str:
    stated = [str(s.parameters["certificate"]) for s in sources if "certificate" in s.parameters]
    return ", ".join(dict.fromkeys(stated))


def _levels(sources: Sequence[Source]) -> str:
    """As in "level σ = 0.25", over all runs."""
    known = np.concatenate([s.levels for s in sources])
    if not known.size:
        return "a level that is not recorded"
    distinct = np.unique(known)
    varies = any(np.unique(s.levels).size > 1 for s in sources)
    if varies:
        return f"a level σ that depends on the input ({distinct[0]:.3g} to {distinct[-1]:.3g})"
    listed = [f"{level:g}" for level in distinct]
    symbols = {s.noise.facts.level_symbol for s in sources}
    name = symbols.pop() if len(symbols) == 1 else "σ"
    *others, last = listed
    together = f"{', '.join(others)} or {last}" if others else last
    return f"level {name}\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{together}"


def _guarantee(sources: Sequence[Source]) -> str:
    certified = [s for s in sources if s.results.has_radius]
    if not certified:
        alphas = _alphas(sources)
        sure = f"Each answer is wrong about the vote with probability at most {alphas[-1]}." if alphas else ""
        return f"{sure} {_unsure(sources)}".strip()
    size = " and ".join(dict.fromkeys(_LENGTHS[s.results.norm] for s in certified))
    wrong = " or ".join(map(str, _alphas(certified)))
    if not wrong:
        return f"The size of a change is its {size}. {_unsure(certified)}"
    said = (
        f"The size of a change is its {size}. {one_pixel(sources, before='For scale: ')}The statement about one input "
        f"is wrong with probability at most {wrong}, by bad luck in the noise that was drawn{_but_for(certified)}. It "
        "takes for granted that the model answers each noisy input by itself; beyond that and what is said below, "
        "nothing is assumed about the model or the attacker. It is about the smoothed classifier "
        f"({_decision(certified)}), not about the bare model: deploy {_decision(certified)}. It says that the answer "
        "stays the same, not that it is right."
    )
    return f"{said} {_unsure(certified)}".strip()


def _alphas(sources: Sequence[Source]) -> list[float]:
    return sorted({s.results.alpha for s in sources if s.results.alpha is not None})


def _unsure(sources: Sequence[Source]) -> str:
    """A sentence about sources that do not say how sure they are; empty if there are none."""
    silent = [s.name for s in sources if s.results.alpha is None]
    if not silent:
        return ""
    whose = "" if len(silent) == len(sources) else f" of {', '.join(silent)}"
    return f"How sure each statement{whose} is, the source does not say."


def _decision(sources: Sequence[Source]) -> str:
    """How the smoothed classifier decides."""
    kinds = dict.fromkeys("the mean score" if TallyKind.SCORES in s.kinds else "the vote" for s in sources)
    return " or ".join(kinds)


def _but_for(sources: Sequence[Source]) -> str:
    """What the guarantee supposes besides luck; the warnings say more."""
    supposed = []
    if any(s.manifest is not None and s.grid is None for s in sources):
        supposed.append("that noise added in floating point is as good as ideal noise")
    if any("memory" in s.parameters for s in sources):
        supposed.append("that the memory of promised regions is kept and consulted")
    return f", and supposes {' and '.join(supposed)} (see the warnings)" if supposed else ""


def one_pixel(sources: Sequence[Source], *, before: str = "") -> str:
    """A sentence with something to compare a radius with, where all inputs are pictures of one kind; else empty."""
    sizes = {_size_of_one_pixel(source) for source in sources}
    size = sizes.pop() if len(sizes) == 1 else None
    return "" if size is None else f"{before}turning one pixel from black to white is a change of size {size}. "


def _size_of_one_pixel(source: Source) -> str | None:
    dataset = source.inputs.dataset
    shape = None if dataset is None else picture_shape(dataset.input_shape)
    if dataset is None or shape is None or dataset.input_range != (0.0, 1.0):
        return None
    if len(shape) == 2:
        return "1"
    return "1.73" if source.results.norm is Norm.L2 else "3"


CONTRADICTION = "CONTRADICTION: "
"""How `compare` begins what two runs cannot both be right about."""


def contradictions(comparison: Comparison) -> list[Remark]:
    """What two runs cannot both be right about; A is the first of the runs named, B the second."""
    runs = (comparison.name_a, comparison.name_b)
    return [
        Remark(
            Weight.SERIOUS,
            "contradiction",
            note.removeprefix(CONTRADICTION).replace("by A and B", "by the two"),
            runs,
        )
        for note in comparison.notes
        if note.startswith(CONTRADICTION)
    ]


def remarks(sources: Sequence[Source], contradicting: Sequence[Remark]) -> list[Remark]:
    """All that must be read with the figures, the most serious first. contradicting: what `contradictions` found."""
    found = [remark for source in _by_place(sources) for remark in _about_place(source)]
    found += [remark for source in sources for remark in _about_results(source)]
    found += _about_all(sources)
    order = list(Weight)
    return sorted([*_merged(found), *contradicting], key=lambda remark: order.index(remark.weight))


def _merged(found: Sequence[Remark]) -> list[Remark]:
    """The same sentence about several runs is said once."""
    runs: dict[Remark, list[str]] = {}
    for remark in found:
        runs.setdefault(replace(remark, runs=()), []).extend(remark.runs)
    return [replace(remark, runs=tuple(dict.fromkeys(names))) for remark, names in runs.items()]


def _by_place(sources: Sequence[Source]) -> list[Source]:
    """One source for each run directory or log."""
    return list({source.place: source for source in reversed(sources)}.values())[::-1]


def _about_place(source: Source) -> list[Remark]:
    place, parameters = source.run_name, source.parameters
    found = []
    if source.manifest is None:
        text = "a log: its radii cannot be checked, because the votes behind them are not in it."
        return [Remark(Weight.CAUTION, "log", text, (place,))]
    if source.grid is None:
        found.append(
            Remark(
                Weight.SERIOUS,
                "float noise",
                "the noise was added in floating point, which is not sound: the theorems speak of real numbers, and a "
                "model made to look at the last bits of its input could void these certificates. For ordinary models "
                "no such effect is known. 8-bit inputs get exact noise.",
                (place,),
            )
        )
    if parameters.get("independent_noise") is False:
        found.append(
            Remark(
                Weight.CAUTION,
                "shared noise",
                "all inputs shared their noise. Each certificate holds as stated, but many may be wrong together, so "
                "nothing is said about the whole test set with high probability.",
                (place,),
            )
        )
    if "sigma_rule" in parameters and parameters.get("envelope") is None:
        found.append(_heuristic_sigma(place, remembered="memory" in parameters))
    if len(source.certificates) > 1:
        found.append(
            Remark(
                Weight.CAUTION,
                "several certificates",
                "several certificates were computed from the same samples. Each holds with its own error probability; "
                "taking the larger radius of them after looking is not paid for (--best-of pays for it).",
                (place,),
            )
        )
    if source.recertified:
        found.append(
            Remark(
                Weight.NOTE,
                "recertified",
                "computed anew from the votes of an earlier run. It holds if what was changed (α, n or the "
                "certificate) was settled before looking at the results; the better of two such runs is not paid for.",
                (place,),
            )
        )
    if source.job.get("seed") is not None:
        found.append(
            Remark(
                Weight.NOTE,
                "chosen seed",
                "the seed of the noise was chosen, not drawn when the run began. The guarantee supposes that whoever "
                "chose it did not try several, nor built the model to it.",
                (place,),
            )
        )
    return found


def _heuristic_sigma(place: str, *, remembered: bool) -> Remark:
    if remembered:
        return Remark(
            Weight.CAUTION,
            "heuristic σ",
            "σ was picked for each input without a bound on how it varies. The radii hold only because a memory keeps "
            "the regions promised, for as long as it lives and is consulted.",
            (place,),
        )
    return Remark(
        Weight.SERIOUS,
        "heuristic σ",
        "σ was picked for each input, and nothing bounds how it varies around an input: the classifier that is "
        "certified is another one at every input.",
        (place,),
    )


def _about_results(source: Source) -> list[Remark]:
    results = source.results
    found = []
    if results.unfinished is not None:
        found.append(Remark(Weight.CAUTION, "unfinished", results.unfinished))
    failed = int(results.is_outcome(Outcome.FAILED).sum())
    if failed:
        text = f"{counted(failed, 'input')} failed: nothing valid can be said about them."
        found.append(Remark(Weight.CAUTION, "failures", text, (results.name,)))
    if (ceiling := at_ceiling(source)) is not None and ceiling:
        found.append(
            Remark(
                Weight.NOTE,
                "waterfall",
                f"{counted(ceiling, 'input')} of {len(results):,} won every single vote. So many votes cannot prove a "
                "larger radius, so the curve falls steeply there; more samples would move that cliff to the right.",
                (results.name,),
            )
        )
    told = (note for note in (results.winners, results.unusual_norm, *results.remarks) if note is not None)
    return found + [Remark(Weight.NOTE, "about the run", note) for note in told]


def _about_all(sources: Sequence[Source]) -> list[Remark]:
    if len(sources) < 2:
        return []
    found = []
    if not same_inputs([source.results for source in sources]):
        text = "The runs cover different inputs, so their figures cannot be compared directly."
        found.append(Remark(Weight.CAUTION, "different inputs", text))
    if len({data for source in sources if (data := source.results.settings.get("data")) is not None}) > 1:
        text = "The runs are about different data: neither inputs nor classes with the same number are the same."
        found.append(Remark(Weight.CAUTION, "different data", text))
    if len({source.results.norm for source in sources}) > 1:
        text = "The runs measure changes in different norms: their radii cannot be compared."
        found.append(Remark(Weight.SERIOUS, "different norms", text))
    text = (
        "Several runs are shown side by side. Picking the best of them for each radius afterwards describes no single "
        "classifier, and its error probability is not paid for."
    )
    return [*found, Remark(Weight.NOTE, "several runs", text)]


def at_ceiling(source: Source) -> int | None:
    """How many certified inputs won every vote: as many votes cannot prove a larger radius.

    None where that is not so: something else than votes is bounded too, or sampling stopped early. None for logs, too.
    """
    results = source.results
    if source.manifest is None or not results.has_radius or results.most_samples is not None:
        return None
    if not source.kinds or source.kinds & {TallyKind.SCORES, TallyKind.GRADIENTS}:
        return None
    won = [source.unanimous.get(int(index), -1) for index in results.index]
    return int((results.is_outcome(Outcome.CERTIFIED) & (results.prediction == np.array(won))).sum())

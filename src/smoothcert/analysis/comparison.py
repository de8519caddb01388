"""Compare two runs input by input: the certified radii of A relative to those of the baseline B.

As in figures 5 and 6 of Levine et al. (2021), an input counts if at least one of the runs certifies it, by default
correctly. The ratio of radii is taken where both certify the same class. All numbers are statistics of the runs. In
print, radii and their means are rounded down, ratios to nearest. Logs often have radii of three digits, so equal radii
are common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.analysis.confidence import PADistribution, summarise_p_a, warn_of_acr
from smoothcert.analysis.metrics import common_inputs
from smoothcert.analysis.notes import Note, NoteCode
from smoothcert.analysis.tables import Cell, Column, Kind, Table, p_a_table
from smoothcert.errors import RunError
from smoothcert.records import FloatArray, IntArray, Norm, Outcome, Remark
from smoothcert.records.feature_scale import FeatureScale, name_norm
from smoothcert.runs.result_columns import NO_CLASS, BoolArray, ResultColumns

if TYPE_CHECKING:
    import pandas

# A quotient of floats can overflow. With this limit the sums and percentages of every run are finite.
_LARGEST_RATIO = 1e280
_QUANTILES = {
    "ratio_min": 0.0,
    "ratio_q05": 0.05,
    "ratio_q25": 0.25,
    "ratio_median": 0.5,
    "ratio_q75": 0.75,
    "ratio_q95": 0.95,
    "ratio_max": 1.0,
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """The m inputs that count, by ascending index. Columns have shape (m,); both runs contain every one of them.

    It prints as the tables of `smoothcert compare`, and as HTML in a notebook.

    label              int64, NO_CLASS where neither run has one.
    class_a, class_b   int64, the certified class, correct or not; NO_CLASS where the run certifies none.
    radius_a, radius_b float64, the radius certified for that class; 0 where there is none.
    common             number of inputs in both runs, counted or not.
    wrong_too          whether wrong certified classes count like correct ones.
    p_a                by name of the run, the distribution of p_A over the common inputs; None if it is not known.
    notes              what must be read with the numbers; `str` gives the sentence.
    """

    name_a: str
    name_b: str
    norm: Norm
    norm_symbol: str
    scale: FeatureScale | None
    index: IntArray
    label: IntArray
    class_a: IntArray
    class_b: IntArray
    radius_a: FloatArray
    radius_b: FloatArray
    common: int
    wrong_too: bool
    p_a: Mapping[str, PADistribution | None]
    notes: tuple[Note | Remark, ...]

    def __len__(self) -> int:
        return int(self.index.size)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The counts of inputs, the mean radii of the runs, the ratios, and the distributions of p_A, if known."""
        distributions = p_a_table(self.p_a)
        tables = comparison_tables(summarise_comparison(self), notes=self.notes)
        return tables if distributions is None else (*tables, distributions)

    def to_frame(self) -> pandas.DataFrame:
        """A pandas frame with one row for every input that counts."""
        return inputs_table(self).to_frame()

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self.tables))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables)

    @property
    def credited_a(self) -> FloatArray:
        """A's radii, 0 where it certifies nothing or, unless wrong classes count, a wrong class."""
        return np.where(_counts(self.class_a, self.label, wrong_too=self.wrong_too), self.radius_a, 0.0)

    @property
    def credited_b(self) -> FloatArray:
        """B's radii, as `credited_a`."""
        return np.where(_counts(self.class_b, self.label, wrong_too=self.wrong_too), self.radius_b, 0.0)

    @property
    def both(self) -> BoolArray:
        """Where the runs certify the same class, so that a ratio exists.

        Every input is in exactly one of `both`, `only_a`, `only_b` and `conflicting`.
        """
        return np.asarray((self.class_a == self.class_b) & (self.radius_a > 0))

    @property
    def only_a(self) -> BoolArray:
        return np.asarray(self.radius_b == 0)

    @property
    def only_b(self) -> BoolArray:
        return np.asarray(self.radius_a == 0)

    @property
    def conflicting(self) -> BoolArray:
        """Where the runs certify different classes."""
        return np.asarray((self.class_a != self.class_b) & (self.radius_a > 0) & (self.radius_b > 0))

    @property
    def ratio(self) -> FloatArray:
        """Radius of A over radius of B, at most 1e280; nan where not `both`; 1 exactly where the radii are equal."""
        quotient = np.full(len(self), np.nan)
        with np.errstate(over="ignore", under="ignore"):
            np.divide(self.radius_a, self.radius_b, out=quotient, where=self.both)
        return np.asarray(np.minimum(quotient, _LARGEST_RATIO), dtype=np.float64)

    @property
    def increase_percent(self) -> FloatArray:
        """100 · (ratio − 1) over the inputs of `both` only."""
        return np.asarray(100.0 * (self.ratio[self.both] - 1.0), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ComparisonSummary:
    """The numbers of a comparison in full precision; None where no input has them.

    Of the `common` inputs `counted` = both + only_a + only_b + conflicting, and both = a_larger + b_larger + equal.
    mean_radius: over the counted inputs, 0 where the run certifies nothing that counts. mean_radius_both and ratio:
    over the inputs of `both`. share_larger = a_larger / both.
    """

    run_a: str
    run_b: str
    norm: str
    wrong_too: bool
    common: int
    counted: int
    both: int
    only_a: int
    only_b: int
    conflicting: int
    a_larger: int
    b_larger: int
    equal: int
    mean_radius_a: float | None
    mean_radius_b: float | None
    mean_radius_both_a: float | None
    mean_radius_both_b: float | None
    ratio_mean: float | None
    ratio_geometric_mean: float | None
    ratio_min: float | None
    ratio_q05: float | None
    ratio_q25: float | None
    ratio_median: float | None
    ratio_q75: float | None
    ratio_q95: float | None
    ratio_max: float | None
    share_larger: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(a: ResultColumns, b: ResultColumns, *, wrong_too: bool = False) -> Comparison:
    """Match two runs by input index. RunError if they cannot be compared.

    An input counts if at least one run certifies its label, or any class if it has no label. wrong_too: if at least one
    run certifies any class.
    """
    for run in (a, b):
        if not run.has_radius:
            raise RunError(f"{run.name} has predictions without radii; expected two certified runs to compare")
    if a.norm is not b.norm:
        raise RunError(
            f"{a.name} has radii in {a.norm.value} and {b.name} in {b.norm.value}: they have no ratio; compare runs of "
            "one norm"
        )
    if not a.has_norm_of(b):
        raise RunError(
            f"{a.name} and {b.name} have radii in norms of different scales of the features: they have no ratio; "
            "compare runs with the same --sigma-scale"
        )
    on_a, on_b = common_inputs([a, b])
    label = _common_labels(on_a, on_b)
    class_a, class_b = _certified_class(on_a), _certified_class(on_b)
    counted = _counts(class_a, label, wrong_too=wrong_too) | _counts(class_b, label, wrong_too=wrong_too)
    return Comparison(
        name_a=a.name,
        name_b=b.name,
        norm=a.norm,
        norm_symbol=a.norm_symbol,
        scale=a.scale,
        index=on_a.index[counted],
        label=label[counted],
        class_a=class_a[counted],
        class_b=class_b[counted],
        radius_a=on_a.radius[counted],
        radius_b=on_b.radius[counted],
        common=len(on_a),
        wrong_too=wrong_too,
        p_a={f"A: {a.name}": summarise_p_a(on_a), f"B: {b.name}": summarise_p_a(on_b)},
        notes=tuple(_list_notes(a, b, on_a, on_b)),
    )


def summarise_comparison(comparison: Comparison) -> ComparisonSummary:
    """Counts, means and quantiles (linear between order statistics) of a comparison."""
    both = comparison.both
    radius_a, radius_b = comparison.radius_a[both], comparison.radius_b[both]
    ratio = comparison.ratio[both]
    quantiles: dict[str, float | None] = dict.fromkeys(_QUANTILES)
    if ratio.size:
        quantiles = dict(zip(_QUANTILES, np.quantile(ratio, list(_QUANTILES.values())).tolist(), strict=True))
    larger, smaller = int((radius_a > radius_b).sum()), int((radius_a < radius_b).sum())
    return ComparisonSummary(
        run_a=comparison.name_a,
        run_b=comparison.name_b,
        norm=name_norm(comparison.norm.value, comparison.scale),
        wrong_too=comparison.wrong_too,
        common=comparison.common,
        counted=len(comparison),
        both=ratio.size,
        only_a=int(comparison.only_a.sum()),
        only_b=int(comparison.only_b.sum()),
        conflicting=int(comparison.conflicting.sum()),
        a_larger=larger,
        b_larger=smaller,
        equal=ratio.size - larger - smaller,
        mean_radius_a=_mean(comparison.credited_a),
        mean_radius_b=_mean(comparison.credited_b),
        mean_radius_both_a=_mean(radius_a),
        mean_radius_both_b=_mean(radius_b),
        ratio_mean=_mean(ratio),
        ratio_geometric_mean=_geometric_mean(radius_a, radius_b),
        share_larger=larger / ratio.size if ratio.size else None,
        **quantiles,
    )


_COUNTS = {
    "common": "common",
    "counted": "counted",
    "both": "both",
    "only_a": "only A",
    "only_b": "only B",
    "conflicting": "conflicting",
    "a_larger": "A larger",
    "b_larger": "B larger",
    "equal": "equal",
}
_RATIOS = {
    "ratio_mean": "A/B mean",
    "ratio_geometric_mean": "geometric",
    "ratio_min": "least",
    "ratio_q05": "5 %",
    "ratio_q25": "25 %",
    "ratio_median": "median",
    "ratio_q75": "75 %",
    "ratio_q95": "95 %",
    "ratio_max": "most",
    "share_larger": "> 1",
}


def comparison_tables(summary: ComparisonSummary, *, notes: Sequence[Note | Remark] = ()) -> tuple[Table, Table, Table]:
    """Three tables: the counts of inputs, the mean radii of the runs, the ratios."""
    manner = "" if summary.wrong_too else " correctly"
    explanations = (
        f"counted: certified{manner} by at least one run; both: as the same class.",
        "A larger, B larger, equal: the radii of those that both certify.",
    )
    radii = Table(
        columns=(
            Column("run", "run", Kind.NAME),
            Column("mean_radius", "mean radius", Kind.LOWER, best=True),
            Column("mean_radius_both", "mean radius where both certify", Kind.LOWER, best=True),
        ),
        rows=(
            (f"A: {summary.run_a}", summary.mean_radius_a, summary.mean_radius_both_a),
            (f"B: {summary.run_b}", summary.mean_radius_b, summary.mean_radius_both_b),
        ),
    )
    counts = _one_row(summary, _COUNTS, notes=explanations)
    return counts, radii, _one_row(summary, _RATIOS, notes=tuple(map(str, notes)))


def flat_table(summary: ComparisonSummary) -> Table:
    """The whole summary as one row, for programs."""
    return _one_row(summary, {field.name: field.name for field in fields(summary)})


def inputs_table(comparison: Comparison) -> Table:
    """One row for every input that counts. The ratio exists where both runs certify the same class."""
    columns = (
        Column("index", "index", Kind.COUNT),
        Column("label", "label", Kind.COUNT),
        Column("class_a", "class A", Kind.COUNT),
        Column("class_b", "class B", Kind.COUNT),
        Column("radius_a", "radius A", Kind.LOWER),
        Column("radius_b", "radius B", Kind.LOWER),
        Column("ratio", "A/B", Kind.FRACTION),
    )
    cells = [[_cell(value) for value in getattr(comparison, column.key).tolist()] for column in columns]
    return Table(columns=columns, rows=tuple(zip(*cells, strict=True)))


def _common_labels(on_a: ResultColumns, on_b: ResultColumns) -> IntArray:
    """The label of each common input, from either run."""
    disagree = np.flatnonzero(on_a.labelled & on_b.labelled & (on_a.label != on_b.label))
    if disagree.size:
        first = int(disagree[0])
        raise RunError(
            f"{on_a.name} and {on_b.name} disagree on the labels of {disagree.size} of {len(on_a)} common inputs, the "
            f"first of index {on_a.index[first]} ({on_a.label[first]} and {on_b.label[first]}): they are not about "
            "the same dataset"
        )
    return np.where(on_a.labelled, on_a.label, on_b.label)


def _certified_class(results: ResultColumns) -> IntArray:
    return np.where(results.is_outcome(Outcome.CERTIFIED), results.prediction, NO_CLASS)


def _counts(certified_class: IntArray, label: IntArray, *, wrong_too: bool) -> BoolArray:
    """True where a class was certified that is not known to be wrong, or is allowed to be."""
    acceptable = wrong_too | (label == NO_CLASS) | (certified_class == label)
    return np.asarray((certified_class != NO_CLASS) & acceptable)


def _list_notes(a: ResultColumns, b: ResultColumns, on_a: ResultColumns, on_b: ResultColumns) -> list[Note | Remark]:
    notes: list[Note | Remark] = [*_list_conflicts(on_a, on_b), *warn_of_acr(on_a, on_b)]
    notes += [remark for run in (a, b) for remark in (run.unfinished, *run.remarks) if remark is not None]
    for letter, run in (("A", a), ("B", b)):
        if len(run) > len(on_a):
            notes.append(Note(NoteCode.LEFT_OUT, {"inputs": len(run) - len(on_a), "run": letter}))
    if _differ(on_a.sigma, on_b.sigma).any():
        notes.append(_differing("sigma", *((np.nanmin(run.sigma), np.nanmax(run.sigma)) for run in (on_a, on_b))))
    if a.alpha is not None and b.alpha is not None and a.alpha != b.alpha:
        notes.append(_differing("alpha", a.alpha, b.alpha))
    if _settings_differ(a, b, "n"):
        notes.append(_differing("n", a.settings["n"], b.settings["n"]))
    if _settings_differ(a, b, "model"):
        notes.append(Note(NoteCode.MODELS_DIFFER, {}))
    if _settings_differ(a, b, "data"):
        notes.append(Note(NoteCode.DATA_DIFFER, {}))
    unknown = []
    if np.isnan(on_a.sigma).any() or np.isnan(on_b.sigma).any():
        unknown.append("sigma")
    if a.alpha is None or b.alpha is None:
        unknown.append("alpha")
    if unknown:
        notes.append(Note(NoteCode.SETTINGS_UNKNOWN, {"settings": " and ".join(unknown)}))
    return notes


def _differing(setting: str, a: Any, b: Any) -> Note:
    return Note(NoteCode.SETTING_DIFFERS, {"setting": setting, "a": a, "b": b})


def _settings_differ(a: ResultColumns, b: ResultColumns, setting: str) -> bool:
    return setting in a.settings and setting in b.settings and a.settings[setting] != b.settings[setting]


def _list_conflicts(on_a: ResultColumns, on_b: ResultColumns) -> list[Note]:
    """A note on the common inputs that the runs certify as different classes, counted or not."""
    certified = on_a.is_outcome(Outcome.CERTIFIED) & on_b.is_outcome(Outcome.CERTIFIED)
    conflicting = np.flatnonzero(certified & (on_a.prediction != on_b.prediction))
    if not conflicting.size:
        return []
    probability = None if on_a.alpha is None or on_b.alpha is None else on_a.alpha + on_b.alpha
    values = {"indices": tuple(on_a.index[conflicting].tolist()), "probability": probability}
    if _differ(on_a.sigma, on_b.sigma)[conflicting].all():
        return [Note(NoteCode.CLASSES_DIFFER, values | {"reason": "sigma"})]
    if _settings_differ(on_a, on_b, "model"):
        return [Note(NoteCode.CLASSES_DIFFER, values | {"reason": "models"})]
    return [Note(NoteCode.CONTRADICTION, values)]


def _differ(sigma_a: FloatArray, sigma_b: FloatArray) -> BoolArray:
    return np.asarray(np.isfinite(sigma_a) & np.isfinite(sigma_b) & (sigma_a != sigma_b))


def _mean(values: FloatArray) -> float | None:
    return math.fsum(values) / values.size if values.size else None


def _geometric_mean(radius_a: FloatArray, radius_b: FloatArray) -> float | None:
    mean_log = _mean(np.log(radius_a) - np.log(radius_b))
    return None if mean_log is None else min(math.exp(min(mean_log, math.log(_LARGEST_RATIO))), _LARGEST_RATIO)


def _cell(value: int | float) -> Cell:
    return None if value == NO_CLASS or math.isnan(value) else value


def _one_row(summary: ComparisonSummary, titles: dict[str, str], *, notes: tuple[str, ...] = ()) -> Table:
    columns = tuple(Column(key, title, _kind(key)) for key, title in titles.items())
    return Table(columns=columns, rows=(tuple(getattr(summary, key) for key in titles),), notes=notes)


def _kind(key: str) -> Kind:
    if key in ("run_a", "run_b", "norm"):
        return Kind.NAME
    if key.startswith("mean_radius"):
        return Kind.LOWER
    return Kind.FRACTION if key.startswith(("ratio", "share")) else Kind.COUNT

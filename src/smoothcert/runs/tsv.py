"""Read and write logs of smoothing experiments: tab-separated text, in the dialects of the published programs.

    certify (Cohen, Salman, Jeong)   idx label predict radius correct time
    predict (Cohen)                  idx label predict correct time
    baseline (Levine)                … radius raw_count p_A_bar correct time
    second order (Levine)            … p_A_bar raw_grad_norm grad_norm_bound grad_norm_bound_nonvacuous …
    dipole (Levine)                  … raw_count_symmetric raw_count_asymmetric p_A_symmetric_bar p_A_asymmetric_bar …
    per-input sigma (Alfarra)        … with a column sigma

Columns are found by name, so their order does not matter. Further numeric columns are kept in `ResultColumns.extra`.
`predict` -1 is an abstention. `time` is in seconds, or h:m:s as Python prints a duration.

The published programs round radii to three significant digits *to nearest*, so a radius in a log may exceed the proved
one by half a unit of its third digit. The file does not contain what would be needed to correct this.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from smoothcert.errors import InputError, RunError
from smoothcert.files import write_atomically
from smoothcert.numerics.rounding import format_down_as_read, format_nearest
from smoothcert.records import FloatArray, IntArray, Outcome
from smoothcert.records.class_names import show_name
from smoothcert.runs.result_columns import NO_CLASS, BoolArray, ResultColumns, outcome_code

_REQUIRED = ("idx", "label", "predict")
_NAMES = ("label_name", "predict_name")
"""Columns of texts, for people; they are not read back."""
_MEANINGFUL = (*_REQUIRED, "radius", "correct", "time", "sigma", *_NAMES)
_P_A_COLUMN = "p_A_bar"
_EXPECTED_HEADER = "tab-separated names with idx, label, predict and at least one of radius and correct"
_HEADER_LIMIT = 65536
_DURATION_DECIMALS = 6
_LEVEL, _RADIUS = "a finite number above 0", "a finite number of at least 0"
_PROBABILITY = "a probability between 0 and 1"

# int() and float() also accept "1_000", " 5 " and digits of other scripts, which a log never has.
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf)", re.IGNORECASE)
_DURATION = re.compile(r"(?:([0-9]{1,9}) days?, )?([0-9]{1,9}):([0-9]{1,2}):([0-9]{1,2}(?:\.[0-9]{1,9})?)")


@dataclass(frozen=True, slots=True)
class _Log:
    """The fields of a log by column, all of the same length. Row i is on line i + 2."""

    path: Path
    columns: Mapping[str, Sequence[str]]
    ends_in_newline: bool

    def __len__(self) -> int:
        return len(self.columns["idx"])

    def fail(self, position: int, problem: str) -> NoReturn:
        unfinished = position == len(self) - 1 and not self.ends_in_newline
        _raise_problem(self.path, position + 2, problem, unfinished=unfinished)

    def integers(self, column: str, *, least: int) -> IntArray:
        texts = self.columns[column]
        self._match_all(column, _INTEGER, f"a whole number of at least {least}")
        values = np.array(list(map(int, texts)), dtype=np.int64)
        self.require(column, values >= least, f"a whole number of at least {least}")
        return values

    def numbers(self, column: str, *, expected: str = "a number") -> FloatArray:
        self._match_all(column, _NUMBER, expected)
        return np.array(list(map(float, self.columns[column])), dtype=np.float64)

    def optional(
        self, column: str, *, default: float, valid: Callable[[FloatArray], BoolArray], expected: str
    ) -> FloatArray:
        """The numbers of a column that a log may lack."""
        if column not in self.columns:
            return np.full(len(self), default)
        values = self.numbers(column, expected=expected)
        self.require(column, valid(values), expected)
        return values

    def require(self, column: str, holds: BoolArray, expected: str) -> None:
        """Raise an error for the first row where the condition does not hold."""
        wrong = np.flatnonzero(~holds)
        if wrong.size:
            first = int(wrong[0])
            self.fail(first, f"{column} is {_quote(self.columns[column][first])}; expected {expected}")

    def _match_all(self, column: str, pattern: re.Pattern[str], expected: str) -> None:
        matches = map(pattern.fullmatch, self.columns[column])
        first = next((position for position, match in enumerate(matches) if match is None), None)
        if first is not None:
            self.fail(first, f"{column} is {_quote(self.columns[column][first])}; expected {expected}")


def read_log(path: Path, *, name: str | None = None) -> ResultColumns:
    """Read a log in any of the dialects above; rows keep their order.

    A log states neither α nor the number of classes, so both are None. A row with a class and radius 0 (a small radius
    that was rounded) is PREDICTED: it is an answer without a certificate. A malformed log raises RunError with the line
    number and what was expected there.
    """
    log = _split_columns(path)
    label = log.integers("label", least=0)
    predict = log.integers("predict", least=-1)
    _check_correct(log, label, predict)
    radius = _read_radius(log, predict)
    decided = predict >= 0
    outcome = np.where(decided, outcome_code(Outcome.PREDICTED), outcome_code(Outcome.ABSTAINED))
    outcome = np.where(radius > 0, outcome_code(Outcome.CERTIFIED), outcome)
    extra = {column: log.numbers(column) for column in log.columns if column not in _MEANINGFUL}
    return ResultColumns(
        name=name or path.name,
        index=_read_index(log),
        label=label,
        prediction=np.where(decided, predict, NO_CLASS),
        outcome=outcome.astype(np.int8),
        radius=radius,
        has_radius="radius" in log.columns,
        sigma=log.optional("sigma", default=math.nan, valid=lambda v: np.isfinite(v) & (v > 0), expected=_LEVEL),
        seconds=_read_seconds(log),
        p_a=log.optional(
            _P_A_COLUMN, default=math.nan, valid=lambda v: np.isnan(v) | ((v >= 0) & (v <= 1)), expected=_PROBABILITY
        ),
        extra=extra,
    )


def write_cohen_tsv(results: ResultColumns, path: Path, *, digits: int = 6, overwrite: bool = False) -> None:
    """Write `idx label predict radius correct time`; without radii, `idx label predict correct time`.

    Radii are rounded down to `digits` decimals. The dialect has one code for "no class", so abstentions and failures
    are both -1. Time is in seconds, rounded to nearest; the column is left out if any time is unknown. Where classes
    have names, those of label and prediction are the last columns. An input without a label cannot be written. An
    existing file is refused unless overwrite=True.
    """
    if not results.labelled.all():
        raise InputError(
            f"{results.name} has inputs without a label, which this format does not support; export csv or json"
        )
    with_time = bool(np.isfinite(results.seconds).all())
    header = ["idx", "label", "predict", *(["radius"] if results.has_radius else []), "correct"]
    names = dict(enumerate(map(show_name, results.class_names)))
    lines = ["\t".join([*header, *(["time"] if with_time else []), *(_NAMES if names else [])])]
    predictions = np.where(results.decided, results.prediction, -1)
    correct = results.correct
    for position in range(len(results)):
        fields = [str(results.index[position]), str(results.label[position]), str(predictions[position])]
        if results.has_radius:
            fields.append(format_down_as_read(float(results.radius[position]), decimals=digits))
        fields.append(str(int(correct[position])))
        if with_time:
            fields.append(format_nearest(float(results.seconds[position]), decimals=_DURATION_DECIMALS))
        if names:
            fields += [names.get(int(results.label[position]), ""), names.get(int(predictions[position]), "")]
        lines.append("\t".join(fields))
    write_atomically(path, ("\n".join(lines) + "\n").encode(), overwrite=overwrite)


def _read_lines(path: Path) -> tuple[list[str], bool]:
    """The lines of the file, and whether the last one ends in a newline."""
    try:
        with path.open("rb") as stream:
            # Check the start first, so that a wrong file of many gigabytes is not read completely.
            start = stream.read(_HEADER_LIMIT)
            if not start:
                raise RunError(f"{path} is empty; expected a log whose first line has {_EXPECTED_HEADER}")
            if b"\0" in start or (len(start) == _HEADER_LIMIT and b"\n" not in start):
                raise RunError(f"{path} is not a text log; expected a first line with {_EXPECTED_HEADER}")
            content = start + stream.read()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _raise_problem(path, line, f"byte {error.start} is not UTF-8 text; expected a tab-separated log")
    ends_in_newline = text.endswith("\n")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return (lines[:-1] if ends_in_newline else lines), ends_in_newline


def _parse_header(path: Path, text: str) -> tuple[str, ...]:
    header = tuple(text.split("\t"))
    missing = [column for column in _REQUIRED if column not in header]
    if missing or not {"radius", "correct"} & set(header):
        _raise_problem(path, 1, f"the header is {_quote(text)}; expected {_EXPECTED_HEADER}")
    if len(set(header)) != len(header) or "" in header:
        _raise_problem(path, 1, f"the header is {_quote(text)}; expected a distinct name for every column")
    return header


def _split_columns(path: Path) -> _Log:
    lines, ends_in_newline = _read_lines(path)
    header = _parse_header(path, lines[0])
    rows = [line.split("\t") for line in lines[1:]]
    for number, fields in enumerate(rows, start=2):
        if len(fields) != len(header):
            unfinished = number == len(lines) and not ends_in_newline
            found = f"{len(fields)} fields in {_quote(lines[number - 1])}"
            _raise_problem(path, number, f"{found}; expected {len(header)}: {' '.join(header)}", unfinished=unfinished)
    if not rows:
        raise RunError(f"{path} has a header but no results yet")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    return _Log(path=path, columns=columns, ends_in_newline=ends_in_newline)


def _read_index(log: _Log) -> IntArray:
    index = log.integers("idx", least=0)
    _, first = np.unique(index, return_index=True)
    repeated = np.setdiff1d(np.arange(index.size), first)
    if repeated.size:
        again = int(repeated[0])
        earlier = int(np.flatnonzero(index == index[again])[0])
        log.fail(again, f"idx {index[again]} was already on line {earlier + 2}; expected every idx once")
    return index


def _check_correct(log: _Log, label: IntArray, predict: IntArray) -> None:
    if "correct" in log.columns:
        correct = log.integers("correct", least=0)
        log.require("correct", correct == (predict == label), "1 where predict equals label, and 0 elsewhere")


def _read_radius(log: _Log, predict: IntArray) -> FloatArray:
    """Radii, or zeros for a log without them."""
    radius = log.optional("radius", default=0.0, valid=lambda v: np.isfinite(v) & (v >= 0), expected=_RADIUS)
    log.require("radius", (predict >= 0) | (radius == 0), "0 where predict is -1")
    return radius


def _read_seconds(log: _Log) -> FloatArray:
    if "time" not in log.columns:
        return np.full(len(log), math.nan)
    seconds = np.array([_to_seconds(text) for text in log.columns["time"]], dtype=np.float64)
    expected = "seconds, or a duration like 0:02:31.238689 or 1 day, 2:03:04"
    log.require("time", np.isfinite(seconds) & (seconds >= 0), expected)
    return seconds


def _to_seconds(text: str) -> float:
    """Seconds of a duration or a plain number; nan if the text is neither."""
    duration = _DURATION.fullmatch(text)
    if duration is None:
        return float(text) if _NUMBER.fullmatch(text) else math.nan
    days, hours, minutes, seconds = duration.groups()
    return ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + float(seconds)


def _raise_problem(path: Path, number: int, problem: str, *, unfinished: bool = False) -> NoReturn:
    hint = ""
    if unfinished:
        hint = "; this last line is incomplete, as in a log that is still being written: wait, or remove the line"
    raise RunError(f"{path}, line {number}: {problem}{hint}")


def _quote(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")

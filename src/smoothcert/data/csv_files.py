"""Tables in .csv files: one input per line, numbers except for the labels."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError
from smoothcert.records import FloatArray
from smoothcert.records.class_names import list_names

LABEL_COLUMNS = ("label", "target", "class", "y")
"""Names of the column with the labels, in small or capital letters."""


@dataclass(frozen=True, slots=True)
class CsvTable:
    """inputs: (n, features). labels: (n,) numbers or texts. feature_names: empty without a header."""

    inputs: FloatArray
    labels: NDArray[Any]
    feature_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    """The fields of one line of the file."""

    line: int
    fields: list[str]


def read_csv_table(path: Path, *, label_column: str | None) -> CsvTable:
    """Read a table. The labels are in `label_column`, in the column with a usual name, or without a header the last."""
    rows = _read_rows(path)
    if not rows:
        raise DataError(f"{path} is empty: expected one input per line, numbers separated by commas")
    header = _find_header(rows[0].fields, label_column)
    if header is None and label_column is not None:
        raise DataError(f"{path} has no header: there is no column {label_column!r}; the last column is the label")
    rows = rows if header is None else rows[1:]
    if not rows:
        raise DataError(f"{path} has a header but no inputs")
    columns = len(rows[0].fields) if header is None else len(header)
    for row in rows:
        if len(row.fields) != columns:
            raise DataError(f"{path}, line {row.line}: {len(row.fields)} values, but the first line has {columns}")
    if columns < 2:
        raise DataError(f"{path} has one column: expected the values of an input and its label, separated by commas")
    place = columns - 1 if header is None else _find_label_column(path, header, label_column, rows[0])
    names = () if header is None else tuple(name for at, name in enumerate(header) if at != place)
    values = [_parse_numbers(path, row, place, header) for row in rows]
    return CsvTable(np.array(values, dtype=np.float64), _parse_labels(path, rows, place), names)


def _read_rows(path: Path) -> list[_Row]:
    """All lines that are not blank."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            return [_Row(reader.line_num, fields) for fields in reader if any(field.strip() for field in fields)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a csv text file: {error}") from error


def _find_header(first: Sequence[str], label_column: str | None) -> list[str] | None:
    """The names in the first line; None if it is an input: numbers, and a label that may be a text."""
    fields = [field.strip() for field in first]
    values, last = fields[:-1], fields[-1]
    if not all(map(_is_number, values)):
        return fields
    # pandas numbers columns without names: 0, 1, 2, …
    counted = len(values) > 1 and values == [str(place) for place in range(len(values))]
    is_name = last.lower() in LABEL_COLUMNS or label_column in fields or counted or not last or not values
    return fields if is_name and not _is_number(last) else None


def _find_label_column(path: Path, header: Sequence[str], label_column: str | None, first: _Row) -> int:
    if label_column is not None:
        if header.count(label_column) != 1:
            raise DataError(f"{path} needs exactly one column named {label_column}; its header has {_show(header)}")
        return header.index(label_column)
    lowered = [name.lower() for name in header]
    found = [place for place, name in enumerate(lowered) if name in LABEL_COLUMNS]
    if len(found) > 1 and "x" in lowered:  # y may be a coordinate
        found = [place for place in found if lowered[place] != "y"]
    if len(found) != 1:
        usual = f"{', '.join(LABEL_COLUMNS[:-1])} or {LABEL_COLUMNS[-1]}"
        has = f"it has {_show([header[at] for at in found])}" if found else f"its header has {_show(header)}"
        texts = [f"{name} ({value})" for name, value in zip(header, first.fields, strict=True) if not _is_number(value)]
        has += f", with texts in {_show(texts)}" if texts and not found else ""
        raise DataError(
            f"{path} needs exactly one column named {usual}; {has}: name the column of the labels by label_column "
            "(--label-column)"
        )
    return found[0]


def _show(names: Sequence[str]) -> str:
    return list_names(names).replace("'", "")


def _parse_numbers(path: Path, row: _Row, label: int, header: Sequence[str] | None) -> list[float]:
    """The values of an input."""
    values = row.fields[:label] + row.fields[label + 1 :]
    try:
        return [float(value) for value in values]
    except ValueError:
        place = next(at for at, value in enumerate(row.fields) if at != label and not _is_number(value))
        column = "" if header is None else f" in column {header[place]}"
        advice = "every column but the label must have numbers: encode or remove it"
        raise DataError(f"{path}, line {row.line}: {row.fields[place]!r}{column} is not a number; {advice}") from None


def _parse_labels(path: Path, rows: Sequence[_Row], place: int) -> NDArray[Any]:
    """Numbers if all labels are, else texts."""
    texts = [row.fields[place].strip() for row in rows]
    if all(map(_is_number, texts)):
        return np.array([float(text) for text in texts], dtype=np.float64)
    if "" in texts:
        raise DataError(f"{path}, line {rows[texts.index('')].line}: the label is empty")
    return np.array(texts)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True

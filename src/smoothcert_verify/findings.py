"""Findings of the checker: a code and values. `texts` turns them into sentences; nothing reads those back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """code: a key of `texts.TEMPLATES`. values: what its sentence names. where: the input or file it is about."""

    code: str
    values: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    def at(self, where: str) -> Finding:
        """The same finding about a part of `where`."""
        return replace(self, where=f"{where}: {self.where}" if self.where else where)

    def __str__(self) -> str:
        from smoothcert_verify.texts import describe_finding

        return describe_finding(self)

    def to_json(self) -> dict[str, Any]:
        values = {name: _to_plain(value) for name, value in self.values.items()}
        return {"code": self.code, "where": self.where, "text": str(self), "values": values}


def note(code: str, /, **values: Any) -> Finding:
    return Finding(code, values)


def _to_plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return float(value) if isinstance(value, Fraction) else repr(value)[:200]
    except (ValueError, OverflowError, RecursionError):
        return "too long to be shown"


@dataclass(slots=True)
class Findings:
    """discrepancies: what is wrong. unchecked: what this checker can neither confirm nor refute.

    is_readable: whether the document has the shape of a certificate, whatever it says.
    """

    discrepancies: list[Finding] = field(default_factory=list)
    unchecked: list[Finding] = field(default_factory=list)
    is_readable: bool = False

    def add(self, code: str, /, **values: Any) -> None:
        self.discrepancies.append(Finding(code, values))


class MalformedError(Exception):
    """Content that cannot be checked any further, because a part of it is not what it must be."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return str(self.finding)


def refuse(code: str, /, **values: Any) -> MalformedError:
    """The error to raise for a finding after which nothing more can be checked."""
    return MalformedError(Finding(code, values))


class CheckerError(Exception):
    """The check could not be made. The content that was to be checked may be right or wrong."""


class OptionError(CheckerError):
    """Options that do not go together, or that ask for something impossible."""


class PlaceError(CheckerError):
    """A file or directory that is missing or cannot be read."""


class MemoryPlaceError(CheckerError):
    """A memory of promised regions that is missing or cannot be read."""


class MissingPackageError(CheckerError):
    """An optional package is needed. extra: of smoothcert, which installs it. purpose: what it is needed for."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'smoothcert[{extra}]'")
        self.package, self.extra, self.purpose = package, extra, purpose

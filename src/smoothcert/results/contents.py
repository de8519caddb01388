"""Where results come from: memory, a run directory, or a log."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.errors import RunError
from smoothcert.records import CertifiedPoint, Verdict
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.load import make_run_results
from smoothcert.runs.manifest import state_environment
from smoothcert.runs.result_columns import OUTCOMES, ResultColumns
from smoothcert.spec import RunManifest

if TYPE_CHECKING:
    from smoothcert.runs.selected_parts import SelectedParts

Points = Sequence[CertifiedPoint]


class Content(ABC):
    """Points, and the columns made of them. place: the run directory or log that holds all of it, if any."""

    place: Path | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def points(self) -> Points:
        """With their tallies, if there are any."""

    @property
    @abstractmethod
    def manifest(self) -> RunManifest | None:
        """None for a log."""

    @property
    def parts(self) -> SelectedParts | None:
        """Selector and levels, if the noise level was chosen by a selector."""
        return None

    @abstractmethod
    def make_columns(self, name: str, certificate: str | None) -> list[ResultColumns]:
        """The results as columns: by this certificate, or once for each that is shown separately."""

    @abstractmethod
    def select(self, positions: Sequence[int]) -> Content:
        """The same results of some of the inputs."""


class MemoryContent(Content):
    """Points in memory. manifest: environment and code digest may be missing, and are then stated when needed.

    selected, parts: as in `HeldRun`.
    """

    def __init__(
        self, points: Points, manifest: RunManifest, *, selected: bool = True, parts: SelectedParts | None = None
    ) -> None:
        self._points, self._manifest, self._selected, self._parts = tuple(points), manifest, selected, parts

    def __len__(self) -> int:
        return len(self._points)

    @property
    def points(self) -> Points:
        return self._points

    @cached_property
    def manifest(self) -> RunManifest:
        return self._manifest if self._manifest.digests.code else state_environment(self._manifest)

    @property
    def parts(self) -> SelectedParts | None:
        return self._parts

    def make_columns(self, name: str, certificate: str | None) -> list[ResultColumns]:
        held = HeldRun(self._points, self._manifest, selected=self._selected, parts=self._parts)
        return held.results(name=name, certificate=certificate)

    def select(self, positions: Sequence[int]) -> Content:
        return _select(self, positions, self._manifest)


class DirectoryContent(Content):
    """A run directory, as it was when it was opened: a run in progress may grow. Tallies are read when needed."""

    def __init__(self, place: Path) -> None:
        from smoothcert.runs.selected_run import open_stored

        self.place: Path = place
        with open_stored(place) as store:
            self._manifest, self._without_tallies = store.manifest, store.points(with_tallies=False)
            self._kinds, self._samples = store.kinds(), store.samples()

    def __len__(self) -> int:
        return len(self._without_tallies)

    @cached_property
    def points(self) -> Points:
        from smoothcert.runs.selected_run import open_stored

        wanted = {point.index for point in self._without_tallies}
        with open_stored(self.place) as store:
            return tuple(point for point in store.points() if point.index in wanted)

    @property
    def manifest(self) -> RunManifest:
        return self._manifest

    def make_columns(self, name: str, certificate: str | None) -> list[ResultColumns]:
        return make_run_results(
            self._without_tallies,
            self._manifest,
            self._kinds,
            name=name,
            spent=self._samples,
            certificate=certificate,
        )

    def select(self, positions: Sequence[int]) -> Content:
        return _select(self, positions, self._manifest)

    @cached_property
    def parts(self) -> SelectedParts | None:
        from smoothcert.runs.run_files import is_selected
        from smoothcert.runs.selected_run import SelectedRun

        return SelectedRun.open(self.place).read_parts() if is_selected(self.place) else None


def _select(content: Content, positions: Sequence[int], manifest: RunManifest) -> Content:
    points = [content.points[position] for position in positions]
    parts = None if content.parts is None else content.parts.select({point.index for point in points})
    return MemoryContent(points, manifest, parts=parts)


class LogContent(Content):
    """A log of this or another program: columns without tallies. columns: None if no input was selected."""

    manifest = None

    def __init__(self, columns: ResultColumns | None, place: Path | None = None) -> None:
        self._columns, self.place = columns, place

    def __len__(self) -> int:
        return 0 if self._columns is None else len(self._columns)

    @cached_property
    def points(self) -> Points:
        return () if self._columns is None else tuple(_list_points(self._columns))

    def make_columns(self, name: str, certificate: str | None) -> list[ResultColumns]:
        if self._columns is None:
            raise RunError(f"{name} has no results; at least one input is required")
        return [dataclasses.replace(self._columns, name=name)]

    def select(self, positions: Sequence[int]) -> Content:
        if self._columns is None or not positions:
            return LogContent(None)
        return LogContent(self._columns.subset(np.asarray(positions, dtype=np.int64)))


def _list_points(columns: ResultColumns) -> list[CertifiedPoint]:
    """One point for each row of a log. It has no tallies and no bounds, so it makes no guarantee."""
    labelled, decided = columns.labelled, columns.decided
    return [
        CertifiedPoint(
            index=int(columns.index[k]),
            label=int(columns.label[k]) if labelled[k] else None,
            verdict=Verdict(
                certificate=str(columns.certificate[k]),
                prediction=int(columns.prediction[k]) if decided[k] else None,
                radius=float(columns.radius[k]),
                norm=columns.norm,
                outcome=OUTCOMES[columns.outcome[k]],
                reason=columns.reason[k],
                bounds=None,
            ),
            sigma=float(columns.sigma[k]),
            tallies=(),
            seconds=float(columns.seconds[k]),
        )
        for k in range(len(columns))
    ]

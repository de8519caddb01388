"""`Results`: the answers about some inputs, with everything that can be done with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import InputError, RunError
from smoothcert.records import CertifiedPoint, FloatArray
from smoothcert.results.contents import Content, MemoryContent
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.result_columns import ResultColumns, select_verdict
from smoothcert.spec import RunManifest, RunSpec

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from smoothcert.analysis.tables import Table
    from smoothcert_verify.place_checks import Inspection


class Results(Sequence[CertifiedPoint]):
    """The points of a call, a run or a log, in order: `results[3]` is one point, `results[:10]` are Results.

    Made by `SmoothedClassifier.certify` and `predict`, by `smoothcert.open_run` and by `recertify`. With several
    certificates, everything that is one number is by the first of them; `by_certificate` selects another.
    """

    def __init__(self, content: Content, *, name: str, certificate: str | None = None) -> None:
        self._content, self.name, self._certificate = content, name, certificate

    # A sequence of points.

    @cached_property
    def points(self) -> tuple[CertifiedPoint, ...]:
        """All points, with the votes they were computed from; a log has no votes."""
        points = self._content.points
        if self._certificate is None:
            return tuple(points)
        return tuple(select_verdict(point, self._certificate, self.name) for point in points)

    def __len__(self) -> int:
        return len(self._content)

    @overload
    def __getitem__(self, place: int) -> CertifiedPoint: ...

    @overload
    def __getitem__(self, place: slice) -> Results: ...

    def __getitem__(self, place: int | slice) -> CertifiedPoint | Results:
        if not isinstance(place, slice):
            return self.points[place]
        positions = range(len(self))[place]
        return Results(self._content.select(positions), name=self.name, certificate=self._certificate)

    def __eq__(self, other: object) -> bool:
        """Whether the points are equal; a list of points can be compared too."""
        if isinstance(other, Results):
            return self.points == other.points
        return self.points == tuple(other) if isinstance(other, list | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        from smoothcert.results.notebook_html import describe_in_a_line

        return f"Results({describe_in_a_line(self)})"

    def _repr_html_(self) -> str:
        from smoothcert.results.notebook_html import render_results

        return render_results(self)

    # What was asked.

    @property
    def manifest(self) -> RunManifest | None:
        """Everything that was asked and used: settings, seed, digests. None for a log."""
        return self._content.manifest

    @property
    def spec(self) -> RunSpec | None:
        """What was asked: alpha, noise, sigma, question, certificates. None for a log."""
        return None if self.manifest is None else self.manifest.spec

    @property
    def path(self) -> Path | None:
        """The run directory or log that holds these results; None for results in memory."""
        return self._content.place

    @property
    def certificates(self) -> tuple[str, ...]:
        """The certificates of the points, the points' own first. Empty for predictions and logs."""
        return () if self.spec is None else self.spec.certificates

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each class; empty if the classes have none."""
        if self.manifest is not None:
            return self.manifest.model.class_names
        return self.columns.class_names if len(self) else ()

    def by_certificate(self, name: str) -> Results:
        """The same points by another of their certificates."""
        if name not in self.certificates:
            known = ", ".join(self.certificates) or "none"
            raise InputError(f"{self.name} does not have the certificate {name}; it has: {known}")
        return Results(self._content, name=f"{self.name.partition('@')[0]}@{name}", certificate=name)

    # Numbers, tables and figures.

    @cached_property
    def columns(self) -> ResultColumns:
        """The results as arrays, one entry for each input."""
        return self._all_columns[0]

    @cached_property
    def _all_columns(self) -> list[ResultColumns]:
        """As `columns`, once for each certificate that is shown separately."""
        return self._content.make_columns(self.name, self._certificate)

    @property
    def accuracy(self) -> float:
        """The share of inputs that are answered correctly. An abstention is not correct."""
        from smoothcert.analysis import metrics

        return metrics.accuracy(self.columns)

    @property
    def acr(self) -> float:
        """The average certified radius; inputs that are not certified correctly count as 0."""
        from smoothcert.analysis import metrics

        return metrics.average_certified_radius(self.columns)

    @overload
    def certified_accuracy(self, radius: float) -> float: ...

    @overload
    def certified_accuracy(self, radius: Sequence[float] | FloatArray) -> FloatArray: ...

    def certified_accuracy(self, radius: ArrayLike) -> float | FloatArray:
        """The share of inputs that are certified correctly with at least this radius; for an array, an array.

        nan at radii beyond those that were decided on (`decide=`).
        """
        from smoothcert.analysis import metrics

        radii = np.asarray(radius, dtype=np.float64)
        shares = metrics.certified_accuracy(self.columns, radii)
        decided = self.columns.decided_radii
        if decided:
            shares = np.where(radii > decided[-1], np.nan, shares)
        return shares if radii.ndim else float(shares)

    def to_frame(self) -> pandas.DataFrame:
        """A pandas frame with one row for each input: answer, radius, bounds, and the votes of every class."""
        from smoothcert.results.flat_frame import make_frame

        return make_frame(self)

    def table(self, radii: str | Iterable[float] | None = None) -> Table:
        """The table of `smoothcert table`, with a row for each certificate. It prints, also as HTML.

        radii: such as [0, 0.25, 0.5]; None chooses them from the data.
        """
        from smoothcert.analysis.formatting import table_notes
        from smoothcert.analysis.summary import default_radii, format_radii, parse_radii, summarise
        from smoothcert.analysis.tables import summary_table

        runs = self._all_columns
        text = radii if radii is None or isinstance(radii, str) else format_radii(radii)
        chosen = default_radii(runs) if text is None else parse_radii(text)
        notes = table_notes(runs, radii=chosen, bound=None)
        return summary_table([summarise(run, radii=chosen) for run in runs], notes=notes)

    def p_a_table(self) -> Table:
        """Quantiles of p_A, and the share of the inputs above thresholds, with a row for each certificate.

        An input that is not answered correctly counts as 0. RunError if the certificate bounds something else than p_A.
        """
        from smoothcert.analysis.confidence import summarise_p_a
        from smoothcert.analysis.tables import p_a_table

        found = p_a_table({run.name: summarise_p_a(run) for run in self._all_columns})
        if found is None:
            raise RunError(f"{self.name} has no p_A: its certificate bounds something else")
        return found

    def plot(self, ax: Axes | None = None, *, kind: str = "accuracy", label: str | None = None) -> Axes:
        """Draw certified accuracy over the radius, and return the axes. ax: None makes a new figure.

        kind: accuracy, p-a or classes, as in `smoothcert plot`. label: the name in the legend.
        """
        from smoothcert.results.drawing_axes import plot_results

        return plot_results(self._all_columns, ax, kind=kind, label=label)

    # What leaves this object.

    def report(
        self, path: str | Path, *, radii: str | None = None, gallery: int = 24, title: str | None = None
    ) -> Path:
        """Write the HTML page of `smoothcert report`, and return its path. An older page is replaced.

        Pictures of the inputs are shown for stored runs whose data is at hand; results in memory do not contain them.
        """
        from smoothcert.report.content import ReportRequest
        from smoothcert.report.page import write_report

        place = self.path
        if place is not None and self._certificate is not None:
            place = place.with_name(f"{place.name}@{self._certificate}")
        request = ReportRequest(
            runs=() if place is None else (place,),
            held={self.name: (self._hold("a report"), self._certificate)} if place is None else {},
            radii=radii,
            gallery=gallery,
            title=title,
        )
        write_report(request, Path(path))
        return Path(path)

    def export(self, path: str | Path, format: str | None = None, *, overwrite: bool = False) -> Path:
        """Write csv, json, cohen-tsv, or certificate: a directory with a document for each input. Return the path.

        format: by default the one that the name ends in: .csv, .json or .tsv.
        """
        from smoothcert.results.writing import write_results

        hold = None if self.manifest is None else lambda: self._hold("an export")
        return write_results(self.columns, Path(path), form=format, overwrite=overwrite, hold=hold)

    def verify(self, *, unfinished: bool = False) -> Inspection:
        """Check every bound and radius with the independent checker; `print` shows what it found.

        `.consistent` is True if everything is proved. For a stored run everything that `smoothcert verify` checks is
        checked; for results in memory, the certificate of each input. unfinished: accept a run whose inputs are not all
        done.
        """
        from smoothcert.results.verification import verify_directory, verify_held

        if self.path is not None and self.manifest is not None:
            return verify_directory(self.path, unfinished=unfinished)
        held = self._hold("verify")
        if not held.points:
            raise RunError(f"{self.name} has no results, so there is nothing to check; at least one input is required")
        return verify_held(held, name=self.name)

    def recertify(
        self,
        *,
        alpha: float | None = None,
        n: float | None = None,
        certificate: str | Sequence[str] | None = None,
        best_of: bool = False,
        name: str | None = None,
    ) -> Results:
        """The same votes at another alpha, with fewer samples, or by another certificate, without the model.

        certificate: by default those of the run, or the one selected by `by_certificate`.
        Choose the settings before you look at results: alpha does not cover the best of several, unless best_of.
        """
        from smoothcert.runs.recertification import recertify_points

        where = str(self.path or self.name)
        held = self._hold("recertify")
        chosen = self._certificate if certificate is None else certificate
        run = recertify_points(held, where, alpha=alpha, n=n, certificate=chosen, best_of=best_of)
        return results_of_run(run, name=name or f"{self.name} recertified")

    def _hold(self, purpose: str) -> HeldRun:
        """The whole run, by all of its certificates. purpose: what it is for."""
        if self.manifest is None:
            raise RunError(
                f"{self.name} is a log, which has no votes: {purpose} needs results of certify, or a run directory. "
                "`smoothcert recertify LOG --sigma … --n …` recomputes the logs of Levine et al. from their counts"
            )
        return HeldRun(self._content.points, self.manifest, selected=self.path is None, parts=self._content.parts)


def results_of_run(run: HeldRun, *, name: str) -> Results:
    """Results of a run in memory."""
    return Results(MemoryContent(run.points, run.manifest, selected=run.selected, parts=run.parts), name=name)

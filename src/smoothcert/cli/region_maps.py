"""`report --regions`: evaluate the smoothed classifier of a run on a grid of the plane, with progress."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.cli.printing import say
from smoothcert.cli.progress import fetch_progress, samples_progress, stop_on_interrupt
from smoothcert.errors import InterruptedRunError

if TYPE_CHECKING:
    from smoothcert.records.decision_map import DecisionMap, Rectangle
    from smoothcert.report.plane import AnswerRegions
    from smoothcert.report.sources import Source
    from smoothcert.runs.decision_regions import MapSettings
    from smoothcert.runs.resumption import Moved


def make_decider(settings: MapSettings, moved: Moved) -> AnswerRegions:
    """Who answers for the runs of a report. A run with several certificates is asked once. moved: see `Moved`."""
    from smoothcert.runs.decision_regions import has_soft_certificate

    known: dict[tuple[Path, Rectangle, bool], DecisionMap] = {}

    def decide(source: Source, rectangle: Rectangle) -> DecisionMap | str:
        if source.manifest is None:
            return "a log does not contain the model"
        if source.manifest.task not in ("certify", "predict"):
            return f"a {source.manifest.task} run does not contain how it was sampled; use the run it was made from"
        soft = has_soft_certificate(frozenset(map(str, source.results.certificate)) - {""})
        if (source.place, rectangle, soft) not in known:
            known[source.place, rectangle, soft] = _compute_map(source, rectangle, settings, soft, moved)
        return known[source.place, rectangle, soft]

    return decide


def _compute_map(source: Source, rectangle: Rectangle, settings: MapSettings, soft: bool, moved: Moved) -> DecisionMap:
    from smoothcert.runs.decision_regions import answer, prepare_survey

    with contextlib.ExitStack() as stack:
        with fetch_progress() as fetching:
            survey = stack.enter_context(
                prepare_survey(source.place, rectangle, settings, soft=soft, fetching=fetching, moved=moved)
            )
        say(f"{source.place}: asking at {len(survey.inputs):,} points of the plane, {survey.n:,} samples each")
        with stop_on_interrupt("points") as stop:
            try:
                with samples_progress(survey.samples) as progress:
                    return answer(survey, stop=stop, progress=progress)
            except (InterruptedRunError, KeyboardInterrupt) as error:
                raise InterruptedRunError("stopped; no page was written") from error

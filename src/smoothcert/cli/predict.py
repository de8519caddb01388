"""`smoothcert predict`: the answers of the smoothed classifier for a dataset, without radii."""

from __future__ import annotations

from typing import Annotated

from smoothcert.cli import options as o
from smoothcert.cli.run_options import RunOptions, with_run_options


@with_run_options
def predict(
    run: RunOptions,
    n: Annotated[int, o.count("--n", "Samples per input.", panel=o.SAMPLING)] = 100_000,
) -> None:
    """Predict the classes of a dataset, or abstain. Each voted answer is wrong with probability at most alpha.

    A new run needs --model, --data, and --sigma or --sigma-rule. The same command resumes an interrupted run. With
    --memory, an input inside a promised region gets the class of that region, without a vote.
    """
    from smoothcert.cli import spec_options as build
    from smoothcert.cli.running import run_selected, run_spec, run_specs
    from smoothcert.cli.selector_options import build_selected, resume_selected, uses_selector
    from smoothcert.spec import FixedN

    if run.resume is not None and (resumed := resume_selected(run, task="predict")) is not None:
        run_selected(resumed, run.resume, as_json=run.as_json)
        return
    if run.resume is not None:
        run_spec(build.build_resumed_spec(run.resume, run, task="predict"), run.resume, as_json=run.as_json)
        return
    if uses_selector(run):
        out, selected = build_selected(run, task="predict", question=FixedN(n=n))
        run_selected(selected, out, as_json=run.as_json)
        return
    run_specs(build.build_specs(run, task="predict", question=FixedN(n=n)), as_json=run.as_json)

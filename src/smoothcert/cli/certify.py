"""`smoothcert certify`: certified radii for a dataset, in a run directory that can be resumed."""

from __future__ import annotations

from typing import Annotated

from smoothcert.cli import options as o
from smoothcert.cli.run_options import RunOptions, with_run_options
from smoothcert.errors import InputError

DEFAULT_CERTIFICATE = (
    "The default is the usual one of the noise; envelope with --sigma-rule and no memory; selected with a selector."
)


@with_run_options
def certify(
    run: RunOptions,
    certificate: o.Certificates = None,
    best_of: o.BestOf = False,
    n: Annotated[int, o.count("--n", "Samples that certify the class.", panel=o.SAMPLING)] = 100_000,
    n0: Annotated[int, o.count("--n0", "Samples that select the class.", panel=o.SAMPLING)] = 100,
    decide: o.Decide = None,
    precision: o.Precision = None,
    rigorous: o.Rigorous = False,
) -> None:
    """Certify a model on a dataset.

    A new run needs --model, --data, and --sigma or --sigma-rule. The same command resumes an interrupted run; so does
    `smoothcert certify --resume RUN`.
    """
    from smoothcert.cli import spec_options as build
    from smoothcert.cli.running import run_selected, run_spec, run_specs
    from smoothcert.cli.selector_options import build_selected, resume_selected, uses_selector

    if run.resume is not None and (resumed := resume_selected(run, task="certify")) is not None:
        run_selected(resumed, run.resume, as_json=run.as_json)
        return
    if run.resume is not None:
        run_spec(build.build_resumed_spec(run.resume, run, task="certify"), run.resume, as_json=run.as_json)
        return
    question = build.build_question(n=n, n0=n0, decide=decide, precision=precision)
    if uses_selector(run):
        if best_of:
            raise InputError("--best-of does not go with a selector: name --certificate selected or selected-published")
        out, selected = build_selected(
            run, task="certify", question=question, certificates=certificate, rigorous=rigorous
        )
        run_selected(selected, out, as_json=run.as_json)
        return
    certificates, best_of = build.build_certificates(certificate, best_of=best_of)
    specs = build.build_specs(
        run,
        task="certify",
        question=question,
        certificates=certificates,
        best_of=best_of,
        rigorous=rigorous,
    )
    run_specs(specs, as_json=run.as_json)

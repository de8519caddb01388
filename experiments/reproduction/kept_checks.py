"""Checks kept results: every radius again from the votes, by the library and by the independent checker; all files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.reproduction.kept import CURVES, PAGE, RECORD, KeptResults, KeptStep
from experiments.reproduction.kept_tables import make_page
from experiments.reproduction.provenance import compute_digest
from smoothcert.errors import SmoothcertError
from smoothcert.results.verification import verify_directory
from smoothcert.runs.archive_files import ARCHIVE
from smoothcert.runs.recertification import recertify_points
from smoothcert.runs.run_database import MANIFEST
from smoothcert.runs.selected_run import hold_stored


def find_problems(kept: KeptResults) -> list[str]:
    """What is wrong with the kept results of a recipe, in sentences; empty if everything follows from the votes."""
    problems = [
        f"{kept.directory / product} was made by `{step.command}`, and the recipe has another command now: make it "
        f"again and keep it, or remove it together with its entry in {RECORD}"
        for product, step in kept.stale.items()
    ]
    problems += _check_files(kept)
    for product in list_archives(kept):
        problems += check_archive(kept.directory / product)
    for product, step in kept.steps.items():
        problems += _check_step(kept, product, step)
    return problems or list(_check_page(kept))


def list_archives(kept: KeptResults) -> list[str]:
    """The products that are runs."""
    return sorted(product for product, step in kept.steps.items() if (kept.directory / product / MANIFEST).is_file())


def check_archive(archive: Path) -> Iterator[str]:
    """Recompute bounds, radii and answers of every input from its votes, in two ways."""
    try:
        run = hold_stored(archive)
        if run.manifest.task != "predict" and run.manifest.digests.memory is None:
            again = recertify_points(run, str(archive))
            for before, now in zip(run.points, again.points, strict=True):
                if (before.verdict, before.further) != (now.verdict, now.further):
                    yield f"{archive}: input {before.index} has {before.verdict}, and its votes give {now.verdict}"
        for finding in verify_directory(archive, unfinished=False).list_discrepancies():
            yield f"{archive}: {finding}"
    except SmoothcertError as error:
        yield f"{archive}: {error}"


def _check_files(kept: KeptResults) -> Iterator[str]:
    """Everything that the record names is there, and nothing besides."""
    recorded = {**kept.steps, **kept.stale}
    expected = {kept.directory / PAGE, kept.directory / RECORD} if recorded else set()
    for product, step in recorded.items():
        place = kept.directory / product
        if step.header is None:
            expected |= {place / MANIFEST, place / ARCHIVE}
        elif step.seconds is not None and "training" in step.header:
            expected.add(place.with_suffix(CURVES))
    there = {file for file in kept.directory.rglob("*") if file.is_file()} if kept.directory.is_dir() else set()
    yield from (f"{file} is missing" for file in sorted(expected - there))
    yield from (f"{file} belongs to nothing that is kept" for file in sorted(there - expected))


def _check_step(kept: KeptResults, product: str, step: KeptStep) -> Iterator[str]:
    place = kept.directory / product
    if step.header is None and (now := compute_digest(place)) != step.product:
        yield f"{place} has the digest {now}, and {RECORD} states {step.product}"
    for used, digest in step.used.items():
        if used in kept.steps and kept.steps[used].product != digest:
            yield f"{product} was made with another {used} than the one that is kept"


def _check_page(kept: KeptResults) -> Iterator[str]:
    page = kept.directory / PAGE
    if kept.steps and page.read_text(encoding="utf-8") != make_page(kept):
        yield f"{page} is not what the kept results give: python -m experiments {kept.plan.recipe.name} --keep"

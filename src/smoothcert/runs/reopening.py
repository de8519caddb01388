"""Opening a finished run to ask its classifier more: the same model, data, rule and memory, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothcert.data import Dataset, ProgressCallback, load_requested
from smoothcert.errors import ManifestMismatchError, RunError
from smoothcert.models.probe import check_probe
from smoothcert.runs.building import build_smoothed, match_to_run
from smoothcert.runs.resumption import (
    Moved,
    check_key_is_known,
    check_memory_exists,
    check_promises_are_kept,
    spec_of_run,
)
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import RunManifest, RunSpec


def spec_to_reopen(run: Path, *, purpose: str, moved: Moved) -> RunSpec:
    """The spec of a run that was sampled by us. purpose: the verb for the message about another kind of run."""
    task = read_manifest(run).task
    if task == "recertify":
        raise RunError(f"{run} is a {task} run, which has no samples of its own; {purpose} the run it was made from")
    return spec_of_run(run, task=task, moved=moved)


@contextmanager
def reopen_run(
    run: Path, spec: RunSpec, *, fetching: ProgressCallback | None = None
) -> Iterator[tuple[SmoothedClassifier, Dataset]]:
    """The smoothed classifier of a run with its data; a ManifestMismatchError or RunError if it is another one.

    A memory must hold everything the run has promised. It is opened, and nothing is claimed from it here.
    """
    if spec.memory is not None:
        check_memory_exists(spec.memory, run)
    dataset = load_requested(spec.data, progress=fetching)
    with build_smoothed(spec, dataset) as smoothed, RunStore.open(run) as store:
        dataset = match_to_run(dataset, store.manifest)
        check_same(run, store.manifest, smoothed, dataset)
        if spec.memory is not None:
            check_key_is_known(smoothed.memory_key, spec.memory, run)
            smoothed.open_memory()
            assert smoothed.memory is not None
            check_promises_are_kept(smoothed.memory, store)
        yield smoothed, dataset


def check_same(run: Path, manifest: RunManifest, smoothed: SmoothedClassifier, dataset: Dataset) -> None:
    """Refuse another model, data or rule than the manifest of this run has."""
    stored = manifest.digests
    pairs = {
        "model": (stored.model, smoothed.classifier.digest),
        "data": (stored.data, dataset.digest),
        "sigma rule": (stored.sigma, None if stored.sigma is None else smoothed.rule.digest),
    }
    for name, (old, new) in pairs.items():
        if old != new:
            raise ManifestMismatchError(
                f"{run} was made with another {name} (or back end): its digest is {str(old)[:12]}, now it is "
                f"{str(new)[:12]}. Certificates are about the classifier they were made for; give the right one"
            )
    check_probe(manifest.model.probe, smoothed.classifier, dataset.input_shape, of=str(run))

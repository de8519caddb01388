"""What a finished run was made with, opened again to be asked more: the same model, data, rule and memory, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothcert.data import Dataset, ProgressCallback
from smoothcert.errors import ManifestMismatchError, RunError
from smoothcert.models.probe import check_probe
from smoothcert.records import RunManifest
from smoothcert.runs.jobs import Job, dataset_for, smoothed_for
from smoothcert.runs.promised_regions import check_key_is_known, check_memory_is_there, check_promises_are_kept
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.smoothed import SmoothedClassifier


def job_of(run: Path, *, purpose: str, **moved: str | float | None) -> Job:
    """The job of a run that was sampled by us. purpose: what it is for, to be told whoever gives another run.

    moved: where model, data or memory lie now, another device, engine or number of workers.
    """
    task = read_manifest(run).task
    if task not in ("certify", "predict"):
        raise RunError(
            f"{run} is a {task} run, which does not say how its votes are made; {purpose} the run it comes from"
        )
    return Job.of_run(run, task="predict" if task == "predict" else "certify", **moved)


@contextmanager
def reopened(
    run: Path, job: Job, *, fetching: ProgressCallback | None = None
) -> Iterator[tuple[SmoothedClassifier, Dataset]]:
    """The smoothed classifier of a run with its data; a ManifestMismatchError or RunError if it is another one.

    A memory must hold all that the run has promised. It is opened, and nothing is claimed from it here.
    """
    manifest = read_manifest(run)
    if job.memory is not None:
        check_memory_is_there(job.memory, run)
    dataset = dataset_for(job, fetching=fetching)
    with smoothed_for(job, dataset) as smoothed, RunStore.open(run) as store:
        _check_same(run, manifest, smoothed, dataset)
        if job.memory is not None:
            check_key_is_known(smoothed.memory_key, job.memory, run)
            assert smoothed.memory is not None
            check_promises_are_kept(smoothed.memory, store)
        yield smoothed, dataset


def _check_same(run: Path, manifest: RunManifest, smoothed: SmoothedClassifier, dataset: Dataset) -> None:
    rule = manifest.parameters.get("sigma_rule")
    pairs = {
        "model": (manifest.model.get("digest"), smoothed.classifier.digest),
        "data": (manifest.data.get("digest"), dataset.digest),
        "sigma rule": (None, None) if rule is None else (rule.get("digest"), smoothed.rule.digest),
    }
    for name, (stored, now) in pairs.items():
        if stored != now:
            raise ManifestMismatchError(
                f"{run} was made with another {name} (or back end): it has the digest {str(stored)[:12]}, now it is "
                f"{str(now)[:12]}. Certificates speak of the classifier they were made for; give the right one"
            )
    check_probe(manifest.extra.get("probe"), smoothed.classifier, dataset.input_shape, of=str(run))

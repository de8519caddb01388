"""Studies in this process: resumed is the same as never stopped, whatever the moment."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from engine_runs import finished, timeless
from smoothcert.runs.jobs import Job

from smoothcert.errors import (
    CorruptRunError,
    InputError,
    InterruptedRunError,
    ManifestMismatchError,
    ModelError,
    RunError,
)
from smoothcert.records import Outcome
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.store import RunStore

JOB = Job(
    task="certify",
    model="sample_models:digits_by_brightness",
    data="digits",
    sigma=0.25,
    n0=50,
    n=700,
    alpha=0.001,
    max_inputs=40,
    skip=3,
    seed=5,
    batch=64,
    num_classes=10,
)


def test_resumed_equals_never_stopped(tmp_path: Path) -> None:
    whole = finished(JOB, tmp_path / "whole")
    assert [point.index for point in whole] == list(range(0, 120, 3))
    for stop_after in (1, 2, 3):
        out = tmp_path / f"stopped-{stop_after}"
        with pytest.raises(InterruptedRunError, match="stored"):
            finished(JOB, out, stop_after=stop_after)
        with RunStore.open(out) as store:
            assert 0 < len(store.points()) < 40
        assert finished(JOB, out) == whole


def test_batch_workers_and_subset_change_no_vote(tmp_path: Path) -> None:
    whole = finished(JOB, tmp_path / "a")
    other = finished(dataclasses.replace(JOB, batch=17, workers=1), tmp_path / "b")
    assert other == whole
    part = finished(dataclasses.replace(JOB, max_inputs=4), tmp_path / "c")
    assert part == whole[:4]


def test_another_setting_is_refused(tmp_path: Path) -> None:
    finished(JOB, tmp_path / "run")
    with pytest.raises(ManifestMismatchError, match=r"parameters\.sigma"):
        finished(dataclasses.replace(JOB, sigma=0.5), tmp_path / "run")
    with pytest.raises(ManifestMismatchError, match="seed"):
        finished(dataclasses.replace(JOB, seed=6), tmp_path / "run")


def test_open_choices_are_taken_from_the_run(tmp_path: Path) -> None:
    job = dataclasses.replace(JOB, seed=None, batch=None, max_inputs=3)
    first = finished(job, tmp_path / "run")
    assert finished(job, tmp_path / "run") == first
    again = Job.of_run(tmp_path / "run", task="certify")
    assert again.seed is not None
    assert finished(again, tmp_path / "run") == first
    fresh = finished(job, tmp_path / "other")
    assert fresh != first  # another seed from the operating system


def test_predict_runs_too(tmp_path: Path) -> None:
    points = finished(dataclasses.replace(JOB, task="predict", n0=None), tmp_path / "run")
    assert {point.outcome for point in points} <= {Outcome.PREDICTED, Outcome.ABSTAINED}
    assert any(point.outcome is Outcome.PREDICTED for point in points)
    with pytest.raises(RunError, match="predict run"):
        recertify_run(tmp_path / "run", alpha=0.01)


def test_recertify_with_fewer_samples_equals_a_run_with_fewer(tmp_path: Path) -> None:
    """n=500 is the end of a stored segment, so the recomputed run is the run with n=500, vote for vote."""
    finished(JOB, tmp_path / "long")
    short = finished(dataclasses.replace(JOB, n=500), tmp_path / "short")
    again = recertify_run(tmp_path / "long", n=500)
    assert [(p.index, p.radius, p.prediction, p.bounds) for p in again.points] == [
        (p.index, p.radius, p.prediction, p.bounds) for p in short
    ]
    again.save(tmp_path / "saved")
    with RunStore.open(tmp_path / "saved") as store:
        assert store.points() == again.points
        assert store.manifest.parameters["n"] == 500


def test_a_recertified_run_is_not_taken_for_a_sampled_one(tmp_path: Path) -> None:
    """Between the stored cuts its votes are thinned, not drawn; going on with it would mix the two."""
    finished(JOB, tmp_path / "run")
    recertify_run(tmp_path / "run", n=600).save(tmp_path / "again")
    with pytest.raises(ManifestMismatchError, match="task: the run has 'recertify', now 'certify'"):
        finished(dataclasses.replace(JOB, n=600), tmp_path / "again")
    with pytest.raises(RunError, match="recertify run"):
        Job.of_run(tmp_path / "again", task="certify")
    assert recertify_run(tmp_path / "again", alpha=0.01).points


def test_resuming_from_another_folder_and_with_moved_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "here" / "x.npy"
    data.parent.mkdir()
    np.save(data, np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32))
    monkeypatch.chdir(data.parent)
    first = finished(dataclasses.replace(JOB, data="x.npy", skip=1), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert finished(Job.of_run(tmp_path / "run", task="certify"), tmp_path / "run") == first
    data.rename(tmp_path / "moved.npy")
    moved = Job.of_run(tmp_path / "run", task="certify", data=str(tmp_path / "moved.npy"), workers=1)
    assert finished(moved, tmp_path / "run") == first


def test_a_folder_with_the_name_of_a_dataset_does_not_confuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    first = finished(dataclasses.replace(JOB, max_inputs=2), tmp_path / "run")
    again = Job.of_run(tmp_path / "run", task="certify")
    assert again.data == "digits"
    assert finished(again, tmp_path / "run") == first


@pytest.mark.parametrize(("place", "value"), [("parameters", "x"), ("job", [1])])
def test_a_manifest_with_nonsense_inside_is_named(tmp_path: Path, place: str, value: object) -> None:
    finished(dataclasses.replace(JOB, max_inputs=1), tmp_path / "run")
    file = tmp_path / "run" / "manifest.json"
    document = json.loads(file.read_text())
    where = document["parameters"] if place == "parameters" else document["extra"]["job"]
    for key in ("alpha", "n", "sigma"):
        before, where[key] = where[key], value
        file.write_text(json.dumps(document))
        with pytest.raises(CorruptRunError):
            Job.of_run(tmp_path / "run", task="certify")
        where[key] = before


def test_recertify_at_the_same_settings_changes_nothing(tmp_path: Path) -> None:
    points = finished(JOB, tmp_path / "run")
    assert timeless(recertify_run(tmp_path / "run").points) == points
    with pytest.raises(InputError, match="can never certify"):
        recertify_run(tmp_path / "run", n=5)
    with pytest.raises(InputError, match="1 … 700"):
        recertify_run(tmp_path / "run", n=701)


def test_a_model_that_gives_no_answer_fails_every_input(tmp_path: Path) -> None:
    job = dataclasses.replace(JOB, model="sample_models:never_finite", max_inputs=3)
    points = finished(job, tmp_path / "run")
    assert [point.outcome for point in points] == [Outcome.FAILED] * 3
    assert all("no finite answer" in point.reason for point in points)


def test_data_that_does_not_fit_is_refused_before_sampling(tmp_path: Path) -> None:
    np.savez(tmp_path / "flat.npz", x=np.zeros((4, 5), dtype=np.float32), y=np.arange(4))
    with pytest.raises(ModelError, match="shape"):
        finished(dataclasses.replace(JOB, data=str(tmp_path / "flat.npz")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("batch", [16, 4096])
def test_an_input_without_a_label_leaves_the_others_theirs(tmp_path: Path, batch: int) -> None:
    x = np.random.default_rng(0).random((6, 1, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "part.npz", x=x, y=[0, 1, -1, 3, 4, 5])
    job = dataclasses.replace(JOB, data=str(tmp_path / "part.npz"), skip=1, batch=batch)
    assert [point.label for point in finished(job, tmp_path / "run")] == [0, 1, None, 3, 4, 5]


def test_unlabelled_data_can_be_certified(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32))
    points = finished(dataclasses.replace(JOB, data=str(tmp_path / "x.npy"), skip=1), tmp_path / "run")
    assert [point.label for point in points] == [None] * 3

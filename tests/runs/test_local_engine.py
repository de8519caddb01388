"""Runs in this process: resumed is the same as never stopped, whatever the moment."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from run_specs import finish_run, make_spec, resumed_spec, without_times
from smoothcert.environment import list_versions
from smoothcert.errors import (
    CorruptRunError,
    InputError,
    InterruptedRunError,
    ManifestMismatchError,
    ModelError,
    RunError,
)
from smoothcert.records import Outcome, Reason, ReasonCode
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.sampling import SAMPLING_VERSION
from smoothcert.spec import RunSpec

SETTINGS: dict[str, Any] = {
    "task": "certify",
    "model": "sample_models:digits_by_brightness",
    "data": "digits",
    "sigma": 0.25,
    "n0": 50,
    "n": 700,
    "alpha": 0.001,
    "max_inputs": 40,
    "skip": 3,
    "seed": 5,
    "batch": 64,
    "num_classes": 10,
}


def spec(**changes: Any) -> RunSpec:
    return make_spec(**(SETTINGS | changes))


def test_resumed_equals_never_stopped(tmp_path: Path) -> None:
    whole = finish_run(spec(), tmp_path / "whole")
    assert [point.index for point in whole] == list(range(0, 120, 3))
    for stop_after in (1, 2, 3):
        out = tmp_path / f"stopped-{stop_after}"
        with pytest.raises(InterruptedRunError, match="stored"):
            finish_run(spec(), out, stop_after=stop_after)
        with RunStore.open(out) as store:
            assert 0 < len(store.points()) < 40
        assert finish_run(spec(), out) == whole


def test_batch_workers_and_subset_change_no_vote(tmp_path: Path) -> None:
    whole = finish_run(spec(), tmp_path / "a")
    other = finish_run(spec(batch=17, workers=1), tmp_path / "b")
    assert other == whole
    part = finish_run(spec(max_inputs=4), tmp_path / "c")
    assert part == whole[:4]


def test_another_setting_is_refused(tmp_path: Path) -> None:
    finish_run(spec(), tmp_path / "run")
    with pytest.raises(ManifestMismatchError, match=r"spec\.sigma\.level"):
        finish_run(spec(sigma=0.5), tmp_path / "run")
    with pytest.raises(ManifestMismatchError, match="seed"):
        finish_run(spec(seed=6), tmp_path / "run")


def test_another_version_resumes_the_run_with_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment in our code, or a new numpy, never costs anybody a half-finished run; only SAMPLING_VERSION does."""
    whole = finish_run(spec(), tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        finish_run(spec(), tmp_path / "run", stop_after=1)
    stored = read_manifest(tmp_path / "run")
    versions = {**list_versions(), "numpy": "99.9"}
    monkeypatch.setattr("smoothcert.runs.manifest.list_versions", lambda: versions)
    monkeypatch.setattr("smoothcert.runs.manifest.code_digest", lambda: "0" * 64)
    heard: list[str] = []
    with prepare_run(spec(), tmp_path / "run", notice=heard.append) as run:
        execute_run(run)
        assert without_times(run.store.points()) == whole
    (notice,) = [line for line in heard if "other versions" in line]
    assert f"numpy {stored.environment['numpy']} → 99.9" in notice
    assert read_manifest(tmp_path / "run") == stored
    monkeypatch.setattr("smoothcert.runs.run_description.SAMPLING_VERSION", SAMPLING_VERSION + 1)
    with pytest.raises(ManifestMismatchError, match=f"sampling_version: the run has {SAMPLING_VERSION}, now"):
        finish_run(spec(), tmp_path / "run")


def test_open_choices_are_taken_from_the_run(tmp_path: Path) -> None:
    open_spec = spec(seed=None, batch=None, max_inputs=3)
    first = finish_run(open_spec, tmp_path / "run")
    assert finish_run(open_spec, tmp_path / "run") == first
    again = resumed_spec(tmp_path / "run")
    assert again.seed is not None
    assert finish_run(again, tmp_path / "run") == first
    fresh = finish_run(open_spec, tmp_path / "other")
    assert fresh != first  # another seed from the operating system


def test_predict_runs_too(tmp_path: Path) -> None:
    points = finish_run(spec(task="predict", n0=None), tmp_path / "run")
    assert {point.outcome for point in points} <= {Outcome.PREDICTED, Outcome.ABSTAINED}
    assert any(point.outcome is Outcome.PREDICTED for point in points)
    with pytest.raises(RunError, match="predict run"):
        recertify_run(tmp_path / "run", alpha=0.01)


def test_recertify_with_fewer_samples_equals_a_run_with_fewer(tmp_path: Path) -> None:
    """n=500 is the end of a stored segment, so the recomputed run is the run with n=500, vote for vote."""
    finish_run(spec(), tmp_path / "long")
    short = finish_run(spec(n=500), tmp_path / "short")
    again = recertify_run(tmp_path / "long", n=500)
    assert [(p.index, p.radius, p.prediction, p.bounds) for p in again.points] == [
        (p.index, p.radius, p.prediction, p.bounds) for p in short
    ]
    again.save(tmp_path / "saved")
    with RunStore.open(tmp_path / "saved") as store:
        assert store.points() == again.points
        assert store.manifest.spec.question.n == 500


def test_a_recertified_run_is_not_taken_for_a_sampled_one(tmp_path: Path) -> None:
    """Between the stored cuts its votes are thinned, not drawn; resuming it would mix the two."""
    finish_run(spec(), tmp_path / "run")
    recertify_run(tmp_path / "run", n=600).save(tmp_path / "again")
    with pytest.raises(ManifestMismatchError, match=r"spec\.task: the run has 'recertify', now 'certify'"):
        finish_run(spec(n=600), tmp_path / "again")
    with pytest.raises(RunError, match="recertify run"):
        resumed_spec(tmp_path / "again")
    assert recertify_run(tmp_path / "again", alpha=0.01).points


def test_resuming_from_another_folder_and_with_moved_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "here" / "x.npy"
    data.parent.mkdir()
    np.save(data, np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32))
    monkeypatch.chdir(data.parent)
    first = finish_run(spec(data="x.npy", skip=1), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert finish_run(resumed_spec(tmp_path / "run"), tmp_path / "run") == first
    data.rename(tmp_path / "moved.npy")
    moved = resumed_spec(tmp_path / "run", data=str(tmp_path / "moved.npy"), workers=1)
    assert finish_run(moved, tmp_path / "run") == first


def test_a_folder_with_the_name_of_a_dataset_does_not_confuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    first = finish_run(spec(max_inputs=2), tmp_path / "run")
    again = resumed_spec(tmp_path / "run")
    assert again.data.place == "digits"
    assert finish_run(again, tmp_path / "run") == first


@pytest.mark.parametrize("value", ["x", [1]], ids=str)
def test_a_manifest_with_nonsense_inside_is_named(tmp_path: Path, value: object) -> None:
    finish_run(spec(max_inputs=1), tmp_path / "run")
    file = tmp_path / "run" / "manifest.json"
    document = json.loads(file.read_text())
    places = {"alpha": document["spec"], "n": document["spec"]["question"], "level": document["spec"]["sigma"]}
    for key, where in places.items():
        before, where[key] = where[key], value
        file.write_text(json.dumps(document))
        with pytest.raises(CorruptRunError, match=rf"at `\$\.spec\..*{key}`"):
            resumed_spec(tmp_path / "run")
        where[key] = before


def test_recertify_at_the_same_settings_changes_nothing(tmp_path: Path) -> None:
    points = finish_run(spec(), tmp_path / "run")
    assert without_times(recertify_run(tmp_path / "run").points) == points
    with pytest.raises(InputError, match="can never certify"):
        recertify_run(tmp_path / "run", n=5)
    with pytest.raises(InputError, match="1 … 700"):
        recertify_run(tmp_path / "run", n=701)


def test_a_model_that_gives_no_answer_fails_every_input(tmp_path: Path) -> None:
    points = finish_run(spec(model="sample_models:never_finite", max_inputs=3), tmp_path / "run")
    assert [point.outcome for point in points] == [Outcome.FAILED] * 3
    assert all(point.reason == Reason(ReasonCode.NO_FINITE_ANSWER, {"invalid": 50, "n": 50}) for point in points)
    assert all("no finite answer" in str(point.reason) for point in points)


def test_data_that_does_not_fit_is_refused_before_sampling(tmp_path: Path) -> None:
    np.savez(tmp_path / "flat.npz", x=np.zeros((4, 5), dtype=np.float32), y=np.arange(4))
    with pytest.raises(ModelError, match="shape"):
        finish_run(spec(data=str(tmp_path / "flat.npz")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("batch", [16, 4096])
def test_an_input_without_a_label_leaves_the_others_theirs(tmp_path: Path, batch: int) -> None:
    x = np.random.default_rng(0).random((6, 1, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "part.npz", x=x, y=[0, 1, -1, 3, 4, 5])
    partly = spec(data=str(tmp_path / "part.npz"), skip=1, batch=batch)
    assert [point.label for point in finish_run(partly, tmp_path / "run")] == [0, 1, None, 3, 4, 5]


def test_unlabelled_data_can_be_certified(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32))
    points = finish_run(spec(data=str(tmp_path / "x.npy"), skip=1), tmp_path / "run")
    assert [point.label for point in points] == [None] * 3

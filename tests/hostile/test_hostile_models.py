"""Models that answer nonsense, fail, leave, or take their time: never a radius for it, and a sentence."""

from __future__ import annotations

import dataclasses
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import hostile_models
from cli_runner import command, environment, smoothcert
from run_specs import make_spec
from smoothcert.errors import ModelError, ModelMismatchError
from smoothcert.models import load_classifier
from smoothcert.records import CertifiedPoint, Outcome, ReasonCode
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.smoothed import SmoothedClassifier

SHAPE = (1, 8, 8)


def certified(model: str, *, certificate: str | None = None, sigma: float = 0.25, n: int = 400) -> list[CertifiedPoint]:
    classifier = load_classifier(f"hostile_models:{model}", input_shape=SHAPE, num_classes=None)
    inputs = np.full((2, *SHAPE), 0.5, dtype=np.float32)
    with SmoothedClassifier(classifier, sigma=sigma, seed=1, batch=64, input_shape=SHAPE) as smoothed:
        chosen = {} if certificate is None else {"certificate": certificate}
        return list(smoothed.certify(inputs, n0=20, n=n, alpha=0.001, **chosen))


@pytest.mark.parametrize("certificate", [None, "gaussian-soft"])
@pytest.mark.parametrize("model", ["all_nan", "all_inf", "all_minus_inf"])
def test_no_finite_answer_is_no_answer(model: str, certificate: str | None) -> None:
    """Fails where argmax decides alone: NaN and infinity win there, for class 0, with the largest radius there is."""
    for point in certified(model, certificate=certificate):
        assert (point.outcome, point.radius, point.prediction) == (Outcome.FAILED, 0.0, None)
        assert point.reason is not None
        assert point.reason.code is ReasonCode.NO_FINITE_ANSWER
        assert str(point.reason)


def test_invalid_votes_count_against_the_class() -> None:
    """Fails where samples without an answer are left out: then class 3 has every vote there is."""
    for point in certified("nan_now_and_then"):
        assert point.outcome is not Outcome.CERTIFIED
        assert point.radius == 0.0


def test_a_tie_goes_to_the_lowest_class_wherever_it_is_broken() -> None:
    """Fails where -0.0 counts as less than 0.0, or the last of equals is taken."""
    ties, zeros = certified("ties"), certified("negative_zeros")
    assert [point.prediction for point in ties + zeros] == [0, 0, 0, 0]
    assert [point.radius for point in ties] == [point.radius for point in zeros]


def test_a_model_that_changes_its_mind_is_not_certified() -> None:
    """Fails where one pass stands for all samples."""
    with pytest.raises(ModelMismatchError, match="fixed function"):
        certified("Moody", n=4000)


@pytest.mark.parametrize("model", hostile_models.REFUSED + hostile_models.ANNOUNCED + hostile_models.ESTIMATORS)
def test_nonsense_is_a_sentence(model: str) -> None:
    """Fails where only Exceptions of the call itself are foreseen: `leaves` ended the program with exit code 0."""
    with pytest.raises(ModelError) as told:
        certified(model)
    assert len(str(told.value)) > 20


def test_a_module_that_leaves_while_it_is_imported() -> None:
    """Fails where SystemExit passes: the command line ended without a word, with exit code 0."""
    with pytest.raises(ModelError, match="ended while it was imported"):
        load_classifier("leaves_when_imported:model", input_shape=SHAPE)


@pytest.mark.parametrize("model", ["leaves", "raises"])
def test_the_command_line_says_so_too(tmp_path: Path, model: str) -> None:
    """Fails with a traceback, or with exit code 0 and nothing done."""
    told = smoothcert(
        "certify", "--model", f"hostile_models:{model}", "--data", "digits", "--sigma", 0.25, "--n0", 20, "--n", 200,
        "--max", 2, "--out", tmp_path / "run",
    )  # fmt: skip
    assert told.returncode == ModelError.exit_code, told.stderr
    assert "Traceback" not in told.stderr
    assert "smoothcert: " in told.stderr


def test_what_was_finished_before_a_failure_is_kept(tmp_path: Path) -> None:
    """Fails where results are written at the end."""
    spec = make_spec(
        model="hostile_models:Fails", data="digits", sigma=0.25, n0=20, n=400, alpha=0.001,
        max_inputs=60, seed=3, batch=64, certificate="gaussian",
    )  # fmt: skip
    with pytest.raises(ModelError, match="the cable came off"), prepare_run(spec, tmp_path / "run") as run:
        execute_run(run)
    with sqlite3.connect(tmp_path / "run" / "results.sqlite") as connection:
        (before,) = connection.execute("SELECT count(*) FROM points").fetchone()
    assert 0 < before < 60
    kept = _points(tmp_path / "run")
    # The same command resumes the run, and changes nothing of what there was.
    with prepare_run(spec, tmp_path / "run") as run:
        assert run.finished == before
        execute_run(dataclasses.replace(run, indices=run.indices[: before + 1]))
    assert _points(tmp_path / "run")[: len(kept)] == kept


def _points(run: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(run / "results.sqlite") as connection:
        return connection.execute("SELECT idx, radius, prediction FROM verdicts ORDER BY idx").fetchall()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_slow_model_can_be_stopped_within_a_batch(tmp_path: Path) -> None:
    """Fails where a signal waits for the end of the batch: a minute here, forever elsewhere."""
    process = subprocess.Popen(
        command(
            "certify", "--model", "hostile_models:Slow", "--data", "digits", "--sigma", 0.25, "--n0", 20, "--n", 2000,
            "--max", 2, "--batch", 64, "--out", tmp_path / "run",
        ),
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stderr is not None
    told = ""
    for line in process.stderr:
        told += line
        if "a long thought" in line:
            break
    began = time.perf_counter()
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        told += line
        if "press Ctrl-C again" in line:
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert time.perf_counter() - began < 20
    assert process.returncode == 130, told + rest
    assert "--resume" in rest
    assert "Traceback" not in told + rest

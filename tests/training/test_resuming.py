"""A training with every kind of state, killed or stopped at any point, gives the same weights, history and curves."""

from __future__ import annotations

import csv
import dataclasses
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import small_training
from cli_runner import SUPPORT, environment
from small_training import OBJECTIVES, everything, train_everything
from smoothcert.errors import CorruptRunError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import (
    Augment,
    CarriedSigma,
    Optimiser,
    curves_path,
    load_state,
    partial_path,
    run_training,
    training_loop,
)
from smoothcert.training.curves import CsvCurves

STEPS_AN_EPOCH = 6  # 135 inputs, 15 of 150 being kept back, 24 at a time


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Uninterrupted trainings."""
    folder = tmp_path_factory.mktemp("clean")
    return {name: train_everything(name, folder / f"{name}.safetensors") for name in OBJECTIVES}


def curves(out):
    """The curves without the seconds."""
    with curves_path(out).open() as file:
        return [{name: value for name, value in line.items() if name != "seconds"} for line in csv.DictReader(file)]


def assert_same(finished, clean):
    for found in (finished.module, load_checkpoint(finished.path).module):
        expected = clean.module.state_dict()
        assert found.state_dict().keys() == expected.keys()
        for name, tensor in found.state_dict().items():
            assert torch.equal(tensor, expected[name]), name
    histories = [[dataclasses.replace(each, seconds=0.0) for each in model.history] for model in (finished, clean)]
    assert histories[0] == histories[1]
    assert curves(finished.path) == curves(clean.path)
    assert len(curves(finished.path)) == 3
    facts = [{**model.header.training, "seconds": 0.0} for model in (finished, clean)]
    assert facts[0] == facts[1]
    assert not partial_path(finished.path).exists()


def killed_at(name, out, *, epoch, batch):
    """A child process resumes the training and is killed when its stored state has reached a point."""
    program = [sys.executable, str(SUPPORT / "small_training.py"), name, str(out)]
    with subprocess.Popen(program, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        stored = iter(process.stdout.readline, "")
        assert any((epoch, batch) <= tuple(map(int, line.split())) for line in stored), "it ended too early"
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    return load_state(partial_path(out))


def test_kill_nine_in_the_middle_of_an_epoch(clean, tmp_path):
    out = tmp_path / "m.safetensors"
    state = killed_at("smoothadv", out, epoch=1, batch=3)
    assert state.epoch == 1
    assert 3 <= state.batch < STEPS_AN_EPOCH
    assert len(state.levels.unique()) > 50  # σ had begun to move
    assert set(state.averaged) == set(state.parameters) == set(state.best)
    assert any(name.endswith("/exp_avg_sq") for name in state.optimiser)
    assert not out.exists()
    assert_same(train_everything("smoothadv", out, resume=True), clean["smoothadv"])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_stopped_after_every_single_step(name, clean, tmp_path):
    """Stops once after every batch of every epoch."""
    out, stop = tmp_path / "m.safetensors", threading.Event()
    stop.set()
    rests = []
    while len(rests) < 3 * STEPS_AN_EPOCH:
        with pytest.raises(InterruptedRunError):
            train_everything(name, out, resume=True, stop=stop)
        state = load_state(partial_path(out))
        rests.append((state.epoch, state.batch))
    assert rests == [(epoch, batch + 1) for epoch in range(3) for batch in range(STEPS_AN_EPOCH)]
    assert_same(train_everything(name, out, resume=True), clean[name])


class Dead(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("where", ["before the curves", "after the curves", "before the state", "after the state"])
def test_dead_between_the_things_done_after_an_epoch(where, epoch, clean, tmp_path, monkeypatch):
    when, what = where.split(" the ")
    place, name = (CsvCurves, "write") if what == "curves" else (training_loop, "save_state")
    real, calls = getattr(place, name), []

    def deadly(*arguments):
        calls.append(arguments)
        if len(calls) == epoch and when == "before":
            raise Dead
        real(*arguments)
        if len(calls) == epoch:
            raise Dead

    with monkeypatch.context() as patch:
        patch.setattr(place, name, deadly)
        with pytest.raises(Dead):
            train_everything("consistency", tmp_path / "m.safetensors")
    finished = train_everything("consistency", tmp_path / "m.safetensors", resume=True)
    assert_same(finished, clean["consistency"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimiser": Optimiser.SGD}, "optimiser was adamw, now sgd"),
        ({"average": 0.99}, r"average was 0\.9, now 0\.99"),
        ({"augment": Augment.NONE}, "augment was flip-crop, now none"),
        (
            {"carried": CarriedSigma(after=0.3, rate=0.2)},
            r"sigma_optimised was optimised:.*after=0\.2.*, now .*after=0\.3",
        ),
        ({"carried": None}, "sigma_optimised was optimised:.*, now None"),
        ({"patience": None}, "patience was 2, now None"),
        ({"objective": OBJECTIVES["smoothadv"]}, "objective was .*'consistency'.*, now .*'smoothadv'"),
    ],
)
def test_any_other_setting_is_refused(change, message, tmp_path):
    out, stop = tmp_path / "m.safetensors", threading.Event()
    stop.set()
    with pytest.raises(InterruptedRunError):
        train_everything("consistency", out, stop=stop)
    before = partial_path(out).read_bytes()
    other = everything(**({"objective": OBJECTIVES["consistency"]} | change))
    with pytest.raises(ManifestMismatchError, match=message):
        run_training(other, small_training.SmallDigits(), out=out, resume=True, device="cpu", threads=1)
    assert partial_path(out).read_bytes() == before


def test_a_damaged_state_is_refused(tmp_path):
    out, stop = tmp_path / "m.safetensors", threading.Event()
    stop.set()
    with pytest.raises(InterruptedRunError):
        train_everything("consistency", out, stop=stop)
    content = partial_path(out).read_bytes()
    partial_path(out).write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptRunError, match="is damaged"):
        train_everything("consistency", out, resume=True)


def test_the_settings_matter(clean):
    """Control: the two objectives give different weights, and σ has changed."""
    first, second = (clean[name].module.state_dict() for name in OBJECTIVES)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    spread = clean["smoothadv"].header.training["sigma_trained_with"]
    assert spread["min"] < 0.24
    sigmas = [each.sigma for each in clean["smoothadv"].history]
    assert len(set(sigmas)) == 3
    assert np.isclose(sigmas[-1], spread["mean"])

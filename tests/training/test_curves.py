"""Curves: one line per epoch in a csv file, the same numbers in TensorBoard, also after resuming."""

from __future__ import annotations

import csv
import os
import sys
import threading
import warnings
from pathlib import Path

import pytest

from small_training import SmallDigits
from smoothcert.errors import InputError, InterruptedRunError, MissingExtraError
from smoothcert.training import CarriedSigma, TrainingConfig, curves_path, run_training, training_loop
from smoothcert.training.objectives.consistency import Consistency


def run(out, **options):
    config = TrainingConfig(
        arch="mlp-16", sigma=0.25, seed=1, objective=Consistency(), carried=CarriedSigma(after=0.3), epochs=3, batch=30
    )
    return run_training(config, SmallDigits(), out=out, device="cpu", threads=1, **options)


def lines(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


NAMES = {
    "loss": "loss",
    "terms/cross_entropy": "cross_entropy",
    "terms/consistency": "consistency",
    "terms/entropy": "entropy",
    "accuracy under noise": "accuracy_under_noise",
    "learning rate": "learning_rate",
    "mean sigma": "mean_sigma",
}
"""Of TensorBoard, and of the csv file."""


def scalars(directory):
    """{name: [(epoch, value), …]} as TensorBoard shows them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(directory)).Reload()
        return {name: [(each.step, each.value) for each in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_the_csv_file_has_every_epoch_of_the_history(tmp_path):
    out = tmp_path / "model.safetensors"
    trained = run(out)
    assert curves_path(out) == tmp_path / "model.curves.csv"
    found = lines(tmp_path / "model.curves.csv")
    assert list(found[0]) == ["epoch", *NAMES.values(), "seconds", "evaluated_on"]
    assert {line["evaluated_on"] for line in found} == {"train"}
    assert [line["epoch"] for line in found] == ["1", "2", "3"]
    for line, result in zip(found, trained.history, strict=True):
        assert float(line["loss"]) == pytest.approx(result.loss, rel=1e-5)
        assert float(line["accuracy_under_noise"]) == pytest.approx(result.accuracy, rel=1e-5)
        assert float(line["learning_rate"]) == pytest.approx(result.rate, rel=1e-5)
        assert float(line["mean_sigma"]) == pytest.approx(result.sigma, rel=1e-5)
        assert sum(result.terms.values()) == pytest.approx(result.loss)
        for name, value in result.terms.items():
            assert float(line[name]) == pytest.approx(value, rel=1e-5)
    seconds = [float(line["seconds"]) for line in found]
    assert seconds == sorted(seconds)


def test_tensorboard_has_the_numbers_of_the_csv_file(tmp_path):
    pytest.importorskip("tensorboard")
    run(tmp_path / "m.safetensors", tensorboard=tmp_path / "board")
    found, expected = scalars(tmp_path / "board"), lines(tmp_path / "m.curves.csv")
    assert set(found) == set(NAMES)
    for name, column in NAMES.items():
        assert [step for step, _ in found[name]] == [1, 2, 3]
        assert [value for _, value in found[name]] == pytest.approx(
            [float(line[column]) for line in expected], rel=1e-5
        )


def test_tensorboard_over_a_stop_has_every_epoch_once(tmp_path):
    pytest.importorskip("tensorboard")
    out, stop = tmp_path / "m.safetensors", threading.Event()

    def after_the_first_epoch(report):
        if report.epoch == 2:
            stop.set()

    with pytest.raises(InterruptedRunError):
        run(out, tensorboard=tmp_path / "board", stop=stop, progress=after_the_first_epoch)
    stop.clear()
    run(out, tensorboard=tmp_path / "board", resume=True)
    run(tmp_path / "clean.safetensors", tensorboard=tmp_path / "clean")
    assert scalars(tmp_path / "board") == scalars(tmp_path / "clean")


def test_an_epoch_shown_but_not_stored_is_not_there_twice(tmp_path, monkeypatch):
    """Killed after the curves of the second epoch were written: the epoch is repeated, its first record purged."""
    pytest.importorskip("tensorboard")
    out, real = tmp_path / "m.safetensors", training_loop.save_state

    def deadly(path, state):
        if state.epoch == 2:
            raise SystemError("dead")
        real(path, state)

    with monkeypatch.context() as patch:
        patch.setattr(training_loop, "save_state", deadly)
        with pytest.raises(SystemError, match="dead"):
            run(out, tensorboard=tmp_path / "board")
    assert [step for step, _ in scalars(tmp_path / "board")["loss"]] == [1, 2]
    run(out, tensorboard=tmp_path / "board", resume=True)
    assert [step for step, _ in scalars(tmp_path / "board")["loss"]] == [1, 2, 3]


def test_without_tensorboard_there_is_a_sentence_and_no_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match="curves for TensorBoard needs tensorboard"):
        run(tmp_path / "m.safetensors", tensorboard=tmp_path / "board")
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_a_tensorboard_directory_that_is_no_text(tmp_path):
    """Was a UnicodeEncodeError, after the first epoch."""
    pytest.importorskip("tensorboard")
    with pytest.raises(InputError, match="is not UTF-8"):
        run(tmp_path / "m.safetensors", tensorboard=Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))


def test_a_tensorboard_directory_that_cannot_be_written(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"TensorBoard curves cannot be written to .*file/log: Not a directory"):
        run(tmp_path / "m.safetensors", tensorboard=tmp_path / "file" / "log")

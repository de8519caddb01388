"""A run over a folder of images, whose files are read while others are sampled."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from smoothcert.data import images
from smoothcert.errors import DataError, InterruptedRunError
from smoothcert.runs import execution
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.spec import ConstantLevel, DataSpec, FixedN, ModelSpec, NoiseSpec, RunSpec

IMAGES = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("images")
    draw = np.random.default_rng(0)
    for number in range(IMAGES):
        (place / f"class-{number % 10}").mkdir(exist_ok=True)
        pixels = draw.integers(0, 256, (8, 8)).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"class-{number % 10}" / f"{number:03}.png")
    return place


def spec_of(folder: Path) -> RunSpec:
    return RunSpec(
        task="certify",
        model=ModelSpec(place="sample_models:logistic_digits"),
        data=DataSpec(place=str(folder), input_shape=(1, 8, 8)),
        noise=NoiseSpec(),
        sigma=ConstantLevel(level=0.25),
        question=FixedN(n=50, n0=20),
        alpha=0.01,
        certificates=("gaussian",),
        seed=5,
        batch=16,
    )


def rows_of(run: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(run / "results.sqlite")) as connection:
        return {
            "tallies": connection.execute("SELECT * FROM tallies ORDER BY idx, stage, start").fetchall(),
            "verdicts": connection.execute("SELECT * FROM verdicts ORDER BY idx, place").fetchall(),
        }


def run_it(folder: Path, out: Path, **settings: Any) -> None:
    with prepare_run(spec_of(folder), out) as run:
        execute_run(run, **settings)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "smoothcert-reader"]


def test_votes_are_those_of_images_read_one_group_after_the_other(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[str]()
    read = images.read_image

    def noting(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name)
        return read(*arguments)

    monkeypatch.setattr(images, "read_image", noting)
    run_it(folder, tmp_path / "ahead")
    assert "smoothcert-reader" in threads
    monkeypatch.setattr(execution, "reads_files", lambda _: False)
    run_it(folder, tmp_path / "plain")
    assert rows_of(tmp_path / "ahead") == rows_of(tmp_path / "plain")
    assert len({row[0] for row in rows_of(tmp_path / "ahead")["verdicts"]}) == IMAGES


def test_an_image_that_disappears_is_named_and_what_was_before_is_stored(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = images.read_image

    def failing(path: Path, *arguments: Any) -> Any:
        if path.name == "009.png" and threading.current_thread() is not threading.main_thread():
            raise DataError(f"{path} cannot be read as an image: gone")
        return read(path, *arguments)

    monkeypatch.setattr(images, "read_image", failing)
    with pytest.raises(DataError, match=r"009\.png cannot be read as an image"):
        run_it(folder, tmp_path / "run")
    assert not readers()
    stored = {row[0] for row in rows_of(tmp_path / "run")["verdicts"]}
    assert stored
    assert stored == set(range(len(stored)))
    monkeypatch.setattr(images, "read_image", read)
    run_it(folder, tmp_path / "run")
    run_it(folder, tmp_path / "whole")
    assert rows_of(tmp_path / "run") == rows_of(tmp_path / "whole")


def test_a_run_that_is_stopped_reads_no_further(folder: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    with pytest.raises(InterruptedRunError):
        run_it(folder, tmp_path / "run", stop=stop, on_shard=lambda _: stop.set())
    assert not readers()


def test_an_interrupt_leaves_no_thread(folder: Path, tmp_path: Path) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_it(folder, tmp_path / "run", on_shard=interrupted)
    assert not readers()

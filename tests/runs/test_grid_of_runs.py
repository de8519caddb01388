"""The grid that a run finds in its data, is asked for, or is resumed with: files of floats, .npy, .npz and .csv."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runner import smoothcert
from run_specs import finish_run, make_spec, resumed_spec
from smoothcert.errors import CorruptRunError, DataError, InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.records import CertifiedPoint, Noise
from smoothcert.records.sentences import describe_noise
from smoothcert.runs.certificate_documents import document_of
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.spec import NoiseSpec, RunSpec

PIXELS = np.random.default_rng(3).integers(0, 256, (6, 64)).astype(np.uint8)
LABELS = np.arange(6) % 3
SETTINGS: dict[str, Any] = {
    "task": "certify",
    "model": "sample_models:digits_by_brightness",
    "data": "",
    "sigma": 0.25,
    "n0": 20,
    "n": 400,
    "alpha": 0.001,
    "seed": 5,
    "batch": 64,
    "num_classes": 10,
}


def spec(**changes: Any) -> RunSpec:
    return make_spec(**(SETTINGS | changes))


def saved(folder: Path, x: np.ndarray, ending: str = ".npz") -> str:
    file = folder / f"inputs{ending}"
    if ending == ".npz":
        np.savez(file, x=x, y=LABELS)
    elif ending == ".npy":
        np.save(file, x)
        np.save(folder / "inputs_labels.npy", LABELS)
    else:
        rows = (
            ",".join([*(repr(float(value)) for value in row), str(label)]) for row, label in zip(x, LABELS, strict=True)
        )
        file.write_text("\n".join(rows) + "\n")
    return str(file)


def spec_on(folder: Path, x: np.ndarray, ending: str = ".npz", **settings: Any) -> RunSpec:
    return spec(data=saved(folder, x, ending), **settings)


def floats() -> np.ndarray:
    return np.random.default_rng(4).random((6, 64)).astype(np.float32)


def counts(points: list[CertifiedPoint]) -> list[list[list[int]]]:
    return [[tally.counts.tolist() for tally in point.tallies] for point in points]


def grid_of(run: Path) -> int | None:
    return read_manifest(run).grid


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv"])
@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_floats_of_eight_bits_get_the_noise_that_bytes_get(tmp_path: Path, ending: str, noise: str) -> None:
    (tmp_path / "bytes").mkdir()
    of_bytes = finish_run(spec_on(tmp_path / "bytes", PIXELS, noise=noise), tmp_path / "run-of-bytes")
    points = finish_run(spec_on(tmp_path, PIXELS / 255, ending, noise=noise), tmp_path / "run")
    assert grid_of(tmp_path / "run") == 256
    assert all(point.grid == 256 for point in points)
    assert counts(points) == counts(of_bytes)


def test_such_a_run_is_verified_and_replayed(tmp_path: Path) -> None:
    finish_run(spec_on(tmp_path, PIXELS / np.float32(255)), tmp_path / "run")
    told = smoothcert("verify", tmp_path / "run", "--replay", SETTINGS["model"], 2)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "float" not in told.stdout


def test_the_command_line_says_what_it_found(tmp_path: Path) -> None:
    common = ("--model", SETTINGS["model"], "--num-classes", 10, "--sigma", 0.25, "--n", 200, "--max", 1)
    (tmp_path / "a").mkdir()
    exact = smoothcert("predict", *common, "--data", saved(tmp_path, PIXELS / 255), "--out", tmp_path / "exact")
    plain = smoothcert("predict", *common, "--data", saved(tmp_path / "a", floats()), "--out", tmp_path / "plain")
    assert exact.returncode == plain.returncode == 0, exact.stderr + plain.stderr
    assert "float32" not in exact.stderr
    assert "the inputs lie on no grid of 256 or 65536 levels" in plain.stderr.replace("\n", " ")
    wrong = smoothcert(
        "predict", *common, "--data", saved(tmp_path, PIXELS / 255), "--grid", "17", "--out", tmp_path / "w"
    )
    assert wrong.returncode != 0
    assert "does not lie on --grid 17" in wrong.stderr.replace("\n", " ")


@pytest.mark.parametrize("asked", [{"grid": "float"}, {"noise": "float"}, {"noise": "gaussian-float"}])
def test_float_noise_can_be_asked_for(tmp_path: Path, asked: dict[str, str]) -> None:
    points = finish_run(spec_on(tmp_path, PIXELS / 255, **asked), tmp_path / "run")
    assert grid_of(tmp_path / "run") is None
    noise = read_manifest(tmp_path / "run").spec.noise
    assert noise == NoiseSpec(kind=Noise.GAUSSIAN, grid=None, generator="philox4x32-10")
    assert describe_noise(noise.levels) == "float32, not sound in floating point"
    assert all(point.grid is None for point in points)


def test_a_number_of_levels_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "bytes").mkdir()
    for name, wanted in (
        ("floats", spec_on(tmp_path, PIXELS / 255, grid="65536")),
        ("of-bytes", spec_on(tmp_path / "bytes", PIXELS, grid="65536")),
    ):
        finish_run(wanted, tmp_path / name)
        assert grid_of(tmp_path / name) == 65536
        told = smoothcert("verify", tmp_path / name)
        assert told.returncode == 0, told.stdout + told.stderr


def test_every_input_decides_not_the_first_only(tmp_path: Path) -> None:
    values = np.vstack([PIXELS[:5] / 255, floats()[:1]])
    finish_run(spec_on(tmp_path, values, max_inputs=2), tmp_path / "run")
    assert grid_of(tmp_path / "run") is None
    with pytest.raises(DataError, match="does not lie on --grid 256"):
        finish_run(spec_on(tmp_path, values, max_inputs=2, grid="256"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": "many"}, "--grid many is invalid: give detect, float or a number of levels"),
        ({"grid": "1"}, "--grid 1 is invalid"),
        ({"grid": "-256"}, "--grid -256 is invalid"),
        ({"grid": "256", "noise": "float"}, "--noise float is noise in float32, and --grid 256 requests exact steps"),
        ({"grid": "256", "noise": "uniform-float"}, "--noise uniform-float is noise in float32"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        finish_run(spec_on(tmp_path, PIXELS / 255, **settings), tmp_path / "run")


def test_a_sigma_below_one_step_is_no_error_where_the_grid_was_only_found(tmp_path: Path) -> None:
    finish_run(spec_on(tmp_path, PIXELS / 255, sigma=1e-5), tmp_path / "run")
    assert grid_of(tmp_path / "run") is None
    with pytest.raises(DataError, match="almost always 0"):
        finish_run(spec_on(tmp_path, PIXELS / 255, sigma=1e-5, grid="256"), tmp_path / "other")


def test_with_a_memory_floats_keep_float_noise_unless_the_grid_is_named(tmp_path: Path) -> None:
    finish_run(spec_on(tmp_path, PIXELS / 255, memory=str(tmp_path / "m.sqlite")), tmp_path / "run")
    assert grid_of(tmp_path / "run") is None
    finish_run(spec_on(tmp_path, PIXELS / 255, memory=str(tmp_path / "n.sqlite"), grid="256"), tmp_path / "named")
    assert grid_of(tmp_path / "named") == 256


class TestResuming:
    """A run is resumed with the grid it was begun with."""

    @pytest.fixture
    def stopped(self, tmp_path: Path) -> tuple[RunSpec, Path]:
        """Floats of eight bits in a run with float noise; and the spec that would detect their grid."""
        detecting = spec_on(tmp_path, PIXELS / 255, n=4000)
        with pytest.raises(InterruptedRunError):
            finish_run(spec_on(tmp_path, PIXELS / 255, n=4000, grid="float"), tmp_path / "old", stop_after=1)
        return detecting, tmp_path / "old"

    def test_resumed(self, stopped: tuple[RunSpec, Path], tmp_path: Path) -> None:
        _, run = stopped
        points = finish_run(resumed_spec(run), run)
        whole = spec_on(tmp_path, PIXELS / 255, n=4000, grid="float")
        assert counts(points) == counts(finish_run(whole, tmp_path / "whole"))

    def test_by_the_same_command(self, stopped: tuple[RunSpec, Path]) -> None:
        detecting, run = stopped
        points = finish_run(detecting, run)
        assert len(points) == len(PIXELS)
        assert all(point.grid is None for point in points)

    def test_another_grid_is_refused(self, stopped: tuple[RunSpec, Path], tmp_path: Path) -> None:
        _, run = stopped
        with pytest.raises(ManifestMismatchError, match=r"spec\.noise\.grid: the run has None, now 256"):
            finish_run(spec_on(tmp_path, PIXELS / 255, n=4000, grid="256"), run)

    def test_on_a_grid(self, tmp_path: Path) -> None:
        with pytest.raises(InterruptedRunError):
            finish_run(spec_on(tmp_path, PIXELS / 255, n=4000, grid="65536"), tmp_path / "run", stop_after=1)
        assert resumed_spec(tmp_path / "run").noise.grid == 65536
        finish_run(spec_on(tmp_path, PIXELS / 255, n=4000, grid="detect"), tmp_path / "run")
        assert grid_of(tmp_path / "run") == 65536

    @pytest.mark.parametrize("grid", ["256", 2.5, [256], 1, "detect", "float", True])
    def test_a_grid_that_makes_no_sense(self, tmp_path: Path, grid: object) -> None:
        finish_run(spec_on(tmp_path, PIXELS / 255), tmp_path / "run")
        file = tmp_path / "run" / "manifest.json"
        manifest = json.loads(file.read_text())
        manifest["spec"]["noise"]["grid"] = grid
        file.write_text(json.dumps(manifest))
        with pytest.raises(CorruptRunError, match="grid"):
            resumed_spec(tmp_path / "run")


@pytest.mark.parametrize("grid", ["detect", "float"])
def test_exported_statements_say_what_is_not_sound(tmp_path: Path, grid: str) -> None:
    finish_run(spec_on(tmp_path, PIXELS / 255, n=4000, grid=grid), tmp_path / "run")
    with RunStore.open(tmp_path / "run") as store:
        points = store.points()
        documents = [document_of(point, store.manifest) for point in points]
    assert {document["smoothing"]["noise"]["grid"] for document in documents} == {None if grid == "float" else 256}
    certified = [str(point.guarantee) for point in points if point.guarantee is not None]
    assert certified
    assert all(("not sound in floating point" in one) == (grid == "float") for one in certified)
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(documents[0]))
    told = smoothcert("verify", file)
    assert told.returncode == 0, told.stdout + told.stderr

"""Load run directories and logs, and export them."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_points import POINT, undecided
from smoothcert.errors import RunError
from smoothcert.records import Outcome, Reason, ReasonCode
from smoothcert.runs.exports import write_csv, write_json
from smoothcert.runs.load import distinguish_names, load_all, load_results
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.store import RunStore
from smoothcert.spec import (
    ConstantLevel,
    DataFacts,
    DataSpec,
    Digests,
    FixedN,
    Measured,
    ModelFacts,
    ModelSpec,
    NoiseSpec,
    RunManifest,
    RunSpec,
)

LOG = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t3\t3\t0.5\t1\t1.0\n"


def manifest(*, task: Literal["certify", "predict"] = "certify", shared: bool = False) -> RunManifest:
    return RunManifest(
        spec=RunSpec(
            task=task,
            model=ModelSpec(place="model"),
            data=DataSpec(place="data"),
            noise=NoiseSpec(shared=shared).settle(256),
            sigma=ConstantLevel(level=0.25),
            question=FixedN(n=100, n0=10),
            alpha=0.01,
            certificates=("gaussian",) if task == "certify" else (),
        ),
        sampling_version=1,
        seed=1,
        digests=Digests(model="0" * 64, data="1" * 64),
        measured=Measured(batch=1, backend="numpy"),
        model=ModelFacts(num_classes=4),
        data=DataFacts(name="data", input_shape=(2,), size=10, inputs=2),
    )


def test_a_run_directory(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunStore.create(path, manifest(shared=True)) as store:
        store.add([POINT, undecided(5, Outcome.ABSTAINED)])
    results = load_results(path)
    assert (results.name, results.alpha, results.num_classes) == ("run", 0.01, 4)
    assert not results.independent_noise
    assert results.has_radius
    assert results.index.tolist() == [0, 5]
    assert results.correct.tolist() == [True, False]
    assert results.p_a[0] == 0.97


def test_a_directory_of_predictions_has_no_radii(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunStore.create(path, manifest(task="predict")) as store:
        store.add([undecided(5, Outcome.ABSTAINED)])
    assert not load_results(path).has_radius


def test_nothing_there_yet(tmp_path: Path) -> None:
    RunStore.create(tmp_path / "run", manifest()).close()
    with pytest.raises(RunError, match="no results yet"):
        load_results(tmp_path / "run")
    with pytest.raises(RunError, match="does not exist"):
        load_results(tmp_path / "absent")
    with pytest.raises(RunError, match="is not a run"):
        load_results(tmp_path)


def test_runs_and_logs_together_are_named_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "log").write_text(LOG)
    (tmp_path / "other").write_text(LOG)
    paths = [tmp_path / "a" / "log", tmp_path / "b" / "log", tmp_path / "other"]
    assert [run.name for run in load_all(paths)] == ["a/log", "b/log", "other"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["x/a"], ["a"]),
        (["x/a", "y/a"], ["x/a", "y/a"]),
        (["x/a", "x/b"], ["a", "b"]),
        (["x/t/a", "y/t/a", "y/t/b"], ["x/t/a", "y/t/a", "b"]),
        (["x/a", "x/a", "x/../x/a"], ["a", "a (2)", "a (3)"]),
    ],
)
def test_shortest_distinguishing_tails(paths: list[str], names: list[str]) -> None:
    assert distinguish_names([Path(path) for path in paths]) == names


_paths = st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join).map(Path), max_size=6)


@given(paths=_paths)
def test_names_are_distinct_tails(paths: list[Path]) -> None:
    names = distinguish_names(paths)
    assert len(set(names)) == len(paths)
    assert all(str(path.absolute()).endswith(name.split(" (")[0]) for path, name in zip(paths, names, strict=True))


def results_with_gaps() -> ResultColumns:
    failed = undecided(5, Outcome.FAILED, label=None)
    reason = Reason(ReasonCode.NO_FINITE_ANSWER, {"invalid": 7, "n": 9})
    points = [POINT, replace(failed, verdict=replace(failed.verdict, reason=reason))]
    return replace(ResultColumns.from_points(points, name="gaps"), extra={"raw_count": np.array([9.0, math.nan])})


def test_json_export_is_complete_and_valid(tmp_path: Path) -> None:
    write_json(results_with_gaps(), tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["run"], document["alpha"], document["norm"]) == ("gaps", 0.001, "l2")
    first, second = document["points"]
    assert first == {
        "index": 0,
        "label": 3,
        "prediction": 3,
        "outcome": "certified",
        "reason": None,
        "certificate": "gaussian",
        "radius": 0.5,
        "correct": 1,
        "sigma": 0.25,
        "p_a": 0.97,
        "seconds": 1.5,
        "raw_count": 9.0,
    }
    assert (second["label"], second["prediction"], second["outcome"]) == (None, None, "failed")
    assert (second["correct"], second["p_a"], second["raw_count"]) == (None, None, None)
    assert second["reason"] == {"code": "no-finite-answer", "invalid": 7, "n": 9}


def test_csv_export_has_empty_fields_for_the_unknown(tmp_path: Path) -> None:
    write_csv(results_with_gaps(), tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as stream:
        first, second = csv.DictReader(stream)
    assert (first["radius"], first["outcome"]) == ("0.5", "certified")
    assert (second["label"], second["prediction"], second["p_a"]) == ("", "", "")
    assert (first["reason"], second["reason"]) == ("", "no-finite-answer")


@pytest.mark.parametrize("write", [write_csv, write_json])
def test_exports_do_not_overwrite(tmp_path: Path, write: object) -> None:
    target = tmp_path / "out"
    target.write_text("precious")
    with pytest.raises(RunError, match="already exists"):
        write(results_with_gaps(), target)  # type: ignore[operator]
    assert target.read_text() == "precious"
    write(results_with_gaps(), target, overwrite=True)  # type: ignore[operator]
    assert target.read_text() != "precious"


@pytest.mark.parametrize("radius", ["1e308", "5e-324"])
def test_radii_that_no_noise_allows_are_refused(tmp_path: Path, radius: str) -> None:
    """Tables and figures would overflow or divide by zero."""
    log = tmp_path / "log.tsv"
    log.write_text(LOG.replace("0.5", radius))
    with pytest.raises(RunError, match=r"log\.tsv has radii up to .*, which no noise level allows"):
        load_all([log])

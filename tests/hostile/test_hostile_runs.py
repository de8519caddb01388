"""Runs, manifests and logs with anything in them: what was there is shown, or a sentence; nothing is made up."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreseen import foreseen, same_every_time
from sample_manifests import sample_manifest
from smoothcert.analysis.formatting import TableRequest, format_results
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.errors import CorruptRunError, RunError
from smoothcert.questions import Votes
from smoothcert.records import CertifiedPoint, Outcome, Smoothing, Stage, StreamId, Tally
from smoothcert.runs.exports import point_rows, write_csv, write_json
from smoothcert.runs.load import load_all, load_results
from smoothcert.runs.store import RunStore
from smoothcert.runs.tsv import read_log
from smoothcert.spec import DataFacts, ModelFacts
from stored_answers import certify_votes


def tally(index: int, stage: Stage, counts: list[int]) -> Tally:
    return Tally(StreamId(1, index, stage), 0.25, np.array(counts), 0, ((0, sum(counts)),))


def point(index: int, votes: int) -> CertifiedPoint:
    item = Votes(
        index=index,
        label=1,
        selection=tally(index, Stage.SELECTION, [10, 90, 0]),
        estimation=(tally(index, Stage.ESTIMATION, [1000 - votes, votes, 0]),),
        seconds=0.5,
    )
    return certify_votes([item], "gaussian", alpha=0.001, smoothing=Smoothing())[0]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three inputs: two certified, one not."""
    manifest = sample_manifest(
        model=ModelFacts(num_classes=3),
        data=DataFacts(name="data", input_shape=(4,), size=3, inputs=3),
        environment={"numpy": "2"},
    )
    path = tmp_path_factory.mktemp("runs") / "sound"
    with RunStore.create(path, manifest) as store:
        store.add([point(0, 990), point(1, 900), point(2, 510)])
    return path


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def radii(run: Path) -> dict[int, float]:
    results = load_results(run)
    return dict(zip(results.index.tolist(), results.radius.tolist(), strict=True))


def looked_at(run: Path) -> None:
    """Everything that reads a run, each a result or a sentence."""
    foreseen(lambda: format_results(TableRequest(runs=(run,), form=TableFormat.JSON, classes=True), width=None))
    rows = foreseen(lambda: point_rows(load_all([run])[0]))
    json.dumps(rows, allow_nan=False)
    foreseen(partial(_tallies, run))


def _tallies(run: Path) -> list[CertifiedPoint]:
    with RunStore.open(run) as store:
        store.kinds()
        store.samples()
        return store.points()


TABLES = {
    "points": ["idx", "label", "sigma", "seconds"],
    "verdicts": ["idx", "place", "certificate", "prediction", "radius", "norm", "outcome", "reason", "bounds"],
    "tallies": ["idx", "stage", "start", "stop", "sigma", "kind", "num_classes", "counts", "sums"],
}
VALUES: list[Any] = [
    None, -1, 0, 1, 2**63 - 1, -(2**63), 1.5, -1.5, math.inf, -math.inf, 1e308, "", "text", "1", "nan", "CERTIFIED",
    "FAILED", "l1", "scores", "gradients", "pairs", "{}", "[]", "null", "NaN", "[" * 10_000,
    '{"votes":{},"invalid":0}', '{"votes":{"0":99999999999999999999},"invalid":0}',
    '{"votes":{"0":true},"invalid":null}',
    '{"votes":{"x":1},"invalid":1}', '{"votes":[1],"invalid":1,"products":[1],"group":[0]}',
    '{"label":0,"quantities":{"p-a":{"value":"x","side":"lower","alpha":0.1,"method":"m"}},"spent":{}}',
    '{"label":0,"quantities":{"p-a":{"value":NaN,"side":"lower","alpha":0.1,"method":"m"}},"spent":{}}',
    '{"label":[],"quantities":{"p-a":{"value":[1,2],"side":"lower","alpha":[],"method":[]}},"spent":{}}',
    '{"label":1,"quantities":{"p-b":{"value":{"a":1},"side":"upper","alpha":0.1,"method":"m"}},"spent":{}}',
    '{"label":1,"quantities":[],"spent":{"clopper-pearson":"x"}}', b"", b"\x00\xff", b"x" * 100,
]  # fmt: skip


@pytest.mark.parametrize("strict", [True, False], ids=["our tables", "tables that take anything"])
@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table, columns in TABLES.items() for column in columns]
)
def test_anything_in_any_column(run: Path, table: str, column: str, strict: bool) -> None:
    """Fails where a row is believed to have the types it was written with: ValueErrors out of numpy."""
    connection = sqlite3.connect(run / "results.sqlite", isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    if not strict:
        connection.execute(f"CREATE TABLE other AS SELECT * FROM {table}")
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE other RENAME TO {table}")
    (first,) = connection.execute(f"SELECT min(rowid) FROM {table}").fetchone()
    (before,) = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (first,)).fetchone()
    others = {index: radius for index, radius in radii(run).items() if index != 0}
    for value in VALUES:
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, first))
        except sqlite3.Error:
            continue  # a table of ours does not take it
        looked_at(run)
        found = foreseen(partial(radii, run))
        # What is said of the other inputs is what was proved of them, whatever stands in the row of this one.
        if found is not None and column != "idx":
            assert {index: radius for index, radius in found.items() if index in others} == others
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (before, first))
    connection.close()


def test_a_radius_is_never_shown_for_what_is_not_certified(run: Path) -> None:
    """Fails where radius and outcome are read side by side and never compared."""
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute("UPDATE verdicts SET outcome = 'ABSTAINED', prediction = NULL WHERE idx = 0")
    with pytest.raises(RunError, match="has an invalid row"):
        radii(run)


def test_a_tally_that_unpacks_to_gigabytes(run: Path, little_memory: Callable[[], int]) -> None:
    """Fails with zlib.decompress: a row of 300 kB took 300 MB, and one of 3 MB would take 3 GB."""
    bomb = zlib.compress(b"\0" * 100_000_000)
    counts = json.dumps({"votes": {"0": 1000}, "invalid": 0, "label": 0, "group": [0, 0, 0, 0], "products": [0]})
    for kind in ("scores", "gradients"):
        with sqlite3.connect(run / "results.sqlite") as connection:
            connection.execute(
                "UPDATE tallies SET kind = ?, counts = ?, sums = ? WHERE idx = 0 AND stage = 'ESTIMATION'",
                (kind, counts, bomb),
            )
        with pytest.raises(CorruptRunError, match="truncated, or more than"):
            _tallies(run)


def test_a_tally_of_more_classes_than_there_is_memory(run: Path, little_memory: Callable[[], int]) -> None:
    """Fails where a list of them is made: MemoryError, and advice about --batch."""
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute("UPDATE tallies SET num_classes = ?", (2**62,))
    with pytest.raises(CorruptRunError, match="classes are not supported"):
        _tallies(run)


def test_a_view_without_end(run: Path) -> None:
    """Fails where a view is read as the table it is named like: it never ends."""
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute("DROP TABLE points")
        connection.execute(
            "CREATE VIEW points AS WITH RECURSIVE c(idx) AS (SELECT 0 UNION ALL SELECT idx + 1 FROM c) "
            "SELECT idx, 0 AS label, 0.25 AS sigma, 0.0 AS seconds FROM c"
        )
    began = time.perf_counter()
    with pytest.raises(CorruptRunError, match="not one of our tables"):
        load_results(run)
    with RunStore.open(run) as store, pytest.raises(CorruptRunError):
        store.indices()
    assert time.perf_counter() - began < 5


def places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inner:
        yield from places(value, (*place, key))


def test_anything_anywhere_in_a_manifest(run: Path) -> None:
    """Fails where an α of 10^400 is an OverflowError, and one of NaN is written into JSON."""
    document = json.loads((run / "manifest.json").read_text())
    values = [
        None,
        -1,
        10**400,
        math.nan,
        math.inf,
        "x",
        "\ud800",
        [],
        {},
        [[]],
        True,
        -(10**30),
        2.5,
        "a,b",
        "best-of(",
    ]
    proved = radii(run)
    for place in places(document):
        for value in values:
            changed = json.loads(json.dumps(document))
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            (run / "manifest.json").write_text(json.dumps(changed))
            looked_at(run)
            found = foreseen(partial(radii, run))
            assert found is None or found == proved


def test_a_manifest_without_end(run: Path) -> None:
    """Fails where it is read whole."""
    (run / "manifest.json").unlink()
    (run / "manifest.json").symlink_to("/dev/zero")
    with pytest.raises(CorruptRunError, match="more than"):
        load_results(run)


HEADER = ["idx", "label", "predict", "radius", "correct", "time"]
FIELD = st.sampled_from(
    ["0", "1", "-1", "0.5", "1e999", "nan", "inf", "1_0", "٣", "", "0:00:01", "9" * 30, "\x1b[2J", "\0"]
)


@settings(same_every_time, max_examples=150)
@given(
    columns=st.lists(st.sampled_from([*HEADER, "sigma", "p_A_bar", "outcome", "p_a", "certificate"]), unique=True),
    rows=st.lists(st.lists(FIELD | st.text(max_size=4), min_size=1, max_size=8), max_size=4),
)
def test_any_log_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, columns: list[str], rows: list[list[str]]
) -> None:
    """Fails where a column of the log is shown as something of ours: `outcome` 1 in place of certified."""
    path = tmp_path_factory.mktemp("log") / "x.tsv"
    header = [*HEADER, *(column for column in columns if column not in HEADER)]
    filled = [[str(number), *row, *["1"] * len(header)][: len(header)] for number, row in enumerate(rows)]
    path.write_bytes("\n".join("\t".join(row) for row in [header, *filled]).encode(errors="replace"))
    results = foreseen(lambda: read_log(path))
    if results is None:
        return
    names = {outcome.name.lower() for outcome in Outcome}
    for row in point_rows(results):
        assert row["outcome"] in names
        assert (row["radius"] or 0) >= 0
        assert (row["outcome"] == "certified") == ((row["radius"] or 0) > 0)


def test_names_that_are_no_text(sound: Path, tmp_path: Path) -> None:
    """Fails where the name of a run is encoded strictly."""
    import os

    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run\xff"))
    shutil.copytree(sound, odd)
    results = load_results(odd)
    write_json(results, tmp_path / "x.json")
    write_csv(results, tmp_path / "x.csv")
    assert json.loads((tmp_path / "x.json").read_text())["run"].startswith("run")

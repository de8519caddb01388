"""Small runs of every kind, made by the command line on the bundled digits, and ways to tamper with them."""

from __future__ import annotations

import atexit
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.runs.seals import begin_seals, document_digest, seal_inputs

MODEL = "sample_models:logistic_digits"
SCALED_MODEL = "sample_models:roll_by_side"
_DATA = ("--model", MODEL, "--data", "digits", "--seed", 3, "--batch", 64, "--workers", 1, "--skip", 60, "--max", 4)
_SAMPLES = ("--n0", 20, "--n", 200)
_LEVEL = ("--sigma", 0.25)
SPLIT = ("--noise", "splitting", "--evaluations", 24, "--grid", 17)
"""Nothing is sampled: what the options of samples say is refused."""

CERTIFIED: dict[str, tuple[object, ...]] = {
    "votes": _LEVEL,
    "dipole": (*_LEVEL, "--certificate", "dipole", "--certificate", "gaussian"),
    "second-order": (*_LEVEL, "--certificate", "second-order"),
    "second-order-multi-class": (*_LEVEL, "--certificate", "second-order-multi-class", "--n", 1000),
    "soft": (*_LEVEL, "--certificate", "gaussian-soft"),
    "best-of": (*_LEVEL, "--certificate", "gaussian", "--certificate", "gaussian-two-class", "--best-of"),
    "decide": (*_LEVEL, "--decide", "0.1,0.3"),
    "precision": (*_LEVEL, "--precision", 0.05),
    "uniform": (*_LEVEL, "--noise", "uniform"),
    "shared-noise": (*_LEVEL, "--shared-noise"),
    "float-noise": (*_LEVEL, "--noise", "float"),
    "abstaining": ("--sigma", 20.0),
}
"""Options of `certify` by the kind of run."""
SPLIT_KINDS = ("split", "split-predict")
_ONCE = (*CERTIFIED, "scaled", "failed", "predict")
KINDS = (*_ONCE, "recertified", "envelope", "memory", "predict-memory")


def make_run(kind: str, folder: Path) -> Path:
    """A run of this kind in a new directory of the folder; with a memory, that is folder/memory.sqlite.

    A run that names no other file is sampled once in each process of tests, and copied from then on.
    """
    if kind in (*_ONCE, *SPLIT_KINDS) and not (folder / kind).exists():
        return Path(shutil.copytree(_sampled_once(kind), folder / kind))
    return _sample_run(kind, folder)


@cache
def _sampled_once(kind: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="smoothcert-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return _sample_run(kind, folder)


def _sample_run(kind: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / kind
    if kind in CERTIFIED:
        invoke(app, "certify", *_DATA, *_SAMPLES, *CERTIFIED[kind], "--out", out)
    elif kind == "scaled":
        data = ("--model", SCALED_MODEL, "--data", "swiss-roll", *_DATA[4:])
        invoke(app, "certify", *data, *_SAMPLES, *_LEVEL, "--sigma-scale", "0.5,2.0", "--out", out)
    elif kind == "failed":
        data = ("--model", "sample_models:never_finite", "--num-classes", 10, *_DATA[2:])
        invoke(app, "certify", *data, *_SAMPLES, *_LEVEL, "--out", out)
    elif kind in SPLIT_KINDS:
        invoke(app, "predict" if kind == "split-predict" else "certify", *_DATA, *SPLIT, "--out", out)
    elif kind == "predict":
        invoke(app, "predict", *_DATA, "--n", 100, *_LEVEL, "--out", out)
    elif kind == "recertified":
        first = make_run("votes", folder / "first")
        invoke(app, "recertify", first, "--n", 150, "--alpha", 0.01, "--out", out)
    elif kind == "envelope":
        rule = folder / "rule.safetensors"
        invoke(app, "sigma", "fit", "--data", "digits", "--sigma", 0.25, "--k", 5, "--rate", 0.05, "--out", rule)
        invoke(app, "certify", *_DATA, *_SAMPLES, "--sigma-rule", rule, "--out", out)
    elif kind == "memory":
        invoke(app, "certify", *_DATA, *_SAMPLES, *_LEVEL, "--memory", folder / "memory.sqlite", "--out", out)
    else:
        make_run("memory", folder)
        wider = (*_DATA[:-1], 6)
        invoke(app, "predict", *wider, "--n", 100, *_LEVEL, "--memory", folder / "memory.sqlite", "--out", out)
    return out


def copy_of(run: Path, folder: Path) -> Path:
    """A copy that may be changed, without what SQLite and locks leave behind."""
    target = folder / f"copy of {run.name}"
    if target.exists():
        shutil.rmtree(target)
    return Path(shutil.copytree(run, target))


def altered(database: Path, *statements: str) -> None:
    """Run statements that must each change something."""
    with closing(sqlite3.connect(database)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement
        connection.commit()


def resealed(run: Path) -> None:
    """New seals over what is there now, as one makes them who wants to deceive."""
    manifest = json.loads((run / "manifest.json").read_text())
    with closing(sqlite3.connect(run / "results.sqlite")) as connection:
        order = [row[0] for row in connection.execute("SELECT idx FROM points ORDER BY idx")]
        connection.execute("DELETE FROM seals")
        begin_seals(connection, manifest)
        seal_inputs(connection, order)
        connection.commit()


def redigested(document: dict[str, Any]) -> dict[str, Any]:
    """The document with digests that fit it."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    rest["run_digest"] = document_digest(rest["run"])
    return rest | {"digest": document_digest(rest)}


Path_ = tuple[str | int, ...]


def leaves(document: Any, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value of a JSON document that is no object or list, and where it stands."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from leaves(value, (*at, key))
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from leaves(value, (*at, place))
    else:
        yield at, document


def changed(value: Any) -> Any:
    """Another value of the same type, as near as can be; something where there was nothing."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * (1 + 2**-40) if value else 2**-40
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1] != "0" else "1") if value else "x"
    return 1


def with_change(document: Any, at: Path_, change: Callable[[Any], Any] = changed) -> Any:
    """A copy of a JSON document with one value changed."""
    copied = json.loads(json.dumps(document))
    holder = copied
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = change(holder[at[-1]])
    return copied

"""Sentences are for people: rewording all of them changes neither `certify --rigorous` nor the checks of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flint")

from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.records import sentences
from smoothcert_verify import texts
from smoothcert_verify.run_checks import verify_run
from verified_runs import MODEL

DATA = ("--model", MODEL, "--data", "digits", "--seed", 3, "--batch", 64, "--workers", 1, "--skip", 60, "--max", 2)


@pytest.mark.parametrize(
    "options",
    [
        ("--sigma", 0.25),
        ("--sigma", 20.0),
        ("--sigma", 20.0, "--decide", "1,3"),
        ("--sigma", 20.0, "--precision", 0.5),
        ("--sigma", 20.0, "--certificate", "gaussian-soft"),
        ("--sigma", 20.0, "--certificate", "dipole"),
        ("--sigma", 0.25, "--memory"),
    ],
)
def test_other_sentences(options: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in vars(sentences) if name.startswith("describe_")]:
        monkeypatch.setattr(sentences, name, lambda *_, **__: "a sentence in other words")
    monkeypatch.setattr(texts, "TEMPLATES", dict.fromkeys(texts.TEMPLATES, "another sentence"))
    place = (tmp_path / "memory.sqlite",) if options[-1] == "--memory" else ()
    result = invoke(
        app, "certify", *DATA, "--n0", 20, "--n", 200, *options, *place, "--rigorous", "--out", tmp_path / "run"
    )
    assert result.exit_code == 0
    report = verify_run(tmp_path / "run")
    assert (report.inputs, report.discrepancies) == (2, [])

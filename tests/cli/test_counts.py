"""Counts on the command line: 1e5 is 100000, and nothing is rounded."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from smoothcert.cli.main import app
from smoothcert.spec import FixedN, RunSpec

CERTIFY = ("certify", "--model", "net.pt", "--data", "digits", "--sigma", "0.25")


@pytest.fixture
def specs(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """What the verbs hand to `run_spec`."""
    heard: list[RunSpec] = []

    def hear(spec: RunSpec, out: Path, *, as_json: bool) -> None:
        heard.append(spec)

    monkeypatch.setattr("smoothcert.cli.running.run_spec", hear)
    return heard


@pytest.mark.parametrize(("text", "number"), [("1e5", 100_000), ("100_000", 100_000), ("2.5e3", 2500), ("7", 7)])
def test_whole_numbers(specs: list[RunSpec], text: str, number: int) -> None:
    assert CliRunner().invoke(app, [*CERTIFY, "--n", text, "--n0", text, "--max", text]).exit_code == 0
    ((spec),) = specs
    assert spec.question == FixedN(n=number, n0=number)
    assert spec.data.max_inputs == number


@pytest.mark.parametrize("option", ["--n", "--n0", "--max"])
@pytest.mark.parametrize("text", ["1.5", "1e-3", "many", "nan", "1e400"])
def test_other_numbers_are_refused(specs: list[RunSpec], option: str, text: str) -> None:
    done = CliRunner().invoke(app, [*CERTIFY, option, text])
    assert done.exit_code == 2
    assert option in done.output
    assert "expected" in done.output
    assert specs == []

"""A run in memory says what its store says."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_specs import finish_run, make_spec
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.load import load_all
from smoothcert.runs.store import RunStore


@pytest.mark.parametrize("certificate", ["gaussian", "dipole", "gaussian,li"])
def test_the_same_facts(certificate: str, tmp_path: Path) -> None:
    spec = make_spec(
        model="sample_models:digits_by_brightness",
        data="digits",
        sigma=0.1,
        n0=20,
        n=200,
        alpha=0.01,
        max_inputs=6,
        certificate=certificate,
    )
    finish_run(spec, tmp_path / "run")
    with RunStore.open(tmp_path / "run") as store:
        held = HeldRun(store.points(), store.manifest)
        assert held.kinds == store.kinds()
        assert held.samples == store.samples()
        assert held.unanimous == store.unanimous()
        assert held.unanimous
    stored, kept = load_all([tmp_path / "run"]), held.results(name="run")
    assert [one.name for one in kept] == [one.name for one in stored]
    assert [one.radius.tolist() for one in kept] == [one.radius.tolist() for one in stored]
    assert [one.notes for one in kept] == [one.notes for one in stored]

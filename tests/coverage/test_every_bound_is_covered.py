"""Every certificate and proof has a coverage case and a control, and the judge itself is correct."""

from __future__ import annotations

import functools
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from coverage_judge import FALSE_ALARM, Case, Seen, p_value
from smoothcert.certificates import CERTIFICATES
from smoothcert.records import Proof

HERE = Path(__file__).resolve().parent
FAMILIES = sorted(HERE.glob("test_*_coverage.py"))
DOCUMENT = HERE.parent.parent / "docs" / "explanation" / "coverage.md"


@functools.cache
def tables() -> tuple[list[Case], list[Case]]:
    """The cases and the controls of all families."""
    cases: list[Case] = []
    controls: list[Case] = []
    for path in FAMILIES:
        found = runpy.run_path(str(path))
        cases += found["CASES"]
        controls += found["CONTROLS"]
    return cases, controls


@pytest.mark.parametrize("name", [name for name, one in CERTIFICATES.items() if one.noise.sampled])
def test_every_certificate_has_a_case_and_a_control(name: str) -> None:
    cases, controls = tables()
    assert any(name in case.certificates for case in cases), f"add {name} to a table CASES in tests/coverage"
    assert any(name in control.certificates for control in controls), f"add {name} to a table CONTROLS"


@pytest.mark.parametrize("proof", [proof for proof in Proof if not proof.certain])
def test_every_proof_has_a_case(proof: Proof) -> None:
    assert any(proof in case.proofs for case in tables()[0]), f"add {proof.name} to a table CASES in tests/coverage"


def test_nothing_that_is_certain_hides_from_coverage() -> None:
    """What is counted in full is tested by brute force (tests/splitting) instead."""
    for certificate in CERTIFICATES.values():
        assert all(proof.certain is not certificate.noise.sampled for proof in certificate.proofs)


def test_no_case_names_what_is_not_there() -> None:
    named = {name for table in tables() for case in table for name in case.certificates}
    assert named <= set(CERTIFICATES)


def test_names_are_distinct() -> None:
    names = [case.name for table in tables() for case in table]
    assert len(set(names)) == len(names)


def test_every_control_is_in_the_document() -> None:
    """The table of docs/explanation/coverage.md is made by the command it states; a new control must be added to it."""
    text = DOCUMENT.read_text(encoding="utf-8")
    missing = [control.name for control in tables()[1] if f"| {control.name}" not in text]
    assert missing == []


def test_the_judge_is_the_exact_binomial_test() -> None:
    for failures, trials, rate in [(0, 100, 0.05), (1, 100, 0.05), (17, 100, 0.05), (60, 1000, 0.04), (7, 7, 0.2)]:
        exact = stats.binomtest(failures, trials, rate, alternative="greater").pvalue
        assert p_value(failures, trials, rate) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize(("trials", "rate"), [(400, 0.05), (1000, 0.2), (20_000, 0.001), (20_000, 0.05)])
def test_the_judge_raises_a_false_alarm_no_more_often_than_it_says(trials: int, rate: float) -> None:
    """Exactly: the probability of all numbers of failures that it takes for too many, at the rate that is allowed."""
    failures = np.arange(trials + 1)
    refuted = np.array([Seen(int(count), trials).refutes(rate) for count in failures])
    assert stats.binom.pmf(failures, trials, rate)[refuted].sum() <= FALSE_ALARM
    assert not refuted[: int(trials * rate) + 1].any()


def test_a_case_fails_where_it_should() -> None:
    often, seldom = Seen(100, 1000), Seen(50, 1000)
    Case("", 0.05, lambda: {"": seldom}).check_holds()
    Case("", 0.05, lambda: often).check_is_caught()
    with pytest.raises(AssertionError, match="wrong in 100 of 1000"):
        Case("", 0.05, lambda: {"first": seldom, "second": often}).check_holds()
    with pytest.raises(AssertionError, match="wrong in 50 of 1000 only"):
        Case("", 0.05, lambda: seldom).check_is_caught()
    with pytest.raises(AssertionError, match="says nothing"):
        Case("", 0.05, dict).check_holds()


def test_repetitions_that_were_drawn_more_than_once_count_as_often() -> None:
    assert Seen.of([True, False, True]) == Seen(2, 3)
    assert Seen.of([True, False, True], [5, 7, 1]) == Seen(6, 13)

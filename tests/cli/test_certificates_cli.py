"""Dipole, second-order and several certificates from the command line: what is printed, and what is refused how."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gc
import io
import json
import shutil
import sys
import threading
import typing
import warnings
from pathlib import Path
from unittest import mock

import pytest
from scipy import special

from cli_runner import smoothcert
from run_specs import make_spec, resumed_spec
from smoothcert.certificates import CERTIFICATES
from smoothcert.cli import main
from smoothcert.cli.options import Certificates
from smoothcert.errors import InterruptedRunError
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.store import RunStore, read_manifest

MODEL = ("--model", "sample_models:digits_by_brightness", "--num-classes", 10, "--data", "digits", "--sigma", 0.1)
SMALL = ("--n0", 20, "--n", 1000, "--max", 5, "--seed", 1, "--batch", 64)
PAIRS = ("--certificate", "dipole", "--certificate", "gaussian")
GRADIENTS = ("--certificate", "second-order", "--certificate", "gaussian")
SOFT = ("--certificate", "gaussian-soft", "--certificate", "gaussian")
TRAINED = ("--model", "sample_models:logistic_digits", "--data", "digits", "--sigma", 0.25)


@dataclasses.dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def rows(self) -> dict[str, dict[str, object]]:
        """A table printed as JSON, by run."""
        return {row["run"]: row for row in json.loads(self.out)}


def call(*arguments: object) -> Done:
    """The entry point of the console script in this process: as a user has it, without a second to start."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    thresholds = gc.get_threshold()
    with (
        mock.patch.object(sys, "argv", ["smoothcert", *map(str, arguments)]),
        mock.patch.object(warnings, "showwarning"),
        mock.patch.dict("os.environ", {"COLUMNS": "200"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main.run()
        except SystemExit as leaving:
            code = 0 if leaving.code is None else int(leaving.code)
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()
    return Done(code, out.getvalue(), err.getvalue())


def right(*arguments: object) -> Done:
    done = call(*arguments)
    assert done.code == 0, done.err
    return done


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each sort; nobody may change them."""
    folder = tmp_path_factory.mktemp("certificates")
    right("certify", *MODEL, *SMALL, *PAIRS, "--out", folder / "pairs")
    right("certify", *MODEL, *SMALL, *PAIRS, "--best-of", "--out", folder / "best")
    right("certify", *MODEL, *SMALL, *GRADIENTS, "--out", folder / "gradients")
    right("certify", *MODEL, *SMALL, "--out", folder / "plain")
    right("certify", *TRAINED, *SMALL, *SOFT, "--out", folder / "soft")
    return folder


# radius: the values of the theorems.


def clopper_pearson(successes: int) -> float:
    """The lower bound at α/2 = 0.0005 for so many of 50000 pairs."""
    return float(special.betaincinv(successes, 50_000 - successes + 1, 0.0005))


# The first seven are check values of the theorems, one of them from raw counts.
KNOWN = [
    ("second-order", {"sigma": 1, "p-a": 0.6, "gradient-norm": 0}, 0.68054353),
    ("second-order", {"sigma": 1, "p-a": 0.8, "gradient-norm": 0}, 1.26803403),
    ("second-order", {"sigma": 1, "p-a": 0.8, "gradient-norm": 0.1}, 1.07518066),
    ("second-order", {"sigma": 1, "p-a": 0.9, "gradient-norm": 0.05}, 1.51186869),
    ("second-order", {"sigma": 1, "p-a": 0.99, "gradient-norm": 0}, 2.57582898),
    ("dipole", {"sigma": 0.25, "both": 0.89476036, "one-sided": 0.04725806}, 0.40492846),
    ("dipole", {"sigma": 0.25, "both": clopper_pearson(27290), "one-sided": clopper_pearson(10165)}, 0.17465924),
    # No gradient is larger than φ(Φ⁻¹(p))/σ, so beyond that Cohen's radius σΦ⁻¹(p) is left.
    ("second-order", {"sigma": 0.5, "p-a": 0.8, "gradient-norm": 100}, 0.5 * 0.84162123),
    # In other units of length: σ four times as large, the gradient a quarter.
    ("second-order", {"sigma": 4, "p-a": 0.8, "gradient-norm": 0.025}, 4 * 1.07518066),
    # Nothing is known of the pairs that are not both: the slab alone, which is second order without a gradient.
    ("dipole", {"sigma": 1, "both": 0.8, "one-sided": 0}, 1.26803403),
    # A half-space with x on its edge, and a class with no majority: nothing is certified.
    ("dipole", {"sigma": 1, "both": 0, "one-sided": 0.5}, 0.0),
    ("second-order", {"sigma": 1, "p-a": 0.5, "gradient-norm": 0}, 0.0),
    # Against one other class that has all the rest, multi-class says what the plain form says.
    (
        "second-order",
        {"sigma": 1, "p-a": 0.8, "gradient-norm": 0.1, "other-p": 0.2, "other-gradient-norm": 0.1},
        1.07518066,
    ),
    (
        "dipole",
        {"sigma": 1, "both": 0.8, "one-sided": 0.05, "other-neither": 0.8, "other-one-sided": 0.05},
        None,
    ),
]


def options(given: dict[str, float]) -> list[object]:
    return [part for name, value in given.items() for part in (f"--{name}", value)]


@pytest.mark.parametrize(("theorem", "given", "expected"), KNOWN)
def test_radius(theorem: str, given: dict[str, float], expected: float | None) -> None:
    if expected is None:
        plain = {name: value for name, value in given.items() if not name.startswith("other")}
        expected = json.loads(right("radius", theorem, *options(plain), "--json").out)["radius"]
    exact = json.loads(right("radius", theorem, *options(given), "--json").out)["radius"]
    assert exact == pytest.approx(expected, abs=2e-8)
    printed = right("radius", theorem, *options(given)).out.strip()
    assert len(printed.partition(".")[2]) == 6
    assert float(printed) <= exact < float(printed) + 1e-6  # rounded down


def test_an_opponent_with_few_votes_helps() -> None:
    """Class A needs no majority, only more than any other; a rarer opponent leaves a larger radius."""
    given = {"sigma": 1, "p-a": 0.4, "gradient-norm": 0.1}
    assert right("radius", "second-order", *options(given)).out == "0.000000\n"
    radii = [
        float(right("radius", "second-order", *options(given), "--other-p", p, "--other-gradient-norm", 0.05).out)
        for p in (0.4, 0.3, 0.1)
    ]
    assert radii[0] == 0.0 < radii[1] < radii[2]


BAD_RADIUS = [
    (("dipole", "--sigma", 1), "needs --both and --one-sided"),
    (("dipole", "--sigma", 1, "--both", 0.8), "--both was given"),
    (("dipole", "--sigma", 1, "--p-a", 0.8), "needs --both and --one-sided"),
    (("dipole", "--sigma", 1, "--both", 0.8, "--one-sided", 0.05, "--other-neither", 0.9), "--other-one-sided"),
    (("dipole", "--sigma", 1, "--both", 0.8, "--one-sided", 0.2), "both + 2 x one-sided is at most 1"),
    (("dipole", "--sigma", 1, "--both", 0.8, "--one-sided", 0.1001), "cannot both be true"),
    (
        ("dipole", "--sigma", 1, "--both", 0.8, "--one-sided", 0, "--other-neither", 0.9, "--other-one-sided", 0.2),
        "other-neither + 2 x other-one-sided is at most 1",
    ),
    (("dipole", "--sigma", 1, "--both", 1, "--one-sided", 0), "[0, 1)"),
    (("dipole", "--sigma", 1, "--both", -0.1, "--one-sided", 0), "[0, 1)"),
    (("dipole", "--sigma", 1, "--both", "nan", "--one-sided", 0), "[0, 1)"),
    (("dipole", "--sigma", 0, "--both", 0.8, "--one-sided", 0.1), "--sigma 0.0 must be a positive"),
    (("dipole", "--sigma", "inf", "--both", 0.8, "--one-sided", 0.1), "--sigma inf"),
    (("dipole", "--both", 0.8, "--one-sided", 0.1), "--sigma"),
    (("second-order", "--sigma", 1, "--p-a", 0.8), "needs --p-a and --gradient-norm"),
    (("second-order", "--sigma", 1, "--gradient-norm", 0.1), "needs --p-a and --gradient-norm"),
    (("second-order", "--sigma", 1, "--p-a", 0.8, "--gradient-norm", -0.1), "at least 0"),
    (("second-order", "--sigma", 1, "--p-a", 0.8, "--gradient-norm", "nan"), "must be at least 0"),
    (("second-order", "--sigma", 1, "--p-a", 1, "--gradient-norm", 0.1), "strictly between 0 and 1"),
    (("second-order", "--sigma", 1, "--p-a", 0, "--gradient-norm", 0.1), "strictly between 0 and 1"),
    (("second-order", "--sigma", 1, "--p-a", 0.8, "--gradient-norm", 0.1, "--other-p", 0.1), "--other-gradient-norm"),
    (
        ("second-order", "--sigma", 1, "--p-a", 0.8, "--gradient-norm", 0, "--other-p", 1, "--other-gradient-norm", 0),
        "strictly between 0 and 1",
    ),
    (("second-order", "--sigma", 1, "--p-a", 0.8, "--gradient-norm", 0.1, "--both", 0.5), "--both"),
    (("gaussian", "--sigma", 1, "--p-a", 0.8, "--gradient-norm", 0.1), "--p-a and --gradient-norm were given"),
    (("second-ordre", "--sigma", 1, "--p-a", 0.8), "did you mean second-order"),
    (("quadrupole", "--sigma", 1, "--both", 0.8), "dipole"),
    (("dipole", "--sigma", "one", "--both", 0.8, "--one-sided", 0.1), "--sigma"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD_RADIUS)
def test_a_bad_radius_gets_a_sentence(arguments: tuple[object, ...], words: str) -> None:
    done = call("radius", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("name", ["dipole-multi-class", "dipole-separate", "second-order-pairs"])
def test_radius_knows_the_names_of_certify(name: str) -> None:
    """They are certificates, so it is not true that there are none of that name; the theorem behind them is named."""
    done = call("radius", name, "--sigma", 1, "--both", 0.8, "--one-sided", 0.1)
    assert "there is no certificate" not in done.err


# certify, and what reads its runs.


def test_several_certificates_are_shown_one_below_the_other(runs: Path) -> None:
    shown = right("table", runs / "pairs", "--json").rows()
    assert list(shown) == ["pairs@dipole", "pairs@gaussian"]
    assert shown["pairs@dipole"]["acr"] != shown["pairs@gaussian"]["acr"]
    text = right("table", runs / "pairs").out
    assert "pairs@dipole" in text
    assert "pairs@gaussian" in text
    only = right("table", f"{runs / 'pairs'}@gaussian", "--json").rows()
    assert list(only) == ["pairs@gaussian"]
    assert only["pairs@gaussian"]["acr"] == shown["pairs@gaussian"]["acr"]


def test_certify_prints_the_table_it_leaves_behind(runs: Path, tmp_path: Path) -> None:
    made = right("certify", *MODEL, *SMALL, *PAIRS, "--out", tmp_path / "pairs")
    for line in right("table", runs / "pairs").out.splitlines():
        assert line in made.out
    assert f"smoothcert table {tmp_path / 'pairs'}" in made.err
    as_json = right("certify", *MODEL, *SMALL, *PAIRS, "--out", tmp_path / "pairs", "--json")
    assert list(as_json.rows()) == ["pairs@dipole", "pairs@gaussian"]


def test_names_may_be_joined_by_commas(runs: Path) -> None:
    """The same run: it is resumed, not refused."""
    again = right("certify", *MODEL, *SMALL, "--certificate", "dipole,gaussian", "--out", runs / "pairs")
    assert "5 of 5 inputs are already in" in again.err
    best = right("certify", *MODEL, *SMALL, "--certificate", "best-of(dipole,gaussian)", "--out", runs / "best")
    assert "5 of 5 inputs are already in" in best.err


def test_the_best_of_several_is_one_row(runs: Path) -> None:
    best = right("table", runs / "best", "--json").rows()
    assert list(best) == ["best"]
    members = [
        right("table", f"{runs / 'best'}@{name}", "--json").rows()[f"best@{name}"]["acr"]
        for name in ("dipole", "gaussian")
    ]
    assert best["best"]["acr"] >= max(members)
    assert read_manifest(runs / "best").spec.certificate_text == "best-of(dipole,gaussian)"
    with RunStore.open(runs / "best") as store:
        for point in store.points():
            assert point.bounds is not None
            assert len(point.bounds.spent) == 3  # two proofs, and the tables of the noise
            assert point.bounds.alpha <= 0.001


@pytest.mark.parametrize("certificate", ["dipole,gaussian", "best-of(dipole,gaussian)", "second-order,gaussian"])
def test_a_stopped_run_is_resumed(certificate: str, runs: Path, tmp_path: Path) -> None:
    whole = {"dipole,gaussian": "pairs", "best-of(dipole,gaussian)": "best", "second-order,gaussian": "gradients"}
    spec, out, stop = resumed_spec(runs / whole[certificate]), tmp_path / "run", threading.Event()
    assert spec.certificate_text == certificate
    stop.set()
    with prepare_run(spec, out) as run, pytest.raises(InterruptedRunError):
        execute_run(run, stop=stop)
    done = right("certify", "--resume", out)
    assert "1 of 5 inputs are already in" in done.err
    assert done.out.replace("run@", "").splitlines()[2:]
    before, after = (
        right("export", place, "-o", tmp_path / "t", "--force") for place in (runs / whole[certificate], out)
    )
    assert before.code == after.code == 0
    with RunStore.open(out) as one, RunStore.open(runs / whole[certificate]) as other:
        resumed, reference = ([dataclasses.replace(p, seconds=0) for p in store.points()] for store in (one, other))
    assert resumed == reference


def test_compare_a_run_with_itself_by_another_certificate(runs: Path) -> None:
    run = runs / "pairs"
    document = json.loads(right("compare", run, f"{run}@gaussian", "--json", "--wrong-too").out)
    named = json.loads(right("compare", f"{run}@dipole", f"{run}@gaussian", "--json", "--wrong-too").out)
    assert document["common"] == 5
    assert document["both"] > 0
    assert document["conflicting"] == 0
    # A run alone means the first certificate it carries.
    assert {key: document[key] for key in document if "run" not in key} == {
        key: named[key] for key in named if "run" not in key
    }
    printed = right("compare", f"{run}@dipole", f"{run}@gaussian").out
    assert "pairs@dipole" in printed
    assert "pairs@gaussian" in printed


def test_export_one_certificate(runs: Path, tmp_path: Path) -> None:
    radii = {}
    for name in ("dipole", "gaussian"):
        target = tmp_path / f"{name}.csv"
        right("export", f"{runs / 'pairs'}@{name}", "--format", "csv", "-o", target)
        radii[name] = [float(row["radius"]) for row in csv.DictReader(io.StringIO(target.read_text()))]
    with RunStore.open(runs / "pairs") as store:
        points = store.points()
    assert radii["dipole"] == [point.radius for point in points]
    assert radii["gaussian"] == [point.further[0].radius for point in points]
    right("export", f"{runs / 'pairs'}@gaussian", "--format", "cohen-tsv", "-o", tmp_path / "log.tsv")
    written = csv.DictReader(io.StringIO((tmp_path / "log.tsv").read_text()), delimiter="\t")
    for row, radius in zip(written, radii["gaussian"], strict=True):
        assert float(row["radius"]) <= radius < float(row["radius"]) + 1e-6


def test_figures_of_certificates(runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    right("plot", runs / "pairs", f"{runs / 'best'}@gaussian", "-o", tmp_path / "f.svg")
    drawn = (tmp_path / "f.svg").read_text()
    assert all(name in drawn for name in ("pairs@dipole", "pairs@gaussian", "best@gaussian"))


# recertify.


def test_recertify_to_the_best_equals_sampling_it(runs: Path, tmp_path: Path) -> None:
    done = right("recertify", runs / "pairs", *PAIRS, "--best-of", "--out", tmp_path / "best", "--json")
    again = right("table", tmp_path / "best", "--json").rows()["best"]
    assert done.rows()["best"]["acr"] == again["acr"] == right("table", runs / "best", "--json").rows()["best"]["acr"]
    assert list(right("table", f"{tmp_path / 'best'}@gaussian", "--json").rows()) == ["best@gaussian"]


def test_recertify_shows_every_certificate(runs: Path) -> None:
    names = ("dipole-separate", "gaussian", "dipole-multi-class")
    chosen = [part for name in names for part in ("--certificate", name)]
    done = right("recertify", runs / "pairs", *chosen, "--json")
    assert list(done.rows()) == [f"pairs@{name}" for name in names]
    text = right("recertify", runs / "pairs", *chosen, "--alpha", 0.01)
    assert "alpha 0.01, n 1000, dipole-separate,gaussian,dipole-multi-class" in text.out


def test_recertify_keeps_what_it_is_not_told(runs: Path) -> None:
    assert list(right("recertify", runs / "pairs", "--json").rows()) == ["pairs@dipole", "pairs@gaussian"]
    assert list(right("recertify", runs / "best", "--alpha", 0.01, "--json").rows()) == ["best"]
    half = right("recertify", runs / "pairs", "--n", 500, "--json").rows()
    full = right("recertify", runs / "pairs", "--json").rows()
    assert half["pairs@dipole"]["acr"] <= full["pairs@dipole"]["acr"]


def test_gaussian_from_a_gradient_run_is_that_of_a_plain_run(runs: Path) -> None:
    plain = right("recertify", runs / "plain", "--json").rows()["plain"]
    again = right("recertify", runs / "gradients", "--certificate", "gaussian", "--json").rows()["gradients"]
    assert again["acr"] == plain["acr"]


def test_soft_from_a_trained_model(runs: Path) -> None:
    """Scores of logistic regression on the bundled digits; the votes of the same samples stand beside them."""
    rows = right("table", runs / "soft", "--json").rows()
    assert list(rows) == ["soft@gaussian-soft", "soft@gaussian"]
    assert all(float(row["acr"]) > 0.05 for row in rows.values())  # type: ignore[arg-type]
    with RunStore.open(runs / "soft") as store:
        methods = {b.method for point in store.points() if point.bounds for b in point.bounds.quantities.values()}
    assert methods == {"betting on the mean score"}


def test_soft_recertified(runs: Path, tmp_path: Path) -> None:
    full = right("recertify", runs / "soft", "--json").rows()
    assert full == right("table", runs / "soft", "--json").rows()
    easier = right("recertify", runs / "soft", "--alpha", 0.05, "--json").rows()
    assert easier["soft@gaussian-soft"]["acr"] > full["soft@gaussian-soft"]["acr"]  # type: ignore[operator]
    fresh = right("certify", *TRAINED, *SMALL, *SOFT, "--alpha", 0.05, "--out", tmp_path / "soft", "--json").rows()
    assert fresh["soft@gaussian-soft"]["acr"] == easier["soft@gaussian-soft"]["acr"]
    bernstein = right("recertify", runs / "soft", "--certificate", "gaussian-soft-bernstein", "--json").rows()["soft"]
    assert bernstein["acr"] < full["soft@gaussian-soft"]["acr"]  # type: ignore[operator]


def test_soft_run_resumed(runs: Path, tmp_path: Path) -> None:
    """Stopped after the first inputs, resumed by the command line: the very same run."""
    certificate = "gaussian-soft,gaussian"
    spec = make_spec(
        model="sample_models:logistic_digits", data="digits", sigma=0.25, n0=20, n=1000, alpha=0.001, max_inputs=5,
        seed=1, batch=64, certificate=certificate,
    )  # fmt: skip
    stop = threading.Event()
    with prepare_run(spec, tmp_path / "soft") as run, pytest.raises(InterruptedRunError):
        execute_run(run, stop=stop, on_shard=lambda _: stop.set())
    with RunStore.open(tmp_path / "soft") as store:
        assert 0 < len(store.points()) < 5
    resumed = right("certify", "--resume", tmp_path / "soft", "--json").rows()
    assert resumed == right("table", runs / "soft", "--json").rows()


# What is refused, how, and that nothing is left behind.

BAD = [
    (("certify", *MODEL, "--certificate", "dipole", "--certificate", "second-order"), 2, "cannot share their samples"),
    (("certify", *MODEL, "--certificate", "dipol"), 2, "did you mean dipole"),
    (("certify", *MODEL, "--certificate", "zzz"), 2, "known: gaussian, gaussian-two-class, dipole"),
    (("certify", *MODEL, "--certificate", "dipole", "--certificate", "dipole"), 2, "named twice"),
    (("certify", *MODEL, "--certificate", "dipole", "--best-of"), 2, "name another beside dipole"),
    (("certify", *MODEL, "--best-of"), 2, "name them by --certificate"),
    (("certify", *MODEL, "--certificate", "dipole", "--n", 1001), 2, "use n=1002"),
    (("certify", *MODEL, "--certificate", "second-order", "--n", 1001), 2, "use n=1002"),
    (("certify", *MODEL, "--certificate", "dipole-separate", "--n", 20), 2, "use n ≥ 22"),
    (("certify", *MODEL, "--certificate", "second-order", "--n", 10), 2, "use n ≥ 12"),
    (("certify", *MODEL, *PAIRS, "--best-of", "--alpha", 0), 2, "alpha"),
    (("certify", "--resume", "RUNS/pairs", "--certificate", "dipole"), 2, "leave --certificate out"),
    (("certify", "--resume", "RUNS/pairs", *PAIRS, "--best-of"), 2, "--resume takes all settings from the run"),
    (("certify", "--resume", "RUNS/pairs", "--best-of"), 2, "leave --best-of out"),
    (("certify", *MODEL, *SMALL, "--certificate", "dipole", "--out", "RUNS/pairs"), 5, "spec.certificates"),
    (("certify", *MODEL, *SMALL, *PAIRS, "--best-of", "--out", "RUNS/pairs"), 5, "spec.best_of: the run has False"),
    (("certify", *MODEL, "--certificate", "gaussian-soft", "--certificate", "dipole"), 2, "cannot share their samples"),
    (("certify", *MODEL, *SOFT, "--best-of"), 2, "they speak of two classifiers"),
    (("certify", *MODEL, "--certificate", "gaussian-soft", "--n", 12), 2, "use n ≥ 13"),
    (("certify", "--model", "sample_models:darkness", "--num-classes", 10, "--data", "digits", "--sigma", 0.1,
      "--certificate", "gaussian-soft"), 4, "gives only votes; use a model that answers with logits"),
    (("recertify", "RUNS/plain", "--certificate", "gaussian-soft"), 5, "holds votes, but gaussian-soft is"),
    (("recertify", "RUNS/soft", "--n", 500), 2, "use one of 1000"),
    (("recertify", "RUNS/plain", "--certificate", "dipole"), 5, "smoothcert certify --certificate dipole"),
    (("recertify", "RUNS/plain", "--certificate", "second-order"), 5, "smoothcert certify --certificate second-order"),
    (("recertify", "RUNS/gradients", "--certificate", "dipole"), 5, "holds gradients, but dipole is"),
    (("recertify", "RUNS/pairs", "--certificate", "nonsense"), 2, "there is no certificate 'nonsense'"),
    (("recertify", "RUNS/pairs", "--best-of", "--certificate", "dipole"), 2, "name another beside dipole"),
    (("recertify", "RUNS/pairs", "--n", 600), 2, "use one of 10, 20, 50, 100, 200, 500, 1000"),
    (("recertify", "RUNS/gradients", "--n", 500), 2, "use one of 1000"),
    (("recertify", "RUNS/pairs", "--n", 2000), 2, "1 … 1000"),
    (("recertify", "RUNS/pairs@dipole",), 5, "pairs@dipole"),
    (("table", "RUNS/pairs@second-order"), 5, "it has dipole, gaussian"),
    (("table", "RUNS/plain@dipole"), 5, "it has gaussian"),
    (("table", "RUNS/nowhere@dipole"), 5, "does not exist"),
    (("compare", "RUNS/pairs", "RUNS/pairs@second-order"), 5, "it has dipole, gaussian"),
    (("export", "RUNS/pairs@lecuyer", "-o", "x.tsv"), 5, "it has dipole, gaussian"),
    (("plot", "RUNS/best@lecuyer", "-o", "x.png"), 5, "it has"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "words"), BAD, ids=[f"{b[0][0]}-{b[2]}" for b in BAD])
def test_bad_input_gets_a_sentence(
    arguments: tuple[object, ...],
    code: int,
    words: str,
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*(str(part).replace("RUNS", str(runs)) for part in arguments))
    assert (done.code, done.out) == (code, ""), done.err
    assert words in done.err
    assert any(line.startswith("smoothcert: ") for line in done.err.splitlines())
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_the_program_itself(runs: Path, tmp_path: Path) -> None:
    """Another process, as a user starts it: a run, a refusal."""
    made = smoothcert("certify", *MODEL, *SMALL, *PAIRS, "--best-of", "--out", tmp_path / "best")
    assert made.returncode == 0, made.stderr
    assert made.stdout == right("table", runs / "best").out
    refused = smoothcert("certify", *MODEL, "--certificate", "dipole", "--certificate", "second-order", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert [place.name for place in tmp_path.iterdir()] == ["best"]


def test_an_unfinished_run_says_so_for_every_certificate(runs: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    shutil.copytree(runs / "pairs", part)
    manifest = json.loads((part / "manifest.json").read_text())
    manifest["data"]["inputs"] = 9
    (part / "manifest.json").write_text(json.dumps(manifest))
    for done in (right("table", part), right("table", f"{part}@gaussian"), right("recertify", part)):
        assert "unfinished: 5 of 9 inputs" in done.out


def test_help_tells_what_can_be_asked_for() -> None:
    for verb, words in (
        ("certify", ("--certificate", "--best-of", "dipole", "second-order")),
        ("recertify", ("--certificate", "--best-of")),
        ("radius", ("--both", "--one-sided", "--gradient-norm", "--other-p", "--other-neither")),
    ):
        text = right(verb, "--help").out
        assert all(word in text for word in words)


def test_the_help_names_every_theorem() -> None:
    """It is written out, because --help loads no theorem."""
    text = typing.get_args(Certificates)[1].help
    assert [one.family for one in CERTIFICATES.values() if one.family not in text] == []

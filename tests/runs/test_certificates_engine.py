"""Runs with pairs, gradients and several certificates: stopped and resumed, recomputed, and read back by name."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from run_specs import finish_run, make_spec, resumed_spec, without_times
from smoothcert.errors import (
    CorruptRunError,
    InputError,
    InterruptedRunError,
    ManifestMismatchError,
    RunError,
    SmoothcertError,
)
from smoothcert.records import CertifiedPoint, Stage, TallyKind, Verdict
from smoothcert.runs.execution import check_spec
from smoothcert.runs.load import load_all, load_pair, load_results
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.store import RunStore
from smoothcert.spec import RunSpec

SETTINGS: dict[str, Any] = {
    "task": "certify",
    "model": "sample_models:digits_by_brightness",
    "data": "digits",
    "sigma": 0.1,
    "n0": 50,
    "n": 2000,
    "alpha": 0.001,
    "max_inputs": 6,
    "skip": 3,
    "seed": 5,
    "batch": 256,
    "num_classes": 10,
}


def spec(certificate: str, **changes: Any) -> RunSpec:
    return make_spec(**(SETTINGS | changes), certificate=certificate)


STORED_KIND = {
    "gaussian": TallyKind.VOTES,
    "dipole": TallyKind.PAIRS,
    "best-of(dipole,gaussian)": TallyKind.PAIRS,
    "dipole,gaussian,dipole-multi-class": TallyKind.PAIRS,
    "second-order": TallyKind.GRADIENTS,
    "second-order-multi-class": TallyKind.GRADIENTS,
    "second-order,gaussian": TallyKind.GRADIENTS,
    "gaussian-soft": TallyKind.SCORES,
    "best-of(gaussian-soft,gaussian-soft-two-class)": TallyKind.SCORES,
    "gaussian,gaussian-soft,gaussian-soft-bernstein": TallyKind.SCORES,
}

Run = Callable[..., Path]


def said(points: list[CertifiedPoint]) -> list[tuple[int, int | None, Verdict, tuple[Verdict, ...]]]:
    """All that a point states, without how its samples were stored."""
    return [(point.index, point.label, point.verdict, point.further) for point in points]


def points_of(run: Path) -> list[CertifiedPoint]:
    with RunStore.open(run) as store:
        return without_times(store.points())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run with these settings, made once; nobody may change it."""
    found: dict[tuple[str, ...], Path] = {}

    def make(certificate: str, **settings: object) -> Path:
        key = (certificate, *(f"{name}={value}" for name, value in settings.items()))
        if key not in found:
            found[key] = tmp_path_factory.mktemp("engine") / "run"
            finish_run(spec(certificate, **settings), found[key])
        return found[key]

    return make


@pytest.mark.parametrize("certificate", STORED_KIND)
def test_resumed_equals_never_stopped(certificate: str, made: Run, tmp_path: Path) -> None:
    whole = points_of(made(certificate))
    assert [point.index for point in whole] == list(range(0, 18, 3))
    assert any(point.radius > 0 for point in whole)
    for stop_after in (1, 2):
        out = tmp_path / f"stopped-{stop_after}"
        with pytest.raises(InterruptedRunError, match="stored"):
            finish_run(spec(certificate), out, stop_after=stop_after)
        assert 0 < len(points_of(out)) < len(whole)
        assert finish_run(resumed_spec(out), out) == whole


@pytest.mark.parametrize("certificate", STORED_KIND)
def test_what_is_stored_is_what_was_sampled(certificate: str, made: Run) -> None:
    for point in points_of(made(certificate)):
        kinds = {tally.kind for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION}
        assert kinds == {STORED_KIND[certificate]}
        total = point.tally(Stage.ESTIMATION)
        assert total is not None
        assert total.n == 2000


@pytest.mark.parametrize("certificate", ["dipole", "second-order", "gaussian-soft"])
def test_batch_workers_and_subset_change_no_count(certificate: str, made: Run, tmp_path: Path) -> None:
    whole = points_of(made(certificate))
    assert finish_run(spec(certificate, batch=33, workers=1), tmp_path / "b") == whole
    assert finish_run(spec(certificate, max_inputs=2), tmp_path / "c") == whole[:2]


def test_resuming_with_another_certificate_is_refused(tmp_path: Path) -> None:
    finish_run(spec("dipole", max_inputs=1), tmp_path / "run")
    for other in ("dipole,gaussian", "best-of(dipole,gaussian)", "second-order", "gaussian"):
        with pytest.raises(ManifestMismatchError, match=r"spec\.(certificates|best_of)"):
            finish_run(spec(other, max_inputs=1), tmp_path / "run")


@pytest.mark.parametrize("certificate", STORED_KIND)
def test_recertified_at_the_same_settings_nothing_changes(certificate: str, made: Run) -> None:
    run = made(certificate)
    assert without_times(recertify_run(run).points) == points_of(run)


@pytest.mark.parametrize("certificate", STORED_KIND)
def test_recertified_at_another_alpha_equals_a_fresh_run(certificate: str, made: Run) -> None:
    again = recertify_run(made(certificate), alpha=0.02)
    assert without_times(again.points) == points_of(made(certificate, alpha=0.02))
    assert again.spec.alpha == 0.02


@pytest.mark.parametrize("certificate", STORED_KIND)
def test_recertified_with_fewer_samples_equals_a_fresh_run(certificate: str, made: Run, tmp_path: Path) -> None:
    """1000 is the end of a stored segment of every kind."""
    again = recertify_run(made(certificate), n=1000)
    assert said(again.points) == said(points_of(made(certificate, n=1000)))
    again.save(tmp_path / "saved")
    with RunStore.open(tmp_path / "saved") as store:
        assert store.points() == again.points
        assert store.manifest.spec.question.n == 1000
    assert said(recertify_run(tmp_path / "saved", alpha=0.02).points) == said(
        points_of(made(certificate, n=1000, alpha=0.02))
    )


COMPATIBLE = [
    ("dipole", "dipole-separate"),
    ("dipole", "best-of(dipole,gaussian)"),
    ("dipole", "dipole,gaussian,dipole-multi-class"),
    ("best-of(dipole,gaussian)", "dipole"),
    ("dipole,gaussian,dipole-multi-class", "dipole-multi-class"),
    ("second-order", "second-order-pairs"),
    ("second-order", "second-order,gaussian"),
    ("second-order,gaussian", "best-of(gaussian,second-order)"),
    ("second-order-multi-class", "second-order"),
    ("second-order-multi-class", "best-of(second-order,gaussian)"),
    ("second-order", "gaussian"),
    ("second-order", "gaussian-two-class"),
    ("second-order-multi-class", "gaussian"),
    ("gaussian-soft", "gaussian-soft-two-class"),
    ("gaussian-soft", "gaussian,gaussian-soft,gaussian-soft-bernstein"),
    ("gaussian-soft", "best-of(gaussian-soft,gaussian-soft-two-class)"),
    ("gaussian-soft", "gaussian-two-class"),
]


@pytest.mark.parametrize(("source", "target"), COMPATIBLE)
def test_recertified_by_another_certificate_equals_a_fresh_run(source: str, target: str, made: Run) -> None:
    """Gaussian included: the votes of a gradient tally are those of a plain run with the same seed."""
    again = recertify_run(made(source), certificate=target)
    assert said(again.points) == said(points_of(made(target)))
    assert again.spec.certificate_text == target


def test_gaussian_from_pairs_is_a_plain_run_of_half_the_samples(made: Run) -> None:
    """Only one vote of each pair is independent of the others."""
    again = recertify_run(made("dipole"), certificate="gaussian")
    assert said(again.points) == said(points_of(made("gaussian", n=1000)))


@pytest.mark.parametrize(
    ("source", "target", "holds", "needs"),
    [
        ("gaussian", "dipole", "votes", "pairs"),
        ("gaussian", "second-order", "votes", "gradients"),
        ("gaussian", "best-of(dipole,gaussian)", "votes", "pairs"),
        ("second-order", "dipole", "gradients", "pairs"),
        ("gaussian", "gaussian-soft", "votes", "scores"),
        ("second-order", "gaussian-soft", "gradients", "scores"),
        ("gaussian-soft", "second-order", "scores", "gradients"),
        ("dipole", "second-order-multi-class", "pairs", "gradients"),
    ],
)
def test_what_was_not_sampled_cannot_be_computed(source: str, target: str, holds: str, needs: str, made: Run) -> None:
    """The sentence says what the run holds, what is needed, and the command that would sample it."""
    with pytest.raises(RunError, match=rf"holds {holds}, but .* is computed from {needs}: .*smoothcert certify"):
        recertify_run(made(source), certificate=target)


def test_gradients_of_one_class_do_not_give_those_of_all(made: Run) -> None:
    with pytest.raises(SmoothcertError, match=r"holds the gradient of one class") as refused:
        recertify_run(made("second-order"), certificate="second-order-multi-class")
    # What the run must be made with is part of the sentence.
    assert "--certificate second-order-multi-class" in str(refused.value)


def test_counts_that_cannot_be_thinned_are_refused_with_those_that_can(made: Run) -> None:
    with pytest.raises(InputError, match=r"n=600 is not possible with pairs: use one of .*200, 500, 1000, 2000"):
        recertify_run(made("dipole"), n=600)
    with pytest.raises(InputError, match=r"n=600 is not possible with gradients: use one of 1000, 2000"):
        recertify_run(made("second-order"), n=600)
    with pytest.raises(InputError, match=r"n=600 is not possible with scores: use one of 1000, 2000"):
        recertify_run(made("gaussian-soft"), n=600)
    with pytest.raises(InputError, match="not possible with pairs"):
        recertify_run(made("dipole"), n=999)
    with pytest.raises(InputError, match="1 … 2000"):
        recertify_run(made("dipole"), n=4000)
    with pytest.raises(InputError, match="can never certify"):
        recertify_run(made("dipole"), n=20)


def test_settings_that_cannot_work_are_refused_before_anything_is_loaded() -> None:
    for certificate, words in (
        ("dipole,second-order", "cannot share their samples"),
        ("best-of(dipole)", "best of one"),
        ("dipole,dipole", "twice"),
        ("dipoles", "did you mean dipole"),
    ):
        with pytest.raises(InputError, match=words):
            check_spec(spec(certificate, model="missing.safetensors", data="missing.npz"))
    with pytest.raises(InputError, match="odd"):
        check_spec(spec("second-order", n=999))


# Reading back a run with several certificates.


def test_a_run_with_several_is_there_once_for_each(made: Run) -> None:
    run = made("dipole,gaussian,dipole-multi-class")
    names = ["dipole", "gaussian", "dipole-multi-class"]
    found = load_all([run])
    assert [results.name for results in found] == [f"run@{name}" for name in names]
    points = points_of(run)
    for at, results in enumerate(found):
        own = [(point.verdict, *point.further)[at] for point in points]
        np.testing.assert_array_equal(results.radius, [verdict.radius for verdict in own])
        assert results.alpha == 0.001
        assert results.expected == 6
    assert len({tuple(results.radius) for results in found}) == 3


def test_one_of_several_is_picked_by_name(made: Run) -> None:
    run = made("dipole,gaussian,dipole-multi-class")
    by_name = {results.name: results.radius for results in load_all([run])}
    for name in ("dipole", "gaussian", "dipole-multi-class"):
        picked = load_results(Path(f"{run}@{name}"))
        assert picked.name == f"run@{name}"
        np.testing.assert_array_equal(picked.radius, by_name[f"run@{name}"])
        (alone,) = load_all([Path(f"{run}@{name}")])
        assert alone.name == f"run@{name}"
    np.testing.assert_array_equal(load_results(run).radius, by_name["run@dipole"])


def test_a_run_is_compared_with_itself_by_another_certificate(made: Run) -> None:
    run = made("dipole,gaussian,dipole-multi-class")
    first, second = load_pair(Path(f"{run}@gaussian"), Path(f"{run}@dipole"))
    assert (first.name, second.name) == ("run@gaussian", "run@dipole")
    assert not np.array_equal(first.radius, second.radius)


@pytest.mark.parametrize("name", ["second-order", "nonsense", "dipole,gaussian"])
def test_a_certificate_the_run_does_not_carry(name: str, made: Run) -> None:
    run = made("dipole,gaussian,dipole-multi-class")
    with pytest.raises(RunError, match="it has dipole, gaussian, dipole-multi-class"):
        load_results(Path(f"{run}@{name}"))
    with pytest.raises(RunError, match="does not have the certificate dipole"):
        load_all([Path(f"{made('gaussian')}@dipole")])
    with pytest.raises(RunError, match="does not exist"):
        load_results(Path("nowhere@gaussian"))


def test_the_best_of_several_is_one_result(made: Run) -> None:
    run = made("best-of(dipole,gaussian)")
    (best,) = load_all([run])
    assert best.name == "run"
    members = [load_results(Path(f"{run}@{name}")).radius for name in ("dipole", "gaussian")]
    np.testing.assert_array_equal(best.radius, np.maximum(*members))


def test_a_folder_with_an_at_sign_is_a_folder(made: Run, tmp_path: Path) -> None:
    place = tmp_path / "sigma@0.1"
    shutil.copytree(made("dipole,gaussian,dipole-multi-class"), place)
    assert [results.name for results in load_all([place])][:2] == ["sigma@0.1@dipole", "sigma@0.1@gaussian"]
    assert load_results(Path(f"{place}@gaussian")).name == "sigma@0.1@gaussian"


@pytest.mark.parametrize("certificate", ["dipole, gaussian", " best-of(dipole, gaussian) "])
def test_spaces_between_the_names_do_not_spoil_a_run(certificate: str, tmp_path: Path) -> None:
    """They are accepted when the run is made, so what was computed must be found again."""
    points = finish_run(spec(certificate, max_inputs=2), tmp_path / "run")
    names = [results.name for results in load_all([tmp_path / "run"])]
    assert names == (["run"] if "best" in certificate else ["run@dipole", "run@gaussian"])
    assert {verdict.certificate for verdict in (points[0].verdict, *points[0].further)} == {"dipole", "gaussian"}
    assert finish_run(spec(certificate.replace(" ", ""), max_inputs=2), tmp_path / "run") == points


# A damaged store is named, whatever is damaged.

DAMAGE = [
    ("dipole", "UPDATE tallies SET counts = '{}' WHERE kind = 'pairs'"),
    ("dipole", """UPDATE tallies SET counts = '{"both":{"0":1},"first":{},"second":{}}' WHERE kind = 'pairs'"""),
    ("dipole", "UPDATE tallies SET kind = 'triples' WHERE kind = 'pairs'"),
    ("dipole", "UPDATE tallies SET kind = 'gradients' WHERE kind = 'pairs'"),
    ("second-order", "UPDATE tallies SET sums = NULL WHERE kind = 'gradients'"),
    ("second-order", "UPDATE tallies SET sums = x'00ff00' WHERE kind = 'gradients'"),
    ("second-order", "UPDATE tallies SET sums = substr(sums, 1, length(sums) / 2) WHERE kind = 'gradients'"),
    ("second-order", "UPDATE tallies SET start = 1 WHERE kind = 'gradients' AND start = 0"),
    ("dipole", "DELETE FROM verdicts WHERE idx = 3"),
    ("dipole", """UPDATE verdicts SET bounds = '{"label": 1}'"""),
    ("dipole", "UPDATE verdicts SET bounds = replace(bounds, 'joint region of the pair counts', 'faith')"),
]


@pytest.mark.parametrize(("certificate", "damage"), DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_store_is_named(certificate: str, damage: str, made: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(made(certificate), broken)
    connection = sqlite3.connect(broken / "results.sqlite")
    assert connection.execute(damage).rowcount > 0
    connection.commit()
    connection.close()
    with pytest.raises(CorruptRunError, match="broken"):
        recertify_run(broken)

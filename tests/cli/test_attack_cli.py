"""`smoothcert attack` from end to end, on half-spaces: what can be broken there is known exactly."""

from __future__ import annotations

import base64
import json
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

from attack_models import BIAS, WEIGHTS, inputs_at, level, saved_inputs
from cli_runner import invoke, smoothcert
from smoothcert.attacks.attack_run import prepare_attack, run_attack
from smoothcert.attacks.attack_settings import AttackSettings
from smoothcert.cli.main import app
from smoothcert.errors import (
    BrokenCertificateError,
    CorruptRunError,
    InputError,
    InterruptedRunError,
    ManifestMismatchError,
    RunError,
)
from smoothcert.runs.resumption import Moved
from smoothcert.spec import LocalEngineSpec

COUNT = 12
ONE_WORKER = Moved(engine=LocalEngineSpec(workers=1))
QUICK = ("--steps", 5, "--draws", 50, "--n", 4000, "--seed", 7)


def _certified(folder: Path, *options: object, distance: float = 0.25, sigma: float = 0.25, n: int = 10_000) -> Path:
    data, run = saved_inputs(folder / "inputs.npz", distance, count=COUNT), folder / "run"
    model = () if "--model" in options else ("--model", "attack_models:HalfSpace")
    level = () if "--sigma-rule" in options else ("--sigma", sigma)
    fixed = ("--input-range", "any", "--num-classes", 2, "--batch", 500, "--seed", 1, "--n", n, "--out", run)
    invoke(app, "certify", *model, "--data", data, *level, *fixed, *options)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _certified(tmp_path_factory.mktemp("half-space"))


@pytest.fixture(scope="module")
def small_noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs 0.5 from the boundary, with so little noise that 1 % beyond it the votes are clear."""
    return _certified(tmp_path_factory.mktemp("small-noise"), distance=0.5, sigma=0.02, n=1000)


def _rows(*arguments: object) -> dict[str, dict[str, float]]:
    answer = json.loads(invoke(app, "attack", *arguments, "--json").stdout)
    return {row["radius"]: row for row in answer["rows"]}


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def _multiply_radii(run: Path, factor: float) -> None:
    _change_radii(run, f"radius * {factor!r}")


def _change_radii(run: Path, value: str) -> None:
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute(f"UPDATE verdicts SET radius = {value}")
    connection.close()


@pytest.mark.parametrize("method", ["pgd", "ddn"])
@pytest.mark.parametrize("objective", ["soft-vote", "mean-loss"])
def test_inside_the_distance_no_attack_succeeds_and_outside_every_one_does(
    small_noise: Path, tmp_path: Path, method: str, objective: str
) -> None:
    options = ("--method", method, "--objective", objective, "--steps", 30, "--draws", 20, "--n", 4000)
    rows = _rows(small_noise, "--radius", "0.495,0.505", *options, "--out", tmp_path / "a.jsonl")
    inside, outside = rows["0.495"], rows["0.505"]
    assert (inside["attacked"], inside["changed"], inside["abstained"]) == (COUNT, 0, 0)
    assert (outside["changed"], outside["abstained"]) == (COUNT, 0)
    assert inside["empirical_accuracy"] == 1.0
    assert outside["empirical_accuracy"] == 0.0
    assert inside["certified_accuracy"] == 0.0
    assert inside["gap"] == 1.0
    for line in _lines(tmp_path / "a.jsonl"):
        assert line["distance"] <= float(line["radius"])


@pytest.mark.parametrize("gradient", ["exact", "scores", "votes"])
def test_certificates_hold_just_inside_their_radius_whatever_the_gradient(
    run: Path, tmp_path: Path, gradient: str
) -> None:
    out = tmp_path / "a.jsonl"
    rows = _rows(run, "--radius", "certified,0.5", *QUICK, "--gradient", gradient, "--out", out)
    assert rows["certified"]["attacked"] == COUNT
    assert rows["certified"]["changed"] == 0
    assert rows["certified"]["empirical_accuracy"] == rows["certified"]["certified_accuracy"] == 1.0
    assert rows["0.5"]["changed"] == COUNT
    for line in _lines(out):
        if line["radius"] == "certified":
            # As close to the radius as float32 points come, and never beyond.
            assert 0.999 < line["distance"] / line["certified_radius"] < 1.0


def test_a_falsified_radius_makes_the_command_fail_loudly(tmp_path: Path) -> None:
    """The negative control: radii doubled after certification."""
    run = _certified(tmp_path)
    _multiply_radii(run, 2.0)
    done = smoothcert("attack", run, *QUICK)
    assert done.returncode == 7
    assert f"CERTIFICATES BROKEN: inside their certified radius the answer to {COUNT} of {COUNT} inputs" in done.stderr
    assert "expected" in done.stderr
    assert f"of {COUNT} at most 0.012 are expected" in done.stderr
    evidence = run / "attack.jsonl"
    assert str(evidence) in done.stderr
    inputs, labels = inputs_at(0.25, count=COUNT)
    lines = _lines(evidence)
    assert len(lines) == COUNT
    for line in lines:
        point = np.frombuffer(base64.b64decode(str(line["point"])), dtype="<f4").astype(np.float64)
        index = int(str(line["index"]))
        assert f"input {index}: class {labels[index]} is certified closer than" in done.stderr
        assert np.linalg.norm(point - inputs[index]) <= line["distance"] < line["certified_radius"]
        margin = point @ WEIGHTS.astype(np.float64) + BIAS
        assert (margin > 0) == (line["answer"] == 1) != (labels[index] == 1)
        assert sum(line["counts"]) == 4000
        assert line["p_value"] < 1e-6
    # What is broken stays broken when the same command is given again: nothing is sampled any more.
    assert "12 of 12 attacks are already in" in smoothcert("attack", run, *QUICK).stderr
    with pytest.raises(BrokenCertificateError) as failure:
        invoke(app, "attack", run, *QUICK)
    assert failure.value.exit_code == 7


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose radii the tests set themselves; those of the half-space are exactly 0.25."""
    return _certified(tmp_path_factory.mktemp("exact"), n=1000)


FEW = ("--max", 6, "--steps", 5, "--draws", 50, "--seed", 7)


@pytest.mark.parametrize("factor", [1.03, 1.05])
def test_radii_a_little_too_large_are_found_out_by_looking_again(exact: Path, tmp_path: Path, factor: float) -> None:
    """At 1.05 of the way the class still has 48 % of the votes: too many for the samples of the first look."""
    _change_radii(exact, f"0.25 * {factor}")
    once = _rows(exact, *FEW, "--n", 2000, "--looks", 1, "--out", tmp_path / "once.jsonl")["certified"]
    assert once["changed"] < 6
    done = smoothcert("attack", exact, *FEW, "--n", 10_000, "--out", tmp_path / "a.jsonl")
    assert done.returncode == 7, done.stderr
    assert "looking again, with 100,000 fresh samples each" in done.stderr
    assert "the answer to 6 of 6 inputs changes" in done.stderr
    lines = _lines(tmp_path / "a.jsonl")
    assert {line["samples"] for line in lines} <= {10_000, 100_000, 1_000_000}
    assert max(line["samples"] for line in lines) > 10_000
    assert all(sum(line["counts"]) == line["samples"] for line in lines)


def test_true_radii_pass_however_close_to_the_boundary(exact: Path, tmp_path: Path) -> None:
    _change_radii(exact, "0.25 * 0.99")
    row = _rows(exact, *FEW, "--n", 20_000, "--out", tmp_path / "a.jsonl")["certified"]
    assert (row["broken"], row["unsettled"], row["abstained"]) == (0, 0, 0)


def test_what_cannot_be_settled_is_said(exact: Path, tmp_path: Path) -> None:
    """The radius is exact: at its end the votes are even, whatever their number. That breaks nothing."""
    _change_radii(exact, "0.25")
    done = smoothcert("attack", exact, *FEW, "--n", 1000, "--out", tmp_path / "a.jsonl")
    assert done.returncode == 0, done.stderr
    behind = sum(not line["leads"] for line in _lines(tmp_path / "a.jsonl"))
    assert "NOT SETTLED: 6 inputs could not be settled inside their certified radius with up to 100,000" in done.stderr
    assert f"the class is not in the lead for {behind} of them" in done.stderr
    assert all(line["point"] for line in _lines(tmp_path / "a.jsonl"))
    answer = json.loads(invoke(app, "attack", exact, *FEW, "--n", 1000, "--out", tmp_path / "a.jsonl", "--json").stdout)
    assert (answer["rows"][0]["unsettled"], answer["rows"][0]["not_leading"]) == (6, behind)
    assert len(answer["unsettled"]) == 6


@pytest.mark.parametrize("looks", [1, 2, 3, 6])
def test_all_looks_together_spend_no_more_than_one_may(looks: int) -> None:
    settings = AttackSettings(radii=("certified",), n=10, looks=looks)
    assert sum(settings.share(look) for look in range(looks)) == pytest.approx(1.0, rel=1e-15)
    assert [settings.samples(look) for look in range(3)] == [10, 100, 1000]


def test_a_change_outside_the_certified_radius_is_no_failure(run: Path, tmp_path: Path) -> None:
    done = smoothcert("attack", run, "--radius", 0.6, *QUICK, "--out", tmp_path / "a.jsonl")
    assert done.returncode == 0, done.stderr
    assert "under attack" in done.stdout
    assert all(line["point"] is None for line in _lines(tmp_path / "a.jsonl"))


def test_close_calls_are_abstentions_and_no_changes(small_noise: Path, tmp_path: Path) -> None:
    """Right on the boundary the votes are even: nothing is proved, and the accuracy counts the input as standing."""
    rows = _rows(small_noise, "--radius", "0.5", "--n", 200, "--draws", 20, "--out", tmp_path / "a.jsonl")
    assert rows["0.5"]["abstained"] == COUNT
    assert rows["0.5"]["changed"] == 0
    assert rows["0.5"]["empirical_accuracy"] == 1.0


def test_a_model_without_torch_is_attacked_by_its_votes(tmp_path: Path) -> None:
    run = _certified(tmp_path, "--model", "attack_models:votes")
    rows = _rows(run, "--radius", "certified,0.6", *QUICK)
    assert rows["certified"]["changed"] == 0
    assert rows["0.6"]["changed"] == COUNT
    assert json.loads((run / "attack.jsonl").read_text().splitlines()[0])["settings"]["gradient"] == "votes"
    with pytest.raises(InputError, match="not a torch module"):
        invoke(app, "attack", run, "--gradient", "exact", "--out", tmp_path / "b.jsonl")
    with pytest.raises(InputError, match="classes alone"):
        invoke(app, "attack", run, "--gradient", "scores", "--out", tmp_path / "b.jsonl")


@pytest.mark.parametrize("gradient", ["exact", "votes"])
def test_uniform_noise_is_attacked_in_l1(tmp_path: Path, gradient: str) -> None:
    """The ℓ1 distance to the boundary is the margin over the largest weight."""
    run = _certified(tmp_path, "--noise", "uniform", sigma=0.5)
    reach = 0.25 * float(np.linalg.norm(WEIGHTS)) / float(np.abs(WEIGHTS).max())
    radii = f"{0.9 * reach},{1.2 * reach}"
    rows = _rows(run, "--radius", radii, "--radius", "certified", *QUICK, "--draws", 400, "--gradient", gradient)
    assert [row["changed"] for row in rows.values()] == [0, COUNT, 0]
    with pytest.raises(InputError, match="use --method pgd"):
        invoke(app, "attack", run, "--method", "ddn", "--out", tmp_path / "b.jsonl")


def test_runs_about_mean_scores_are_checked_by_mean_scores(tmp_path: Path) -> None:
    run = _certified(tmp_path, "--certificate", "gaussian-soft")
    rows = _rows(run, "--radius", "certified,0.6", *QUICK)
    assert rows["certified"]["changed"] == 0
    assert rows["0.6"]["changed"] == COUNT
    _multiply_radii(run, 3.0)
    with pytest.raises(BrokenCertificateError, match="12 of 12 inputs"):
        invoke(app, "attack", run, *QUICK, "--out", tmp_path / "b.jsonl")


def test_with_a_memory_the_answers_inside_come_from_it(tmp_path: Path) -> None:
    run = _certified(tmp_path, "--sigma-rule", "attack_models:level", "--memory", tmp_path / "memory.sqlite")
    rows = _rows(run, "--radius", "certified,1.0", *QUICK)
    assert rows["certified"]["changed"] == rows["certified"]["abstained"] == 0
    assert all(line["counts"] is None for line in _lines(run / "attack.jsonl") if line["radius"] == "certified")
    assert rows["1.0"]["changed"] > 0
    assert rows["1.0"]["broken"] == 0


def test_what_a_memory_answered_is_not_passed_off_as_sampled(tmp_path: Path) -> None:
    run = _certified(tmp_path, "--sigma-rule", "attack_models:level", "--memory", tmp_path / "memory.sqlite", n=1000)
    done = smoothcert("attack", run, "--radius", "certified,1.0", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "from memory" in done.stdout
    remembered = [line for line in _lines(run / "attack.jsonl") if line["samples"] == 0]
    assert all(line["counts"] is None for line in remembered)
    assert len(remembered) >= COUNT
    assert f"{len(remembered)} of {2 * COUNT} points lie in regions that the memory has promised" in done.stderr
    rows = _rows(run, "--radius", "certified,1.0", *QUICK)
    assert rows["certified"]["from_memory"] == COUNT
    with pytest.raises(InputError, match="use --bounds data"):
        invoke(app, "attack", run, "--bounds", "any", "--out", tmp_path / "b.jsonl")


def test_a_softmax_without_a_gradient_does_not_stop_an_attack(tmp_path: Path) -> None:
    """So little noise that at the input all copies are certain, and the gradient of the softmax is exactly 0."""
    run = _certified(tmp_path, "--model", "attack_models:SureHalfSpace", distance=0.5, sigma=0.02, n=1000)
    row = _rows(run, "--radius", "0.6", *QUICK)["0.6"]
    assert (row["changed"], row["not_moved"]) == (COUNT, 0)


@pytest.mark.parametrize("method", ["pgd", "ddn"])
def test_an_attack_that_saw_no_gradient_is_counted(tmp_path: Path, method: str) -> None:
    run = _certified(tmp_path, "--model", "attack_models:FlatHalfSpace", n=1000)
    done = smoothcert("attack", run, "--radius", "0.6", *QUICK, "--method", method)
    assert f"NOT MOVED: {COUNT} of {COUNT} attacks never saw a gradient" in done.stderr
    assert "not moved" in done.stdout
    assert not any(line["moved"] for line in _lines(run / "attack.jsonl"))
    # Its votes have a gradient.
    row = _rows(run, "--radius", "0.6", *QUICK, "--gradient", "votes", "--out", tmp_path / "b.jsonl")["0.6"]
    assert (row["changed"], row["not_moved"]) == (COUNT, 0)


def test_votes_without_a_gradient_at_the_input_are_attacked_from_a_random_point(tmp_path: Path) -> None:
    """Six standard deviations from the boundary all votes agree; at some random points in the ball they do not."""
    run = _certified(tmp_path, distance=0.6, sigma=0.1, n=1000)
    row = _rows(run, "--radius", "1.5", *QUICK, "--gradient", "votes")["1.5"]
    assert row["not_moved"] < COUNT
    assert row["changed"] > 0
    moved = [line["index"] for line in _lines(run / "attack.jsonl") if line["moved"]]
    assert len(moved) == COUNT - row["not_moved"]


def test_one_of_several_certificates_is_attacked_by_name(tmp_path: Path) -> None:
    run = _certified(tmp_path, "--certificate", "gaussian,lecuyer", n=1000)
    done = smoothcert("attack", run, *QUICK)
    assert f"attacked within the radii of gaussian; for the others give {run}@lecuyer" in done.stderr
    other = invoke(app, "attack", f"{run}@lecuyer", *QUICK, "--json")
    assert "several certificates" not in other.stderr
    first, second = (_lines(run / name) for name in ("attack.jsonl", "attack-lecuyer.jsonl"))
    for one, two in zip(first, second, strict=True):
        assert two["distance"] < two["certified_radius"] < one["certified_radius"]
    with pytest.raises(RunError, match="does not have the certificate dipole"):
        invoke(app, "attack", f"{run}@dipole", *QUICK)
    with pytest.raises(RunError, match="does not exist"):
        invoke(app, "attack", f"{tmp_path / 'nothing'}@gaussian", *QUICK)


def test_auto_means_any_device_also_where_the_run_was_made_on_another(tmp_path: Path) -> None:
    run = _certified(tmp_path, n=1000)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["spec"]["model"]["device"] = "cuda:63"
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="is not available"):
        invoke(app, "attack", run, *QUICK)
    assert _rows(run, *QUICK, "--device", "auto")["certified"]["attacked"] == COUNT


def test_points_may_be_looked_for_beyond_the_range_of_the_data(tmp_path: Path) -> None:
    inputs, _ = inputs_at(0.25, count=COUNT)
    low, high = float(inputs.min()), float(inputs.max())
    run = _certified(tmp_path, "--input-range", f"{low},{high}", n=1000)
    _multiply_radii(run, 20.0)
    for bounds, leaves in (("data", False), ("any", True)):
        out = tmp_path / f"{bounds}.jsonl"
        with pytest.raises(BrokenCertificateError, match=str(out)):
            invoke(app, "attack", run, *QUICK, "--bounds", bounds, "--out", out)
        found = [np.frombuffer(base64.b64decode(str(line["point"])), "<f4") for line in _lines(out)]
        assert (np.min(found) < low or np.max(found) > high) == leaves


def test_a_sigma_that_varies_is_that_of_the_point_found(tmp_path: Path) -> None:
    run = _certified(tmp_path, "--sigma-rule", "attack_models:proven_level")
    rows = _rows(run, "--radius", "certified,0.6", *QUICK)
    assert rows["certified"]["changed"] == 0
    assert rows["0.6"]["changed"] == COUNT
    inputs, _ = inputs_at(0.25, count=COUNT)
    moved = [line for line in _lines(run / "attack.jsonl") if line["radius"] == "0.6"]
    assert all(line["sigma"] != level(inputs[int(str(line["index"]))]) for line in moved)
    _multiply_radii(run, 4.0)
    with pytest.raises(BrokenCertificateError):
        invoke(app, "attack", run, *QUICK, "--out", tmp_path / "b.jsonl")
    evidence = [line for line in _lines(tmp_path / "b.jsonl") if line["point"] is not None]
    for line in evidence:
        point = np.frombuffer(base64.b64decode(str(line["point"])), dtype="<f4")
        assert line["sigma"] == pytest.approx(level(point), rel=1e-12)


def test_a_prediction_run_has_an_accuracy_under_attack_and_no_certified_one(tmp_path: Path) -> None:
    data, run = saved_inputs(tmp_path / "inputs.npz", 0.25, count=COUNT), tmp_path / "run"
    model = ("--model", "attack_models:HalfSpace", "--data", data, "--sigma", 0.25, "--input-range", "any")
    invoke(app, "predict", *model, "--n", 1000, "--batch", 500, "--out", run)
    row = _rows(run, "--radius", "0.6", *QUICK)["0.6"]
    assert row["certified_accuracy"] is None
    assert row["empirical_accuracy"] == 0.0
    with pytest.raises(RunError, match="no input to attack"):
        invoke(app, "attack", run, "--radius", "certified", "--out", tmp_path / "b.jsonl")


def test_a_proved_break_is_told_at_once_and_outlives_an_interruption(tmp_path: Path) -> None:
    run = _certified(tmp_path, "--batch", 8, n=1000)  # groups of 8 inputs
    _multiply_radii(run, 2.0)
    settings = AttackSettings(radii=("certified",), steps=5, draws=50, n=4000, seed=7)
    heard: list[str] = []
    stop = threading.Event()
    out = tmp_path / "a.jsonl"
    with prepare_attack(run, settings, out=out, moved=ONE_WORKER) as attack:

        def hear(text: str) -> None:
            heard.append(text)
            stop.set()

        with pytest.raises(InterruptedRunError):
            run_attack(attack, stop=stop, notice=hear)
    assert len(heard) == 1
    assert heard[0].startswith("CERTIFICATE BROKEN: the answer to input 0 changes")
    assert len(_lines(out)) == 8
    # Resumed and stopped at once by Ctrl-C, the command still reports it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smoothcert.attacks.attack_run._search_groups", _interrupted)
        with pytest.raises(BrokenCertificateError, match="the answer to 8 of 8 inputs") as failure:
            invoke(app, "attack", run, *QUICK, "--out", out)
    assert failure.value.exit_code == 7


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _attacked(run: Path, out: Path, *, stop_after: int | None = None) -> list[object]:
    settings = AttackSettings(radii=("0.2", "certified"), steps=3, draws=20, n=500, looks=2, restarts=2, seed=3)
    stop, seen = threading.Event(), 0

    def on_results(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == stop_after:
            stop.set()

    with prepare_attack(run, settings, out=out, moved=ONE_WORKER) as attack:
        run_attack(attack, stop=stop, on_results=on_results)
        return list(attack.record.results)


def test_an_attack_that_was_stopped_or_killed_goes_on_to_the_same_results(tmp_path: Path) -> None:
    run = _certified(tmp_path, "--batch", 8, n=1000)  # groups of 8 inputs
    whole = _attacked(run, tmp_path / "whole.jsonl")
    parts = tmp_path / "parts.jsonl"
    parts.touch()  # a process that was killed at once leaves an empty file
    with pytest.raises(InterruptedRunError):
        _attacked(run, parts, stop_after=1)
    assert 0 < len(_lines(parts)) < len(whole)
    # A process that was killed while writing leaves half a line.
    with parts.open("ab") as file:
        file.write(b'{"radius": "0.2", "ind')
    assert _attacked(run, parts) == whole
    assert parts.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    # Killed while it wrote the first line: begun anew.
    for torn in (b"{", b'{"format": "smoothcert att', (tmp_path / "whole.jsonl").read_bytes()[:200]):
        parts.write_bytes(torn)
        with pytest.raises(InterruptedRunError):
            _attacked(run, parts, stop_after=1)
        assert (tmp_path / "whole.jsonl").read_bytes().startswith(parts.read_bytes())


def test_another_attack_is_not_mixed_into_a_record(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    invoke(app, "attack", run, *QUICK, "--out", out)
    before = out.read_bytes()
    with pytest.raises(ManifestMismatchError, match=r"settings.steps: the file has 5, now 6"):
        invoke(app, "attack", run, *QUICK, "--steps", 6, "--out", out)
    for text in ("mine\n", "mine", '{"format": "mine'):
        (tmp_path / "notes.txt").write_text(text)
        with pytest.raises(CorruptRunError, match="not a record"):
            invoke(app, "attack", run, *QUICK, "--out", tmp_path / "notes.txt")
        assert (tmp_path / "notes.txt").read_text() == text
    assert out.read_bytes() == before
    # A seed that was not asked for is the one the attack was begun with.
    invoke(app, "attack", run, *QUICK[:-2], "--out", out)
    assert out.read_bytes() == before


def test_another_model_than_that_of_the_run_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ManifestMismatchError, match="another model"):
        invoke(app, "attack", run, "--model", "attack_models:votes", "--out", tmp_path / "a.jsonl")
    other = saved_inputs(tmp_path / "other.npz", 0.3, count=COUNT)
    with pytest.raises(ManifestMismatchError, match="another data"):
        invoke(app, "attack", run, "--data", other, "--out", tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--radius", "-1"), "neither a number of at least 0 nor the word certified"),
        (("--radius", "big"), "neither a number"),
        (("--radius", ","), "no radius"),
        (("--method", "fgsm"), "use auto, pgd, ddn, greedy"),
        (("--objective", "loss"), "use soft-vote, mean-loss"),
        (("--gradient", "none"), "use auto, exact, scores, votes"),
        (("--steps", 0), "must be at least 1"),
        (("--step-size", 0), "positive"),
        (("--alpha", 0.7), "outside"),
        (("--looks", 0), "must be at least 1"),
        (("--looks", 12), "is invalid: expected an integer from 1 to"),
        (("--bounds", "all"), "use data, any"),
        (("--n", 3), "can never predict"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    run: Path, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        invoke(app, "attack", run, *options, "--out", tmp_path / "a.jsonl")


def test_every_second_input_and_at_most_three_of_them(run: Path, tmp_path: Path) -> None:
    rows = _rows(run, *QUICK, "--skip", 2, "--max", 3, "--out", tmp_path / "a.jsonl")
    assert rows["certified"]["inputs"] == 3
    assert [line["index"] for line in _lines(tmp_path / "a.jsonl")] == [0, 2, 4]

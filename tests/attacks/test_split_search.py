"""The greedy attack on splitting: what it counts, where its points may lie, and what it finds on known models."""

from __future__ import annotations

import json
import math
import sqlite3
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_runner import invoke
from smoothcert import SmoothedClassifier
from smoothcert.attacks.attack_record import AttackResult, Fate
from smoothcert.attacks.attack_settings import AttackSettings
from smoothcert.attacks.split_search import SplitSearch, _Answers, _Evaluations, steps_within
from smoothcert.certificates import splitting_l1_radius
from smoothcert.cli.main import app
from smoothcert.errors import BrokenCertificateError, InputError
from smoothcert.noise import draw_offsets, level_of, to_grid
from smoothcert.noise.splitting import split_with_numpy

SIZE = 12


def bright(batch: np.ndarray) -> np.ndarray:
    """Class 1 where the mean is above one half; no answer where the first coordinate is very dark."""
    flat = batch.reshape(len(batch), -1)
    logits = np.stack([0.5 - flat.mean(axis=1), flat.mean(axis=1) - 0.5], axis=1)
    logits[flat[:, 0] < 0.05] = np.nan
    return logits


def make_search(*, levels: int = 256, evaluations: int = 64, batch: int = 100, seed: int = 3, **settings: Any) -> Any:
    smoothed = SmoothedClassifier(
        bright, noise="splitting", evaluations=evaluations, grid=levels, num_classes=2, input_shape=(SIZE,), seed=seed
    )
    asked = AttackSettings(**{"radii": ("certified",), "steps": 8, "draws": 24} | settings)
    return smoothed, SplitSearch(asked, smoothed.classifier, levels=levels, seed=seed, batch=batch, closed=True)


def some_inputs(count: int, *, levels: int = 256) -> np.ndarray:
    k = np.random.default_rng(8).integers(0, levels, (count, SIZE))
    return (k / (levels - 1)).astype(np.float32)


def attack(search: SplitSearch, x: np.ndarray, points: list[Any], limits: list[float], *, seed: int = 0) -> Any:
    predictions = np.array([0 if point.prediction is None else point.prediction for point in points])
    sigmas = np.array([point.sigma for point in points])
    return search.find_points(x, predictions, sigmas=sigmas, limits=np.array(limits), seed=seed)


@pytest.mark.parametrize("limit", [0.0, 0.003, 0.1, 0.5, 3.0, 100.0])
def test_points_lie_on_the_grid_in_the_range_and_within_the_limit(limit: float) -> None:
    smoothed, search = make_search()
    x = some_inputs(6)
    found = attack(search, x, smoothed.predict(x), [limit] * 6).points
    assert found.dtype == np.float32
    places = to_grid(found, 256)
    assert 0 <= places.min() <= places.max() <= 255
    exact = np.abs(places.astype(int) - to_grid(x, 256)).sum(axis=1)
    assert all(Fraction(int(steps), 255) <= Fraction(limit) for steps in exact)
    assert search.measure(found, x).tolist() == splitting_l1_radius(exact, levels=256).tolist()


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("evaluations", [2, 9, 441])
def test_moves_are_counted_as_if_all_evaluations_were_made(batch: int, evaluations: int) -> None:
    _, search = make_search(evaluations=evaluations, batch=batch, levels=64)
    place = to_grid(some_inputs(1, levels=64), 64)[0]
    counted = _Evaluations(search, (SIZE,), place, level_of(evaluations, levels=64), label=1)
    offsets = draw_offsets(3, evaluations=evaluations, size=SIZE)

    def all_by_hand(k: np.ndarray) -> tuple[list[int], list[float]]:
        shown = split_with_numpy(k, offsets, np.arange(evaluations), evaluations=evaluations, levels=64)
        votes, scores = search.classifier.votes_and_scores(shown)
        return votes.tolist(), np.nan_to_num(scores[:, 1]).tolist()

    before = counted.all_of(place)
    assert (before.votes.tolist(), before.scores.tolist()) == all_by_hand(place)
    moves = [(i, k) for i in range(SIZE) for k in (0, 5, 63, max(0, place[i] - 1)) if place[i] != k]
    for (coordinate, value), after in zip(moves, counted.try_moves(place, before, moves), strict=True):
        moved = place.copy()
        moved[coordinate] = value
        assert (after.votes.tolist(), after.scores.tolist()) == all_by_hand(moved)
        assert 1 <= (after.scores != before.scores).sum() <= abs(int(value) - int(place[coordinate]))


def test_the_lead_is_what_a_certificate_counts() -> None:
    _, search = make_search()
    origin = np.zeros(SIZE, dtype=np.int32)

    def stand(votes: list[int], label: int) -> tuple[int, int, float]:
        counted = _Evaluations(search, (SIZE,), origin, level_of(64, levels=256), label)
        return counted.stand(_Answers(np.array(votes), np.full(len(votes), 0.25)))

    assert stand([0] * 5 + [1] * 3, 0) == (2, 5, 2.0)
    assert stand([0] * 3 + [1] * 5, 1) == (1, 5, 2.0)
    assert stand([0] * 4 + [1] * 4, 0) == (0, 4, 2.0)
    assert stand([0] * 4 + [1] * 4, 1) == (-1, 4, 2.0)
    assert stand([0] * 3 + [2] * 4, 0) == (-1, 3, 1.75)


def test_within_certified_radii_nothing_changes_and_a_little_further_much_does() -> None:
    smoothed, search = make_search()
    x = some_inputs(20)
    x += np.linspace(0.47, 0.53, 20)[:, None] - x.mean(axis=1, keepdims=True)  # near the boundary
    x = (np.rint(x.clip(0.06, 1) * 255) / 255).astype(np.float32)
    points = list(smoothed.certify(x))
    rows = [row for row, point in enumerate(points) if point.radius > 0]
    assert len(rows) >= 15
    certified, x = [points[row] for row in rows], x[rows]

    def changed(factor: float) -> int:
        found = attack(search, x, certified, [factor * point.radius for point in certified])
        assert found.moved.all()
        fresh = smoothed.predict(found.points)
        return sum(one.prediction != point.prediction for one, point in zip(fresh, certified, strict=True))

    assert changed(1.0) == 0
    assert changed(2.0) >= len(rows) // 3


def test_a_seed_gives_the_same_points_and_restarts_are_no_weaker() -> None:
    smoothed, search = make_search(draws=2)
    x = some_inputs(5)
    points = list(smoothed.predict(x))
    first, again, other = (attack(search, x, points, [0.2] * 5, seed=seed).points for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes() != other.tobytes()
    _, several = make_search(draws=2, restarts=4)
    best = attack(several, x, points, [0.2] * 5, seed=1).points
    leads = []
    for found in (first, best):
        counts = [[*one.tallies[0].counts, one.tallies[0].invalid] for one in smoothed.predict(found)]
        leads.append(
            [row[p.prediction] - max(np.delete(row, p.prediction)) for row, p in zip(counts, points, strict=True)]
        )
    assert all(one >= other for one, other in zip(*leads, strict=True))
    assert sum(leads[0]) > sum(leads[1])


@given(st.integers(0, 10**6), st.integers(2, 2**16))
def test_a_certified_radius_allows_exactly_its_steps(steps: int, levels: int) -> None:
    radius = float(splitting_l1_radius(steps, levels=levels))
    assert steps_within(radius, levels=levels) == steps
    if steps > 0:
        assert steps_within(math.nextafter(radius, 0.0), levels=levels) == steps - 1


def test_a_model_that_never_changes_its_answer_is_not_moved() -> None:
    smoothed = SmoothedClassifier(
        lambda batch: np.zeros(len(batch), dtype=np.int64), noise="splitting", evaluations=9, num_classes=2,
        input_shape=(SIZE,),
    )  # fmt: skip
    search = SplitSearch(AttackSettings(radii=("1",)), smoothed.classifier, levels=256, seed=0, batch=50, closed=True)
    x = some_inputs(2)
    found = attack(search, x, list(smoothed.predict(x)), [1.0, 1.0])
    assert not found.moved.any()
    assert found.points.tobytes() == x.tobytes()


def test_a_change_at_the_radius_itself_breaks_a_certificate_of_a_closed_ball_only() -> None:
    radius = float(splitting_l1_radius(5, levels=256))
    at = {
        "prediction": 0, "fate": Fate.CHANGED, "answer": 1, "leads": False, "samples": 9, "sigma": 0.1,
        "counts": (4, 5), "invalid": 0, "p_value": None, "radius": "certified", "index": 0, "label": 0,
        "certified_radius": radius, "moved": True,
    }  # fmt: skip
    for closed in (False, True):
        result = AttackResult(**at, distance=radius, closed=closed)
        assert result.breaks_certificate is closed
        assert AttackResult.from_json(result.to_json()) == result
        assert not AttackResult(**at, distance=math.nextafter(radius, 1.0), closed=closed).breaks_certificate


# The command.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits are k/16: rounded to their own grid."""
    out = tmp_path_factory.mktemp("split") / "run"
    model = ("--model", "sample_models:logistic_digits")
    noise = ("--noise", "splitting", "--evaluations", 24, "--grid", 17)
    invoke(app, "certify", *model, "--data", "digits", *noise, "--max", 30, "--out", out)
    return out


def rows_of(*arguments: object) -> dict[str, dict[str, Any]]:
    answer = json.loads(invoke(app, "attack", *arguments, "--json").stdout)
    return {row["radius"]: row for row in answer["rows"]}


def lines_of(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_no_certificate_of_digits_is_broken(run: Path, tmp_path: Path) -> None:
    record = tmp_path / "a.jsonl"
    rows = rows_of(run, "--radius", "certified,1", "--seed", 1, "--out", record)
    inside, further = rows["certified"], rows["1"]
    assert inside["attacked"] >= 20
    assert (inside["changed"], inside["abstained"], inside["unsettled"], inside["broken"]) == (0, 0, 0, 0)
    assert inside["not_moved"] < inside["attacked"] // 2
    assert further["changed"] > 5
    assert further["broken"] == 0
    header, *results = lines_of(record)
    assert [header["settings"][name] for name in ("method", "gradient", "n", "looks", "alpha")] == [
        "greedy", "scores", 24, 1, 0.0,
    ]  # fmt: skip
    assert any(result["distance"] == result["certified_radius"] for result in results)
    for result in results:
        assert (result["samples"], sum(result["counts"]) + result["invalid"]) == (24, 24)
        assert (result["p_value"], result["closed"]) == (None, True)
        if result["radius"] == "certified":
            assert result["distance"] <= result["certified_radius"]
    assert rows_of(run, "--radius", "certified,1", "--seed", 1, "--out", record) == rows  # resumed


def test_a_radius_that_was_doubled_is_caught(tmp_path: Path) -> None:
    """Negative control."""
    run = tmp_path / "run"
    model = ("--model", "sample_models:logistic_digits")
    noise = ("--noise", "splitting", "--evaluations", 24, "--grid", 17)
    invoke(app, "certify", *model, "--data", "digits", *noise, "--max", 15, "--out", run)
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute("UPDATE verdicts SET radius = radius * 2.0")
    connection.close()
    with pytest.raises(BrokenCertificateError, match="No chance is involved") as failure:
        invoke(app, "attack", run, "--seed", 1)
    assert "is certified up to" in str(failure.value)
    broken = [line for line in lines_of(run / "attack.jsonl")[1:] if line["point"] is not None]
    assert len(broken) >= 3


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("method", "pgd"), ("method", "ddn"), ("bounds", "any"), ("n", 5), ("alpha", 0.01), ("looks", 1),
        ("gradient", "votes"), ("objective", "mean-loss"), ("step-size", 0.5),
    ],
)  # fmt: skip
def test_what_does_not_apply_is_refused(run: Path, tmp_path: Path, option: str, value: object) -> None:
    with pytest.raises(InputError, match=f"leave --{option} out|--method greedy|--bounds data"):
        invoke(app, "attack", run, f"--{option}", value, "--out", tmp_path / "a.jsonl")


def test_a_greedy_attack_on_added_noise_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--data", "digits", "--sigma", 0.25, "--n", 100, "--max", 3, "--out", out)
    invoke(app, "certify", "--model", "sample_models:digits_by_brightness", *options)
    with pytest.raises(InputError, match="use --method pgd"):
        invoke(app, "attack", out, "--method", "greedy")

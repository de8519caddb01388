"""Levels of several inputs against the envelope that is claimed: what is possible passes, one step more does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")

from smoothcert_verify import sigma_levels
from smoothcert_verify.sigma_levels import count_classifiers, level_problems, measured_problems, needs_distances

RATE = 0.1
ROOM = 1 + 3 * 2.0**-22
"""More than the slack that every envelope has."""


def documents(
    sigmas: list[float], envelope: dict[str, Any], *, dimension: int = 3, **data: Any
) -> list[dict[str, Any]]:
    run = {
        "parameters": {
            "sigma_rule": {"kind": "callable", "envelope": envelope},
            "envelope": envelope,
            "noise": "gaussian float32",
        },
        "model": {"digest": "m", "num_classes": 2},
        "data": {"digest": "d", "input_shape": [dimension], **data},
    }
    return [
        {"run": run, "input": {"index": index}, "smoothing": {"sigma": sigma}} for index, sigma in enumerate(sigmas)
    ]


def semi_elastic(sigmas: list[float], **data: Any) -> list[dict[str, Any]]:
    return documents(sigmas, {"kind": "semi-elastic", "rate": RATE}, **data)


class TestWithoutData:
    @pytest.mark.parametrize("data", [{"levels": 256}, {"levels": None, "input_range": [0.0, 1.0]}])
    def test_across_the_whole_range(self, data: dict[str, Any]) -> None:
        most = 0.25 * math.exp(RATE * math.sqrt(3))
        assert level_problems(semi_elastic([0.25, most], **data)) == []
        (found,) = level_problems(semi_elastic([0.25, most * ROOM], **data))
        assert "at most 1.73205 apart: impossible under the envelope" in found

    def test_without_a_range_any_level_is_possible(self) -> None:
        assert level_problems(semi_elastic([0.25, 100.0], levels=None)) == []
        assert level_problems(semi_elastic([0.25, 100.0], levels=None, input_range=None)) == []

    def test_constant_is_constant(self) -> None:
        constant = {"kind": "constant"}
        assert level_problems(documents([0.25, 0.25], constant)) == []
        assert level_problems(documents([0.25, math.nextafter(0.25, 1)], constant)) != []
        assert level_problems(documents([0.25, 0.25 * (1 + 1e-5)], {"kind": "semi-elastic", "rate": 0.0})) != []

    def test_below_the_floor(self) -> None:
        envelope = {"kind": "lipschitz", "constant": 0.1, "floor": 0.2}
        assert level_problems(documents([0.2, 0.25], envelope, levels=256)) == []
        (found,) = level_problems(documents([0.19, 0.25], envelope, levels=256))
        assert "input 0 has sigma 0.19, below the floor" in found

    def test_lipschitz(self) -> None:
        envelope = {"kind": "lipschitz", "constant": 0.1, "floor": 0.2}
        most = 0.25 + 0.1 * math.sqrt(3)
        assert level_problems(documents([0.25, most], envelope, levels=256)) == []
        assert level_problems(documents([0.25, most * ROOM], envelope, levels=256)) != []

    def test_two_constants_are_two_classifiers(self) -> None:
        one, other = semi_elastic([0.25], levels=256), documents([0.9], {"kind": "constant"})
        assert level_problems([*one, *other]) == []
        assert count_classifiers([*one, *other]) == 2

    def test_rubbish_is_left_to_others(self) -> None:
        rubbish: list[dict[str, Any]] = [{}, {"run": None}, {"run": {"parameters": []}}]
        assert level_problems([*rubbish, *semi_elastic([0.25], levels=256)]) == []
        assert not needs_distances(rubbish)


class TestWithData:
    def measured(self, sigmas: np.ndarray, points: np.ndarray) -> tuple[list[str], int]:
        given = semi_elastic(sigmas.tolist(), dimension=points.shape[1], levels=None)
        assert needs_distances(given)
        return measured_problems(given, points.__getitem__)

    def tight(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Points of a line, and the steepest levels that the envelope allows along it."""
        points = np.random.default_rng(1).random((count, 5)).astype(np.float32)
        points[:, 1:] = 0.5
        return 0.25 * np.exp(RATE * points[:, 0].astype(np.float64)), points

    def test_all_pairs(self) -> None:
        sigmas, points = self.tight(60)
        assert self.measured(sigmas, points) == ([], 60 * 59 // 2)
        sigmas[17] *= ROOM**2
        problems, _ = self.measured(sigmas, points)
        assert "17" in problems[0]
        assert "impossible under the envelope" in problems[0]

    def test_equal_inputs_have_equal_levels(self) -> None:
        points = np.full((2, 4), 0.3, dtype=np.float32)
        assert self.measured(np.array([0.25, 0.25]), points)[0] == []
        assert self.measured(np.array([0.25, 0.2501]), points)[0] != []

    def test_random_pairs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Far more inputs than are compared each with each: one wild level and a share of small lies are found."""
        monkeypatch.setattr(sigma_levels, "ALL_PAIRS", 50)
        monkeypatch.setattr(sigma_levels, "RANDOM_PAIRS", 4000)
        sigmas, points = self.tight(400)
        problems, pairs = self.measured(sigmas, points)
        assert problems == []
        assert 4000 <= pairs < 8000
        wild = sigmas.copy()
        wild[123] = 0.5
        assert self.measured(wild, points)[0] != []
        some = sigmas.copy()
        some[::4] *= 1.01
        assert self.measured(some, points)[0] != []

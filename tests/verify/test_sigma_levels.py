"""Levels of several inputs against the envelope that is claimed: what is possible passes, one step more does not."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")

from certified_documents import manifest
from smoothcert_verify import sigma_levels
from smoothcert_verify.document_checks import CheckedInput
from smoothcert_verify.findings import Finding
from smoothcert_verify.reports import Report
from smoothcert_verify.run_facts import read_run
from smoothcert_verify.sigma_levels import check_levels, count_classifiers, measure_levels, needs_distances

RATE = 0.1
ROOM = 1 + 3 * 2.0**-22
"""More than the slack that every envelope has."""


def inputs_of(sigmas: list[float], envelope: dict[str, Any], *, dimension: int = 3, **data: Any) -> list[CheckedInput]:
    """Inputs of a run with these levels."""
    document = json.loads(json.dumps(manifest(certificate="envelope", sigma=None, shape=(dimension,)).to_json()))
    rule = {"kind": "callable", "name": "s", "envelope": envelope}
    run = read_run(document | {"sigma": {"rule": rule, "envelope": envelope}, "data": document["data"] | data})
    return [CheckedInput(run, index, None, sigma, None, (), dict) for index, sigma in enumerate(sigmas)]


def semi_elastic(sigmas: list[float], **data: Any) -> list[CheckedInput]:
    return inputs_of(sigmas, {"kind": "semi-elastic", "rate": RATE}, **data)


class TestWithoutData:
    @pytest.mark.parametrize("data", [{"levels": 256}, {"levels": None, "input_range": [0.0, 1.0]}])
    def test_across_the_whole_range(self, data: dict[str, Any]) -> None:
        most = 0.25 * math.exp(RATE * math.sqrt(3))
        assert check_levels(semi_elastic([0.25, most], **data)) == []
        (found,) = check_levels(semi_elastic([0.25, most * ROOM], **data))
        assert found.code == "levels-excluded"
        assert found.values["distance"] == pytest.approx(math.sqrt(3))

    def test_without_a_range_any_level_is_possible(self) -> None:
        assert check_levels(semi_elastic([0.25, 100.0], levels=None)) == []
        assert check_levels(semi_elastic([0.25, 100.0], levels=None, input_range=None)) == []

    def test_constant_is_constant(self) -> None:
        constant = {"kind": "constant"}
        assert check_levels(inputs_of([0.25, 0.25], constant)) == []
        assert check_levels(inputs_of([0.25, math.nextafter(0.25, 1)], constant)) != []
        assert check_levels(inputs_of([0.25, 0.25 * (1 + 1e-5)], {"kind": "semi-elastic", "rate": 0.0})) != []

    def test_below_the_floor(self) -> None:
        envelope = {"kind": "lipschitz", "constant": 0.1, "floor": 0.2}
        assert check_levels(inputs_of([0.2, 0.25], envelope, levels=256)) == []
        (found,) = check_levels(inputs_of([0.19, 0.25], envelope, levels=256))
        assert (found.code, found.values["index"], found.values["sigma"]) == ("below-the-floor", 0, 0.19)

    def test_lipschitz(self) -> None:
        envelope = {"kind": "lipschitz", "constant": 0.1, "floor": 0.2}
        most = 0.25 + 0.1 * math.sqrt(3)
        assert check_levels(inputs_of([0.25, most], envelope, levels=256)) == []
        assert check_levels(inputs_of([0.25, most * ROOM], envelope, levels=256)) != []

    def test_two_constants_are_two_classifiers(self) -> None:
        one, other = semi_elastic([0.25], levels=256), inputs_of([0.9], {"kind": "constant"})
        assert check_levels([*one, *other]) == []
        assert count_classifiers([*one, *other]) == 2

    def test_documents_that_cannot_be_read_have_no_levels(self) -> None:
        report = Report("here")
        rubbish: list[dict[str, Any]] = [{}, {"run": None}, {"run": {"spec": []}}]
        for document in rubbish:
            report.add_document(document, None, "here", dict)
        assert (report.inputs, report.entries) == (3, [])
        assert len(report.discrepancies) >= 3


class TestWithData:
    def measured(self, sigmas: np.ndarray, points: np.ndarray) -> tuple[list[Finding], int]:
        given = semi_elastic(sigmas.tolist(), dimension=points.shape[1], levels=None)
        assert needs_distances(given)
        return measure_levels(given, points.__getitem__)

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
        assert problems[0].code == "levels-excluded"
        assert 17 in (problems[0].values["first"], problems[0].values["second"])

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

"""The votes of a seed never change without SAMPLING_VERSION: golden votes of every kind of tally, noise and counter."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from golden_votes import CASES, Bits, check_version, check_votes, read_golden
from smoothcert.noise import AdditiveLaw, law_of
from smoothcert.records import Noise
from smoothcert.sampling import SAMPLING_VERSION

ON_DEVICE = [name for name, case in CASES.items() if case.on_device]


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return read_golden()


def test_the_golden_votes_were_made_for_this_sampling_version(stored: dict[str, Any]) -> None:
    check_version(stored, SAMPLING_VERSION)


@pytest.mark.parametrize("name", CASES)
def test_votes_in_host_memory_are_the_golden_ones(name: str, stored: dict[str, Any]) -> None:
    check_votes(name, stored["cases"].get(name), CASES[name].sample())


@pytest.mark.parametrize("name", ON_DEVICE)
def test_votes_on_a_device_are_the_golden_ones(name: str, stored: dict[str, Any]) -> None:
    check_votes(name, stored["cases"].get(name), CASES[name].sample(on_device=True))


def test_no_golden_votes_are_left_over(stored: dict[str, Any]) -> None:
    assert set(stored["cases"]) == set(CASES)


def test_every_stage_kind_and_place_has_golden_votes(stored: dict[str, Any]) -> None:
    tallies = [tally for case in stored["cases"].values() for tally in case["tallies"]]
    assert {tally["kind"] for tally in tallies} == {"votes", "pairs", "gradients", "scores"}
    assert {tally["stage"] for tally in tallies} == {"SELECTION", "ESTIMATION", "PREDICTION"}
    assert {case["grid"] for case in stored["cases"].values()} == {None, 24, 256, 65536}
    assert any(tally.get("invalid") for tally in tallies)


class _Remembering(Bits):
    """Remembers the last noisy copy that was classified."""

    concurrency = 1

    def classify(self, batch: np.ndarray) -> np.ndarray:
        self.last = batch[-1].copy()
        return super().classify(batch)


class _OneBit(Bits):
    """Sees one noisy copy with the lowest bit of one coordinate flipped, and all others as they are."""

    def __init__(self, copy: np.ndarray) -> None:
        self._copy = copy

    def classify(self, batch: np.ndarray) -> np.ndarray:
        flipped = batch.copy()
        words = flipped.reshape(len(batch), -1).view(np.uint32)
        words[(batch == self._copy).reshape(len(batch), -1).all(axis=1), 5] ^= 1
        return super().classify(flipped)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("kind", ["votes", "pairs", "gradients", "scores"])
@pytest.mark.parametrize("place", ["float", "256 levels"])
def test_one_changed_bit_of_noise_is_noticed(place: str, kind: str, on_device: bool, stored: dict[str, Any]) -> None:
    """Negative control."""
    name = f"gaussian, {place}, {kind}"
    first = _Remembering()
    CASES[name].sample(on_device=on_device, model=first)
    found = CASES[name].sample(on_device=on_device, model=_OneBit(first.last))
    with pytest.raises(AssertionError, match=r"raise SAMPLING_VERSION .* tests/golden/regenerate.py. If not, undo"):
        check_votes(name, stored["cases"][name], found)


def test_one_changed_vote_is_noticed(stored: dict[str, Any]) -> None:
    for name, expected in stored["cases"].items():
        found = copy.deepcopy(expected)
        counts = found["tallies"][-1].get("counts") or found["tallies"][-1]["both"]
        counts[0] += 1
        with pytest.raises(AssertionError, match="undo the change"):
            check_votes(name, expected, found)


def test_a_raised_number_without_new_votes_is_noticed(stored: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"regenerate the file: python tests/golden/regenerate\.py"):
        check_version(stored, SAMPLING_VERSION + 1)


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("place", ["float", "256 levels"])
def test_every_noise_is_among_them(noise: Noise, place: str) -> None:
    if place == "float" and not isinstance(law_of(noise), AdditiveLaw):
        return  # it is for inputs on a grid only
    wanted = {f"{noise}, {place}, {kind}" for kind in law_of(noise).tallies}
    assert wanted - CASES.keys() == set()

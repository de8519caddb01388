"""Settings in words: what is format_settings is read back, and what cannot be read gets a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.settings_text import collect_settings, format_settings, parse_settings, whole_number


@dataclass(frozen=True, slots=True)
class Oven:
    """A number, a whole number, a word, and a number that may be left out."""

    heat: float = 180.0
    trays: int = 2
    mode: str = "fan"
    timer: float | None = None

    name: ClassVar[str] = "oven"


@dataclass(frozen=True, slots=True)
class Fire:
    """Nothing to set."""

    name: ClassVar[str] = "fire"


KINDS = {"oven": Oven, "fire": Fire, "stove": Oven}


def parse(text):
    return parse_settings(text, KINDS, what="way to cook")


numbers = st.floats(allow_nan=False, allow_infinity=False)
words = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1)


@given(st.builds(Oven, heat=numbers, trays=st.integers(), mode=words, timer=st.none() | numbers))
def test_parsing_inverts_formatting(oven):
    assert parse(format_settings(oven)) == oven


@given(st.permutations(["heat=200", "trays=3", "mode=grill", "timer=5"]), st.sampled_from(["", " ", "  "]))
def test_order_and_spaces_do_not_matter(items, space):
    text = f"{space}oven{space}:" + f"{space},{space}".join(items) + space
    assert parse(text) == Oven(heat=200.0, trays=3, mode="grill", timer=5.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oven", Oven()),
        ("oven:", Oven()),
        ("oven:,heat=20,", Oven(heat=20.0)),
        ("oven:heat = 1e2", Oven(heat=100.0)),
        ("stove:trays=0", Oven(trays=0)),
        ("fire", Fire()),
    ],
)
def test_parsing(text, expected):
    found = parse(text)
    assert found == expected
    assert type(found) is type(expected)


def test_formatting():
    assert format_settings(Fire()) == "fire"
    assert format_settings(Oven(heat=200, trays=1)) == "oven:heat=200.0,trays=1,mode=fan"
    assert format_settings(Oven(timer=0.1)) == "oven:heat=180.0,trays=2,mode=fan,timer=0.1"


def test_a_number_typed_without_a_point_is_the_same_number():
    facts = collect_settings(Oven(heat=200, timer=3))
    assert facts == {"heat": 200.0, "trays": 2, "mode": "fan", "timer": 3.0}
    assert [type(value) for value in facts.values()] == [float, int, str, float]
    assert collect_settings(Oven()) == {"heat": 180.0, "trays": 2, "mode": "fan"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grill", "there is no way to cook 'grill'; choose oven, fire, stove"),
        ("", "there is no way to cook ''; choose oven, fire, stove"),
        ("oven:warmth=3", "'warmth=3' in the way to cook 'oven:warmth=3': 'warmth' is unknown; oven takes heat, trays"),
        ("oven:heat=1,heat=2", "'heat' is given twice; oven takes heat, trays, mode, timer"),
        ("fire:heat=1", "'heat' is unknown; fire takes no settings"),
        ("stove:name=x", "'name' is unknown; stove takes heat"),
        ("oven:heat=hot", "'heat=hot' is invalid: expected a number after the equals sign"),
        ("oven:heat", "'heat' is invalid: expected a number after the equals sign"),
        ("oven:trays=2.5", "'trays=2.5' is invalid: expected a whole number after the equals sign"),
        ("oven:timer=", "'timer=' is invalid: expected a number after the equals sign"),
        ("oven:=3", "'' is unknown"),
    ],
)
def test_invalid_text_is_explained(text, message):
    with pytest.raises(InputError) as refusal:
        parse(text)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "value", [100_000, 1e5, "1e5", " 100000 ", "100_000", "1.0e5", np.int64(100_000), np.float32(1e5), np.float64(1e5)]
)
def test_a_whole_number_is_read_however_it_is_written(value: object) -> None:
    found = whole_number(value, name="n")
    assert (found, type(found)) == (100_000, int)


def test_a_large_number_in_text_is_not_rounded() -> None:
    assert whole_number(str(2**63 - 1), name="n") == 2**63 - 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (1.5, "has a fraction"),
        ("1e-3", "has a fraction"),
        (True, "expected a whole number"),
        (None, "expected a whole number"),
        ("many", "expected a whole number"),
        ("", "expected a whole number"),
        (float("nan"), "expected a whole number"),
        (float("inf"), "expected a whole number"),
        ("1e30", "too large"),
        ("1e999999999", "too large"),
        pytest.param(10**6000, "too large", id="huge"),
    ],
)
def test_what_is_not_a_whole_number_is_refused_by_name(value: object, why: str) -> None:
    with pytest.raises(InputError, match=f"--n is .*{why}"):
        whole_number(value, name="--n")

"""The audit finds tampering, and reports no problems in an intact memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from forging import rechained
from smoothcert.errors import DamagedMemoryError, RegionMemoryError
from smoothcert.memory import MemoryKey, RegionMemory, audit, open_existing, open_memory
from smoothcert.records import Norm, Settlement

DIMENSION = 3


def key(norm: Norm) -> MemoryKey:
    return MemoryKey("m", "s", "gaussian", norm, "p", DIMENSION)


@pytest.fixture(params=list(Norm))
def filled(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory with claims of all kinds; audited in several blocks."""
    monkeypatch.setattr(audit, "_BLOCK", 32)
    generator = np.random.default_rng(5)
    path = tmp_path / "memory.sqlite"
    with open_memory(path, key(request.param)) as memory:
        for x in generator.normal(size=(150, DIMENSION)).astype(np.float32):
            memory.claim(x, int(generator.integers(3)), float(generator.exponential(0.4)))
        settlements = {claim.settlement for claim in memory.claims()}
    assert settlements == {Settlement.WHOLE, Settlement.CUT, Settlement.OVERRULED}
    return path


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1


def chosen(memory: RegionMemory, settlement: Settlement) -> int:
    """The position of a claim with this settlement in the middle of the log, with a radius above 0.01."""
    fitting = [claim for claim in memory.claims() if claim.settlement is settlement and claim.radius > 0.01]
    return fitting[len(fitting) // 2].position


def grow_radius(path: Path, position: int) -> str:
    change(path, "UPDATE claims SET radius = radius * 1.000001 WHERE position = ?", position)
    return f"{position}"


def swap_label(path: Path, position: int) -> str:
    change(path, "UPDATE claims SET label = label + 1, asked_label = asked_label + 1 WHERE position = ?", position)
    return f"{position}"


def move_centre(path: Path, position: int) -> str:
    """Move it to the centre of a ball of another class."""
    with closing(sqlite3.connect(path)) as connection:
        label = connection.execute("SELECT label FROM claims WHERE position = ?", (position,)).fetchone()[0]
        query = "SELECT position, centre FROM claims WHERE label <> ? AND radius > 0 LIMIT 1"
        victim, centre = connection.execute(query, (label,)).fetchone()
    change(path, "UPDATE claims SET centre = ? WHERE position = ?", centre, position)
    first, second = sorted((victim, position))
    return f"claims {first} and {second} touch"


def drop(path: Path, position: int) -> str:
    change(path, "DELETE FROM claims WHERE position = ?", position)
    return f"after claim {position - 1} comes claim {position + 1}"


def make_infinite(path: Path, position: int) -> str:
    change(path, "UPDATE claims SET radius = 9e999, asked_radius = 9e999 WHERE position = ?", position)
    return f"claim {position} of the memory is damaged"


def spoil_centre(path: Path, position: int) -> str:
    change(
        path, "UPDATE claims SET centre = ? WHERE position = ?", np.full(DIMENSION, np.nan, "<f4").tobytes(), position
    )
    return f"claim {position} of the memory is damaged: its centre is not finite"


def shorten_centre(path: Path, position: int) -> str:
    change(path, "UPDATE claims SET centre = x'00' WHERE position = ?", position)
    return f"claim {position} of the memory is damaged: its centre has 1 bytes"


def misname(path: Path, position: int) -> str:
    change(path, "UPDATE claims SET settlement = 'GIVEN' WHERE position = ?", position)
    return f"claim {position} of the memory is damaged"


def exceed_what_was_asked(path: Path, position: int) -> str:
    change(path, "UPDATE claims SET asked_radius = radius / 2 WHERE position = ?", position)
    return f"claim {position} was granted radius"


def test_an_untouched_memory_is_consistent(filled: Path) -> None:
    seen: list[tuple[int, int]] = []
    with open_existing(filled) as memory:
        found = memory.audit(progress=lambda done, in_all: seen.append((done, in_all)))
    assert found.consistent
    assert found.problems == ()
    labels = [claim.label for claim in open_existing(filled).claims()]
    assert found.claims == 150
    assert found.pairs == sum(a != b for i, a in enumerate(labels) for b in labels[:i])
    assert seen[0][0] == 0
    assert seen[-1] == (15, 15)


Tampering = Callable[[Path, int], str]


@pytest.mark.parametrize(
    "tamper",
    [move_centre, drop, make_infinite, spoil_centre, shorten_centre, misname, exceed_what_was_asked],
)
@pytest.mark.parametrize("settlement", [Settlement.WHOLE, Settlement.CUT])
def test_tampering_is_found(filled: Path, tamper: Tampering, settlement: Settlement) -> None:
    with open_existing(filled) as memory:
        sentence = tamper(filled, chosen(memory, settlement))
        found = memory.audit()
    assert not found.consistent
    assert any(sentence in problem for problem in found.problems), found.problems


def test_a_cut_ball_that_was_made_a_little_larger_is_found(filled: Path) -> None:
    """A cut ball nearly touches another one: a millionth more is an overlap."""
    with open_existing(filled) as memory:
        position = chosen(memory, Settlement.CUT)
        grow_radius(filled, position)
        assert any("touch" in problem and str(position) in problem for problem in memory.audit().problems)


def test_a_cut_ball_that_got_another_class_is_found(filled: Path) -> None:
    with open_existing(filled) as memory:
        # A claim that another one of its class overlaps.
        fitting = [claim for claim in memory.claims() if claim.settlement is Settlement.OVERRULED]
        position = fitting[0].position
        swap_label(filled, position)
        problems = memory.audit().problems
    assert any("touch" in problem for problem in problems)
    assert any(f"claim {position} is recorded as OVERRULED, but its region lies in no earlier" in p for p in problems)


def test_an_overruled_ball_that_reaches_out_is_found(filled: Path) -> None:
    with open_existing(filled) as memory:
        fitting = [
            claim
            for claim in memory.claims()
            if claim.settlement is Settlement.OVERRULED and claim.radius < claim.asked_radius
        ]
        position = fitting[0].position
        change(filled, "UPDATE claims SET radius = radius + 1e-9 WHERE position = ?", position)
        assert any(f"claim {position} is recorded as OVERRULED" in problem for problem in memory.audit().problems)


def test_as_many_problems_as_a_person_reads(filled: Path) -> None:
    with open_existing(filled) as memory:
        with closing(sqlite3.connect(filled)) as connection, connection:
            connection.execute("UPDATE claims SET radius = 100.0")
        found = memory.audit()
    assert len(found.problems) == audit.MOST_PROBLEMS
    assert found.more_problems > 1000


def test_a_memory_with_a_missing_claim_is_not_claimed_in(filled: Path) -> None:
    with open_existing(filled) as memory:
        drop(filled, 150)
        with pytest.raises(RegionMemoryError, match="claim 150, which this process has read"):
            memory.claim(np.zeros(DIMENSION), 0, 1.0)
    with pytest.raises(DamagedMemoryError, match="claim 150 is missing; 150 claims were made"):
        open_existing(filled)


def test_a_memory_that_contradicts_itself_is_not_claimed_in(tmp_path: Path) -> None:
    with open_memory(tmp_path / "m.sqlite", key(Norm.L2)) as memory:
        memory.claim(np.float32([0, 0, 0]), 0, 1.0)
        memory.claim(np.float32([3, 0, 0]), 1, 1.0)
        change(tmp_path / "m.sqlite", "UPDATE claims SET radius = 2.5, asked_radius = 2.5 WHERE position = 2")
    rechained(tmp_path / "m.sqlite")
    with open_existing(tmp_path / "m.sqlite") as memory:
        with pytest.raises(RegionMemoryError, match="contradicts itself"):
            memory.claim(np.float32([0.875, 0, 0]), 1, 1.0)
        assert len(memory) == 2


def test_audit_in_many_dimensions_and_with_huge_radii(tmp_path: Path) -> None:
    """Sketches shorter than the centres, and balls without a sketch: all close pairs are still measured."""
    generator = np.random.default_rng(1)
    path = tmp_path / "m.sqlite"
    with open_memory(path, MemoryKey("m", "s", "gaussian", Norm.L2, "p", 400)) as memory:
        points = generator.normal(size=(60, 400)).astype(np.float32)
        points[0] = 1e38
        for place, x in enumerate(points):
            memory.claim(x, place % 2, 1e30 if place == 0 else 5.0)
        assert memory.audit().problems == ()
        assert memory.audit().measured < 1000
        change(path, "UPDATE claims SET radius = 30.0, asked_radius = 30.0 WHERE position = 31")
        assert any("31" in problem for problem in memory.audit().problems)

"""A run and the memory it claims from: whether what was promised is still there, before anything is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smoothcert.errors import RegionMemoryError, RunError
from smoothcert.memory import MemoryKey, RegionMemory, count_claims, is_server, lasting_name, list_digests
from smoothcert.records import Promise
from smoothcert.runs.store import RunStore


def check_memory_is_there(place: str, out: Path) -> None:
    """A run that is gone on with must not begin a new memory: its promises are in the old one."""
    if not is_server(place) and not Path(place).exists():
        raise RunError(
            f"the memory {place} does not exist, but {out} has promised regions in one; give its place by --memory"
        )


def check_there_are_promises(key: MemoryKey, place: str) -> None:
    """Answers are looked up in a memory that is there: a mistyped place, or other settings, must not begin another."""
    held = count_claims(place)
    if not held.get(key.digest):
        others = ", ".join(digest[:12] for digest in held if digest != key.digest) or "none"
        raise RegionMemoryError(
            f"{lasting_name(place)} holds no regions of this classifier, whose key is {key.digest[:12]} (others there: "
            f"{others}). The key covers model, back end, sigma rule with all its settings, noise and inputs: give what "
            "the regions were certified with, or certify something first"
        )


def check_key_is_known(key: MemoryKey, place: str, out: Path) -> None:
    """Before a memory is opened, which would make one for this key: that of a run is there already."""
    with RunStore.open(out) as store:
        promises = _promises(store)
    if promises and key.digest not in list_digests(place):
        raise _lost(promises, promises, place=lasting_name(place), run=out)


def check_promises_are_kept(memory: RegionMemory, store: RunStore) -> None:
    """What the run has promised must be in the memory it goes on with."""
    promises = _promises(store)
    missing = memory.missing(promises)
    if missing:
        raise _lost(missing, promises, place=memory.location, run=store.path)


def _promises(store: RunStore) -> list[Promise]:
    return [point.promise for point in store.points(with_tallies=False) if point.promise is not None]


def _lost(missing: Sequence[Promise], promises: Sequence[Promise], *, place: str, run: Path) -> RunError:
    return RunError(
        f"{place} does not hold {len(missing)} of the {len(promises)} regions that {run} has promised, the first at "
        f"position {missing[0].position}: it is not the memory the run was begun with, or it was put back to an "
        "earlier state. Give the right one by --memory; if it is lost, these certificates are void, and the inputs "
        "must be certified again in a new run"
    )


def memory_notice(memory: RegionMemory) -> str:
    """What a person should see of the memory in use."""
    return f"memory {memory.location}: {len(memory)} regions promised so far under the key {memory.key.digest[:12]}"

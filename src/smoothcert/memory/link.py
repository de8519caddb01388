"""The memory that a smoothed classifier uses, opened when its key is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smoothcert.errors import InputError
from smoothcert.memory import MemoryKey, RegionMemory, open_memory, resolve_location
from smoothcert.memory.opening import check_location


class MemoryLink:
    """memory: an open memory, the path of an SQLite file or the URL of a PostgreSQL database."""

    def __init__(self, memory: RegionMemory | str | Path) -> None:
        if not isinstance(memory, RegionMemory):
            check_location(memory)
        self._given = memory
        self.opened: RegionMemory | None = None

    def __str__(self) -> str:
        """Without a password that an address may contain."""
        return self._given.location if isinstance(self._given, RegionMemory) else resolve_location(self._given)

    def open(self, key: MemoryKey, *, make_probe: Callable[[], str], check_probe: Callable[[str, str], None]) -> None:
        """Open the memory under this key; refuse another classifier, and a model that answers otherwise.

        make_probe: answers of the model to fixed inputs, as text. check_probe(stored, name): raises if they differ.
        The memory is in use only after it has passed: a refused one is refused again at the next call.
        """
        known = self._given if self.opened is None else self.opened
        if self.opened is not None and self.opened.key == key:
            return
        if isinstance(known, RegionMemory) and known.key != key:
            raise InputError(
                f"the memory {known.location} keeps the regions of another classifier: its model, sigma, noise or "
                "inputs differ from those here. Open it with the key of this one: `open_memory`, or give its place"
            )
        memory = known if isinstance(known, RegionMemory) else open_memory(known, key)
        try:
            stored = memory.probe()
            if stored is None:
                memory.keep_probe(make_probe())
            else:
                check_probe(stored, f"the memory {memory.location}")
        except BaseException:
            if memory is not self._given:
                memory.close()
            raise
        self.opened = memory

    def close(self) -> None:
        """Close the memory if it was opened here."""
        if self.opened is not None and self.opened is not self._given:
            self.opened.close()

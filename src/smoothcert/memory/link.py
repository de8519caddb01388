"""The memory that a smoothed classifier uses, opened when its key is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smoothcert.errors import InputError
from smoothcert.memory import MemoryKey, RegionMemory, open_memory, resolve_location


class MemoryLink:
    """memory: an open memory, the path of an SQLite file or the URL of a PostgreSQL database."""

    def __init__(self, memory: RegionMemory | str | Path) -> None:
        self._given = memory
        self.opened: RegionMemory | None = None

    def __str__(self) -> str:
        """Without a password that an address may contain."""
        return self._given.location if isinstance(self._given, RegionMemory) else resolve_location(self._given)

    def open(self, key: MemoryKey, *, make_probe: Callable[[], str], check_probe: Callable[[str, str], None]) -> None:
        """Open the memory once, under this key; refuse a model that answers otherwise than the one it was made with.

        make_probe: answers of the model to fixed inputs, as text. check_probe(stored, name): raises if they differ.
        """
        if self.opened is not None:
            return
        if not isinstance(self._given, RegionMemory):
            memory = open_memory(self._given, key)
        elif self._given.key != key:
            raise InputError(
                f"the memory {self._given.location} keeps the regions of another classifier: its model, sigma, noise "
                "or inputs differ from those here. Open it with the key of this one: `open_memory`, or give its place"
            )
        else:
            memory = self._given
        self.opened = memory
        stored = memory.probe()
        if stored is None:
            memory.keep_probe(make_probe())
        else:
            check_probe(stored, f"the memory {memory.location}")

    def close(self) -> None:
        """Close the memory if it was opened here."""
        if self.opened is not None and self.opened is not self._given:
            self.opened.close()

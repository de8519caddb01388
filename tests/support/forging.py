"""Making digests, seals and chains anew over what was changed, as somebody does who may write every file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from smoothcert_verify.memory_log import compute_entry
from smoothcert_verify.memory_places import StoredClaim

CLAIM_COLUMNS = (
    "position", "label", "radius", "asked_label", "asked_radius", "settlement", "claimed_at", "entry", "centre",
)  # fmt: skip


def rechained(memory: Path) -> None:
    """New entries over the claims that are in an SQLite memory now."""
    with closing(sqlite3.connect(memory)) as connection:
        (entry,) = connection.execute("SELECT identity FROM memories").fetchone()
        for row in connection.execute(f"SELECT {', '.join(CLAIM_COLUMNS)} FROM claims ORDER BY position").fetchall():
            claim = StoredClaim(*row)
            entry = compute_entry(entry, claim)
            connection.execute("UPDATE claims SET entry = ? WHERE position = ?", (entry, claim.position))
        # The end of the log, kept apart from the claims, is made anew too.
        connection.execute("UPDATE heads SET claims = (SELECT count(*) FROM claims), entry = ?", (entry,))
        connection.execute("UPDATE heads SET (digest, key) = (SELECT digest, key FROM memories)")
        connection.commit()

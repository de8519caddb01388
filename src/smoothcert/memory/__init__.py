"""A database of promised regions: balls (centre, radius, class). Balls of different classes are always disjoint."""

from smoothcert.memory.audit import Audit
from smoothcert.memory.inspection import (
    MemorySummary,
    Radii,
    count_claims,
    export_claims,
    list_digests,
    list_memories,
)
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import Claim
from smoothcert.memory.opening import audit_existing, is_server, open_existing, open_memory, resolve_location
from smoothcert.memory.recovery import Recovered, recover_memory
from smoothcert.memory.regions import RegionMemory

__all__ = [
    "Audit",
    "Claim",
    "MemoryKey",
    "MemorySummary",
    "Radii",
    "Recovered",
    "RegionMemory",
    "audit_existing",
    "count_claims",
    "export_claims",
    "is_server",
    "list_digests",
    "list_memories",
    "open_existing",
    "open_memory",
    "recover_memory",
    "resolve_location",
]

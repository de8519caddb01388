"""Regions already promised: a database of balls (centre, radius, class), those of different classes always disjoint."""

from smoothcert.memory.audit import Audit
from smoothcert.memory.contents import MemorySummary, Radii, count_claims, list_digests, list_memories
from smoothcert.memory.exports import export_claims
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import Claim
from smoothcert.memory.opening import audit_existing, is_server, lasting_name, open_existing, open_memory
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
    "lasting_name",
    "list_digests",
    "list_memories",
    "open_existing",
    "open_memory",
    "recover_memory",
]

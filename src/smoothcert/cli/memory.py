"""`smoothcert memory`: summarise, audit, export and recover memories of promised regions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli import options as o
from smoothcert.cli.verb import Verb
from smoothcert.errors import DamagedMemoryError

if TYPE_CHECKING:
    from smoothcert.memory import Audit, MemorySummary, Recovered

app = typer.Typer(
    help="Summarise, audit, export and recover the memory of regions promised by `certify --memory`.",
    no_args_is_help=True,
)

Place = Annotated[
    str, typer.Argument(metavar="PLACE", show_default=False, help="The SQLite file, or a postgresql:// URL.")
]
Digest = Annotated[
    str,
    typer.Option(
        "--key", help="Select one memory of the database by the beginning of its digest (see `memory stats`)."
    ),
]


@app.command("stats", cls=Verb)
def stats(place: Place, as_json: o.Json = False) -> None:
    """Summarise a database: its memories, regions per class, and how the claims were settled."""
    from smoothcert.memory import list_memories

    summaries = list_memories(place)
    if as_json:
        typer.echo(json.dumps([_to_json(summary) for summary in summaries]))
        return
    if not summaries:
        typer.echo("no memory yet")
    for summary in summaries:
        typer.echo(_describe_memory(summary))


@app.command("audit", cls=Verb)
def audit(place: Place, key: Digest = "", as_json: o.Json = False) -> None:
    """Check all pairs of claims: regions of different classes must not touch. Exit 1 if a check fails.

    No result computed when a claim was made is trusted: a bound on the distance excludes most pairs, the others are
    measured again, and the hash chain is recomputed.
    """
    from smoothcert.cli.counting import inputs_progress
    from smoothcert.memory import audit_existing, list_digests

    digests = [key] if key else list_digests(place)
    found: dict[str, Audit] = {}
    for digest in digests:
        with inputs_progress("audit", unit="blocks of pairs") as progress:
            audited, found_there = audit_existing(place, digest, progress=progress)
        found[audited.digest] = found_there
    if as_json:
        typer.echo(json.dumps([_audit_to_json(digest, one) for digest, one in found.items()]))
    else:
        for digest, one in found.items():
            typer.echo(_describe_audit(digest, one))
        if not found:
            typer.echo("no memory yet")
    if not all(one.consistent for one in found.values()):
        raise typer.Exit(1)


@app.command("export", cls=Verb)
def export(
    place: Place,
    output: Annotated[Path, typer.Option("--output", "-o", show_default=False, help="The file: .csv or .npz.")],
    key: Digest = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the log of claims to a file. csv has the SHA-256 of each input, npz the inputs themselves."""
    from smoothcert.memory import export_claims, open_existing

    with open_existing(place, key) as memory:
        count = export_claims(memory, output, overwrite=force)
    typer.echo(f"wrote {count} claims to {output}")


@app.command("recover", cls=Verb)
def recover(
    old: Annotated[str, typer.Argument(metavar="OLD", show_default=False, help="The damaged memory: its file or URL.")],
    new: Annotated[
        str, typer.Argument(metavar="NEW", show_default=False, help="Where to write: a file that does not exist yet.")
    ],
    as_json: o.Json = False,
) -> None:
    """Write the provably intact part of a damaged memory to a new one. OLD is not changed, nothing is overwritten.

    Of each log, the claims before the first lost or changed one are kept. Promises of the other claims are no longer
    protected: new claims may contradict them, and certificates issued from lost claims are void. If a backup holds
    more, restore it instead.
    """
    from smoothcert.memory import recover_memory

    recovered = recover_memory(old, new)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in recovered]))
        return
    for one in recovered:
        typer.echo(_describe_recovery(one))
    typer.echo(_describe_consequences(recovered))


def _describe_recovery(one: Recovered) -> str:
    name = f"memory {one.digest[:12]}" if one.digest else "a memory whose key is lost"
    lost = f"{one.lost} known to be lost"
    if one.lost:
        lost += f" (positions {one.kept + 1} to {one.kept + one.lost})"
    if not one.head_known:
        lost += "; there may be more, because the number of claims that were made is not known"
    return f"{name}: {one.kept} claims kept, {lost}"


def _describe_consequences(recovered: Sequence[Recovered]) -> str:
    """What a recovery means for the holders of certificates."""
    if all(one.lost == 0 and one.head_known for one in recovered):
        return "Nothing is lost. Use only the new memory from now on: two copies in use would contradict each other."
    return (
        "NOT PROTECTED any more: the promises of lost claims. New claims may contradict them. Certificates that were "
        "issued from lost claims, and answers that were looked up in them, are void: withdraw them and certify the "
        "inputs again. The promises of kept claims remain valid in the new memory. Do not use the old one any more."
    )


def _describe_memory(summary: MemorySummary) -> str:
    from smoothcert.numerics.rounding import format_down

    key = summary.key
    lines = [
        f"memory {summary.digest[:12]}: {summary.claims} claims, {key.noise} noise, {key.norm} norm, "
        f"{key.dimension} numbers per input",
        f"  model {key.model[:12]}, sigma rule {key.sigma_rule[:12]}, preprocessing {key.preprocessing[:12]}",
    ]
    if summary.radii is not None and summary.first_claimed is not None and summary.last_claimed is not None:
        radii = (summary.radii.smallest, summary.radii.median, summary.radii.largest)
        lines += [
            "  classes: " + ", ".join(f"{label}: {count}" for label, count in summary.classes.items()),
            "  settled: " + ", ".join(f"{count} {name}" for name, count in _count_settlements(summary).items()),
            "  radii: smallest {}, median {}, largest {}".format(*(format_down(r, decimals=4) for r in radii)),
            f"  from {summary.first_claimed:%Y-%m-%d %H:%M:%S} to {summary.last_claimed:%Y-%m-%d %H:%M:%S} UTC",
        ]
    return "\n".join(lines)


def _count_settlements(summary: MemorySummary) -> dict[str, int]:
    """The number of claims per settlement. INHERITED is never stored."""
    from smoothcert.records import Settlement

    stored = (one for one in Settlement if one is not Settlement.INHERITED)
    return {one.name.lower(): summary.settlements.get(one, 0) for one in stored}


def _to_json(summary: MemorySummary) -> dict[str, Any]:
    radii = summary.radii
    return {
        "digest": summary.digest,
        "key": summary.key.to_json(),
        "claims": summary.claims,
        "classes": {str(label): count for label, count in summary.classes.items()},
        "settlements": _count_settlements(summary),
        "radii": None if radii is None else [radii.smallest, radii.median, radii.largest],
        "first_claimed": None if summary.first_claimed is None else summary.first_claimed.isoformat(),
        "last_claimed": None if summary.last_claimed is None else summary.last_claimed.isoformat(),
    }


def _describe_audit(digest: str, found: Audit) -> str:
    head = f"memory {digest[:12]}: {found.claims} claims, {found.pairs} pairs of different classes"
    if found.consistent:
        return f"{head}: consistent, no two of them touch"
    more = [f"  and {found.more_problems} more"] if found.more_problems else []
    problems = [f"  {problem}" for problem in found.problems]
    return "\n".join([f"{head}: NOT consistent", *problems, *more, DamagedMemoryError.WAY_OUT])


def _audit_to_json(digest: str, found: Audit) -> dict[str, Any]:
    return {
        "digest": digest,
        "consistent": found.consistent,
        "claims": found.claims,
        "pairs": found.pairs,
        "measured": found.measured,
        "problems": list(found.problems),
        "more_problems": found.more_problems,
    }

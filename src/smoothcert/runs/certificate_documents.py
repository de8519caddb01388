"""The certificate of one input as a self-contained JSON document, with everything that is needed to check it.

The schema is docs/reference/certificate.schema.json. `smoothcert verify` checks such documents; it shares no
code with this file.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.errors import CorruptRunError, RunError
from smoothcert.files import remove_dead_parts, write_atomically
from smoothcert.records import AnyTally, Bounds, CertifiedPoint, Promise, TallyKind, Verdict
from smoothcert.runs.certificate_index import CertificateIndex, begin_index
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.run_files import is_selected
from smoothcert.runs.seals import document_digest
from smoothcert.runs.selected_run import hold_stored
from smoothcert.runs.store import RunStore
from smoothcert.runs.stored_tallies import tally_row
from smoothcert.spec import ConstantLevel, RunManifest, to_json

if TYPE_CHECKING:
    from smoothcert.runs.selected_parts import SelectedParts

FORMAT, VERSION = "smoothcert certificate", 3
SELECTED_FORMAT, SELECTED_VERSION = "smoothcert selected certificate", 1

Document = dict[str, Any]
Progress = Callable[[int, int], None]


def document_of(point: CertifiedPoint, manifest: RunManifest) -> Document:
    """The certificate of one input: its verdicts, the tallies that prove them, and the manifest of the run."""
    run = json.loads(json.dumps(to_json(manifest)))  # tuples become lists, as a reader of the file sees them
    document: Document = {
        "format": FORMAT,
        "version": VERSION,
        "input": {"index": point.index, "label": point.label},
        "smoothing": _smoothing(point, manifest),
        "verdicts": [_verdict(verdict) for verdict in (point.verdict, *point.further)],
        "tallies": [_tally(tally) for tally in point.tallies],
        "promise": None if point.promise is None else _promise(point.promise),
        "run": run,
        "run_digest": document_digest(run),
    }
    return document | {"digest": document_digest(document)}


def _document_of_selected(
    point: CertifiedPoint, parts: SelectedParts, selector: CertifiedPoint, levels: Mapping[int, CertifiedPoint]
) -> Document:
    """The certificate of one input of a selected run: its verdicts, and the documents of the parts that prove them."""
    document: Document = {
        "format": SELECTED_FORMAT,
        "version": SELECTED_VERSION,
        "input": {"index": point.index, "label": point.label},
        "selection": to_json(parts.spec),
        "sigma": None if math.isnan(point.sigma) else point.sigma,
        "verdicts": [_verdict(verdict) for verdict in (point.verdict, *point.further)],
        "selector": document_of(selector, parts.selector.manifest),
        "levels": [document_of(level, parts.levels[number].manifest) for number, level in sorted(levels.items())],
    }
    return document | {"digest": document_digest(document)}


def list_documents(run: HeldRun) -> Iterator[tuple[int, Document]]:
    """The certificate of each input of a run, with its index."""
    if run.parts is None:
        yield from ((point.index, document_of(point, run.manifest)) for point in run.points)
        return
    inputs = list(run.parts.by_input())
    if [selector.index for selector, _ in inputs] != [point.index for point in run.points]:
        raise CorruptRunError(
            "the claims are not about the inputs of the selector: delete claims.json and resume the run"
        )
    for point, (selector, levels) in zip(run.points, inputs, strict=True):
        yield point.index, _document_of_selected(point, run.parts, selector, levels)


def write_certificates(
    run: Path, out_dir: Path, *, overwrite: bool = False, progress: Progress | None = None
) -> list[Path]:
    """One file for each input of a run, certificate-000123.json for input 123. Returns the files, in order.

    Each file is written completely or not at all, and an index is completed at the end: the same call continues one
    that was cut short. Other existing files are refused unless `overwrite`. progress: is called with the number of
    files written, and their total.
    """
    if is_selected(run):
        return write_documents(hold_stored(run), out_dir, overwrite=overwrite, progress=progress)
    with RunStore.open(run) as store:
        if not (total := len(store.indices())):
            raise RunError(f"{run} has no finished input yet")
        documents = ((point.index, document_of(point, store.manifest)) for batch in store.batches() for point in batch)
        return _write_files(documents, total, out_dir, overwrite=overwrite, progress=progress)


def write_documents(
    run: HeldRun, out_dir: Path, *, overwrite: bool = False, progress: Progress | None = None
) -> list[Path]:
    """`write_certificates` for a run in memory."""
    if not run.points:
        raise RunError(f"nothing is written to {out_dir}: the run has no finished input")
    return _write_files(list_documents(run), len(run.points), out_dir, overwrite=overwrite, progress=progress)


def _write_files(
    documents: Iterable[tuple[int, Document]],
    total: int,
    out_dir: Path,
    *,
    overwrite: bool,
    progress: Progress | None,
) -> list[Path]:
    if out_dir.exists() and not out_dir.is_dir():
        raise RunError(f"{out_dir} is a file; certificates are written to a directory, one for each input")
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out_dir} cannot be created: {error.strerror or error}; give another directory") from error
    remove_dead_parts(out_dir)
    digests: dict[str, str] = {}
    run_digest = ""
    for index, document in documents:
        if not digests:
            run_digest = document.get("run_digest") or document_digest(document["selection"])
            begin_index(out_dir, run_digest=run_digest, certificates=total, overwrite=overwrite)
        file = out_dir / f"certificate-{index:06d}.json"
        _write_certificate(file, document, overwrite=overwrite)
        digests[file.name] = document["digest"]
        if progress is not None:
            progress(len(digests), total)
    CertificateIndex(run_digest, len(digests), digests).write(out_dir)
    return [out_dir / name for name in digests]


def _write_certificate(file: Path, document: Document, *, overwrite: bool) -> None:
    """Write a certificate, unless an export that was cut short has written the same one."""
    content = (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()
    if not overwrite and file.is_file() and file.stat().st_size == len(content) and file.read_bytes() == content:
        return
    write_atomically(file, content, overwrite=overwrite, tidy=False)


def _smoothing(point: CertifiedPoint, manifest: RunManifest) -> Document:
    return {
        "noise": to_json(manifest.spec.noise),
        # A memory may have answered without any sampling: then there is no noise level.
        "sigma": None if math.isnan(point.sigma) else point.sigma,
        "dimension": math.prod(manifest.data.input_shape),
        "num_classes": manifest.model.num_classes,
        "envelope": _assumed_envelope(manifest),
        "remembered": manifest.digests.memory is not None,
    }


def _assumed_envelope(manifest: RunManifest) -> Any:
    """What the theorems assume of σ: one level everywhere, or how far it may move; None if they assume nothing."""
    if isinstance(manifest.spec.sigma, ConstantLevel):
        return {"kind": "constant", "sigma": manifest.spec.sigma.level}
    assert manifest.sigma is not None
    if manifest.sigma.rule.get("kind") == "constant":
        return {"kind": "constant", "sigma": manifest.sigma.rule.get("sigma")}
    return manifest.sigma.envelope


def _verdict(verdict: Verdict) -> Document:
    return {
        "certificate": verdict.certificate,
        "prediction": verdict.prediction,
        "radius": verdict.radius,
        "norm": verdict.norm.value,
        "outcome": verdict.outcome.value,
        "reason": None if verdict.reason is None else verdict.reason.to_json(),
        "bounds": None if verdict.bounds is None else _bounds(verdict.bounds),
    }


def _bounds(bounds: Bounds) -> Document:
    return {
        "label": bounds.label,
        "quantities": {
            quantity.value: {
                "value": bound.value,
                "side": bound.side.value,
                "alpha": bound.alpha,
                "method": bound.method,
            }
            for quantity, bound in bounds.quantities.items()
        },
        "spent": {proof.value: alpha for proof, alpha in bounds.spent.items()},
    }


def _tally(tally: AnyTally) -> Document:
    _, stage, start, stop, sigma, kind, num_classes, counts, sums = tally_row(tally)
    return {
        "stage": stage,
        "kind": TallyKind(kind).value,
        "start": start,
        "stop": stop,
        "sigma": sigma,
        "num_classes": num_classes,
        "counts": json.loads(counts),
        "sums": None if sums is None else base64.b64encode(sums).decode(),
    }


def _promise(promise: Promise) -> Document:
    return {
        "label": promise.label,
        "radius": promise.radius,
        "position": promise.position,
        "settlement": promise.settlement.name,
        "asked_label": promise.asked_label,
        "asked_radius": promise.asked_radius,
        "memory": promise.memory,
        "entry": promise.entry,
    }

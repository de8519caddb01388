"""The index of a directory of certificates: whether all of them are there, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from smoothcert_verify.findings import Finding, MalformedError, note
from smoothcert_verify.json_values import TEXT, OneOf, Optional, Record, Whole, accept_anything, parse_json
from smoothcert_verify.run_reading import INDEX, read_bytes

_INDEX = Record(
    format=OneOf(("smoothcert certificates",)),
    version=OneOf((1,)),
    run_digest=TEXT,
    certificates=Whole(1),
    digests=Optional(accept_anything),
)


def check_index(folder: Path, found: Mapping[str, Any], runs: Mapping[str, str]) -> Iterator[Finding]:
    """What the index of a directory contradicts. found: the stated digest of each certificate, by file name.

    runs: by file name, the digest of what each certificate is of. A certificate's own digest is checked with it.
    """
    try:
        index = parse_json(read_bytes(folder / INDEX))
        _INDEX(index, "")
        digests = index["digests"]
        if digests is not None and not isinstance(digests, dict):
            raise MalformedError(note("invalid-value", field="digests", value=digests, expected="digests by file name"))
    except MalformedError as error:
        yield error.finding.at(INDEX)
        return
    if digests is None:
        yield note("unfinished-export", found=len(found), certificates=index["certificates"])
        return
    if len(digests) != index["certificates"]:
        yield note("differs", field="certificates", value=index["certificates"], expected=len(digests)).at(INDEX)
    if missing := sorted(digests.keys() - found.keys()):
        yield note("missing-certificates", missing=len(missing), certificates=len(digests), name=missing[0])
    for name, digest in found.items():
        if name not in digests:
            yield note("not-in-index").at(name)
        elif digests[name] != digest or runs.get(name) != index["run_digest"]:
            yield note("not-as-indexed").at(name)

"""`certify --rigorous`: nothing is stored that the independent checker does not confirm in ball arithmetic."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from smoothcert.errors import InputError, MissingExtraError, UnverifiedError
from smoothcert.pipeline import Check
from smoothcert.records import CertifiedPoint
from smoothcert.runs.certificate_documents import Document, document_of, list_documents
from smoothcert.runs.held_run import HeldRun
from smoothcert.spec import RunManifest


def make_rigorous_check(manifest: RunManifest) -> Check:
    """A check that raises an UnverifiedError for points whose bounds or radii do not follow from their tallies.

    Without python-flint it is refused at once, not when the first input is done.
    """
    if importlib.util.find_spec("flint") is None:
        raise MissingExtraError("python-flint", "verify", "confirming results in ball arithmetic (--rigorous)")

    def check(points: Sequence[CertifiedPoint]) -> None:
        for point in points:
            _confirm(point.index, document_of(point, manifest))

    return check


def confirm_combination(run: HeldRun) -> None:
    """Raise an UnverifiedError unless selector and levels prove what they are said to give together."""
    for index, document in list_documents(run):
        _confirm(index, document)


def _confirm(index: int, document: Document) -> None:
    from smoothcert_verify import check_document

    findings = check_document(document, before_claims=True)
    if findings.unchecked:
        unchecked = "; ".join(map(str, findings.unchecked))
        raise InputError(f"--rigorous is not possible: {unchecked}. Leave it out, or use what can be checked")
    if findings.discrepancies:
        wrong = "; ".join(map(str, findings.discrepancies))
        raise UnverifiedError(
            f"input {index} is not confirmed by the independent checker, and was not stored: {wrong}. This is a defect "
            "of smoothcert: please report it with the run's manifest"
        )

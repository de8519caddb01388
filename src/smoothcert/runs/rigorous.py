"""`certify --rigorous`: nothing is stored that the independent checker does not confirm in ball arithmetic."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from smoothcert.errors import InputError, MissingExtraError, UnverifiedError
from smoothcert.pipeline import Check
from smoothcert.records import CertifiedPoint
from smoothcert.runs.certificate_documents import document_of
from smoothcert.spec import RunManifest


def make_rigorous_check(manifest: RunManifest) -> Check:
    """A check that raises an UnverifiedError for points whose bounds or radii do not follow from their tallies.

    Without python-flint it is refused at once, not when the first input is done.
    """
    if importlib.util.find_spec("flint") is None:
        raise MissingExtraError("python-flint", "verify", "confirming results in ball arithmetic (--rigorous)")
    from smoothcert_verify import check_document

    def check(points: Sequence[CertifiedPoint]) -> None:
        for point in points:
            findings = check_document(document_of(point, manifest), before_claims=True)
            if findings.unchecked:
                unchecked = "; ".join(map(str, findings.unchecked))
                raise InputError(f"--rigorous is not possible: {unchecked}. Leave it out, or use what can be checked")
            if findings.discrepancies:
                wrong = "; ".join(map(str, findings.discrepancies))
                raise UnverifiedError(
                    f"input {point.index} is not confirmed by the independent checker, and was not stored: "
                    f"{wrong}. This is a defect of smoothcert: please report it with the run's manifest"
                )

    return check

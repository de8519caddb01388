"""`certify --rigorous`: nothing is stored that the independent checker does not confirm in ball arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smoothcert.errors import UnverifiedError
from smoothcert.records import CertifiedPoint, RunManifest
from smoothcert.runs.certificate_documents import document_of

Check = Callable[[Sequence[CertifiedPoint]], None]


def rigorous_check(manifest: RunManifest) -> Check:
    """Raises an UnverifiedError for points whose bounds or radii do not follow from their tallies.

    Without python-flint it is refused at once, not when the first input is done.
    """
    from smoothcert.verify.point import check_document

    def check(points: Sequence[CertifiedPoint]) -> None:
        for point in points:
            found = check_document(document_of(point, manifest))
            if found:
                raise UnverifiedError(
                    f"input {point.index} is not confirmed by the independent checker, and was not stored: "
                    f"{'; '.join(found)}. This is a defect of smoothcert: please report it with the run's manifest"
                )

    return check

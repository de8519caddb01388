"""An independent checker of certificates: from the counted votes to every bound and radius, in ball arithmetic.

It imports nothing of smoothcert and needs the standard library, numpy and python-flint. The formulas are derived again
and used forward: a stored number is put into the inequality that makes it true. `python -m smoothcert_verify` checks
certificates, run directories and memories; `check_document` checks one certificate in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smoothcert_verify.findings import Finding, Findings

if TYPE_CHECKING:
    from smoothcert_verify.run_facts import RunFacts

__all__ = ["Finding", "Findings", "check_document"]


def check_document(document: Any, run: RunFacts | None = None) -> Findings:
    """Everything that can be checked of one certificate document. See `document_checks.check_document`."""
    from smoothcert_verify.document_checks import check_document as check

    return check(document, run)

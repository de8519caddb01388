"""An independent checker of certificates: from the counted votes to every bound and radius, in ball arithmetic.

It imports nothing of smoothcert and needs the standard library, numpy and python-flint. The formulas are derived again
and used forward: a stored number is put into the inequality that makes it true. `python -m smoothcert_verify` checks
certificates, run directories and memories; `check_document` checks one certificate in Python.
"""

from __future__ import annotations

from typing import Any

from smoothcert_verify.findings import Finding, Findings

__all__ = ["Finding", "Findings", "check_document"]


def check_document(document: Any, *, before_claims: bool = False) -> Findings:
    """Everything that can be checked of one certificate document, as `export --format certificate` writes it.

    before_claims: its region is still to be claimed from the memory of the run, so that it has no promise yet.
    """
    from smoothcert_verify.document_checks import check_document as check
    from smoothcert_verify.selection_documents import check_selected_document, is_selected_document

    if is_selected_document(document):
        checked = check_selected_document(document)
        return Findings(checked.findings, is_readable=checked.facts is not None)
    return check(document, before_claims=before_claims)

"""An independent checker of certificates: from the counted votes to every bound and radius, in ball arithmetic.

It imports nothing of smoothcert and needs the standard library, numpy and python-flint. The formulas are derived again
and used forward: a stored number is put into the inequality that makes it true. `python -m smoothcert_verify` checks
certificates, run directories and memories; `check_document` checks one certificate in Python.
"""

from smoothcert_verify.document_checks import check_document
from smoothcert_verify.findings import Finding, Findings

__all__ = ["Finding", "Findings", "check_document"]

"""Results: what `certify` and `predict` return in Python, and what a stored run or a log is opened as.

This room joins the rooms below it (runs, analysis, report) and the checker; it has no mathematics of its own.
"""

from smoothcert.results.opened_runs import compare, open_run
from smoothcert.results.results import Results

__all__ = ["Results", "compare", "open_run"]

"""pandas, imported when a frame is needed."""

from __future__ import annotations

from typing import Any

from smoothcert.errors import MissingExtraError


def import_pandas(purpose: str = "a frame") -> Any:
    """pandas; a MissingExtraError says what needs it."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas", purpose) from error
    return pandas

"""pandas, imported when a frame is asked for."""

from __future__ import annotations

from typing import Any

from smoothcert.errors import MissingExtraError


def import_pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas", "a frame") from error
    return pandas

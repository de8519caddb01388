"""Datasets by name, fetched and checked, or from the user's own files. Needs no torch.

Names are imported when they are first used: listing the datasets does not even need numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothcert.data.arrays import ArrayDataset
    from smoothcert.data.base import Dataset
    from smoothcert.data.catalogue import DatasetInfo, Entry, Origin, list_datasets
    from smoothcert.data.fetching import FetchReport, fetch
    from smoothcert.data.files import InputRange
    from smoothcert.data.images import ImageFolderDataset
    from smoothcert.data.loading import SPLITS, load_dataset, parse_input_range
    from smoothcert.data.progress import Progress, ProgressCallback
    from smoothcert.data.store import default_root

_HOMES = {
    "ArrayDataset": "arrays",
    "Dataset": "base",
    "DatasetInfo": "catalogue",
    "Entry": "catalogue",
    "Origin": "catalogue",
    "list_datasets": "catalogue",
    "FetchReport": "fetching",
    "fetch": "fetching",
    "InputRange": "files",
    "ImageFolderDataset": "images",
    "SPLITS": "loading",
    "load_dataset": "loading",
    "parse_input_range": "loading",
    "parse_shape": "loading",
    "Progress": "progress",
    "ProgressCallback": "progress",
    "default_root": "store",
}

__all__ = [
    "SPLITS",
    "ArrayDataset",
    "Dataset",
    "DatasetInfo",
    "Entry",
    "FetchReport",
    "ImageFolderDataset",
    "InputRange",
    "Origin",
    "Progress",
    "ProgressCallback",
    "default_root",
    "fetch",
    "list_datasets",
    "load_dataset",
    "parse_input_range",
    "parse_shape",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

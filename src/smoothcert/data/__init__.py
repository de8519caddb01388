"""Datasets by name, or from the user's files. Does not need torch.

Names are imported when first used: listing the datasets does not even import numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothcert.data.arrays import ArrayDataset
    from smoothcert.data.dataset import Dataset
    from smoothcert.data.dataset_store import default_root
    from smoothcert.data.download_sources import Progress, ProgressCallback
    from smoothcert.data.fetching import FetchReport, fetch
    from smoothcert.data.images import ImageFolderDataset, parse_resize
    from smoothcert.data.loading import SPLITS, load_dataset, load_requested, parse_input_range, parse_shape
    from smoothcert.data.named_datasets import DatasetInfo, DatasetOrigin, NamedDataset, list_datasets
    from smoothcert.data.splits import DatasetPart, load_splits, write_part
    from smoothcert.data.user_files import InputRange

__all__ = [
    "SPLITS",
    "ArrayDataset",
    "Dataset",
    "DatasetInfo",
    "DatasetOrigin",
    "DatasetPart",
    "FetchReport",
    "ImageFolderDataset",
    "InputRange",
    "NamedDataset",
    "Progress",
    "ProgressCallback",
    "default_root",
    "fetch",
    "list_datasets",
    "load_dataset",
    "load_requested",
    "load_splits",
    "parse_input_range",
    "parse_resize",
    "parse_shape",
    "write_part",
]

_NAMES_BY_MODULE = {
    "arrays": ("ArrayDataset",),
    "dataset": ("Dataset",),
    "dataset_store": ("default_root",),
    "download_sources": ("Progress", "ProgressCallback"),
    "fetching": ("FetchReport", "fetch"),
    "images": ("ImageFolderDataset", "parse_resize"),
    "loading": ("SPLITS", "load_dataset", "load_requested", "parse_input_range", "parse_shape"),
    "named_datasets": ("DatasetInfo", "DatasetOrigin", "NamedDataset", "list_datasets"),
    "splits": ("DatasetPart", "load_splits", "write_part"),
    "user_files": ("InputRange",),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

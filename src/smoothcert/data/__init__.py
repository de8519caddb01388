"""Datasets by name, fetched and checked, or from the user's own files. Needs no torch."""

from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.base import Dataset
from smoothcert.data.catalogue import DatasetInfo, Entry, Origin, list_datasets
from smoothcert.data.fetching import FetchReport, fetch
from smoothcert.data.files import InputRange
from smoothcert.data.images import ImageFolderDataset
from smoothcert.data.loading import SPLITS, load_dataset, parse_input_range
from smoothcert.data.progress import Progress, ProgressCallback
from smoothcert.data.store import default_root

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
]

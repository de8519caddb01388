"""The datasets that have a name."""

from __future__ import annotations

import difflib
import enum
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from smoothcert.data import dataset_store as store
from smoothcert.data.published import PUBLISHED
from smoothcert.errors import DataError

IMAGENET_VARIABLE = "SMOOTHCERT_IMAGENET"
IMAGENET_CLASSES = 1000

_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CONE_NAME = re.compile(r"cone-([1-9][0-9]*)")


class DatasetOrigin(enum.Enum):
    """Where a dataset comes from; the value completes "NAME is …"."""

    BUNDLED = "bundled with scikit-learn"
    GENERATED = "generated, the same everywhere"
    PUBLISHED = "fetched and checked"
    DERIVED = "made from mnist"
    FOLDER = "a folder you have"


@dataclass(frozen=True, slots=True)
class NamedDataset:
    """What is known of a dataset before it is loaded.

    train, test: inputs per split, None if it depends on the user's copy. files: the published dataset whose files it
    needs. num_classes: default len(class_names).
    """

    name: str
    origin: DatasetOrigin
    summary: str
    input_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    train: int | None
    test: int | None
    levels: int | None = None
    input_range: tuple[float, float] | None = (0.0, 1.0)
    files: str | None = None
    num_classes: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_classes", self.num_classes or len(self.class_names))


_PCA_SUMMARY = "10 leading principal components of small-mnist, fitted on its training images"
_LEVINE_PCA_SUMMARY = "small-mnist-pca with the signs of Levine et al. 2021, for their networks"
_LEVINE_ROLL_SUMMARY = "the swiss roll of Levine et al. 2021, for their network; fewer points, more scatter"
_CONE_SUMMARY = "a narrow cone against everything around it; cone-18 is the same in 18 dimensions"
_DATASETS = (
    NamedDataset(
        "digits", DatasetOrigin.BUNDLED, "8x8 handwritten digits",
        (1, 8, 8), _DIGITS, 1352, 445, levels=17,
    ),
    NamedDataset(
        "swiss-roll", DatasetOrigin.GENERATED, "two interleaved spirals in the plane",
        (2,), ("first arm", "second arm"), 2000, 500, input_range=None,
    ),
    NamedDataset(
        "levine-swiss-roll", DatasetOrigin.GENERATED, _LEVINE_ROLL_SUMMARY,
        (2,), ("inner half", "outer half"), 1000, 100, input_range=None,
    ),
    NamedDataset(
        "cone", DatasetOrigin.GENERATED, _CONE_SUMMARY,
        (2,), ("cone", "outside"), 1000, 200, input_range=None,
    ),
    NamedDataset(
        "mnist", DatasetOrigin.PUBLISHED, "28x28 handwritten digits",
        (1, 28, 28), _DIGITS, 60000, 10000, levels=256, files="mnist",
    ),
    NamedDataset(
        "small-mnist", DatasetOrigin.DERIVED, "means of 4x4 blocks of mnist",
        (1, 7, 7), _DIGITS, 60000, 10000, levels=4081, files="mnist",
    ),
    NamedDataset(
        "small-mnist-pca", DatasetOrigin.DERIVED, _PCA_SUMMARY,
        (10,), _DIGITS, 60000, 10000, input_range=None, files="mnist",
    ),
    NamedDataset(
        "levine-mnist-pca", DatasetOrigin.DERIVED, _LEVINE_PCA_SUMMARY,
        (10,), _DIGITS, 60000, 10000, input_range=None, files="mnist",
    ),
    NamedDataset(
        "fashion-mnist", DatasetOrigin.PUBLISHED, "28x28 articles of clothing",
        (1, 28, 28), _CLOTHES, 60000, 10000, levels=256, files="fashion-mnist",
    ),
    NamedDataset(
        "cifar10", DatasetOrigin.PUBLISHED, "32x32 colour photographs of ten things",
        (3, 32, 32), _CIFAR10_CLASSES, 50000, 10000, levels=256, files="cifar10",
    ),
    NamedDataset(
        "imagenet", DatasetOrigin.FOLDER, "photographs in class folders, shorter side 256, centre 224x224",
        (3, 224, 224), (), None, None, levels=256, num_classes=IMAGENET_CLASSES,
    ),
)  # fmt: skip
CATALOGUE: dict[str, NamedDataset] = {dataset.name: dataset for dataset in _DATASETS}


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A line of `smoothcert data list`. here: usable now, without fetching. where: its source, as text."""

    entry: NamedDataset
    here: bool
    where: str


def parse_cone_dimension(name: str) -> int | None:
    """18 for "cone-18", 2 for "cone", None for any other name."""
    if name == "cone":
        return 2
    match = _CONE_NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def get_named_dataset(name: str) -> NamedDataset:
    """Look up a named dataset. An unknown name is a DataError that suggests similar names."""
    entry = CATALOGUE.get("cone" if parse_cone_dimension(name) is not None else name)
    if entry is None:
        raise unknown_dataset_error(name)
    return entry


def unknown_dataset_error(name: str) -> DataError:
    """The error for a name that is neither a dataset nor a file."""
    key = name.lower().replace("_", "-")
    near = difflib.get_close_matches(key, CATALOGUE, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(CATALOGUE)}."
    return DataError(
        f"there is no dataset {name!r}: {hint} To use your own data, give its path: a .npz, .npy or .csv file, or a"
        " folder of class folders"
    )


def list_datasets(*, root: Path | None = None) -> tuple[DatasetInfo, ...]:
    """List all named datasets and whether they are available, without loading any."""
    folder = root if root is not None else store.default_root()
    return tuple(_describe(entry, folder) for entry in _DATASETS)


def _describe(entry: NamedDataset, root: Path) -> DatasetInfo:
    if entry.files is not None:
        spec = PUBLISHED[entry.files]
        here = store.has_files(spec, root)
        return DatasetInfo(entry, here, store.read_origin(spec, root) if here else f"smoothcert data fetch {spec.name}")
    if entry.origin is DatasetOrigin.BUNDLED:
        here = importlib.util.find_spec("sklearn") is not None
        return DatasetInfo(entry, here, entry.origin.value if here else "pip install 'smoothcert[sklearn]'")
    if entry.origin is DatasetOrigin.FOLDER:
        folder = os.environ.get(IMAGENET_VARIABLE, "")
        here = bool(folder) and Path(folder).expanduser().is_dir()
        return DatasetInfo(entry, here, folder if here else f"set {IMAGENET_VARIABLE} to your folder")
    return DatasetInfo(entry, True, entry.origin.value)

"""The datasets that have a name."""

from __future__ import annotations

import difflib
import enum
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from smoothcert.data import store
from smoothcert.data.published import PUBLISHED
from smoothcert.errors import DataError

DIGIT_NAMES = tuple("0123456789")
FASHION_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGENET_VARIABLE = "SMOOTHCERT_IMAGENET"
IMAGENET_CLASSES = 1000

_CONE_NAME = re.compile(r"cone-([1-9][0-9]*)")


class Origin(enum.Enum):
    """Where a dataset comes from; the value completes "NAME is …"."""

    BUNDLED = "bundled with scikit-learn"
    GENERATED = "generated, the same everywhere"
    PUBLISHED = "fetched and checked"
    DERIVED = "made from mnist"
    FOLDER = "a folder you have"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a dataset before it is loaded.

    sizes: inputs per split, None where it depends on the user's copy. files: the published dataset whose files it
    needs.
    """

    name: str
    origin: Origin
    summary: str
    input_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    num_classes: int
    sizes: tuple[tuple[str, int | None], ...]
    levels: int | None
    input_range: tuple[float, float] | None = (0.0, 1.0)
    files: str | None = None


def _entry(
    name: str,
    origin: Origin,
    summary: str,
    *,
    shape: tuple[int, ...],
    classes: tuple[str, ...],
    train: int | None,
    test: int | None,
    levels: int | None,
    input_range: tuple[float, float] | None = (0.0, 1.0),
    files: str | None = None,
    num_classes: int | None = None,
) -> Entry:
    return Entry(
        name=name,
        origin=origin,
        summary=summary,
        input_shape=shape,
        class_names=classes,
        num_classes=num_classes if num_classes is not None else len(classes),
        sizes=(("train", train), ("test", test)),
        levels=levels,
        input_range=input_range,
        files=files,
    )


_ENTRIES = (
    _entry(
        "digits",
        Origin.BUNDLED,
        "8x8 handwritten digits",
        shape=(1, 8, 8),
        classes=DIGIT_NAMES,
        train=1352,
        test=445,
        levels=17,
    ),
    _entry(
        "swiss-roll",
        Origin.GENERATED,
        "two interleaved spirals in the plane",
        shape=(2,),
        classes=("first arm", "second arm"),
        train=2000,
        test=500,
        levels=None,
        input_range=None,
    ),
    _entry(
        "cone",
        Origin.GENERATED,
        "a narrow cone against everything around it; cone-18 is the same in 18 dimensions",
        shape=(2,),
        classes=("cone", "outside"),
        train=1000,
        test=200,
        levels=None,
        input_range=None,
    ),
    _entry(
        "mnist",
        Origin.PUBLISHED,
        "28x28 handwritten digits",
        shape=(1, 28, 28),
        classes=DIGIT_NAMES,
        train=60000,
        test=10000,
        levels=256,
        files="mnist",
    ),
    _entry(
        "small-mnist",
        Origin.DERIVED,
        "means of 4x4 blocks of mnist",
        shape=(1, 7, 7),
        classes=DIGIT_NAMES,
        train=60000,
        test=10000,
        levels=4081,
        files="mnist",
    ),
    _entry(
        "small-mnist-pca",
        Origin.DERIVED,
        "10 leading principal components of small-mnist, fitted on its training images",
        shape=(10,),
        classes=DIGIT_NAMES,
        train=60000,
        test=10000,
        levels=None,
        input_range=None,
        files="mnist",
    ),
    _entry(
        "fashion-mnist",
        Origin.PUBLISHED,
        "28x28 articles of clothing",
        shape=(1, 28, 28),
        classes=FASHION_NAMES,
        train=60000,
        test=10000,
        levels=256,
        files="fashion-mnist",
    ),
    _entry(
        "cifar10",
        Origin.PUBLISHED,
        "32x32 colour photographs of ten things",
        shape=(3, 32, 32),
        classes=CIFAR10_NAMES,
        train=50000,
        test=10000,
        levels=256,
        files="cifar10",
    ),
    _entry(
        "imagenet",
        Origin.FOLDER,
        "photographs in class folders, shorter side 256, centre 224x224",
        shape=(3, 224, 224),
        classes=(),
        num_classes=IMAGENET_CLASSES,
        train=None,
        test=None,
        levels=256,
    ),
)
CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """One line of `smoothcert data list`. here: usable now, without fetching. where: in words, from where."""

    entry: Entry
    here: bool
    where: str


def cone_dimension(name: str) -> int | None:
    """18 for "cone-18", 2 for "cone", None for any other name."""
    if name == "cone":
        return 2
    match = _CONE_NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def entry_of(name: str) -> Entry:
    """The entry of a named dataset; an unknown name is a DataError that names the near ones."""
    entry = CATALOGUE.get("cone" if cone_dimension(name) is not None else name)
    if entry is None:
        raise DataError(unknown_dataset(name))
    return entry


def unknown_dataset(name: str) -> str:
    """The sentence for a name that is neither a dataset nor a file."""
    key = name.lower().replace("_", "-")
    near = difflib.get_close_matches(key, CATALOGUE, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(CATALOGUE)}."
    return (
        f"there is no dataset {name!r}: {hint} A dataset of your own is given by its path: a .npz, .npy or .csv"
        " file, or a folder of class folders"
    )


def list_datasets(*, root: Path | None = None) -> tuple[DatasetInfo, ...]:
    """All named datasets with whether they are here, without loading any."""
    place = root if root is not None else store.default_root()
    return tuple(_info(entry, place) for entry in _ENTRIES)


def _info(entry: Entry, root: Path) -> DatasetInfo:
    if entry.files is not None:
        spec = PUBLISHED[entry.files]
        if store.is_here(spec, root):
            return DatasetInfo(entry=entry, here=True, where=store.origin_of(spec, root))
        return DatasetInfo(entry=entry, here=False, where=f"smoothcert data fetch {entry.files}")
    if entry.origin is Origin.BUNDLED:
        installed = importlib.util.find_spec("sklearn") is not None
        where = entry.origin.value if installed else "pip install 'smoothcert[sklearn]'"
        return DatasetInfo(entry=entry, here=installed, where=where)
    if entry.origin is Origin.FOLDER:
        folder = os.environ.get(IMAGENET_VARIABLE, "")
        here = bool(folder) and Path(folder).expanduser().is_dir()
        return DatasetInfo(entry=entry, here=here, where=folder if here else f"set {IMAGENET_VARIABLE} to your folder")
    return DatasetInfo(entry=entry, here=True, where=entry.origin.value)

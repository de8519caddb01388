from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothcert.data import Dataset, list_datasets, load_dataset
from smoothcert.data import dataset_store as data_store
from smoothcert.data.download_sources import ignore_progress
from smoothcert.data.fetching import fetch_published
from smoothcert.data.loading import PUBLISHED
from smoothcert.errors import DataError, InputError


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("mnits", "mnist"),
        ("fashion_mnist", "fashion-mnist"),
        ("CIFAR-10", "cifar10"),
        ("swissroll", "swiss-roll"),
        ("digit", "digits"),
    ],
)
def test_unknown_names_name_the_near_ones(name: str, near: str) -> None:
    with pytest.raises(DataError, match=rf"there is no dataset '{name}': did you mean .*{near}"):
        load_dataset(name)


def test_names_like_none_list_all() -> None:
    with pytest.raises(DataError, match="known: digits, swiss-roll, levine-swiss-roll, cone, mnist"):
        load_dataset("qqqqqq")


def test_splits_are_checked() -> None:
    with pytest.raises(InputError, match="no split 'val': expected train or test"):
        load_dataset("digits", split="val")


@pytest.mark.parametrize("options", [{"input_range": None}, {"input_shape": (64,)}, {"num_classes": 3}])
def test_named_datasets_take_no_options_of_files(options: dict[str, object]) -> None:
    for name in ("digits", "cone-18"):
        with pytest.raises(InputError, match="only for your own files"):
            load_dataset(name, **options)  # type: ignore[arg-type]


def test_missing_datasets_say_how_to_fetch_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="smoothcert data fetch mnist"):
        load_dataset("small-mnist", root=tmp_path, fetch_missing=False)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def mini_root(tmp_path: Path, mini_mnist, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(PUBLISHED, "mnist", mini_mnist.spec)
    mini_mnist.write_idx(tmp_path / "given")
    fetch_published(mini_mnist.spec, root=tmp_path / "root", source_folder=tmp_path / "given", report=ignore_progress)
    return tmp_path / "root"


def test_mnist_and_small_mnist_from_the_store(mini_root: Path, mini_mnist) -> None:
    images = mini_mnist.arrays["t10k-images-idx3-ubyte"]
    labels = mini_mnist.arrays["t10k-labels-idx1-ubyte"]
    whole = load_dataset("mnist", root=mini_root)
    assert np.array_equal(whole.inputs(slice(None))[:, 0], (images / 255).astype(np.float32))
    assert whole.labels.tolist() == labels.tolist()
    small = load_dataset("small-mnist", root=mini_root)
    means = images.reshape(5, 7, 4, 7, 4).mean(axis=(2, 4)) / 255
    assert np.abs(small.inputs(slice(None))[:, 0] - means).max() < 1e-7
    assert (small.levels, small.input_shape) == (4081, (1, 7, 7))


def test_only_the_wanted_split_is_read(mini_root: Path) -> None:
    for path in (mini_root / "mnist").glob("train-*"):
        path.write_bytes(bytes(path.stat().st_size))
    assert len(load_dataset("mnist", root=mini_root)) == 5
    with pytest.raises(DataError, match="damaged"):
        load_dataset("mnist", split="train", root=mini_root)


def test_a_missing_dataset_is_fetched_on_loading(tmp_path: Path, mini_mnist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED, "mnist", mini_mnist.spec)
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    mini_mnist.write_idx(tmp_path / "share" / "datasets" / "mnist")
    heard: list[str] = []
    data = load_dataset("mnist", root=tmp_path / "root", progress=lambda report: heard.append(report.message))
    assert len(data) == 5
    assert heard[0] == "mnist: trying an installed system package"


def test_the_list_says_what_is_here(mini_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMOOTHCERT_IMAGENET", raising=False)
    here = {info.entry.name: info for info in list_datasets(root=mini_root)}
    assert {name for name, info in here.items() if info.here} == {
        *("digits", "swiss-roll", "levine-swiss-roll", "cone"),
        *("mnist", "small-mnist", "small-mnist-pca", "levine-mnist-pca"),
    }
    assert here["cifar10"].where == "smoothcert data fetch cifar10"
    assert str(tmp_path / "given") in here["mnist"].where
    monkeypatch.setenv("SMOOTHCERT_IMAGENET", str(tmp_path))
    assert {info.entry.name: info.here for info in list_datasets(root=mini_root)}["imagenet"]


# ------------------------------------------------------------------------------------------ image folders


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for class_name, size, mode in (("n02", (300, 500), "RGB"), ("n01", (640, 320), "L"), ("n03", (100, 80), "RGBA")):
        folder = tmp_path / "photographs" / "val" / class_name
        folder.mkdir(parents=True)
        channels = {"RGB": (3,), "L": (), "RGBA": (4,)}[mode]
        for number in range(2):
            pixels = rng.integers(0, 256, (size[1], size[0], *channels)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
        (folder / "notes.txt").write_text("not an image")
    (tmp_path / "photographs" / "val" / ".hidden").mkdir()
    return tmp_path / "photographs"


def test_image_folders_are_read_lazily(photographs: Path) -> None:
    data = load_dataset(str(photographs), resize=(224, 224), shorter_side=256)
    assert (data.name, data.num_classes, data.class_names) == ("photographs", 3, ("n01", "n02", "n03"))
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2]
    inputs = data.inputs([5, 0, 2])
    assert inputs.shape == (3, 3, 224, 224)
    assert inputs.dtype == np.float32
    assert 0 <= inputs.min() < inputs.max() <= 1
    assert np.array_equal(inputs[1, 0], inputs[1, 2])  # grey stays grey
    assert np.array_equal(data.inputs(slice(5, 6))[0], inputs[0])
    first = data.digest
    Image.new("RGB", (300, 500)).save(photographs / "val" / "n02" / "1.png")
    assert load_dataset(str(photographs), resize=(224, 224), shorter_side=256).digest != first


def _folder_digest(folder: Path) -> str:
    return load_dataset(str(folder)).digest


def test_every_byte_of_every_image_is_in_the_digest(tmp_path: Path) -> None:
    """Changes at the start and in the middle count, with equal file size and end, over several shares of files."""
    place = tmp_path / "many" / "class"
    place.mkdir(parents=True)
    for number in range(150):
        (place / f"{number:03}.png").write_bytes(bytes([number]) * 9000)
    first = _folder_digest(tmp_path / "many")
    assert _folder_digest(tmp_path / "many") == first
    for name, position in (("000.png", 0), ("077.png", 4500), ("149.png", 8999)):
        content = bytearray((place / name).read_bytes())
        content[position] ^= 1
        (place / name).write_bytes(content)
        assert _folder_digest(tmp_path / "many") != first
        content[position] ^= 1
        (place / name).write_bytes(content)
        assert _folder_digest(tmp_path / "many") == first


def test_names_and_places_of_images_are_in_the_digest(tmp_path: Path) -> None:
    def digest_of(files: dict[str, bytes], *classes: str) -> str:
        folder = tmp_path / f"folder-{len(list(tmp_path.iterdir()))}"
        for name in classes:
            (folder / name).mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return _folder_digest(folder)

    others = [
        digest_of({"a/1.png": b"xy", "a/2.png": b"z"}, "a"),
        digest_of({"a/1.png": b"x", "a/2.png": b"yz"}, "a"),
        digest_of({"a/1.png": b"z", "a/2.png": b"xy"}, "a"),
        digest_of({"a/1.png": b"xy", "a/3.png": b"z"}, "a"),
        digest_of({"a/1.png": b"xy", "b/2.png": b"z"}, "a", "b"),
        digest_of({"a/1.png": b"xy", "a/2.png": b"z"}, "a", "b"),
        digest_of({"a/1.png": b"xy"}, "a"),
    ]
    assert len(set(others)) == len(others)
    assert digest_of({"a/1.png": b"xy", "a/2.png": b"z"}, "a") == others[0]


def test_the_centre_is_cut_from_the_right_place(tmp_path: Path) -> None:
    """A 512x256 image needs no resizing of its shorter side; its centre starts at (144, 16)."""
    rows, columns = np.mgrid[0:256, 0:512]
    pixels = np.stack([columns % 256, rows, columns // 256], axis=2).astype(np.uint8)
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels).save(tmp_path / "a" / "x.png")
    data = load_dataset(str(tmp_path), resize=(224, 224), shorter_side=256)
    cut = np.rint(data.inputs([0])[0] * 255).astype(int)
    assert np.array_equal(cut, pixels[16:240, 144:368].transpose(2, 0, 1))


def test_imagenet_needs_all_its_classes(photographs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMOOTHCERT_IMAGENET", str(photographs))
    with pytest.raises(DataError, match="3 class folders, but imagenet has 1000"):
        load_dataset("imagenet")
    for number in range(997):
        (photographs / "val" / f"n1{number:04}").mkdir()
    data = load_dataset("imagenet")
    assert (data.name, data.num_classes, len(data)) == ("imagenet", 1000, 6)
    assert load_dataset("imagenet", root=photographs).digest == data.digest
    assert load_dataset(str(photographs), resize=(224, 224), shorter_side=256).digest == data.digest
    assert data.input_shape == (3, 224, 224)
    photographs.rename(photographs.parent / "imagenet")
    assert load_dataset("imagenet", root=photographs.parent).digest == data.digest


def test_image_folder_mistakes(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="has val but not train"):
        load_dataset(str(photographs), split="train")
    (tmp_path / "flat").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "flat" / "x.png")
    with pytest.raises(DataError, match="no images in class folders"):
        load_dataset(str(tmp_path / "flat"))
    (photographs / "val" / "n01" / "0.png").write_bytes(b"rubbish")
    with pytest.raises(DataError, match="cannot be read as an image"):
        load_dataset(str(photographs)).inputs([0])
    monkeypatch.setenv("SMOOTHCERT_IMAGENET", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="is not a folder"):
        load_dataset("imagenet")
    monkeypatch.delenv("SMOOTHCERT_IMAGENET")
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path / "empty"))
    with pytest.raises(DataError, match="set SMOOTHCERT_IMAGENET"):
        load_dataset("imagenet")


# -------------------------------------------------------------------------------- the real ones, if here


def _stored(name: str, split: str = "test") -> Dataset:
    if not data_store.has_files(PUBLISHED[name if name in PUBLISHED else "mnist"], data_store.default_root()):
        pytest.skip(f"{name} has not been fetched")
    return load_dataset(name, split=split, fetch_missing=False)


def test_real_mnist() -> None:
    data = _stored("mnist")
    assert data.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_real_cifar10_has_the_usual_classes_and_means() -> None:
    test = _stored("cifar10")
    assert [test.class_names[label] for label in test.labels[:4]] == ["cat", "ship", "ship", "airplane"]
    assert np.rint(test.inputs([0])[0, :, 0, 0] * 255).tolist() == [158, 112, 49]
    train = _stored("cifar10", "train").inputs(slice(None))
    assert np.allclose(train.mean(axis=(0, 2, 3), dtype=np.float64), (0.4914, 0.4822, 0.4465), atol=5e-5)


def test_real_fashion_mnist_starts_with_a_boot() -> None:
    data = _stored("fashion-mnist")
    assert [data.class_names[label] for label in data.labels[:3]] == ["Ankle boot", "Pullover", "Trouser"]


@pytest.mark.parametrize(
    ("name", "split", "digest"),
    [
        ("small-mnist-pca", "train", "afacbd80ea954cd9a35b88d303c0f6d66be40bddcd78d21b38223fd3e842c1a8"),
        ("small-mnist-pca", "test", "f3be067e9e9703933a704a4f086b15338b09d853d8ebb362b52deaf7e869fd65"),
        ("levine-mnist-pca", "train", "2ba61bf3b35f921bc5ea2f38fbe25fac939cab05ff80983b06921983d049fc83"),
        ("levine-mnist-pca", "test", "fd5f9a26de7c281ca46192d39afeee217ade7bd680789c9b4703b7e29fbd9191"),
    ],
)
def test_real_small_mnist_pca_is_the_same_everywhere(name: str, split: str, digest: str) -> None:
    data = _stored(name, split)
    assert data.digest == digest
    if split == "train":
        values = data.inputs(slice(None)).astype(np.float64)
        covariance = np.cov(values.T)
        assert np.abs(values.mean(axis=0)).max() < 1e-6
        assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 1e-6
        assert (np.diff(np.diag(covariance)) < 0).all()
        blocks = _stored("small-mnist", split).inputs(slice(None)).astype(np.float64)
        assert np.trace(covariance) / blocks.var(axis=0).sum() == pytest.approx(0.7864, abs=5e-5)


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_two_kinds_of_components_differ_in_two_signs(split: str) -> None:
    ours, theirs = (_stored(name, split).inputs(slice(None)) for name in ("small-mnist-pca", "levine-mnist-pca"))
    assert np.array_equal(theirs, ours * np.array([1, 1, 1, 1, 1, 1, 1, -1, 1, -1], dtype=np.float32))
    if split == "train":
        largest, smallest = theirs.max(axis=0), -theirs.min(axis=0)
        assert (largest > 1.01 * smallest).all()  # so no rounding of theirs can have turned a sign


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, smoothcert.data\n"
        "[getattr(smoothcert.data, name) for name in smoothcert.data.__all__]\n"
        "print([m for m in ('torch', 'sklearn', 'PIL', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Folders of images: their own size, or the size that was requested, in 8 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothcert.data import load_dataset, parse_resize
from smoothcert.data.images import open_image_folder
from smoothcert.errors import DataError, InputError
from smoothcert.noise import to_grid


def write_images(folder: Path, *sizes: tuple[int, int], mode: str = "RGB") -> Path:
    """One image of each (height, width), in two classes in turn."""
    rng = np.random.default_rng(0)
    for number, (height, width) in enumerate(sizes):
        place = folder / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        shape = (height, width) if mode == "L" else (height, width, 3)
        Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)).save(place / f"{number}.png")
    return folder


def test_images_keep_their_size(tmp_path: Path) -> None:
    """Fails where every image becomes 224x224."""
    data = load_dataset(str(write_images(tmp_path, (20, 30), (20, 30))))
    assert data.input_shape == (3, 20, 30)
    with Image.open(tmp_path / "b" / "1.png") as image:
        expected = np.asarray(image).transpose(2, 0, 1)
    assert np.array_equal(data.inputs([1])[0], (expected / 255).astype(np.float32))


def test_images_of_several_sizes_are_listed(tmp_path: Path) -> None:
    data = load_dataset(str(write_images(tmp_path, (20, 30), (20, 30), (31, 20))))
    with pytest.raises(DataError, match=r"2 sizes, HEIGHT,WIDTH = 20,30 \(2 images\), 31,20 \(1 images\)") as error:
        data.input_shape  # noqa: B018
    assert "--resize HEIGHT,WIDTH" in str(error.value)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"resize": (8, 12)}, (3, 8, 12)),
        ({"resize": (16, 12), "shorter_side": 18}, (3, 16, 12)),
        ({"input_shape": (1, 8, 8)}, (1, 8, 8)),
        ({"input_shape": (3, 8, 12), "resize": (8, 12)}, (3, 8, 12)),
        ({"resize": (40, 50)}, (3, 40, 50)),
    ],
)
def test_resized_images_lie_on_the_grid_of_their_bytes(
    tmp_path: Path, options: dict[str, tuple[int, ...]], shape: tuple[int, ...]
) -> None:
    folder = write_images(tmp_path, (20, 30), (31, 20))
    data = load_dataset(str(folder), **options)
    inputs = data.inputs([0, 1])
    assert data.input_shape == shape
    assert inputs.shape == (2, *shape)
    assert data.levels == 256
    to_grid(inputs, 256)  # an InputError where a value lies between the levels
    assert np.array_equal(load_dataset(str(folder), **options).inputs([0, 1]), inputs)


def test_every_form_has_another_digest(tmp_path: Path) -> None:
    folder = write_images(tmp_path, (8, 8), (8, 8))
    forms = [
        {},
        {"resize": (8, 8)},
        {"resize": (8, 7)},
        {"resize": (7, 8)},
        {"resize": (7, 7), "shorter_side": 8},
        {"resize": (7, 7), "shorter_side": 9},
        {"input_shape": (1, 7, 7)},
    ]
    digests = [load_dataset(str(folder), **form).digest for form in forms]
    assert len(set(digests)) == len(forms)


def test_a_resized_image_is_a_weighted_mean_of_the_pixels_it_covers(tmp_path: Path) -> None:
    """Halved: weights 1/8, 3/8, 3/8, 1/8 along each side, from a triangle two output pixels wide."""
    (tmp_path / "a").mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a" / "x.png")
    found = load_dataset(str(tmp_path), input_shape=(1, 4, 4)).inputs([0])[0, 0] * 255
    weights = np.zeros((4, 8))
    for row in range(4):
        for column, weight in zip(range(2 * row - 1, 2 * row + 3), (1, 3, 3, 1), strict=True):
            if 0 <= column < 8:
                weights[row, column] = weight
    weights /= weights.sum(axis=1, keepdims=True)
    assert np.abs(found - weights @ pixels @ weights.T).max() <= 1.01  # each of two passes rounds to 8 bits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, (None, None)),
        ("32", ((32, 32), None)),
        ("32,48", ((32, 48), None)),
        ("32x48", ((32, 48), None)),
        ("256:224", ((224, 224), 256)),
        ("64:32,48", ((32, 48), 64)),
    ],
)
def test_resize_as_text(text: str | None, expected: object) -> None:
    assert parse_resize(text) == expected


@pytest.mark.parametrize("text", ["", "a", "1,2,3", ":32", "256:", "big:32", "3.5"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected HEIGHT,WIDTH such as 32,32, or SHORTER:SIDE"):
        parse_resize(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resize": (0, 8)}, "cannot be resized"),
        ({"resize": (8, 100_000)}, "cannot be resized"),
        ({"resize": (8, 8), "shorter_side": 7}, "cannot be cut out"),
        ({"shorter_side": 7}, "cannot be cut out"),
        ({"input_shape": (2, 8, 8)}, "2 channels"),
        ({"input_shape": (8, 8)}, "expected .channels, height, width"),
        ({"input_shape": (3, 8, 8), "resize": (8, 9)}, "expected .channels, 8, 9"),
        ({"num_classes": 3}, "only for your own files"),
    ],
)
def test_impossible_forms_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    folder = write_images(tmp_path, (8, 8))
    with pytest.raises(InputError, match=message):
        load_dataset(str(folder), **options)  # type: ignore[arg-type]


def test_only_folders_are_resized(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3)))
    with pytest.raises(InputError, match="resize is for folders of images"):
        load_dataset(str(tmp_path / "x.npz"), resize=(2, 2))
    with pytest.raises(InputError, match="only for your own files"):
        load_dataset("digits", resize=(2, 2))


def test_sixteen_bits_are_not_cut_to_eight(tmp_path: Path) -> None:
    """Fails where Pillow converts: 300 and 60000 both become 255."""
    (tmp_path / "a").mkdir()
    Image.fromarray(np.array([[300, 60000]], dtype=np.uint16)).save(tmp_path / "a" / "x.png")
    with pytest.raises(DataError, match="more than 8 bits per value"):
        load_dataset(str(tmp_path)).inputs([0])


def test_an_image_that_changes_its_size_is_noticed(tmp_path: Path) -> None:
    data = load_dataset(str(write_images(tmp_path, (8, 8), (8, 8))))
    assert data.input_shape == (3, 8, 8)
    Image.new("RGB", (1, 1)).save(tmp_path / "a" / "0.png")
    with pytest.raises(DataError, match="has changed"):
        data.inputs([0])


def test_imagenet_has_the_digest_it_always_had(tmp_path: Path) -> None:
    """So that runs on it are resumed."""
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"xy")
    digest = open_image_folder("imagenet", tmp_path, split="test").digest
    assert digest == "5e24c58109d1d29e710a43e448ca0336441b357274178aa5f49703f4af324e3c"

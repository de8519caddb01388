"""Files of data made to do harm: whatever is in them, a dataset or a DataError, at no great cost."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import struct
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreseen import foreseen
from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.decoding import read_json_labels, read_row_image
from smoothcert.data.idx import decode_idx, encode_idx
from smoothcert.data.images import open_image_folder, read_image
from smoothcert.data.user_files import load_file
from smoothcert.errors import DataError

Memory = Callable[[], int]


def npy(shape: str, descr: str = "'<f4'", content: bytes = b"\0" * 64, *, version: bytes = b"\x01\x00") -> bytes:
    """A .npy file whose header says what it is told to."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(header))
    return b"\x93NUMPY" + version + length + header + content


def npz(**members: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return held.getvalue()


def loaded(path: Path, content: bytes) -> ArrayDataset:
    path.write_bytes(content)
    return load_file(path, split="test", input_range=(0.0, 1.0))


SHAPES = {
    "fourteen terabytes": "(1000000000000, 4)",
    "more than there are addresses": "(4294967296, 4294967296)",
    "beyond 64 bits": "(99999999999999999999999, 4)",
    "negative": "(-1, 4)",
    "not a number": "(True, 4)",
    "not a tuple": "7",
    "nested": "((1,),)",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_header_that_lies_about_its_size(tmp_path: Path, little_memory: Memory, shape: str, packed: bool) -> None:
    """Fails where numpy is asked at once: it makes room first (MemoryError), or stumbles (OverflowError, TypeError)."""
    content = npz(x=npy(shape)) if packed else npy(shape)
    with pytest.raises(DataError, match="damaged or not a numpy file"):
        loaded(tmp_path / ("x.npz" if packed else "x.npy"), content)


def test_an_archive_that_unpacks_to_gigabytes_of_nothing(
    tmp_path: Path, little_memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails where members are unpacked unseen: two megabytes become two gigabytes, in half a minute."""
    from smoothcert.data import user_files as files

    monkeypatch.setattr(files, "_BOMB_BYTES", 2**22)
    bomb = npz(x=npy("(8388608, 4)", "'|u1'", b"\0" * 2**25))
    assert len(bomb) < 2**25 / 200
    with pytest.raises(DataError, match=r"unpacking .* bytes is refused"):
        loaded(tmp_path / "x.npz", bomb)


def test_real_arrays_of_zeros_are_no_bomb(tmp_path: Path) -> None:
    """Fails where every good compression is refused."""
    held = io.BytesIO()
    np.savez_compressed(held, x=np.zeros((1000, 28, 28), dtype=np.uint8), y=np.zeros(1000, dtype=np.int64))
    assert len(loaded(tmp_path / "x.npz", held.getvalue())) == 1000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", b"0.1,0.2,2000000000\n"),
        ("x.npz", npz(x=npy("(1, 2)"), y=npy("(1,)", "'<i8'", struct.pack("<q", 10**9)))),
        ("x.npz", npz(x=npy("(2, 2)"), y=npy("(2,)", "'<i8'", b"\0" * 16), y_train=npy("(1,)", "'<u8'", b"\xff" * 8))),
    ],
    ids=["csv", "npz", "the labels of the other split"],
)
def test_one_label_does_not_fill_the_memory(tmp_path: Path, little_memory: Memory, name: str, content: bytes) -> None:
    """Fails where every class below the largest label gets a name: a line of text took forty seconds and all memory."""
    began = time.perf_counter()
    with pytest.raises(DataError, match="expected whole numbers 0, 1, 2, …"):
        loaded(tmp_path / name, content)
    assert time.perf_counter() - began < 5


class Runs:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("packed", [False, True])
def test_objects_in_arrays_are_not_unpickled(tmp_path: Path, packed: bool) -> None:
    """Fails with allow_pickle=True: the folder would be there."""
    trap = tmp_path / "trapped"
    content = npy("(2, 2)", "'|O'", pickle.dumps(Runs(trap)))
    content = npz(x=npy("(1, 2)"), class_names=content) if packed else content
    with pytest.raises(DataError, match="never unpickled"):
        loaded(tmp_path / ("x.npz" if packed else "x.npy"), content)
    assert not trap.exists()


@given(where=st.integers(0, 400), new=st.binary(min_size=1, max_size=8), ending=st.sampled_from(["npy", "npz", "csv"]))
def test_damaged_files_are_data_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, where: int, new: bytes, ending: str
) -> None:
    """Fails where only the errors that numpy documents are foreseen."""
    held = io.BytesIO()
    x, y = np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4), np.arange(6)
    if ending == "csv":
        sound = b"a,b,label\n" + b"".join(b"0.%d,0.5,%d\n" % (k, k % 3) for k in range(9))
    else:
        np.save(held, x) if ending == "npy" else np.savez(held, x=x, y=y)
        sound = held.getvalue()
    where %= len(sound)
    path = tmp_path_factory.mktemp("data") / f"x.{ending}"
    found = foreseen(lambda: loaded(path, sound[:where] + new + sound[where + len(new) :]))
    if found is None:
        return
    values = found.inputs(slice(None))
    assert np.isfinite(values).all()
    assert values.min() >= 0
    assert values.max() <= 1


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_any_json_is_labels_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    """Fails where a label that is true, or 256, wraps around."""
    path = tmp_path_factory.mktemp("json") / "labels.json"
    path.write_text(json.dumps(document))
    try:
        assert read_json_labels(path).tolist() == document
    except DataError:
        assert not isinstance(document, list) or any(type(k) is not int or not 0 <= k < 256 for k in document)


@pytest.mark.parametrize("content", [b"[" * 200_000, b"[" + b"1" * 5000 + b"]", b"\xff", b"{", b""])
def test_json_that_is_too_much_for_its_reader(tmp_path: Path, content: bytes) -> None:
    """Fails where a RecursionError, or a number of five thousand digits, goes through."""
    path = tmp_path / "labels.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="not a json list of labels"):
        read_json_labels(path)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=12), st.binary(max_size=40))
def test_idx_shapes_are_believed_only_with_their_bytes(shape: list[int], content: bytes) -> None:
    """Fails where room is made for the shape first, and where nothing is given sides that no array can have."""
    file = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + content
    if math.prod(shape) == len(content):
        found = foreseen(lambda: decode_idx(file, name="x"))
        assert encode_idx(found) == file if found is not None else 0 in shape
        return
    with pytest.raises(DataError, match="bytes, but shape"):
        decode_idx(file, name="x")


class TestImages:
    @pytest.fixture(autouse=True)
    def _pillow(self) -> None:
        pytest.importorskip("PIL")

    def test_an_image_of_one_column_is_not_made_gigabytes(self, tmp_path: Path, little_memory: Memory) -> None:
        """Fails where it is resized before it is looked at: 1x60000 pixels in 200 bytes become 12 GB."""
        from PIL import Image

        Image.new("RGB", (1, 60_000)).save(tmp_path / "long.png")
        with pytest.raises(DataError, match="at most 100,000,000 are supported"):
            read_image(tmp_path / "long.png")

    def test_a_picture_of_two_hundred_megapixels(self, tmp_path: Path, little_memory: Memory) -> None:
        """Fails with Image.MAX_IMAGE_PIXELS = None."""
        from PIL import Image

        Image.new("1", (14_000, 14_000)).save(tmp_path / "large.png")
        with pytest.raises(DataError, match="cannot be read as an image"):
            read_image(tmp_path / "large.png")

    @given(where=st.integers(0, 10_000), new=st.binary(min_size=1, max_size=6), kind=st.sampled_from(["PNG", "TIFF"]))
    def test_damaged_images_are_an_image_or_a_sentence(
        self, tmp_path_factory: pytest.TempPathFactory, where: int, new: bytes, kind: str
    ) -> None:
        """Fails where only OSError is foreseen: Pillow also raises struct.error, IndexError, TypeError …"""
        from PIL import Image

        held = io.BytesIO()
        Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(held, kind)
        sound = held.getvalue()
        where %= len(sound)
        path = tmp_path_factory.mktemp("image") / f"x.{kind.lower()}"
        path.write_bytes(sound[:where] + new + sound[where + len(new) :])
        for read in (read_image, lambda path: read_row_image(path, rows=8)):
            image = foreseen(partial(read, path))
            assert image is None or image.dtype == np.uint8

    def test_names_that_are_no_text(self, tmp_path: Path) -> None:
        """Fails where names are encoded strictly: the digest of the folder was a UnicodeEncodeError."""
        from PIL import Image

        (tmp_path / "cats").mkdir()
        (tmp_path / "dogs").mkdir()
        name = os.fsdecode(os.fsencode(tmp_path / "cats") + b"/\xff\xfe.png")
        Image.new("RGB", (8, 8)).save(name, format="PNG")
        first = open_image_folder("pets", tmp_path, split="test").digest
        os.rename(name, tmp_path / "cats" / "other.png")
        assert open_image_folder("pets", tmp_path, split="test").digest != first

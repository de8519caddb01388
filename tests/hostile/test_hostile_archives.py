"""Archives made to do harm: nothing outside the folder, no links, no devices, and no more than was agreed on."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreseen import foreseen
from smoothcert.data.download_sources import download
from smoothcert.data.extraction import extract_archive
from smoothcert.errors import DataError

LIMIT = 1_000_000


def tgz(path: Path, fill: Callable[[tarfile.TarFile], object], *, form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=form) as archive:
        fill(archive)
    return path


def add(archive: tarfile.TarFile, name: str, content: bytes = b"x", **fields: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in fields.items():
        setattr(member, key, value)
    archive.addfile(member, io.BytesIO(content))


def unpacked(archive: Path, place: Path) -> set[str]:
    place.mkdir(exist_ok=True)
    extract_archive(archive, place, size_limit=LIMIT)
    return {str(found.relative_to(place)) for found in place.rglob("*")}


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"], ids=["pax", "pax for all", "long name", "long link"])
def test_a_header_that_unpacks_to_gigabytes(tmp_path: Path, little_memory: Callable[[], int], kind: bytes) -> None:
    """Fails where tarfile decompresses: it reads such headers whole, 1.5 GB from an archive of 1.5 MB."""
    size = 300_000_000
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = kind, size
    bomb = tmp_path / "bomb.tgz"
    with gzip.open(bomb, "wb", compresslevel=1) as stream:
        stream.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(size // 1_000_000):
            stream.write(b"\0" * 1_000_000)
    held = little_memory()
    with pytest.raises(DataError, match=r"unpacks to more than the limit|cannot be unpacked"):
        unpacked(bomb, tmp_path / "out")
    assert little_memory() - held < 100_000_000
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "headers",
    [
        {"size": "-5"},
        {"size": "9" * 30},
        {"mtime": "1e999"},
        {"mtime": "nan"},
        {"GNU.sparse.map": "a,b", "GNU.sparse.size": "10"},
        {"GNU.sparse.map": "0,1,99999999999999999999,5", "GNU.sparse.size": "10"},
        {"GNU.sparse.size": "9" * 20},
        {"GNU.sparse.realsize": "-1", "GNU.sparse.name": "g", "GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
    ],
    ids=str,
)
def test_headers_that_make_no_sense(tmp_path: Path, headers: dict[str, str]) -> None:
    """Fails where only tarfile's own errors are foreseen: numbers in headers raise OverflowError and ValueError."""
    archive = tgz(tmp_path / "x.tgz", lambda tar: add(tar, "f", pax_headers=headers))
    with pytest.raises(DataError, match=r"x\.tgz"):
        unpacked(archive, tmp_path / "out")


LINKS = {
    "symlink out": ("/etc/passwd", tarfile.SYMTYPE),
    "symlink in": ("f", tarfile.SYMTYPE),
    "hard link": ("f", tarfile.LNKTYPE),
    "device": ("", tarfile.CHRTYPE),
    "fifo": ("", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize(("target", "kind"), LINKS.values(), ids=LINKS)
def test_neither_links_nor_devices(tmp_path: Path, target: str, kind: bytes) -> None:
    """Fails with filter="tar", which makes links; writing through one leads anywhere."""

    def fill(tar: tarfile.TarFile) -> None:
        add(tar, "f")
        add(tar, "link", b"", type=kind, linkname=target)
        add(tar, "link/inside", b"y")

    with pytest.raises(DataError, match="neither a file nor a folder"):
        unpacked(tgz(tmp_path / "x.tgz", fill), tmp_path / "out")
    assert {found.name for found in (tmp_path / "out").iterdir()} <= {"f"}


@pytest.mark.parametrize("name", ["../f", "a/../../f", "a/./../../out2/f", "../out/../f"])
def test_no_way_out(tmp_path: Path, name: str) -> None:
    """Fails with filter="fully_trusted"."""
    with pytest.raises(DataError, match="outside its folder"):
        unpacked(tgz(tmp_path / "x.tgz", lambda tar: add(tar, name)), tmp_path / "out")
    assert {found.name for found in tmp_path.iterdir()} == {"x.tgz", "out"}


def test_modes_are_not_taken_over(tmp_path: Path) -> None:
    """Fails with filter="fully_trusted": a file of others could be left set-user-id."""
    unpacked(tgz(tmp_path / "x.tgz", lambda tar: add(tar, "f", mode=0o6777)), tmp_path / "out")
    assert (tmp_path / "out" / "f").stat().st_mode & 0o7022 == 0


@given(cut=st.integers(0, 600), new=st.binary(max_size=5))
def test_cut_and_damaged_archives(tmp_path_factory: pytest.TempPathFactory, cut: int, new: bytes) -> None:
    """Fails where zlib's and lzma's own errors go through."""
    place = tmp_path_factory.mktemp("tar")
    sound = tgz(place / "x.tgz", lambda tar: [add(tar, f"f{k}", os.urandom(40)) for k in range(3)]).read_bytes()
    cut %= len(sound)
    (place / "x.tgz").write_bytes(sound[:cut] + new + (sound[cut + len(new) :] if new else b""))
    found = foreseen(lambda: unpacked(place / "x.tgz", place / "out"))
    assert found is None or found <= {"f0", "f1", "f2"}


def test_what_is_appended_is_not_read(tmp_path: Path) -> None:
    """Fails where an archive with something behind it is an error: npm's are sometimes filled up."""
    archive = tgz(tmp_path / "x.tgz", lambda tar: add(tar, "f"))
    archive.write_bytes(archive.read_bytes() + b"PK\x03\x04 something else")
    assert unpacked(archive, tmp_path / "out") == {"f"}


class TestDebianPackages:
    @pytest.fixture(autouse=True)
    def _dpkg(self) -> None:
        if shutil.which("dpkg-deb") is None:
            pytest.skip("dpkg-deb is not installed")

    def deb(self, place: Path, fill: Callable[[Path], object]) -> Path:
        root = place / "root"
        (root / "DEBIAN").mkdir(parents=True)
        fields = {"Package": "x", "Version": "1", "Architecture": "all", "Maintainer": "x <x@x.x>", "Description": "x"}
        (root / "DEBIAN" / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
        fill(root)
        package = place / "x.deb"
        build = ["dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "--build", str(root), str(package)]
        subprocess.run(build, check=True, capture_output=True)
        return package

    def test_a_bomb_reaches_neither_disk_nor_memory(self, tmp_path: Path, little_memory: Callable[[], int]) -> None:
        """Fails where dpkg-deb writes its whole answer first: half a megabyte put three gigabytes on the disk."""

        def fill(root: Path) -> None:
            with (root / "zeros").open("wb") as stream:
                stream.truncate(400_000_000)

        package = self.deb(tmp_path, fill)
        (tmp_path / "root" / "zeros").unlink()
        began = time.perf_counter()
        with pytest.raises(DataError, match="unpacks to more than"):
            unpacked(package, tmp_path / "out")
        assert time.perf_counter() - began < 10
        assert not any(found.is_file() for found in (tmp_path / "out").rglob("*"))

    def test_links_are_refused(self, tmp_path: Path) -> None:
        """Fails with `dpkg-deb --extract`, which makes them."""
        package = self.deb(tmp_path, lambda root: (root / "link").symlink_to("/etc"))
        with pytest.raises(DataError, match="neither a file nor a folder"):
            unpacked(package, tmp_path / "out")

    @pytest.mark.parametrize("keep", [0, 8, 70, 200, -20])
    def test_a_package_cut_short(self, tmp_path: Path, keep: int) -> None:
        """Fails where what came before the cut is taken for all of it."""
        package = self.deb(tmp_path, lambda root: (root / "f").write_bytes(os.urandom(5000)))
        package.write_bytes(package.read_bytes()[:keep])
        with pytest.raises(DataError, match=r"x\.deb cannot be unpacked"):
            unpacked(package, tmp_path / "out")


def test_a_server_that_breaks_the_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where only OSErrors are foreseen: http.client has exceptions of its own."""
    import http.client

    class Answer(io.BytesIO):
        headers = SimpleNamespace(get=lambda name, other: other)

        def geturl(self) -> str:
            return "https://example.invalid/x"

        def read(self, size: int | None = -1, /) -> bytes:
            raise http.client.IncompleteRead(b"half")

    def answers(*_: object, **__: object) -> Iterator[Answer]:
        return Answer()  # type: ignore[return-value]

    monkeypatch.setattr("urllib.request.urlopen", answers)
    with pytest.raises(DataError, match="cannot be reached"):
        download("https://example.invalid/x", tmp_path / "x", size_limit=10, report=lambda _: None)

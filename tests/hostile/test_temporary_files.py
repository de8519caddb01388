"""Temporary files of killed processes are removed by the next writer; those of living ones are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoothcert import files
from smoothcert.errors import ModelError
from smoothcert.files import remove_dead_parts, write_whole, write_whole_directory
from smoothcert.models.checkpoints import read_tensors

_WRITER = """
import sys, time
from pathlib import Path
from smoothcert.files import write_whole, write_whole_directory

def wait(*_):
    print("writing", flush=True)
    time.sleep(600)

if sys.argv[1] == "file":
    write_whole(Path(sys.argv[2]), lambda stream: (stream.write(b"half"), wait()))
else:
    with write_whole_directory(Path(sys.argv[2])) as place:
        (place / "inside").write_text("half")
        wait()
"""


def begin_writing(kind: str, path: Path) -> subprocess.Popen[str]:
    """Another process that has begun to write and will not end by itself."""
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, kind, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    return writer


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.part"))


def write(kind: str, path: Path) -> None:
    if kind == "file":
        write_whole(path, b"whole")
    else:
        with write_whole_directory(path) as place:
            (place / "inside").write_text("whole")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_of_a_living_process_and_after_its_death(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    writer = begin_writing(kind, path)
    try:
        (living,) = parts(tmp_path)
        write(kind, path)
        assert parts(tmp_path) == [living]
        if kind == "directory":
            assert [file.name for file in living.iterdir()] == ["inside"]
    finally:
        writer.kill()
        writer.communicate(timeout=60)
    assert parts(tmp_path) == [living]
    write(kind, tmp_path / "y")  # of another name: not its business
    assert parts(tmp_path) == [living]
    if kind == "directory":
        path.rename(tmp_path / "z")
    write(kind, path)
    assert parts(tmp_path) == []
    assert (path / "inside" if kind == "directory" else path).read_text() == "whole"


def test_only_temporary_names_are_removed(tmp_path: Path) -> None:
    kept = [
        "x.part",
        ".x.part",
        ".x.abc.part",
        ".x.ABCDEFGH.part",
        ".x.abcdefgh.partial",
        ".xy.abcdefgh.part",
        "x.partial",
    ]
    for name in (*kept, ".x.abcdefgh.part", ".x.abcd_123.part"):
        (tmp_path / name).write_text("")
    (tmp_path / ".x.abcdefg0.part").mkdir()
    (tmp_path / ".x.abcdefg0.part" / "inside").write_text("")
    remove_dead_parts(tmp_path, ".x.")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(kept)
    remove_dead_parts(tmp_path)
    assert not (tmp_path / ".xy.abcdefgh.part").exists()
    remove_dead_parts(tmp_path / "nowhere")


def test_a_part_removed_before_it_was_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may look at it between its creation and its lock."""
    lock, removed = files._lock, []

    def remove_first(descriptor: int) -> bool:
        if not removed:
            removed.extend(parts(tmp_path))
            removed[0].unlink()
        return lock(descriptor)

    monkeypatch.setattr(files, "_lock", remove_first)
    write_whole(tmp_path / "x", b"whole")
    assert removed
    assert [file.name for file in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"whole"


def test_a_directory_is_whole_or_absent(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), write_whole_directory(tmp_path / "x") as place:
        (place / "nowhere" / "inside").write_text("")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x").mkdir()  # an empty one is taken
    write("directory", tmp_path / "x")
    with pytest.raises(FileExistsError, match="x already exists"):
        write("directory", tmp_path / "x")
    (tmp_path / "y").write_text("")
    with pytest.raises(FileExistsError, match="y already exists"):
        write("directory", tmp_path / "y")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x", "y"]


def test_permissions_are_those_of_a_new_directory(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    write("directory", tmp_path / "x")
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_failed_write_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a full disk has no file name of its own."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/x'"):
        write_whole(tmp_path / "x", b"")
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_model_file_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors itself says that there is no such file. Tests run as root, who may read everything."""
    path = tmp_path / "m.safetensors"
    with pytest.raises(ModelError, match="there is no file"):
        read_tensors(path)
    path.write_bytes(b"")

    def refuse(self: Path, *_: object) -> object:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelError, match=r"m.safetensors cannot be read: Permission denied"):
        read_tensors(path)

"""TorchScript: modules and files are base classifiers, and programs that reach for files are refused."""

from __future__ import annotations

import re
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.errors import InputError, ModelError
from smoothcert.models import load_classifier
from smoothcert.models.checkpoints import ForeignCheckpointWarning
from smoothcert.models.votes import LogitsWarning
from smoothcert.smoothed import SmoothedClassifier

pytestmark = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.:DeprecationWarning")

SIZE = 64
INPUTS = np.random.default_rng(0).random((3, SIZE), dtype=np.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Two(Net):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        return self.layers(x), x[:, None]


class Saving(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + torch.from_file("secret", False, 1, dtype=torch.float32)


def scripted(kind: str) -> Any:
    net = Net().eval()
    return torch.jit.trace(net, torch.zeros(2, SIZE)) if kind == "trace" else torch.jit.script(net)


def save(module: Any, path: Path) -> Path:
    torch.jit.save(module, str(path))
    return path


def votes(model: Any) -> list[Any]:
    smoothed = SmoothedClassifier(model, sigma=0.25, seed=3, batch=64, workers=1)
    points = smoothed.certify(INPUTS, n0=20, n=200)
    assert smoothed.checks.asked > 0
    return [[tally.counts.tolist() for tally in point.tallies] for point in points]  # type: ignore[union-attr]


PLAIN = votes(Net())


@pytest.mark.parametrize("kind", ["trace", "script"])
def test_modules(kind: str) -> None:
    assert votes(scripted(kind)) == PLAIN


def test_a_script_in_training_mode_is_evaluated_and_left_as_it_was() -> None:
    script = torch.jit.script(Net().train())
    assert votes(script) == PLAIN
    assert script.training
    assert all(part.training for part in script.modules())


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_files(suffix: str, tmp_path: Path) -> None:
    path = save(scripted("script"), tmp_path / f"net{suffix}")
    with pytest.warns(ForeignCheckpointWarning, match="TorchScript program.*SHA-256"):
        assert votes(path) == PLAIN


def test_a_file_that_answers_with_a_tuple(tmp_path: Path) -> None:
    path = save(torch.jit.script(Two().eval()), tmp_path / "two.pt")
    with (
        pytest.warns(ForeignCheckpointWarning),
        pytest.warns(LogitsWarning, match="the first of its 2 parts is taken as its logits"),
    ):
        assert votes(path) == PLAIN


def test_equal_files_have_equal_digests(tmp_path: Path) -> None:
    paths = [save(scripted("script"), tmp_path / name) for name in ("one.pt", "two.pt")]
    with pytest.warns(ForeignCheckpointWarning):
        one, two = (load_classifier(path, input_shape=(SIZE,)) for path in paths)
    assert one.digest == two.digest


def test_on_the_command_line(tmp_path: Path) -> None:
    path = save(scripted("script"), tmp_path / "net.pt")
    given = ("--data", "digits", "--sigma", 0.25, "--max", 2, "--n0", 20, "--n", 100, "--batch", 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignCheckpointWarning)
        result = invoke(app, "certify", "--model", path, *given, "--out", tmp_path / "run")
        again = invoke(app, "certify", "--model", path, *given, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert again.exit_code == 0, again.output


def test_a_program_that_reaches_for_files_is_refused(tmp_path: Path) -> None:
    path = save(torch.jit.script(Saving().eval()), tmp_path / "evil.pt")
    with pytest.raises(ModelError, match="its program mentions from_file"):
        load_classifier(path, input_shape=(SIZE,))


def edit(path: Path, *, forward: str = "", main_class: bytes = b"") -> Path:
    """The same archive, as torch writes it, with other code: in `forward`, or another class in its pickle."""
    reader = torch._C.PyTorchFileReader(str(path))
    records = {name: reader.get_record(name) for name in reader.get_all_records()}
    main = next(name for name in records if name.endswith(".py") and b"class Net" in records[name])
    if forward:
        head = records[main][: records[main].index(b"    layers = ")]
        records[main] = head + b"".join(b"    " + line.encode() + b"\n" for line in forward.split("; "))
    if main_class:
        records["data.pkl"], _ = re.subn(rb"c__torch__[^\n]*\nNet\n", main_class, records["data.pkl"])
    writer = torch._C.PyTorchFileWriter(str(path))
    for name, content in records.items():
        if name not in ("version", "byteorder", ".data/serialization_id"):
            writer.write_record(name, content, len(content))
    writer.write_end_of_file()
    return path


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ('t = (torch.from_file)("{}", True, 16); return t', "mentions from_file"),
        ('f = torch.save; f(x, "{}"); return x', "mentions save"),
        ('t = torch.from_file ("{}", True, 16); return t', "mentions from_file"),
        ('t = getattr(torch, "from_file")("{}", True, 16); return t', "mentions from_file"),
        ('t = getattr(torch, "from" "_file")("{}", True, 16); return t', "other names"),
        ('t = getattr(torch, "from\\x5ffile")("{}", True, 16); return t', "other names"),
        ('a = ops.aten; t = getattr(a, "from" "_file")("{}", True, 16); return t', "other names"),
        ('t = getattr(torch.autograd, "from" "_file")("{}", True, 16); return t', "other names"),
        ("ops.image.write_file('{}', x); return x", r"operations of an extension of torch \(ops.image\)"),
        ("o = ops; o.image.write_file('{}', x); return x", "other names"),
        ("(ops).image.write_file('{}', x); return x", "other names"),
        ("c = __torch__.torch.classes.aoti.Model(); return x", "classes of an extension"),
        ("n = __torch__.torch; return x", "other names"),
    ],
)
def test_edited_programs_are_refused(forward: str, message: str, tmp_path: Path) -> None:
    target = tmp_path / "written"
    path = edit(save(scripted("script"), tmp_path / "evil.pt"), forward=forward.format(target))
    with pytest.raises(ModelError, match=message):
        load_classifier(path, input_shape=(SIZE,))
    assert not target.exists()


def test_an_edited_archive_without_a_fault_is_taken(tmp_path: Path) -> None:
    path = edit(save(scripted("script"), tmp_path / "net.pt"), forward="return torch.slice(x, 1, 0, 10)")
    with pytest.warns(ForeignCheckpointWarning):
        assert load_classifier(path, input_shape=(SIZE,)).num_classes == 10


def test_a_class_of_an_extension_in_a_pickle_is_refused(tmp_path: Path) -> None:
    path = edit(save(scripted("script"), tmp_path / "net.pt"), main_class=b"c__torch__.torch\nclasses.aoti.Model\n")
    with pytest.raises(ModelError, match="classes of an extension"):
        load_classifier(path, input_shape=(SIZE,))


def join(seen_by_torch: bytes, seen_by_zipfile: bytes) -> bytes:
    """One archive whose directory is the first one's for torch, and the second one's for zipfile."""
    parts = []
    for content in (seen_by_torch, seen_by_zipfile):
        *_, size, start, _ = struct.unpack("<4s4H2LH", content[-22:])
        parts.append((content[:start], content[start : start + size]))
    length = max(len(entries) for entries, _ in parts)
    (size,) = {len(directory) for _, directory in parts}
    count = parts[0][1].count(b"PK\x01\x02")
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, length, 0)
    return b"".join(entries.ljust(length, b"\0") + directory for entries, directory in parts) + end


def test_the_program_that_torch_reads_is_checked(tmp_path: Path) -> None:
    """zipfile moves all offsets by what precedes the archive, torch does not: each finds its own directory."""
    evil = edit(save(scripted("script"), tmp_path / "evil.pt"), forward='f = torch.save; f(x, "x"); return x')
    good = save(scripted("script"), tmp_path / "good.pt")
    path = tmp_path / "two.pt"
    path.write_bytes(join(evil.read_bytes(), good.read_bytes()))
    with zipfile.ZipFile(path) as archive:
        programs = [archive.read(name) for name in archive.namelist() if name.endswith(".py")]
        assert programs
        assert not any(b"torch.save" in program for program in programs)
    reader = torch._C.PyTorchFileReader(str(path))
    assert any(b"torch.save" in reader.get_record(name) for name in reader.get_all_records() if name.endswith(".py"))
    with pytest.raises(ModelError, match="mentions save"):
        load_classifier(path, input_shape=(SIZE,))


class Names(nn.Module):
    """Attributes that have the names of modules of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.ops = nn.ModuleList([nn.Sequential(nn.Sequential(nn.Linear(SIZE, 6), nn.ReLU()), nn.BatchNorm1d(6))])
        self.parts = nn.ModuleDict({"a-b": nn.Flatten()})
        self.classes = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.ops:
            x = part(x)
        for part in self.parts.values():
            x = part(x)
        return x[:, : self.classes]


@pytest.mark.parametrize("kind", ["trace", "script"])
def test_names_of_attributes_are_not_mistaken(kind: str, tmp_path: Path) -> None:
    net = Names().eval()
    module: Any = torch.jit.trace(net, torch.zeros(2, SIZE)) if kind == "trace" else torch.jit.script(net)
    with pytest.warns(ForeignCheckpointWarning):
        assert load_classifier(save(module, tmp_path / "net.pt"), input_shape=(SIZE,)).num_classes == 4


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    path = save(scripted("script"), tmp_path / "net.pt")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(archive.namelist()[-1], b"other")
    with pytest.raises(ModelError, match="two entries of one name"):
        load_classifier(path, input_shape=(SIZE,))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/code/__torch__.py", "class Net: pass")
    with pytest.raises(ModelError, match="cannot be loaded as TorchScript"):
        load_classifier(path, input_shape=(SIZE,))


def test_options_of_other_files_are_refused(tmp_path: Path) -> None:
    path = save(scripted("script"), tmp_path / "net.pt")
    with pytest.raises(InputError, match="leave arch and standardise out"):
        load_classifier(path, input_shape=(SIZE,), arch="mlp")

"""TorchScript files: programs that `torch.jit.save` wrote, run by the interpreter of torch.

Loading one runs no Python code and unpickles no Python objects. The program itself is run, and two of torch's
operations can reach files: such programs are refused before they are loaded.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from pathlib import Path

import torch
from torch import nn

from smoothcert.errors import ModelError
from smoothcert.models.checkpoints import ForeignCheckpointWarning
from smoothcert.models.digests import file_digest

_MOST_CODE = 2**25
_FILE_OPERATIONS = re.compile(rb"\b(from_file|save)\b")
"""`torch.from_file` maps a file, also for writing; `torch.save` writes one. The words alone: a call can be indirect."""
_INDIRECT = re.compile(
    # A module of operations under another name: torch itself always writes torch.NAME and ops.NAMESPACE.NAME.
    rb"\btorch\b(?!\.\w)|\btorch\.autograd\b"
    # Attributes and declarations of attributes may be called ops.
    rb'|(?<![\w."])ops\b(?! : |\.\w+\.\w)'
    # torch writes getattr(self, "0") for names that are not identifiers. Escapes could spell any name.
    rb'|\bgetattr\b(?!\([\w.]+, "[\w-]+"\))'
)
_OTHER_OPERATIONS = re.compile(rb'(?<![\w."])ops\.(?!(?:aten|prim|quantized)\b)(\w+)')
_CLASSES = re.compile(rb"\btorch[.\s]+classes\b")
_OLD_PROGRAM = "model.json"
"""With this record torch reads the program from records of any name."""


def is_torchscript(path: Path) -> bool:
    """Whether this is a file of TorchScript: a zip archive with code. Nothing is loaded."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.partition("/")[2].startswith("code/") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def load_torchscript(path: Path) -> nn.Module:
    """The module in the file, on the CPU, in evaluation mode. ModelError if it reaches for files or is damaged."""
    digest = file_digest(path)
    _refuse_reaching_out(path)
    try:
        with warnings.catch_warnings():
            # torch announces that torch.jit will be replaced; the files exist all the same.
            warnings.filterwarnings("ignore", message=r"`torch\.jit\.", category=DeprecationWarning)
            module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    except Exception as error:  # torch raises many types for a bad file
        raise ModelError(f"{path} cannot be loaded as TorchScript: {error}; it may be cut short or damaged") from error
    warnings.warn(
        f"{path.name} is a TorchScript program; torch runs it, and no Python code is run. SHA-256 {digest}",
        ForeignCheckpointWarning,
        stacklevel=2,
    )
    assert isinstance(module, nn.Module)
    return module.eval()


def _refuse_reaching_out(path: Path) -> None:
    for name, content in _read_program(path):
        if _CLASSES.search(content):
            raise ModelError(
                f"{path} was not loaded: its program uses classes of an extension of torch (torch.classes), about "
                "which nothing is known"
            )
        if not name.endswith(".py"):
            continue
        if (found := _FILE_OPERATIONS.search(content)) is not None:
            raise ModelError(
                f"{path} was not loaded: its program mentions {found[1].decode()}, which can read or write files; a "
                "classifier needs neither, and an attribute of that name must be renamed"
            )
        if (found := _OTHER_OPERATIONS.search(content)) is not None:
            raise ModelError(
                f"{path} was not loaded: its program uses operations of an extension of torch "
                f"(ops.{found[1].decode()}), about which nothing is known"
            )
        if (found := _INDIRECT.search(content)) is not None:
            text = content[found.start() : found.start() + 40].decode(errors="replace").partition("\n")[0]
            raise ModelError(
                f"{path} was not loaded: its program reaches operations by other names ({text!r}), which "
                "torch.jit.save does not write"
            )


def _read_program(path: Path) -> list[tuple[str, bytes]]:
    """Names in lower case and contents of the records with code and pickles, as the reader of torch finds them.

    Another reader may find other records in a file that was made for that.
    """
    try:
        reader = torch._C.PyTorchFileReader(str(path))
        records = reader.get_all_records()
        parts = [name for name in records if name.lower().endswith((".py", ".pkl"))]
        size = sum(reader.get_record_size(name) for name in parts)
        # torch does not distinguish upper and lower case in names.
        if len({name.lower() for name in records}) != len(records):
            raise ModelError(f"{path} was not loaded: it has two entries of one name")
        if _OLD_PROGRAM in (name.lower() for name in records):
            raise ModelError(f"{path} was not loaded: torch before 1.2 wrote it; save it again by torch.jit.save")
        if size > _MOST_CODE:
            raise ModelError(f"{path} was not loaded: its program has more than {_MOST_CODE:,} bytes")
        return [(name.lower(), reader.get_record(name)) for name in parts]
    except (OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]  # the rest is where it happened in torch
        raise ModelError(f"{path} cannot be loaded as TorchScript: {reason}; it may be cut short or damaged") from error

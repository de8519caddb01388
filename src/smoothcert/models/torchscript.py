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

_REACHES_FILES = re.compile(rb"\b(from_file|save)\s*\(")
"""`torch.from_file` maps a file, also for writing; `torch.save` writes one."""
_MOST_CODE = 2**25
_CLASSES = re.compile(rb"torch\.classes\.")


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
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            programs = [entry for entry in entries if entry.filename.lower().endswith(".py")]
            # torch's own reader might take the other one of two entries with one name.
            if len({entry.filename.lower() for entry in entries}) != len(entries):
                raise ModelError(f"{path} was not loaded: it has two entries of one name")
            if sum(entry.file_size for entry in programs) > _MOST_CODE:
                raise ModelError(f"{path} was not loaded: its program has more than {_MOST_CODE:,} bytes")
            codes = [archive.read(entry) for entry in programs]
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise ModelError(f"{path} cannot be read: {error}; it may be cut short or damaged") from error
    for code in codes:
        if (found := _REACHES_FILES.search(code)) is not None:
            raise ModelError(
                f"{path} was not loaded: its program calls {found[1].decode()}, which can read or write files; a "
                "classifier needs neither"
            )
        if _CLASSES.search(code):
            raise ModelError(
                f"{path} was not loaded: its program uses classes of an extension of torch (torch.classes), about "
                "which nothing is known"
            )

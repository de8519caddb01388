"""What computes: versions of the libraries, and a digest of our own code."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from pathlib import Path

_LIBRARIES = ("numpy", "scipy", "numba", "torch", "onnxruntime", "scikit-learn")


def list_versions() -> dict[str, str]:
    """Versions of the interpreter, the machine type and the installed numerical libraries."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def name_processor() -> str:
    """The name of the processor, as far as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


@functools.cache
def code_digest() -> str:
    """SHA-256 of the source files of the package, as information: it does not decide whether a run can be resumed."""
    package = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()

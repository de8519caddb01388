"""Executes the tutorial notebooks; results are cached by the content of the notebook and of the package.

python docs/tools/notebook_execution.py docs/tutorials/your-model.ipynb executed.ipynb
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
_CACHE = _REPOSITORY / ".cache" / "notebooks"
_PROCESSES = 2
_SECONDS_PER_CELL = 600


class NotebookError(Exception):
    """A cell of a notebook failed."""


def execute_notebooks(notebooks: list[Path], *, cache: Path = _CACHE) -> dict[Path, Path]:
    """The executed form of each notebook. Only what is not in the cache is executed, in two processes."""
    cache.mkdir(parents=True, exist_ok=True)
    package = hash_files(sorted((_REPOSITORY / "src").rglob("*.py")))
    with ThreadPoolExecutor(_PROCESSES) as pool:
        results = pool.map(lambda notebook: _execute_once(notebook, package, cache), notebooks)
        return dict(zip(notebooks, results, strict=True))


def hash_files(paths: list[Path]) -> str:
    """A digest of these files, by content."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _execute_once(notebook: Path, package: str, cache: Path) -> Path:
    key = hashlib.sha256((package + hash_files([notebook])).encode()).hexdigest()[:16]
    executed = cache / f"{notebook.stem}-{key}.ipynb"
    if executed.exists():
        return executed
    command = [sys.executable, __file__, str(notebook), str(executed)]
    threads = str(max(1, (os.cpu_count() or 1) // _PROCESSES))
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": threads})
    if done.returncode:
        raise NotebookError(f"{notebook.name} failed:\n{done.stderr[-4000:]}")
    for old in cache.glob(f"{notebook.stem}-{'?' * 16}.ipynb"):
        if old != executed:
            old.unlink()
    return executed


def execute(notebook: Path, executed: Path) -> None:
    """Execute one notebook in a new kernel and an empty folder. The result appears complete or not at all."""
    import nbformat
    from nbclient import NotebookClient

    content = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(content, timeout=_SECONDS_PER_CELL, kernel_name="python3", resources=resources).execute()
    partial = executed.with_suffix(".partial")
    nbformat.write(content, partial)
    partial.replace(executed)


if __name__ == "__main__":
    execute(Path(sys.argv[1]), Path(sys.argv[2]))

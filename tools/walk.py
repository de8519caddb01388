"""A stranger's walk: README and the first tutorials, line by line, with the wheel and not the checkout.

python -m tools.walk (make test-dist) uses the wheel that `make dist` built. It installs it with all extras in a clean
environment and works in an empty folder. Blocks of README that are about a checkout (pip, make) are left out.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tools.check_wheels import REPOSITORY, create_environment

TUTORIALS = ("your-model.ipynb", "choosing-sigma.ipynb")

_EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
"""


class WalkError(Exception):
    """A line does not work for a stranger."""


def read_blocks(markdown: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language (or "") and text."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", markdown, flags=re.MULTILINE | re.DOTALL)


def list_steps(markdown: str) -> list[tuple[str, str]]:
    """What a reader without a checkout types: ("python", a block) or ("shell", a line).

    A line that is neither smoothcert nor about a checkout is refused, so that nothing is left out unnoticed.
    """
    steps = []
    for language, text in read_blocks(markdown):
        if language == "python":
            steps.append(("python", text))
            continue
        for line in filter(str.strip, text.splitlines()):
            command = line.split()[0]
            if command == "smoothcert":
                steps.append(("shell", line))
            elif command not in ("pip", "make"):
                raise WalkError(f"README has a line that this walk does not know: {line}")
    return steps


def take_step(command: list[str] | str, folder: Path, scripts: Path) -> None:
    """Run a command, or a line for the shell, as a stranger would: their environment first in PATH, no checkout."""
    surroundings = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    surroundings |= {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "MPLBACKEND": "agg"}
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        shell=isinstance(command, str),
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    shown = command if isinstance(command, str) else " ".join(command[-1].split("\n")[:1])
    if done.returncode != 0:
        raise WalkError(f"{shown}\n{done.stdout}{done.stderr}")
    print(f"{time.monotonic() - begun:6.1f} s  {shown}", flush=True)


def walk(interpreter: Path, folder: Path, readme: Path) -> None:
    """README, then the tutorials that this checkout has; WalkError at the first line that fails."""
    scripts = interpreter.parent
    for kind, text in list_steps(readme.read_text(encoding="utf-8")):
        take_step([str(interpreter), "-c", text] if kind == "python" else text, folder, scripts)
    for name in TUTORIALS:
        notebook = REPOSITORY / "docs" / "tutorials" / name
        if notebook.exists():
            take_step([str(interpreter), "-c", _EXECUTE, str(notebook)], folder, scripts)
        else:
            print(f"{name}: not in this checkout", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dist", type=Path, default=REPOSITORY / "dist")
    parser.add_argument("--environment", type=Path, default=REPOSITORY / "build" / "walk")
    parser.add_argument("--readme", type=Path, default=REPOSITORY / "README.md")
    chosen = parser.parse_args()
    wheels = sorted(chosen.dist.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{chosen.dist} has {len(wheels)} wheels, not one: run `make dist` first")
    interpreter = create_environment(chosen.environment, [f"{wheels[0]}[all]", "ipykernel", "nbclient"])
    folder = chosen.environment / "empty"
    folder.mkdir()
    try:
        walk(interpreter, folder, chosen.readme)
    except WalkError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

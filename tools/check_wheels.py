"""Build the package, check what is in it, and try it with each extra alone: python -m tools.check_wheels (make dist).

Each extra gets a clean virtual environment with the wheel, that extra and nothing else, and runs tools/wheel_smoke.py
in an empty folder. Two environments are built at a time. An environment that passed is not built again while wheel,
constraints and smoke test are the same, so an interrupted check is resumed by the same command.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

from tools.wheel_smoke import OWN_CHECKS

REPOSITORY = Path(__file__).resolve().parent.parent
CONSTRAINTS = REPOSITORY / "constraints.txt"
SMOKE = REPOSITORY / "tools" / "wheel_smoke.py"

_IN_WHEEL = (
    "smoothcert/py.typed",
    "smoothcert/report/templates/page.html",
    "smoothcert/report/templates/charts.json",
    "smoothcert_verify/__init__.py",
    "smoothcert_verify/py.typed",
)
_IN_SDIST = ("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "src/smoothcert/__init__.py")
_NOT_DISTRIBUTED = ("tests", "docs", "experiments", "benchmarks", "fuzz", "tools", "build")


class PackageError(Exception):
    """The package that was built is not what it should be."""


def run_tool(command: list[str], *, folder: Path = REPOSITORY) -> None:
    """Run a command without a path to the checkout's sources; raise PackageError with its output if it fails."""
    surroundings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=surroundings, check=False)
    if done.returncode != 0:
        raise PackageError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def build_package(folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist, built anew in `folder`: the wheel from the sdist, so that both are complete."""
    shutil.rmtree(folder, ignore_errors=True)
    run_tool([sys.executable, "-m", "build", "--outdir", str(folder), str(REPOSITORY)])
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


def list_wheel_mistakes(names: set[str]) -> list[str]:
    """What is missing in a wheel with files `names`, or should not be there."""
    mistakes = [f"the wheel has no {name}" for name in _IN_WHEEL if name not in names]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        mistakes.append("the wheel has no LICENSE")
    for name in sorted(names):
        top = name.split("/")[0]
        if top not in ("smoothcert", "smoothcert_verify") and not top.endswith(".dist-info"):
            mistakes.append(f"the wheel has {name}")
    return mistakes


def list_sdist_mistakes(names: set[str]) -> list[str]:
    """What is missing in an sdist with files `names` (below its top folder), or should not be there."""
    mistakes = [f"the sdist has no {name}" for name in _IN_SDIST if name not in names]
    return mistakes + [f"the sdist has {name}" for name in sorted(names) if name.split("/")[0] in _NOT_DISTRIBUTED]


def check_contents(wheel: Path, sdist: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        mistakes = list_wheel_mistakes(set(archive.namelist()))
    with tarfile.open(sdist) as tar:
        mistakes += list_sdist_mistakes({name.partition("/")[2] for name in tar.getnames()})
    if mistakes:
        raise PackageError("\n".join(mistakes))


def identify_check(wheel: Path, extra: str) -> str:
    """A digest of everything that decides whether an environment passes; RECORD, unlike the wheel, holds no times."""
    digest = hashlib.sha256(f"{extra} {sys.version}".encode())
    with zipfile.ZipFile(wheel) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        digest.update(archive.read(record))
    for file in (CONSTRAINTS, SMOKE):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def create_environment(folder: Path, requirements: list[str]) -> Path:
    """A new virtual environment with `requirements` installed, within the tested set; its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    run_tool([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet", "--no-compile"]
    run_tool([*install, "--constraint", str(CONSTRAINTS), *requirements])
    return interpreter


def check_extra(wheel: Path, extra: str, folder: Path) -> str:
    """Install the wheel with one extra and run its smoke test; one line about it."""
    passed, identity = folder / f"{extra}.passed", identify_check(wheel, extra)
    if passed.exists() and passed.read_text() == identity:
        return f"{extra}: passed before"
    begun = time.monotonic()
    interpreter = create_environment(folder / extra, [str(wheel) if extra == "core" else f"{wheel}[{extra}]"])
    installed = time.monotonic()
    workplace = folder / extra / "empty"
    workplace.mkdir()
    run_tool([str(interpreter), "-I", str(SMOKE), extra], folder=workplace)
    shutil.rmtree(folder / extra)
    passed.write_text(identity)
    return f"{extra}: passed (installed in {installed - begun:.0f} s, tried in {time.monotonic() - installed:.0f} s)"


def check_extras(wheel: Path, extras: list[str], folder: Path, *, processes: int) -> list[str]:
    """Check the extras, `processes` at a time, and print a line for each; what went wrong."""
    failures = []
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        pending = {pool.submit(check_extra, wheel, extra, folder): extra for extra in extras}
        for future in concurrent.futures.as_completed(pending):
            try:
                print(future.result(), flush=True)
            except PackageError as error:
                failures.append(f"{pending[future]}: {error}")
                print(f"{pending[future]}: FAILED", flush=True)
    return failures


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dist", type=Path, default=REPOSITORY / "dist", help="where wheel and sdist are written")
    parser.add_argument("--environments", type=Path, default=REPOSITORY / "build" / "environments")
    parser.add_argument("--extras", default=",".join(OWN_CHECKS), help="extras to try, separated by commas")
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    chosen = parse_arguments()
    chosen.environments.mkdir(parents=True, exist_ok=True)
    try:
        wheel, sdist = build_package(chosen.dist)
        run_tool([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)])
        check_contents(wheel, sdist)
    except PackageError as error:
        sys.exit(str(error))
    print(f"{wheel.name} and {sdist.name}: metadata and contents are right", flush=True)
    failures = check_extras(wheel, chosen.extras.split(","), chosen.environments, processes=chosen.processes)
    if failures:
        sys.exit("\n\n".join(failures))


if __name__ == "__main__":
    main()

"""What `smoothcert recertify --out` takes on a run of 100 000 inputs with made-up votes: time and memory.

python benchmarks/recertifying.py [--inputs 100000] [--before SRC]

--before: the folder `src` of another version, which is measured too; the ratios are printed. Seconds are of processors.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from report_runs import make_manifest
from smoothcert.certificates import get_portfolio
from smoothcert.data import load_dataset
from smoothcert.questions import describe_smoothing, make_inquiry
from smoothcert.questions.inquiry import Votes
from smoothcert.records import ConstantSigma, Stage, StreamId, Tally
from smoothcert.runs.store import RunStore

_SOURCES = Path(__file__).parents[1] / "src"
_N0, _N, _SIGMA, _ALPHA = 100, 1000, 0.25, 0.001
_SEGMENTS = (10, 20, 50, 100, 200, 500, 1000)
"""Where the votes of an input are cut."""


def make_large_run(out: Path, *, inputs: int) -> Path:
    """A finished run whose votes are made up, judged and stored by the code that runs use."""
    digits = load_dataset("digits")
    manifest = make_manifest(digits, source="digits", inputs=inputs, sigma=_SIGMA, n=_N)
    manifest = msgspec.structs.replace(manifest, data=msgspec.structs.replace(manifest.data, size=inputs))
    smoothing = describe_smoothing(ConstantSigma(), dimension=64, num_classes=digits.num_classes, grid=manifest.grid)
    inquiry = make_inquiry(manifest.spec.question, get_portfolio("gaussian"), alpha=_ALPHA, smoothing=smoothing)
    draw = np.random.default_rng(1)
    with RunStore.create(out, manifest) as store:
        for start in range(0, inputs, 1000):
            rows = range(start, min(start + 1000, inputs))
            store.add(inquiry.answer([_make_votes(index, draw, digits.num_classes) for index in rows]))
    return out


def _make_votes(index: int, draw: np.random.Generator, classes: int) -> Votes:
    shares = draw.dirichlet(np.r_[20.0, np.full(classes - 1, 0.2)])

    def tally(stage: Stage, start: int, stop: int) -> Tally:
        counts = draw.multinomial(stop - start, shares)
        return Tally(StreamId(0, index, stage), _SIGMA, counts, 0, ((start, stop),))

    estimation = tuple(
        tally(Stage.ESTIMATION, start, stop) for start, stop in zip((0, *_SEGMENTS), _SEGMENTS, strict=False)
    )
    return Votes(index, int(draw.integers(classes)), tally(Stage.SELECTION, 0, _N0), estimation, 0.01)


def measure(run: Path, out: Path, *, sources: Path) -> tuple[float, float]:
    """Processor seconds and MB at the peak of `recertify`, in a process of its own."""
    arguments = ["-m", "smoothcert.cli.main", "recertify", str(run), "--alpha", "0.01", "--out", str(out)]
    places = os.pathsep.join(filter(None, [str(sources), os.environ.get("PYTHONPATH")]))
    with open(os.devnull, "wb") as nothing:
        child = os.posix_spawn(
            sys.executable,
            [sys.executable, *arguments],
            {**os.environ, "PYTHONPATH": places},
            file_actions=[(os.POSIX_SPAWN_DUP2, nothing.fileno(), 1)],
        )
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"recertify with {sources} ended with status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--before", type=Path, help="the sources of another version, to compare with")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = make_large_run(Path(folder) / "run", inputs=arguments.inputs)
        seconds, memory = measure(run, Path(folder) / "now", sources=_SOURCES)
        print(f"now     {seconds:8.1f} s {memory:8.0f} MB")
        if arguments.before is not None:
            earlier_seconds, earlier_memory = measure(run, Path(folder) / "before", sources=arguments.before)
            print(f"before  {earlier_seconds:8.1f} s {earlier_memory:8.0f} MB")
            print(f"ratio   {earlier_seconds / seconds:8.2f}   {earlier_memory / memory:8.2f}")


if __name__ == "__main__":
    main()

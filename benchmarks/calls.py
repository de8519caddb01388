"""`certify` as people call it, start to finish, against the plain loop of Cohen et al., for five networks.

    python benchmarks/calls.py [--only lenet] [--python] [--command-line]

From Python: `SmoothedClassifier(module, sigma=0.25, grid=256).certify(inputs, n=n)` against the loop of
`cohen_loop.py`, in one process, each after a warm-up with n = 1000. From the command line: `smoothcert certify` on an
.npz file against a process that imports torch, loads the same weights and inputs and runs the loop, both with start-up.
n is 1000 and 100000, for one input and for 64. The loop takes the same time for each sample, so it draws at most
MOST_LOOP_SAMPLES; where a call would take minutes, it has fewer inputs, which the table says. Printed are ratios of
samples per second, larger is better for us.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cohen_loop import LEVELS, SIGMA, certify_plainly
from smoothcert import SmoothedClassifier
from timing import SHAPES, network
from vit_tiny import ViTTiny

SAMPLES, INPUTS, N0 = (1000, 100_000), (1, 64), 100
MOST_SAMPLES = {"small_net": 10_000_000, "mlp": 10_000_000, "lenet": 1_000_000, "cifar_resnet20": 100_000, "vit": 6000}
"""Of one call. A call has as many inputs as fit, at least one, and then as many samples."""
MOST_LOOP_SAMPLES = {"small_net": 1_000_000, "mlp": 500_000, "lenet": 20_000, "cifar_resnet20": 4000, "vit": 600}
LOOP_START = "import sys; sys.path.insert(0, {folder!r}); import calls; calls.run_loop({arch!r}, {place!r}, {n})"


@dataclass(frozen=True, slots=True)
class Case:
    """n samples for each of some inputs, as far as the network allows."""

    arch: str
    n: int
    inputs: int

    @classmethod
    def fit(cls, arch: str, *, n: int, inputs: int) -> Case:
        n = min(n, MOST_SAMPLES[arch])
        return cls(arch, n, max(1, min(inputs, MOST_SAMPLES[arch] // n)))

    @property
    def samples(self) -> int:
        return self.inputs * (self.n + N0)

    def loop_part(self) -> Case:
        """The same for the loop: fewer inputs and samples at the same time for each sample."""
        n = min(self.n, MOST_LOOP_SAMPLES[self.arch])
        return Case(self.arch, n, max(1, min(self.inputs, MOST_LOOP_SAMPLES[self.arch] // n)))


def make_module(arch: str) -> nn.Module:
    if arch != "vit":
        return network(arch)
    torch.manual_seed(0)
    return ViTTiny().eval()


def make_inputs(arch: str, count: int) -> np.ndarray:
    shape = SHAPES.get(arch, (3, 32, 32))
    levels = np.random.default_rng(0).integers(0, LEVELS, (count, *shape))
    return (levels / (LEVELS - 1)).astype(np.float32)


def run_loop(arch: str, place: str, n: int) -> None:
    """What the process of the loop does after its start."""
    module = make_module(arch)
    module.load_state_dict(torch.load(Path(place) / "weights.pt", weights_only=True))
    for x in np.load(Path(place) / "inputs.npz")["x"]:
        certify_plainly(module, torch.from_numpy(x), n=n)


def list_cases(arch: str) -> list[Case]:
    return list(dict.fromkeys(Case.fit(arch, n=n, inputs=inputs) for n in SAMPLES for inputs in INPUTS))


def compare_in_python(arch: str) -> Iterator[tuple[Case, float]]:
    """The first call after the warm-up with each n pays for measuring the batch size again."""
    module = make_module(arch)
    smoothed = SmoothedClassifier(module, sigma=SIGMA, grid=LEVELS)
    smoothed.certify(make_inputs(arch, 1), n=min(1000, MOST_SAMPLES[arch]), progress=False)
    certify_plainly(module, torch.from_numpy(make_inputs(arch, 1)[0]), n=min(1000, MOST_LOOP_SAMPLES[arch]))
    for case in list_cases(arch):
        part = case.loop_part()
        began = time.perf_counter()
        for x in make_inputs(arch, part.inputs):
            certify_plainly(module, torch.from_numpy(x), n=part.n)
        loop = part.samples / (time.perf_counter() - began)
        began = time.perf_counter()
        smoothed.certify(make_inputs(arch, case.inputs), n=case.n, progress=False)
        yield case, case.samples / (time.perf_counter() - began) / loop


def compare_commands(arch: str) -> Iterator[tuple[Case, float]]:
    """The time of the loop for all samples of a case: its start, and its samples at the rate of a longer process."""
    folder = str(Path(__file__).parent)
    for case in list_cases(arch):
        with tempfile.TemporaryDirectory() as place:
            part = case.loop_part()
            module = make_module(arch)
            torch.save(module.state_dict(), Path(place) / "weights.pt")
            (Path(place) / "bench_net.py").write_text(
                f"import sys; sys.path.insert(0, {folder!r})\nimport calls\n\n\n"
                f"def make():\n    return calls.make_module({arch!r})\n"
            )
            inputs = make_inputs(arch, case.inputs)
            np.savez(Path(place) / "inputs.npz", x=inputs[: part.inputs])
            np.savez(Path(place) / "all.npz", x=inputs, y=np.zeros(len(inputs), dtype=np.int64))
            start = _time([sys.executable, "-c", LOOP_START.format(folder=folder, arch=arch, place=place, n=1)], place)
            long = _time(
                [sys.executable, "-c", LOOP_START.format(folder=folder, arch=arch, place=place, n=part.n)], place
            )
            loop = start + max(long - start, 0.0) * case.samples / part.samples
            ours = _time(
                [
                    sys.executable, "-m", "smoothcert", "certify", "--model", "bench_net:make", "--weights",
                    "weights.pt", "--data", "all.npz", "--sigma", str(SIGMA), "--n", str(case.n), "--grid",
                    str(LEVELS), "--out", "run",
                ],
                place,
            )  # fmt: skip
            yield case, loop / ours


def _time(command: list[str], place: str) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return time.perf_counter() - began


def ratios(arch: str) -> dict[str, float]:
    """For benchmarks/ratios.py: calls from Python."""
    return {_describe(case): ratio for case, ratio in compare_in_python(arch)}


def _describe(case: Case) -> str:
    return f"certify, {case.inputs} inputs, n={case.n} / loop"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"networks whose name has this text: {', '.join(MOST_SAMPLES)}")
    parser.add_argument("--python", action="store_true", help="calls from Python only")
    parser.add_argument("--command-line", action="store_true", help="commands only")
    asked = parser.parse_args()
    both = asked.python == asked.command_line
    for arch in (name for name in MOST_SAMPLES if asked.only in name):
        for name, wanted, compare in (
            ("Python", asked.python, compare_in_python),
            ("command line", asked.command_line, compare_commands),
        ):
            if wanted or both:
                for case, ratio in compare(arch):
                    print(f"{arch:16s} {name:13s} {_describe(case):45s} {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()

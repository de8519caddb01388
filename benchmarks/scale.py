"""Runs of very many inputs and of large inputs: time outside the model, memory, and what commands on them take.

    python benchmarks/scale.py                               # 25000 and 100000 inputs of the 7x7 network, n = 100
    python benchmarks/scale.py --network lenet --inputs 2000
    python benchmarks/scale.py --network large --inputs 50   # JPEG files, cut to 3x224x224, 1000 classes

Everything is made in a temporary folder; with --folder it is kept, and a run that was interrupted there is resumed.
Times are of the processor, over all threads and processes, because they depend less on what else a machine does;
`elapsed` is by the clock. Peak memory is that of the largest process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from smoothcert.cli.progress import stop_on_interrupt
from smoothcert.models.torch_original import TorchOriginal
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.sampling import counters
from smoothcert.spec import ConstantLevel, DataSpec, FixedN, ModelSpec, NoiseSpec, RunSpec
from timing import SHAPES, network

LARGE_SHAPE, LARGE_CLASSES = (3, 224, 224), 1000
SAMPLES = {"small_net": 100, "lenet": 100, "large": 100}
INPUTS = {"small_net": "25000,100000", "lenet": "2000", "large": "50"}
BATCH = {"small_net": 1024, "lenet": 64, "large": 16}
_LAUNCH = """
import json, os, subprocess, sys, time
began = time.perf_counter()
_, status, usage = os.wait4(subprocess.Popen(sys.argv[2:]).pid, 0)
spent = usage.ru_utime + usage.ru_stime
with open(sys.argv[1], "w") as file:
    json.dump([spent, time.perf_counter() - began, usage.ru_maxrss / 1024], file)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Started from a small process: a new process counts the memory of the one that started it as its own peak."""
PARTS = ("model", "noise", "asked again", "rest")
"""Asked again: the user's own module about single copies, at least 2000 in a run."""
COMMANDS = (("table",), ("verify",), ("report", "-o", "report.html"))


def small_net() -> nn.Module:
    return network("small_net")


def lenet() -> nn.Module:
    return network("lenet")


def large() -> nn.Module:
    """A small network for large inputs; its first layer is most of its work, as its noise is most of the other."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 7, stride=4, padding=3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, LARGE_CLASSES),
    ).eval()


@dataclass(slots=True)
class Stopwatch:
    """Adds up the processor time of functions over all threads."""

    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                with self._lock:
                    self.seconds += time.thread_time() - began

        return timed


def write_data(folder: Path, name: str, inputs: int) -> Path:
    """Random bytes; the labels are what the network answers, so that there is something to certify."""
    draw = np.random.default_rng(0)
    if name == "large":
        return _write_images(folder / "images", inputs, draw)
    file = folder / f"{name}-{inputs}.npz"
    if not file.exists():
        x = draw.integers(0, 256, (inputs, *SHAPES[name]), dtype=np.uint8)
        with torch.no_grad():
            y = torch.cat([network(name)(part / 255).argmax(1) for part in torch.from_numpy(x).split(1000)])
        np.savez(file, x=x, y=y.numpy())
    return file


def _write_images(folder: Path, inputs: int, draw: np.random.Generator) -> Path:
    """Photographs as large as those of ImageNet."""
    from PIL import Image

    for number in range(inputs):
        place = folder / f"{number % 50:02}" / f"{number}.jpeg"
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            small = Image.fromarray(draw.integers(0, 256, (32, 40, 3)).astype(np.uint8))
            small.resize((500, 375), Image.Resampling.BICUBIC).save(place, quality=90)
    return folder


def make_spec(name: str, data: Path) -> RunSpec:
    return RunSpec(
        task="certify",
        model=ModelSpec(place=f"scale:{name}"),
        data=DataSpec(
            place=str(data),
            **({"resize": LARGE_SHAPE[1:], "shorter_side": 256} if name == "large" else {}),
        ),
        noise=NoiseSpec(),
        sigma=ConstantLevel(level=0.5),
        question=FixedN(n=SAMPLES[name], n0=100),
        alpha=0.001,
        certificates=("gaussian",),
        seed=1,
        batch=BATCH[name],
    )


def sample(name: str, data: Path, out: Path) -> dict[str, float]:
    """Make or resume a run in this process; its shares of processor time, and its peak memory in MB."""
    model, noise, again = Stopwatch(), Stopwatch(), Stopwatch()
    bench: Any = counters._HostBench
    TorchOriginal._compute = again.watch(TorchOriginal._compute)  # type: ignore[method-assign]
    bench.votes, bench.fill_noisy = model.watch(bench.votes), noise.watch(bench.fill_noisy)
    with prepare_run(make_spec(name, data), out) as run, stop_on_interrupt() as stop:
        began, clock = time.process_time(), time.perf_counter()
        execute_run(run, stop=stop)
        total, elapsed = time.process_time() - began, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    parts = {"model": model.seconds, "noise": noise.seconds, "asked again": again.seconds}
    return parts | {"rest": total - sum(parts.values()), "total": total, "elapsed": elapsed, "MB": peak}


def measure_command(command: list[str], folder: Path) -> tuple[float, float, float]:
    """Seconds of the processor, seconds by the clock, peak memory in MB."""
    with (folder / "output").open("w") as output:
        command = [sys.executable, "-S", "-c", _LAUNCH, str(folder / "usage"), *command]
        failed = subprocess.run(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if failed:
        raise RuntimeError((folder / "output").read_text()[-2000:])
    spent, elapsed, peak = json.loads((folder / "usage").read_text())
    return spent, elapsed, peak


def measure(name: str, inputs: int, folder: Path) -> None:
    data = write_data(folder, name, inputs)
    out = folder / f"run-{name}-{inputs}"
    command = [sys.executable, __file__, "--sample", name, str(data), str(out)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    found = json.loads(shown.stdout.splitlines()[-1])
    parts = ", ".join(f"{part} {found[part] / found['total']:.1%}" for part in PARTS)
    print(f"{name}, {inputs} inputs, n = {SAMPLES[name]}", flush=True)
    print(f"  certify  {found['total']:7.1f} s ({parts}), elapsed {found['elapsed']:.1f} s, {found['MB']:.0f} MB")
    for verb, *options in COMMANDS:
        spent, elapsed, peak = measure_command([sys.executable, "-m", "smoothcert", verb, str(out), *options], folder)
        print(f"  {verb:8s} {spent:7.1f} s, elapsed {elapsed:.1f} s, {peak:.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=SAMPLES, default="small_net")
    parser.add_argument("--inputs", help="numbers of inputs, one run for each")
    parser.add_argument("--folder", type=Path, help="keep data and runs here, and resume what is there")
    parser.add_argument("--sample", nargs=3, metavar=("NETWORK", "DATA", "OUT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.sample:
        name, data, out = asked.sample
        print(json.dumps(sample(name, Path(data), Path(out))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if asked.folder is None else asked.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for inputs in (asked.inputs or INPUTS[asked.network]).split(","):
            measure(asked.network, int(inputs), folder)


if __name__ == "__main__":
    main()

"""What asking the model again costs: samples per second of `certify`, checks included, against another version.

    git worktree add /some/place 46b561b
    python benchmarks/model_checks.py --other /some/place/src [--models lenet,cifar_resnet20] [--rounds 3]

Both versions run in processes of their own, in turn, several times over, and the medians are compared. A run here is
one `certify` with default settings (n = 100000, α = 0.001, exact noise on 256 levels) for a few inputs, after the model
was adapted and the batch size was measured: at least 2000 copies are asked again in it. Prints a line for each model,
with the ratio this version : the other one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

INPUTS = {"mlp": 10, "lenet": 5, "cifar_resnet20": 2}
WORKER = """
import json, sys, time
import numpy as np, torch
from smoothcert import SmoothedClassifier
from smoothcert.models.architectures import build

arch, inputs, n, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
shape = (3, 32, 32) if "cifar" in arch else (1, 28, 28)
torch.manual_seed(0)
module = build(arch, num_classes=10, input_shape=shape).eval()
x = (np.random.default_rng(0).integers(0, 256, (inputs, *shape)) / 255).astype(np.float32)
smoothed = SmoothedClassifier(module, sigma=0.25, grid=256, seed=1, input_shape=shape, batch=batch or None)
smoothed.tune(shape, samples=inputs * n)
began = time.perf_counter()
smoothed.certify(x, n=n)
seconds = time.perf_counter() - began
asked = smoothed.checks.asked if hasattr(smoothed, "checks") else None
print(json.dumps({"rate": inputs * (n + 100) / seconds, "batch": smoothed.batch, "asked": asked}))
"""


def measure(source: Path, arch: str, *, inputs: int, n: int, batch: int) -> dict[str, float]:
    """One run in a process of its own. batch: 0 has it measured."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    arguments = [arch, str(inputs), str(n), str(batch)]
    done = subprocess.run(
        [sys.executable, "-c", WORKER, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="the src folder of the other version")
    parser.add_argument("--models", default="lenet,cifar_resnet20")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n", type=int, default=100_000)
    asked = parser.parse_args()
    here = Path(__file__).resolve().parent.parent / "src"
    for arch in asked.models.split(","):
        # One batch size for both, so that only what is compared differs.
        batch = int(measure(here, arch, inputs=1, n=20_000, batch=0)["batch"])
        rates: dict[Path, list[float]] = {here: [], asked.other: []}
        for _ in range(asked.rounds):
            for source, found in rates.items():
                result = measure(source, arch, inputs=INPUTS.get(arch, 1), n=asked.n, batch=batch)
                found.append(result["rate"])
        ours, theirs = (statistics.median(found) for found in rates.values())
        print(f"{arch}: batch {batch}, {ours:,.0f} samples/s, the other version {theirs:,.0f}: {ours / theirs:.2f}")


if __name__ == "__main__":
    main()

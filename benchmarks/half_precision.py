"""The forward pass in half precision against that in float32, each at its own best batch size.

python benchmarks/half_precision.py [--seconds 10] [--models lenet,mlp] [--dtypes bfloat16,float16]

float32 is what certification uses by default: a frozen, fused graph. Half precision runs the module under autocast.
One single-threaded worker per core, and seconds of processor time, as in backends.py.
"""

from __future__ import annotations

import argparse
import time

from smoothcert.models import as_classifier
from smoothcert.models.backends import measure_rate
from smoothcert.models.half_precision import DTYPES
from timing import ROUNDS, SHAPES, best_batch, median_in_turn, network

FLOAT32 = "float32"


def ratios(arch: str, *, dtypes: list[str], seconds: float) -> dict[str, float]:
    """Each precision ÷ float32, in samples per second. seconds: for each precision, over all rounds."""
    module = network(arch)
    found = {
        name: as_classifier(module, input_shape=SHAPES[arch], device="cpu", dtype=None if name == FLOAT32 else name)
        for name in (FLOAT32, *dtypes)
    }
    batches = {name: best_batch(classifier, clock=time.thread_time) for name, classifier in found.items()}
    rates = median_in_turn(
        {
            name: lambda name=name: measure_rate(  # type: ignore[misc]
                found[name], batch=batches[name], seconds=seconds / ROUNDS, clock=time.thread_time
            )
            for name in found
        }
    )
    return {name: rates[name] / rates[FLOAT32] for name in dtypes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="time per measured quantity")
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    arguments = parser.parse_args()
    for arch in arguments.models.split(","):
        measured = ratios(arch, dtypes=arguments.dtypes.split(","), seconds=arguments.seconds)
        print(f"{arch:16s}" + "".join(f"  {name} {ratio:6.2f}" for name, ratio in measured.items()), flush=True)


if __name__ == "__main__":
    main()

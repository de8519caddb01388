"""How many samples `certify --decide` takes, beside a fixed number of them, and whether it decides the same.

python benchmarks/adaptive.py MODEL --sigma 0.5 --out FOLDER [--data mnist] [--skip 50] [--radii 0.25,0.5,0.75]
                              [--fixed RUN] [--seed 1] [--json]

Both runs are kept in FOLDER and resumed there. --fixed names a finished run with a fixed number of samples over the
same inputs, which takes long to make. Printed are ratios, and certified accuracies of both.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from smoothcert.analysis.metrics import certified_accuracy, common_inputs
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.load import load_results
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.spec import ConstantLevel, DataSpec, Decide, FixedN, ModelSpec, NoiseSpec, RunSpec


def make_run(spec: RunSpec, out: Path) -> ResultColumns:
    with prepare_run(spec, out, notice=lambda line: print(line, file=sys.stderr)) as run:
        execute_run(run)
    return load_results(out)


def ratios(adaptive: ResultColumns, fixed: ResultColumns, radii: tuple[float, ...]) -> dict[str, Any]:
    """adaptive: with a column of the samples it took. Both over the same inputs."""
    adaptive, fixed = common_inputs([adaptive, fixed])
    assert adaptive.most_samples is not None
    taken = adaptive.extra["samples"]
    wanted = np.array(radii)
    # A decision: is this class certified at this radius?
    same_class = adaptive.prediction == fixed.prediction
    ours = adaptive.radius[:, None] >= wanted
    theirs = fixed.radius[:, None] >= wanted
    agree = (ours == theirs) & (same_class[:, None] | ~ours | ~theirs)
    equal = agree.all(axis=1)
    return {
        "inputs": len(adaptive),
        "samples_per_input": float(taken.mean()),
        "median_samples": float(np.median(taken)),
        "fixed_over_adaptive": adaptive.most_samples / float(taken.mean()),
        "fixed_over_adaptive_at_equal_decisions": adaptive.most_samples / float(taken[equal].mean()),
        "inputs_at_the_limit": int((taken >= adaptive.most_samples).sum()),
        "decisions": int(agree.size),
        "decisions_that_agree": int(agree.sum()),
        "certified_accuracy_adaptive": dict(
            zip(map(str, radii), certified_accuracy(adaptive, wanted).tolist(), strict=True)
        ),
        "certified_accuracy_fixed": dict(zip(map(str, radii), certified_accuracy(fixed, wanted).tolist(), strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--skip", type=int, default=50)
    parser.add_argument("--radii", default="0.25,0.5,0.75")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--alpha", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--fixed", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    radii = tuple(sorted(float(radius) for radius in given.radii.split(",")))
    spec = RunSpec(
        task="certify",
        model=ModelSpec(place=given.model),
        data=DataSpec(place=given.data, skip=given.skip),
        noise=NoiseSpec(),
        sigma=ConstantLevel(level=given.sigma),
        question=Decide(radii=radii, n=given.n, n0=100),
        alpha=given.alpha,
        seed=given.seed,
        batch=given.batch,
    )
    adaptive = make_run(spec, given.out / "adaptive")
    fixed = (
        make_run(msgspec.structs.replace(spec, question=FixedN(n=given.n, n0=100)), given.out / "fixed")
        if given.fixed is None
        else load_results(given.fixed)
    )
    found = ratios(adaptive, fixed, adaptive.decided_radii)
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        shown = value if isinstance(value, dict | int) else f"{value:.4g}"
        print(f"{name.replace('_', ' '):40} {shown}")


if __name__ == "__main__":
    main()

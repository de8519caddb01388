"""How long the verbs that need no model take to answer, beside the interpreter's own start, in one run.

python benchmarks/answers.py RUN_OR_LOG
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 7


def seconds(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    run = sys.argv[1]
    smoothcert = str(Path(sys.executable).with_name("smoothcert"))
    with tempfile.TemporaryDirectory() as folder:
        verbs = {
            "python itself": (sys.executable, "-c", "pass"),
            "radius": (smoothcert, "radius", "gaussian", "--sigma", "0.25", "--p-a", "0.99"),
            "table": (smoothcert, "table", run),
            "plot": (smoothcert, "plot", run, "-o", f"{folder}/figure.png"),
            "compare": (smoothcert, "compare", run, run),
            "export": (smoothcert, "export", run, "--format", "cohen-tsv", "-o", f"{folder}/log.tsv", "--force"),
            "data list": (smoothcert, "data", "list"),
        }
        if Path(run).is_dir():
            verbs["recertify"] = (smoothcert, "recertify", run, "--alpha", "0.01")
        seen = {verb: [seconds(*arguments) for _ in range(ROUNDS)] for verb, arguments in verbs.items()}
    for verb, times in seen.items():
        print(f"{verb:14s} median {statistics.median(times):.2f} s   least {min(times):.2f} s")


if __name__ == "__main__":
    main()

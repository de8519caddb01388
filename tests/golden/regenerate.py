"""Write tests/golden/votes.json anew, after SAMPLING_VERSION was raised or a case was added.

    python tests/golden/regenerate.py

Refuses changed votes under an unchanged number: raise SAMPLING_VERSION in src/smoothcert/sampling/__init__.py first.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from golden_votes import CASES, GOLDEN, check_votes, read_golden, write_golden
from smoothcert.sampling import SAMPLING_VERSION


def main() -> int:
    found = {name: case.sample() for name, case in CASES.items()}
    for name, case in CASES.items():
        if case.on_device and case.sample(on_device=True) != found[name]:
            print(f"{name}: the counters on a device count other votes than those in host memory. Nothing was written")
            return 1
    if GOLDEN.exists():
        stored = read_golden()
        if stored["sampling_version"] == SAMPLING_VERSION:
            for name in CASES.keys() & stored["cases"].keys():
                try:
                    check_votes(name, stored["cases"][name], found[name])
                except AssertionError as error:
                    print(f"{error}\nNothing was written")
                    return 1
    write_golden(SAMPLING_VERSION, found)
    print(f"{len(found)} cases for SAMPLING_VERSION {SAMPLING_VERSION}: {GOLDEN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Everything that reads what others wrote, under a fuzzer that follows the branches taken.

    python fuzz/harness.py TARGET [-max_total_time=60] [CORPUS]

Whatever the bytes, the answer is a result or one of smoothcert's own errors. Anything else ends the fuzzer, and the
bytes are in a file crash-… that `python fuzz/harness.py TARGET crash-…` tries again.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `experiments`

with atheris.instrument_imports(
    include=["smoothcert", "experiments", "tarfile", "zipfile", "csv", "tomllib", "numpy.lib"]
):
    from experiments.reproduction.recipe import parse_recipe
    from smoothcert.certificates import get_portfolio
    from smoothcert.data.decoding import read_json_labels
    from smoothcert.data.extraction import extract_tar
    from smoothcert.data.idx import decode_idx
    from smoothcert.data.user_files import load_file
    from smoothcert.errors import SmoothcertError
    from smoothcert.runs.manifest import parse_manifest
    from smoothcert.runs.stored_tallies import tally_from_row
    from smoothcert.runs.tsv import read_log
    from smoothcert.sigma.rule_files import load_rule

WORKPLACE = Path(tempfile.mkdtemp(prefix="fuzz-"))


def written(content: bytes, ending: str) -> Path:
    path = WORKPLACE / f"x{ending}"
    path.write_bytes(content)
    return path


def log(content: bytes) -> None:
    read_log(written(content, ".tsv"))


def manifest(content: bytes) -> None:
    parse_manifest(content, path=Path("manifest.json"))


def tallies(content: bytes) -> None:
    text, _, sums = content.partition(b"\xff")
    for kind in ("votes", "pairs", "scores", "gradients"):
        row = (0, "ESTIMATION", 0, 10, 0.25, kind, 3, text.decode(errors="replace"), sums)
        # What the store turns into a sentence.
        with contextlib.suppress(
            ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError
        ):
            tally_from_row(row, seed=1)


def data(ending: str) -> Callable[[bytes], None]:
    return lambda content: load_file(written(content, ending), split="test", input_range=None) and None


def idx(content: bytes) -> None:
    decode_idx(content, name="x")


def labels(content: bytes) -> None:
    read_json_labels(written(content, ".json"))


def archive(content: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=WORKPLACE) as place:
        extract_tar(written(content, ".tgz"), Path(place), size_limit=100_000)


def weights(content: bytes) -> None:
    from smoothcert.models.checkpoints import load_checkpoint

    load_checkpoint(written(content, ".safetensors"))


def rule(content: bytes) -> None:
    load_rule(written(content, ".safetensors"))


def recipe(content: bytes) -> None:
    parse_recipe("fuzzed", content.decode(errors="replace"))


def portfolio(content: bytes) -> None:
    get_portfolio(content.decode(errors="replace"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "log": log,
    "manifest": manifest,
    "tallies": tallies,
    "npy": data(".npy"),
    "npz": data(".npz"),
    "csv": data(".csv"),
    "idx": idx,
    "labels": labels,
    "archive": archive,
    "weights": weights,
    "rule": rule,
    "recipe": recipe,
    "portfolio": portfolio,
}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"say what is to be read: {', '.join(TARGETS)}")
    target = TARGETS[sys.argv.pop(1)]
    warnings.simplefilter("ignore")

    def once(content: bytes) -> None:
        with contextlib.suppress(SmoothcertError):
            target(content)

    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""`python -m smoothcert_verify`: the checker without smoothcert. Only a replay and --data need smoothcert."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from smoothcert_verify.findings import CheckerError

_COULD_NOT_CHECK = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: everything is proved. 1: there are discrepancies. 2: the check could not be made."""
    given = _make_parser().parse_args(arguments)
    try:
        from smoothcert_verify.place_checks import CheckOptions, inspect_places
        from smoothcert_verify.summaries import summarise

        model, count = (None, 0) if given.replay is None else (given.replay[0], int(given.replay[1]))
        options = CheckOptions(
            memory=given.memory,
            model=model,
            count=count,
            indices=given.replay_indices,
            weights=given.replay_weights,
            batch=given.replay_batch,
            data=given.data,
            data_root=given.data_root,
            unfinished=given.unfinished,
        )
        inspection = inspect_places(given.places, options)
    except Exception as error:  # never exit with code 1, which means that a check failed
        if not isinstance(error, CheckerError | ModuleNotFoundError | ValueError):
            traceback.print_exc()
        print(f"the check could not be made: {error}", file=sys.stderr)
        return _COULD_NOT_CHECK
    print(json.dumps(inspection.to_json()) if given.json else "\n".join(summarise(inspection)))
    return 1 if inspection.list_discrepancies() else 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m smoothcert_verify",
        description="Recompute every bound and radius from the tallies, in ball arithmetic. Exit code 0: everything is "
        "proved. Exit code 1: there are discrepancies. Exit code 2: the check could not be made.",
    )
    parser.add_argument("places", nargs="+", type=Path, help="run directories, certificates, directories of them")
    parser.add_argument("--memory", metavar="PLACE", help="the memory the runs claimed from: a file or a server")
    parser.add_argument(
        "--replay",
        nargs=2,
        metavar=("MODEL", "K"),
        help="draw the samples of K inputs again; of a run with a selector, MODEL is selector,model,…",
    )
    parser.add_argument("--replay-indices", metavar="0,17", help="draw those of these inputs again instead")
    parser.add_argument("--replay-weights", metavar="FILE", help="where the weights of MODEL are now, if it is code")
    parser.add_argument("--replay-batch", type=int, metavar="ROWS", help="ask the model about so many rows at once")
    parser.add_argument("--data", help="where the data is now; without --replay only distances are measured")
    parser.add_argument("--data-root", type=Path, help="the folder of downloaded datasets")
    parser.add_argument("--unfinished", action="store_true", help="accept runs with missing inputs")
    parser.add_argument("--json", action="store_true", help="print all findings as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())

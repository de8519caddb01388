"""A RunSpec that its manifest could not be read back from is refused before anything is sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from run_specs import make_spec
from smoothcert.errors import InputError
from smoothcert.runs.execution import prepare_run
from smoothcert.spec import Decide, FixedN, RunSpec


def spec(**changes: Any) -> RunSpec:
    good = make_spec(model="nowhere:model", data="digits", sigma=0.25, n=1000, alpha=0.001)
    return msgspec.structs.replace(good, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"certificates": "gaussian"}, r"\$\.certificates"),
        ({"task": "sample"}, r"\$\.task"),
        ({"task": "recertify"}, "made from another run"),
        ({"question": FixedN(n=1000, n0=True)}, r"\$\.question\.n0"),
        ({"question": FixedN(n=-1, n0=10)}, "n=-1"),
        ({"alpha": 2.0}, "alpha"),
        ({"alpha": "small"}, r"\$\.alpha"),
        ({"batch": 0}, "--batch 0 must be at least 1"),
        ({"batch": 1.5}, r"\$\.batch"),
        ({"seed": -1}, "--seed -1 is outside"),
        ({"task": "predict"}, "a prediction has a fixed n"),
        ({"task": "predict", "question": FixedN(n=1000), "certificates": ("gaussian",)}, "no certificates"),
        ({"task": "predict", "question": Decide(radii=(0.5,), n=1000, n0=100)}, "a prediction has a fixed n"),
        ({"certificates": ("gaussian", "gaussian")}, "named twice|more than once"),
    ],
)
def test_it_names_the_field_and_leaves_nothing_behind(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message), prepare_run(spec(**changes), tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()

"""The Triton kernels of noise: their bits in the interpreter, and the code that Triton makes of them for CUDA cards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

REPOSITORY = Path(__file__).resolve().parents[2]
SUPPORT = REPOSITORY / "tests" / "support"


def run_child(script, *words, interpret):
    settings = {**os.environ, "TRITON_INTERPRET": "1" if interpret else "0"}
    done = subprocess.run(
        [sys.executable, SUPPORT / script, *words], capture_output=True, text=True, check=False, env=settings
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def interpret(*checks):
    return run_child("kernel_child.py", *checks, interpret=True)


def test_it_is_chosen_where_its_bits_are_those_of_the_host():
    assert interpret("choice") == {"choice": ["the Triton kernel"] * 2}


@pytest.mark.parametrize("check", ["sizes", "wide_tables", "sentinels", "extreme_words", "float_words"])
def test_its_bits_are_those_of_the_host(check):
    assert interpret(check) == {check: []}


def test_a_wrong_bit_is_noticed():
    """Negative control."""
    assert "does not draw the bits of the host for gaussian noise of 256 levels" in interpret("control")["control"]


def test_doctor_tests_it():
    passed, detail = interpret("doctor")["doctor"]
    assert passed
    assert re.fullmatch(r"8 ranges of the Triton kernel equal those of numpy", detail)


def test_golden_votes_are_the_same():
    stored = json.loads((REPOSITORY / "tests" / "golden" / "votes.json").read_text(encoding="utf-8"))["cases"]
    found = interpret("golden")["golden"]
    assert found == {name: stored[name] for name in found}
    assert len(found) == 3


@pytest.mark.parametrize("arch", ["80", "90"])
def test_compiled_code_rounds_every_operation_on_its_own(arch):
    """Nothing is run: Triton brings the compiler, and needs no card."""
    for name, code in run_child("kernel_compiling.py", arch, interpret=False).items():
        assert not [operation for operation in code["operations"] if operation.startswith(("fma.", "mad.rn"))], name
        assert not [operation for operation in code["operations"] if ".ftz" in operation], name
        assert not [operation for operation in code["operations"] if ".approx" in operation], name
        assert code["needed"] in code["operations"], name
        assert code["spilled_bytes"] < 1024, name

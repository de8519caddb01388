"""Rules for sigma, unfinished trainings, recipes and claims somebody made up: a sentence, never a traceback."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from experiments.reproduction.recipe import RecipeError, parse_recipe
from smoothcert.errors import ModelError, RegionMemoryError, SmoothcertError
from smoothcert.memory.log import Row, decode
from smoothcert.sigma import load_sigma
from smoothcert.training.state import load_state


def safetensors_file(path: Path, *, metadata: dict[str, str], tensors: dict[str, tuple[str, list[int], bytes]]) -> Path:
    header: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(content for *_, content in tensors.values()))
    return path


@pytest.mark.parametrize("document", ["[" * 100_000, '{"kind": ' + "[" * 100_000, "null", "{}", '{"kind": 3}'])
def test_a_rule_with_a_hostile_document(tmp_path: Path, document: str) -> None:
    """Naive: json.loads recurses until the interpreter gives up."""
    path = safetensors_file(tmp_path / "rule.safetensors", metadata={"smoothcert-sigma": document}, tensors={})
    with pytest.raises(ModelError):
        load_sigma(str(path))


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F64"])
def test_a_rule_with_tensors_of_another_type(tmp_path: Path, kind: str) -> None:
    """Naive: numpy has no such type, and says so by a TypeError or an AttributeError."""
    size = {"BF16": 2, "F8_E4M3": 1, "F64": 8}[kind]
    content = {"points": (kind, [1], bytes(size))}
    path = safetensors_file(tmp_path / "rule.safetensors", metadata={"smoothcert-sigma": "{}"}, tensors=content)
    with pytest.raises(ModelError):
        load_sigma(str(path))


@pytest.mark.parametrize("epoch", ["Infinity", "1e400", "NaN", '"three"', "[]"])
def test_an_unfinished_training_of_no_epoch(tmp_path: Path, epoch: str) -> None:
    """Naive: int(inf) is an OverflowError."""
    document = f'{{"settings": {{}}, "computing": {{}}, "epoch": {epoch}, "batch": 0, "sums": {{}}, "seconds": 0}}'
    path = safetensors_file(tmp_path / "state.partial", metadata={"smoothcert": document}, tensors={})
    with pytest.raises(SmoothcertError):
        load_state(path)


@pytest.mark.parametrize(
    "text",
    [
        "tables = 3",
        "tables = [3]",
        "[[tables]]\nrows = 3",
        "[[tables]]\nrows = [[1]]",
        "quick.only = 3",
        "quick.only = [3]",
        "[[tables]]\n[[tables.rows]]\nof = 3\nacr = 1.0",
        "[[tables]]\n[[tables.rows]]\nof = [1]\nacr = 1.0",
        "x = " + "[" * 100_000,
    ],
)
def test_a_recipe_of_the_wrong_types(text: str) -> None:
    """Naive: whatever Python says of a number that is not a list."""
    with pytest.raises(RecipeError):
        parse_recipe("made-up", text)


def test_a_claim_whose_class_is_text() -> None:
    """A file that is not STRICT holds anything. Naive: the comparison with 0 is a TypeError."""
    row = Row(
        position=1,
        centre=bytes(8),
        label="three",  # type: ignore[arg-type]
        radius=0.5,
        asked_label=3,
        asked_radius=0.5,
        settlement="WHOLE",
        claimed_at="2026-01-01T00:00:00+00:00",
        entry="0" * 64,
    )
    with pytest.raises(RegionMemoryError, match="damaged"):
        decode(row, dimension=2)

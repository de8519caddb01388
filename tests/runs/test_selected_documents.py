"""Certificates of inputs of selected runs fit their published schema, which holds those of the parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from counted_selections import make_counted_parts, make_spec_of_selection
from smoothcert.runs.certificate_documents import list_documents
from smoothcert.runs.seals import document_digest
from smoothcert.runs.selected_combining import hold_parts
from smoothcert.spec import NoiseSpec
from verified_runs import with_change

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    ordinary, selected = (
        json.loads((REFERENCE / f"{name}.schema.json").read_text()) for name in ("certificate", "selected-certificate")
    )
    jsonschema.Draft202012Validator.check_schema(selected)
    registry: Registry[Any] = Registry().with_resource(ordinary["$id"], Resource.from_contents(ordinary))
    return jsonschema.Draft202012Validator(selected, registry=registry)


def documents(**changes: Any) -> list[dict[str, Any]]:
    found = list_documents(hold_parts(make_counted_parts(make_spec_of_selection(**changes))))
    return [json.loads(json.dumps(document, allow_nan=False)) for _, document in found]


@pytest.mark.parametrize(
    "changes",
    [{}, {"task": "predict", "certificates": ()}, {"noise": NoiseSpec().settle(None)}, {"batch": None}],
    ids=str,
)
def test_all_fit_the_schema(schema: jsonschema.Draft202012Validator, changes: dict[str, Any]) -> None:
    for document in documents(**changes):
        assert [error.message for error in schema.iter_errors(document)] == []


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("format",), "smoothcert certificate"),
        (("version",), 2),
        (("sigma",), 0),
        (("selection", "selector_bounds"), "other"),
        (("selection", "levels"), [0.5]),
        (("selection", "more"), 1),
        (("selector", "version"), 1),
        (("levels", 0, "tallies", 0, "kind"), "pairs"),
        (("verdicts", 0, "reason"), {"code": "no-such-code"}),
        (("digest",), "x"),
        (("more",), 1),
    ],
)
def test_the_schema_refuses_others(
    schema: jsonschema.Draft202012Validator, at: tuple[str | int, ...], value: object
) -> None:
    document = documents()[0]
    holder: Any = document
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = value
    assert not schema.is_valid(document)


def test_digests_cover_everything() -> None:
    for document in documents():
        rest = {key: value for key, value in document.items() if key != "digest"}
        assert document["digest"] == document_digest(rest)
        other = with_change(rest, ("selection", "seed"))
        assert document["digest"] != document_digest(other)

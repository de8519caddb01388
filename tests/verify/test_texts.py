"""Every finding has a sentence, and every sentence a finding whose values it names."""

from __future__ import annotations

import ast
import json
import string
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

pytest.importorskip("flint")

import smoothcert_verify
from certified_documents import counted_document, predicted_documents, remembered_documents
from smoothcert_verify import Finding, check_document
from smoothcert_verify.findings import note
from smoothcert_verify.texts import TEMPLATES, describe_finding, describe_guarantee

MAKERS = {"note", "refuse", "add", "Finding"}


def used_codes() -> dict[str, list[set[str] | None]]:
    """The codes in the source of the package with the names of their values; None if those are not literal."""
    found = defaultdict(list)
    for file in Path(smoothcert_verify.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in MAKERS and isinstance(node.args[0].value, str):
                literal = len(node.args) == 1 and all(keyword.arg for keyword in node.keywords)
                names = {str(keyword.arg) for keyword in node.keywords} if literal else None
                found[node.args[0].value].append(names)
    return found


def test_codes_and_sentences_belong_together() -> None:
    assert used_codes().keys() == TEMPLATES.keys()


def test_sentences_name_values_that_their_findings_have() -> None:
    for code, uses in used_codes().items():
        wanted = {name for _, name, _, _ in string.Formatter().parse(TEMPLATES[code]) if name}
        for names in uses:
            assert names is None or wanted <= names, code


def test_values_are_cut_to_a_readable_length() -> None:
    text = describe_finding(note("differs", field="x", value="y" * 10**6, expected=[list(range(10**5))]))
    assert len(text) < 300
    assert "\n" not in describe_finding(note("not-json", error="a\nb"))
    assert describe_finding(note("radius-not-certified", radius=Fraction(1, 2)).at("li").at("input 3")) == (
        "input 3: li: the bounds do not certify the radius 0.5"
    )


def test_findings_are_json() -> None:
    document = counted_document("gaussian", [900, 100])
    document["verdicts"][0]["radius"] = 1.0
    found = [finding.to_json() for finding in check_document(document).discrepancies]
    assert {one["code"] for one in json.loads(json.dumps(found))} == {"digest-differs", "radius-not-certified"}
    assert Finding("differs", {"field": "x", "value": Fraction(1, 4), "expected": [1]}).to_json()["values"] == {
        "field": "x",
        "value": 0.25,
        "expected": "[1]",
    }


def test_statements_follow_from_the_numbers(tmp_path: Path) -> None:
    document = counted_document("gaussian", [900, 100])
    verdict = document["verdicts"][0]
    assert f"class 0 at every point closer than {verdict['radius']!r} in l2 distance" in describe_guarantee(document)
    assert "at most 0.001 over the sampling" in describe_guarantee(document)
    assert "nothing is certified: abstained, too-few-votes (votes 100, n 200, label 0)" in describe_guarantee(
        counted_document("gaussian", [100, 100])
    )
    assert "is predicted; no radius is certified" in describe_guarantee(predicted_documents()[0])
    for promised in remembered_documents(tmp_path / "memory.sqlite"):
        if promised["verdicts"][0]["outcome"] == "certified":
            assert f"from position {promised['promise']['position']} of the memory" in describe_guarantee(promised)

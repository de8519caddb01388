"""Reasons of verdicts: recomputed from the tallies, so that a document cannot state another code or another number."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")
pytest.importorskip("sklearn")

from certified_documents import counted_document, paired_document, predicted_documents, sampled_points
from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.records.outcomes import REASON_NUMBERS, ReasonCode
from smoothcert.runs.certificate_documents import document_of, write_certificates
from smoothcert_verify import Finding, check_document
from smoothcert_verify.reason_rules import explain_promise
from verified_runs import MODEL, make_run, redigested

Document = dict[str, Any]

LIE = {"code": "too-few-votes", "votes": 1, "n": 2, "label": 3}


def exported(run: Path, folder: Path) -> list[Document]:
    return [json.loads(file.read_text()) for file in write_certificates(run, folder / "certificates")]


def found_in(document: Document) -> list[Finding]:
    return check_document(document).discrepancies


def with_reason(document: Document, reason: Any) -> Document:
    copied = copy.deepcopy(document)
    copied["verdicts"][0]["reason"] = reason
    return redigested(copied)


def assert_only_its_own_reason(document: Document) -> None:
    """The honest document passes; another reason, another number, one number more or less, or nothing does not."""
    assert found_in(document) == []
    own = document["verdicts"][0]["reason"]
    assert set(own) - {"code"} == set(REASON_NUMBERS[ReasonCode(own["code"])])
    others: list[Any] = [LIE, None, own | {"more": 1}, own | {"code": "region-cut"}]
    for name in own.keys() - {"code"}:
        others += [own | {name: own[name] + 1}, own | {name: float(own[name]) + 1e-9}]
        others += [{key: value for key, value in own.items() if key != name}]
    for other in others:
        assert "reason-differs" in [finding.code for finding in found_in(with_reason(document, other))], other
    for malformed in ("a sentence", [], {}, {"code": 3}, own | {"text": "it is beyond doubt"}):
        assert found_in(with_reason(document, malformed)), malformed


def test_plain_votes() -> None:
    document = counted_document("gaussian", [100, 100])
    assert document["verdicts"][0]["outcome"] == "abstained"
    assert document["verdicts"][0]["reason"] == {"code": "too-few-votes", "votes": 100, "n": 200, "label": 0}
    assert_only_its_own_reason(document)


def test_pairs() -> None:
    document = paired_document("dipole", [40, 40, 0], [10, 10, 0], [10, 10, 0])
    assert document["verdicts"][0]["reason"]["code"] == "too-few-paired-votes"
    assert_only_its_own_reason(document)


def test_what_is_certified_has_none() -> None:
    document = counted_document("gaussian", [200, 0])
    assert document["verdicts"][0]["reason"] is None
    assert found_in(document) == []
    assert found_in(with_reason(document, LIE))


def test_scores() -> None:
    points, described = sampled_points("gaussian-soft")
    found = [document_of(point, described) for point in points if point.radius == 0]
    assert found, "one of the digits is hardly to be told"
    for document in found:
        assert document["verdicts"][0]["reason"]["code"] == "low-mean-score"
        assert_only_its_own_reason(document)


@pytest.mark.parametrize("question", [("--decide", "1,3"), ("--decide", "20"), ("--precision", 0.5)])
def test_questions(question: tuple[object, ...], tmp_path: Path) -> None:
    """At a noise level at which the model sees nothing but noise."""
    given = ("--model", MODEL, "--data", "digits", "--seed", 3, "--batch", 64, "--workers", 1, "--max", 2)
    options = ("--n0", 20, "--n", 300, "--sigma", 20.0, *question)
    invoke(app, "certify", *given, *options, "--out", tmp_path / "run")
    documents = exported(tmp_path / "run", tmp_path)
    codes = {document["verdicts"][0]["reason"]["code"] for document in documents}
    assert bool(codes & {"radius-undecided", "radius-refuted"}) == (question[0] == "--decide")
    for document in documents:
        assert document["verdicts"][0]["outcome"] == "abstained"
        assert_only_its_own_reason(document)


def test_predictions() -> None:
    certain = predicted_documents()[0]
    assert found_in(certain) == []
    assert found_in(with_reason(certain, LIE))
    close = copy.deepcopy(certain)
    n = close["tallies"][0]["stop"]
    close["tallies"][0]["counts"]["votes"] = {"1": n // 2, "2": n - n // 2}
    close["verdicts"][0].update(outcome="abstained", prediction=None)
    close = with_reason(close, {"code": "no-significant-class", "votes": n // 2, "runner_up": n - n // 2, "n": n})
    assert_only_its_own_reason(close)
    failed = copy.deepcopy(close)
    failed["verdicts"][0].update(outcome="failed")
    failed = with_reason(failed, {"code": "no-finite-answer", "invalid": 0, "n": n})
    assert "impossible-outcome" in [finding.code for finding in found_in(failed)]


@pytest.mark.parametrize("kind", ["failed", "abstaining", "memory", "predict-memory"])
def test_runs(kind: str, tmp_path: Path) -> None:
    documents = exported(make_run(kind, tmp_path / kind), tmp_path)
    assert documents
    for document in documents:
        assert found_in(document) == []
        if document["verdicts"][0]["reason"]:
            assert_only_its_own_reason(document)


def test_settlements_of_a_memory() -> None:
    expected = {"WHOLE": None, "CUT": "region-cut", "OVERRULED": "region-overruled", "INHERITED": "region-inherited"}
    for settlement, code in expected.items():
        assert explain_promise(settlement, radius=0.5) == (None if code is None else {"code": code})
    assert explain_promise("CUT", radius=0.0) == {"code": "no-room-in-memory"}

"""What a person reads where nothing is certified: rebuilt from the tallies, so that it cannot say something else."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")
pytest.importorskip("sklearn")

from certified_documents import counted_document, paired_document, predicted_documents, sampled_points
from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.records import Settlement
from smoothcert.runs.certificate_documents import document_of, write_certificates
from smoothcert_verify import reasons
from smoothcert_verify.point import check_document
from smoothcert_verify.statements import statement_of
from verified_runs import MODEL, make_run

Document = dict[str, Any]

LIE = (
    "Except with probability at most 0.001 over the sampling, the smoothed classifier answers class 3 at every point "
    "closer than 2.5 in l2 distance."
)


def exported(run: Path, folder: Path) -> list[Document]:
    return [json.loads(file.read_text()) for file in write_certificates(run, folder / "certificates")]


def with_reason(document: Document, reason: str) -> Document:
    copied = copy.deepcopy(document)
    copied["verdicts"][0]["reason"] = reason
    copied["statement"] = statement_of(copied)
    return copied


def assert_only_its_own_reason(document: Document) -> None:
    """The honest document passes; a guarantee in place of its reason, another number or nothing does not."""
    assert check_document(document) == []
    own = document["verdicts"][0]["reason"]
    others = [LIE, own + ".", "x"]
    digits = [at for at, letter in enumerate(own) if letter.isdigit()]
    others += [own[:at] + str((int(own[at]) + 1) % 10) + own[at + 1 :] for at in digits]
    for other in others:
        assert any("gives a reason" in line for line in check_document(with_reason(document, other))), other


def test_plain_votes() -> None:
    document = counted_document("gaussian", [100, 100])
    assert document["verdicts"][0]["outcome"] == "abstained"
    assert document["verdicts"][0]["reason"] == "100 of 200 votes for class 0 prove nothing"
    assert_only_its_own_reason(document)


def test_pairs() -> None:
    document = paired_document("dipole", [40, 40, 0], [10, 10, 0], [10, 10, 0])
    reason = document["verdicts"][0]["reason"]
    assert "votes at x+ε" in reason
    assert_only_its_own_reason(document)
    assert check_document(with_reason(document, reason.replace(" at x+ε", ""))) == []  # as older runs have it


def test_what_is_certified_has_none() -> None:
    document = counted_document("gaussian", [200, 0])
    assert document["verdicts"][0]["reason"] == ""
    assert check_document(document) == []
    assert check_document(with_reason(document, "it is beyond doubt"))


def test_scores() -> None:
    points, described = sampled_points("gaussian-soft")
    found = [document_of(point, described) for point in points if point.radius == 0]
    assert found, "one of the digits is hardly to be told"
    assert all("a mean score of" in document["statement"] for document in found)
    for document in found:
        assert_only_its_own_reason(document)


@pytest.mark.parametrize("question", [("--decide", "1,3"), ("--decide", "20"), ("--precision", 0.5)])
def test_questions(question: tuple[object, ...], tmp_path: Path) -> None:
    """At a noise level at which the model sees nothing but noise."""
    given = ("--model", MODEL, "--data", "digits", "--seed", 3, "--batch", 64, "--workers", 1, "--max", 2)
    options = ("--n0", 20, "--n", 300, "--sigma", 20.0, *question)
    invoke(app, "certify", *given, *options, "--out", tmp_path / "run")
    documents = exported(tmp_path / "run", tmp_path)
    assert any("undecided" in d["statement"] or "refute" in d["statement"] for d in documents) == (
        question[0] == "--decide"
    )
    for document in documents:
        assert document["verdicts"][0]["outcome"] == "abstained"
        assert_only_its_own_reason(document)


def test_predictions() -> None:
    certain = predicted_documents()[0]
    assert check_document(certain) == []
    assert check_document(with_reason(certain, LIE))
    close = copy.deepcopy(certain)
    n = close["tallies"][0]["stop"]
    close["tallies"][0]["counts"]["votes"] = {"1": n // 2, "2": n - n // 2}
    close["verdicts"][0].update(outcome="abstained", prediction=None)
    close = with_reason(close, "the two leading classes are too close to call")
    assert_only_its_own_reason(close)
    failed = copy.deepcopy(close)
    failed["verdicts"][0].update(outcome="failed")
    failed = with_reason(failed, f"the model gave no finite answer for 0 of {n} samples")
    assert any("cannot end as failed" in line for line in check_document(failed))


@pytest.mark.parametrize("kind", ["failed", "abstaining", "memory", "predict-memory"])
def test_runs(kind: str, tmp_path: Path) -> None:
    documents = exported(make_run(kind, tmp_path / kind), tmp_path)
    assert documents
    for document in documents:
        assert check_document(document) == []
        if document["verdicts"][0]["reason"]:
            assert_only_its_own_reason(document)


def test_the_sentences_of_a_memory() -> None:
    for settlement in Settlement:
        expected = "" if settlement is Settlement.WHOLE else settlement.value
        assert reasons.of_promise(settlement.name, radius=Fraction(1, 2)) == expected
    assert "no room" in reasons.of_promise("CUT", radius=Fraction(0))

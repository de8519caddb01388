"""Whole certificate documents: honest ones of every kind pass, and whoever changes a number is found out."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("flint")
pytest.importorskip("sklearn")

from certified_documents import (
    SLOW,
    SLOW_RATE,
    asked_documents,
    counted_document,
    paired_document,
    predicted_documents,
    remembered_documents,
    sampled_documents,
    sampled_points,
)
from smoothcert.certificates import CERTIFICATES
from smoothcert.runs.certificate_documents import document_of
from smoothcert_verify import Finding
from smoothcert_verify import check_document as check
from smoothcert_verify import proof_checks as proofs
from smoothcert_verify.theorems import CERTIFICATE_FORMS
from verified_runs import redigested

Document = dict[str, Any]
Change = Callable[[Document], None]

ROOMY = {
    proofs.SCORE_TOP,
    proofs.SCORE_OTHER,
    proofs.GRADIENT_HALVES,
    proofs.GRADIENT_PAIRS,
    proofs.GRADIENTS_OF_EVERY_CLASS,
}
"""Proofs that give away a little: for a shorter search, or for units that noise is added up in."""


def check_document(document: Any) -> list[Finding]:
    return check(document).discrepancies


def check_completely(document: Any) -> tuple[list[Finding], list[Finding]]:
    """Discrepancies, and what could not be checked."""
    found = check(document)
    return found.discrepancies, found.unchecked


def codes(document: Any) -> set[str]:
    return {finding.code for finding in check_document(document)}


def changed(document: Document, change: Change) -> Document:
    """A copy with something else in it, and digests that fit if there can be any."""
    copied = copy.deepcopy(document)
    change(copied)
    try:
        return redigested(copied)
    except (KeyError, ValueError):  # without a run, or with a number that is not JSON
        return copied


def on_the_unsafe_side(quantity: str, value: float, *, by: float) -> float:
    if quantity in proofs.UPPER:
        return value * (1 - by)
    return value * (1 + by) if value < 0.5 else 1 - (1 - value) * (1 - by)


def test_the_catalogue_knows_every_certificate() -> None:
    assert CERTIFICATE_FORMS.keys() == CERTIFICATES.keys()
    for name, theorem in CERTIFICATES.items():
        claim = CERTIFICATE_FORMS[name]
        assert claim.proofs == tuple(proof.value for proof in theorem.proofs)
        assert set(claim.needs) == {quantity.value for quantity in theorem.needs}
        assert (claim.norm, claim.noise) == (theorem.norm.value, theorem.noise.value)
        assert claim.varying is theorem.varying_sigma


@pytest.mark.parametrize("name", CERTIFICATES)
def test_honest_documents_pass_and_a_billionth_more_does_not(name: str) -> None:
    documents = sampled_documents(name)
    assert any(document["verdicts"][0]["radius"] > 0 for document in documents)
    for document in documents:
        assert check_completely(document) == ([], [])
        verdict = document["verdicts"][0]
        if verdict["radius"] > 0:
            larger = verdict["radius"] * (1 + 1e-9)
            found = codes(changed(document, lambda d, r=larger: d["verdicts"][0].update(radius=r)))
            # Betting may give away a ten-millionth of the bound, but no part of the radius that follows from it.
            assert "radius-not-certified" in found
        for quantity, bound in verdict["bounds"]["quantities"].items():
            if bound["value"] in (0.0, 1.0) or quantity == "steps":  # counted: tests/verify/test_split_documents.py
                continue
            by = 1e-5 if bound["method"] in ROOMY else 1e-9
            worse = on_the_unsafe_side(quantity, bound["value"], by=by)

            def claim_more(d: Document, quantity: str = quantity, worse: float = worse) -> None:
                d["verdicts"][0]["bounds"]["quantities"][quantity]["value"] = worse

            assert any(code.endswith("not-proved") for code in codes(changed(document, claim_more)))


@pytest.mark.parametrize(
    ("name", "envelope"),
    [
        ("envelope", SLOW),
        ("envelope", SLOW_RATE),
        ("envelope-soft", SLOW),
        ("lipschitz", SLOW),
        ("renyi", SLOW),
        ("renyi-two-class", SLOW_RATE),
    ],
)
def test_levels_that_vary(name: str, envelope: Any) -> None:
    for document in sampled_documents(name, envelope):
        assert check_completely(document) == ([], [])
        radius = document["verdicts"][0]["radius"]
        if radius > 0:
            # What is given away on purpose is 1e-10 σ or 2e-10 of the radius.
            more = changed(document, lambda d, r=radius: d["verdicts"][0].update(radius=r * (1 + 1e-7)))
            assert "radius-not-certified" in codes(more)


def test_two_bounds_where_the_level_varies() -> None:
    document = counted_document("envelope-two-class", [6000, 2000, 2000], dimension=8, envelope=SLOW_RATE)
    assert check_completely(document) == ([], [])
    radius = document["verdicts"][0]["radius"]
    assert (
        radius
        > counted_document("envelope", [6000, 2000, 2000], dimension=8, envelope=SLOW_RATE)["verdicts"][0]["radius"]
    )
    more = changed(document, lambda d: d["verdicts"][0].update(radius=radius * (1 + 1e-6)))
    (found,) = check_document(more)
    assert (found.code, found.where) == ("radius-not-certified", "envelope-two-class")


def test_an_envelope_of_the_users_own_is_remarked_on() -> None:
    document = counted_document("envelope", [900, 100], envelope=SLOW)
    sigma = document["run"]["sigma"]
    for place in (document["smoothing"], sigma, sigma["rule"]):
        place["envelope"] = {"kind": "user", "name": "mine", "source": "0" * 64}
    discrepancies, (remark,) = check_completely(redigested(document))
    assert discrepancies == []
    assert remark.code == "envelope-is-a-function"


def test_the_best_of_several_shares_alpha() -> None:
    name = "best-of(gaussian,gaussian-two-class,li)"
    for document in sampled_documents(name):
        assert check_completely(document) == ([], [])
        alone = changed(document, lambda d: d["run"]["spec"].update(best_of=False))
        assert check_document(alone) != []


def test_several_certificates_are_all_checked() -> None:
    document = sampled_documents("gaussian,lecuyer")[0]
    assert check_document(document) == []
    radius = document["verdicts"][1]["radius"]
    more = changed(document, lambda d: d["verdicts"][1].update(radius=radius * (1 + 1e-9)))
    (found,) = check_document(more)
    assert (found.code, found.where) == ("radius-not-certified", "lecuyer")


def test_predictions() -> None:
    documents = predicted_documents()
    assert [check_completely(document) for document in documents] == [([], [])] * len(documents)
    predicted = next(document for document in documents if document["verdicts"][0]["outcome"] == "predicted")
    assert check_document(changed(predicted, lambda d: d["run"]["spec"].update(alpha=1e-99))) != []
    other = (predicted["verdicts"][0]["prediction"] + 1) % 10
    assert check_document(changed(predicted, lambda d: d["verdicts"][0].update(prediction=other))) != []


@pytest.mark.parametrize("question", [{"decide": [0.1, 0.2, 0.4]}, {"precision": 0.05}])
def test_inputs_that_were_asked_a_question(question: dict[str, Any]) -> None:
    documents = asked_documents(**question)
    assert any(document["verdicts"][0]["radius"] > 0 for document in documents)
    for document in documents:
        assert check_completely(document) == ([], [])
        if not document["verdicts"][0]["radius"]:
            continue
        # As if the number of votes had been fixed in advance.
        fixed = changed(document, lambda d: d["run"]["spec"].update(question={"kind": "fixed-n", "n": 2000, "n0": 50}))
        assert check_document(fixed) != []
        if len(document["tallies"]) > 2:
            lost = changed(document, lambda d: d["tallies"].pop(1))
            assert "gap-in-samples" in codes(lost)


def test_a_radius_that_was_not_asked_about_is_not_decided() -> None:
    document = asked_documents(decide=[0.1, 0.2])[0]
    radius = document["verdicts"][0]["radius"]
    assert radius == 0.2
    smaller = changed(document, lambda d: d["verdicts"][0].update(radius=0.15))
    assert "radius-not-asked" in codes(smaller)


def test_promised_regions(tmp_path: Path) -> None:
    documents = remembered_documents(tmp_path / "memory.sqlite")
    assert [check_completely(document) for document in documents] == [([], [])] * len(documents)
    whole = next(document for document in documents if document["promise"]["settlement"] == "WHOLE")

    def promise_more(d: Document) -> None:
        d["promise"]["radius"] = d["verdicts"][0]["radius"] = math.nextafter(d["verdicts"][0]["radius"], 9.0)

    assert check_document(changed(whole, promise_more)) != []

    def ask_more(d: Document) -> None:
        promise_more(d)
        d["promise"]["asked_radius"] = d["promise"]["radius"] = d["verdicts"][0]["radius"] = (
            1.01 * d["promise"]["radius"]
        )

    assert "radius-not-certified" in codes(changed(whole, ask_more))
    assert check_document(changed(whole, lambda d: d["promise"].update(label=(d["promise"]["label"] + 1) % 10))) != []
    assert check_document(changed(whole, lambda d: d["run"]["digests"].update(memory=None))) != []


def test_before_regions_are_claimed(tmp_path: Path) -> None:
    """`certify --rigorous` confirms a radius before a memory promises it; a stored certificate needs the promise."""
    whole = next(
        document
        for document in remembered_documents(tmp_path / "memory.sqlite")
        if document["promise"]["settlement"] == "WHOLE"
    )
    unclaimed = changed(whole, lambda d: d.update(promise=None))
    assert codes(unclaimed) == {"certified-without-promise"}
    assert check(unclaimed, before_claims=True).discrepancies == []
    larger = whole["verdicts"][0]["radius"] * 1.01
    more = changed(unclaimed, lambda d: d["verdicts"][0].update(radius=larger))
    assert {finding.code for finding in check(more, before_claims=True).discrepancies} == {"radius-not-certified"}


def test_an_input_without_an_answer() -> None:
    """Selection votes that settle on nothing certify nothing."""
    points, described = sampled_points("gaussian")
    document = document_of(points[0], described)
    document["tallies"][0]["counts"] = {"votes": {}, "invalid": 50}
    assert "no-class-selected" in codes(redigested(document))
    verdict = document["verdicts"][0]
    reason = {"code": "no-finite-answer", "invalid": 50, "n": 50}
    verdict.update(outcome="failed", radius=0.0, prediction=None, bounds=None, reason=reason)
    assert check_document(redigested(document)) == []


@pytest.fixture
def plain() -> Document:
    return counted_document("gaussian-two-class", [900, 80, 20])


def move_a_vote(d: Document) -> None:
    counts = d["tallies"][1]["counts"]["votes"]
    counts["0"], counts["1"] = counts["0"] - 1, counts["1"] + 1


def lose_a_vote(d: Document) -> None:
    d["tallies"][1]["counts"]["votes"]["0"] -= 1


def swap_classes(d: Document) -> None:
    counts = d["tallies"][1]["counts"]["votes"]
    counts["0"], counts["1"] = counts["1"], counts["0"]


def reuse_the_selection(d: Document) -> None:
    d["tallies"][1]["stage"] = "SELECTION"


def count_twice(d: Document) -> None:
    d["tallies"].append(copy.deepcopy(d["tallies"][1]))
    d["run"]["spec"]["question"]["n"] *= 2


def spend_unevenly(d: Document) -> None:
    bounds = d["verdicts"][0]["bounds"]
    for (proof, _), share in zip(list(bounds["spent"].items()), (0.0006, 0.0004), strict=True):
        bounds["spent"][proof] = share
        for bound in bounds["quantities"].values():
            if bound["method"] == proof:
                bound["alpha"] = share


def spend_twice(d: Document) -> None:
    for bound in d["verdicts"][0]["bounds"]["quantities"].values():
        bound["alpha"] = 0.001
    d["verdicts"][0]["bounds"]["spent"] = {
        bound["method"]: 0.001 for bound in d["verdicts"][0]["bounds"]["quantities"].values()
    }


def in_verdict(**values: Any) -> Change:
    return lambda d: d["verdicts"][0].update(values)


def in_smoothing(**values: Any) -> Change:
    return lambda d: d["smoothing"].update(values)


def in_spec(**values: Any) -> Change:
    return lambda d: d["run"]["spec"].update(values)


def in_question(**values: Any) -> Change:
    return lambda d: d["run"]["spec"]["question"].update(values)


def in_bound(**values: Any) -> Change:
    return lambda d: d["verdicts"][0]["bounds"]["quantities"]["p-a"].update(values)


def in_selection(**values: Any) -> Change:
    return lambda d: d["tallies"][0].update(values)


def in_estimation(**values: Any) -> Change:
    return lambda d: d["tallies"][1].update(values)


@pytest.mark.parametrize(
    "change",
    [
        move_a_vote,
        lose_a_vote,
        swap_classes,
        reuse_the_selection,
        count_twice,
        spend_unevenly,
        spend_twice,
        in_verdict(certificate="gaussian"),
        in_verdict(certificate="my own"),
        in_verdict(prediction=1),
        in_verdict(prediction=None),
        in_verdict(outcome="abstained"),
        in_verdict(outcome="abstained", radius=0.0, prediction=None),
        in_verdict(norm="l1"),
        in_verdict(radius=0.0),
        in_verdict(radius=0.1),
        in_verdict(radius=-1.0),
        in_verdict(radius=math.nan),
        in_verdict(radius=math.inf),
        in_verdict(radius=10**400),
        in_verdict(radius="0.3"),
        in_verdict(bounds=None),
        in_bound(value=0.85),
        in_bound(side="upper"),
        in_bound(alpha=0.001),
        in_bound(method=proofs.TOP_SEQUENCE),
        in_smoothing(sigma=0.5),
        in_smoothing(dimension=65),
        in_smoothing(num_classes=4),
        lambda d: d["smoothing"]["noise"].update(kind="uniform"),
        lambda d: d["smoothing"]["noise"].update(grid=256),
        in_smoothing(remembered=True),
        in_smoothing(envelope={"kind": "semi-elastic", "rate": 0.1}),
        in_spec(alpha=0.002),
        in_spec(alpha=0.0005),
        in_question(n=1001),
        in_question(n0=49),
        in_spec(sigma={"kind": "constant", "level": 0.26}),
        in_spec(certificates=["gaussian"]),
        in_question(kind="precision", width=0.1),
        lambda d: [d["run"]["digests"].update(memory="0" * 64), d["run"]["spec"].update(memory="m")],
        in_selection(counts={"votes": {"1": 50}, "invalid": 0}),
        in_selection(sigma=0.3),
        in_estimation(sigma=0.3),
        in_estimation(kind="pairs"),
        in_estimation(start=1),
        in_estimation(num_classes=10**9),
        in_estimation(sums="eJwDAAAAAAE="),
        lambda d: d["verdicts"][0]["bounds"].update(label=1),
        lambda d: d["verdicts"][0]["bounds"]["spent"].popitem(),
        lambda d: d["verdicts"][0]["bounds"]["quantities"].popitem(),
        lambda d: d["tallies"].pop(0),
        lambda d: d["tallies"].pop(1),
        lambda d: d.update(promise={"label": 0}),
        lambda d: d.update(version=1),
        lambda d: d.update(statement="It is robust."),
        lambda d: d["verdicts"][0].update(reason={"code": "region-cut"}),
        lambda d: d.pop("run"),
        in_spec(task="guess"),
        lambda d: d["verdicts"].append(copy.deepcopy(d["verdicts"][0])),
        lambda d: d["verdicts"].clear(),
    ],
)
def test_single_changes_are_found(plain: Document, change: Change) -> None:
    assert check_document(plain) == []
    assert check_document(changed(plain, change)) != []


def without_price(d: Document) -> None:
    del d["verdicts"][0]["bounds"]["spent"][proofs.NOISE_TABLES]


@pytest.mark.parametrize("name", ["gaussian", "best-of(gaussian,li-two-class)", "dipole", "second-order", "uniform-l1"])
def test_finite_noise_tables_are_paid_for(name: str) -> None:
    """Noise on a grid of 17 levels, σ = .25, 64 pixels: s = 4, and δ = 64·(2·37+3)·2^-64 for each draw."""
    points, described = sampled_points(name, grid=17)
    for point in points:
        document = document_of(point, described)
        assert check_completely(document) == ([], [])
        draws = sum(tally["stop"] - tally["start"] for tally in document["tallies"][1:])
        spent = document["verdicts"][0]["bounds"]["spent"]
        least = draws * 64 * 77 / 2**64
        assert spent[proofs.NOISE_TABLES] >= least
        cheaper = changed(
            document, lambda d, p=least: d["verdicts"][0]["bounds"]["spent"].update({proofs.NOISE_TABLES: 0.99 * p})
        )
        assert "unpaid-noise-tables" in codes(cheaper)
        unpaid = [f for f in check_document(changed(document, without_price)) if f.code == "unpaid-noise-tables"]
        assert [finding.values["paid"] for finding in unpaid] == [0]
        # In float32 there is nothing to pay for.
        in_float = {"grid": None, "generator": "philox4x32-10"}

        def to_float(d: Document, noise: Document = in_float) -> None:
            d["smoothing"]["noise"].update(noise)
            d["run"]["spec"]["noise"].update(noise)

        assert "no-noise-tables" in codes(changed(document, to_float))


def test_more_than_alpha_is_never_spent() -> None:
    points, described = sampled_points("gaussian", grid=17)
    document = document_of(points[0], described)
    document["verdicts"][0]["bounds"]["spent"][proofs.NOISE_TABLES] *= 1.0001
    assert "alpha-overspent" in codes(redigested(document))


def test_pairs_are_added_up() -> None:
    document = paired_document("dipole", [900, 10, 5, 0], [40, 30, 15, 0], [35, 40, 5, 5])
    assert check_completely(document) == ([], [])
    more = changed(document, lambda d: d["tallies"][1]["counts"]["both"].update({"0": 901}))
    assert "pairs-do-not-add-up" in codes(more)


def test_the_smallest_and_the_largest_runs() -> None:
    for votes in ([12, 0], [0, 12], [10**9, 0], [5 * 10**8, 4 * 10**8, 10**8]):
        assert check_document(counted_document("gaussian-two-class", votes)) == []
    assert check_document(counted_document("gaussian", [300, 0], alpha=1e-80)) == []


def test_a_level_without_an_envelope_certifies_nothing() -> None:
    document = counted_document("gaussian", [900, 100])
    document["run"]["spec"]["sigma"] = {"kind": "rule", "place": "m:s"}
    document["run"]["digests"]["sigma"] = "0" * 64
    document["run"]["sigma"] = {"rule": {"kind": "callable", "name": "s", "envelope": None}, "envelope": None}
    document["smoothing"]["envelope"] = None
    assert "nothing-assumed-of-sigma" in codes(redigested(document))


def test_numbers_are_read_back_from_text(plain: Document) -> None:
    assert check_document(json.loads(json.dumps(plain))) == []


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document that holds something."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, item in inner for place in _places(item, (*path, key))]


_anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(10**400)
    | st.just(-(2**63)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(data=st.data(), value=_anything)
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_stands_in_a_document_nothing_is_raised(data: st.DataObject, value: Any) -> None:
    name = data.draw(st.sampled_from(["gaussian", "dipole", "second-order", "gaussian-soft"]))
    document = copy.deepcopy(sampled_documents(name)[1])
    place = data.draw(st.sampled_from(_places(document)))
    holder: Any = document
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    discrepancies, remarks = check_completely(document)
    assert all(str(finding) for finding in discrepancies + remarks)


@pytest.mark.parametrize(
    "document", [None, [], "certificate", 3, {}, {"format": "smoothcert certificate", "version": 1}]
)
def test_what_is_no_document_is_a_discrepancy(document: Any) -> None:
    assert len(check_document(document)) == 1


def test_a_bomb_is_not_unpacked() -> None:
    import base64
    import zlib

    document = copy.deepcopy(sampled_documents("second-order")[0])
    document["tallies"][1]["sums"] = base64.b64encode(zlib.compress(bytes(10**8))).decode()
    (finding,) = check_document(redigested(document))
    assert finding.code == "length-of-sums"


def on_grid(grid: int, sigma: float) -> Change:
    def change(d: Document) -> None:
        for noise in (d["smoothing"]["noise"], d["run"]["spec"]["noise"]):
            noise |= {"grid": grid, "generator": "chacha20"}
        d["smoothing"] |= {"sigma": sigma, "envelope": {"kind": "constant", "sigma": sigma}}
        d["run"]["spec"]["sigma"]["level"] = sigma
        for tally in d["tallies"]:
            tally["sigma"] = sigma

    return change


@pytest.mark.parametrize(
    ("grid", "sigma"), [(2**23 + 2, 1e-7), (2**24, 1e-7), (2**23 + 1, 0.11), (256, 3600.0), (2, 1e7)]
)
def test_no_noise_is_farther_than_float32_counts(plain: Document, grid: int, sigma: float) -> None:
    (*_, finding) = check_document(changed(plain, on_grid(grid, sigma)))
    too_large = (finding.code, finding.values.get("field")) == ("invalid-value", "smoothing.noise.grid")
    assert finding.code == "sigma-beyond-grid" or too_large


def test_the_largest_grid_is_read(plain: Document) -> None:
    assert "sigma-beyond-grid" not in codes(changed(plain, on_grid(2**23 + 1, 0.1)))

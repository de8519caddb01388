"""Selected runs that somebody changed who may write every file: what was requested, the parts, and the claims.

Seals are made anew wherever there are any. What is said of places and machines is accepted, as in ordinary runs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")

from counted_selections import (
    INPUTS,
    SURE,
    UNSURE,
    CountedInput,
    N,
    make_counted_parts,
    make_spec_of_selection,
    store_counted,
)
from smoothcert.runs.certificate_documents import list_documents
from smoothcert.runs.seals import document_digest
from smoothcert.runs.selected_combining import combine_parts, hold_parts
from smoothcert_verify import check_document
from smoothcert_verify.selection_checks import verify_selection
from verified_runs import altered, changed, copy_of, leaves, redigested, resealed, with_change

Document = dict[str, Any]

FEW = (INPUTS[1], INPUTS[5], INPUTS[4], INPUTS[2])
"""On the border of two levels that agree; each level is excluded at a distance of its own; a failure; on the border of
two that do not agree. Each level is sampled at some of them."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("selections")
    return store_counted(folder / "run", inputs=FEW)


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return copy_of(honest, tmp_path)


def findings(run: Path) -> list[str]:
    """Codes, with what they name."""
    found = verify_selection(run).discrepancies
    return [" ".join([one.code, str(one.values.get("field", "")), one.where]).strip() for one in found]


def codes(run: Path) -> set[str]:
    return {finding.split()[0] for finding in findings(run)}


def read(file: Path) -> Document:
    found: Document = json.loads(file.read_text())
    return found


def rewrite(file: Path, change: Callable[[Document], object]) -> None:
    document = read(file)
    change(document)
    file.write_text(json.dumps(document))


def forge_claims(run: Path, change: Callable[[list[Document]], object]) -> set[str]:
    """What is found after the claims were changed."""
    rewrite(run / "claims.json", lambda document: change(document["points"]))
    return codes(run)


def slightly(value: Any) -> Any:
    """Another value, a little larger if it is a number."""
    return value * (1 + 1e-9) if isinstance(value, float) and value else changed(value)


# --- one value in one place -----------------------------------------------------------------------------------------

REASONS = {
    r"selection schema": "unknown-schema",
    r"selection spec\.(task|selector_bounds)": r"invalid-value selection\.spec\.\1",
    r"selection spec\.alpha": "alpha-not-spent",
    r"selection spec\.selector_alpha": "differs spec.alpha selector",
    r"selection spec\.(batch|rigorous|seed)": r"differs spec\.\1 selector",
    r"selection spec\.certificates\.#": "differs selection.spec.certificates",
    r"selection spec\.data\.(skip|max_inputs|split|shorter_side)": r"differs spec\.data\.\1",
    r"selection spec\.data\.(indices|input_range|input_shape|label_column|resize|root)": r"invalid-value .*data\.\1",
    r"selection spec\.engine\.kind": "invalid-value selection.spec.engine.kind",
    r"selection spec\.levels\.#": "missing-part",
    r"selection spec\.(models\.#|selector)\.num_classes": "differs spec.model.num_classes",
    r"selection spec\.(models\.#|selector)\.(arch|backend|code_folder|standardise|weights)": r"invalid-value .*\.\2",
    r"selection spec\.noise\.(generator|kind|place|scale)": r"invalid-value .*noise\.\1",
    r"selection spec\.noise\.(grid|rounds|shared)": r"differs spec\.noise\.\1",
    r"selection spec\.(selector_)?question\.(n|n0)": r"differs spec\.question\.\2",
    r"selection spec\.(selector_)?question\.kind": r"invalid-value .*question\.kind",
    r"selection spec\.sampled": "other-levels",
    r"selection spec\.upper_alpha": "alpha-overspent",
    r"selection spec\.selector_sigma": "differs spec.sigma.level selector",
    r"claims schema": "invalid-value claims.schema",
    r"claims points\.#\.index": "no-claim",
    r"claims points\.[013]\.label": "differs label",
    r"claims points\.#\.(sigma|seconds)": r"differs \1",
    r"claims points\.#\.verdicts\.#\.certificate": "other-certificates",
    r"claims points\.#\.verdicts\.#\.prediction": "differs verdicts.prediction",
    r"claims points\.#\.verdicts\.#\.radius": "(radius-not-certified|impossible-verdict)",
    r"claims points\.#\.verdicts\.#\.(norm|outcome|reason|bounds)": r"invalid-value .*\.\1",
    r"claims points\.#\.verdicts\.#\.reason\..*": "reason-differs",
    r"claims points\.#\.verdicts\.#\.bounds\..*": "differs verdicts.bounds",
}
"""By the place of a value, the finding for another value there."""

REMARKED = r"selection spec\.((models\.#|selector)\.(place|device)|data\.place)"
"""Where models and data were found, which may change when a run is resumed: only their digests matter."""
ACCEPTED = r"selection spec\.engine\.workers|claims points\.2\.label"
"""What is about the machine; and the label of an input at which no level was sampled, which a replay compares."""

NAMES = ("selection", "claims")
MOST_TRIED = 6
"""Places tried for one pattern, evenly spread."""


def list_places(run: Path, name: str) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """The place of each value, as the patterns above name it, and with the numbers of the claims."""
    for at, _ in leaves(read(run / f"{name}.json")):
        exact = f"{name} {'.'.join(map(str, at))}"
        yield at, re.sub(r"\.\d+\b", ".#", exact), exact


def match_either(pattern: str, text: str, exact: str) -> re.Match[str] | None:
    return re.fullmatch(pattern, text) or re.fullmatch(pattern, exact)


@pytest.mark.parametrize("pattern", [*REASONS, REMARKED, ACCEPTED])
def test_every_value_that_is_changed_is_found(run: Path, pattern: str) -> None:
    (name,) = [name for name in NAMES if pattern.startswith(name)]
    honest = read(run / f"{name}.json")
    places = [place for place in list_places(run, name) if match_either(pattern, *place[1:])]
    assert places
    for at, text, exact in places[:: -(-len(places) // MOST_TRIED)]:
        match = match_either(pattern, text, exact)
        assert match is not None
        (run / f"{name}.json").write_text(json.dumps(with_change(honest, at, slightly)))
        found = findings(run)
        if pattern in REASONS:
            assert any(re.search(match.expand(REASONS[pattern]), one) for one in found), (exact, found)
        else:
            assert found == [], exact
        if pattern == REMARKED:
            assert "found-elsewhere" in [remark.code for remark, _ in verify_selection(run).remarks]


def test_no_value_is_forgotten(run: Path) -> None:
    for name in NAMES:
        for _, text, exact in list_places(run, name):
            assert any(match_either(pattern, text, exact) for pattern in (*REASONS, REMARKED, ACCEPTED)), exact


# --- claims ---------------------------------------------------------------------------------------------------------


def test_claims_that_are_dropped_repeated_or_moved(run: Path) -> None:
    honest = read(run / "claims.json")["points"]
    assert forge_claims(run, lambda points: points.pop(1)) == {"no-claim"}
    assert forge_claims(run, lambda points: points.__setitem__(slice(None), [*honest, honest[-1]])) == {
        "repeated-claim"
    }
    assert forge_claims(run, lambda points: points.__setitem__(slice(None), honest[::-1])) == {"differs"}
    assert forge_claims(run, lambda points: points.__setitem__(slice(None), honest)) == set()
    (run / "claims.json").unlink()
    assert codes(run) == {"missing-file"}


def test_claims_with_more_or_fewer_verdicts(run: Path) -> None:
    verdicts = read(run / "claims.json")["points"][1]["verdicts"]
    assert forge_claims(run, lambda points: points[1]["verdicts"].pop()) == {"other-certificates"}
    for wrong in (verdicts * 2, verdicts[::-1]):
        assert forge_claims(run, lambda points, w=wrong: points[1].update(verdicts=w)) == {"other-certificates"}  # type: ignore[misc]


def test_the_largest_radius_of_a_level_is_not_that_of_all(run: Path) -> None:
    """Negative control: a radius as if one level alone decided."""
    radii = [point.radius for part in make_counted_parts().levels.values() for point in part.points if point.index == 5]
    claimed = read(run / "claims.json")["points"][1]["verdicts"][0]["radius"]
    larger = [radius for radius in radii if radius > claimed]
    assert larger
    for radius in larger:
        found = forge_claims(run, lambda points, r=radius: points[1]["verdicts"][0].update(radius=r))  # type: ignore[misc]
        assert found == {"radius-not-certified"}


def test_the_sharper_radius_is_not_the_published_one(run: Path) -> None:
    def swap(points: list[Document]) -> None:
        sharper, published = points[1]["verdicts"]
        assert sharper["radius"] > published["radius"] > 0
        published["radius"] = sharper["radius"]

    assert forge_claims(run, swap) == {"radius-not-certified"}


def test_levels_that_agree_are_nothing_to_the_published_form(tmp_path: Path) -> None:
    """All levels answer the same, far out; the published form rests on the selector and one of them."""
    one = CountedInput((3, 30, 7), (300, 600, 100), (SURE, SURE, SURE))
    run = store_counted(tmp_path / "run", make_spec_of_selection(sampled=3), [one])
    sharper, published = read(run / "claims.json")["points"][0]["verdicts"]
    assert sharper["radius"] > 0.4 > published["radius"] > 0
    found = forge_claims(run, lambda points: points[0]["verdicts"][1].update(radius=0.4))
    assert found == {"radius-not-certified"}


def test_an_abstention_is_no_certificate_and_a_certificate_no_abstention(run: Path) -> None:
    def certify(points: list[Document]) -> None:
        points[0]["verdicts"][1].update(prediction=0, radius=0.01, outcome="certified", reason=None)

    def abstain(points: list[Document]) -> None:
        reason = {"code": "levels-disagree", "label": 0, "sigma": 0.5}
        points[0]["verdicts"][0].update(prediction=None, radius=0.0, outcome="abstained", reason=reason)

    honest = (run / "claims.json").read_text()
    assert read(run / "claims.json")["points"][0]["verdicts"][1]["reason"]["code"] == "level-not-proved"
    assert forge_claims(run, certify) == {"radius-not-certified"}
    (run / "claims.json").write_text(honest)
    assert {"radius-too-small"} <= forge_claims(run, abstain)


def test_a_failure_is_no_answer(run: Path) -> None:
    def certify(points: list[Document]) -> None:
        points[2]["verdicts"][0] = points[1]["verdicts"][0]

    assert {"differs", "impossible-verdict"} <= forge_claims(run, certify)


# --- parts ----------------------------------------------------------------------------------------------------------


def test_parts_that_change_places(run: Path) -> None:
    for first, second in (("level-0.5", "level-1.0"), ("selector", "level-0.5")):
        aside = run.parent / "aside"
        shutil.copytree(run, aside)
        (aside / first).rename(aside / "between")
        (aside / second).rename(aside / first)
        (aside / "between").rename(aside / second)
        assert {"differs"} <= codes(aside)
        shutil.rmtree(aside)


def test_a_part_of_another_run(run: Path, tmp_path: Path) -> None:
    """The same request with another seed, of which the better level is taken."""
    other = store_counted(tmp_path / "other", make_spec_of_selection(seed=8), FEW)
    shutil.rmtree(run / "level-0.5")
    shutil.copytree(other / "level-0.5", run / "level-0.5")
    assert [one for one in findings(run) if "seed" in one] == ["differs spec.seed level-0.5"]


def change_manifest(part: Path, change: Callable[[Document], object]) -> None:
    rewrite(part / "manifest.json", change)
    resealed(part)


def test_parts_about_other_data(run: Path) -> None:
    change_manifest(run / "level-0.5", lambda manifest: manifest["digests"].update(data="e" * 64))
    assert findings(run) == ["differs run.data level-0.5"]


def test_levels_of_other_classes(run: Path) -> None:
    names = ["a", "b", "c", "d"]
    change_manifest(run / "level-1.0", lambda manifest: manifest["model"].update(class_names=names))
    assert findings(run) == ["differs run.model.class_names level-1.0"]


def test_one_model_for_all_levels_is_one(tmp_path: Path) -> None:
    run = store_counted(tmp_path / "run", make_spec_of_selection(models=make_spec_of_selection().models[:1]), FEW)
    assert codes(run) == set()
    change_manifest(run / "level-1.0", lambda manifest: manifest["digests"].update(model="e" * 64))
    assert findings(run) == ["differs run.digests.model level-1.0"]


def test_a_level_sampled_at_an_input_without_a_selector(run: Path, tmp_path: Path) -> None:
    """All inputs of the run are as they were; a level has one more, with the same seed."""
    wider = store_counted(tmp_path / "wider", inputs=(*FEW, INPUTS[0]))
    shutil.rmtree(run / "level-1.0")
    shutil.copytree(wider / "level-1.0", run / "level-1.0")
    assert findings(run) == ["index-not-requested  level-1.0"]


def test_parts_that_are_missing_or_too_many(run: Path) -> None:
    shutil.copytree(run / "level-0.5", run / "level-0.75")
    assert codes(run) == {"unknown-part"}
    shutil.rmtree(run / "level-0.75")
    shutil.copy(run / "selector" / "manifest.json", run / "manifest.json")
    assert codes(run) == {"unknown-part"}
    (run / "manifest.json").unlink()
    shutil.rmtree(run / "level-1.0")
    assert {"missing-part", "claim-without-answer"} <= codes(run)
    shutil.rmtree(run / "selector")
    assert codes(run) == {"missing-part"}


def test_a_radius_of_a_level_that_is_raised(run: Path) -> None:
    altered(run / "level-0.5" / "results.sqlite", "UPDATE verdicts SET radius = radius * 2 WHERE idx = 1")
    assert {"seal-broken input", "radius-not-certified"} & {" ".join(one.split()[:1]) for one in findings(run)}
    resealed(run / "level-0.5")
    assert "radius-not-certified  level-0.5: input 1: gaussian" in findings(run)


def test_votes_of_the_selector_that_are_changed(run: Path) -> None:
    """Votes that prove are given to the leading level, and the claim is raised to what they would prove."""
    votes = CountedInput(INPUTS[5].choosing, (0, 900, 100), INPUTS[5].levels)
    better = combine_parts(make_counted_parts(inputs=[INPUTS[1], votes, *FEW[2:]]))[1]
    rewrite(run / "claims.json", lambda document: document["points"][1]["verdicts"][0].update(radius=better.radius))
    assert findings(run) == ["radius-not-certified  input 1: selected"]
    counts = json.dumps({"votes": {"1": 900, "2": 100}, "invalid": 0})
    change = f"UPDATE tallies SET counts = '{counts}' WHERE idx = 1 AND stage = 'ESTIMATION'"
    altered(run / "selector" / "results.sqlite", change)
    resealed(run / "selector")
    # The claim follows now. The selector's own certificate does not; who mends that too is found by a replay.
    assert findings(run) == ["bound-too-loose  selector: input 1: gaussian"]


# --- choosing and alpha ---------------------------------------------------------------------------------------------


def store_with_other_selector(folder: Path, forger: CountedInput, honest: CountedInput, **changes: Any) -> Path:
    """The levels and claims that follow from the votes of the forger, beside a selector with those that were drawn."""
    spec = make_spec_of_selection(**changes)
    run = store_counted(folder / "forged", spec, [forger])
    drawn = store_counted(folder / "drawn", spec, [honest])
    shutil.rmtree(run / "selector")
    shutil.copytree(drawn / "selector", run / "selector")
    return run


PROVING = (960, 30, 10)
ADAPTED, DRAWN = (21, 19, 0), (2, 21, 17)


def test_levels_chosen_by_the_votes_that_prove(tmp_path: Path) -> None:
    forger, honest = (CountedInput(choosing, PROVING, INPUTS[0].levels) for choosing in (ADAPTED, DRAWN))
    run = store_with_other_selector(tmp_path, forger, honest)
    assert {"other-levels  input 0", "claim-without-answer  input 0"} <= set(findings(run))


def test_a_leading_level_chosen_by_the_votes_that_prove(tmp_path: Path) -> None:
    """All levels are sampled, so only what leads can be chosen. The level that was to lead proves nothing."""
    levels = (SURE, UNSURE, UNSURE)
    forger, honest = (CountedInput(choosing, PROVING, levels) for choosing in (ADAPTED, DRAWN))
    run = store_with_other_selector(tmp_path, forger, honest, sampled=3)
    assert read(run / "claims.json")["points"][0]["verdicts"][0]["radius"] > 0.4
    assert {"differs sigma input 0", "radius-not-certified  input 0: selected"} <= set(findings(run))


def test_bounds_of_each_level_need_a_fixed_number_of_votes(tmp_path: Path) -> None:
    run = store_counted(tmp_path / "run")
    question = {"kind": "precision", "width": 0.01, "n": N, "n0": 40}
    rewrite(run / "selection.json", lambda document: document["spec"].update(selector_question=question))
    assert "differs selection.spec.selector_bounds" in findings(run)


def test_bounds_of_another_kind(run: Path) -> None:
    """Claims by one kind of bounds, said to be by the other."""
    rewrite(run / "selection.json", lambda document: document["spec"].update(selector_bounds="two-class"))
    assert codes(run) == {"radius-not-certified"} | ({"differs", "reason-differs"} & codes(run))


# --- documents ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    parts = make_counted_parts()
    return [json.loads(json.dumps(document)) for _, document in list_documents(hold_parts(parts))]


def found_in(document: Document) -> set[str]:
    found = check_document(sealed(document))
    return {finding.code for finding in found.discrepancies}


def sealed(document: Document) -> Document:
    """With digests that fit, of the document and of those inside."""
    inside = {"selector": redigested(document["selector"]), "levels": [redigested(one) for one in document["levels"]]}
    rest = {key: value for key, value in {**document, **inside}.items() if key != "digest"}
    return rest | {"digest": document_digest(rest)}


def test_documents_whose_parts_were_changed(documents: list[Document]) -> None:
    first, last = documents[0], documents[5]
    assert found_in(first) == set()
    assert "other-levels" in found_in({**last, "levels": last["levels"][:1]})
    assert "invalid-value" in found_in({**last, "levels": last["levels"][::-1]})
    assert "invalid-value" in found_in({**last, "levels": last["levels"][:1] * 2})
    assert "differs" in found_in({**last, "selector": first["selector"]})
    assert "differs" in found_in({**last, "levels": documents[1]["levels"]})
    assert "digest-differs" in {one.code for one in check_document({**last, "sigma": 1.0}).discrepancies}


@pytest.mark.parametrize(
    ("at", "code"),
    [
        (("format",), "unknown-format"),
        (("version",), "unknown-version"),
        (("input", "index"), "differs"),
        (("input", "label"), "differs"),
        (("sigma",), "differs"),
        (("verdicts", 0, "radius"), "radius-not-certified"),
        (("verdicts", 0, "prediction"), "differs"),
        (("verdicts", 0, "bounds", "label"), "differs"),
        (("selection", "alpha"), "alpha-not-spent"),
        (("selection", "sampled"), "other-levels"),
        (("selection", "upper_alpha"), "alpha-overspent"),
        (("selection", "seed"), "differs"),
        (("selection", "selector_sigma"), "differs"),
        (("selection", "levels", 2), "invalid-value"),
        (("levels", 1, "verdicts", 0, "radius"), "radius-not-certified"),
        (("levels", 1, "run", "spec", "data", "indices", 0), "invalid-value"),
        (("selector", "tallies", 0, "counts", "votes", "1"), "votes-do-not-add-up"),
    ],
)
def test_documents_with_one_value_changed(documents: list[Document], at: tuple[str | int, ...], code: str) -> None:
    assert code in found_in(with_change(documents[5], at, slightly))


def test_a_hostile_document_is_refused_and_never_raises(documents: list[Document]) -> None:
    for at, _ in list(leaves(documents[5]))[::40]:
        for value in (None, [], {}, "x", -1):
            check_document(with_change(documents[5], at, lambda _, v=value: v))  # type: ignore[misc]

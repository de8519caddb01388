"""A run under splitting whose numbers were changed, in all places that state them, and sealed anew."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")

from cli_runner import invoke
from forged_documents import (
    Document,
    Edit,
    at,
    both,
    forged,
    in_spec,
    in_tallies,
    in_verdict,
    scaled,
    with_certificate,
    with_grid,
    with_noise,
    with_sigma,
)
from smoothcert.cli.main import app
from smoothcert_verify import check_document
from smoothcert_verify.findings import Finding
from verified_runs import MODEL, altered, copy_of, make_run, resealed

PROOF = "every evaluation made"
EVALUATIONS, STEPS_OF_GRID = 24, 16


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run("split", tmp_path_factory.mktemp("splits"))


@pytest.fixture(scope="module")
def documents(run: Path) -> list[Document]:
    out = run.parent / "certificates"
    invoke(app, "export", run, "--format", "certificate", "-o", out)
    return [json.loads(file.read_text()) for file in sorted(out.glob("*.json"))]


@pytest.fixture(scope="module")
def divided(documents: list[Document]) -> Document:
    """An input that is certified although not all votes are for one class."""
    return next(
        one
        for one in documents
        if one["verdicts"][0]["outcome"] == "certified" and len(one["tallies"][0]["counts"]["votes"]) > 1
    )


def brief(finding: Finding) -> str:
    named = [finding.values.get(name) for name in ("field", "what", "stage", "proof")]
    return " ".join([finding.code, *(name for name in named if isinstance(name, str))])


def refusals(document: Document, *edits: Edit) -> list[str]:
    return [brief(finding) for finding in check_document(forged(document, *edits)).discrepancies]


# --- edits that keep everything else in step ------------------------------------------------------------------------


def votes_of(document: Document) -> dict[int, int]:
    return {int(label): count for label, count in document["tallies"][0]["counts"]["votes"].items()}


def with_steps(steps: int) -> Edit:
    """Steps, and the radius that they would give."""

    def edit(document: Document) -> None:
        verdict = document["verdicts"][0]
        verdict["bounds"]["quantities"]["steps"]["value"] = float(steps)
        verdict["radius"] = steps / STEPS_OF_GRID

    return edit


def more_steps(count: int) -> Edit:
    return lambda d: with_steps(int(d["verdicts"][0]["bounds"]["quantities"]["steps"]["value"]) + count)(d)


def with_votes(votes: dict[int, int], *, invalid: int = 0) -> Edit:
    return in_tallies("ESTIMATION", counts={"votes": {str(k): n for k, n in sorted(votes.items())}, "invalid": invalid})


def with_label(label: int, steps: int) -> Edit:
    """Another class, in bounds and verdict, with these steps."""

    def edit(document: Document) -> None:
        document["verdicts"][0]["prediction"] = document["verdicts"][0]["bounds"]["label"] = label
        with_steps(steps)(document)

    return edit


def with_evaluations(count: int) -> Edit:
    """A vote for each, or fewer, and n; σ stays what it was."""

    def edit(document: Document) -> None:
        document["run"]["spec"]["question"]["n"] = count
        tally = document["tallies"][0]
        votes, label = tally["counts"]["votes"], str(document["verdicts"][0]["prediction"])
        votes[label] += count - tally["stop"]
        tally["stop"] = count
        steps = lead(votes_of(document), int(label)) // 2
        with_steps(steps)(document)

    return edit


def lead(votes: dict[int, int], label: int) -> int:
    return min(votes[label] - votes.get(c, 0) - (c < label) for c in range(10) if c != label)


def with_alpha(alpha: float) -> Edit:
    def edit(document: Document) -> None:
        document["run"]["spec"]["alpha"] = alpha
        document["run"]["alpha_split"]["splitting-l1"][PROOF] = alpha
        bounds = document["verdicts"][0]["bounds"]
        bounds["spent"][PROOF] = bounds["quantities"]["steps"]["alpha"] = alpha

    return edit


def with_proof(name: str) -> Edit:
    def edit(document: Document) -> None:
        document["run"]["alpha_split"]["splitting-l1"] = {name: 0.0}
        bounds = document["verdicts"][0]["bounds"]
        bounds["spent"] = {name: 0.0}
        bounds["quantities"]["steps"]["method"] = name

    return edit


def with_selection(n: int) -> Edit:
    """Votes that selected the class, as samples have them."""

    def edit(document: Document) -> None:
        counts = {"votes": {str(document["verdicts"][0]["prediction"]): n}, "invalid": 0}
        document["tallies"].insert(0, document["tallies"][0] | {"stage": "SELECTION", "stop": n, "counts": counts})

    return edit


def in_two_tallies(document: Document) -> None:
    first, votes = document["tallies"][0], votes_of(document)
    label = document["verdicts"][0]["prediction"]
    rest = votes | {label: votes[label] - 5}
    second = first | {"start": 5, "counts": {"votes": {str(k): n for k, n in rest.items()}, "invalid": 0}}
    document["tallies"] = [first | {"stop": 5, "counts": {"votes": {str(label): 5}, "invalid": 0}}, second]


def shifted(document: Document) -> None:
    """As many evaluations, from number 1 on: the one with number N is the first again."""
    document["tallies"][0] |= {"start": 1, "stop": EVALUATIONS + 1}


def as_pairs(document: Document) -> None:
    tally, votes = document["tallies"][0], document["tallies"][0]["counts"]["votes"]
    halves = {label: count // 2 for label, count in votes.items()}
    halves[next(iter(votes))] += EVALUATIONS // 2 - sum(halves.values())
    tally |= {"kind": "pairs", "stop": EVALUATIONS // 2, "counts": {"both": halves, "first": {}, "second": {}}}


NEEDS_N0 = {"kind": "fixed-n", "n": EVALUATIONS, "n0": EVALUATIONS}

FORGERIES: dict[str, tuple[Edit, str]] = {
    "n": (in_spec("question", "n", to=EVALUATIONS + 1), "number-of-evaluations"),
    "n, with the votes": (with_evaluations(EVALUATIONS + 2), "number-of-evaluations"),
    "fewer evaluations": (with_evaluations(EVALUATIONS - 4), "sample-count ESTIMATION"),
    "sigma": (with_sigma(1.1), "number-of-evaluations"),
    "sigma, with n": (both(with_sigma(2.0), in_spec("question", "n", to=2 * EVALUATIONS)), "sample-count ESTIMATION"),
    "alpha": (with_alpha(0.001), r"invalid-value run\.spec\.alpha"),
    "alpha of the run": (in_spec("alpha", to=0.001), r"invalid-value run\.spec\.alpha"),
    "alpha of the split": (at("run", "alpha_split", "splitting-l1", PROOF, to=0.001), "uneven-split"),
    "nothing in the split": (at("run", "alpha_split", "splitting-l1", to={}), "uneven-split"),
    "another proof in the split": (
        at("run", "alpha_split", "splitting-l1", to={"clopper-pearson": 0.0}), "uneven-split"
    ),
    "alpha that was spent": (at("verdicts", 0, "bounds", "spent", PROOF, to=0.001), f"unknown-proof {PROOF}"),
    "another proof": (with_proof("clopper-pearson"), "unknown-proof clopper-pearson"),
    "noise tables": (
        at("verdicts", 0, "bounds", "spent", "finite tables of the noise", to=1e-12), "no-noise-tables"
    ),
    "the range": (shifted, "gap-in-samples ESTIMATION"),
    "two ranges": (in_two_tallies, "evaluations-in-parts ESTIMATION"),
    "pairs": (as_pairs, "not-plain-votes ESTIMATION"),
    "the stage": (at("tallies", 0, "stage", to="PREDICTION"), "unexpected-stage PREDICTION"),
    "a selection": (with_selection(20), "unexpected-stage SELECTION"),
    "a selection that was asked for": (
        both(with_selection(EVALUATIONS), in_spec("question", to=NEEDS_N0)), "question-of-other-noise"
    ),
    "n0": (in_spec("question", "n0", to=20), r"unknown-field run\.spec\.question\.n0"),
    "a question that may end early": (
        in_spec("question", to={"kind": "decide", "radii": [0.1], "n": EVALUATIONS, "n0": 20}),
        "question-of-other-noise",
    ),
    "one vote lost": (lambda d: with_votes(votes_of(d) | {d["verdicts"][0]["prediction"]: 1})(d), "votes-do-not-add"),
    "one step more": (more_steps(1), "other-steps"),
    "one step less": (more_steps(-1), "other-steps"),
    "half a step more": (
        lambda d: d["verdicts"][0]["bounds"]["quantities"]["steps"].update(
            value=d["verdicts"][0]["bounds"]["quantities"]["steps"]["value"] + 0.5
        ),
        "other-steps",
    ),
    "the radius one step larger": (
        lambda d: in_verdict(radius=d["verdicts"][0]["radius"] + 1 / STEPS_OF_GRID)(d), "radius-not-certified"
    ),
    "the radius one float larger": (
        lambda d: in_verdict(radius=math.nextafter(d["verdicts"][0]["radius"], math.inf))(d), "radius-not-certified"
    ),
    "the radius one float smaller": (
        lambda d: in_verdict(radius=math.nextafter(d["verdicts"][0]["radius"], 0))(d), "radius-too-small"
    ),
    "an upper bound on the steps": (
        at("verdicts", 0, "bounds", "quantities", "steps", "side", to="upper"), "differs steps.side"
    ),
    "another class": (lambda d: in_verdict(prediction=runner_up(d))(d), "not-the-selected-class certifies"),
    "another class with its bounds": (lambda d: with_label(runner_up(d), 1)(d), "not-the-selected-class bounds"),
    "norm": (in_verdict(norm="l2"), r"differs verdicts\.norm"),
    "uniform noise": (with_noise("uniform"), "question-of-other-noise"),
    "certificate": (with_certificate("uniform-l1"), "certificate-of-other-noise"),
    "without a grid": (with_grid(None), r"invalid-value run\.spec\.noise\.grid"),
    "a coarser grid": (with_grid(9), "number-of-evaluations"),
    "a finer grid, with sigma": (both(with_grid(33), with_sigma(0.5), scaled("radius", 1.5)), "radius-not-certified"),
    "the generator": (in_spec("noise", "generator", to="philox4x32-10"), r"differs run\.spec\.noise\.generator"),
    "the place": (in_spec("noise", "place", to="first-layer"), r"differs run\.spec\.noise\.place"),
    "rounding, in one place": (in_spec("noise", "rounds", to=False), r"differs smoothing\.noise"),
    "a prediction": (in_spec("task", to="predict"), "certificates-of-a-prediction"),
    "the best of one": (in_spec("best_of", to=True), r"differs run\.alpha_split"),
}  # fmt: skip


def runner_up(document: Document) -> int:
    votes = votes_of(document)
    return max((label for label in votes if label != document["verdicts"][0]["prediction"]), key=votes.__getitem__)


def test_unchanged_they_are_accepted(documents: list[Document]) -> None:
    assert [refusals(document) for document in documents] == [[]] * len(documents)


@pytest.mark.parametrize("name", FORGERIES)
def test_refused_without_a_replay(name: str, divided: Document) -> None:
    edit, reason = FORGERIES[name]
    found = refusals(divided, edit)
    assert any(re.search(reason, line) for line in found), found


TIED = {2: 12, 7: 12}


@pytest.mark.parametrize("others", [TIED, {2: 11, 7: 11, 8: 2}])
def test_a_tie_belongs_to_the_lower_class(divided: Document, others: dict[int, int]) -> None:
    """Whoever breaks it the other way gets neither a radius, nor an abstention about the other class."""
    votes = with_votes(others)
    n, most = EVALUATIONS, others[2]
    reason = {"code": "lead-too-small", "votes": most, "runner_up": most, "n": n}

    def abstain(label: int) -> Edit:
        def edit(document: Document) -> None:
            with_label(label, 0)(document)
            in_verdict(outcome="abstained", prediction=None, reason=reason | {"label": label})(document)

        return edit

    assert refusals(divided, votes, abstain(2)) == []
    assert "not-the-selected-class bounds" in refusals(divided, votes, abstain(7))
    assert "not-the-selected-class certifies" in refusals(divided, votes, with_label(7, 1))
    assert "other-steps" in refusals(divided, votes, with_label(2, 1))


def test_the_lower_class_costs_a_vote(divided: Document) -> None:
    """13 to 11: one step if the class is the lower one, and none if it is the higher one."""
    assert refusals(divided, with_votes({2: 13, 7: 11}), with_label(2, 1)) == []
    assert "other-steps" in refusals(divided, with_votes({2: 11, 7: 13}), with_label(7, 1))


def test_invalid_answers_are_counted(divided: Document) -> None:
    assert refusals(divided, with_votes({2: 14}, invalid=10), with_label(2, 2)) == []
    assert "other-steps" in refusals(divided, with_votes({2: 14}, invalid=10), with_label(2, 7))
    failed = refusals(divided, with_votes({2: 10}, invalid=14), with_label(2, 1))
    assert "no-class-selected" in failed


# --- what only a replay shows ---------------------------------------------------------------------------------------


def forge_run(run: Path, folder: Path, change: Callable[[Document], None]) -> Path:
    """The run with another manifest, sealed anew."""
    made = copy_of(run, folder)
    manifest = json.loads((made / "manifest.json").read_text())
    change(manifest)
    (made / "manifest.json").write_text(json.dumps(manifest))
    resealed(made)
    return made


def findings(place: Path, *options: object) -> list[str]:
    checked = json.loads(invoke(app, "verify", place, "--json", *options).stdout)
    found = (Finding(one["code"], one["values"], one["where"]) for one in checked["places"][0]["discrepancies"])
    return [brief(finding) for finding in found]


def replayed(place: Path, indices: Sequence[int] = (0, 60, 120, 180)) -> list[str]:
    return findings(place, "--replay", MODEL, 0, "--replay-indices", ",".join(map(str, indices)))


def put_seed(manifest: dict[str, Any]) -> None:
    manifest["seed"] = manifest["spec"]["seed"] = 4


def put_coarser_grid(manifest: dict[str, Any]) -> None:
    """As many evaluations on half as many levels, to which inputs are said to be rounded."""
    manifest["spec"]["noise"] |= {"grid": 9, "rounds": True}
    manifest["spec"]["sigma"]["level"] *= 2


def put_rounds(manifest: dict[str, Any]) -> None:
    manifest["spec"]["noise"]["rounds"] = not manifest["spec"]["noise"]["rounds"]


def test_unchanged_it_comes_out_again(run: Path, tmp_path: Path) -> None:
    assert replayed(forge_run(run, tmp_path, lambda manifest: None)) == []


def test_other_offsets(run: Path, tmp_path: Path) -> None:
    """Another seed is another classifier, with other votes."""
    made = forge_run(run, tmp_path, put_seed)
    assert findings(made) == []
    assert "other-votes ESTIMATION" in replayed(made)


def test_radii_in_larger_steps(run: Path, tmp_path: Path) -> None:
    """The votes fit any grid with as many evaluations; drawn again, they are others."""
    made = forge_run(run, tmp_path, put_coarser_grid)
    altered(
        made / "results.sqlite",
        "UPDATE points SET sigma = sigma * 2",
        "UPDATE tallies SET sigma = sigma * 2",
        "UPDATE verdicts SET radius = radius * 2",
    )
    resealed(made)
    assert findings(made) == []
    assert "other-votes ESTIMATION" in replayed(made)


def test_votes_that_were_made_up(run: Path, tmp_path: Path) -> None:
    """All votes for the class of each input, with the radii that follow."""
    made = copy_of(run, tmp_path)
    with closing(sqlite3.connect(made / "results.sqlite")) as connection:
        for index, text in connection.execute("SELECT idx, bounds FROM verdicts").fetchall():
            bounds = json.loads(text)
            label, steps = bounds["label"], (EVALUATIONS - 1 * (bounds["label"] > 0)) // 2
            bounds["quantities"]["steps"]["value"] = float(steps)
            counts = {"votes": {str(label): EVALUATIONS}, "invalid": 0}
            connection.execute(
                "UPDATE verdicts SET outcome = 'CERTIFIED', prediction = ?, radius = ?, reason = '', bounds = ? "
                "WHERE idx = ?",
                (label, steps / STEPS_OF_GRID, json.dumps(bounds), index),
            )
            connection.execute("UPDATE tallies SET counts = ? WHERE idx = ?", (json.dumps(counts), index))
        connection.commit()
    resealed(made)
    assert findings(made) == []
    assert "other-votes ESTIMATION" in replayed(made)


def test_inputs_that_were_rounded_are_not_on_the_grid(tmp_path: Path) -> None:
    """Digits lie on 17 levels. Rounded to 8 they come out again; somebody who denies the rounding is refused."""
    data = ("--model", MODEL, "--data", "digits", "--seed", 3, "--batch", 64, "--workers", 1, "--skip", 60, "--max", 2)
    options = ("--noise", "splitting", "--evaluations", 8, "--grid", 8)
    invoke(app, "certify", *data, *options, "--out", tmp_path / "rounded")
    assert replayed(tmp_path / "rounded", (0, 60)) == []
    denied = forge_run(tmp_path / "rounded", tmp_path, put_rounds)
    found = replayed(denied, (0, 60))
    assert any(re.search("data-off-the-grid|cannot-be-checked", line) for line in found), found


def test_rounding_of_inputs_on_the_grid_changes_nothing(run: Path, tmp_path: Path) -> None:
    assert replayed(forge_run(run, tmp_path, put_rounds)) == []


def test_samples_are_not_rounded(tmp_path: Path) -> None:
    sampled = make_run("votes", tmp_path)
    assert findings(forge_run(sampled, tmp_path, put_rounds)) == ["differs run.spec.noise.rounds"]

"""Every field that a theorem depends on, alone and two at a time, in documents that are sealed anew.

What can be refused without the model is refused with a reason that names it. What cannot, because it only says of which
model, data and randomness the votes are, is accepted alone and refused with `--replay`;
docs/explanation/verification.md lists it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")

from cli_runner import invoke
from forged_documents import (
    Document,
    Edit,
    Forgery,
    at,
    both,
    forged,
    in_spec,
    in_tallies,
    in_verdict,
    moved_votes,
    scaled,
    with_alpha,
    with_certificate,
    with_classes,
    with_grid,
    with_noise,
    with_shape,
    with_sigma,
    with_slack_of_bounds,
    with_tables,
    without,
)
from smoothcert.cli.main import app
from smoothcert_verify.findings import Finding
from smoothcert_verify.run_checks import verify_certificates
from verified_runs import KINDS, MODEL, SPLIT_KINDS, leaves, make_run, resealed, with_change

INDICES = (0, 60, 120, 180)


def exported(run: Path) -> Path:
    out = run.parent / f"certificates of {run.name}"
    if not out.exists():
        invoke(app, "export", run, "--format", "certificate", "-o", out)
    return out


def documents_of(run: Path) -> list[Document]:
    return [json.loads(file.read_text()) for file in sorted(exported(run).glob("*.json"))]


def certified_ones(run: Path) -> list[Document]:
    found = [document for document in documents_of(run) if document["verdicts"][0]["outcome"] == "certified"]
    assert found
    return found


def brief(finding: Finding) -> str:
    """The code of a finding, the field it names, and what else tells it from others."""
    named = [finding.values.get(name) for name in ("field", "quantity", "what", "stage", "proof", "first", "second")]
    return " ".join([finding.code, *(str(name) for name in named if isinstance(name, str))])


def refused(folder: Path, *documents: Mapping[str, Any]) -> list[str]:
    """What the checker finds in these documents."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, document in enumerate(documents):
        (folder / f"{number}.json").write_text(json.dumps(document))
    return [brief(finding) for finding in verify_certificates(folder).discrepancies]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fields")


@pytest.fixture(scope="module")
def spread(folder: Path) -> Path:
    """So much noise that no input is unanimous: other noise gives other votes."""
    return certified(folder, "spread")


@pytest.fixture(scope="module")
def spread_in_float(folder: Path) -> Path:
    return certified(folder, "spread in float", "--noise", "float")


def certified(folder: Path, name: str, *more: object) -> Path:
    data = ("--model", MODEL, "--data", "digits", "--seed", 3, "--batch", 64, "--workers", 1, "--skip", 60, "--max", 4)
    invoke(app, "certify", *data, "--n0", 20, "--n", 400, "--sigma", 0.5, *more, "--out", folder / name)
    return folder / name


# --- one value in one place -----------------------------------------------------------------------------------------

REASONS = {
    r"format": "unknown-format",
    r"version": "unknown-version",
    r"input\.index": "index-not-requested",
    r"smoothing\.sigma": r"differs (smoothing|tallies)\.sigma",
    r"smoothing\.noise\.(kind|grid|generator|place|rounds|shared|scale)(\.#)?": r"smoothing\.noise(\.\1)?",
    r"smoothing\.(dimension|num_classes|envelope|remembered).*": r"(differs|invalid-value) (smoothing\.)?\1",
    r"verdicts\.#\.certificate": "other-certificates",
    r"verdicts\.#\.prediction": r"(not-the-selected-class|impossible-verdict|verdicts\.prediction)",
    r"verdicts\.#\.radius": r"(radius-not|best-not-first|impossible-verdict|differs verdicts\.radius)",
    r"verdicts\.#\.norm": r"invalid-value verdicts\.[0-9]+\.norm",
    r"verdicts\.#\.outcome": r"invalid-value verdicts\.[0-9]+\.outcome",
    r"verdicts\.#\.reason": r"invalid-value verdicts\.[0-9]+\.reason",
    r"verdicts\.#\.reason\..*": "reason-differs",
    r"verdicts\.#\.bounds": r"invalid-value verdicts\.[0-9]+\.bounds",
    r"verdicts\.#\.bounds\.label": "(not-the-selected-class bounds|invalid-value verdicts.bounds.label)",
    r"verdicts\.#\.bounds\.quantities\.steps\.value": "other-steps",
    r"verdicts\.#\.bounds\.quantities\.([\w-]+)\.value": r"(not-proved|too-loose|invalid-value).* \1",
    r"verdicts\.#\.bounds\.quantities\.([\w-]+)\.side": r"invalid-value .*\1\.side",
    r"verdicts\.#\.bounds\.quantities\.([\w-]+)\.(alpha|method)": r"differs \1\.alpha",
    r"verdicts\.#\.bounds\.spent\..*": r"(alpha|noise-tables|unknown-proof every)",
    r"tallies\.#\.(stage|kind)": r"invalid-value tallies\.[0-9]+\.\1",
    r"tallies\.#\.(start|stop)": "(gap-in-samples|sample-count|do-not-add-up|odd-gradient-draws)",
    r"tallies\.#\.sigma": r"differs tallies\.sigma",
    r"tallies\.#\.num_classes": r"differs tallies\.num_classes",
    r"tallies\.#\.counts\.(votes\.\d+|invalid)": "votes-do-not-add-up",
    r"tallies\.#\.counts\.(both|first|second)\.\d+": "pairs-do-not-add-up",
    r"tallies\.#\.counts\.label": "scores-of-another-class|invalid-value tallies.counts.label",
    r"tallies\.#\.counts\.group\.#": "invalid-groups",
    r"tallies\.#\.sums": "sums",
    r"promise": "invalid-value promise",
    r"promise\.label": r"differs verdicts\.prediction",
    r"promise\.radius": r"differs verdicts\.radius|promise-of-more",
    r"promise\.settlement": r"invalid-value promise\.settlement",
    r"promise\.asked_label": r"(differs promise\.asked_label|inherited-with-claim)",
    r"promise\.asked_radius": "(promise-of-more|inherited-with-claim)",
    r"promise\.(memory|entry)": r"invalid-value promise\.\1",
    r"run\.schema": "unknown-schema",
    r"run\.seed": r"differs run\.spec\.seed",
    r"run\.spec\.(task|seed|batch|sigma|best_of)(\..*)?": r"(invalid-value|differs) .*(\1|alpha_split)",
    r"run\.spec\.certificates\.#": r"(differs run\.alpha_split|other-certificates)",
    r"run\.spec\.alpha": r"(uneven-split|alpha-|invalid-value run\.spec\.alpha)",
    r"run\.spec\.question\.(n|n0)": "(number-of-evaluations|sample-count|changed-by-recertify n|reason-differs|"
    "certificates-of-a-prediction)",
    r"run\.spec\.question\.kind": r"invalid-value run\.spec\.question\.kind",
    r"run\.spec\.question\.radii\.#": "(radius-not-asked|differs run.spec.question.radii)",
    r"run\.spec\.noise\.(kind|grid|generator|place|rounds|shared|scale)(\.#)?": r"(noise\.\1|differs smoothing\.noise)",
    r"run\.spec\.data\.(skip|max_inputs)": "(differs run.data.inputs|index-not-requested)",
    r"run\.spec\.data\.(input_range|input_shape)": r"(invalid-value|differs) run\.spec\.data\.\1",
    r"run\.spec\.model\.num_classes": r"differs run\.spec\.model\.num_classes",
    r"run\.spec\.(rigorous|engine\.kind)": "unchanged",
    r"run\.spec\.data\.indices": r"invalid-value run\.spec\.data\.indices",
    r"run\.measured\.batch": r"differs run\.spec\.batch",
    r"run\.data\.inputs": r"differs run\.data\.inputs",
    r"run\.sigma\.envelope\..*": r"differs run\.sigma\.envelope",
    r"run\.sigma\.rule\.kind": "unknown-rule",
    r"run\.sigma\.rule\.rate": r"differs run\.sigma\.envelope",
    r"run\.sigma\.rule\.input_shape\.#": "rule-for-another-shape",
    r"run\.digests\.(sigma|memory|model|data|code)": r"invalid-value run\.digests\.\1",
    r"run\.sigma": r"invalid-value run\.sigma",
    r"run\.model\.num_classes": "(num_classes|changed-by-recertify model)",
    r"run\.data\.input_shape\.#": "(smoothing.dimension|rule-for-another-shape|changed-by-recertify data)",
    r"run\.data\.levels": "(data-off-the-grid|changed-by-recertify data)",
    r"run\.alpha_split\..*": "uneven-split",
}
"""By the place of a value, the finding for another value there."""

NEEDS_MORE = {
    r"input\.label": "replay",
    r"run\.model\.(description|probe.*|class_names.*)": "replay",
    r"run\.measured\.backend": "replay",
    r"run\.sampling_version": "replay",
    r"run\.data\.(name|size|input_range(\.#)?|levels|feature_names.*)": "replay",
    r"run\.spec\.(model|data)\.(place|arch|standardise|backend|device|split|root|label_column).*": "replay",
    r"run\.spec\.(model\.weights|data\.(resize|shorter_side)).*": "replay",
    r"run\.model\.has_random_weights": "replay",
    r"run\.spec\.(model|sigma)\.code_folder": "nothing: where code was found on the machine that made the run",
    r"run\.spec\.(memory|rigorous|engine\..*)": "nothing: they are about the machine that made the run",
    r"run\.spec\.question\.width": "reasons only: what is stated holds at any width",
    r"run\.spec\.sigma\.place": "replay",
    r"run\.environment\..*": "nothing: versions of libraries",
    r"run\.sigma\.rule\.(base_sigma|k|most|offset|points)": "the file of the rule",
    r"run\.recertified_from\..*": "the source, like any other run",
    r"run\.recertified_from": "the source, like any other run",
    r"tallies\.#\.counts\.products\.#": "replay",
    r"promise\.position": "the memory",
}
"""What no document shows by itself, and what does. Of a recertified run the manifest of its source shows some of it."""

STILL_TRUE = {
    r"(decide|precision) run\.spec\.question\.n": "sampling ended before the limit",
    r"decide run\.spec\.question\.radii\.#": "other radii than the one that is stated",
    r"predict(-memory)? run\.spec\.alpha": "the test is significant at a larger alpha too",
}
"""By the kind of run and the place of a value: what may be another, because all that is stated still follows."""


def another(value: Any) -> Any:
    """A value of the same type that nobody could take for rounding."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.01 if value else 0.01
    return f"{value}x" if isinstance(value, str) else 1


@pytest.mark.parametrize("kind", [*KINDS, *SPLIT_KINDS])
def test_every_value_of_a_document(kind: str, folder: Path, tmp_path: Path) -> None:
    run = make_run(kind, folder / kind)
    document = documents_of(run)[-1]
    assert refused(tmp_path / "f", forged(document)) == [], "sealed anew and unchanged, it is accepted"
    unnamed = []
    for place, _ in leaves(document):
        if place[0] in ("digest", "run_digest"):
            continue
        name = ".".join("#" if isinstance(key, int) else key for key in place)
        found = refused(tmp_path / "f", forged(with_change(document, place, another)))
        if any(re.fullmatch(pattern, name) for pattern in NEEDS_MORE):
            continue
        if not found and any(re.fullmatch(pattern, f"{kind} {name}") for pattern in STILL_TRUE):
            continue
        matching = [(pattern, reason) for pattern, reason in REASONS.items() if re.fullmatch(pattern, name)]
        assert matching, f"nobody says what refuses another {name}"
        (pattern, reason), *_ = matching
        groups = re.fullmatch(pattern, name)
        assert groups is not None
        wanted = groups.expand(reason) if groups.groups() else reason
        if not any(re.search(wanted, line) for line in found):
            unnamed.append((name, wanted, found))
    assert unnamed == []


# --- one edit in every place ----------------------------------------------------------------------------------------


def fewer_votes(document: Document) -> None:
    moved_votes("ESTIMATION", -30)(document)


def a_better_bound(document: Document) -> None:
    document["verdicts"][0]["bounds"]["quantities"]["p-a"]["value"] += 1e-4


def a_worse_bound(document: Document) -> None:
    document["verdicts"][0]["bounds"]["quantities"]["p-a"]["value"] -= 1e-3


def other_selection(document: Document) -> None:
    label = document["verdicts"][0]["bounds"]["label"]
    in_tallies("SELECTION", counts={"votes": {str(1 - min(label, 1)): 20}, "invalid": 0})(document)


FORGERIES = {
    "alpha, smaller": Forgery(with_alpha(0.5), "bound-not-proved p-a"),
    "alpha, larger": Forgery(with_alpha(2.0), "bound-too-loose p-a"),
    "n": Forgery(in_spec("question", "n", to=800), "sample-count ESTIMATION"),
    "n0": Forgery(in_spec("question", "n0", to=10), "sample-count SELECTION"),
    "sigma, larger": Forgery(with_sigma(2.0), "unpaid-noise-tables"),
    "radius, larger": Forgery(scaled("radius", 1 + 1e-6), "radius-not-certified"),
    "radius, smaller": Forgery(scaled("radius", 0.9), "radius-too-small"),
    "norm": Forgery(in_verdict(norm="l1"), r"differs verdicts\.norm"),
    "noise and norm": Forgery(with_noise("uniform"), "certificate-of-other-noise"),
    "outcome": Forgery(in_verdict(outcome="abstained", radius=0.0, prediction=None), "radius-too-small"),
    "outcome, failed": Forgery(in_verdict(outcome="failed", radius=0.0, prediction=None), "impossible-outcome"),
    "prediction": Forgery(
        lambda d: in_verdict(prediction=(d["verdicts"][0]["prediction"] + 1) % 10)(d),
        "not-the-selected-class certifies",
    ),
    "certificate, two classes": Forgery(with_certificate("gaussian-two-class"), "other-bounds"),
    "certificate, another radius": Forgery(with_certificate("li"), "radius-not-certified"),
    "certificate, varying": Forgery(with_certificate("uniform-l1"), "certificate-of-other-noise"),
    "certificate, unknown": Forgery(with_certificate("magic"), "unknown-certificate"),
    "grid": Forgery(with_grid(33), "unpaid-noise-tables"),
    "dimension": Forgery(with_shape(1, 8, 16), "unpaid-noise-tables"),
    "noise tables, nothing": Forgery(with_tables(0.0), "unpaid-noise-tables"),
    "noise tables, too much": Forgery(with_tables(1e-5), "bound-not-proved p-a"),
    "envelope": Forgery(
        at("smoothing", "envelope", to={"kind": "semi-elastic", "rate": 0.01}), r"differs smoothing\.envelope"
    ),
    "envelope of the run": Forgery(
        both(
            at("run", "sigma", to={"rule": {"kind": "knn", "rate": 0.0}, "envelope": None}),
            at("smoothing", "envelope", to={"kind": "semi-elastic", "rate": 0.0}),
        ),
        "sigma-stated-twice",
    ),
    "memory": Forgery(
        both(
            at("smoothing", "remembered", to=True),
            at("run", "digests", "memory", to="0" * 64),
            in_spec("memory", to="memory.sqlite"),
        ),
        "certified-without-promise",
    ),
    "votes, fewer": Forgery(fewer_votes, "bound-not-proved p-a"),
    "votes of the selection": Forgery(other_selection, "not-the-selected-class"),
    "bound, better": Forgery(a_better_bound, "bound-not-proved p-a"),
    "bound, worse": Forgery(a_worse_bound, "bound-too-loose p-a"),
    "bound, method": Forgery(
        lambda d: d["verdicts"][0]["bounds"]["quantities"]["p-a"].update(method="time-uniform sequence"),
        r"differs p-a\.alpha|other-bounds",
    ),
    "question": Forgery(
        in_spec("question", to={"kind": "decide", "radii": [0.1], "n": 400, "n0": 20}), "alpha-on-other-proofs"
    ),
    "precision": Forgery(
        in_spec("question", to={"kind": "precision", "width": 0.05, "n": 400, "n0": 20}), "alpha-on-other-proofs"
    ),
    "task": Forgery(in_spec("task", to="predict"), "certificates-of-a-prediction"),
    "task, recertified": Forgery(in_spec("task", to="recertify"), "source-of-recertified"),
    "tallies, one less": Forgery(without("tallies", 1), "gap-in-samples|sample-count"),
    "tallies, one twice": Forgery(
        lambda d: d["tallies"].append(json.loads(json.dumps(d["tallies"][-1]))), "gap-in-samples"
    ),
}
"""Refused without a replay. The documents are those of a run with exact noise on 17 levels."""

ONLY_REPLAY = {
    "seed": Forgery(both(at("run", "seed", to=4), in_spec("seed", to=4)), replayed="other-votes"),
    "shared noise": Forgery(
        both(in_spec("noise", "shared", to=True), at("smoothing", "noise", "shared", to=True)), replayed="other-votes"
    ),
    "sigma with its radius": Forgery(with_sigma(0.5), replayed="other-votes"),
    "num_classes": Forgery(with_classes(11), replayed="other-model num_classes"),
    "model": Forgery(at("run", "digests", "model", to="0" * 64), replayed="other-model digest"),
    "data": Forgery(at("run", "digests", "data", to="0" * 64), replayed="other-data digest"),
    "shape": Forgery(with_shape(64), replayed="other-data input_shape"),
    "size": Forgery(at("run", "data", "size", to=446), replayed="other-data size"),
    "input_range": Forgery(at("run", "data", "input_range", to=[0.0, 2.0]), replayed="other-data input_range"),
    "sampling_version": Forgery(at("run", "sampling_version", to=2), replayed="other-sampling"),
    "label": Forgery(
        lambda d: at("input", "label", to=(d["input"]["label"] + 1) % 10)(d), replayed=r"differs input\.label"
    ),
    "votes of the selection": Forgery(moved_votes("SELECTION", -1), replayed="other-votes SELECTION"),
    "exact noise that was float": Forgery(
        both(with_grid(17), with_tables(1e-11), with_slack_of_bounds(1 - 1e-6)), replayed="other-votes"
    ),
}
"""What says of which model, data and randomness the votes are: consistent in itself, and refused by a replay."""


@pytest.mark.parametrize("name", FORGERIES)
def test_refused_without_a_replay(name: str, spread: Path, tmp_path: Path) -> None:
    for document in certified_ones(spread):
        found = refused(tmp_path / "f", forged(document, FORGERIES[name].edit))
        assert any(re.search(FORGERIES[name].reason, line) for line in found), found


def replayed(places: Path, documents: Sequence[Document] | None = None) -> tuple[int, str]:
    """What a replay says; of these documents alone, where not all inputs of the run are there."""
    known = INDICES if documents is None else [document["input"]["index"] for document in documents]
    indices = ",".join(map(str, known))
    given = ("--replay", MODEL, 0, "--replay-indices", indices, "--data", "digits", "--json")
    result = invoke(app, "verify", places, *given)
    (place,) = json.loads(result.stdout)["places"]
    found = [brief(Finding(one["code"], one["values"], one["where"])) for one in place["discrepancies"]]
    return result.exit_code, "\n".join(found)


def test_unchanged_a_replay_accepts(spread: Path, spread_in_float: Path, tmp_path: Path) -> None:
    for run in (spread, spread_in_float):
        assert refused(tmp_path / run.name, *(forged(document) for document in documents_of(run))) == []
        code, told = replayed(tmp_path / run.name)
        assert code == 0, told


@pytest.mark.parametrize("name", ONLY_REPLAY)
def test_refused_by_a_replay(name: str, spread: Path, spread_in_float: Path, tmp_path: Path) -> None:
    """First that nothing else refuses it, which is what the documentation says of it."""
    run = spread_in_float if "was float" in name else spread
    documents = [forged(document, ONLY_REPLAY[name].edit) for document in documents_of(run)]
    assert refused(tmp_path / "f", *documents) == []
    code, told = replayed(tmp_path / "f")
    assert code == 1, told
    assert re.search(ONLY_REPLAY[name].replayed, told), told


def test_votes_of_another_input(spread: Path, tmp_path: Path) -> None:
    """Tallies and verdicts that belong together, of another input: only a replay knows better."""
    first, *others = documents_of(spread)
    for name in ("tallies", "verdicts"):
        first[name] = others[0][name]
    documents = [forged(document) for document in (first, *others)]
    assert refused(tmp_path / "f", *documents) == []
    code, told = replayed(tmp_path / "f")
    assert code == 1
    assert re.search("other-votes", told)


def test_one_input_under_two_names(spread: Path, tmp_path: Path) -> None:
    documents = documents_of(spread)
    copied = forged(documents[0], at("input", "index", to=60))
    found = refused(tmp_path / "f", *documents, copied)
    assert "same-input" in found


# --- two edits ------------------------------------------------------------------------------------------------------

EVERY_EDIT: dict[str, Edit] = {
    **{name: forgery.edit for name, forgery in FORGERIES.items()},
    **{f"replay: {name}": forgery.edit for name, forgery in ONLY_REPLAY.items()},
}


UNDONE = {
    frozenset({"alpha, smaller", "alpha, larger"}),
    frozenset({"sigma, larger", "replay: sigma with its radius"}),
}
"""The second undoes the first, but for rounding."""

TOGETHER = {
    frozenset({"alpha, larger", "noise tables, too much"}): "bound-too-loose",
    frozenset({"certificate, another radius", "outcome"}): "reason-differs",
    frozenset({"certificate, varying", "noise and norm"}): "radius-not-certified",
}
"""What refuses two edits that hide the reasons of each other."""


def reasons(names: tuple[str, str]) -> list[str]:
    known = [FORGERIES[name].reason for name in names if name in FORGERIES]
    return [*known, *(reason for pair, reason in TOGETHER.items() if pair == frozenset(names))]


@pytest.mark.parametrize("first", FORGERIES)
def test_two_edits(first: str, spread: Path, tmp_path: Path) -> None:
    """Two edits are refused for one of their reasons; where they make each other up, by a replay."""
    documents = certified_ones(spread)
    after = list(EVERY_EDIT)[list(EVERY_EDIT).index(first) + 1 :]
    unnamed = []
    for second in after:
        names = (first, second)
        try:
            changed = [forged(document, *(EVERY_EDIT[name] for name in names)) for document in documents]
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # the first has taken away what the second would change
        found = refused(tmp_path / "f", changed[0])
        if found and not any(re.search(reason, line) for reason in reasons(names) for line in found):
            unnamed.append((names, found))
        if found or frozenset(names) in UNDONE or only_claims_less(changed[0], documents[0]):
            continue
        assert second.startswith("replay: "), f"{names} are accepted"
        refused(tmp_path / "f", *changed)
        code, told = replayed(tmp_path / "f", changed)
        assert code == 1, (names, told)
        assert re.search("other-(votes|model|data|sampling)", told), told
    assert unnamed == []


def only_claims_less(changed: Document, document: Document) -> bool:
    """Only bounds and radii are others, and they are proved."""
    return all(changed[name] == document[name] for name in ("smoothing", "tallies", "run", "input"))


# --- envelopes ------------------------------------------------------------------------------------------------------


def with_rate(rate: float) -> Edit:
    def edit(document: Document) -> None:
        document["run"]["sigma"]["rule"]["rate"] = rate
        envelope = {"kind": "semi-elastic", "rate": rate}
        document["run"]["sigma"]["envelope"] = document["smoothing"]["envelope"] = envelope

    return edit


def with_level(factor: float) -> Edit:
    def edit(document: Document) -> None:
        document["smoothing"]["sigma"] *= factor
        for tally in document["tallies"]:
            tally["sigma"] = document["smoothing"]["sigma"]

    return edit


class TestEnvelope:
    @pytest.fixture
    def documents(self, folder: Path) -> list[Document]:
        run = folder / "of a rule" / "envelope"
        return certified_ones(run if run.exists() else make_run("envelope", folder / "of a rule"))

    @pytest.mark.parametrize(
        ("edit", "reason"),
        [
            (with_rate(0.5), "radius-not-certified"),
            (with_rate(-0.1), r"invalid-value envelope\.rate"),
            (with_level(0.9), "radius-not-certified"),
            (with_level(1.1), "unpaid-noise-tables"),
            (both(with_rate(0.01), scaled("radius", 1.05)), "radius-not-certified"),
            (both(with_level(1.02), scaled("radius", 1.03)), "radius-not-certified"),
            (at("smoothing", "envelope", to=None), r"differs smoothing\.envelope"),
            (
                both(at("smoothing", "envelope", to=None), at("run", "sigma", "envelope", to=None)),
                r"differs run\.sigma\.envelope",
            ),
            (with_certificate("gaussian"), "constant-sigma-only"),
            (with_shape(1, 8, 16), "rule-for-another-shape"),
        ],
    )
    def test_one_document(self, documents: list[Document], tmp_path: Path, edit: Edit, reason: str) -> None:
        found = refused(tmp_path / "f", forged(documents[0], edit))
        assert any(re.search(reason, line) for line in found), found

    def test_a_level_that_the_rule_does_not_give(self, folder: Path) -> None:
        """Smaller levels with radii that fit them: the file of the rule, which is in the run, gives others."""
        run = make_run("envelope", folder / "to be replayed")
        with closing(sqlite3.connect(run / "results.sqlite")) as connection:
            for table in ("points", "tallies"):
                connection.execute(f"UPDATE {table} SET sigma = sigma * 0.99")
            connection.execute("UPDATE verdicts SET radius = radius * 0.9")
            connection.commit()
        resealed(run)
        assert invoke(app, "verify", run).exit_code == 0
        code, told = replayed(run)
        assert code == 1
        assert re.search("other-sigma-by-rule", told)

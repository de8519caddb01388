"""Every field that a theorem depends on, alone and two at a time, in documents that are sealed anew.

What can be refused without the model is refused with a reason that names it. What cannot, because it only says of which
model, data and randomness the votes are, is accepted alone and refused with `--replay`; docs/verify.md lists it.
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
    everywhere,
    forged,
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
from smoothcert_verify.point import check_document_with_remarks
from smoothcert_verify.run_checks import verify_certificates
from verified_runs import KINDS, MODEL, leaves, make_run, resealed, with_change

INDICES = (0, 60, 120, 180)


def exported(run: Path) -> Path:
    out = run.parent / f"certificates of {run.name}"
    if not out.exists():
        invoke(app, "export", run, "--format", "certificate", "-o", out)
    return out


def documents_of(run: Path) -> list[Document]:
    return [json.loads(file.read_text()) for file in sorted(exported(run).iterdir())]


def certified_ones(run: Path) -> list[Document]:
    found = [document for document in documents_of(run) if document["verdicts"][0]["outcome"] == "certified"]
    assert found
    return found


def refused(folder: Path, *documents: Mapping[str, Any]) -> list[str]:
    """What the checker says of these documents, without their file names."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, document in enumerate(documents):
        (folder / f"{number}.json").write_text(json.dumps(document))
    found = verify_certificates(folder, check_document_with_remarks)[0].discrepancies
    return [re.sub(r"^\d+\.json: ", "", line) for line in found]


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
    r"format": "its format is",
    r"version": "its version is",
    r"input\.index": "is not one of those the run asks for",
    r"smoothing\.sigma": r"(its sigma is|a tally has sigma|the noise level)",
    r"smoothing\.(noise|dimension|num_classes|grid|envelope|remembered).*": r"its smoothing has \1",
    r"verdicts\.#\.certificate": "it has verdicts by",
    r"verdicts\.#\.prediction": "(certifies class|is predicted|cannot be .* with the class|it answers class)",
    r"verdicts\.#\.radius": "(radius|the best of its verdicts)",
    r"verdicts\.#\.norm": "noise gives no radius in",
    r"verdicts\.#\.outcome": "a verdict cannot be",
    r"verdicts\.#\.reason": "gives a reason that its tallies do not",
    r"verdicts\.#\.bounds": "bounds must be an object",
    r"verdicts\.#\.bounds\.label": "bounds class",
    r"verdicts\.#\.bounds\.quantities\.([\w-]+)\.value": r"\1 [0-9]",
    r"verdicts\.#\.bounds\.quantities\.([\w-]+)\.side": r"\1 is bounded from the wrong side",
    r"verdicts\.#\.bounds\.quantities\.([\w-]+)\.(alpha|method)": r"\1 is bounded at another alpha",
    r"verdicts\.#\.bounds\.spent\..*": "(alpha|noise tables)",
    r"tallies\.#\.stage": "of the stage",
    r"tallies\.#\.kind": "(is of no known kind|are not plain votes|the run draws)",
    r"tallies\.#\.(start|stop)": "(gap or an overlap|the run draws|draws cannot give)",
    r"tallies\.#\.sigma": "a tally has sigma",
    r"tallies\.#\.num_classes": "a tally has .* classes",
    r"tallies\.#\.counts\.(votes\.\d+|invalid)": "draws cannot give",
    r"tallies\.#\.counts\.(both|first|second)\.\d+": "pairs must have as many",
    r"tallies\.#\.counts\.label": "the scores that were counted are not those of class",
    r"tallies\.#\.counts\.group\.#": "cannot be put into the groups",
    r"tallies\.#\.sums": "sums",
    r"promise": "(not a well-formed certificate|promise must be)",
    r"promise\.label": "the memory promised class",
    r"promise\.radius": "the memory promised",
    r"promise\.settlement": "(cannot be settled as)",
    r"promise\.asked_label": "(was claimed, and the votes|claims nothing)",
    r"promise\.asked_radius": "(than was asked|claims nothing)",
    r"promise\.(memory|entry)": r"the \1 of its promise is no digest",
    r"run\.schema": "the manifest is of schema",
    r"run\.task": "(the task of the manifest is|there is no 'n0')",
    r"run\.seed": r"(the job of the manifest has seed|seed of the manifest is not that)",
    r"run\.parameters\.decide\.#": "the job of the manifest decides",
    r"run\.parameters\.certificate": "(alpha is split for|it has verdicts by|the job of the manifest has certificate)",
    r"run\.parameters\.(alpha)": r"(split of alpha|has \1|spends)",
    r"run\.parameters\.grid": "the noise is on a grid of",
    r"run\.parameters\.generator": "its generator is",
    r"run\.parameters\.noise": "it is called",
    r"run\.parameters\.independent_noise": "(shared_noise|independent_noise of the manifest is not that)",
    r"run\.parameters\.max": "(the manifest says|max)",
    r"run\.parameters\.(n|n0|batch|sigma|split|skip|precision)": r"(has \1 |\1 of the manifest|were fixed in advance)",
    r"run\.parameters\.inputs": "the manifest says",
    r"run\.parameters\.envelope\..*": "the envelope of the manifest is",
    r"run\.parameters\.sigma_rule\.kind": "the rule for sigma is of the kind",
    r"run\.parameters\.sigma_rule\.rate": "the envelope of the manifest is",
    r"run\.parameters\.sigma_rule\.input_shape\.#": "the rule for sigma is one for inputs of",
    r"run\.model\.num_classes": "(num_classes|model of the manifest is not that)",
    r"run\.data\.input_shape\.#": "(dimension|the rule for sigma is one for|data of the manifest is not that)",
    r"run\.data\.levels": "the data has",
}
"""By the place of a value, what a refusal of another value there says."""

NEEDS_MORE = {
    r"input\.label": "replay",
    r"run\.model\.(digest|backend)": "replay",
    r"run\.data\.(digest|size|input_range\.#|levels)": "replay",
    r"run\.parameters\.sigma_rule\.(base_sigma|digest|k|most|offset|points)": "the file of the rule",
    r"tallies\.#\.counts\.products\.#": "replay",
    r"run\.parameters\.memory": "the memory",
    r"promise\.position": "the memory",
}
"""What no document shows by itself, and what does. Of a recertified run the manifest of its source shows some of it."""


def another(value: Any) -> Any:
    """A value of the same type that nobody could take for rounding."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.01 if value else 0.01
    return f"{value}x" if isinstance(value, str) else 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_of_a_document(kind: str, folder: Path, tmp_path: Path) -> None:
    run = make_run(kind, folder / kind)
    document = documents_of(run)[-1]
    assert refused(tmp_path / "f", forged(document)) == [], "sealed anew and unchanged, it is accepted"
    unnamed = []
    for place, _ in leaves(document):
        if place[0] in ("statement", "digest", "run_digest") or place[:2] in (
            ("run", "environment"), ("run", "code"), ("run", "extra"),
        ):  # fmt: skip
            continue
        name = ".".join("#" if isinstance(key, int) else key for key in place)
        found = refused(tmp_path / "f", forged(with_change(document, place, another)))
        if any(re.fullmatch(pattern, name) for pattern in NEEDS_MORE):
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
    "alpha, smaller": Forgery(with_alpha(0.5), "is not proved by .* at alpha 0.0005"),
    "alpha, larger": Forgery(with_alpha(2.0), "is looser than .* at alpha 0.002 allow"),
    "n": Forgery(everywhere("n", 800), "400 estimation samples were drawn, and 800 were fixed in advance"),
    "n0": Forgery(everywhere("n0", 10), "20 selection votes were drawn, and 10 were asked for"),
    "sigma, larger": Forgery(with_sigma(2.0), "of alpha for noise tables, which take"),
    "radius, larger": Forgery(scaled("radius", 1 + 1e-6), "the bounds do not certify the radius"),
    "radius, smaller": Forgery(scaled("radius", 0.9), "the bounds certify more than the radius"),
    "norm": Forgery(in_verdict(norm="l1"), "gaussian noise gives no radius in 'l1'"),
    "noise and norm": Forgery(with_noise("uniform"), "gaussian is about gaussian noise and l2, not uniform and l1"),
    "outcome": Forgery(in_verdict(outcome="abstained", radius=0.0, prediction=None), "bounds certify more than the"),
    "outcome, failed": Forgery(in_verdict(outcome="failed", radius=0.0, prediction=None), "cannot end as failed"),
    "prediction": Forgery(
        lambda d: in_verdict(prediction=(d["verdicts"][0]["prediction"] + 1) % 10)(d), "certifies class"
    ),
    "certificate, two classes": Forgery(with_certificate("gaussian-two-class"), "bounds p-a, not what its theorem"),
    "certificate, another radius": Forgery(with_certificate("li"), "li: the bounds do not certify the radius"),
    "certificate, varying": Forgery(with_certificate("uniform-l1"), "uniform-l1 is about uniform noise"),
    "certificate, unknown": Forgery(with_certificate("magic"), "magic is no certificate this checker knows"),
    "grid": Forgery(with_grid(33), "of alpha for noise tables, which take"),
    "dimension": Forgery(with_shape(1, 8, 16), "of alpha for noise tables, which take"),
    "noise tables, nothing": Forgery(with_tables(0.0), "pays nothing of alpha for noise tables"),
    "noise tables, too much": Forgery(with_tables(1e-5), "is not proved by"),
    "envelope": Forgery(
        at("smoothing", "envelope", to={"kind": "semi-elastic", "rate": 0.01}), "smoothing has envelope .* the manifest"
    ),
    "envelope of the run": Forgery(
        both(
            at("run", "parameters", "envelope", to={"kind": "semi-elastic", "rate": 0.0}),
            at("smoothing", "envelope", to={"kind": "semi-elastic", "rate": 0.0}),
        ),
        "one sigma for all inputs, and an envelope",
    ),
    "memory": Forgery(
        both(
            at("smoothing", "remembered", to=True),
            at("run", "parameters", "memory", to="0" * 64),
            at("run", "extra", "job", "memory", to="memory.sqlite"),
        ),
        "certified in a run with a memory, but no memory promised it",
    ),
    "votes, fewer": Forgery(fewer_votes, "is not proved by"),
    "votes of the selection": Forgery(other_selection, "the selection votes are for class"),
    "bound, better": Forgery(a_better_bound, "is not proved by"),
    "bound, worse": Forgery(a_worse_bound, "is looser than"),
    "bound, method": Forgery(
        lambda d: d["verdicts"][0]["bounds"]["quantities"]["p-a"].update(method="time-uniform sequence"),
        "bounded at another alpha|not what its theorem takes",
    ),
    "question": Forgery(
        both(at("run", "parameters", "decide", to=[0.1]), at("run", "extra", "job", "decide", to="0.1")),
        "spends alpha on clopper-pearson, not on what it has to prove",
    ),
    "precision": Forgery(
        both(at("run", "parameters", "precision", to=0.05), at("run", "extra", "job", "precision", to=0.05)),
        "spends alpha on clopper-pearson, not on what it has to prove",
    ),
    "task": Forgery(
        both(at("run", "task", to="predict"), at("run", "extra", "job", "task", to="predict")),
        "a prediction has one verdict, without certificate, bounds and radius",
    ),
    "task, recertified": Forgery(at("run", "task", to="recertify"), "names the run it was recertified from exactly if"),
    "tallies, one less": Forgery(without("tallies", 1), "gap or an overlap|estimation samples were drawn"),
    "tallies, one twice": Forgery(
        lambda d: d["tallies"].append(json.loads(json.dumps(d["tallies"][-1]))), "gap or an overlap"
    ),
}
"""Refused without a replay. The documents are those of a run with exact noise on 17 levels."""

ONLY_REPLAY = {
    "seed": Forgery(
        both(at("run", "seed", to=4), at("run", "extra", "job", "seed", to=4)), replayed="drawn again, samples"
    ),
    "independent_noise": Forgery(
        both(
            at("run", "parameters", "independent_noise", to=False), at("run", "extra", "job", "shared_noise", to=True)
        ),
        replayed="drawn again, samples",
    ),
    "sigma with its radius": Forgery(with_sigma(0.5), replayed="drawn again, samples"),
    "num_classes": Forgery(with_classes(11), replayed="its num_classes is 10"),
    "model": Forgery(at("run", "model", "digest", to="0" * 64), replayed="the model given .* its digest is"),
    "data": Forgery(at("run", "data", "digest", to="0" * 64), replayed="the data given .* its digest is"),
    "shape": Forgery(with_shape(64), replayed="the data given .* its input_shape is"),
    "size": Forgery(at("run", "data", "size", to=446), replayed="the data given .* its size is"),
    "input_range": Forgery(at("run", "data", "input_range", to=[0.0, 2.0]), replayed="its input_range is"),
    "label": Forgery(lambda d: at("input", "label", to=(d["input"]["label"] + 1) % 10)(d), replayed="its label is"),
    "votes of the selection": Forgery(moved_votes("SELECTION", -1), replayed="of SELECTION count"),
    "exact noise that was float": Forgery(
        both(with_grid(17), with_tables(1e-11), with_slack_of_bounds(1 - 1e-6)), replayed="drawn again, samples"
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
    result = invoke(app, "verify", places, "--replay", MODEL, 0, "--replay-indices", indices, "--data", "digits")
    return result.exit_code, result.stdout


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
    assert re.search("input 0: drawn again, samples", told)


def test_one_input_under_two_names(spread: Path, tmp_path: Path) -> None:
    documents = documents_of(spread)
    copied = forged(documents[0], at("input", "index", to=60))
    found = refused(tmp_path / "f", *documents, copied)
    assert any("it is about the same input of the same run as" in line for line in found)


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
    frozenset({"alpha, larger", "noise tables, too much"}): "is looser than",
    frozenset({"certificate, another radius", "outcome"}): "gives a reason that its tallies do not",
    frozenset({"certificate, varying", "noise and norm"}): "uniform-l1: the bounds do not certify the radius",
    frozenset({"grid", "replay: sigma with its radius"}): "the job of the manifest asks for noise on",
    frozenset({"precision", "question"}): "a run asks one question, not two",
    frozenset({"tallies, one twice", "task"}): "a prediction spends alpha on one test",
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
        assert re.search("drawn again, samples|given .*is not", told), told
    assert unnamed == []


def only_claims_less(changed: Document, document: Document) -> bool:
    """Only bounds and radii are others, and they are proved."""
    return all(changed[name] == document[name] for name in ("smoothing", "tallies", "run", "input"))


# --- envelopes ------------------------------------------------------------------------------------------------------


def with_rate(rate: float) -> Edit:
    def edit(document: Document) -> None:
        parameters = document["run"]["parameters"]
        parameters["sigma_rule"]["rate"] = rate
        parameters["envelope"] = document["smoothing"]["envelope"] = {"kind": "semi-elastic", "rate": rate}

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
            (with_rate(0.5), "the bounds do not certify the radius"),
            (with_rate(-0.1), "must not be negative"),
            (with_level(0.9), "the bounds do not certify the radius"),
            (with_level(1.1), "of alpha for noise tables, which take"),
            (both(with_rate(0.01), scaled("radius", 1.05)), "the bounds do not certify the radius"),
            (both(with_level(1.02), scaled("radius", 1.03)), "the bounds do not certify the radius"),
            (at("smoothing", "envelope", to=None), "smoothing has envelope None"),
            (
                both(at("smoothing", "envelope", to=None), at("run", "parameters", "envelope", to=None)),
                "the envelope of the manifest is None",
            ),
            (with_certificate("gaussian"), "gaussian holds for a constant noise level only"),
            (with_shape(1, 8, 16), "the rule for sigma is one for inputs of"),
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
        assert re.search(r"its sigma is .* by the rule, and .* is stored", told)

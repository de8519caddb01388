"""Selected runs that are as they should be are accepted, whatever their votes; claims that do not follow are not."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("flint")

from counted_selections import (
    CLASSES,
    INPUTS,
    LEVELS,
    N0,
    CountedInput,
    N,
    make_counted_parts,
    make_spec_of_selection,
    store_counted,
)
from smoothcert.runs.certificate_documents import list_documents
from smoothcert.runs.selected_combining import hold_parts, recertify_parts
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.spec import NoiseSpec, to_json
from smoothcert_verify import check_document
from smoothcert_verify.__main__ import main
from smoothcert_verify.place_checks import CheckOptions, inspect_documents, inspect_places
from smoothcert_verify.run_facts import read_run
from smoothcert_verify.samples import Samples
from smoothcert_verify.selection_checks import verify_selection
from smoothcert_verify.selection_claims import choose_again
from smoothcert_verify.selection_facts import read_selection

KINDS: Mapping[str, Mapping[str, Any]] = {
    "multi-class": {},
    "two-class": {"selector_bounds": "two-class"},
    "earlier version": {"upper_alpha": None},
    "earlier version, two-class": {"upper_alpha": None, "selector_bounds": "two-class"},
    "earlier version, prediction": {"upper_alpha": None, "task": "predict", "certificates": ()},
    "no upper bounds": {"upper_alpha": 0.0},
    "one sampled": {"sampled": 1, "certificates": ("selected",)},
    "all sampled": {"sampled": 3, "certificates": ("selected-published",)},
    "one model": {"models": make_spec_of_selection().models[:1]},
    "float noise": {"noise": NoiseSpec().settle(None)},
    "prediction": {"task": "predict", "certificates": ()},
    "no batch": {"batch": None, "rigorous": True},
}


def codes(run: Path, *, unfinished: bool = False) -> set[str]:
    return {finding.code for finding in verify_selection(run, unfinished=unfinished).discrepancies}


def read_claims(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "claims.json").read_text())
    return found


def raised(run: Path, index: int, factor: float) -> set[str]:
    """What is found after the first radius of an input was multiplied."""
    claims = read_claims(run)
    verdict = claims["points"][index]["verdicts"][0]
    honest, verdict["radius"] = verdict["radius"], verdict["radius"] * factor
    assert honest > 0
    (run / "claims.json").write_text(json.dumps(claims))
    found = codes(run)
    verdict["radius"] = honest
    (run / "claims.json").write_text(json.dumps(claims))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_honest_runs_of_every_kind(kind: str, tmp_path: Path) -> None:
    run = store_counted(tmp_path / "run", make_spec_of_selection(**KINDS[kind]))
    assert verify_selection(run).discrepancies == []


@pytest.mark.parametrize("kind", KINDS)
def test_honest_documents_of_every_kind(kind: str) -> None:
    parts = make_counted_parts(make_spec_of_selection(**KINDS[kind]))
    for _, document in list_documents(hold_parts(parts)):
        found = check_document(json.loads(json.dumps(document)))
        assert (found.discrepancies, found.unchecked, found.is_readable) == ([], [], True)
    inspection = inspect_documents((document for _, document in list_documents(hold_parts(parts))), name="run")
    assert inspection.consistent
    assert inspection.reports[0].inputs == len(INPUTS)


def test_counts_of_a_report(tmp_path: Path) -> None:
    report = verify_selection(store_counted(tmp_path / "run"))
    # Two levels at five inputs, and the selector at them; of the ten verdicts, five certify.
    assert (report.inputs, report.bounds, report.radii, report.alpha) == (6, 15, 5, pytest.approx(0.05))
    assert [Path(part.name).name for part in report.parts] == ["selector", "level-0.25", "level-0.5", "level-1.0"]


def draw_inputs(seed: int, count: int) -> tuple[CountedInput, ...]:
    """Random votes: undecided and decided ones, levels that agree and that do not."""
    generator = np.random.default_rng(seed)

    def draw(n: int, classes: int, spread: float) -> tuple[int, ...]:
        return tuple(map(int, generator.multinomial(n, generator.dirichlet(np.full(classes, spread)))))

    return tuple(
        CountedInput(draw(N0, len(LEVELS), 0.5), draw(N, len(LEVELS), 0.5), [draw(N, CLASSES, 0.12) for _ in LEVELS])
        for _ in range(count)
    )


@pytest.mark.parametrize("task", ["certify", "predict"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("changes", [{}, {"upper_alpha": None}], ids=["", "earlier version"])
def test_random_votes(seed: int, task: str, changes: dict[str, Any]) -> None:
    """Two derivations agree: that of the run, and that of the checker."""
    inputs = draw_inputs(seed, len(INPUTS))
    forms = () if task == "predict" else ("selected", "selected-published")
    spec = make_spec_of_selection(task=task, sampled=1 + seed, certificates=forms, **changes)
    for _, document in list_documents(hold_parts(make_counted_parts(spec, inputs))):
        assert check_document(document).discrepancies == []


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        *((kind, index) for kind in ("multi-class", "earlier version") for index in (0, 1, 5)),
        *(("no upper bounds", index) for index in (0, 5)),
    ],
)
def test_a_radius_is_neither_too_large_nor_too_small(kind: str, index: int, tmp_path: Path) -> None:
    """One is the radius of a level, the others are where levels are excluded."""
    run = store_counted(tmp_path / "run", make_spec_of_selection(**KINDS[kind]))
    assert raised(run, index, 1.0) == set()
    assert raised(run, index, 1 + 1e-9) == {"radius-not-certified"}
    assert raised(run, index, 1 - 1e-5) == {"radius-too-small"}


def test_a_run_of_an_earlier_version_is_verified_by_its_own_rule(tmp_path: Path) -> None:
    """It says nothing of upper bounds. What the rule of today spends is too much for it."""
    honest, today = (store_counted(tmp_path / name, make_spec_of_selection(**changes))
                     for name, changes in (("before", {"upper_alpha": None}), ("today", {})))  # fmt: skip
    for run, changed in ((honest, False), (today, True)):
        selection = json.loads((run / "selection.json").read_text())
        del selection["spec"]["upper_alpha"]
        (run / "selection.json").write_text(json.dumps(selection))
        found = codes(run)
        assert ("alpha-overspent" in found) == changed
        assert bool(found) == changed


def test_what_the_lower_bound_may_spend() -> None:
    """Also the share of a level, if that level does not answer the class. Its radius, .02 or 0, is below its exclusion.

    Selection votes say what it answers: if they are for the class and nothing is proved, its share is spent.
    """
    proving, sure = (700, 295, 5), (0, 1000, 0, 0)
    for other, levels in (((380, 560, 30, 30), 0), ((430, 480, 45, 45), 0), ((560, 380, 30, 30), 1)):
        level = CountedInput((39, 1, 0), proving, (sure, other, sure))
        parts = make_counted_parts(make_spec_of_selection(noise=NoiseSpec().settle(None)), (level,))
        ((_, document),) = list_documents(hold_parts(parts))
        assert check_document(document).discrepancies == []
        selection = parts.spec.selection()
        share = selection.selector_alpha + levels * selection.level_alpha
        p, q = stats.beta.ppf(share, 700, 301), stats.beta.ppf(1 - (selection.upper_alpha or 0), 296, 705)
        reach = 0.5 * (stats.norm.ppf(p) - stats.norm.ppf(min(q, 1 - p)))
        radius = document["verdicts"][0]["radius"]
        assert radius == pytest.approx(reach, rel=1e-9)
        # Closer than the share allows is refused.
        document["verdicts"][0]["radius"] = radius * (1 + 1e-9)
        found = {finding.code for finding in check_document(document).discrepancies}
        assert found == {"radius-not-certified", "digest-differs"}


def test_one_ulp_above_the_radius_of_a_level(tmp_path: Path) -> None:
    run = store_counted(tmp_path / "run", make_spec_of_selection(sampled=1, selector_bounds="two-class"))
    radius = read_claims(run)["points"][5]["verdicts"][0]["radius"]
    assert raised(run, 5, math.nextafter(radius, 9.0) / radius) == {"radius-not-certified"}


def test_recertified_runs(tmp_path: Path) -> None:
    changed = recertify_parts(make_counted_parts(), "run", alpha=0.02, certificate="selected-published")
    hold_parts(changed).save(tmp_path / "run")
    report = verify_selection(tmp_path / "run")
    assert report.discrepancies == []
    assert report.radii == 2


def test_some_inputs_of_a_run(tmp_path: Path) -> None:
    """As Results in memory save them."""
    hold_parts(make_counted_parts().select({0, 5})).save(tmp_path / "run")
    assert codes(tmp_path / "run") == {"missing-inputs", "no-claim"}
    report = verify_selection(tmp_path / "run", unfinished=True)
    assert (report.discrepancies, report.inputs, report.radii) == ([], 2, 4)


def test_an_unfinished_run(tmp_path: Path) -> None:
    run = store_counted(tmp_path / "run")
    (run / "claims.json").unlink()
    assert codes(run) == {"missing-file"}
    assert codes(run, unfinished=True) == set()
    (run / "level-0.5").rename(tmp_path / "level-0.5")
    assert codes(run, unfinished=True) == set()
    (run / "selector").rename(tmp_path / "selector")
    assert codes(run) == {"missing-part"}
    assert codes(run, unfinished=True) == set()


def test_levels_that_may_be_selected_in_a_prediction() -> None:
    """A level is left out where one of two one-sided sign tests, at half of the selector's share, is significant."""
    spec = make_spec_of_selection(task="predict", certificates=(), noise=NoiseSpec().settle(None))
    tails = list(itertools.accumulate(math.comb(N, k) for k in range(N, N // 2, -1)))  # of N, N-1, … votes or more
    least = N + 1 - sum(Fraction(tail, 2**N) <= Fraction(spec.selector_alpha) / 2 for tail in tails)
    inputs = [CountedInput((0, 0, 0), (votes, N - votes, 0), INPUTS[0].levels) for votes in (least - 1, least)]
    run, (below, above) = read_run(json.loads(_manifest_of(spec, inputs))), (_votes_of(one) for one in inputs)
    facts = read_selection({"schema": 1, "spec": to_json(spec)})
    assert [choose_again(facts, run, below, levels) for levels in ((0,), (0, 1), (0, 1, 2))] == [(0, 1)] * 3
    assert [choose_again(facts, run, above, levels) for levels in ((0,), (0, 1), (0, 1, 2))] == [(0,)] * 3
    for _, document in list_documents(hold_parts(make_counted_parts(spec, inputs))):
        assert check_document(document).discrepancies == []


def _manifest_of(spec: SelectedSpec, inputs: Sequence[CountedInput]) -> str:
    return json.dumps(to_json(make_counted_parts(spec, inputs).selector.manifest))


def _votes_of(one: CountedInput) -> Samples:
    return Samples("PREDICTION", "votes", 1.0, ((0, N),), one.proving, 0)


def test_what_a_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = store_counted(tmp_path / "run")
    assert main([str(run)]) == 0
    assert "6 inputs, 15 bounds and 5 radii checked: all is proved" in capsys.readouterr().out
    raised_claims = (run / "claims.json").read_text().replace('"radius": 1.8273', '"radius": 1.9273')
    (run / "claims.json").write_text(raised_claims)
    assert main([str(run), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["places"][0]
    assert {(one["code"], one["where"]) for one in found["discrepancies"]} == {
        ("radius-not-certified", "input 0: selected"),
        ("radius-not-certified", "input 0: selected-published"),
    }
    assert [part["inputs"] for part in found["parts"]] == [6, 2, 5, 3]


def test_a_single_certificate_is_put_into_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = dict(list_documents(hold_parts(make_counted_parts())))
    file = tmp_path / "certificate.json"
    for index, words in [
        (0, "answers class 0 at every point closer than 1.82"),
        (3, "nothing is certified: abstained"),
    ]:
        file.write_text(json.dumps(documents[index]))
        assert main([str(file)]) == 0
        assert words in capsys.readouterr().out


def test_several_places_are_several_classifiers(tmp_path: Path) -> None:
    places = [store_counted(tmp_path / "a"), store_counted(tmp_path / "b", make_spec_of_selection(selector_sigma=2.0))]
    inspection = inspect_places(places, CheckOptions())
    assert inspection.consistent
    assert [remark.code for remark, _ in inspection.reports[0].remarks][-1] == "several-classifiers"

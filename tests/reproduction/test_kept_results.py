"""Kept results: tables come from them alone, every radius follows from the kept votes, and a change is found.

Results that are committed are checked where they are. A small one is made here, so that the checks are tried on a
kept result, and on copies with every kind of mistake, whatever is committed.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import beta

import experiments.reproduction.kept as kept_module
import experiments.reproduction.recipe as recipe_module
import smoothcert as sc
from cli_runner import SUPPORT, invoke
from experiments.__main__ import app
from experiments.reproduction import Reproduction, list_recipes, make_plan, measure, parse_recipe, run_rows
from experiments.reproduction.keeping import keep_rows, strip_folders
from experiments.reproduction.kept import PAGE, RECORD, RESULTS, KeptResults
from experiments.reproduction.kept_checks import check_archive, find_problems, list_archives
from experiments.reproduction.kept_tables import all_tables, load_kept, tables_of
from experiments.selected import Settings, keep_runs
from selected_runs import make_selected, selected_spec
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.cli.main import app as smoothcert_app
from smoothcert.errors import CorruptRunError, InputError, ManifestMismatchError, RunError
from smoothcert.runs.archive_files import ARCHIVE, encode_rows
from smoothcert.runs.run_files import SELECTION

TEXT = """
title = "Digits, a small network"
source = "nobody"
about = "Everything takes seconds."
time = "five seconds"
[settings]
n = 300
[steps.model]
makes = "net.safetensors"
command = "train --data digits --arch mlp-8 --sigma 0.25 --epochs 2 --seed 1 --threads 1 --out {out}"
[steps.rule]
makes = "rule.safetensors"
command = "sigma fit --data digits --sigma 0.25 --k 5 --rate 0.01 --max-points 200 --out {out}"
[steps.constant]
makes = "constant"
command = "certify --model {model} --data digits --sigma 0.25 --n {n} --max 20 --batch 100 --seed 1 --out {out}"
[steps.varying]
makes = "varying"
command = "certify --model {model} --data digits --sigma-rule {rule} --n {n} --max 20 --batch 100 --seed 1 --out {out}"
[steps.classes]
makes = "classes"
command = "predict --model {model} --data digits --sigma 0.25 --n 100 --max 20 --batch 100 --seed 1 --out {out}"
[steps.log]
reads = "{logs}/log"
[[tables]]
title = "Both"
radii = [0, 0.1]
rows = [
  { name = "constant", of = "constant", acr = 0.1, accuracy = 0.9, certified = [0.1, 0.05] },
  { name = "varying", of = "varying", against = "constant", acr = 0.1, acr_ratio = 1.0 },
  { name = "released", of = "log", acr = 0.1 },
]
[[tables]]
title = "Classes"
rows = [{ name = "classes", of = "classes", accuracy = 0.9 }]
"""
ALPHA, N, SIGMA = 0.001, 300, 0.25


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a reproduction, and beside it what is kept of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")
        folder = tmp_path_factory.mktemp("reproductions") / "here"
        reproduction = Reproduction(make_plan(parse_recipe("example", TEXT), quick=False), folder)
        run_rows(reproduction, reproduction.plan.rows, threads=1)
        keep_rows(reproduction, reproduction.plan.rows, folder.parent / "example")
        yield folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.parent / "example", tmp_path / "example"))


def at(folder: Path, text: str = TEXT) -> KeptResults:
    return KeptResults(make_plan(parse_recipe("example", text), quick=False), folder)


def reproduction_at(folder: Path, text: str = TEXT) -> Reproduction:
    return Reproduction(make_plan(parse_recipe("example", text), quick=False), folder)


def read_tables(archive: Path) -> dict[str, dict[str, list[Any]]]:
    tables: dict[str, dict[str, list[Any]]] = json.loads(gzip.decompress((archive / ARCHIVE).read_bytes()))["tables"]
    return tables


def times_of(folder: Path) -> list[tuple[int, int]]:
    return [(file.stat().st_mtime_ns, file.stat().st_ino) for file in sorted(folder.rglob("*"))]


def test_what_is_kept(made: Path) -> None:
    folder = made.parent / "example"
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) == [
        PAGE,
        "classes/manifest.json",
        f"classes/{ARCHIVE}",
        "constant/manifest.json",
        f"constant/{ARCHIVE}",
        "net.curves.csv",
        RECORD,
        "varying/manifest.json",
        f"varying/{ARCHIVE}",
    ]
    kept = at(folder)
    model = kept.steps["net.safetensors"]
    assert model.header is not None
    assert model.header["training"]["noisy_accuracy"] > 0
    assert model.seconds is not None
    assert model.seconds > 0
    assert model.machine.keys() == {"processor", "cores", "system"}
    assert kept.steps["varying"].used == {
        product: kept.steps[product].product for product in ("net.safetensors", "rule.safetensors")
    }
    assert find_problems(kept) == []


def test_no_folder_of_the_machine_is_kept(made: Path) -> None:
    for file in (made.parent / "example").rglob("*"):
        if file.is_file():
            content = gzip.decompress(file.read_bytes()) if file.name == ARCHIVE else file.read_bytes()
            assert str(made.parent).encode() not in content, file


def test_tables_are_those_of_the_runs_and_need_no_runs(made: Path, copied: Path) -> None:
    kept, reproduction = at(copied), reproduction_at(made)
    for row in kept.list_kept_rows():
        assert measure(kept, row) == measure(reproduction, row)
    assert [row.name for row in kept.list_kept_rows()] == ["constant", "varying", "classes"]
    assert (copied / PAGE).read_text() == (made.parent / "example" / PAGE).read_text()


def test_the_numbers_of_the_page_follow_from_the_votes_by_closed_forms(copied: Path) -> None:
    """Clopper and Pearson, and the radius of Cohen et al., from the file alone."""
    tables = read_tables(copied / "constant")
    labels = dict(zip(tables["points"]["idx"], tables["points"]["label"], strict=True))
    votes = {index: {"SELECTION": Counter[int](), "ESTIMATION": Counter[int]()} for index in labels}
    for index, stage, counts in zip(*(tables["tallies"][name] for name in ("idx", "stage", "counts")), strict=True):
        votes[index][stage] += Counter({int(label): count for label, count in json.loads(counts)["votes"].items()})
    radii, right = [], []
    stored = dict(zip(tables["verdicts"]["idx"], tables["verdicts"]["radius"], strict=True))
    for index, label in labels.items():
        selected = max(votes[index]["SELECTION"].items(), key=lambda item: (item[1], -item[0]))[0]
        count = votes[index]["ESTIMATION"][selected]
        assert votes[index]["ESTIMATION"].total() == N
        p_a = beta.ppf(ALPHA, count, N - count + 1) if count else 0.0
        radius = max(0.0, SIGMA * float(ndtri(p_a)))
        assert stored[index] == pytest.approx(radius, rel=1e-3)  # a little of alpha pays for the tables of the noise
        assert stored[index] <= radius
        right.append(radius > 0 and selected == label)
        radii.append(stored[index] if right[-1] else 0.0)
    lines = [
        line.strip("| ").split(" | ") for line in (copied / PAGE).read_text().splitlines() if "| constant |" in line
    ]
    ours = {line[1]: float(line[3]) for line in lines}
    assert ours["ACR"] == pytest.approx(np.mean(radii), abs=1e-3)
    assert ours["ACR"] <= np.mean(radii)
    assert ours["accuracy"] == pytest.approx(np.mean(right), abs=5e-4)
    assert ours["certified at 0.1"] == pytest.approx(np.mean(np.array(radii) >= 0.1), abs=5e-4)
    differences = {line[1]: line[4] for line in lines}
    assert differences["accuracy"] == f"{np.mean(right) - 0.9:+.3f}"


def test_keeping_again_writes_nothing(made: Path, copied: Path) -> None:
    before = times_of(copied)
    reproduction = reproduction_at(made)
    assert [row.name for row in keep_rows(reproduction, reproduction.plan.rows, copied)] == [
        "constant", "varying", "classes",
    ]  # fmt: skip
    assert times_of(copied) == before


def test_the_machine_of_the_first_time_is_kept(made: Path, copied: Path) -> None:
    record = json.loads((copied / RECORD).read_text())
    for step in record["steps"].values():
        step["machine"] = {"processor": "another", "cores": 64, "system": "Linux"}
    (copied / RECORD).write_text(json.dumps(record))
    reproduction = reproduction_at(made)
    keep_rows(reproduction, reproduction.plan.rows, copied)
    assert {step.machine["processor"] for step in at(copied).steps.values()} == {"another"}
    assert "another, 64 cores, Linux" in (copied / PAGE).read_text()


def test_rows_that_were_not_run_are_shown_with_their_cost(made: Path, tmp_path: Path) -> None:
    reproduction = reproduction_at(made)
    keep_rows(reproduction, reproduction.plan.select_rows(["constant"]), tmp_path / "example")
    kept = at(tmp_path / "example")
    assert find_problems(kept) == []
    text = "\n".join(tables_of(kept, form=TableFormat.MARKDOWN))
    assert re.search(r"^\| varying \| ACR \| 0\.1 \| not run \| – \| – \|", text, re.MULTILINE)
    assert re.search(r"^\| constant \| ACR \| 0\.1 \| 0\.\d+ \| [+-]0\.\d+ \| \d+ \| 20 \| 300 \|$", text, re.MULTILINE)
    assert "Not run: 2 of 3 rows. All rows together take five seconds: `python -m experiments example`." in text
    assert "Not kept, because they are computed from logs that others released: 1 row." in text
    assert "| example | 4 | 1 | 2 | five seconds |" in all_tables([kept], form=TableFormat.MARKDOWN)
    # What is kept of the first row stays when the others are kept.
    keep_rows(reproduction, reproduction.plan.select_rows(["varying"]), tmp_path / "example")
    assert [row.name for row in at(tmp_path / "example").list_kept_rows()] == ["constant", "varying"]


def test_a_recipe_that_has_changed_shows_no_old_results(copied: Path) -> None:
    kept = at(copied, TEXT.replace("n = 300", "n = 400"))
    assert [row.name for row in kept.list_kept_rows()] == ["classes"]
    text = "\n".join(tables_of(kept, form=TableFormat.MARKDOWN))
    assert "Not shown: 2 kept results of an earlier version of the recipe" in text
    problems = find_problems(kept)
    assert len(problems) == 2
    assert "the recipe has another command now" in problems[0]


def edit_record(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((folder / RECORD).read_text())
    edit(document["steps"])
    (folder / RECORD).write_text(json.dumps(document))


def edit_archive(archive: Path, edit: Callable[[dict[str, Any]], None], *, resealed: bool) -> None:
    document = json.loads(gzip.decompress((archive / ARCHIVE).read_bytes()))
    edit(document["tables"])
    content = json.dumps(document).encode()
    if resealed:
        content = encode_rows(document["tables"], json.loads((archive / "manifest.json").read_text()))
    (archive / ARCHIVE).write_bytes(gzip.compress(content, mtime=0))


def larger_radius(tables: dict[str, Any]) -> None:
    place = next(place for place, radius in enumerate(tables["verdicts"]["radius"]) if radius > 0)
    tables["verdicts"]["radius"][place] *= 1.01


def a_vote_for_another_class(tables: dict[str, Any]) -> None:
    place = tables["tallies"]["stage"].index("ESTIMATION")
    counts = json.loads(tables["tallies"]["counts"][place])
    votes = counts["votes"]
    most = max(votes, key=lambda label: votes[label])
    other = next(str(label) for label in range(10) if str(label) != most)
    votes |= {most: votes[most] - 1, other: votes.get(other, 0) + 1}
    tables["tallies"]["counts"][place] = json.dumps(counts)


def another_answer(tables: dict[str, Any]) -> None:
    tables["verdicts"]["prediction"] = [
        None if label is None else (label + 1) % 10 for label in tables["verdicts"]["prediction"]
    ]


def other_number_on_page(folder: Path) -> None:
    page = folder / PAGE
    text = page.read_text()
    page.write_text(re.sub(r"(\| constant \| ACR \| 0\.1 \| 0\.)\d", r"\g<1>9", text))
    assert page.read_text() != text


def other_seconds(folder: Path) -> None:
    edit_record(folder, lambda steps: steps["constant"].update(seconds=1e6))


def other_digest(folder: Path) -> None:
    edit_record(folder, lambda steps: steps["constant"].update(product="0" * 64))


def other_model(folder: Path) -> None:
    edit_record(folder, lambda steps: steps["net.safetensors"].update(product="0" * 64))


def no_curves(folder: Path) -> None:
    (folder / "net.curves.csv").unlink()


def missing_run(folder: Path) -> None:
    shutil.rmtree(folder / "varying")


def missing_page(folder: Path) -> None:
    (folder / PAGE).unlink()


def further_file(folder: Path) -> None:
    (folder / "notes.txt").write_text("a note")


def other_command(folder: Path) -> None:
    edit_record(folder, lambda steps: steps["constant"].update(command="smoothcert certify --n 1000000"))


def radius_with_new_seals(folder: Path) -> None:
    edit_archive(folder / "constant", larger_radius, resealed=True)


def radius_with_old_seals(folder: Path) -> None:
    edit_archive(folder / "varying", larger_radius, resealed=False)


def vote_with_new_seals(folder: Path) -> None:
    edit_archive(folder / "constant", a_vote_for_another_class, resealed=True)


def answers_with_new_seals(folder: Path) -> None:
    edit_archive(folder / "classes", another_answer, resealed=True)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (other_number_on_page, r"README\.md is not what the kept results give"),
        (other_seconds, r"README\.md is not what the kept results give"),
        (other_digest, "has the digest .* and record.json states 000"),
        (other_model, r"constant was made with another net\.safetensors than the one that is kept"),
        (no_curves, r"net\.curves\.csv is missing"),
        (missing_run, r"varying/results\.json\.gz is missing"),
        (missing_page, r"README\.md is missing"),
        (further_file, r"notes\.txt belongs to nothing that is kept"),
        (other_command, "constant was made by .* and the recipe has another command now"),
        (radius_with_new_seals, "constant: input .* and its votes give"),
        (radius_with_old_seals, "varying: .* is damaged: .*the last seal is another"),
        (vote_with_new_seals, "constant: input .* and its votes give"),
        (answers_with_new_seals, "classes: input 0: the verdict predicts class"),
    ],
)
def test_every_mistake_is_found(spoil: Callable[[Path], None], complaint: str, copied: Path) -> None:
    spoil(copied)
    problems = find_problems(at(copied))
    assert any(re.search(complaint, problem) for problem in problems), problems


def test_records_of_others_are_refused(copied: Path) -> None:
    record = copied / RECORD
    content = record.read_text()
    record.write_text(content.replace('"example"', '"another"'))
    with pytest.raises(ManifestMismatchError, match=r"expected .*example.*: give the folder of this recipe"):
        at(copied)
    for damaged in ("{", content.replace('"seconds"', '"hours"'), "[]"):
        record.write_text(damaged)
        with pytest.raises(CorruptRunError, match=r"record\.json is damaged"):
            at(copied)


def test_commands_read_kept_results(copied: Path, tmp_path: Path) -> None:
    table = invoke(smoothcert_app, "table", copied / "constant", copied / "varying", "--json").stdout
    assert [run["points"] for run in json.loads(table)] == [20, 20]
    invoke(smoothcert_app, "plot", copied / "constant", copied / "varying", "-o", tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    with (copied / "net.curves.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2


def test_places_become_names() -> None:
    assert strip_folders({"a": ["/home/me/net.pt", 1, None], "b": {"c": "digits"}}) == {
        "a": ["net.pt", 1, None],
        "b": {"c": "digits"},
    }


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command with one recipe, and a folder of its own for what is kept."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "example.toml").write_text(TEXT)
    monkeypatch.setattr(recipe_module, "_RECIPES", tmp_path / "recipes")
    monkeypatch.setattr(kept_module, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_the_command_keeps_and_shows(made: Path, own_folders: Path) -> None:
    assert "(4 rows, 0 kept, five seconds)" in invoke(app, "--list").stdout
    said = invoke(app, "example", "--keep", "--out", made, "--only", "constant").stdout
    assert said == f"kept 1 of 1 rows; 1 rows of the recipe are in {own_folders / 'example'}\n"
    assert invoke(app, "example", "--keep", "--out", made).stdout.startswith("kept 3 of 4 rows; 3 rows")
    assert "(4 rows, 3 kept, five seconds)" in invoke(app, "--list").stdout
    assert [fact["kept"] for fact in json.loads(invoke(app, "--list", "--json").stdout)] == [3]
    assert re.search(r"^constant +done +\d+ s +yes$", invoke(app, "example", "--status", "--out", made).stdout, re.M)
    tables = invoke(app, "--tables").stdout
    assert "| example | 4 | 3 | 0 | five seconds |" in tables
    (document,) = json.loads(invoke(app, "example", "--tables", "--json").stdout)
    assert document["missing"] == ["released"]
    assert document["rows"][0]["ours"] > 0
    other_number_on_page(own_folders / "example")
    shutil.move(own_folders / "example" / "net.curves.csv", own_folders / "example" / "other.csv")
    with pytest.raises(RunError, match=r"must not be committed:\n.*other\.csv belongs to nothing that is kept"):
        invoke(app, "example", "--keep", "--out", made)


def test_smoke_tests_are_not_kept(own_folders: Path) -> None:
    with pytest.raises(InputError, match="the results of a smoke test are not kept"):
        invoke(app, "example", "--quick", "--keep")
    assert not own_folders.exists()


def test_the_runs_of_a_selected_sigma_are_kept(tmp_path: Path) -> None:
    settings = Settings(
        data="digits", out=tmp_path, levels=(0.05, 0.1), arch="mlp", epochs=1, sigma=0.1, softness=0.2,
        objective="exclusion", selector_epochs=1, votes=4, n=60, selector_n=20, sampled=2, skip=60, threads=1,
        backend="torch",
    )  # fmt: skip
    make_selected(selected_spec(), settings.selected)
    for level in settings.levels:
        shutil.copytree(settings.selected / "level-0.1", settings.single(level))
    keep_runs(settings, tmp_path / "kept")
    archives = sorted(folder.name for folder in (tmp_path / "kept").iterdir())
    assert archives == ["selected-digits-s0.1-t0.2-exclusion-2", "single-digits-0.05", "single-digits-0.1"]
    for archive in (tmp_path / "kept").iterdir():
        assert list(check_archive(archive)) == []
    ours = sc.open_run(tmp_path / "kept" / archives[0]).columns
    assert list(ours.radius) == list(sc.open_run(settings.selected).columns.radius)


# What is committed.

_OTHER_EXPERIMENTS = {"selected", "splitting"}
"""Folders of results that no recipe makes."""


def test_every_folder_of_results_belongs_to_an_experiment() -> None:
    assert {folder.name for folder in RESULTS.iterdir()} <= {*list_recipes(), *_OTHER_EXPERIMENTS}


@pytest.mark.parametrize("name", list_recipes())
def test_committed_results_follow_from_their_votes(name: str) -> None:
    (kept,) = load_kept([name])
    assert find_problems(kept) == []
    assert bool(kept.steps) == bool(list_archives(kept))


@pytest.mark.parametrize("name", sorted(_OTHER_EXPERIMENTS))
def test_archives_of_other_experiments_follow_from_their_votes(name: str) -> None:
    files = [file for kind in (ARCHIVE, SELECTION) for file in (RESULTS / name).rglob(kind)]
    assert [problem for file in sorted(files) for problem in check_archive(file.parent)] == []

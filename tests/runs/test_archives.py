"""Archives are read as the runs they were made from, hold no folder of the machine, and show every change."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli_runner import invoke
from selected_runs import make_selected, selected_spec
from smoothcert.cli.main import app
from smoothcert.errors import CorruptRunError, RunError
from smoothcert.runs.archive_files import ARCHIVE, encode_rows
from smoothcert.runs.archives import without_folders, write_archive
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.selected_run import hold_stored
from smoothcert.runs.store import RunStore
from smoothcert.spec import DataSpec, ModelSpec, RayEngineSpec, RuleLevel, SigmaFacts
from smoothcert_verify.run_checks import verify_run
from smoothcert_verify.selection_checks import verify_selection
from verified_runs import KINDS, SPLIT_KINDS, make_run

RECERTIFIED = tuple(kind for kind in KINDS if "memory" not in kind and "predict" not in kind)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs of this machine")


@pytest.fixture(scope="module")
def votes(folder: Path) -> Path:
    return make_run("votes", folder / "shared")


@pytest.fixture
def archive(votes: Path, tmp_path: Path) -> Path:
    write_archive(votes, tmp_path / "archive")
    return tmp_path / "archive"


def document_of(archive: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress((archive / ARCHIVE).read_bytes()))
    return document


def change(archive: Path, edit: Callable[[dict[str, Any]], None], *, resealed: bool) -> None:
    """Edit the tables of an archive; resealed: as somebody does who knows the format."""
    document = document_of(archive)
    edit(document["tables"])
    content = json.dumps(document).encode()
    if resealed:
        content = encode_rows(document["tables"], json.loads((archive / "manifest.json").read_text()))
    (archive / ARCHIVE).write_bytes(gzip.compress(content))


@pytest.mark.parametrize("kind", [*KINDS, *SPLIT_KINDS])
def test_an_archive_is_read_as_its_run_and_proved(kind: str, folder: Path, tmp_path: Path) -> None:
    run = make_run(kind, folder / kind)
    out = tmp_path / "archive"
    with RunStore.open(run) as store:
        points, kinds, samples = store.points(), store.kinds(), store.samples()
        assert write_archive(run, out) == len(points)
    with RunStore.open(out) as store:
        assert repr(store.points()) == repr(points)
        assert (store.kinds(), store.samples()) == (kinds, samples)
        assert store.points_of([points[-1].index]) == points[-1:]
    assert sorted(file.name for file in out.iterdir()) == ["manifest.json", ARCHIVE]
    assert str(folder) not in (out / "manifest.json").read_text()
    report = verify_run(out)
    assert [str(finding) for finding in report.discrepancies] == []
    assert report.inputs == len(points)
    if kind in RECERTIFIED:
        again = recertify_run(out)
        assert [point.verdict for point in again.points] == [point.verdict for point in points]


def test_a_selected_run_becomes_a_directory_of_archives(tmp_path: Path) -> None:
    run = make_selected(selected_spec(), tmp_path / "run")
    write_archive(run.path, tmp_path / "archive")
    ours, theirs = hold_stored(tmp_path / "archive"), hold_stored(run.path)
    assert repr(ours.points) == repr(theirs.points)
    assert ours.parts is not None
    assert theirs.parts is not None
    assert repr(list(ours.parts.by_input())) == repr(list(theirs.parts.by_input()))
    assert not list((tmp_path / "archive").rglob("*.sqlite"))
    report = verify_selection(tmp_path / "archive")
    assert [str(finding) for finding in report.discrepancies] == []
    assert report.radii > 0


def test_equal_runs_give_equal_files_which_are_not_written_again(votes: Path, archive: Path, tmp_path: Path) -> None:
    write_archive(archive, tmp_path / "archive of an archive")
    for name in ("manifest.json", ARCHIVE):
        assert (tmp_path / "archive of an archive" / name).read_bytes() == (archive / name).read_bytes()
    before = [(file.stat().st_mtime_ns, file.stat().st_ino) for file in sorted(archive.iterdir())]
    write_archive(votes, archive)
    write_archive(votes, archive, overwrite=True)
    assert [(file.stat().st_mtime_ns, file.stat().st_ino) for file in sorted(archive.iterdir())] == before


def test_other_results_are_not_overwritten(archive: Path, folder: Path, votes: Path) -> None:
    other = make_run("uniform", folder / "shared")
    with pytest.raises(RunError, match="already exists and is not overwritten"):
        write_archive(other, archive)
    write_archive(other, archive, overwrite=True)
    assert hold_stored(archive).points == hold_stored(other).points
    with pytest.raises(RunError, match="holds a run, which is never overwritten"):
        write_archive(other, votes, overwrite=True)


def test_nothing_is_added_to_an_archive(archive: Path) -> None:
    before = sorted(archive.iterdir())
    with RunStore.open(archive) as store:
        manifest = store.manifest
    with pytest.raises(RunError, match="is an archive, to which nothing can be added"):
        RunStore.resume(archive, manifest)
    with pytest.raises(RunError, match="is an archive, to which nothing can be added"):
        invoke(app, "certify", "--resume", archive, "--model", "sample_models:logistic_digits")
    assert sorted(archive.iterdir()) == before


def larger_radius(tables: dict[str, Any]) -> None:
    tables["verdicts"]["radius"] = [2 * radius for radius in tables["verdicts"]["radius"]]


def another_label(tables: dict[str, Any]) -> None:
    tables["points"]["label"][0] = (tables["points"]["label"][0] + 1) % 10


def more_votes(tables: dict[str, Any]) -> None:
    place = tables["tallies"]["stage"].index("ESTIMATION")
    counts = json.loads(tables["tallies"]["counts"][place])
    tables["tallies"]["counts"][place] = json.dumps(dict.fromkeys(counts, 1))


def one_input_less(tables: dict[str, Any]) -> None:
    gone = tables["points"]["idx"][-1]
    for table in tables.values():
        kept = [place for place, index in enumerate(table["idx"]) if index != gone]
        for name, values in table.items():
            table[name] = [values[place] for place in kept]


@pytest.mark.parametrize("edit", [larger_radius, another_label, more_votes, one_input_less])
def test_a_change_breaks_the_seal(edit: Callable[[dict[str, Any]], None], archive: Path) -> None:
    change(archive, edit, resealed=False)
    with pytest.raises(CorruptRunError, match=r"damaged: .*the last seal is another|damaged: .*JSON"):
        RunStore.open(archive)
    assert verify_run(archive).discrepancies


def test_a_changed_manifest_breaks_the_seal(archive: Path) -> None:
    file = archive / "manifest.json"
    file.write_text(file.read_text().replace('"alpha": 0.001', '"alpha": 0.1', 1))
    with pytest.raises(CorruptRunError, match="the last seal is another"):
        RunStore.open(archive)
    assert verify_run(archive).discrepancies


@pytest.mark.parametrize("edit", [larger_radius, more_votes, one_input_less])
def test_new_seals_do_not_make_a_lie_true(edit: Callable[[dict[str, Any]], None], archive: Path) -> None:
    change(archive, edit, resealed=True)
    RunStore.open(archive).close()
    assert verify_run(archive).discrepancies


def text_as_radius(document: dict[str, Any]) -> None:
    document["tables"]["verdicts"]["radius"][0] = "0.5"


def missing_column(document: dict[str, Any]) -> None:
    del document["tables"]["tallies"]["sums"]


def uneven_columns(document: dict[str, Any]) -> None:
    document["tables"]["tallies"]["start"].pop()


def repeated_input(document: dict[str, Any]) -> None:
    for values in document["tables"]["points"].values():
        values.append(values[0])


def other_version(document: dict[str, Any]) -> None:
    document["version"] = 2


def nested_value(document: dict[str, Any]) -> None:
    document["tables"]["points"]["label"][0] = [1]


def truth_as_number(document: dict[str, Any]) -> None:
    document["tables"]["points"]["label"][0] = True


def no_tables(document: dict[str, Any]) -> None:
    document["tables"] = []


def columns_of_text(document: dict[str, Any]) -> None:
    document["tables"]["points"] = "points"


def invalid_bytes(document: dict[str, Any]) -> None:
    document["tables"]["tallies"]["sums"][0] = base64.b64encode(b"abc").decode()[:-1] + "!"


@pytest.mark.parametrize(
    "edit",
    [
        text_as_radius, missing_column, uneven_columns, repeated_input, other_version, nested_value, truth_as_number,
        no_tables, columns_of_text, invalid_bytes,
    ],
)  # fmt: skip
def test_malformed_archives_are_refused(edit: Callable[[dict[str, Any]], None], archive: Path) -> None:
    document = document_of(archive)
    edit(document)
    (archive / ARCHIVE).write_bytes(gzip.compress(json.dumps(document).encode()))
    with pytest.raises(CorruptRunError, match=r"results\.json\.gz is damaged"):
        RunStore.open(archive)
    assert verify_run(archive).discrepancies


@pytest.mark.parametrize(
    "content",
    [b"", b"not compressed", gzip.compress(b"{}" * 1000)[:-20], gzip.compress(b"[1]")],
    ids=["empty", "not compressed", "cut short", "a list"],
)
def test_damaged_files_are_refused(content: bytes, archive: Path) -> None:
    (archive / ARCHIVE).write_bytes(content)
    with pytest.raises(CorruptRunError, match=r"results\.json\.gz is damaged"):
        RunStore.open(archive)
    assert verify_run(archive).discrepancies


def test_the_commands_read_archives(votes: Path, archive: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(votes, tmp_path / "original" / "archive"))  # of the same name
    for words in (("table", "--json"), ("table", "--radii", "0,0.1")):
        assert invoke(app, words[0], archive, *words[1:]).stdout == invoke(app, words[0], run, *words[1:]).stdout
    invoke(app, "plot", archive, "-o", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert invoke(app, "verify", archive).exit_code == 0
    invoke(app, "export", archive, "-o", tmp_path / "log.tsv")


def test_export_writes_archives(votes: Path, archive: Path, tmp_path: Path) -> None:
    text = invoke(app, "export", votes, "--format", "archive", "-o", tmp_path / "out").stdout
    assert text == f"wrote 4 inputs to {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / ARCHIVE).read_bytes() == (archive / ARCHIVE).read_bytes()
    invoke(app, "export", votes, "-o", tmp_path / "log.tsv")
    with pytest.raises(RunError, match="is a log, which has no manifest"):
        invoke(app, "export", tmp_path / "log.tsv", "--format", "archive", "-o", tmp_path / "of a log")


def test_places_of_a_machine_are_left_out(votes: Path, tmp_path: Path) -> None:
    with RunStore.open(votes) as store:
        manifest = store.manifest
    named = msgspec.structs.replace(
        manifest,
        sigma=SigmaFacts(rule={}),
        digests=msgspec.structs.replace(manifest.digests, sigma="0" * 64),
        spec=msgspec.structs.replace(
            manifest.spec,
            model=ModelSpec(place="/home/me/net.pt", weights="C:\\me\\weights.pt", code_folder="/home/me"),
            data=DataSpec(place="/home/me/images", root="/home/me/data"),
            sigma=RuleLevel(place="/home/me/rule.safetensors", code_folder="/home/me"),
            memory="postgresql://somewhere/memories",
            engine=RayEngineSpec(address="ray://somewhere:10001"),
        ),
    )
    recertified = msgspec.structs.replace(named, recertified_from=named.to_json())
    text = json.dumps(without_folders(recertified).to_json())
    assert not any(word in text for word in ("home", "C:", "somewhere", "10001"))
    assert all(word in text for word in ("net.pt", "weights.pt", "images", "rule.safetensors", "postgresql:"))

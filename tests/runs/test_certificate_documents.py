"""Certificates as files: they fit the published schema, stand alone, and say what the run says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from smoothcert.errors import CorruptRunError, RunError
from smoothcert.runs.certificate_documents import document_of, write_certificates
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.seals import document_digest
from smoothcert.runs.store import RunStore, read_manifest
from verified_runs import KINDS, SPLIT_KINDS, make_run

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "certificate.schema.json"


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    document = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def votes(folder: Path) -> Path:
    return make_run("votes", folder / "of votes")


def documents(run: Path) -> list[dict[str, Any]]:
    with RunStore.open(run) as store:
        return [document_of(point, store.manifest) for point in store.points()]


@pytest.mark.parametrize("kind", [*KINDS, *SPLIT_KINDS])
def test_every_kind_fits_the_schema(kind: str, folder: Path, schema: jsonschema.Draft202012Validator) -> None:
    for document in documents(make_run(kind, folder / kind)):
        read_back = json.loads(json.dumps(document, allow_nan=False))
        assert [error.message for error in schema.iter_errors(read_back)] == []
        assert read_back == document  # JSON loses nothing of it


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("format",), "x"),
        (("version",), 1),
        (("digest",), "x"),
        (("input", "index"), -1),
        (("smoothing", "sigma"), 0),
        (("smoothing", "noise", "kind"), "unheard-of"),
        (("statement",), "It is robust."),
        (("verdicts", 0, "reason"), "a sentence"),
        (("verdicts", 0, "reason"), {"code": "no-such-code"}),
        (("verdicts",), []),
        (("verdicts", 0, "outcome"), "CERTIFIED"),
        (("tallies", 0, "kind"), "pairs"),
        (("tallies", 0, "counts"), {"votes": {"a": 1}, "invalid": 0}),
        (("run", "schema"), 2),
        (("more",), 1),
    ],
)
def test_the_schema_refuses(
    votes: Path, schema: jsonschema.Draft202012Validator, at: tuple[str | int, ...], value: object
) -> None:
    document = documents(votes)[0]
    holder: Any = document
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = value
    assert not schema.is_valid(document)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("votes", {"alpha": 0}),
        ("votes", {"question": {"kind": "every-evaluation", "n": 200}}),
        ("votes", {"question": {"kind": "fixed-n", "n": 200}}),
        ("split", {"alpha": 0.001}),
        ("split", {"question": {"kind": "fixed-n", "n": 24, "n0": 0}}),
        ("split", {"question": {"kind": "every-evaluation", "n": 24, "n0": 0}}),
    ],
)
def test_the_schema_knows_where_nothing_is_sampled(
    kind: str, changes: dict[str, object], folder: Path, schema: jsonschema.Draft202012Validator
) -> None:
    run = folder / f"nothing sampled {kind}" / kind
    document = documents(run if run.exists() else make_run(kind, run.parent))[0]
    assert schema.is_valid(document)
    document["run"]["spec"] |= changes
    assert not schema.is_valid(document)


def test_it_says_what_the_run_says(votes: Path) -> None:
    with RunStore.open(votes) as store:
        points, manifest = store.points(), store.manifest
    for point, document in zip(points, documents(votes), strict=True):
        assert document["verdicts"][0]["radius"] == point.radius
        assert document["run"] == json.loads((votes / "manifest.json").read_text())
        assert document["run_digest"] == document_digest(manifest.to_json())
        rest = {key: value for key, value in document.items() if key != "digest"}
        assert document["digest"] == document_digest(rest)


def test_where_nothing_is_certified_it_says_why(folder: Path) -> None:
    for kind in ("abstaining", "failed"):
        run = folder / kind / kind
        for document in documents(run if run.exists() else make_run(kind, folder / kind)):
            expected = "no-finite-answer" if kind == "failed" else _code_of_abstention(document)
            assert document["verdicts"][0]["reason"]["code"] == expected
            assert document["verdicts"][0]["radius"] == 0


def _code_of_abstention(document: dict[str, Any]) -> str:
    """By the votes: whether the selected class leads in the estimation, too."""
    leaders = []
    for stage in ("SELECTION", "ESTIMATION"):
        votes: Counter[str] = Counter()
        for tally in document["tallies"]:
            if tally["stage"] == stage:
                votes.update({name: int(count) for name, count in tally["counts"]["votes"].items()})
        leaders.append(max(votes, key=lambda name: (votes[name], -int(name))))
    return "too-few-votes" if leaders[0] == leaders[1] else "other-class-leads"


class TestFiles:
    def test_one_for_each_input(self, votes: Path, tmp_path: Path) -> None:
        heard: list[tuple[int, int]] = []
        files = write_certificates(
            votes, tmp_path / "a" / "b", progress=lambda done, total: heard.append((done, total))
        )
        assert [file.name for file in files] == [f"certificate-{index:06d}.json" for index in (0, 60, 120, 180)]
        assert sorted((tmp_path / "a" / "b").iterdir()) == [*files, tmp_path / "a" / "b" / "certificates.index"]
        assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]
        assert [json.loads(file.read_text()) for file in files] == documents(votes)

    def test_nothing_is_overwritten_unless_asked(self, votes: Path, tmp_path: Path) -> None:
        file = tmp_path / "certificate-000060.json"
        file.write_text("precious")
        with pytest.raises(RunError, match="already exists"):
            write_certificates(votes, tmp_path)
        assert file.read_text() == "precious"
        write_certificates(votes, tmp_path, overwrite=True)
        assert json.loads(file.read_text())["input"]["index"] == 60

    def test_the_index_has_the_digests(self, votes: Path, tmp_path: Path) -> None:
        write_certificates(votes, tmp_path / "out")
        index = json.loads((tmp_path / "out" / "certificates.index").read_text())
        found = documents(votes)
        names = [f"certificate-{one['input']['index']:06d}.json" for one in found]
        assert index == {
            "format": "smoothcert certificates",
            "version": 1,
            "run_digest": found[0]["run_digest"],
            "certificates": 4,
            "digests": dict(zip(names, [one["digest"] for one in found], strict=True)),
        }

    def test_what_was_cut_short_is_continued(self, votes: Path, tmp_path: Path) -> None:
        """It was refused, because some certificates existed."""
        out = tmp_path / "out"

        def stop(done: int, _: int) -> None:
            if done == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_certificates(votes, out, progress=stop)
        times = {file.name: file.stat().st_mtime_ns for file in out.glob("*.json")}
        assert len(times) == 2
        files = write_certificates(votes, out)
        assert [json.loads(file.read_text()) for file in files] == documents(votes)
        assert times.items() <= {file.name: file.stat().st_mtime_ns for file in files}.items()  # not written again
        with pytest.raises(RunError, match="already holds all 4 certificates"):
            write_certificates(votes, out)

    def test_another_run_or_a_damaged_index(self, votes: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        write_certificates(votes, out)
        recertify_run(votes, alpha=0.01).save(tmp_path / "other")
        with pytest.raises(RunError, match="certificates of another run"):
            write_certificates(tmp_path / "other", out)
        write_certificates(tmp_path / "other", out, overwrite=True)
        for content in ("{", "{}", '{"run_digest": "0", "certificates": 1, "version": 2}'):
            (out / "certificates.index").write_text(content)
            with pytest.raises(CorruptRunError, match=r"certificates.index is not an index"):
                write_certificates(votes, out)

    def test_an_unfinished_run(self, votes: Path, tmp_path: Path) -> None:
        with (
            RunStore.create(tmp_path / "empty", read_manifest(votes)),
            pytest.raises(RunError, match="no finished input"),
        ):
            write_certificates(tmp_path / "empty", tmp_path / "out")

"""Certificates from anybody: every changed field is found, and nothing that is read can do more than be refused."""

from __future__ import annotations

import base64
import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smoothcert.runs.certificate_documents import write_certificates
from smoothcert_verify.document_checks import check_version
from smoothcert_verify.findings import Finding, MalformedError, PlaceError
from smoothcert_verify.json_values import canonical_digest, parse_json
from smoothcert_verify.run_checks import verify_certificates
from smoothcert_verify.run_reading import is_run, list_certificate_files
from verified_runs import leaves, make_run, redigested, with_change


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def document(folder: Path) -> dict[str, Any]:
    return first_document("votes", folder)


@pytest.fixture(scope="module")
def gradients(folder: Path) -> dict[str, Any]:
    return first_document("second-order", folder)


def first_document(kind: str, folder: Path) -> dict[str, Any]:
    files = write_certificates(make_run(kind, folder / kind), folder / kind / "certificates")
    read: dict[str, Any] = json.loads(files[0].read_text())
    return read


def found_in(content: object, folder: Path) -> list[Finding]:
    """What is wrong with a file of this content: text, bytes, or a document."""
    file = folder / "certificate.json"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return verify_certificates(file).discrepancies


def test_as_it_was_written(document: dict[str, Any], tmp_path: Path) -> None:
    assert found_in(document, tmp_path) == []
    # Spaces and the order of names are no content.
    assert found_in(json.dumps(document, indent=7, sort_keys=True), tmp_path) == []


def test_every_field(document: dict[str, Any], tmp_path: Path) -> None:
    places = [at for at, _ in leaves(document)]
    assert len(places) > 100
    for at in places:
        assert found_in(with_change(document, at), tmp_path), f"{at} was changed and nobody noticed"


@pytest.mark.parametrize("name", ["input", "smoothing", "verdicts", "tallies", "promise"])
def test_a_field_is_missing(document: dict[str, Any], tmp_path: Path, name: str) -> None:
    assert found_in(redigested({key: value for key, value in document.items() if key != name}), tmp_path)


@pytest.mark.parametrize("at", [(), ("input",), ("smoothing",), ("verdicts", 0), ("tallies", 1)])
def test_a_field_that_nobody_would_check(document: dict[str, Any], tmp_path: Path, at: tuple[str | int, ...]) -> None:
    told = json.loads(json.dumps(document))
    holder = told
    for key in at:
        holder = holder[key]
    holder["true_radius"] = 5.0
    assert any(
        finding.values.get("field", "").endswith("true_radius") for finding in found_in(redigested(told), tmp_path)
    )


FORGED: list[tuple[tuple[str | int, ...], Any]] = [
    (("verdicts", 0, "reason"), {"code": "region-cut"}),
    (("input", "index"), 7),
    (("input", "index"), -1),
    (("input", "index"), 10**40),
    (("input", "index"), True),
    (("input", "label"), 10),
    (("smoothing", "noise", "kind"), "uniform"),
    (("smoothing", "sigma"), 0.5),
    (("smoothing", "dimension"), 65),
    (("smoothing", "num_classes"), 2),
    (("smoothing", "noise", "grid"), 3),
    (("smoothing", "envelope"), {"kind": "constant"}),
    (("smoothing", "remembered"), True),
    (("verdicts",), []),
    (("verdicts", 0, "radius"), 3.0),
    (("verdicts", 0, "radius"), "0.5"),
    (("verdicts", 0, "certificate"), "li"),
    (("verdicts", 0, "norm"), "l1"),
    (("verdicts", 0, "bounds"), None),
    (("tallies",), []),
    (("tallies", 0, "stage"), "ESTIMATION"),
    (("tallies", 0, "counts"), {}),
    (("tallies", 0, "sums"), "AAAA"),
    (("run", "spec", "alpha"), 0.5),
    (("run", "spec", "question", "n"), 10**30),
    (("run", "spec", "task"), "predict"),
    (("run", "schema"), 2),
    (("run",), {}),
    (("promise",), {}),
]


@pytest.mark.parametrize(("at", "value"), FORGED)
def test_forged_with_fitting_digests(
    document: dict[str, Any], tmp_path: Path, at: tuple[str | int, ...], value: Any
) -> None:
    assert found_in(redigested(with_change(document, at, lambda _: value)), tmp_path)


FREE = {("memory",), ("batch",), ("seed",), ("rigorous",)}
"""Settings of a spec that may be null, or either of two values, without contradicting anything."""


class TestHostile:
    @pytest.mark.parametrize(
        "content",
        [
            b"", b"\xff\xfe", b"null", b"[]", b"{", b"{}", b'"x"', b"1e999", b"NaN", b'{"format": NaN}',
            b'{"format": "smoothcert certificate", "version": 1e400}',
            b'{"format": "smoothcert certificate", "version": Infinity}',
            b'{"format": "smoothcert certificate", "format": "smoothcert certificate"}',
            b'{"format": "smoothcert certificate", "version": ' + b"9" * 10_000 + b"}",
            b'{"format": "smoothcert certificate", "version": 1}',
            b'{"format": "smoothcert certificate", "version": true}',
            b'{"format": "smoothcert certificate", "version": 3}',
            b"[" * 200_000,
            b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        ],
        ids=range(19),
    )  # fmt: skip
    def test_no_certificates(self, tmp_path: Path, content: bytes) -> None:
        assert found_in(content, tmp_path)

    def test_deep_inside(self, document: dict[str, Any], tmp_path: Path) -> None:
        text = json.dumps(document).replace('"probe": {', '"probe": {"deep": ' + "[" * 900 + "]" * 900 + ", ", 1)
        assert found_in(text, tmp_path)

    @pytest.mark.parametrize("value", [None, True, -1, 10**400, 1e308, -0.0, "", "x" * 10**6, [], {}, [[]], {"": {}}])
    def test_wrong_types_everywhere(self, document: dict[str, Any], tmp_path: Path, value: object) -> None:
        """With fitting digests, so that nobody stops before the fields are looked at."""
        sections = [("input",), ("smoothing",), ("verdicts",), ("tallies",), ("run",), ("run", "spec")]
        sections += [("run", "data"), ("run", "model"), ("run", "digests"), ("verdicts", 0), ("verdicts", 0, "bounds")]
        sections += [("tallies", 0, key) for key in document["tallies"][0]]
        sections += [("run", "spec", key) for key in document["run"]["spec"]]
        sections += [("run", "spec", "question", key) for key in ("n", "n0")]
        for at in sections:
            forged = redigested(with_change(document, at, lambda _: value))
            if forged != document:
                free = at[:2] == ("run", "spec") and at[2:] in FREE
                assert found_in(forged, tmp_path) or free, at

    def test_a_bomb_in_the_sums(self, gradients: dict[str, Any], tmp_path: Path) -> None:
        """Half a gigabyte of zeros in half a megabyte; there could be a thousand times as many."""
        packer = zlib.compressobj(1)
        zeros = b"\0" * (1 << 24)
        packed = b"".join(packer.compress(zeros) for _ in range(32)) + packer.flush()
        place = next(i for i, tally in enumerate(gradients["tallies"]) if tally["sums"] is not None)
        forged = with_change(gradients, ("tallies", place, "sums"), lambda _: base64.b64encode(packed).decode())
        began = time.perf_counter()
        assert found_in(redigested(forged), tmp_path)
        assert time.perf_counter() - began < 5.0

    @pytest.mark.parametrize("sums", ["!", "AAAA", "", "eJw=", 5, [], "eJwDAAAAAAE="])
    def test_sums_that_are_none(self, gradients: dict[str, Any], tmp_path: Path, sums: object) -> None:
        place = next(i for i, tally in enumerate(gradients["tallies"]) if tally["sums"] is not None)
        assert found_in(redigested(with_change(gradients, ("tallies", place, "sums"), lambda _: sums)), tmp_path)

    @given(data=st.data())
    @settings(
        max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    def test_any_value_anywhere(self, document: dict[str, Any], tmp_path: Path, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from([at for at, _ in leaves(document)]))
        anything = st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        )
        value = data.draw(anything)
        found_in(redigested(with_change(document, at, lambda _: value)), tmp_path)  # it returns: that is the test

    def test_the_same_input_twice(self, document: dict[str, Any], tmp_path: Path) -> None:
        for name in ("a.json", "b.json"):
            (tmp_path / name).write_text(json.dumps(document))
        (finding,) = verify_certificates(tmp_path).discrepancies
        assert (finding.code, finding.where, finding.values) == ("same-input", "b.json", {"other": "a.json"})


class TestPlaces:
    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(PlaceError, match="does not exist"):
            list_certificate_files(tmp_path / "none")
        with pytest.raises(PlaceError, match="neither a run"):
            list_certificate_files(tmp_path)
        assert not is_run(tmp_path)

    def test_a_pipe_is_no_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.json")
        with pytest.raises(PlaceError, match="not a regular file"):
            list_certificate_files(tmp_path / "pipe.json")
        with pytest.raises(PlaceError, match="neither a run"):
            list_certificate_files(tmp_path)

    def test_a_file_without_end(self) -> None:
        with pytest.raises(PlaceError, match="not a regular file"):
            list_certificate_files(Path("/dev/zero"))


class TestJson:
    def test_the_canonical_form_is_that_of_the_schema(self) -> None:
        import hashlib

        text = b'{"a":[1,2.5,"\\u00e9"],"b":null}'
        assert canonical_digest({"b": None, "a": [1, 2.5, "é"]}) == hashlib.sha256(text).hexdigest()

    @pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", '{"a": 1, "a": 2}', "[1,]", "'a'", "1" * 5000])
    def test_what_is_refused(self, text: str) -> None:
        with pytest.raises(MalformedError):
            parse_json(text)

    def test_what_has_no_canonical_form(self) -> None:
        with pytest.raises(MalformedError):
            canonical_digest({"a": float("nan")})

    def test_a_certificate_must_say_that_it_is_one(self, tmp_path: Path) -> None:
        with pytest.raises(MalformedError, match="format"):
            check_version({"format": "something"})
        (finding,) = found_in({"format": "something"}, tmp_path)
        assert finding.code == "unknown-format"

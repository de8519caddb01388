"""σ that is not what a theorem supposes of it is refused: in a run, in its certificates, and across them."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("flint")

from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.errors import InputError
from smoothcert.sigma.envelope_check import EnvelopeCheck
from verified_runs import MODEL, copy_of, redigested, resealed

_DATA = ("--model", MODEL, "--data", "digits", "--seed", 3, "--batch", 64, "--workers", 1, "--skip", 60, "--max", 5)
_SAMPLES = ("--n0", 20, "--n", 200)


def certify(folder: Path, rule: str) -> Path:
    out = folder / rule
    if rule == "says_constant":
        return out if out.exists() else _of_two_constants(folder, out)
    if not out.exists():
        # `certify` would refuse the lie. A forger removes that check.
        with mock.patch.object(EnvelopeCheck, "check"):
            invoke(app, "certify", *_DATA, *_SAMPLES, "--sigma-rule", f"lying_rules:{rule}", "--out", out)
    return out


def _of_two_constants(folder: Path, out: Path) -> Path:
    """A run of a function that is said to be constant; one of its inputs is that of a run with another level."""
    first, other = certify(folder, "honest_constant"), certify(folder, "other_constant")
    shutil.copytree(first, out)
    with closing(sqlite3.connect(out / "results.sqlite")) as connection:
        connection.execute(f"ATTACH '{other / 'results.sqlite'}' AS other")
        connection.execute("DELETE FROM seals")
        for table in ("tallies", "verdicts", "points"):
            connection.execute(f"DELETE FROM main.{table} WHERE idx = 60")
        for table in ("points", "verdicts", "tallies"):
            connection.execute(f"INSERT INTO main.{table} SELECT * FROM other.{table} WHERE idx = 60")
        connection.commit()
    renamed(out, "callable", name="f", envelope={"kind": "constant"})
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sigmas")


def exported(run: Path, folder: Path) -> Path:
    out = folder / f"certificates of {run.name}"
    invoke(app, "export", run, "--format", "certificate", "-o", out)
    return out


def assert_refused(reason: str, *arguments: object) -> None:
    result = invoke(app, "verify", *arguments)
    assert result.exit_code == 1, result.stdout
    assert re.search(reason, result.stdout), result.stdout


def renamed(run: Path, kind: str, **more: object) -> None:
    """Say that the rule of a run is of another kind, with new seals."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["sigma"]["rule"] |= {"kind": kind, **more}
    (run / "manifest.json").write_text(json.dumps(manifest))
    resealed(run)


LIES = {
    "says_constant": "constant",
    "says_rate_zero": "semi-elastic",
    "says_flat": "lipschitz",
    "says_slow": "semi-elastic",
    "says_low_floor": "lipschitz",
}


class TestRuns:
    @pytest.mark.parametrize("rule", [*list(LIES)[1:], "says_its_own", "says_slow_and_jumps_little"])
    def test_a_lie_is_refused_before_anything_is_sampled(self, tmp_path: Path, rule: str) -> None:
        out = tmp_path / "run"
        pair = r"contradicts its envelope .*: inputs \d+ and \d+ are .* apart and have sigma"
        with pytest.raises(InputError, match=pair):
            invoke(app, "certify", *_DATA, *_SAMPLES, "--sigma-rule", f"lying_rules:{rule}", "--out", out)
        assert not out.exists()

    @pytest.mark.parametrize("rule", LIES)
    def test_levels_that_the_envelope_excludes(self, folder: Path, rule: str) -> None:
        run = certify(folder, rule)
        assert_refused(f"impossible under the envelope .*{LIES[rule]}", run)
        assert_refused(f"impossible under the envelope .*{LIES[rule]}", run, "--replay", MODEL, 5)

    def test_levels_that_only_the_data_excludes(self, folder: Path) -> None:
        run = certify(folder, "says_slow_and_jumps_little")
        alone = invoke(app, "verify", run)
        assert alone.exit_code == 0
        assert "distances between inputs were not measured" in alone.stdout
        assert_refused("impossible under the envelope .*semi-elastic", run, "--data", "digits")
        assert_refused("impossible under the envelope .*semi-elastic", run, "--replay", MODEL, 1)

    def test_a_rule_that_says_constant(self, folder: Path, tmp_path: Path) -> None:
        run = copy_of(certify(folder, "says_constant"), tmp_path)
        renamed(run, "constant", sigma=0.25)
        assert_refused(r"smoothing.sigma is 3\.0, expected 0\.25", run)
        assert_refused(r"smoothing.sigma is 3\.0, expected 0\.25", run, "--replay", MODEL, 5)
        assert_refused(r"smoothing.sigma is 3\.0, expected 0\.25", exported(run, tmp_path))

    @pytest.mark.parametrize("rule", ["says_constant", "says_rate_zero", "honest_constant"])
    def test_a_rule_of_an_unknown_kind(self, folder: Path, tmp_path: Path, rule: str) -> None:
        run = copy_of(certify(folder, rule), tmp_path)
        renamed(run, "mystery")
        assert_refused("the rule for sigma is of the kind 'mystery', which is not known", run)
        assert_refused("the rule for sigma is of the kind 'mystery', which is not known", exported(run, tmp_path))

    def test_an_envelope_that_nobody_can_read(self, folder: Path, tmp_path: Path) -> None:
        run = certify(folder, "says_its_own")
        assert_refused("not proved: .*a Python function of the user", run)
        assert_refused("not proved: .*a Python function of the user", exported(run, tmp_path))

    def test_honest(self, folder: Path) -> None:
        run = certify(folder, "honest_constant")
        result = invoke(app, "verify", run, "--data", "digits")
        assert result.exit_code == 0, result.stdout
        assert "all is proved" in result.stdout


class TestCertificates:
    @pytest.mark.parametrize("rule", LIES)
    def test_of_one_run(self, folder: Path, tmp_path: Path, rule: str) -> None:
        certificates = exported(certify(folder, rule), tmp_path)
        assert_refused(f"impossible under the envelope .*{LIES[rule]}", certificates)
        assert_refused(
            f"impossible under the envelope .*{LIES[rule]}", *sorted(certificates.glob("*.json"))
        )  # one place each

    def test_every_document_carries_what_is_supposed(self, folder: Path, tmp_path: Path) -> None:
        for file in exported(certify(folder, "honest_constant"), tmp_path).glob("*.json"):
            document = json.loads(file.read_text())
            assert document["smoothing"]["envelope"] == {"kind": "constant", "sigma": 0.25}

    def test_a_document_with_another_constant(self, folder: Path, tmp_path: Path) -> None:
        file = next(iter(sorted(exported(certify(folder, "honest_constant"), tmp_path).glob("*.json"))))
        document = json.loads(file.read_text())
        for sigma in (0.5, None):
            envelope = {"kind": "constant"} | ({} if sigma is None else {"sigma": sigma})
            forged = document | {"smoothing": document["smoothing"] | {"envelope": envelope}}
            file.write_text(json.dumps(redigested(forged)))
            assert_refused("smoothing.envelope is .*, expected", file)

    def test_another_level_and_another_constant_is_another_classifier(self, folder: Path, tmp_path: Path) -> None:
        """Two constants are two classifiers. Both may be right, and it is said that they are two."""
        certificates = exported(certify(folder, "honest_constant"), tmp_path)
        other = folder / "other"
        invoke(app, "certify", *_DATA, *_SAMPLES, "--sigma", 0.5, "--out", other)
        result = invoke(app, "verify", certificates, other)
        assert result.exit_code == 0, result.stdout
        assert "2 different smoothed classifiers" in result.stdout

    def test_one_input_with_two_levels(self, folder: Path, tmp_path: Path) -> None:
        """The same input, the same rule, and two levels: no envelope allows that, also without the data."""
        run = certify(folder, "says_slow_and_jumps_little")
        forged = copy_of(run, tmp_path)
        manifest = json.loads((forged / "manifest.json").read_text())
        manifest["seed"] = manifest["spec"]["seed"] = 4
        (forged / "manifest.json").write_text(json.dumps(manifest))
        with closing(sqlite3.connect(forged / "results.sqlite")) as connection:
            connection.execute("UPDATE points SET sigma = sigma * 1.01")
            connection.execute("UPDATE tallies SET sigma = sigma * 1.01")
            connection.commit()
        resealed(forged)
        assert_refused("input 0 has sigma .* here and .* there", run, forged)

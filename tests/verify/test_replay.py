"""Samples drawn again: the noise has the bits of the run's, by other code, and tallies that were made up are found."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.errors import InputError, ModelError
from smoothcert.models import original as models_original
from smoothcert.models import probe as models_probe
from smoothcert.models.original import Answer, Original, original_of
from smoothcert.noise import unit_noise as noise_of_a_run
from smoothcert.noise.grid_law import grid_law
from smoothcert.noise.grid_with_numpy import grid_draws
from smoothcert.records import CheckCounts, Noise, Stage, StreamId
from smoothcert.sampling import ModelChecks
from smoothcert_verify.findings import OptionError
from smoothcert_verify.noise_forms import (
    FloatNoise,
    GridNoise,
    cell_means,
    grid_steps,
    philox,
    thresholds,
    unit_noise,
)
from smoothcert_verify.noise_streams import Stream, chacha
from smoothcert_verify.replay import SAMPLING_VERSION, Replay, choose_inputs
from smoothcert_verify.reports import Report
from smoothcert_verify.run_checks import verify_run
from smoothcert_verify.run_facts import read_run
from verified_runs import MODEL, altered, copy_of, make_run, resealed

ADDED = [noise for noise in Noise if noise.sampled]
SEED, BIG_SEED, START = 2**63 + 12345, 2**127 + 5, 2**32 - 7


class TestNoise:
    def test_known_answers(self) -> None:
        """Philox: of its authors, for counter and key of ones. ChaCha20: RFC 8439, section 2.3.2."""
        ones = np.array([0xFFFFFFFF], dtype=np.uint64)
        found = [int(word[0]) for word in philox((ones, ones, ones, ones), 2**64 - 1)]
        assert found == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
        key = [int.from_bytes(bytes(range(at, at + 4)), "little") for at in range(0, 32, 4)]
        position = [np.array([word], dtype=np.uint32) for word in (1, 0x09000000, 0x4A000000, 0)]
        words = [int(word[0]) for word in chacha(position, key)]
        assert words[:4] == [0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3]
        assert words[12:] == [0xD19C12B5, 0xB94E16DE, 0xE883D0CB, 0x4E3C50A2]

    @pytest.mark.parametrize("noise", ADDED)
    @pytest.mark.parametrize("size", [1, 5, 64, 129])
    @pytest.mark.parametrize("seed", [SEED, 2**64, BIG_SEED])
    def test_float_noise_bit_for_bit(self, noise: Noise, size: int, seed: int) -> None:
        made = noise_of_a_run(noise, StreamId(seed, 77, Stage.ESTIMATION), start=START, count=40, size=size)
        again = unit_noise(noise.value, Stream(seed, 77, 1), start=START, count=40, size=size)
        assert made.tobytes() == again.tobytes()

    @pytest.mark.parametrize("noise", ADDED)
    @pytest.mark.parametrize(("sigma", "levels"), [(0.25, 256), (1.0, 256), (0.5, 17), (0.12, 4081), (0.7, 2)])
    def test_grid_noise(self, noise: Noise, sigma: float, levels: int) -> None:
        law = grid_law(noise, sigma=sigma, levels=levels)
        limits, least = thresholds(noise.value, sigma=sigma, levels=levels)
        assert np.array_equal(limits, law.thresholds)
        assert least == law.least
        for size in (1, 33, 100):
            made = grid_draws(law, StreamId(BIG_SEED, 9, Stage.ESTIMATION), start=START, count=40, size=size)
            stream = Stream(BIG_SEED, 9, 1)
            again = grid_steps(
                noise.value, stream, sigma=sigma, levels=levels, start=START, count=40, size=size
            )  # fmt: skip
            assert np.array_equal(made, again)
        if noise is Noise.GAUSSIAN:
            assert np.abs(cell_means(sigma=sigma, levels=levels) - law.means).max() < 1e-9

    @pytest.mark.parametrize(
        ("noise", "sigma", "levels"),
        [("gaussian", 4000.0, 256), ("gaussian", 0.2, 2**23), ("uniform", 2.0, 2**23), ("gaussian", 1e300, 2)],
    )
    def test_tables_without_end_are_refused(self, noise: str, sigma: float, levels: int) -> None:
        """A million thresholds take a minute; 10^300 of them do not end."""
        with pytest.raises(ValueError, match=r"more than 2\^23 steps"):
            thresholds(noise, sigma=sigma, levels=levels)
        with pytest.raises(InputError, match="steps"):
            grid_law(Noise(noise), sigma=min(sigma, 1e6), levels=levels if sigma < 1e6 else 256)

    def test_an_input_off_the_grid_is_refused(self) -> None:
        x = np.array([0.5, 1.0], dtype=np.float32)
        with pytest.raises(ValueError, match="grid"):
            GridNoise("gaussian", x, sigma=0.25, levels=256)
        assert GridNoise("gaussian", x, sigma=0.25, levels=17).copies(Stream(1, 2, 1), 0, 3).shape == (3, 2)

    def test_pairs_are_mirrored(self) -> None:
        x = np.linspace(0, 1, 17, dtype=np.float32)
        for noisy in (
            FloatNoise("gaussian", x, sigma=0.25),
            GridNoise("gaussian", x, sigma=0.25, levels=17),
        ):
            first, second = noisy.pairs(Stream(1, 2, 1), 0, 5)
            assert np.array_equal(first, noisy.copies(Stream(1, 2, 1), 0, 5))
            assert np.allclose(first + second, 2 * x, atol=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replayed")


def replayed(run: Path, *, model: str = MODEL, indices: tuple[int, ...] = (0, 120), batch: int | None = None) -> Report:
    report = verify_run(run)
    chosen = choose_inputs(report.entries, count=0, indices=indices)
    rule = run / "sigma.safetensors"
    replay = Replay.open(
        chosen[0].run,
        model=model,
        data=None,
        data_root=None,
        rule=rule if rule.exists() else None,
        batch=batch,
    )
    report.discrepancies += replay.discrepancies
    replay.run(chosen, report)
    return report


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.discrepancies]


def places(report: Report) -> list[tuple[str, str]]:
    return [(finding.code, finding.where) for finding in report.discrepancies]


REPLAYED = (
    "votes", "dipole", "second-order", "second-order-multi-class", "soft", "decide", "uniform", "shared-noise",
    "float-noise", "predict", "recertified", "envelope", "memory", "split", "split-predict",
)  # fmt: skip


@pytest.mark.parametrize("kind", REPLAYED)
def test_a_fresh_run_comes_out_again(kind: str, folder: Path) -> None:
    assert replayed(make_run(kind, folder / kind)).discrepancies == []


def test_float_noise_of_a_seed_of_128_bits(tmp_path: Path) -> None:
    """As where no --seed is given: the seed is drawn by the operating system."""
    out = tmp_path / "run"
    given = ("--model", MODEL, "--data", "digits", "--batch", 64, "--workers", 1, "--skip", 60, "--max", 2)
    invoke(app, "certify", *given, "--n0", 20, "--n", 200, "--sigma", 0.25, "--noise", "float", "--out", out)
    assert json.loads((out / "manifest.json").read_text())["spec"]["seed"] is None
    assert replayed(out, indices=(0, 60)).discrepancies == []


class TestBatches:
    @pytest.mark.parametrize("kind", ["votes", "dipole", "second-order", "soft", "split"])
    @pytest.mark.parametrize("batch", [1, 3, 1000])
    def test_of_another_size(self, folder: Path, kind: str, batch: int) -> None:
        run = folder / kind / kind
        run = run if run.exists() else make_run(kind, folder / kind)
        assert replayed(run, batch=batch).discrepancies == []

    def test_a_model_that_looks_across_the_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The mean of a batch tells the input apart from all its neighbours; a row alone does not."""
        (tmp_path / "across_rows.py").write_text(
            "import numpy as np\n"
            "from smoothcert.data import load_dataset\n"
            "KNOWN = load_dataset('digits').inputs([0]).reshape(-1)\n"
            "def classify(batch):\n"
            "    mean = batch.reshape(len(batch), -1).mean(axis=0, dtype=np.float64)\n"
            "    answers = np.zeros((len(batch), 10), dtype=np.float32)\n"
            "    answers[:, 1 if np.abs(mean - KNOWN).mean() < 0.1 else 0] = 1\n"
            "    return answers\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        model = ("--model", "across_rows:classify", "--num-classes", 10, "--data", "digits", "--max", 1, "--seed", 3)
        settings = ("--n0", 64, "--n", 192, "--batch", 64, "--workers", 1, "--sigma", 0.25)
        with monkeypatch.context() as forger:  # whoever makes the run can switch off what asks the model again
            forger.setattr(ModelChecks, "compare", count_without_asking)
            forger.setattr(ModelChecks, "ask_again", lambda self: None)
            invoke(app, "certify", *model, *settings, "--out", tmp_path / "run")
        recorded = replayed(tmp_path / "run", model="across_rows:classify", indices=(0,))
        assert recorded.discrepancies == []
        assert recorded.radii == 1
        row_by_row = replayed(tmp_path / "run", model="across_rows:classify", indices=(0,), batch=1)
        assert "other-votes" in codes(row_by_row)

    def test_the_original_is_asked_about_every_row(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What computes is right row by row, and is not what the user gave."""

        class Other:
            def __init__(self, original: Original) -> None:
                self._original = original

            def answer(self, row: np.ndarray) -> Answer:
                answer = self._original.answer(row)
                changed = row.reshape(-1)[0] > 0.3  # a share of the noisy copies
                return Answer(vote=(answer.vote + 1) % 10) if changed else answer

        run = folder / "votes" / "votes"
        run = run if run.exists() else make_run("votes", folder / "votes")
        monkeypatch.setattr(models_original, "original_of", lambda classifier: Other(original_of(classifier)))
        assert replayed(run).discrepancies == []
        assert "original-differs" in codes(replayed(run, batch=1))

    def test_a_model_with_other_answers_to_the_fixed_inputs(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = folder / "votes" / "votes"
        run = run if run.exists() else make_run("votes", folder / "votes")
        monkeypatch.setattr(models_probe, "probe_differences", lambda *_: ["input 3, class 1 where it gave 2"])
        assert "other-answers" in codes(replayed(run))


def count_without_asking(checks: ModelChecks, inputs: object, requests: object, picked: list[object]) -> None:
    checks.counts += CheckCounts(asked=len(picked))


class TestRecertified:
    """Votes that recertify kept are drawn, cut and thinned again: a forger cannot switch the replay off by an n."""

    @pytest.mark.parametrize("sizes", [(199,), (100,), (100, 50), (150, 120), (200, 30), (None, 30), (None, None)])
    def test_honest_ones_come_out_again(self, folder: Path, tmp_path: Path, sizes: tuple[int | None, ...]) -> None:
        """100 of 200 is an exact cut, 50 of the 100 that were stored together is thinned, although 50 is a cut."""
        run = folder / "votes" / "votes"
        run = run if run.exists() else make_run("votes", folder / "votes")
        for step, n in enumerate(sizes):
            out = tmp_path / f"{step}"
            options = ("--n", n) if n is not None else ("--alpha", 0.01)
            invoke(app, "recertify", run, *options, "--out", out)
            run = out
        assert replayed(run).discrepancies == []

    @pytest.mark.parametrize("kind", ["shared-noise", "dipole", "decide"])
    def test_other_samples(self, folder: Path, tmp_path: Path, kind: str) -> None:
        run = folder / kind / kind
        run = run if run.exists() else make_run(kind, folder / kind)
        n = {"shared-noise": 77, "dipole": 100, "decide": 80}[kind]
        invoke(app, "recertify", run, "--n", n, "--out", tmp_path / "again")
        assert replayed(tmp_path / "again").discrepancies == []

    def test_evaluations_are_made_again(self, folder: Path, tmp_path: Path) -> None:
        """None of them can have been left out."""
        run = folder / "split" / "split"
        run = run if run.exists() else make_run("split", folder / "split")
        invoke(app, "recertify", run, "--out", tmp_path / "again")
        assert replayed(tmp_path / "again").discrepancies == []

    def test_votes_that_were_never_drawn(self, folder: Path, tmp_path: Path) -> None:
        run = folder / "votes" / "votes"
        run = run if run.exists() else make_run("votes", folder / "votes")
        invoke(app, "recertify", run, "--n", 199, "--out", tmp_path / "again")
        again = tmp_path / "again"
        with closing(sqlite3.connect(again / "results.sqlite")) as connection:
            text = connection.execute("SELECT counts FROM tallies WHERE idx = 120 AND stage = 'ESTIMATION'")
            counts = json.loads(text.fetchone()[0])
            votes = counts["votes"]
            assert len(votes) > 1
            loser = min(votes, key=lambda name: (votes[name], name))
            votes[next(str(label) for label in range(10) if str(label) not in votes)] = votes.pop(loser)
            statement = "UPDATE tallies SET counts = ? WHERE idx = 120 AND stage = 'ESTIMATION'"
            connection.execute(statement, (json.dumps(counts),))
            connection.commit()
        resealed(again)
        assert verify_run(again).discrepancies == []
        assert ("other-votes-kept", "input 120: drawn again") in places(replayed(again))


class TestMadeUp:
    """Tallies that prove what is stated, sealed, but never drawn: only drawing them again tells."""

    @pytest.fixture
    def run(self, folder: Path, tmp_path: Path) -> Path:
        made = folder / "votes" / "votes"
        return copy_of(made if made.exists() else make_run("votes", folder / "votes"), tmp_path)

    def test_votes_moved_between_segments(self, run: Path) -> None:
        """Two losers exchange their votes: no bound changes, and no radius."""
        with closing(sqlite3.connect(run / "results.sqlite")) as connection:
            rows = connection.execute("SELECT rowid, counts FROM tallies WHERE idx = 120 AND stage = 'ESTIMATION'")
            for rowid, text in rows.fetchall():
                counts = json.loads(text)
                votes = counts["votes"]
                loser = min(votes, key=lambda name: (votes[name], name))
                other = next(str(label) for label in range(10) if str(label) not in votes)
                if len(votes) > 1:
                    votes[other] = votes.pop(loser)
                connection.execute("UPDATE tallies SET counts = ? WHERE rowid = ?", (json.dumps(counts), rowid))
            connection.commit()
        resealed(run)
        assert verify_run(run).discrepancies == []
        assert ("other-votes", "input 120: drawn again") in places(replayed(run))

    def test_another_seed(self, run: Path) -> None:
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["seed"] = manifest["spec"]["seed"] = 4
        (run / "manifest.json").write_text(json.dumps(manifest))
        resealed(run)
        assert verify_run(run).discrepancies == []
        assert "other-votes" in codes(replayed(run))

    def test_another_label(self, run: Path) -> None:
        altered(run / "results.sqlite", "UPDATE points SET label = 9 - label WHERE idx = 0")
        resealed(run)
        (found,) = replayed(run).discrepancies
        assert (found.code, found.values["field"]) == ("differs", "input.label")

    def test_only_selection_votes_are_left(self, run: Path) -> None:
        """What they choose is drawn again, but what they would prove is nothing."""
        (one,) = choose_inputs(verify_run(run).entries, count=0, indices=[0])
        whole = one.read_again()
        selection = [tally for tally in whole["tallies"] if tally["stage"] == "SELECTION"]
        report = Report("run")
        replay = Replay.open(one.run, model=MODEL, data=None, data_root=None)
        replay.run([dataclasses.replace(one, read_again=lambda: whole | {"tallies": selection})], report)
        assert codes(report) == ["nothing-proved-again"]

    def test_another_sigma(self, folder: Path, tmp_path: Path) -> None:
        """A level by a rule, in all its places: only the rule itself tells."""
        made = folder / "envelope" / "envelope"
        run = copy_of(made if made.exists() else make_run("envelope", folder / "envelope"), tmp_path)
        for table in ("points", "tallies"):
            altered(run / "results.sqlite", f"UPDATE {table} SET sigma = sigma * 1.000001 WHERE idx = 0")
        resealed(run)
        assert "other-sigma-by-rule" in codes(replayed(run))
        (run / "sigma.safetensors").unlink()
        assert "sigma-from-tallies" in [remark.code for remark, _ in replayed(run).remarks]

    @pytest.mark.parametrize(
        ("section", "name", "value"),
        [
            ("data", "input_shape", [1]),
            ("data", "input_shape", [64]),
            ("data", "levels", 256),
            ("data", "size", 444),
            ("model", "num_classes", 11),
        ],
    )
    def test_other_facts_of_model_and_data(self, run: Path, section: str, name: str, value: object) -> None:
        manifest = json.loads((run / "manifest.json").read_text())
        manifest[section][name] = value
        replay = Replay.open(read_run(manifest), model=MODEL, data=None, data_root=None)
        wanted = ("other-data" if section == "data" else "other-model", name)
        assert wanted in [(finding.code, finding.values.get("field")) for finding in replay.discrepancies]

    def test_another_version_of_the_sampling(self, run: Path) -> None:
        manifest = json.loads((run / "manifest.json").read_text()) | {"sampling_version": SAMPLING_VERSION + 1}
        replay = Replay.open(read_run(manifest), model=MODEL, data=None, data_root=None)
        assert [finding.code for finding in replay.discrepancies] == ["other-sampling"]

    def test_another_model(self, run: Path) -> None:
        report = replayed(run, model="sample_models:digits_by_brightness")
        assert "other-model" in codes(report)

    def test_no_model(self, run: Path) -> None:
        with pytest.raises(ModelError):
            replayed(run, model="sample_models:nothing_of_this_name")

    def test_choosing(self, run: Path) -> None:
        examined = verify_run(run).entries
        assert len(choose_inputs(examined, count=3, indices=None)) == 3
        assert len(choose_inputs(examined, count=300, indices=None)) == 4
        drawn = {one.index for _ in range(60) for one in choose_inputs(examined, count=1, indices=None)}
        assert drawn == {0, 60, 120, 180}  # misses one of them once in eight million times
        with pytest.raises(OptionError, match="at least 1"):
            choose_inputs(examined, count=0, indices=None)
        with pytest.raises(OptionError, match="cannot be drawn again"):
            choose_inputs(examined, count=0, indices=[1])

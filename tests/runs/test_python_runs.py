"""Runs from Python: what the command line would make, resumable, verifiable, and used by every command."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runner import invoke, start
from python_run_child import INPUTS, classifier, digits
from run_specs import make_spec, resumed_spec, without_times
from sample_models import darkness, digits_by_brightness
from sample_rules import by_brightness, digits_knn, proven_by_brightness
from smoothcert import SmoothedClassifier
from smoothcert.certificates import CERTIFICATES, get_certificate
from smoothcert.cli.main import app
from smoothcert.data import load_dataset
from smoothcert.errors import InputError, ManifestMismatchError, RunError
from smoothcert.records import CertifiedPoint
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.spec import ConstantLevel, FixedN, RuleLevel

MODEL = "sample_models:digits_by_brightness"


def stored_points(run: Path) -> list[CertifiedPoint]:
    with RunStore.open(run) as store:
        return without_times(store.points())


def certify(out: Path, smoothed: SmoothedClassifier | None = None, **changes: Any) -> list[CertifiedPoint]:
    x, y = digits()
    settings = {"labels": y, "n0": 20, "n": 400, "progress": False} | changes
    return without_times(list((smoothed or classifier()).certify(settings.pop("x", x), out=out, **settings)))


def stop_after(batches: int) -> Callable[[int], None]:
    """A progress function that interrupts like Ctrl-C, after so many batches."""
    left = batches

    def count(_: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    return count


def test_the_points_are_those_of_a_call_without_out(tmp_path: Path) -> None:
    x, y = digits()
    plain = classifier().certify(x, labels=y, n0=20, n=400, progress=False)
    assert certify(tmp_path / "run") == without_times(list(plain)) == stored_points(tmp_path / "run")


def test_the_run_is_that_of_the_command_line(tmp_path: Path) -> None:
    """Same seed, same digests, same votes: from the file that the run keeps, and named code."""
    certify(tmp_path / "ours")
    spec = make_spec(
        model=MODEL, data=str(tmp_path / "ours" / "inputs.npz"), sigma=0.25, n0=20, n=400, alpha=0.001, seed=5,
        batch=64, num_classes=10, grid="17",
    )  # fmt: skip
    with prepare_run(spec, tmp_path / "theirs") as run:
        execute_run(run)
    ours, theirs = read_manifest(tmp_path / "ours"), read_manifest(tmp_path / "theirs")
    assert ours.digests == theirs.digests
    assert ours.spec.noise == theirs.spec.noise
    assert ours.spec.certificates == theirs.spec.certificates == ("gaussian",)
    assert stored_points(tmp_path / "ours") == stored_points(tmp_path / "theirs")


@pytest.mark.parametrize("batches", [0, 20, 100])
def test_interrupted_and_called_again_is_the_same(tmp_path: Path, batches: int) -> None:
    whole = certify(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt) as interrupted:
        certify(tmp_path / "run", progress=stop_after(batches))
    done = len(stored_points(tmp_path / "run"))
    assert done < INPUTS
    assert f"{done} of {INPUTS} inputs are stored" in interrupted.value.__notes__[0]
    assert certify(tmp_path / "run") == whole == stored_points(tmp_path / "run")


def test_a_finished_run_is_read_and_not_sampled_again(tmp_path: Path) -> None:
    whole = certify(tmp_path / "run")
    assert certify(tmp_path / "run", progress=stop_after(0)) == whole


def test_without_a_seed_each_run_has_its_own_and_keeps_it(tmp_path: Path) -> None:
    smoothed = classifier(seed=None)
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path / "one", smoothed, progress=stop_after(60))
    begun = read_manifest(tmp_path / "one").seed
    certify(tmp_path / "one", classifier(seed=None))
    certify(tmp_path / "two", smoothed)
    assert read_manifest(tmp_path / "one").seed == begun
    assert len({begun, read_manifest(tmp_path / "two").seed}) == 2


def test_what_was_measured_is_taken_from_the_run(tmp_path: Path) -> None:
    def unmeasured() -> SmoothedClassifier:
        return SmoothedClassifier(digits_by_brightness, sigma=0.25, num_classes=10, grid=17)

    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path / "run", unmeasured(), progress=stop_after(3))
    batch = read_manifest(tmp_path / "run").measured.batch
    certify(tmp_path / "run", unmeasured())
    assert read_manifest(tmp_path / "run").measured.batch == batch


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n": 800}, "spec.question.n"),
        ({"alpha": 0.01}, "spec.alpha"),
        ({"certificate": "gaussian-two-class"}, "spec.certificates"),
        ({"decide": 0.25}, "spec.question.kind"),
        ({"labels": None}, "digests.data"),
        ({"x": np.full((INPUTS, 1, 8, 8), 0.5, dtype=np.float32)}, "digests.data"),
        ({"smoothed": classifier(sigma=0.5)}, "spec.sigma.level"),
        ({"smoothed": classifier(seed=6)}, "seed"),
    ],
)
def test_another_question_is_refused_with_the_differences(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    before = certify(tmp_path / "run")
    with pytest.raises(ManifestMismatchError, match=named):
        certify(tmp_path / "run", **changes)
    assert stored_points(tmp_path / "run") == before


def test_another_model_is_refused(tmp_path: Path) -> None:
    certify(tmp_path / "run")
    other = SmoothedClassifier(darkness, sigma=0.25, num_classes=10, seed=5, batch=64, grid=17)
    with pytest.raises(ManifestMismatchError, match=r"digests\.model"):
        certify(tmp_path / "run", other)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inputs.npz").write_bytes(b"mine")
    with pytest.raises(RunError, match="not empty"):
        certify(tmp_path)
    assert (tmp_path / "inputs.npz").read_bytes() == b"mine"


def test_predictions_are_a_run_too(tmp_path: Path) -> None:
    x, y = digits()
    plain = classifier().predict(x, labels=y, n=500, progress=False)
    first = classifier().predict(x, labels=y, n=500, out=tmp_path / "run", progress=False)
    again = classifier().predict(x, labels=y, n=500, out=str(tmp_path / "run"), progress=stop_after(0))
    assert without_times(list(plain)) == without_times(list(first)) == without_times(list(again))
    assert read_manifest(tmp_path / "run").spec.question == FixedN(n=500)
    with pytest.raises(ManifestMismatchError, match=r"spec\.task"):
        certify(tmp_path / "run")


class TestFiles:
    def test_bytes_are_kept_as_bytes(self, tmp_path: Path) -> None:
        x = np.random.default_rng(0).integers(0, 256, (4, 1, 8, 8), dtype=np.uint8)
        smoothed = SmoothedClassifier(digits_by_brightness, sigma=0.25, num_classes=10, seed=1, batch=64)
        smoothed.certify(x, n0=20, n=200, out=tmp_path / "run", progress=False)
        kept = load_dataset(str(tmp_path / "run" / "inputs.npz"))
        assert kept.levels == 256
        assert kept.digest == read_manifest(tmp_path / "run").digests.data
        assert np.array_equal(kept.inputs(slice(None)), x / np.float32(255))
        assert list(kept.labels) == [-1] * 4

    def test_other_values_are_kept_as_they_were_certified(self, tmp_path: Path) -> None:
        x = np.random.default_rng(0).normal(size=(4, 1, 8, 8))
        smoothed = SmoothedClassifier(
            digits_by_brightness, sigma=0.25, num_classes=10, seed=1, batch=64, input_range=None
        )
        smoothed.certify(x, labels=[1, None, 3, 0], n0=20, n=200, out=tmp_path / "run", progress=False)
        kept = load_dataset(str(tmp_path / "run" / "inputs.npz"), input_range=None)
        assert kept.digest == read_manifest(tmp_path / "run").digests.data
        assert np.array_equal(kept.inputs(slice(None)), x.astype(np.float32))
        assert list(kept.labels) == [1, -1, 3, 0]
        assert [point.label for point in stored_points(tmp_path / "run")] == [1, None, 3, 0]

    def test_a_lost_file_is_written_again(self, tmp_path: Path) -> None:
        certify(tmp_path / "run")
        (tmp_path / "run" / "inputs.npz").unlink()
        (tmp_path / "run" / ".inputs.npz.abc.part").write_bytes(b"of a killed process")
        certify(tmp_path / "run")
        assert load_dataset(str(tmp_path / "run" / "inputs.npz")).digest == read_manifest(tmp_path / "run").digests.data
        assert not list((tmp_path / "run").glob(".*.part"))

    def test_a_fitted_rule_is_kept(self, tmp_path: Path) -> None:
        smoothed = SmoothedClassifier(
            digits_by_brightness, sigma=digits_knn(), num_classes=10, seed=5, batch=64, grid=17
        )
        certify(tmp_path / "run", smoothed)
        spec = resumed_spec(tmp_path / "run", model=MODEL)
        assert spec.sigma == RuleLevel(place=str(tmp_path / "run" / "sigma.safetensors"))
        with prepare_run(spec, tmp_path / "run") as run:
            assert run.smoothed.rule.digest == digits_knn().digest

    def test_a_rule_of_ones_own_is_named(self, tmp_path: Path) -> None:
        def make() -> SmoothedClassifier:
            return SmoothedClassifier(
                digits_by_brightness, sigma=proven_by_brightness, num_classes=10, seed=5, batch=64, grid=17
            )

        whole = certify(tmp_path / "whole", make())
        with pytest.raises(KeyboardInterrupt):
            certify(tmp_path / "run", make(), progress=stop_after(60))
        assert certify(tmp_path / "run", make()) == whole
        with pytest.raises(RunError, match=r"rule for sigma .* was a Python object"):
            resumed_spec(tmp_path / "run", model=MODEL)

    def test_a_memory_keeps_its_promises(self, tmp_path: Path) -> None:
        def make(place: str) -> SmoothedClassifier:
            return SmoothedClassifier(
                digits_by_brightness, sigma=by_brightness, num_classes=10, seed=5, batch=64, grid=17,
                memory=tmp_path / place,
            )  # fmt: skip

        with make("a.sqlite") as smoothed:
            whole = certify(tmp_path / "whole", smoothed)
            assert smoothed.memory is not None
            assert len(smoothed.memory) > 0  # still open: it belongs to the classifier
        with make("b.sqlite") as smoothed, pytest.raises(KeyboardInterrupt):
            certify(tmp_path / "run", smoothed, progress=stop_after(60))
        with make("b.sqlite") as smoothed:
            assert certify(tmp_path / "run", smoothed) == whole
        with make("c.sqlite") as smoothed, pytest.raises(RunError, match=r"c\.sqlite does not exist"):
            certify(tmp_path / "run", smoothed)


class TestCommands:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        """A run whose directory was moved after it was made."""
        certify(tmp_path / "made", classifier(sigma=0.03))
        return Path(shutil.move(tmp_path / "made", tmp_path / "moved"))

    def test_resume_needs_the_model(self, tmp_path: Path) -> None:
        whole = certify(tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            certify(tmp_path / "made", progress=stop_after(60))
        run = Path(shutil.move(tmp_path / "made", tmp_path / "moved"))
        with pytest.raises(RunError, match=r"was a Python object(.|\n)*--model"):
            invoke(app, "certify", "--resume", run)
        assert invoke(app, "certify", "--resume", run, "--model", MODEL).exit_code == 0
        assert stored_points(run) == whole

    @pytest.mark.parametrize("command", ["certify --resume", "attack"])
    def test_another_model_is_found_out(self, run: Path, command: str) -> None:
        with pytest.raises(ManifestMismatchError):
            invoke(app, *command.split(), run, "--model", "sample_models:darkness")

    def test_attack_and_table_and_recertify(self, run: Path, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="was a Python object"):
            invoke(app, "attack", run)
        for words in (
            ("attack", run, "--model", MODEL, "--max", 6, "--steps", 2, "--gradient", "scores"),
            ("table", run),
            ("recertify", run, "--alpha", 0.01, "--out", tmp_path / "again"),
            ("compare", run, tmp_path / "again"),
            ("export", run, "--format", "json", "-o", tmp_path / "x.json"),
        ):
            assert invoke(app, *words).exit_code == 0, words

    def test_the_report_finds_the_inputs(self, run: Path) -> None:
        from smoothcert.report.sources import load_sources

        (source,) = load_sources([run])
        assert source.inputs.dataset is not None
        assert len(source.inputs.dataset) == INPUTS

    def test_verify_and_replay(self, run: Path) -> None:
        pytest.importorskip("flint")
        checked = invoke(app, "verify", run)
        assert checked.exit_code == 0, checked.output
        replayed = invoke(app, "verify", run, "--replay", MODEL, 2)
        assert replayed.exit_code == 0, replayed.output

    def test_verify_counts_the_names_of_classes(self, tmp_path: Path) -> None:
        """Fails where classes are counted by labels alone: the names of ten classes are part of the digest."""
        pytest.importorskip("flint")
        x, _ = digits()
        smoothed = SmoothedClassifier(
            digits_by_brightness, sigma=0.25, num_classes=10, class_names=[f"digit {k}" for k in range(10)],
            seed=5, batch=64, grid=17,
        )  # fmt: skip
        for labels in (None, ["digit 3", "digit 1"]):
            out = tmp_path / str(labels)
            smoothed.certify(x[:2], labels=labels, n0=20, n=200, out=out, progress=False)
            assert invoke(app, "verify", out).exit_code == 0

    def test_verify_notices_other_inputs(self, run: Path) -> None:
        pytest.importorskip("flint")
        x, y = digits()
        for arrays in ({"x": np.float32(1) - x, "y": y}, {"x": x}):
            np.savez(run / "inputs.npz", **arrays)
            checked = invoke(app, "verify", run)
            assert checked.exit_code != 0
            assert "the data is not that of the run" in checked.output
        for content in (b"", b"no archive", (run / "results.sqlite").read_bytes()):
            (run / "inputs.npz").write_bytes(content)
            checked = invoke(app, "verify", run)
            assert checked.exit_code != 0
            assert "not the inputs of a run" in checked.output


def test_a_model_with_a_place_keeps_it(tmp_path: Path) -> None:
    smoothed = SmoothedClassifier(MODEL, sigma=0.25, num_classes=10, seed=5, batch=64, grid=17)
    certify(tmp_path / "run", smoothed)
    assert resumed_spec(tmp_path / "run").model.place == MODEL
    assert read_manifest(tmp_path / "run").spec.sigma == ConstantLevel(level=0.25)


def test_indices_and_unknown_certificates_are_refused(tmp_path: Path) -> None:
    import dataclasses

    with pytest.raises(InputError, match="numbers its inputs"):
        certify(tmp_path / "run", indices=range(INPUTS))
    own = dataclasses.replace(CERTIFICATES["gaussian"])
    with pytest.raises(InputError, match="names its certificates"):
        certify(tmp_path / "run", certificate=own)
    assert not (tmp_path / "run").exists()
    certify(tmp_path / "run", certificate=get_certificate("gaussian"))


def start_child(out: Path) -> subprocess.Popen[str]:
    return start([sys.executable, "-m", "python_run_child", str(out), "0.02"])


def wait_for_points(out: Path, more_than: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (out / "manifest.json").exists():
            with sqlite3.connect(out / "results.sqlite", timeout=30) as connection:
                (count,) = connection.execute("SELECT COUNT(*) FROM points").fetchone()
            connection.close()
            if count > more_than:
                return
        time.sleep(0.02)
    raise AssertionError(f"no more than {more_than} points in a minute")


def test_interrupts_and_kills_lose_nothing(tmp_path: Path) -> None:
    """A real process: Ctrl-C, then kill -9, then to the end; the votes are those of a call that was never stopped."""
    x, y = digits()
    whole = without_times(list(classifier().certify(x, labels=y, n0=20, n=2000, progress=False)))
    out = tmp_path / "run"
    interrupted = start_child(out)
    wait_for_points(out, 0)
    interrupted.send_signal(signal.SIGINT)
    _, error = interrupted.communicate(timeout=60)
    assert "KeyboardInterrupt" in error
    assert "the same call resumes" in error
    after_interrupt = stored_points(out)
    assert 0 < len(after_interrupt) < INPUTS
    killed = start_child(out)
    wait_for_points(out, len(after_interrupt))
    killed.kill()
    killed.communicate(timeout=60)
    after_kill = stored_points(out)
    assert len(after_interrupt) < len(after_kill) < INPUTS
    assert certify(out, n=2000) == whole == stored_points(out)
    assert set(map(str, after_interrupt)) <= set(map(str, whole))


class TestNetworks:
    def make(self, **options: Any) -> SmoothedClassifier:
        from attack_models import HalfSpace

        return SmoothedClassifier(HalfSpace(), sigma=0.25, seed=5, batch=64, input_range=None, **options)

    def test_an_object_is_the_same_function_as_its_code(self, tmp_path: Path) -> None:
        """A torch module from Python is drawn again from the name of its class, with every vote."""
        pytest.importorskip("flint")
        pytest.importorskip("torch")
        from attack_models import inputs_at

        x, y = inputs_at(0.3, count=4)
        self.make().certify(x, labels=y, n0=20, n=300, out=tmp_path / "run", progress=False)
        manifest = read_manifest(tmp_path / "run")
        assert manifest.spec.model.place == "<HalfSpace object>"
        assert invoke(app, "verify", tmp_path / "run", "--replay", "attack_models:HalfSpace", 2).exit_code == 0
        attacked = invoke(app, "attack", tmp_path / "run", "--model", "attack_models:HalfSpace", "--steps", 2)
        assert attacked.exit_code == 0

    def test_the_fastest_back_end_is_the_one_the_run_began_with(self, tmp_path: Path) -> None:
        """Fails where it is measured again: the other one may win, and is another function."""
        pytest.importorskip("onnxruntime")
        from attack_models import inputs_at

        x, _ = inputs_at(0.3, count=4)
        for backend in ("onnxruntime", "torch"):
            out = tmp_path / backend
            with pytest.raises(KeyboardInterrupt):
                self.make(backend=backend).certify(x, n0=20, n=300, out=out, progress=stop_after(0))
            again = self.make(backend="fastest")
            assert len(again.certify(x, n0=20, n=300, out=out, progress=False)) == 4
            assert again.classifier.backend_name == backend

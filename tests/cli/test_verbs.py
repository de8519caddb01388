"""The command line from outside: what it prints, and a sentence with an exit code for everything that can go wrong."""

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from cli_runner import smoothcert

MODEL = "sample_models:digits_by_brightness"
CERTIFY = ("certify", "--model", MODEL, "--num-classes", 10, "--data", "digits", "--sigma", 0.25)
SMALL = ("--n0", 20, "--n", 300, "--max", 6, "--seed", 1, "--batch", 64)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    done = smoothcert(*CERTIFY, *SMALL, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "ACR" in done.stdout
    return out


def test_radius_json() -> None:
    done = smoothcert("radius", "gaussian", "--sigma", 0.25, "--p-a", 0.99, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"radius": pytest.approx(0.25 * 2.3263478740, abs=1e-9)}
    both = smoothcert("radius", "gaussian", "--sigma", 0.25, "--p-a", 0.99, "--p-b", 0.01, "--json")
    assert json.loads(both.stdout)["radius"] == pytest.approx(0.25 * 2.3263478740, abs=1e-9)
    printed = smoothcert("radius", "gaussian", "--sigma", 1, "--p-a", 0.9)
    assert printed.stdout.strip() == "1.281551"  # 1.2815515…, rounded down
    assert smoothcert("radius", "li", "--sigma", 1, "--p-a", 0.8).stdout.startswith("0.67422")


def test_table_json_has_the_promised_keys(run: Path) -> None:
    done = smoothcert("table", run, "--radii", "0,0.25,0.50", "--json")
    (row,) = json.loads(done.stdout)
    assert {"run", "points", "acr", "abstention", "certified_accuracy"} <= set(row)
    assert row["points"] == 6
    assert list(row["certified_accuracy"]) == ["0", "0.25", "0.50"]


def test_the_same_command_again_changes_nothing(run: Path) -> None:
    before = smoothcert("table", run, "--json").stdout
    again = smoothcert(*CERTIFY, *SMALL, "--out", run)
    assert again.returncode == 0
    assert "6 of 6" in again.stderr
    assert smoothcert("certify", "--resume", run).returncode == 0
    assert smoothcert("table", run, "--json").stdout == before


@pytest.mark.parametrize("option", [("--n", 7), ("--sigma", 1), ("--out", "elsewhere"), ("--max", 3)])
def test_resume_takes_its_settings_from_the_run(run: Path, option: tuple[object, ...]) -> None:
    done = smoothcert("certify", "--resume", run, *option)
    assert done.returncode == 2
    assert f"leave {option[0]} out" in done.stderr
    assert smoothcert("predict", "--resume", run).returncode == 5


def test_another_setting_is_refused_with_the_difference(run: Path) -> None:
    done = smoothcert(*CERTIFY, "--n0", 20, "--n", 301, "--max", 6, "--seed", 1, "--batch", 64, "--out", run)
    assert done.returncode == 5
    assert "spec.question.n: the run has 300, now 301" in done.stderr


def test_recertify(run: Path, tmp_path: Path) -> None:
    done = smoothcert("recertify", run, "--alpha", 0.01, "--n", 200, "--out", tmp_path / "again", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["points"] == 6
    stricter = json.loads(smoothcert("recertify", run, "--alpha", 1e-6, "--json").stdout)[0]
    looser = json.loads(smoothcert("recertify", run, "--alpha", 0.2, "--json").stdout)[0]
    assert stricter["acr"] <= looser["acr"]
    taken = smoothcert("recertify", run, "--out", tmp_path / "again")
    assert taken.returncode == 5
    assert "never overwritten" in taken.stderr


def test_predict(tmp_path: Path) -> None:
    out = tmp_path / "predict"
    done = smoothcert(
        "predict", "--model", MODEL, "--num-classes", 10, "--data", "digits", "--sigma", 0.25, "--n", 200, "--max", 4,
        "--batch", 64, "--out", out, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["points"] == 4


def test_export_and_read_back(run: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.tsv"
    assert smoothcert("export", run, "--format", "cohen-tsv", "-o", log).returncode == 0
    assert log.read_text().splitlines()[0] == "idx\tlabel\tpredict\tradius\tcorrect\ttime"
    ours = json.loads(smoothcert("table", run, "--radii", "0", "--json").stdout)[0]
    theirs = json.loads(smoothcert("table", log, "--radii", "0", "--json").stdout)[0]
    assert theirs["certified_accuracy"] == ours["certified_accuracy"]
    assert ours["acr"] - 1e-6 <= theirs["acr"] <= ours["acr"]
    assert smoothcert("export", run, "--format", "cohen-tsv", "-o", log).returncode != 0


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot(run: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"figure.{suffix}"
    assert smoothcert("plot", run, "-o", target).returncode == 0
    assert target.stat().st_size > 1000


BAD_INPUT = [
    ((*CERTIFY[:-2], "--sigma", 0), 2, "sigma"),
    ((*CERTIFY[:-2], "--sigma", -1), 2, "sigma"),
    ((*CERTIFY[:-2], "--sigma", "nan"), 2, "sigma"),
    ((*CERTIFY, "--alpha", 0), 2, "alpha"),
    ((*CERTIFY, "--alpha", 0.5), 2, "alpha"),
    ((*CERTIFY, "--n", 9), 2, "n=9 at alpha=0.001 can never certify"),
    ((*CERTIFY, "--n", 0), 2, "is invalid: expected an integer from 1 to"),
    ((*CERTIFY, "--n", 10**20), 2, "is invalid: expected an integer from 1 to"),
    ((*CERTIFY, "--n0", 0), 2, "n0"),
    ((*CERTIFY, "--skip", 0), 2, "--skip"),
    ((*CERTIFY, "--max", 0), 2, "--max"),
    ((*CERTIFY, "--workers", 0), 2, "--workers"),
    ((*CERTIFY, "--batch", 0), 2, "batch"),
    ((*CERTIFY, "--seed", -1), 2, "seed"),
    ((*CERTIFY, "--split", "nosuch"), 2, "split"),
    ((*CERTIFY, "--device", "abacus"), 2, "abacus"),
    ((*CERTIFY, "--certificate", "gausian"), 2, "did you mean gaussian"),
    (("certify", "--model", MODEL, "--data", "digits"), 2, "--sigma"),
    (("certify", "--model", "missing.safetensors", "--data", "digits", "--sigma", 0.25), 4, "missing.safetensors"),
    (("certify", "--model", "missing.onnx", "--data", "digits", "--sigma", 0.25), 4, "missing.onnx"),
    (("certify", "--model", "no_such_module:thing", "--data", "digits", "--sigma", 0.25), 4, "no_such_module"),
    (("certify", "--model", MODEL, "--data", "mnits", "--sigma", 0.25), 3, "mnist"),
    (("certify", "--model", MODEL, "--data", "missing.npz", "--sigma", 0.25), 3, "missing.npz"),
    (("certify", "--resume", "nowhere"), 5, "no manifest.json"),
    (("radius", "gaussian", "--sigma", 0.25), 2, "--p-a"),
    (("radius", "gaussian", "--sigma", 0, "--p-a", 0.9), 2, "sigma"),
    (("radius", "gaussian", "--sigma", 1, "--p-a", 1.5), 2, "between 0 and 1"),
    (("radius", "nothing", "--sigma", 1, "--p-a", 0.9), 2, "known:"),
    (("table", "nowhere"), 5, "nowhere"),
    (("recertify", "nowhere"), 5, "nowhere"),
    (("plot", "nowhere", "-o", "x.png"), 5, "nowhere"),
    (("export", "nowhere", "--format", "cohen-tsv", "-o", "x.tsv"), 5, "nowhere"),
    (("data", "fetch", "mnits"), 3, "mnist"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), BAD_INPUT, ids=[f"{b[0][0]}-{b[2]}" for b in BAD_INPUT])
def test_bad_input_gets_a_sentence(tmp_path: Path, arguments: tuple[object, ...], code: int, words: str) -> None:
    done = smoothcert(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []  # nothing half-made is left behind


def data_file(folder: Path, name: str, x: np.ndarray) -> Path:
    np.savez(folder / name, x=x, y=np.zeros(len(x), dtype=np.int64))
    return folder / name


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.full((2, 1, 8, 8), np.nan, np.float32), "NaN"),
        (np.full((2, 1, 8, 8), 2.6, np.float32), "sigma is in pixel units"),
        (np.full((2, 1, 8, 8), -0.1, np.float32), "sigma is in pixel units"),
        (np.zeros((2, 1, 9, 9), np.float32), "shape"),
        (np.zeros((0, 1, 8, 8), np.float32), "(0, 1, 8, 8)"),
    ],
)
def test_bad_data_gets_a_sentence(tmp_path: Path, x: np.ndarray, words: str) -> None:
    file = data_file(tmp_path, "bad.npz", x)
    done = smoothcert("certify", "--model", MODEL, "--num-classes", 10, "--data", file, "--sigma", 0.25, cwd=tmp_path)
    assert done.returncode in (2, 3, 4), done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_any_range_is_taken_when_it_is_meant(tmp_path: Path) -> None:
    file = data_file(tmp_path, "wide.npz", np.full((2, 1, 8, 8), 2.6, np.float32))
    done = smoothcert(
        "certify", "--model", MODEL, "--num-classes", 10, "--data", file, "--sigma", 0.25, "--input-range", "any",
        "--n", 100, "--batch", 32, "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_corrupt_checkpoint(tmp_path: Path) -> None:
    for name in ("broken.safetensors", "broken.pth", "broken.onnx"):
        (tmp_path / name).write_bytes(b"not a model at all" * 10)
        done = smoothcert("certify", "--model", tmp_path / name, "--data", "digits", "--sigma", 0.25)
        assert done.returncode == 4, done.stderr
        assert name in done.stderr
        assert "Traceback" not in done.stderr


def test_corrupt_run(run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in ("manifest.json", "results.sqlite"):
        (broken / file).write_bytes((run / file).read_bytes())
    connection = sqlite3.connect(broken / "results.sqlite")
    connection.execute("UPDATE verdicts SET radius = 7, prediction = NULL")
    connection.commit()
    connection.close()
    for arguments in (("table", broken), ("recertify", broken), ("plot", broken, "-o", tmp_path / "x.png")):
        done = smoothcert(*arguments)
        assert done.returncode == 5, done.stderr
        assert "has an invalid row" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("radius", "gaussian", "--sigma", "1", "--p-a", "0.9"),
        ("table", "RUN"),
        ("plot", "RUN", "-o", "FIGURE"),
        ("export", "RUN", "--format", "cohen-tsv", "-o", "LOG"),
        ("recertify", "RUN"),
        ("data", "list"),
    ],
)
def test_verbs_without_a_model_do_not_import_torch(run: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    import subprocess
    import sys

    from cli_runner import environment

    names = {"RUN": str(run), "FIGURE": str(tmp_path / "f.png"), "LOG": str(tmp_path / "l.tsv")}
    argv = [names.get(a, a) for a in arguments]
    code = (
        "import sys\nfrom smoothcert.cli.main import app\n"
        f"try:\n    app({argv!r})\nexcept SystemExit as leaving:\n    assert not leaving.code, leaving.code\n"
        "heavy = {'torch', 'numba', 'onnxruntime', 'sklearn', 'scipy.stats', 'matplotlib.pyplot'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_version_and_help() -> None:
    assert smoothcert("--version").stdout.startswith("smoothcert ")
    text = smoothcert("--help").stdout
    for verb in ("demo", "data", "train", "predict", "certify", "recertify", "table", "plot", "export", "radius"):
        assert verb in text

"""What a new user reported at commit 46b561b, one test for each complaint, through the public surface alone.

Only `SmoothedClassifier`, names of `smoothcert` and the command line are used, so that this file runs against old code
too: every test here fails at 46b561b. The number in a docstring is that of the item in the report. Comments name
other files of tests that run against that commit too, and fail there.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import sys
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from typer.testing import CliRunner

import smoothcert as sc
from cli_runner import invoke
from smoothcert import SmoothedClassifier
from smoothcert.cli.main import app
from smoothcert.errors import SmoothcertError
from smoothcert.sampling import batch_size
from tabular_models import fit_logistic, fit_pipeline, make_frame, write_csv

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 3, 2, 2), dtype=np.uint8)
INPUTS = PIXELS / np.float32(255)
LABELS = [0, 1, 2, 0, 1, 2]
FEW: dict[str, Any] = {"n0": 20, "n": 100, "alpha": 0.01}
FEW_OPTIONS = ("--n0", 20, "--n", 100, "--batch", 64, "--seed", 1, "--workers", 1)
"""n0 and n as in FEW."""
DIGITS = ("--model", "sample_models:digits_by_brightness", "--num-classes", 10, "--data", "digits", "--max", 4)


def by_mean(batch: np.ndarray) -> np.ndarray:
    """The brightest of three channels."""
    return batch.mean(axis=(2, 3))


def smooth(model: Any = by_mean, **settings: Any) -> SmoothedClassifier:
    return SmoothedClassifier(model, **{"sigma": 0.25, "seed": 3, "batch": 64, "workers": 1, **settings})


def certify(x: Any = INPUTS, **settings: Any) -> Any:
    return smooth().certify(x, **{"indices": range(6), **FEW, **settings})


def answers(points: Any) -> list[tuple[Any, ...]]:
    return [(point.label, point.prediction, point.radius) for point in points]


@pytest.fixture(scope="module")
def results() -> Any:
    return certify(labels=LABELS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the command line."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    assert invoke(app, "certify", *DIGITS, "--sigma", 0.25, *FEW_OPTIONS, "--out", out).exit_code == 0
    return out


CODE = """
import numpy as np
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(12, 3))

def make(width):
    return lambda batch: batch.reshape(len(batch), -1)[:, :width]

def make_deep(width, depth):
    return nn.Identity()

def first_three(batch):
    return batch.reshape(len(batch), -1)[:, :3]

def thirds(batch):
    angle = np.arctan2(batch[:, 0] - 0.5, batch[:, 1] - 0.5)
    return np.eye(3)[np.floor((angle + np.pi) / (2 * np.pi / 3)).astype(int) % 3]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with code and data of a user."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mynet.py").write_text(CODE)
    clear = 255 * np.eye(12, dtype=np.uint8)[LABELS].reshape(PIXELS.shape)
    np.savez(folder / "images.npz", x=clear, y=np.array(LABELS))
    monkeypatch.chdir(folder)
    yield folder
    forget()


def forget() -> None:
    """As in another process, which has not imported the code."""
    sys.modules.pop("mynet", None)


def command(verb: str, model: str, data: object, *more: object) -> Any:
    """A new run of the user's code in the folder `run`."""
    given = ("--model", model, "--data", data, "--sigma", 0.25, "--device", "cpu", *FEW_OPTIONS, "--out", "run")
    done = invoke(app, verb, *given, *more)
    forget()
    return done


# --- 1: results are an object --------------------------------------------------------------------------------------


def test_results_have_a_repr_of_one_line(results: Any) -> None:
    """Item 1: "a `repr` of one line"."""
    assert len(repr(results)) < 200
    assert "6 inputs" in repr(results)


def test_results_are_html_in_a_notebook(results: Any) -> None:
    """Item 1: "HTML in a notebook (table of outcomes, the curve)"."""
    page = results._repr_html_()
    assert "<table" in page
    assert "<svg" in page


def test_results_become_a_frame_with_the_votes(results: Any) -> None:
    """Item 1: "`.to_frame()` (pandas, flat columns, votes included)"."""
    frame = results.to_frame()
    assert frame["radius"].tolist() == [point.radius for point in results]
    assert (frame[["votes_0", "votes_1", "votes_2"]].sum(axis=1) == FEW["n"]).all()


def test_results_have_a_table(results: Any) -> None:
    """Item 1: "`.table(radii=…)`"."""
    assert "0.125" in str(results.table(radii=[0, 0.125]))


def test_results_are_plotted_into_given_axes(results: Any) -> None:
    """Item 1: "`.plot(ax=…)` returning the axes"."""
    axes = matplotlib.figure.Figure().add_subplot()
    assert results.plot(ax=axes) is axes
    assert axes.lines


def test_results_have_acr_and_certified_accuracy(results: Any) -> None:
    """Item 1: "`.acr`, `.certified_accuracy(r)`"."""
    radii = np.array([point.radius if point.correct else 0.0 for point in results])
    assert results.acr == pytest.approx(radii.mean())
    assert results.certified_accuracy(0.1) == np.mean(radii >= 0.1)


def test_results_write_a_report(results: Any, tmp_path: Path) -> None:
    """Item 1: "`.report(path)`"."""
    results.report(tmp_path / "page.html")
    assert "</html>" in (tmp_path / "page.html").read_text()


def test_results_are_exported(results: Any, tmp_path: Path) -> None:
    """Item 1: "`.export(path)`"."""
    results.export(tmp_path / "out.csv")
    assert len(list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))) == 6


def test_results_verify_themselves(results: Any) -> None:
    """Item 1: "`.verify()`"."""
    pytest.importorskip("flint")
    assert results.verify().consistent


def test_results_are_recertified(results: Any) -> None:
    """Item 1: "`.recertify(alpha=…, n=…)`"."""
    easier, fewer = results.recertify(alpha=0.1), results.recertify(n=50)
    assert max(point.radius for point in easier) > max(point.radius for point in results)
    assert answers(fewer) == answers(certify(labels=LABELS, n=50))


def test_a_run_is_opened_in_python(run: Path) -> None:
    """Item 1: "`sc.open_run(path)` gives the same for a run"."""
    opened = sc.open_run(run)
    assert len(opened) == 4
    assert (opened.to_frame().filter(regex=r"^votes_\d").sum(axis=1) == 100).all()


def test_a_log_is_opened_in_python(tmp_path: Path) -> None:
    """Item 1: "… or a log"."""
    log = tmp_path / "log.tsv"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t0\t0\t0.5\t1\t1.0\n1\t0\t1\t2.0\t0\t1.0\n")
    assert sc.open_run(log).acr == 0.25


def test_results_are_compared_in_python(results: Any) -> None:
    """Item 1: "`sc.compare(a, b)`"."""
    comparison = sc.compare(certify(labels=LABELS, n=400), results)
    assert len(comparison.to_frame()) == len(comparison)
    assert "A: " in str(comparison)


def test_correct_is_unknown_without_a_label() -> None:
    """Item 1: "`point.correct` is None where there is no label"."""
    assert [point.correct for point in certify()] == [None] * 6


def test_the_json_export_has_the_votes(run: Path, tmp_path: Path) -> None:
    """Item 1: "The json export carries the votes"."""
    assert invoke(app, "export", run, "--format", "json", "-o", tmp_path / "out.json").exit_code == 0
    rows = json.loads((tmp_path / "out.json").read_text())["points"]
    assert [sum(row["votes"]["estimation"]["counts"]) for row in rows] == [100] * 4


# --- 2: runs from Python -------------------------------------------------------------------------------------------


def test_a_call_makes_a_run_that_the_command_line_verifies(tmp_path: Path) -> None:
    """Item 2: "`certify(x, out="runs/x")` is the run the command line would make: resumable, verifiable"."""
    pytest.importorskip("flint")
    smooth().certify(INPUTS, labels=LABELS, out=tmp_path / "run", **FEW)
    assert invoke(app, "verify", tmp_path / "run").exit_code == 0
    assert json.loads(invoke(app, "table", tmp_path / "run", "--json").stdout)[0]["points"] == 6


def test_an_interrupted_call_loses_nothing(tmp_path: Path) -> None:
    """Item 2: "Ctrl-C loses nothing"."""
    inputs = np.concatenate([INPUTS] * 5)
    drawn = 0

    def interrupt(count: int) -> None:
        nonlocal drawn
        drawn += count
        if drawn > 20 * 50:
            raise KeyboardInterrupt

    few = {"n0": 10, "n": 40, "alpha": 0.01}
    given = {**few, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        smooth(batch=16).certify(inputs, progress=interrupt, **given)
    stored = json.loads(invoke(app, "table", tmp_path / "run", "--json").stdout)[0]["points"]
    assert 0 < stored < 30
    counts: list[int] = []
    resumed = smooth(batch=16).certify(inputs, progress=counts.append, **given)
    assert sum(counts) <= 30 * 10 + (30 - stored) * 40  # what was stored is not sampled again
    assert answers(resumed) == answers(smooth(batch=16).certify(inputs, **few))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def by_mean_slowly(batch: np.ndarray) -> np.ndarray:
    time.sleep(0.04 if len(batch) > 1 else 0)
    return by_mean(batch)


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 2: "Progress is shown by default in terminals (inputs done, running accuracy, time left)"."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    smooth(by_mean_slowly).certify(INPUTS, labels=LABELS, **FEW)
    text = sys.stderr.getvalue()
    for word in ("6/6 inputs", "% certified and correct", "left"):
        assert word in text


def test_progress_is_shown_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 2: "… and notebooks"."""
    shown: list[dict[str, str]] = []
    handle = types.SimpleNamespace(update=lambda bundle, **_: shown.append(bundle))
    shell = type("ZMQInteractiveShell", (), {})
    display = types.SimpleNamespace(display=lambda bundle, **_: [shown.append(bundle), handle][1])
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    smooth(by_mean_slowly).certify(INPUTS, labels=LABELS, **FEW)
    assert shown
    assert "<progress" in shown[0]["text/html"]
    assert "6/6 inputs" in shown[-1]["text/plain"]


def test_progress_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 2: "off with `progress=False`"."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    smooth(by_mean_slowly).certify(INPUTS, progress=False, **FEW)
    assert sys.stderr.getvalue() == ""


# --- 3: what people pass -------------------------------------------------------------------------------------------


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, place: int) -> tuple[np.ndarray, int]:
        return INPUTS[place], LABELS[place]


@pytest.mark.parametrize("make", [Pairs, lambda: TensorDataset(torch.tensor(INPUTS), torch.tensor(LABELS))])
def test_a_dataset_brings_its_labels(make: Any, results: Any) -> None:
    """Item 3: "torch Dataset … (labels come with them)"."""
    assert answers(certify(make())) == answers(results)


def test_a_data_loader_brings_its_labels(results: Any) -> None:
    """Item 3: "… and DataLoader (labels come with them)"."""
    assert answers(certify(DataLoader(Pairs(), batch_size=4))) == answers(results)


@pytest.mark.parametrize("kind", ["bfloat16", "list with gradients"])
def test_tensors_of_every_kind(kind: str) -> None:
    """Item 3: "tensors on any device"; here those that numpy refuses to read."""
    rows = torch.tensor(INPUTS).bfloat16() if kind == "bfloat16" else [torch.tensor(x).requires_grad_() for x in INPUTS]
    expected = rows.float().numpy() if isinstance(rows, torch.Tensor) else INPUTS
    assert answers(certify(rows)) == answers(certify(expected))


def test_bytes_are_pixels(results: Any) -> None:
    """Item 3: "numpy uint8"."""
    assert answers(certify(PIXELS, labels=LABELS)) == answers(results)


def test_images_of_pillow(results: Any) -> None:
    """Item 3: "PIL images"."""
    images = [Image.fromarray(np.moveaxis(one, 0, -1)) for one in PIXELS]
    assert answers(certify(images, labels=LABELS)) == answers(results)


FRAME, KINDS = make_frame(2, seed=1)


def smooth_table(model: Any) -> SmoothedClassifier:
    return smooth(model, sigma=0.5, input_range=None)


def test_columns_of_a_frame_are_found_by_name() -> None:
    """Item 3: "pandas frames for tabular models"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        points = smooth_table(fit_logistic()).predict(FRAME[["weight", "age", "height"]], n=20)
    assert [point.prediction for point in points] == [0, 1]


class Wrapped(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        logits = x.mean(dim=(2, 3))
        if self.kind == "attribute":
            return types.SimpleNamespace(logits=logits, loss=None)
        return {"logits": logits, "loss": None} if self.kind == "dictionary" else (logits, x)


@pytest.mark.parametrize("kind", ["attribute", "dictionary", "tuple"])
def test_outputs_in_the_style_of_hugging_face(kind: str) -> None:
    """Item 3: "(`.logits`, a dict with "logits", a tuple …) are taken as logits and it is said"."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        points = smooth(Wrapped(kind)).predict(INPUTS, n=100)
    assert [point.prediction for point in points] == [point.prediction for point in smooth().predict(INPUTS, n=100)]
    assert any("logits" in str(one.message) for one in said)


@pytest.mark.filterwarnings("ignore")
def test_torchscript_modules() -> None:
    """Item 3: "TorchScript modules … work"."""
    script = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
    assert len(smooth(script).predict(INPUTS, n=100)) == 6


@pytest.mark.filterwarnings("ignore")
def test_torchscript_files(tmp_path: Path) -> None:
    """Item 3: "TorchScript … files work"."""
    torch.jit.save(torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(12, 3))), str(tmp_path / "net.pt"))
    assert len(smooth(str(tmp_path / "net.pt")).predict(INPUTS, n=100)) == 6


def test_a_pipeline_fitted_on_a_frame_does_not_warn() -> None:
    """Item 3: "A DataFrame-fitted scikit-learn pipeline gets a frame and warns not at all (509 warnings today)"."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        smooth_table(fit_logistic()).predict(FRAME.to_numpy(), n=20)
    assert [str(one.message) for one in said] == []


def test_a_pipeline_that_selects_columns_by_name_gets_a_frame() -> None:
    """Item 3: "A DataFrame-fitted scikit-learn pipeline gets a frame"."""
    points = smooth_table(fit_pipeline()).predict(FRAME.to_numpy(), n=20)
    assert [point.prediction for point in points] == [0, 1]


def test_labels_are_given_by_name() -> None:
    """Item 3: "String labels and `classes_` are kept as class names"."""
    points = smooth_table(fit_logistic(with_names=False)).predict(FRAME.to_numpy(), labels=list(KINDS), n=20)
    assert all(point.correct for point in points)


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model whose classes are cat and dog; the file has their numbers."""
    folder = tmp_path_factory.mktemp("pets")
    np.savez(folder / "pets.npz", x=FRAME.to_numpy(), y=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert certify_table("tabular_models:fit_logistic", folder / "pets.npz", folder / "run").exit_code == 0
    return folder / "run"


def certify_table(model: str, data: Path, out: Path, *more: object) -> Any:
    given = ("--sigma", 0.5, "--input-range", "any", "--n0", 5, "--n", 20, "--batch", 25, "--seed", 1, "--out", out)
    return invoke(app, "certify", "--model", model, "--data", data, *given, *more)


def test_tables_name_the_classes(pets: Path) -> None:
    """Item 3: "class names through tables"."""
    table = invoke(app, "table", pets, "--classes").output
    assert "cat" in table
    assert "dog" in table


@pytest.mark.parametrize("form", ["json", "csv", "cohen-tsv"])
def test_exports_name_the_classes(form: str, pets: Path, tmp_path: Path) -> None:
    """Item 3: "… and exports"."""
    assert invoke(app, "export", pets, "--format", form, "-o", tmp_path / "out").exit_code == 0
    assert "dog" in (tmp_path / "out").read_text()


def test_reports_name_the_classes(pets: Path, tmp_path: Path) -> None:
    """Item 3: "… report"."""
    assert invoke(app, "report", pets, "-o", tmp_path / "page.html").exit_code == 0
    assert "dog" in (tmp_path / "page.html").read_text()


def test_a_csv_file_may_have_texts_as_labels(tmp_path: Path) -> None:
    """Item 3: "String labels … are kept as class names"."""
    done = certify_table("tabular_models:two_logits", write_csv(tmp_path / "pets.csv"), tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "dog" in invoke(app, "table", tmp_path / "run", "--classes").output


@pytest.mark.parametrize("name", ["target", "class", "y"])
def test_the_label_column_of_a_csv_file_is_found(name: str, tmp_path: Path) -> None:
    """Item 3: "csv columns named `target`, `class`, `y` are found"."""
    path = write_csv(tmp_path / "pets.csv", label=name, classes=(0, 1), count=4)
    data = sc.load_dataset(str(path), input_range=None)
    assert (data.input_shape, data.labels.tolist()) == ((3,), [0, 1, 0, 1])


def test_the_label_column_of_a_csv_file_is_named(tmp_path: Path) -> None:
    """Item 3: "… or can be named"."""
    data = write_csv(tmp_path / "pets.csv", label="animal", classes=(0, 1))
    more = ("--label-column", "animal", "--json")
    done = certify_table("tabular_models:two_logits", data, tmp_path / "run", *more)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["points"] == 2


# --- 4: what people get wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([0, 1, 2, 0, 1, 3], "3.*classes of the model are 0 … 2"),
        ([0, 1, 2, 0, 1, -2], "-2.*classes of the model are 0 … 2"),
        ([0, 1, 2, 0, 1, 0.5], "whole number"),
        (np.eye(3)[LABELS], r"argmax\(axis=1\)"),
        (["cat"] * 6, "'cat'; expected the number of its class"),
    ],
    ids=["too large", "negative", "fraction", "one-hot", "text"],
)
def test_labels_that_are_no_classes_are_refused(labels: Any, why: str) -> None:
    """Item 4: "Labels out of range, fractional, one-hot, strings …: checked in Python as in files"."""
    with pytest.raises(SmoothcertError, match=why):
        certify(labels=labels)


def test_minus_one_is_no_label() -> None:
    """Item 4: "Labels … −1: checked in Python as in files", where it means that an input has no label."""
    assert [point.label for point in certify(labels=[0, -1, 2, 0, -1, 2])] == [0, None, 2, 0, None, 2]


def test_values_up_to_255_get_advice() -> None:
    """Item 4: "uint8 in Python gets the advice files get"."""
    with pytest.raises(SmoothcertError, match="divide by 255"):
        certify(PIXELS.astype(np.float32))


def test_the_number_of_samples_may_be_a_float() -> None:
    """Item 4: "`n=1e5` … work"."""
    assert answers(certify(n=1e2)) == answers(certify(n=100))


def test_the_number_of_samples_may_have_an_exponent(tmp_path: Path) -> None:
    """Item 4: "… and `--n 1e5` work"."""
    given = ("--sigma", 0.25, "--n0", 20, "--n", "1e2", "--batch", 64, "--out", tmp_path / "run")
    done = invoke(app, "certify", *DIGITS, *given)
    assert done.exit_code == 0, done.output


# "Typos of paths and devices fail in the constructor": tests/python_inputs/test_constructor_checks.py.


def test_a_bare_state_dict_is_loaded_into_a_class(project: Path) -> None:
    """Item 4: "`--model mynet:Net --weights mynet.pt`"."""
    torch.save({"1.weight": torch.zeros(3, 12), "1.bias": torch.tensor([0.0, 9.0, 0.0])}, "mynet.pt")
    done = command("certify", "mynet:Net", "images.npz", "--weights", "mynet.pt", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["certified_accuracy"]["0"] == pytest.approx(1 / 3)


def test_random_weights_are_said_loudly(project: Path) -> None:
    """Item 4: "a class that was just constructed without weights is certified only after saying so loudly"."""
    with pytest.warns(UserWarning, match="untrained"):
        done = command("certify", "mynet:Net", "images.npz")
    assert "random" in done.output


def test_a_factory_that_needs_arguments_says_which(project: Path) -> None:
    """Item 4: "A factory that needs arguments says which"."""
    with pytest.raises(SmoothcertError, match="calls it with width"):
        command("certify", "mynet:make", "images.npz")
    with pytest.raises(SmoothcertError, match="mynet:make_deep needs the arguments width, depth"):
        command("certify", "mynet:make_deep", "images.npz")


@pytest.mark.parametrize("verb", ["resume", "attack"])
def test_the_code_of_a_run_is_found_from_another_folder(
    verb: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Item 4: "`--resume` and `attack` from another folder find the module"."""
    assert command("certify", "mynet:first_three", project / "images.npz").exit_code == 0
    monkeypatch.chdir(tmp_path)
    attack = ("attack", project / "run", "--steps", 1, "--draws", 10, "--n", 100, "--max", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = invoke(app, *(attack if verb == "attack" else ("certify", "--resume", project / "run")))
    assert done.exit_code == 0, done.output


@pytest.fixture
def pictures(project: Path) -> Path:
    for number, pixels in enumerate(np.random.default_rng(1).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)):
        (project / "pictures" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(project / "pictures" / "ab"[number % 2] / f"{number}.png")
    return project / "pictures"


def test_images_of_a_folder_keep_their_size(pictures: Path) -> None:
    """Item 4: "Image folders: native size by default"."""
    assert sc.load_dataset(str(pictures)).input_shape == (3, 6, 5)


@pytest.mark.parametrize(
    ("option", "size"), [(("--resize", "2,4"), [3, 2, 4]), (("--input-shape", "1,3,3"), [1, 3, 3])]
)
def test_images_of_a_folder_are_resized(option: tuple[str, str], size: list[int], pictures: Path) -> None:
    """Item 4: "`--input-shape`/`--resize` to change it"."""
    assert command("certify", "mynet:first_three", pictures, *option).exit_code == 0
    assert json.loads(Path("run", "manifest.json").read_text())["data"]["input_shape"] == size


def test_training_on_a_file_without_a_split_holds_inputs_out(tmp_path: Path) -> None:
    """Item 4: "keeps 20 % back by a seeded shuffle, says so, and never calls training inputs "test""."""
    labels = np.arange(100) % 3
    np.savez(tmp_path / "mine.npz", x=np.repeat(labels[:, None] * 100, 12, axis=1).astype(np.uint8), y=labels)
    given = ("--data", tmp_path / "mine.npz", "--arch", "mlp-8", "--sigma", 0.25, "--epochs", 1, "--device", "cpu")
    done = invoke(app, "train", *given, "--out", tmp_path / "m.safetensors", "--threads", 1)
    assert done.exit_code == 0, done.output
    assert "20% of its 100 inputs are held out by a seeded shuffle" in done.output
    assert not re.search(r"\btest (inputs|accuracy)", done.output)


def test_an_envelope_that_the_inputs_contradict_is_refused() -> None:
    """Item 4: "A rule … whose stated envelope is contradicted by the inputs at hand is refused with the pair"."""
    rule = sc.CallableRule(lambda x: 0.1 + float(x.mean()), envelope=sc.LipschitzSigma(constant=0.001, floor=0.1))
    with pytest.raises(SmoothcertError, match=r"inputs \d+ and \d+ are [\d.]+ apart and have sigma"):
        smooth(sigma=rule).certify(INPUTS, **FEW)


def test_reasons_say_that_selection_picked_another_class(project: Path) -> None:
    """Item 4: "Abstained … reasons say that selection picked another class than estimation"."""
    names: dict[str, Any] = {}
    exec((project / "mynet.py").read_text(), names)
    centre = np.full((8, 2), 128 / 255, dtype=np.float32)
    points = smooth(names["thirds"]).certify(centre, **{**FEW, "n0": 5})
    said = [re.search(r"selection picked class (\d), but class (\d) leads", str(point.reason)) for point in points]
    assert 0 < sum(one is not None for one in said) < 8


def test_cards_say_that_selection_picked_another_class(project: Path) -> None:
    """Item 4: "Abstained cards … say that selection picked another class than estimation"."""
    np.savez("centre.npz", x=np.full((8, 2), 128, dtype=np.uint8), y=np.zeros(8, dtype=int))
    assert command("certify", "mynet:thirds", "centre.npz", "--n0", 5).exit_code == 0
    assert invoke(app, "report", "run", "-o", "page.html").exit_code == 0
    assert re.search(r"selection picked class \d, but class \d leads", Path("page.html").read_text())


def show_help(*path: str, option: str = "--help") -> str:
    """In a terminal of 80 columns."""
    return CliRunner().invoke(app, [*path, option], env={"COLUMNS": "80"}).output


def test_max_says_in_what_it_differs_from_cohen() -> None:
    """Item 4: "`--max` bounds what Cohen's does, or says that it does not"."""
    assert "At most this many inputs, after --skip (Cohen's" in " ".join(show_help("certify").replace("│", "").split())


# --- 5: train your own architecture --------------------------------------------------------------------------------


def test_a_network_of_ones_own_is_trained_by_the_command_line(project: Path) -> None:
    """Item 5: "`--arch mynet:Net`"."""
    given = ("--data", "images.npz", "--arch", "mynet:Net", "--sigma", 0.25, "--epochs", 1, "--device", "cpu")
    done = invoke(app, "train", *given, "--out", "net.safetensors", "--threads", 1)
    assert done.exit_code == 0, done.output
    assert Path("net.safetensors").exists()


# `sc.train`: tests/training/test_module_training.py.


# --- 6: several sigmas at once -------------------------------------------------------------------------------------


def test_several_sigmas_at_once(tmp_path: Path) -> None:
    """Item 6: "`certify --sigma 0.12,0.25,0.5` makes one run for each and the table over them"."""
    given = (*DIGITS, "--sigma", "0.12,0.25,0.5", *FEW_OPTIONS, "--out", tmp_path / "runs", "--max", 1, "--json")
    done = invoke(app, "certify", *given)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["points"] for row in rows] == [1, 1, 1]
    assert len(list((tmp_path / "runs").glob("*/manifest.json"))) == 3


# --- 7: command line manners ---------------------------------------------------------------------------------------


def test_options_are_in_panels() -> None:
    """Item 7: "options in panels (what, noise, certificate, sampling, engine)"."""
    panels = re.findall("╭─ (.+?) ─", show_help("certify"))
    assert panels[:5] == ["What", "Noise", "Certificate", "Sampling", "Engine"]


def test_common_options_come_first_and_fit_a_screen() -> None:
    """Item 7: "at most a screen for the common ones"."""
    common, rare, _ = show_help("certify").partition("Rarely needed")
    assert rare
    assert len(common.splitlines()) <= 60
    assert all(name in common for name in ("--model", "--data", "--sigma", "--n ", "--alpha", "--seed", "--out"))


def test_h_is_help() -> None:
    """Item 7: "`-h`"."""
    assert show_help("certify", option="-h") == show_help("certify")


def test_shells_complete_words() -> None:
    """Item 7: "shell completion"."""
    variables = {"COMP_WORDS": "smoothcert recer", "COMP_CWORD": "1", "_SMOOTHCERT_COMPLETE": "complete_bash"}
    assert CliRunner().invoke(app, [], env=variables, prog_name="smoothcert").stdout.split() == ["recertify"]


def test_settings_are_not_cut_at_eighty_columns() -> None:
    """Item 7: "wrapping that does not cut settings at 80 columns"."""
    assert "consistency:weight=5,noises=4" in show_help("train").replace("│", " ").split()


def test_all_exit_codes_are_listed() -> None:
    """Item 7: "all exit codes in `--help` (9 is missing)"."""
    listed = " ".join(show_help().split()).partition("Exit codes:")[2]
    assert re.findall(r"(?:^|,) (\d+) ", listed) == [*map(str, range(10)), "130"]


@pytest.fixture(scope="module")
def prediction(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The command `predict`."""
    out = tmp_path_factory.mktemp("predictions") / "run"
    given = (*DIGITS, "--sigma", 0.25, "--n", 200, "--batch", 64, "--seed", 1, "--out", out)
    return lambda *more: invoke(app, "predict", *given, *more).stdout


def test_predict_prints_the_classes(prediction: Any) -> None:
    """Item 7: "`predict` prints the classes"."""
    lines = [line.split() for line in prediction().splitlines()]
    start = lines.index(["index", "label", "prediction", "outcome"])
    assert [line[0] for line in lines[start + 2 : start + 6] if line[-1] in ("predicted", "abstained")]


def test_predict_prints_the_classes_as_json(prediction: Any) -> None:
    """Item 7: "(and `--json` has them)"."""
    (document,) = json.loads(prediction("--json"))
    assert [answer["index"] for answer in document["answers"]] == [0, 1, 2, 3]
    assert all("prediction" in answer for answer in document["answers"])


# --- 8: the batch is tuned badly, and once -------------------------------------------------------------------------


@pytest.fixture
def by_mean_at_a_price(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model that takes a millisecond for each batch, whatever its number of rows, on a clock that only it moves.

    On the clock of a busy machine small batches may look better than they are.
    """
    milliseconds = itertools.count(1)  # two workers may ask at once
    now = [0]

    def answer(batch: np.ndarray) -> np.ndarray:
        now[0] = next(milliseconds)
        return by_mean(batch)

    monkeypatch.setattr(batch_size, "_clock", lambda: now[0] / 1000)
    return answer


def test_a_fast_model_gets_a_large_batch(by_mean_at_a_price: Any) -> None:
    """Item 8: "Find out why the measurement picks 128"."""
    smoothed = smooth(by_mean_at_a_price, batch=None)
    smoothed.predict(INPUTS[:1], n=5000)
    assert (smoothed.batch or 0) >= 1024


def test_the_batch_is_measured_again_when_a_call_grows_tenfold(by_mean_at_a_price: Any) -> None:
    """Item 8: "tune by what a call really asks, and again when it grows tenfold"."""
    smoothed = smooth(by_mean_at_a_price, batch=None)
    smoothed.predict(INPUTS[:1], n=100)
    assert smoothed.batch == 128
    smoothed.predict(INPUTS[:1], n=5000)
    assert smoothed.batch >= 1024

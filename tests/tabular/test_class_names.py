"""Names of classes: from `classes_`, files and arguments, through runs, tables, report and exports."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli_runner import invoke
from smoothcert import SmoothedClassifier, load_dataset
from smoothcert.analysis.answers import answer_table, list_answers
from smoothcert.cli.main import app
from smoothcert.data.matching import match_dataset
from smoothcert.errors import DataError, InputError, SmoothcertError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.records.class_names import name_classes, show_name, title_class
from smoothcert.runs.load import load_results
from smoothcert.runs.store import read_manifest
from smoothcert.sampling.given_labels import read_labels
from tabular_models import FEATURES, fit_logistic, make_frame, write_csv

FRAME, LABELS = make_frame(2, seed=1)
PETS = {"num_classes": 2, "class_names": ("cat", "dog")}
NUMBERS = {"num_classes": 2, "class_names": ("3", "7")}


def certify(folder: Path, data: Path, *more: object, model: str = "tabular_models:pipeline") -> Path:
    options = ("--input-range", "any", "--sigma", 0.5, "--n0", 10, "--n", 60, "--seed", 1, "--batch", 50, *more)
    result = invoke(app, "certify", "--model", model, "--data", data, *options, "--out", folder / "run")
    assert result.exit_code == 0, result.output
    return folder / "run"


class TestNames:
    def test_numbers_have_one_name_and_positions_have_none(self) -> None:
        assert name_classes(np.array([0, 1, 2]).tolist()) == ()
        assert name_classes([0.0, 1.0]) == ()
        assert name_classes([3, 7.0]) == ("3", "7")
        assert name_classes([False, True]) == ("False", "True")
        assert name_classes([0.5, 1]) == ("0.5", "1")

    def test_labels_by_name_by_number_and_by_position(self) -> None:
        assert read_labels(["dog", None, "cat", 1, -1], count=5, **PETS) == [1, None, 0, 1, None]
        assert read_labels(np.array(["dog", "cat"]), count=2, **PETS) == [1, 0]
        assert read_labels([7, np.int64(3), 3.0, -1], count=4, **NUMBERS) == [1, 0, 0, None]
        assert read_labels([-1, 1], count=2, num_classes=2, class_names=("-1", "1")) == [0, 1]

    def test_a_number_is_no_position_where_another_class_is_named_by_a_number(self) -> None:
        mixed = {"num_classes": 3, "class_names": ("1", "2", "other")}
        assert read_labels([1, 2, "other"], count=3, **mixed) == [0, 1, 2]
        with pytest.raises(InputError, match="is not a class of the model"):
            read_labels([0, 1, 2], count=3, **mixed)

    @pytest.mark.parametrize("label", ["bird", 2, 0.5, float("nan"), True, -2])
    def test_labels_that_are_no_class(self, label: object) -> None:
        for known in (PETS, NUMBERS):
            with pytest.raises(InputError, match="is not a class of the model: expected one of"):
                read_labels([label], count=1, **known)
        with pytest.raises(InputError, match="One-hot"):
            read_labels(np.eye(2), count=2, **PETS)

    def test_a_stranger_s_name_on_one_printable_line(self) -> None:
        assert show_name("a\tb\n\x1b[31m\u202e\ud800") == "a\\tb\\n\\x1b[31m\\u202e\\ud800"
        assert title_class(1, ("cat", "dog")) == "1 dog"
        assert title_class(1, ()) == "1"
        assert len(show_name("x" * 10**6)) == 60


class TestInPython:
    def test_labels_by_name(self) -> None:
        smoothed = SmoothedClassifier(fit_logistic(), sigma=0.5, seed=0, batch=50, input_range=None)
        points = smoothed.certify(FRAME, labels=LABELS, n0=10, n=60)
        assert [point.label for point in points] == [0, 1]
        assert smoothed.class_names == ("cat", "dog")
        with pytest.raises(InputError, match="'bird' is not a class of the model: expected one of 'cat', 'dog'"):
            smoothed.certify(FRAME, labels=["bird"] * 2, n0=10, n=60)

    def test_labels_that_are_other_numbers(self) -> None:
        """They were taken as positions: 3 was out of range, and of classes 1 and 2 the label 1 meant class 2."""
        smoothed = SmoothedClassifier(fit_logistic((1, 2)), sigma=0.5, seed=0, batch=50, input_range=None)
        points = smoothed.predict(FRAME, labels=[1, 2], n=60)
        assert [(point.label, point.correct) for point in points] == [(0, True), (1, True)]

    def test_names_given_for_a_model_without_them(self) -> None:
        def logits(batch: np.ndarray) -> np.ndarray:
            return np.column_stack([40 - batch[:, 0], batch[:, 0] - 40])

        smoothed = SmoothedClassifier(logits, sigma=0.5, seed=0, batch=50, input_range=None, class_names=["cat", "dog"])
        assert all(point.correct for point in smoothed.predict(FRAME, labels=LABELS, n=60))

    def test_results_and_runs_keep_the_names(self, tmp_path: Path) -> None:
        """Classes 3 and 7 in a run from Python: the file of its inputs has positions, and says so by their names."""
        smoothed = SmoothedClassifier(fit_logistic((3, 7)), sigma=0.5, seed=0, batch=50, input_range=None)
        results = smoothed.predict(FRAME, labels=[3, 7], n=60, progress=False)
        assert results.class_names == ("3", "7")
        frame = results.to_frame()
        assert frame["label_name"].tolist() == frame["prediction_name"].tolist() == ["3", "7"]
        run = smoothed.certify(FRAME, labels=[3, 7], n0=10, n=60, out=tmp_path / "run", progress=False)
        assert [(point.label, point.correct) for point in run] == [(0, True), (1, True)]
        assert load_results(tmp_path / "run").class_names == ("3", "7")
        again = smoothed.certify(FRAME, labels=[3, 7], n0=10, n=60, out=tmp_path / "run", progress=False)
        assert list(again) == list(run)
        assert not run.verify().list_discrepancies()

    @pytest.mark.parametrize(
        ("names", "message"),
        [(["dog", "cat"], "the classes of the model are 'cat', 'dog'"), (["a"], "1 class_names"), (["a", "a"], "two")],
    )
    def test_names_that_contradict_the_model(self, names: list[str], message: str) -> None:
        with pytest.raises(InputError, match=message):
            SmoothedClassifier(fit_logistic(), sigma=0.5, class_names=names, input_shape=(3,))


class TestMatching:
    def test_a_class_that_the_model_does_not_have(self, tmp_path: Path) -> None:
        data = load_dataset(str(write_csv(tmp_path / "a.csv", classes=("cat", "cow"))), input_range=None)
        with pytest.raises(DataError, match="has the class 'cow', which the model does not have"):
            match_dataset(data, class_names=("cat", "dog"), feature_names=())

    def test_texts_never_become_numbers(self, tmp_path: Path) -> None:
        data = load_dataset(str(write_csv(tmp_path / "a.csv")), input_range=None)
        with pytest.raises(DataError, match="'cat', 'dog'"):
            match_dataset(data, class_names=("-1", "0", "1"), feature_names=())

    def test_names_in_another_order(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=[0, 1, -1], class_names=["dog", "cat"])
        data = load_dataset(str(tmp_path / "a.npz"))
        matched = match_dataset(data, class_names=("cat", "dog"), feature_names=())
        assert matched.labels.tolist() == [1, 0, -1]
        assert (matched.class_names, matched.num_classes) == (("cat", "dog"), 2)
        assert matched.digest != data.digest

    def test_the_digest_counts_names_of_texts(self, tmp_path: Path) -> None:
        digests = {
            load_dataset(str(write_csv(tmp_path / f"{a}.csv", classes=(a, b))), input_range=None).digest
            for a, b in (("cat", "dog"), ("dog", "eel"))
        }
        assert len(digests) == 2

    def test_columns_of_a_file_in_the_order_of_the_model(self, tmp_path: Path) -> None:
        turned = load_dataset(str(write_csv(tmp_path / "b.csv", columns=FEATURES[::-1])), input_range=None)
        data = load_dataset(str(write_csv(tmp_path / "a.csv")), input_range=None)
        matched = match_dataset(turned, class_names=(), feature_names=FEATURES)
        assert np.array_equal(matched.inputs(slice(None)), data.inputs(slice(None)))
        assert match_dataset(data, class_names=(), feature_names=FEATURES) is data
        with pytest.raises(DataError, match="without the column 'length'"):
            match_dataset(data, class_names=(), feature_names=("length", *FEATURES))


@pytest.mark.slow
def test_from_a_csv_of_texts_to_everything_that_shows_classes(tmp_path: Path) -> None:
    run = certify(tmp_path, write_csv(tmp_path / "pets.csv", columns=FEATURES[::-1], label="target"))
    manifest = read_manifest(run)
    assert manifest.model.class_names == ("cat", "dog")
    assert manifest.data.feature_names == FEATURES
    results = load_results(run)
    assert results.class_names == ("cat", "dog")
    assert results.correct.all()
    assert invoke(app, "verify", run).exit_code == 0
    assert invoke(app, "verify", run, "--replay", "tabular_models:pipeline", 1).exit_code == 0

    table = invoke(app, "table", run, "--classes").output
    assert "0 cat" in table
    assert "1 dog" in table
    (document,) = json.loads(invoke(app, "table", run, "--classes", "--format", "json").output)
    assert document["class_names"] == ["cat", "dog"]

    for form in ("json", "csv", "cohen-tsv"):
        assert invoke(app, "export", run, "--format", form, "-o", tmp_path / f"out.{form}").exit_code == 0
    exported = json.loads((tmp_path / "out.json").read_text())
    assert exported["class_names"] == ["cat", "dog"]
    assert [point["prediction_name"] for point in exported["points"]] == ["cat", "dog"]
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["label_name"] for row in rows] == ["cat", "dog"]
    log = list(csv.DictReader((tmp_path / "out.cohen-tsv").read_text().splitlines(), delimiter="\t"))
    assert [row["predict_name"] for row in log] == ["cat", "dog"]
    assert load_results(tmp_path / "out.cohen-tsv").prediction.tolist() == [0, 1]

    (tmp_path / "pets.csv").unlink()
    assert invoke(app, "report", run, "-o", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "0 cat" in page
    assert "1 dog" in page


def test_a_csv_with_the_numbers_of_the_model(tmp_path: Path) -> None:
    """Labels 3 and 7 were refused: the model knew "only 2 classes"."""
    run = certify(tmp_path, write_csv(tmp_path / "pets.csv", classes=(3, 7)), model="tabular_models:numbered")
    results = load_results(run)
    assert results.label.tolist() == [0, 1]
    assert results.class_names == ("3", "7")
    assert results.correct.all()
    assert [row[1:3] for row in answer_table(results).rows] == [("0 3", "0 3"), ("1 7", "1 7")]
    assert [answer["prediction_name"] for answer in list_answers(results)] == ["3", "7"]
    assert invoke(app, "verify", run, "--replay", "tabular_models:numbered", 1).exit_code == 0


@pytest.mark.slow
def test_resumed_with_another_order_of_columns_is_other_data(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "pets.csv")
    run = certify(tmp_path, data)
    before = load_results(run)
    certify(tmp_path, data)
    assert load_results(run).radius.tolist() == before.radius.tolist()
    header, rest = data.read_text().split("\n", 1)
    data.write_text(header.replace("height", "?").replace("weight", "height").replace("?", "weight") + "\n" + rest)
    with pytest.raises(SmoothcertError, match=r"digests\.data"):
        certify(tmp_path, data)


@pytest.mark.slow
def test_texts_for_a_model_that_does_not_name_its_classes(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "pets.csv")
    run = certify(tmp_path, data, model="tabular_models:two_logits")
    assert load_results(run).class_names == ("cat", "dog")
    with pytest.raises(DataError, match="it is not known which class is which"):
        certify(tmp_path / "three", data, model="tabular_models:three_logits")


class TestTrainedNetworks:
    """A checkpoint keeps the names of the labels that it was trained on."""

    TRAIN = ("--arch", "mlp-8", "--sigma", 0.5, "--epochs", 1, "--batch", 8, "--seed", 1, "--device", "cpu")

    def test_texts_of_a_csv(self, tmp_path: Path) -> None:
        data, out = write_csv(tmp_path / "pets.csv", label="kind", count=40), tmp_path / "pets.safetensors"
        form = ("--input-range", "any", "--label-column", "kind")
        done = invoke(app, "train", "--data", data, *form, *self.TRAIN, "--out", out)
        assert done.exit_code == 0, done.output
        suggested = done.stdout.splitlines()[-1]
        assert suggested.startswith(f"smoothcert certify --model {out}")
        assert "--label-column" not in suggested  # the held-out inputs are an .npz file
        run = certify(tmp_path, tmp_path / "pets.held-out.npz", model=str(out))
        assert read_manifest(run).model.class_names == ("cat", "dog")
        assert read_manifest(run).data.feature_names == FEATURES
        others = write_csv(tmp_path / "others.csv", classes=("cat", "bird"))
        with pytest.raises(DataError, match="has the class 'bird', which the model does not have"):
            certify(tmp_path / "others", others, model=str(out))

    def test_folders_of_images(self, tmp_path: Path) -> None:
        for place, name in enumerate(("train/cat", "train/dog", "test/dog")):
            (tmp_path / "pets" / name).mkdir(parents=True)
            for number in range(4):
                pixels = np.full((4, 4), 40 * place + number, dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{number}.png")
        out = tmp_path / "pets.safetensors"
        done = invoke(app, "train", "--data", tmp_path / "pets", *self.TRAIN, "--out", out)
        assert done.exit_code == 0, done.output
        assert load_checkpoint(out).header.class_names == ("cat", "dog")
        assert SmoothedClassifier(out, sigma=0.5, input_shape=(3, 4, 4)).class_names == ("cat", "dog")

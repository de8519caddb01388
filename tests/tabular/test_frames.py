"""pandas frames as inputs, and scikit-learn models that were fitted on frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from smoothcert import SmoothedClassifier, load_dataset, open_run
from smoothcert.data.matching import get_feature_names
from smoothcert.errors import DataError, InputError
from smoothcert.models import as_classifier
from smoothcert.models.original import original_of
from smoothcert.runs.store import read_manifest
from smoothcert.spec import RunManifest
from tabular_models import FEATURES, fit_logistic, fit_pipeline, make_frame

FRAME, LABELS = make_frame(2, seed=1)


def smoothed(model=None, **settings) -> SmoothedClassifier:
    model = fit_pipeline() if model is None else model
    return SmoothedClassifier(model, sigma=0.5, seed=0, batch=50, input_range=None, **settings)


def answers(points) -> list[tuple[int | None, float]]:
    return [(point.prediction, point.radius) for point in points]


def test_a_pipeline_fitted_on_a_frame_gets_frames_and_warns_of_nothing() -> None:
    """Tests turn warnings into errors; there was one for every batch and every row that was checked again."""
    points = smoothed(fit_logistic()).certify(FRAME, n0=10, n=60, labels=pd.Series(LABELS))
    assert [point.label for point in points] == [0, 1]
    assert all(point.correct for point in points)
    named, unnamed = (as_classifier(fit_logistic(with_names=by_name)) for by_name in (True, False))
    rows = FRAME.to_numpy()
    assert named.classify(rows).tolist() == unnamed.classify(rows).tolist()
    assert original_of(named).answer(rows[1]).vote == 1


def test_a_pipeline_that_selects_columns_by_name() -> None:
    points = smoothed().predict(FRAME, n=60)
    assert [point.prediction for point in points] == [0, 1]


def test_columns_are_put_in_the_order_of_the_model() -> None:
    expected = answers(smoothed().certify(FRAME, n0=10, n=60))
    turned = FRAME[list(reversed(FEATURES))]
    assert answers(smoothed().certify(turned, n0=10, n=60)) == expected
    assert answers(smoothed(fit_logistic(with_names=False)).certify(FRAME, n0=10, n=60)) == answers(
        smoothed(fit_logistic(with_names=False)).certify(FRAME.to_numpy(), n0=10, n=60)
    )


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.drop(columns="age"), "without the column 'age'; the model was fitted on 'height', 'weight', 'age'"),
        (FRAME.assign(id=1), "with the column 'id', which the model does not take"),
        (FRAME.rename(columns={"age": "years"}), "without the column 'age', and with the column 'years'"),
        (FRAME.assign(age="old"), "the column 'age' is not numeric"),
        (FRAME.assign(age=pd.Categorical(["a"] * 2)), "the column 'age' is not numeric"),
        (FRAME.assign(age=pd.array([1, None], dtype="Int64")), "NaN"),
        (pd.concat([FRAME, FRAME["age"]], axis=1), "same name"),
    ],
)
def test_other_columns_are_refused_by_name(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        smoothed().predict(frame, n=60)


def test_numbers_of_every_type_are_taken() -> None:
    frame = FRAME.assign(age=pd.array([1, 2], dtype="Int16"), height=FRAME["height"].astype(int))
    expected = np.column_stack([frame["height"], frame["weight"], range(1, 3)])
    np.testing.assert_array_equal(smoothed().check_inputs(frame), expected.astype(np.float32))


def test_labels_in_another_order_than_the_frame() -> None:
    labels = pd.Series(LABELS)
    shuffled = FRAME.iloc[::-1]
    with pytest.raises(InputError, match=r"labels\.loc\[frame\.index\]"):
        smoothed().predict(shuffled, labels=labels, n=60)
    with pytest.raises(InputError, match=r"labels\.loc\[frame\.index\]"):
        smoothed().predict(shuffled, labels=labels.to_frame(), n=60)
    points = smoothed().predict(shuffled, labels=labels.loc[shuffled.index], n=60)
    assert all(point.correct for point in points)


def test_a_frame_for_a_model_that_is_named_by_its_place() -> None:
    classifier = smoothed("tabular_models:pipeline")
    assert [point.prediction for point in classifier.predict(FRAME[list(reversed(FEATURES))], n=60)] == [0, 1]


class TestNamesOfColumns:
    """A run keeps them as one from a csv file does, so that it can be resumed and verified by name."""

    def certify(self, out: Path, frame: pd.DataFrame = FRAME, **settings: Any) -> RunManifest:
        smoothed(**settings).certify(frame, labels=LABELS, n0=10, n=60, out=out, progress=False)
        return read_manifest(out)

    def test_are_those_of_the_model_in_its_order(self, tmp_path: Path) -> None:
        manifest = self.certify(tmp_path / "run", FRAME[list(reversed(FEATURES))])
        assert manifest.data.feature_names == FEATURES
        kept = load_dataset(str(tmp_path / "run" / "inputs.npz"), input_range=None)
        assert get_feature_names(kept) == FEATURES
        assert self.certify(tmp_path / "run") == manifest
        assert open_run(tmp_path / "run").verify().consistent

    def test_are_those_of_the_frame_if_the_model_has_none(self, tmp_path: Path) -> None:
        model = fit_logistic(with_names=False)
        assert self.certify(tmp_path / "run", model=model).data.feature_names == FEATURES
        assert smoothed(model).predict(FRAME, n=60).manifest.data.feature_names == FEATURES
        with pytest.raises(DataError, match="without the column 'age'"):
            self.certify(tmp_path / "run", FRAME.rename(columns={"age": "years"}), model=model)

    def test_of_another_number_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "data.npz", x=FRAME.to_numpy(), feature_names=np.array(["height"]))
        with pytest.raises(DataError, match="1 feature_names for inputs of 3 values"):
            load_dataset(str(tmp_path / "data.npz"), input_range=None)

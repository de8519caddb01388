"""Estimators and functions that are changed between two calls, and objects that change when they are called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Perceptron

from smoothcert import SmoothedClassifier
from smoothcert.errors import ModelMismatchError
from smoothcert.models import as_classifier

X = np.linspace(0.0, 1.0, 24, dtype=np.float32).reshape(8, 3)
Y = (X.sum(axis=1) > 1.5).astype(int)
CHANGED = "changed since"


def smooth(model: Any, **options: Any) -> SmoothedClassifier:
    return SmoothedClassifier(model, sigma=0.25, seed=0, batch=64, grid="float", **options)


def certify(smoothed: SmoothedClassifier, **options: Any) -> list[int | None]:
    """The classes of two inputs that lie far from the boundary."""
    return [point.prediction for point in smoothed.certify(X[6:], n0=10, n=40, **options)]


class Linear:
    """Logits of two classes. happens: what a call does besides."""

    def __init__(self, happens: Callable[[Any, np.ndarray[Any, Any]], object] = lambda *_: None) -> None:
        self.weights = np.array([[1.0, -1.0], [0.5, 0.0], [0.0, 0.25]])
        self.happens = happens
        self.calls = 0
        self.seen: dict[Any, Any] = {}
        self.loaded: Any = None

    def __call__(self, batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.happens(self, batch)
        logits: np.ndarray[Any, Any] = batch @ self.weights
        return logits


def count(model: Linear, _: object) -> None:
    model.calls += 1


def remember(model: Linear, batch: np.ndarray[Any, Any]) -> None:
    model.seen[batch.tobytes()] = len(batch)


def remember_size(model: Linear, batch: np.ndarray[Any, Any]) -> None:
    model.seen[batch.shape] = len(batch)


def load(model: Linear, _: object) -> None:
    if model.loaded is None:
        model.loaded = np.ones(3)


STATE = [count, remember, remember_size, load]


@pytest.mark.parametrize("estimator", [LogisticRegression(), Perceptron()])
@pytest.mark.parametrize("shape", [None, (3,)])
def test_refitted_estimator_is_refused(estimator: Any, shape: tuple[int, ...] | None) -> None:
    smoothed = smooth(estimator.fit(X, Y), input_shape=shape)
    certify(smoothed)
    certify(smoothed)
    estimator.fit(X, 1 - Y)
    with pytest.raises(ModelMismatchError, match=CHANGED):
        certify(smoothed)
    with pytest.raises(ModelMismatchError, match=CHANGED):
        smoothed.predict(X[6:], n=40)


def test_no_run_and_no_memory_for_a_changed_model(tmp_path: Path) -> None:
    estimator = LogisticRegression().fit(X, Y)
    with smooth(estimator, input_shape=(3,), memory=tmp_path / "memory.sqlite") as smoothed:
        estimator.fit(X, 1 - Y)
        with pytest.raises(ModelMismatchError, match=CHANGED):
            certify(smoothed)
        with pytest.raises(ModelMismatchError, match=CHANGED):
            certify(smoothed, out=tmp_path / "run")
        assert smoothed.memory is None
    assert not (tmp_path / "run").exists()


def test_refitting_to_the_same_is_no_change() -> None:
    estimator = LogisticRegression().fit(X, Y)
    smoothed = smooth(estimator)
    first = certify(smoothed)
    estimator.fit(X, Y)
    assert certify(smoothed) == first


@pytest.mark.parametrize("happens", [None, *STATE])
@pytest.mark.parametrize("shape", [None, (3,)])
def test_function_whose_weights_change_is_refused(happens: Any, shape: tuple[int, ...] | None) -> None:
    model = Linear(happens) if happens else Linear()
    smoothed = smooth(model, input_shape=shape)
    certify(smoothed)
    model.weights *= -1
    with pytest.raises(ModelMismatchError, match=CHANGED):
        certify(smoothed)


def test_a_small_change_is_refused_if_calls_keep_the_digest() -> None:
    model = Linear()
    smoothed = smooth(model)
    certify(smoothed)
    model.weights[0, 0] += 1e-9
    with pytest.raises(ModelMismatchError, match=CHANGED):
        certify(smoothed)


@pytest.mark.parametrize("happens", STATE)
@pytest.mark.parametrize("shape", [None, (3,)])
def test_state_that_calls_change_is_accepted(happens: Any, shape: tuple[int, ...] | None, tmp_path: Path) -> None:
    model = Linear(happens)
    smoothed = smooth(model, input_shape=shape)
    model(X)  # the user calls it too
    first = certify(smoothed)
    model(X[:5])
    assert certify(smoothed) == first
    assert certify(smoothed, out=tmp_path / "run") == first
    assert certify(smoothed) == first


@pytest.mark.parametrize("shape", [None, (3,)])
def test_known_classifier_without_a_shape(shape: tuple[int, ...] | None) -> None:
    model = Linear(count)
    smoothed = smooth(as_classifier(model, num_classes=2, input_shape=shape))
    certify(smoothed)
    certify(smoothed)
    model.weights *= -1
    with pytest.raises(ModelMismatchError, match=CHANGED):
        certify(smoothed)


def test_cached_function_keeps_its_digest() -> None:
    @functools.lru_cache
    def weights(size: int) -> np.ndarray[Any, Any]:
        return np.eye(3, size)

    smoothed = smooth(lambda batch: batch @ weights(2))
    weights(5)
    assert certify(smoothed) == certify(smoothed)


@pytest.mark.parametrize("shape", [None, (3,)])
def test_object_that_keeps_its_own_smoothed_classifier(shape: tuple[int, ...] | None) -> None:
    class Service:
        def __init__(self) -> None:
            self.model = Linear()
            self.smoothed = smooth(lambda batch: self.model(batch), input_shape=shape)

    service = Service()
    first = certify(service.smoothed)
    assert certify(service.smoothed) == first
    service.model.weights *= -1
    with pytest.raises(ModelMismatchError, match=CHANGED):
        certify(service.smoothed)

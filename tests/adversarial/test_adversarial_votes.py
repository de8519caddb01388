"""For every adversarial model: the counted votes are those of the user's object, or it is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from adversarial_models import ORDINARY, ROOM, SHAPE, Case, Expected
from adversarial_votes import SEED, SIGMA, compared, counted, images, state_of
from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError, ModelError
from smoothcert.models import as_classifier
from smoothcert.records import Stage

N0, N = 20, 300


def smoothed(model: Any, **settings: Any) -> SmoothedClassifier:
    chosen = {"sigma": SIGMA, "seed": SEED, "batch": 64, "num_classes": 2, "device": "cpu", **settings}
    return SmoothedClassifier(model, **chosen)


@pytest.mark.parametrize("case", ROOM.values(), ids=ROOM)
def test_votes_are_those_of_the_users_object(case: Case) -> None:
    """Fails if a copy, a graph or another precision of the model is used and answers differently."""
    inputs = images()
    with case.opened() as model:
        before = state_of(model)
        try:
            points = smoothed(model).certify(inputs, n0=N0, n=N)
        except (ModelError, InputError):
            if case.expected is Expected.SAME:
                raise
        else:
            assert case.expected is not Expected.REFUSED, [str(point) for point in points]
            comparison = compared(model, case, points, inputs, n0=N0, n=N)
            assert not comparison.differences
            assert comparison.could_fail or case.expected is not Expected.SAME
        if case.name != "lazy_module":  # it has no weights before
            assert state_of(model) == before


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_models_are_computed_by_a_frozen_graph(name: str) -> None:
    """Positive control: fails if ordinary models are not fast."""
    with ROOM[name].opened() as model:
        classifier = smoothed(model, input_shape=SHAPE)
        assert "frozen" in classifier.classifier.backend


NEVER_FROZEN = (
    "asked_equal", "asked_allclose", "asked_is_nonzero", "asked_item", "asked_numpy", "while_loop", "try_and_except",
    "hides_from_export",
)  # fmt: skip


@pytest.mark.parametrize("name", NEVER_FROZEN)
def test_models_that_a_graph_cannot_hold_run_as_they_are(name: str) -> None:
    """Fails if a graph of one branch is used as the model."""
    with ROOM[name].opened() as model:
        assert "eager" in smoothed(model, input_shape=SHAPE).classifier.backend


@pytest.mark.parametrize("name", [*ORDINARY, "pre_hook_on_linear", "asked_numpy", "pipeline_with_function"])
def test_batch_size_and_workers_change_no_vote(name: str) -> None:
    """Fails if the answer to a row depends on its batch; `row_position` is the negative control."""
    found = []
    with ROOM[name].opened() as model:
        adapted = as_classifier(model, num_classes=2, input_shape=SHAPE, device="cpu")
        for batch, workers in ((16, 1), (50, 2), (1024, 2)):
            points = smoothed(adapted, batch=batch, workers=workers).certify(images()[1:], n0=N0, n=N)
            found.append([counted(point, Stage.ESTIMATION).tolist() for point in points])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("batch", [16, 50, 128, 1024])
def test_an_answer_by_place_in_the_batch_is_refused_whatever_the_batch(batch: int) -> None:
    """Negative control of the test above."""
    with ROOM["row_position"].opened() as model, pytest.raises(ModelError):
        smoothed(model, batch=batch).certify(images(), n0=N0, n=N)


BEYOND_GRAPHS = (
    "pre_hook_on_linear", "asked_equal", "asked_allclose", "asked_is_nonzero", "bfloat16_module", "float64_module",
    "float32_front_bfloat16_rest", "forward_of_the_instance", "asked_whether_exported", "float64_logits",
    "changed_by_copying", "batch_mean", "counts_calls", "scripted",
)  # fmt: skip


@pytest.mark.parametrize(("name", "backend"), [(name, "onnxruntime") for name in BEYOND_GRAPHS] + [
    ("asked_allclose", "fastest"), ("bfloat16_module", "fastest"), ("batch_mean", "fastest"),
])  # fmt: skip
def test_other_back_ends_refuse_what_they_would_change(name: str, backend: str) -> None:
    """Fails if an export with one branch, without hooks or in another precision is used."""
    case = dataclasses.replace(ROOM[name], tolerance=max(ROOM[name].tolerance, 1e-5))
    inputs = images()
    with case.opened() as model:
        try:
            points = smoothed(model, backend=backend).certify(inputs, n0=N0, n=N)
        except (ModelError, InputError):
            return
        assert case.expected is not Expected.REFUSED
        assert not compared(model, case, points, inputs, n0=N0, n=N).differences


@pytest.mark.parametrize("name", ORDINARY)
def test_other_back_ends_compute_ordinary_models(name: str) -> None:
    """Positive control."""
    inputs = images()
    with ROOM[name].opened() as model:
        classifier = smoothed(model, backend="onnxruntime")
        points = classifier.certify(inputs, n0=N0, n=N)
        assert "onnxruntime" in classifier.classifier.backend
        assert not compared(model, ROOM[name], points, inputs, n0=N0, n=N).differences


def test_a_model_changed_between_two_calls_is_not_certified_as_what_it_was() -> None:
    """Fails if the copy made at the first call is used after the user changed the object."""
    inputs = images()
    with ROOM["plain_mlp"].opened() as model:
        classifier = smoothed(model)
        classifier.certify(inputs, n0=N0, n=N)
        with torch.no_grad():
            model[3].weight.mul_(-1.0)
        try:
            points = classifier.certify(inputs, n0=N0, n=N)
        except ModelError:
            return
        assert not compared(model, ROOM["plain_mlp"], points, inputs, n0=N0, n=N).differences

"""A base classifier behind a multiplication: what it passes on, what it identifies, and whom it asks again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.errors import InputError, ModelMismatchError
from smoothcert.models import as_classifier
from smoothcert.models.base import ScoringDeviceClassifier, is_on_device
from smoothcert.models.original import asking, original_of
from smoothcert.models.scaled_classifier import ScaledClassifier, scale_classifier
from smoothcert.models.scaled_module import ScaledModule
from smoothcert.models.tabular_names import get_class_names, get_feature_names
from smoothcert.models.torch_classifier import TorchDeviceClassifier
from smoothcert.records.feature_scale import FeatureScale
from tabular_models import FEATURES, fit_logistic, make_frame

SCALE = FeatureScale((0.1, 2.0, 30.0))
SCALED = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


def network(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 4))


def test_it_answers_as_the_model_does_for_the_product() -> None:
    base = as_classifier(network(), input_shape=(3,), device="cpu")
    scaled = scale_classifier(base, SCALE)
    assert scaled.classify(SCALED).tolist() == base.classify(SCALE.multiply(SCALED)).tolist()
    votes, scores = scaled.votes_and_scores(SCALED)  # type: ignore[attr-defined]
    assert votes.tolist() == scaled.classify(SCALED).tolist()
    assert np.array_equal(scores, base.votes_and_scores(SCALE.multiply(SCALED))[1])  # type: ignore[attr-defined]
    with torch.no_grad():
        logits = ScaledModule(network(), SCALE)(torch.from_numpy(SCALED))
    assert logits.argmax(dim=1).tolist() == votes.tolist()


def test_the_digest_covers_model_and_scale() -> None:
    base = as_classifier(network(), input_shape=(3,), device="cpu")
    digests = {base.digest} | {
        scale_classifier(base, FeatureScale(numbers)).digest
        for numbers in ((0.1, 2.0, 30.0), (0.1, 2.0, 30.000000000000004), (2.0, 0.1, 30.0), (1.0, 1.0, 1.0))
    }
    assert len(digests) == 5
    assert scale_classifier(base, SCALE).digest == scale_classifier(base, SCALE).digest


def test_names_and_facts_are_those_of_the_model() -> None:
    base = as_classifier(fit_logistic(), input_shape=(3,))
    scaled = scale_classifier(base, SCALE)
    assert get_class_names(scaled) == ("cat", "dog")
    assert get_feature_names(scaled) == FEATURES
    for name in ("num_classes", "backend", "concurrency", "gives_scores", "input_shape", "scores_are"):
        assert getattr(scaled, name) == getattr(base, name)
    assert not hasattr(scaled, "as_given")


def test_the_users_own_object_is_asked_again() -> None:
    base = as_classifier(network(), input_shape=(3,), device="cpu")
    original = original_of(scale_classifier(base, SCALE))
    for row in SCALED[:5]:
        assert original.answer(row).vote == original_of(base).answer(SCALE.multiply(row)).vote
    with asking(original, scores=True) as ask:
        answers = [ask(row) for row in SCALED[:5]]
    assert [one.vote for one in answers] == [original.answer(row).vote for row in SCALED[:5]]
    assert all(one.scores is not None for one in answers)


def test_a_model_that_was_changed_is_noticed() -> None:
    frame, labels = make_frame()
    model = fit_logistic.__wrapped__()
    original = original_of(scale_classifier(as_classifier(model, input_shape=(3,)), SCALE))
    original.check_unchanged()  # type: ignore[attr-defined]
    model.fit(frame, labels[::-1])
    with pytest.raises(ModelMismatchError, match="was changed"):
        original.check_unchanged()  # type: ignore[attr-defined]


def test_noise_in_the_first_layer_and_other_shapes_are_refused() -> None:
    first = as_classifier(network(2), input_shape=(3,), device="cpu", noise_at="first-layer")
    with pytest.raises(InputError, match="needs the noise at the input"):
        scale_classifier(first, SCALE)
    with pytest.raises(InputError, match="inputs have 3 features, and 2 numbers were given"):
        scale_classifier(as_classifier(network(), input_shape=(3,), device="cpu"), FeatureScale((1.0, 2.0)))


def test_on_a_device_the_product_is_computed_there() -> None:
    base = TorchDeviceClassifier(network(), device=torch.device("cpu"), input_shape=(3,))
    scaled = scale_classifier(base, SCALE)
    assert isinstance(scaled, ScaledClassifier)
    assert is_on_device(scaled)
    assert isinstance(scaled, ScoringDeviceClassifier)
    votes = scaled.classify_tensor(torch.from_numpy(SCALED))
    assert votes.tolist() == scaled.classify(SCALED).tolist()
    assert scaled.votes_and_scores_tensor(torch.from_numpy(SCALED))[0].tolist() == votes.tolist()

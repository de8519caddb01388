"""Models that answer with more than logits: the logits are taken, it is said, and the votes are those of the logits."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.errors import ModelError, ModelMismatchError
from smoothcert.models import as_classifier
from smoothcert.models.votes import LogitsWarning
from smoothcert.sampling.model_checks import ModelChecks
from smoothcert.smoothed import SmoothedClassifier

SIZE = 6
INPUTS = np.random.default_rng(0).random((3, SIZE), dtype=np.float32)


@dataclass
class Output:
    """As the outputs of Hugging Face models, beside which there are hidden states."""

    logits: torch.Tensor
    hidden_states: Any = None


class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """An ordered dictionary whose entries are attributes too, as in transformers."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


WRAPPERS: dict[str, Any] = {
    "attribute": lambda logits: Output(logits, logits[:, :1]),
    "dict": lambda logits: {"loss": None, "logits": logits},
    "model output": lambda logits: ModelOutput(logits=logits, attentions=None),
    "tuple": lambda logits: (logits, logits.sum(dim=1)),
}


def plain_layer() -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return nn.Linear(SIZE, 4)


class Wrapped(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = plain_layer()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        return WRAPPERS[self.kind](self.layer(x))


def make(model: Any, **more: Any) -> SmoothedClassifier:
    return SmoothedClassifier(model, sigma=0.25, seed=3, batch=64, workers=1, **more)


def votes(smoothed: SmoothedClassifier) -> list[Any]:
    points = smoothed.certify(INPUTS, n0=20, n=200)
    return [[tally.counts.tolist() for tally in point.tallies] for point in points]  # type: ignore[union-attr]


PLAIN = votes(make(nn.Sequential(plain_layer())))


@pytest.mark.parametrize("kind", WRAPPERS)
def test_the_votes_are_those_of_the_logits_and_it_is_said(kind: str) -> None:
    smoothed = make(Wrapped(kind))
    with pytest.warns(LogitsWarning, match="is taken as its logits"):
        assert votes(smoothed) == PLAIN
    assert "torch Wrapped, 28 parameters, 4 classes, its logits only" in smoothed.classifier.description
    assert smoothed.checks.asked > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        votes(smoothed)  # it is said once


@pytest.mark.parametrize("backend", ["onnxruntime", "fastest"])
def test_other_back_ends(backend: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    with pytest.warns(LogitsWarning):
        assert votes(make(Wrapped("dict"), backend=backend)) == PLAIN


@pytest.mark.parametrize("kind", ["attribute", "dict", "tuple"])
def test_functions(kind: str) -> None:
    layer = plain_layer().requires_grad_(False)

    def function(batch: np.ndarray) -> Any:
        return WRAPPERS[kind](layer(torch.from_numpy(batch)))

    with pytest.warns(LogitsWarning, match="is taken as its logits"):
        classifier = as_classifier(function, input_shape=(SIZE,))
    expected = layer(torch.from_numpy(INPUTS)).argmax(dim=1).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(classifier.classify(INPUTS), expected)


class Embedding(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.cat([x, x], dim=1), x[:, :3], x.sum(dim=1)


def embed(batch: np.ndarray) -> Any:
    return np.hstack([batch, batch]), batch[:, :3], batch.sum(axis=1)


@pytest.mark.parametrize("model", [Embedding(), embed])
@pytest.mark.parametrize("options", [{}, {"num_classes": 12}])
def test_a_tuple_with_two_parts_that_could_be_logits_is_refused(model: Any, options: Any) -> None:
    """Fails where the embedding is taken as the logits of twelve classes."""
    with pytest.raises(ModelError, match=r"2 of its parts could be the logits, of shapes \(\d, 12\) and \(\d, 3\)"):
        as_classifier(model, input_shape=(SIZE,), **options)


def test_parts_of_other_lengths_are_no_logits() -> None:
    def function(batch: np.ndarray) -> Any:
        return batch[:, :4], np.zeros((7, 4)), batch[:, None]

    with pytest.warns(LogitsWarning, match="the first of its 3 parts"):
        assert as_classifier(function, input_shape=(SIZE,)).num_classes == 4


class Moody(nn.Module):
    """Answers a single input with other logits than a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = plain_layer()

    def forward(self, x: torch.Tensor) -> Any:
        logits = self.layer(x)
        return {"logits": -logits if len(x) == 1 else logits}


def test_the_original_is_asked_row_by_row() -> None:
    with pytest.warns(LogitsWarning):
        classifier = as_classifier(Moody(), input_shape=(SIZE,))
    checks = ModelChecks(classifier)
    assert checks is not None
    with pytest.warns(LogitsWarning), pytest.raises(ModelMismatchError):
        votes(make(Moody()))


@pytest.mark.parametrize("answer", [None, {"scores": 1}, (), "logits"])
def test_other_answers_are_refused(answer: Any) -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return answer

    with pytest.raises(ModelError, match="expected one tensor of logits"):
        as_classifier(Odd(), input_shape=(SIZE,))

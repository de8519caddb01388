"""Adversarial models: answers that depend on other rows or on earlier calls, and models without torch."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adversarial_cases import REFUSED, SAME_OR_REFUSED, SHAPE, SIZE, THRESHOLD, Judge, bright, case, clamped, judging


@case(SAME_OR_REFUSED)
@judging
def batch_mean(self: Judge, inputs: Tensor) -> Tensor:
    """Every row gets an answer from the mean of the batch."""
    return clamped(inputs).mean(dim=0, keepdim=True).expand_as(inputs) * 1.02


@case(SAME_OR_REFUSED)
@judging
def quantised_by_the_batch(self: Judge, inputs: Tensor) -> Tensor:
    """Dynamic quantisation: the step depends on the largest value in the batch, which changes few votes."""
    step = inputs.abs().amax() / 31.0
    return torch.round(inputs / step) * step


@case(SAME_OR_REFUSED)
@judging
def row_position(self: Judge, inputs: Tensor) -> Tensor:
    """Rows at odd positions are answered differently."""
    odd = (torch.arange(len(inputs)) % 2).bool()[:, None, None, None]
    return torch.where(odd, inputs, clamped(inputs))


@case(SAME_OR_REFUSED)
@judging
def first_row(self: Judge, inputs: Tensor) -> Tensor:
    """Every row gets the answer of the first."""
    return inputs[:1].expand_as(inputs) + THRESHOLD / SIZE


class SoftmaxOverRows(Judge):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.softmax(0.1 * super().forward(inputs), dim=0)


@case(SAME_OR_REFUSED)
def softmax_over_rows() -> nn.Module:
    """A softmax along the wrong axis: a row alone is always a tie."""
    return SoftmaxOverRows()


@case(REFUSED)
@judging
def clock(self: Judge, inputs: Tensor) -> Tensor:
    """The answer depends on the time of day."""
    return clamped(inputs) if time.perf_counter_ns() // 1000 % 2 else inputs


@case(REFUSED)
@judging
def random_answers(self: Judge, inputs: Tensor) -> Tensor:
    """Adds random noise."""
    return inputs + torch.randn(len(inputs), 1, 1, 1) * 0.2


class CountsCalls(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def see(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return torch.where(self.calls % 2 == 0, inputs, clamped(inputs))


@case(REFUSED)
def counts_calls() -> nn.Module:
    """A buffer counts the calls, and every second call is answered differently."""
    return CountsCalls()


class RunningMax(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("peak", torch.tensor(0.0))

    def see(self, inputs: Tensor) -> Tensor:
        self.peak.copy_(torch.maximum(self.peak, inputs.max()))
        return inputs + (self.peak - 1.6) * 0.5


@case(SAME_OR_REFUSED)
def running_max() -> nn.Module:
    """The answer depends on a buffer with the largest value seen so far."""
    return RunningMax()


class RunningMean(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(0.0))

    def see(self, inputs: Tensor) -> Tensor:
        self.mean.mul_(0.8).add_(0.2 * inputs.mean())
        return inputs - self.mean + 0.15


@case(REFUSED)
def running_mean() -> nn.Module:
    """A buffer follows the mean of recent inputs."""
    return RunningMean()


class Cache(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[bytes, Tensor] = {}

    def forward(self, inputs: Tensor) -> Tensor:
        answers = []
        for row in inputs:
            key = row.numpy().tobytes()
            if key not in self.known:
                self.known[key] = super().forward(clamped(row)[None])[0]
            answers.append(self.known[key])
        return torch.stack(answers)


@case()
def honest_cache() -> nn.Module:
    """A cache keyed by the whole input, which changes no answer."""
    return Cache()


class SecondTime(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.known: set[bytes] = set()

    def forward(self, inputs: Tensor) -> Tensor:
        keys = [row.numpy().tobytes() for row in inputs]
        again = torch.tensor([key in self.known for key in keys])[:, None]
        self.known.update(keys)
        logits = super().forward(clamped(inputs))
        return torch.where(again, logits.flip(1), logits)


@case(REFUSED)
def other_the_second_time() -> nn.Module:
    """Remembers its inputs, and answers differently when one is repeated."""
    return SecondTime()


class CacheByFirstPixel(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, Tensor] = {}

    def forward(self, inputs: Tensor) -> Tensor:
        logits = super().forward(clamped(inputs))
        keys = [int(row[0, 0, 0] * 10) for row in inputs]
        return torch.stack([self.known.setdefault(key, one) for key, one in zip(keys, logits, strict=True)])


@case(REFUSED)
def careless_cache() -> nn.Module:
    """A cache whose key is not the whole input: the first row with a key answers for all."""
    return CacheByFirstPixel()


def _brightness(rows: np.ndarray) -> np.ndarray:
    return np.clip(rows, 0.0, 1.0).reshape(len(rows), -1).sum(axis=1, dtype=np.float64) - THRESHOLD


@case()
def callable_with_labels() -> Callable[[np.ndarray], np.ndarray]:
    """A Python function that answers with labels."""
    return lambda batch: (_brightness(batch) < 0).astype(np.int64)


@case(SAME_OR_REFUSED)
def callable_that_changes_its_batch() -> Callable[[np.ndarray], np.ndarray]:
    """Writes into its input."""

    def model(batch: np.ndarray) -> np.ndarray:
        batch += 0.05
        margin = _brightness(batch)
        return np.stack([margin, -margin], axis=1)

    return model


@case(SAME_OR_REFUSED)
def callable_with_batch_mean() -> Callable[[np.ndarray], np.ndarray]:
    """Subtracts the mean of the batch."""
    return lambda batch: (_brightness(batch - batch.mean(axis=0) + 0.2) < 2.0).astype(np.int64)


class CallableWithState:
    def __init__(self) -> None:
        self.calls = itertools.count()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        margin = _brightness(batch) * (1 if next(self.calls) % 2 else -1)
        return np.stack([margin, -margin], axis=1)


@case(REFUSED)
def callable_with_state() -> CallableWithState:
    """Every second call returns the other class."""
    return CallableWithState()


def _fitted(function: Callable[[np.ndarray], np.ndarray]) -> object:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    generator = np.random.default_rng(3)
    rows = generator.normal(0.15, 0.5, (300, SIZE)).astype(np.float32)
    labels = (_brightness(rows) < 4.0).astype(int)
    return make_pipeline(FunctionTransformer(function), LogisticRegression(max_iter=300)).fit(rows, labels)


@case()
def pipeline_with_function() -> object:
    """A scikit-learn pipeline whose first step is a lambda."""
    return _fitted(lambda rows: np.clip(rows, 0.0, 1.0))


@case(SAME_OR_REFUSED)
def pipeline_with_batch_mean() -> object:
    """A scikit-learn pipeline whose function mixes the rows."""
    return _fitted(lambda rows: np.clip(rows, 0.0, 1.0) - np.clip(rows, 0.0, 1.0).mean(axis=0))


def _onnx_file(folder: Path, nodes: list[Any], weights: dict[str, np.ndarray], *, external: bool = False) -> Path:
    """A file that takes `inputs` (N, 1, 8, 8) to `logits` (N, 2)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "room",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["N", *SHAPE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path = folder / "model.onnx"
    onnx.save_model(
        model, str(path), save_as_external_data=external, location="weights.bin" if external else None, size_threshold=0
    )
    return path


def _head() -> dict[str, np.ndarray]:
    layer = bright(threshold=2.0)
    return {"weight": layer.weight.detach().numpy().T.copy(), "bias": layer.bias.detach().numpy().copy()}


@case()
def onnx_with_external_data() -> Iterator[Path]:
    """The weights are in a file beside the model."""
    from onnx import helper

    nodes = [helper.make_node("Flatten", ["inputs"], ["flat"]), _affine("flat", "logits")]
    with tempfile.TemporaryDirectory() as folder:
        yield _onnx_file(Path(folder), nodes, _head(), external=True)


def _affine(source: str, target: str) -> Any:
    from onnx import helper

    return helper.make_node("Gemm", [source, "weight", "bias"], [target])


@case()
def onnx_with_float64_inside() -> Iterator[Path]:
    """A sum that only float64 can hold."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Flatten", ["inputs"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Add", ["wide", "offset"], ["far"]),
        helper.make_node("Sub", ["far", "offset"], ["back"]),
        helper.make_node("Cast", ["back"], ["narrow"], to=TensorProto.FLOAT),
        _affine("narrow", "logits"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        yield _onnx_file(Path(folder), nodes, {**_head(), "offset": np.array([2.0**30])})


@case(SAME_OR_REFUSED)
def onnx_with_batch_mean() -> Iterator[Path]:
    """The graph subtracts the mean over the rows."""
    from onnx import helper

    nodes = [
        helper.make_node("Flatten", ["inputs"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["flat", "mean"], ["centred"]),
        _affine("centred", "logits"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        yield _onnx_file(Path(folder), nodes, _head())


@case(REFUSED)
def onnx_with_random_numbers() -> Iterator[Path]:
    """The graph adds random noise."""
    from onnx import helper

    nodes = [
        helper.make_node("Flatten", ["inputs"], ["flat"]),
        helper.make_node("RandomNormalLike", ["flat"], ["noise"], scale=0.5),
        helper.make_node("Add", ["flat", "noise"], ["noisy"]),
        _affine("noisy", "logits"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        yield _onnx_file(Path(folder), nodes, _head())

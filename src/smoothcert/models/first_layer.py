"""Gaussian noise drawn at the output of a network's first, linear layer instead of at its input.

For f(x) = g(Wx + b) and ε ~ N(0, σ²I) the vector Wε has the law N(0, σ²WWᵀ) exactly. If W has fewer rows than columns,
drawing it takes fewer normals and products than drawing ε and applying the layer: with Wᵀ = QR, it is σRᵀz for a
standard normal z with one coordinate per row of W.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize

from smoothcert.errors import ModelError
from smoothcert.models.backends import get_backend_name
from smoothcert.models.base import ScoringClassifier
from smoothcert.models.graph_parts import LayerTracer, affine_map, graph_of
from smoothcert.models.original import FLOAT32_ROUNDING
from smoothcert.models.scores import ScoreRule
from smoothcert.models.standardise import Standardise
from smoothcert.models.torch_classifier import make_original, pad_batch, private_copy
from smoothcert.models.torch_digest import hooks_of, module_digest
from smoothcert.models.torch_original import logits_agree
from smoothcert.models.votes import votes_from_logits
from smoothcert.records import FloatArray, InputArray, IntArray

_KEEPS_THE_LAW = frozenset({nn.Flatten, nn.Identity, nn.Dropout, Standardise})
"""Layers that may precede the linear one: affine in evaluation mode. Subclasses do not count."""
_SHAPING_METHODS = {"flatten", "view", "reshape", "size", "contiguous"}
_SHAPING_FUNCTIONS = {torch.flatten, torch.reshape, operator.getitem, getattr}

_CHECKED_SIGMAS = (0.1, 0.25, 0.5, 1.0, 2.0)
_CHECKED_ROWS = 64

TailMaker = Callable[[nn.Module, int], ScoringClassifier]
"""Adapts the rest of the network, which takes inputs of that width."""


class FirstLayerClassifier:
    """A torch network on the CPU whose noise is drawn in the output of its first layer (`FirstLayerNoise`).

    The layer must be linear and narrower than the input. Reshaping and `Standardise` may precede it; the rest of the
    network must depend on the input only through it. Wx + b and the factor R are computed in float64 and rounded to
    float32 once.

    The network is split by a symbolic trace, which sees neither hooks nor control flow in Python. So networks with
    hooks, parametrizations or a precision other than float32 are refused, and the two halves are compared with the
    network on noisy inputs.
    """

    def __init__(self, module: nn.Module, *, input_shape: tuple[int, ...], make_tail: TailMaker) -> None:
        _check_nothing_is_hidden(module)
        network = private_copy(module, torch.device("cpu"))
        front, rest = _split(network)
        self._matrix, self._offset = affine_map(front, input_shape)
        width = self._matrix.shape[1]
        if width >= len(self._matrix):
            raise ModelError(
                f"the first layer has {width} outputs for {len(self._matrix)} inputs: drawing the noise there saves "
                "nothing. Omit --noise-at"
            )
        self._basis, root = np.linalg.qr(self._matrix)
        self._root = torch.from_numpy(root.astype(np.float32))
        self._inverse = np.asarray(np.linalg.pinv(self._matrix), dtype=np.float64)
        self._random = np.random.default_rng()
        self.tail: ScoringClassifier = make_tail(rest, width)
        self._check_against(network, rest, input_shape)
        self.input_shape: tuple[int, ...] | None = input_shape
        self.num_classes = self.tail.num_classes
        self.original = make_original(
            module, network, num_classes=self.num_classes, input_shape=input_shape, input_dtype=torch.float32
        )
        self.backend_name = get_backend_name(self.tail)
        self.has_independent_rows = bool(getattr(self.tail, "has_independent_rows", False))
        self.backend = f"{self.tail.backend}, noise in the first layer"
        self.description = f"{self.tail.description}, after a first layer of {width}"
        self.scores_are = self.original.scores_are = getattr(self.tail, "scores_are", ScoreRule.SOFTMAX)
        self.digest = module_digest(network, backend=self.backend + self.scores_are.note)
        self.concurrency = self.tail.concurrency
        self.gives_scores = self.tail.gives_scores

    def _check_against(self, network: nn.Module, rest: nn.Module, input_shape: tuple[int, ...]) -> None:
        """ModelError unless network(x) = rest(Wx + b), with equal votes, for noisy inputs at several noise levels."""
        random = np.random.default_rng(0)
        shape = (_CHECKED_ROWS, *input_shape)
        for sigma in _CHECKED_SIGMAS:
            noisy = (random.random(shape) + sigma * random.standard_normal(shape)).astype(np.float32)
            with torch.inference_mode():
                expected, found = network(torch.from_numpy(noisy)), rest(torch.from_numpy(self.hidden(noisy)))
            if not (logits_agree(expected, found) and _votes_agree(expected, self.classify(noisy))):
                raise ModelError(
                    "the network, split after its first layer, gives other logits than the network itself on inputs "
                    f"with noise of sigma {sigma}: it does more than its layers show. Omit --noise-at"
                )

    def hidden(self, inputs: InputArray, /) -> InputArray:
        flat = inputs.reshape(len(inputs), -1).astype(np.float64)
        return cast(InputArray, (flat @ self._matrix + self._offset).astype(np.float32))

    def colour(self, normals: InputArray, out: InputArray, /) -> None:
        rows = pad_batch(normals)
        if len(rows) == len(normals):
            torch.mm(torch.from_numpy(rows), self._root, out=torch.from_numpy(out))
        else:
            out[:] = torch.mm(torch.from_numpy(rows), self._root).numpy()[: len(normals)]

    def lift(self, x: InputArray, hidden: InputArray, /, *, sigma: float) -> InputArray:
        # ε = W⁺(hidden - Wx - b) + σ(I - QQᵀ)z with a standard normal z has the law N(0, σ²I), given Wε.
        noise = hidden.astype(np.float64) - x.reshape(-1).astype(np.float64) @ self._matrix - self._offset
        seen = noise @ self._inverse
        unseen = self._random.standard_normal(x.size)
        unseen -= self._basis @ (self._basis.T @ unseen)
        return cast(InputArray, (x.reshape(-1) + seen + sigma * unseen).astype(np.float32).reshape(x.shape))

    def classify(self, batch: InputArray, /) -> IntArray:
        return self.tail.classify(self.hidden(batch))

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        return self.tail.votes_and_scores(self.hidden(batch))

    def prepare_thread(self) -> None:
        self.tail.prepare_thread()

    def release_threads(self) -> None:
        self.tail.release_threads()


def _check_nothing_is_hidden(module: nn.Module) -> None:
    """ModelError if a module does more than call its `forward`, or has a precision other than float32."""
    if any(hooks_of(vars(torch_module), prefix="_global")):
        raise _refuse(module, "there are hooks on all modules of this process")
    for name, part in module.named_modules():
        what = f"its part {name!r}" if name else "it"
        if any(hooks_of(vars(part))):
            raise _refuse(module, f"{what} has a hook")
        if parametrize.is_parametrized(part):
            raise _refuse(module, f"{what} has a parametrization")
        if "forward" in vars(part) or type(part).__call__ is not nn.Module.__call__:
            raise _refuse(module, f"{what} has a replaced forward or its own __call__")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.dtype is not torch.float32 and (tensor.is_floating_point() or tensor.is_complex()):
            raise _refuse(module, f"the noise is drawn in float32 and {name} is {tensor.dtype}")


def _refuse(module: nn.Module, why: str) -> ModelError:
    return ModelError(f"noise cannot be drawn in the first layer of {type(module).__name__}: {why}. Omit --noise-at")


def _votes_agree(logits: Tensor, votes: IntArray) -> bool:
    """Whether the votes are those of the logits. Rows whose two largest logits agree within rounding do not count."""
    values: FloatArray = logits.double().numpy()
    largest = np.sort(values, axis=1)[:, -2:]
    is_clear = largest[:, 1] - largest[:, 0] > 2 * FLOAT32_ROUNDING * np.abs(values).max(
        initial=0.0, where=np.isfinite(values)
    )
    return bool((votes_from_logits(values) == votes)[is_clear].all())


def _split(network: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The network up to and including its first linear layer, and the rest."""
    try:
        graph = LayerTracer().trace(network)
    except Exception as error:  # any user code that a symbolic trace cannot follow
        raise ModelError(
            f"the structure of {type(network).__name__} cannot be read ({error}), so its first layer is not known: "
            "omit --noise-at"
        ) from error
    modules = dict(network.named_modules())
    called = (node for node in graph.nodes if node.op == "call_module")
    layer = next((node for node in called if type(modules[str(node.target)]) is nn.Linear), None)
    if layer is None:
        raise _not_linear_first(network, "it has none")
    before = _ancestors(layer)
    for node in before:
        if not _is_affine(node, modules):
            raise _not_linear_first(network, f"{node.target} comes before it")
    after = [node for node in graph.nodes if node not in before and node is not layer]
    for node in after:
        if any(source in before for source in node.all_input_nodes):
            raise _not_linear_first(network, f"{node.target} sees the input past it")
    front = graph_of(network, [*before, layer], output=layer, entry=None)
    return front, graph_of(network, after, output=None, entry=layer)


def _not_linear_first(network: nn.Module, why: str) -> ModelError:
    return _refuse(network, f"the whole network must see the input through one linear layer, but {why}")


def _ancestors(layer: fx.Node) -> list[fx.Node]:
    """All nodes that the layer depends on, in graph order."""
    found: set[fx.Node] = set()
    waiting = list(layer.all_input_nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return [node for node in layer.graph.nodes if node in found]


def _is_affine(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "placeholder":
        return True
    if node.op == "call_module":
        layer = modules[str(node.target)]
        return type(layer) in _KEEPS_THE_LAW and not layer.training
    if any(isinstance(argument, torch.dtype) for argument in (*node.args, *node.kwargs.values())):
        return False  # x.view(dtype) reinterprets the bits of x
    if node.op == "call_method":
        return node.target in _SHAPING_METHODS
    if node.op != "call_function" or node.target not in _SHAPING_FUNCTIONS:
        return False
    return node.target is not getattr or node.args[1] == "shape"

"""Digests of torch networks: everything that can change a vote changes the digest."""

from __future__ import annotations

import copy
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.utils.parametrize as parametrize
from torch import nn
from torch.nn.modules import module as torch_module

from digest_models import Thresholded, fixed_weights, scale_by, small_digests
from smoothcert.models.torch_classifier import TorchClassifier
from smoothcert.models.torch_digest import exported_program_digest, module_digest


def digest(network: nn.Module) -> str:
    return module_digest(network, backend="torch")


def encoder(**settings: object) -> nn.Module:
    return fixed_weights(nn.TransformerEncoderLayer(8, dim_feedforward=4, batch_first=True, **settings)).eval()


def test_configuration_that_is_not_a_parameter():
    """Regression: other heads, activation or norm_first had the same digest."""
    variants = [
        encoder(nhead=1),
        encoder(nhead=2),
        encoder(nhead=2, activation="gelu"),
        encoder(nhead=2, norm_first=True),
        encoder(nhead=2, activation=nn.functional.silu),
        encoder(nhead=2, layer_norm_eps=1e-3),
    ]
    assert len({digest(one) for one in variants}) == len(variants)
    assert digest(encoder(nhead=2)) == digest(encoder(nhead=2))


def test_plain_attributes():
    """Regression: a run was resumed with another threshold."""
    values = [0.5, 0.25, 1, True, "a", (1, 2), [1, 2], {"a": 1}, torch.float64, torch.ones(2), torch.zeros(2), None]
    values += [torch.relu, torch.tanh, nn.functional.relu, scale_by(2.0), scale_by(3.0), slice(1, 2), Path("x")]
    found = set()
    for value in values:
        network = Thresholded()
        network.threshold = value
        found.add(digest(network))
    assert len(found) == len(values)


def test_the_digest_of_a_classifier_sees_plain_attributes():
    first, second = Thresholded(), Thresholded()
    second.threshold = 0.75
    digests = [TorchClassifier(one, num_classes=2).digest for one in (first, second)]
    assert digests[0] != digests[1]


def test_attributes_of_a_nested_module():
    def nested(threshold: float) -> nn.Module:
        inner = Thresholded()
        inner.threshold = threshold
        return nn.Sequential(nn.Identity(), nn.Sequential(inner))

    assert digest(nested(1.0)) == digest(nested(1.0))
    assert digest(nested(1.0)) != digest(nested(2.0))


def test_attributes_of_the_class():
    class First(nn.Module):
        limit = 1.0

    class Second(nn.Module):
        limit = 2.0

    Second.__qualname__ = First.__qualname__
    assert digest(First()) != digest(Second())


def test_code_of_a_class_without_readable_source():
    """`inspect.getsource` finds nothing for code that was executed from text."""

    def made(expression: str) -> nn.Module:
        names: dict[str, object] = {"nn": nn}
        exec(f"class Net(nn.Module):\n    def forward(self, x):\n        return {expression}", names)
        return names["Net"]()  # type: ignore[operator]

    assert digest(made("x + 1")) == digest(made("x + 1"))
    assert digest(made("x + 1")) != digest(made("x + 2"))
    assert digest(made("x + 1")) != digest(made("x - 1"))


def hook_of(amount: float):
    return lambda module, inputs: tuple(one.clamp(0, amount) for one in inputs)


def hooked(kind: str, amount: float) -> nn.Module:
    network = fixed_weights(nn.Sequential(nn.Linear(4, 2)))
    if kind == "pre":
        network.register_forward_pre_hook(hook_of(amount))
    elif kind == "inner pre":
        network[0].register_forward_pre_hook(hook_of(amount))
    elif kind == "pre with kwargs":
        network.register_forward_pre_hook(lambda m, a, k: ((a[0] * amount,), k), with_kwargs=True)
    elif kind == "forward":
        network.register_forward_hook(lambda m, i, o: o * amount)
    elif kind == "forward with kwargs":
        network.register_forward_hook(lambda m, i, k, o: o * amount, with_kwargs=True)
    elif kind == "override":
        network.forward = lambda x: x[:, :2] * amount
    elif kind == "parametrization":
        parametrize.register_parametrization(network[0], "weight", Scaling(amount))
    return network


class Scaling(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, weight):
        return weight * self.factor


def test_a_method_of_torch_that_was_replaced(monkeypatch):
    before = digest(nn.Sequential(nn.ReLU()))
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x)
    assert digest(nn.Sequential(nn.ReLU())) != before


HOOKS = ["pre", "inner pre", "pre with kwargs", "forward", "forward with kwargs", "override", "parametrization"]


def test_hooks_of_every_kind():
    found = {digest(hooked(kind, amount)) for kind in ["none", *HOOKS] for amount in (1.0, 2.0)}
    assert len(found) == 1 + 2 * len(HOOKS)


@pytest.mark.parametrize("kind", HOOKS)
def test_equal_hooks_have_equal_digests_whatever_their_number(kind):
    """torch numbers hooks with a counter of the process."""
    first = digest(hooked(kind, 1.0))
    nn.Identity().register_forward_hook(lambda *a: None)
    assert digest(hooked(kind, 1.0)) == first
    assert digest(copy.deepcopy(hooked(kind, 1.0))) == first


@pytest.mark.parametrize(
    "register",
    [torch_module.register_module_forward_hook, torch_module.register_module_forward_pre_hook],
)
def test_hooks_on_all_modules(register):
    network = nn.Linear(2, 2)
    before = digest(network)
    handle = register(lambda *arguments: None)
    try:
        assert digest(network) != before
    finally:
        handle.remove()
    assert digest(network) == before


def test_names_flags_and_tensors():
    def network(**changes):
        module = fixed_weights(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))).eval()
        for name, value in changes.items():
            setattr(module[1], name, value)
        return module

    renamed = nn.Sequential()
    for name, part in zip(("a", "b"), network(), strict=True):
        renamed.add_module(name, part)
    swapped = fixed_weights(nn.Sequential(nn.Tanh(), nn.ReLU()))
    variants = [
        network(),
        network().train(),
        network(eps=1e-3),
        network(running_mean=torch.ones(2)),
        network(weight=None),
        network().double(),
        network().bfloat16(),
        renamed,
        swapped,
        nn.Sequential(nn.ReLU(), nn.Tanh()),
    ]
    assert len({digest(one) for one in variants}) == len(variants)


def test_memory_format_of_weights():
    """Another layout is computed by another kernel, whose last bits may differ."""
    plain = fixed_weights(nn.Conv2d(3, 4, 3))
    last = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    assert digest(plain) != digest(last)
    assert digest(last) == digest(copy.deepcopy(last))
    # With one channel both layouts are the same bytes in the same order.
    flat = fixed_weights(nn.Conv2d(1, 4, 3))
    assert digest(flat) == digest(copy.deepcopy(flat).to(memory_format=torch.channels_last))


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support", "ignore:torch.quantize")
def test_tensors_of_every_kind():
    rows = torch.eye(3)
    tensors = [rows, rows.to_sparse(), rows.to_sparse_csr(), rows.to_sparse_csc(), rows.bool(), rows.to(torch.cfloat)]
    tensors += [
        rows.to(torch.cfloat).conj() * 1j,
        rows.to("meta"),
        torch.zeros(0),
        torch.zeros(0, 3),
        torch.tensor(1.0),
    ]
    tensors += [torch.quantize_per_tensor(rows, scale, 0, torch.quint8) for scale in (0.5, 0.25)]
    tensors += [2 * rows.to_sparse(), 2 * rows.to_sparse_csr(), rows.t()[:2], rows.half()]
    found = set()
    for tensor in tensors:
        network = Thresholded()
        network.register_buffer("extra", tensor)
        found.add(digest(network))
        assert digest(network) in found
    assert len(found) == len(tensors)


EVERYDAY = [
    lambda: encoder(nhead=2),
    Thresholded,
    lambda: nn.LSTM(3, 4, bidirectional=True),
    lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
    lambda: nn.utils.spectral_norm(nn.Linear(3, 2)),
    lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)),
    lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU())),
    lambda: nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Identity()}),
    lambda: nn.ParameterList([torch.ones(2), torch.zeros(3)]),
    lambda: nn.DataParallel(nn.Linear(2, 2)),
    lambda: torch.compile(nn.Linear(2, 2), backend="eager"),
    lambda: nn.Sequential(nn.EmbeddingBag(5, 3), nn.MultiheadAttention(4, 2)),
]


@pytest.mark.parametrize("make", EVERYDAY, ids=range(len(EVERYDAY)))
def test_a_copy_has_the_same_digest(make):
    torch.manual_seed(0)
    network = make()
    assert digest(network) == digest(copy.deepcopy(network)) == digest(network)


def test_weights_that_were_saved_and_loaded():
    def made():
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), encoder(nhead=2), Thresholded())

    saved, loaded, stream = made(), made(), io.BytesIO()
    with torch.no_grad():
        saved[0].weight.normal_()
    assert digest(saved) != digest(loaded)
    torch.save(saved.state_dict(), stream)
    stream.seek(0)
    loaded.load_state_dict(torch.load(stream, weights_only=True))
    loaded[0].bias.data = saved[0].bias.data.clone()
    assert digest(saved) == digest(loaded)


def test_torchscript():
    def traced(factor):
        network = fixed_weights(nn.Linear(3, 2))
        with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
            return torch.jit.trace(nn.Sequential(network, Scaling(factor)), torch.zeros(1, 3))

    first = traced(1.0)
    assert digest(first) == digest(copy.deepcopy(first))
    # TorchScript numbers the classes of later traces, but not those of the first.
    assert digest(traced(1.0)) == digest(traced(1.0))
    assert digest(traced(1.0)) != digest(traced(2.0))


def test_the_digest_is_the_same_in_every_process():
    """Addresses, the order of a set and numbers of objects do not count."""
    program = "import digest_models, json; print(json.dumps(digest_models.small_digests()))"
    here = small_digests()
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(answer.stdout) == here


def exported(network: nn.Module, **dynamic: int) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1, max=4096)
    return torch.export.export(network.eval(), (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))


class Computing(nn.Module):
    def __init__(self, *, factor: float = 2.0, constant: float = 3.0, offset: float = 0.5):
        super().__init__()
        self.layer = fixed_weights(nn.Linear(4, 3))
        self.factor = factor
        self.register_buffer("constant", torch.full((3,), constant))
        self.offset = torch.full((3,), offset)

    def forward(self, x):
        return torch.relu(self.layer(x)) * self.factor + self.constant + self.offset


class Renamed(Computing):
    def __init__(self):
        super().__init__()
        self.other = self.layer
        del self.layer

    def forward(self, inputs):
        hidden = self.other(inputs)
        active = torch.relu(hidden)
        return active * self.factor + self.constant + self.offset


def test_exported_graphs():
    variants = [Computing(), Computing(factor=3.0), Computing(constant=1.0), Computing(offset=1.0)]
    weights = Computing()
    with torch.no_grad():
        weights.layer.weight[0, 0] += 1
    variants += [weights, nn.Sequential(Computing(), nn.Tanh()), nn.Sequential(Computing(), nn.Sigmoid())]
    digests = [exported_program_digest(exported(one)) for one in variants]
    assert len(set(digests)) == len(variants)
    assert exported_program_digest(exported(Computing())) == digests[0]
    # The graph does not depend on what its parts are called.
    assert exported_program_digest(exported(Renamed())) == digests[0]


def test_the_graph_counts_beside_the_module():
    network = Computing()
    programs = [exported(network), exported(Computing(factor=3.0))]
    digests = {module_digest(network, backend="torch", program=program) for program in (None, *programs)}
    assert len(digests) == 3
    assert module_digest(network, backend="torch", program=exported(network)) in digests
    assert module_digest(network, backend="other") != digest(network)


def test_recording_what_a_graph_and_its_subgraphs_hold():
    class Branching(nn.Module):
        def __init__(self, amount):
            super().__init__()
            self.amount = amount

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda y: y + self.amount, lambda y: y - 1, (x,))

    digests = [exported_program_digest(exported(Branching(amount))) for amount in (1.0, 1.0, 2.0)]
    assert digests[0] == digests[1] != digests[2]

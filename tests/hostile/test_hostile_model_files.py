"""Model files made to do harm: no code is run, no room is made for what is only claimed, and the rest is a sentence."""

from __future__ import annotations

import json
import os
import pickle
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from foreseen import foreseen, same_every_time  # noqa: E402
from smoothcert.errors import CorruptRunError, ModelError  # noqa: E402
from smoothcert.models import load_classifier  # noqa: E402
from smoothcert.models.architectures import build  # noqa: E402
from smoothcert.models.checkpoints import (  # noqa: E402
    CheckpointHeader,
    ForeignCheckpointWarning,
    load_checkpoint,
    write_tensors,
)
from smoothcert.training.state import load_state  # noqa: E402

SHAPE = (1, 2, 2)
HEADER = CheckpointHeader(arch="mlp-4", num_classes=3, input_shape=SHAPE).to_json()
WEIGHTS = dict(build("mlp-4", num_classes=3, input_shape=SHAPE).state_dict())


def checkpoint(path: Path, **changes: Any) -> Path:
    """Weights of a small network under a header that says what it is told to, with the digest that belongs to it."""
    write_tensors(path, WEIGHTS, {**HEADER, **changes})
    return path


CLAIMS: dict[str, dict[str, Any]] = {
    "a billion classes": {"num_classes": 10**9},
    "more than a tensor can have": {"num_classes": 10**30},
    "a width of a billion": {"arch": "mlp-999999999"},
    "two widths of a million": {"arch": "mlp-1000000-1000000"},
    "five thousand digits": {"arch": "mlp-" + "9" * 5000},
    "sixty thousand layers": {"arch": "cifar_resnet60002", "input_shape": [3, 32, 32]},
    "an input of 10^18 numbers": {"input_shape": [10**9, 10**9]},
    "words to standardise by": {"standardise": [["a"], ["b"]]},
    "nothing to standardise by": {"standardise": [[None], [1.0]]},
    "lists to standardise by": {"standardise": [[[1.0]], [[1.0]]]},
    "too large to standardise by": {"standardise": [[10**400], [1]]},
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_header_cannot_ask_for_more_than_the_file_holds(
    tmp_path: Path, little_memory: Callable[[], int], claim: dict[str, Any]
) -> None:
    """Fails where the network is built first: 16 GB for a billion classes, two minutes for sixty thousand layers."""
    began = time.perf_counter()
    with pytest.raises(ModelError, match=r"x\.safetensors (does not fit|describes a network that cannot be built)"):
        load_checkpoint(checkpoint(tmp_path / "x.safetensors", **claim))
    assert time.perf_counter() - began < 10


def with_metadata(path: Path, text: str) -> Path:
    from safetensors.torch import save

    path.write_bytes(save(dict(WEIGHTS), metadata={"smoothcert": text}))
    return path


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, '{"format": 1e999}', "NaN", "", "\ud7ff"])
def test_metadata_that_is_too_much_for_its_reader(tmp_path: Path, text: str) -> None:
    """Fails where a RecursionError goes through."""
    with pytest.raises(ModelError):
        load_checkpoint(with_metadata(tmp_path / "x.safetensors", text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(field=st.sampled_from(sorted(HEADER)), value=JSON)
def test_any_value_in_any_field_of_the_header(tmp_path_factory: pytest.TempPathFactory, field: str, value: Any) -> None:
    """Fails where int(inf) is an OverflowError, and a mean of None a TypeError."""
    from smoothcert.models.checkpoints import _tensors_digest

    document = {**HEADER, field: value, "tensors_sha256": _tensors_digest(WEIGHTS)}
    path = with_metadata(tmp_path_factory.mktemp("model") / "x.safetensors", json.dumps(document))
    found = foreseen(partial(load_checkpoint, path))
    assert found is None or found.module(torch.zeros(1, *SHAPE)).shape == (1, 3)


def raw(path: Path, header: bytes, content: bytes = b"", *, length: int | None = None) -> Path:
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + content)
    return path


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, 99_000_000, 0])
def test_a_header_of_any_length(tmp_path: Path, little_memory: Callable[[], int], length: int) -> None:
    """Fails where room is made for it first."""
    with pytest.raises(ModelError, match="not a readable safetensors file"):
        load_checkpoint(raw(tmp_path / "x.safetensors", b"{}", length=length))


@settings(same_every_time, max_examples=60)
@given(
    dtype=st.sampled_from(["F32", "F64", "F8_E4M3", "F8_E5M2", "BF16", "BOOL", "U64", "C64", "F4", "I16", "no"]),
    shape=st.lists(st.integers(-1, 2**62), max_size=3),
    end=st.integers(-1, 2**40),
)
def test_any_tensor_in_a_header(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int], end: int
) -> None:
    """Fails where a type that torch cannot compute with (F8_E4M3) reaches the network."""
    header = json.dumps({"layers.0.weight": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}).encode()
    path = raw(tmp_path_factory.mktemp("model") / "x.safetensors", header, b"\1" * 64)
    assert foreseen(lambda: load_checkpoint(path, arch="mlp-4", input_shape=SHAPE)) is None


FOREIGN: dict[str, Callable[[], Any]] = {
    "numbers for names": lambda: {**WEIGHTS, 5: torch.zeros(1)},
    "sparse": lambda: {name: weight.to_sparse() for name, weight in WEIGHTS.items()},
    "without content": lambda: {name: weight.to("meta") for name, weight in WEIGHTS.items()},
    "complex": lambda: {name: weight.to(torch.complex64) for name, weight in WEIGHTS.items()},
    "sixteen gigabytes from one number": lambda: {
        "layers.0.weight": torch.zeros(4, 4),
        "layers.0.bias": torch.zeros(4),
        "layers.1.weight": torch.zeros(1, 1).expand(10**9, 4),
        "layers.1.bias": torch.zeros(1).expand(10**9),
    },
    "infinite in single precision": lambda: {name: weight.double() * 0 + 1e300 for name, weight in WEIGHTS.items()},
    "a number for a matrix": lambda: {"layers.0.weight": torch.zeros(())},
    "a list": lambda: [1],
    "nothing": dict,
}


@pytest.mark.parametrize("document", FOREIGN.values(), ids=FOREIGN)
def test_torch_files_hold_plain_tensors_or_are_refused(
    tmp_path: Path, little_memory: Callable[[], int], document: Callable[[], Any]
) -> None:
    """Fails where a tensor is believed to be what its shape says, and its name a name."""
    torch.save(document(), tmp_path / "x.pt")
    with pytest.raises(ModelError, match=r"x\.pt"):
        load_checkpoint(tmp_path / "x.pt", arch="mlp-4", input_shape=SHAPE)


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("ending", ["pt", "pth", "tar", "ckpt", "bin", "safetensors", "onnx", "pkl", "joblib"])
@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_no_pickle_is_run_under_any_name(tmp_path: Path, ending: str, writer: str) -> None:
    """Fails with torch.load(weights_only=False), pickle.load or joblib.load: the folder would be there."""
    if ending == "onnx":
        pytest.importorskip("onnxruntime")
    trap, path = tmp_path / "trapped", tmp_path / f"model.{ending}"
    if writer == "pickle":
        path.write_bytes(pickle.dumps(Trap(trap)))
    else:
        torch.save({"state_dict": WEIGHTS, "arch": Trap(trap)}, path)
    with pytest.raises(ModelError):
        load_classifier(path, arch="mlp-4", input_shape=SHAPE)
    assert not trap.exists()


@settings(same_every_time, max_examples=80)
@given(where=st.integers(0, 3000), new=st.binary(min_size=1, max_size=4), ending=st.sampled_from(["pt", "safetensors"]))
@pytest.mark.filterwarnings("ignore")
def test_damaged_weights_are_noticed_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, where: int, new: bytes, ending: str
) -> None:
    """Fails where a kind of exception is not foreseen, and where damage in ours changes an answer unseen."""
    path = tmp_path_factory.mktemp("model") / f"x.{ending}"
    if ending == "pt":
        torch.save({"arch": "mlp-4", "state_dict": WEIGHTS}, path)
    else:
        checkpoint(path)
    sound = path.read_bytes()
    where %= len(sound)
    path.write_bytes(sound[:where] + new + sound[where + len(new) :])
    if ending == "pt":
        foreseen(lambda: load_checkpoint(path, arch="mlp-4", input_shape=SHAPE))
        return
    found = foreseen(partial(load_checkpoint, path))
    if found is not None:
        assert all(torch.equal(tensor, WEIGHTS[name]) for name, tensor in found.module.state_dict().items())


@pytest.mark.parametrize("content", [b"", b"{}", struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 2**62)])
def test_a_damaged_state_of_training(tmp_path: Path, content: bytes) -> None:
    """Fails where it is taken for a new training: the old one would be overwritten."""
    (tmp_path / "x.partial").write_bytes(content)
    with pytest.raises(CorruptRunError, match="is damaged"):
        load_state(tmp_path / "x.partial")


@settings(same_every_time, max_examples=60)
@given(
    field=st.sampled_from(["settings", "computing", "epoch", "batch", "sums", "seconds", "history", "format"]),
    value=JSON,
)
def test_any_value_in_a_state_of_training(tmp_path_factory: pytest.TempPathFactory, field: str, value: Any) -> None:
    """Fails where a field is used before its type is seen."""
    from smoothcert.models.checkpoints import _tensors_digest

    tensors = {"noise": torch.zeros(3, dtype=torch.uint8)}
    document: dict[str, Any] = {
        "format": 1, "settings": {}, "computing": {}, "epoch": 1, "batch": 0, "sums": {}, "seconds": 1.0, "history": [],
        "tensors_sha256": _tensors_digest(tensors),
    }  # fmt: skip
    from safetensors.torch import save

    path = tmp_path_factory.mktemp("state") / "x.partial"
    path.write_bytes(save(tensors, metadata={"smoothcert": json.dumps({**document, field: value})}))
    foreseen(partial(load_state, path))


class TestOnnx:
    @pytest.fixture(autouse=True)
    def _onnx(self) -> None:
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")

    def model(self, path: Path, weight: Any, *, batch: object = "b") -> Path:
        from onnx import TensorProto, helper

        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])],
            [weight],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())
        return path

    def outside(self, location: str) -> Any:
        from onnx import TensorProto

        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 3], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", "0"), ("length", "48")):
            tensor.external_data.add(key=key, value=value)
        return tensor

    def ones(self) -> Any:
        from onnx import numpy_helper

        return numpy_helper.from_array(np.ones((4, 3), dtype=np.float32), "w")

    @pytest.mark.parametrize("place", ["../secret.bin", "{absolute}", "link.bin", "/dev/zero", "."])
    def test_weights_that_lie_outside(self, tmp_path: Path, place: str) -> None:
        """Fails where paths in a model are followed wherever they lead."""
        folder = tmp_path / "model"
        folder.mkdir()
        secret = tmp_path / "secret.bin"
        secret.write_bytes(np.ones(12, dtype=np.float32).tobytes())
        (folder / "link.bin").symlink_to(secret)
        path = self.model(folder / "x.onnx", self.outside(place.format(absolute=secret)))
        with pytest.raises(ModelError, match="cannot be loaded as an ONNX model"):
            load_classifier(path, input_shape=(4,))

    @pytest.mark.parametrize("length", [5, 127, 128, 200])
    def test_weights_beside_the_model_are_part_of_what_it_is(self, tmp_path: Path, length: int) -> None:
        """Fails where names longer than 127 bytes are overlooked: other weights under the same digest."""
        name = "w" * (length - 4) + ".bin"
        path = self.model(tmp_path / "x.onnx", self.outside(name))
        digests = set()
        for value in (1.0, 2.0):
            (tmp_path / name).write_bytes(np.full(12, value, dtype=np.float32).tobytes())
            digests.add(load_classifier(path, input_shape=(4,)).digest)
        assert len(digests) == 2

    def test_weights_are_found_whatever_the_order_of_the_fields(self, tmp_path: Path) -> None:
        """Fails where a key is looked for in front of its value: protobuf allows any order."""
        path = self.model(tmp_path / "x.onnx", self.outside("other.bin"))
        entry = b"\x0a\x08location", b"\x12\x09other.bin"
        assert b"".join(entry) in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(b"".join(entry), b"".join(reversed(entry))))
        digests = set()
        for value in (1.0, 2.0):
            (tmp_path / "other.bin").write_bytes(np.full(12, value, dtype=np.float32).tobytes())
            digests.add(load_classifier(path, input_shape=(4,)).digest)
        assert len(digests) == 2

    def test_weights_that_are_missing(self, tmp_path: Path) -> None:
        path = self.model(tmp_path / "x.onnx", self.outside("absent.bin"))
        with pytest.raises(ModelError, match=r"keeps weights in 'absent\.bin', which does not exist"):
            load_classifier(path, input_shape=(4,))

    def test_weights_in_every_part_of_a_model(self, tmp_path: Path) -> None:
        from onnx import SparseTensorProto, helper

        from smoothcert.models.onnx_session import external_files

        def constant(name: str) -> Any:
            return helper.make_node("Constant", [], ["y"], value=self.outside(name))

        def branch(name: str) -> Any:
            return helper.make_graph([constant(name)], "branch", [], [])

        sparse = SparseTensorProto(values=self.outside("values"), indices=self.outside("indices"), dims=[4, 3])
        chosen = helper.make_node("If", ["c"], ["y"], then_branch=branch("then"), else_branch=branch("else"))
        many = helper.make_node("Own", [], ["y"], tensors=[self.outside("t0"), self.outside("t1")], sparse=sparse)
        graph = helper.make_graph(
            [constant("node"), chosen, many], "g", [], [], [self.outside("initializer")], sparse_initializer=[sparse]
        )
        function = helper.make_function("d", "f", [], ["y"], [constant("function")], [helper.make_opsetid("", 17)])
        model = helper.make_model(graph, functions=[function])
        names = ["else", "function", "indices", "initializer", "node", "t0", "t1", "then", "values"]
        for name in names:
            (tmp_path / name).write_bytes(b"0")
        (tmp_path / "x.onnx").write_bytes(model.SerializeToString())
        assert [file.name for file in external_files(tmp_path / "x.onnx")] == names

    @pytest.mark.parametrize("batch", [0, 10**9, 10**13])
    def test_a_fixed_batch_of_any_size(self, tmp_path: Path, little_memory: Callable[[], int], batch: int) -> None:
        """Fails where a batch is filled up unseen: 15 GB of zeros, or a division by zero."""
        path = self.model(tmp_path / "x.onnx", self.ones(), batch=batch)
        with pytest.raises(ModelError, match="was exported for batches of shape"):
            load_classifier(path, input_shape=(4,))

    @pytest.mark.parametrize("dims", [[4, 10**12], [-4, 3], [0, 0]])
    def test_an_initialiser_without_its_numbers(self, tmp_path: Path, dims: list[int]) -> None:
        """Fails where room is made for it."""
        from onnx import TensorProto

        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
        foreseen(lambda: load_classifier(self.model(tmp_path / "x.onnx", weight), input_shape=(4,)))

    @settings(same_every_time, max_examples=60)
    @given(where=st.integers(0, 500), new=st.binary(min_size=1, max_size=4))
    def test_damaged_files(self, tmp_path_factory: pytest.TempPathFactory, where: int, new: bytes) -> None:
        """Fails where onnxruntime's own exceptions go through."""
        path = self.model(tmp_path_factory.mktemp("onnx") / "x.onnx", self.ones())
        sound = path.read_bytes()
        where %= len(sound)
        path.write_bytes(sound[:where] + new + sound[where + len(new) :])
        found = foreseen(lambda: load_classifier(path, input_shape=(4,)))
        votes = None if found is None else foreseen(lambda: found.classify(np.zeros((5, 4), dtype=np.float32)))
        assert votes is None or (votes.shape == (5,) and votes.min() >= 0)


def test_a_sound_foreign_file_is_still_read(tmp_path: Path) -> None:
    """Fails where suspicion has no end."""
    torch.save({"arch": "mlp-4", "state_dict": WEIGHTS}, tmp_path / "x.pt")
    with pytest.warns(ForeignCheckpointWarning):
        found = load_checkpoint(tmp_path / "x.pt", arch="mlp-4", input_shape=SHAPE)
    assert found.header.num_classes == 3

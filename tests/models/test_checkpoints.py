"""Checkpoints: round trips, foreign files with every prefix, and a message for every kind of damage."""

from __future__ import annotations

import json
import os
import pickle
import struct
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from smoothcert.errors import InputError, ModelError
from smoothcert.models import load_classifier
from smoothcert.models.architectures import build
from smoothcert.models.checkpoints import (
    CheckpointHeader,
    ForeignCheckpointWarning,
    load_checkpoint,
    read_tensors,
    save_checkpoint,
    write_tensors,
)
from smoothcert.models.tabular_names import get_class_names

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
INPUTS = torch.rand(5, 1, 7, 7, generator=torch.Generator().manual_seed(3))


def small_net(standardise=None):
    return build("small_net", num_classes=10, input_shape=(1, 7, 7), standardise=standardise).eval()


def header(standardise=None, **training):
    return CheckpointHeader("small_net", 10, (1, 7, 7), standardise, training)


def quiet_foreign(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignCheckpointWarning)
        return load_checkpoint(path, **options)


@pytest.mark.parametrize("standardise", [None, ((0.13,), (0.31,))])
def test_round_trip(tmp_path, standardise):
    module = small_net(standardise)
    written = header(standardise, sigma=0.25, note="π")
    save_checkpoint(tmp_path / "m.safetensors", module, written)
    loaded = load_checkpoint(tmp_path / "m.safetensors")
    assert loaded.header == written
    assert not loaded.module.training
    assert torch.equal(loaded.module(INPUTS), module(INPUTS))
    assert len(loaded.file_digest) == 64


def test_names_of_classes_are_kept_and_older_files_have_none(tmp_path):
    names = tuple("abcdefghij")
    save_checkpoint(tmp_path / "m.safetensors", small_net(), replace(header(), class_names=names))
    assert load_checkpoint(tmp_path / "m.safetensors").header.class_names == names
    assert get_class_names(load_classifier(tmp_path / "m.safetensors", device="cpu")) == names
    tensors, document = read_tensors(tmp_path / "m.safetensors")
    old = {name: value for name, value in document.items() if name != "class_names"}
    write_tensors(tmp_path / "old.safetensors", tensors, old)
    assert load_checkpoint(tmp_path / "old.safetensors").header == header()
    write_tensors(tmp_path / "bad.safetensors", tensors, old | {"class_names": ["a", "b"]})
    with pytest.raises(ModelError, match="2 names for 10 classes"):
        load_checkpoint(tmp_path / "bad.safetensors")


def test_nothing_but_the_checkpoint_is_left_in_the_folder(tmp_path):
    save_checkpoint(tmp_path / "new" / "m.safetensors", small_net(), header())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["m.safetensors"]
    (tmp_path / "plain").touch()
    assert (tmp_path / "new" / "m.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_existing_files_are_not_overwritten_unless_requested(tmp_path):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, small_net(), header())
    before = path.read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        save_checkpoint(path, small_net(), header())
    assert path.read_bytes() == before
    save_checkpoint(path, small_net(), header(), overwrite=True)
    assert path.read_bytes() != before


def test_unwritable_paths_are_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save_checkpoint(tmp_path / "file" / "m.safetensors", small_net(), header())


@pytest.mark.parametrize("keep", [0, 4, 100, -1, -1000])
def test_truncated_files_are_refused(tmp_path, keep):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, small_net(), header())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match="cut short or damaged"):
        load_checkpoint(path)


def test_one_flipped_bit_in_the_weights_is_noticed(tmp_path):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, small_net(), header())
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ModelError, match="do not match the digest"):
        load_checkpoint(path)


def test_files_of_other_kinds_are_refused(tmp_path):
    with pytest.raises(ModelError, match="there is no file"):
        load_checkpoint(tmp_path / "absent.safetensors")
    with pytest.raises(ModelError, match="there is no file"):
        load_checkpoint(tmp_path)
    (tmp_path / "text.safetensors").write_text("this is a text file, not a checkpoint")
    with pytest.raises(ModelError, match="not a readable safetensors file"):
        load_checkpoint(tmp_path / "text.safetensors")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 99}, "format 99"),
        ({"arch": None}, "cannot be built"),
        ({"num_classes": "many"}, "incomplete header"),
        ({"num_classes": 7}, r"has lin2.bias of shape \(10,\) instead of \(7,\)"),
        ({"input_shape": [1, 28, 28], "arch": "lenet"}, "does not fit LeNet: it lacks conv2.bias"),
        ({"standardise": [[0.5]]}, "incomplete header"),
    ],
)
def test_headers_that_do_not_fit_are_refused(tmp_path, change, sentence):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, small_net(), header())
    rewrite_header(path, lambda document: {**document, **change})
    with pytest.raises(ModelError, match=sentence):
        load_checkpoint(path)


def test_header_without_an_entry_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, small_net(), header())
    rewrite_header(path, lambda document: {key: value for key, value in document.items() if key != "arch"})
    with pytest.raises(ModelError, match="incomplete header"):
        load_checkpoint(path)


def rewrite_header(path, change):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    outer = json.loads(data[8 : 8 + size])
    outer["__metadata__"]["smoothcert"] = json.dumps(change(json.loads(outer["__metadata__"]["smoothcert"])))
    text = json.dumps(outer).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


@pytest.mark.parametrize("prefix", ["", "module.", "1.", "1.module.", "module.1."])
@pytest.mark.parametrize("suffix", ["pth.tar", "pth", "pt"])
def test_foreign_checkpoints_with_every_prefix(tmp_path, prefix, suffix):
    module = small_net()
    state = {prefix + name: tensor for name, tensor in module.state_dict().items()}
    path = tmp_path / f"m.{suffix}"
    torch.save({"epoch": 90, "arch": "small_mnist_net", "state_dict": state, "optimizer": {"lr": 0.1}}, path)
    with pytest.warns(ForeignCheckpointWarning, match="SHA-256 [0-9a-f]{64}"):
        loaded = load_checkpoint(path)
    assert loaded.header.arch == "small_net"
    assert loaded.header.standardise == ((0.1307,), (0.2307,))
    torch.testing.assert_close(loaded.module(INPUTS), module((INPUTS - 0.1307) / 0.2307))


def test_foreign_cifar_resnet_gets_its_normalisation(tmp_path):
    module = build("cifar_resnet20", num_classes=10, input_shape=(3, 32, 32)).eval()
    state = {
        f"1.module.{name}": tensor
        for name, tensor in module.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    torch.save({"arch": "cifar_resnet20", "state_dict": state}, tmp_path / "m.pth.tar")
    loaded = quiet_foreign(tmp_path / "m.pth.tar")
    assert loaded.header.standardise[0] == CIFAR_MEAN
    assert loaded.header.input_shape == (3, 32, 32)
    inputs = torch.rand(2, 3, 32, 32)
    mean = torch.tensor(CIFAR_MEAN).view(3, 1, 1)
    std = torch.tensor((0.2023, 0.1994, 0.2010)).view(3, 1, 1)
    torch.testing.assert_close(loaded.module(inputs), module((inputs - mean) / std), rtol=1e-4, atol=1e-4)


def test_foreign_normalisation_can_be_overridden(tmp_path):
    module = small_net()
    torch.save({"arch": "small_mnist_net", "state_dict": module.state_dict()}, tmp_path / "m.pth")
    loaded = quiet_foreign(tmp_path / "m.pth", standardise=((0.0,), (1.0,)))
    assert torch.equal(loaded.module(INPUTS), module(INPUTS))


def test_saved_normalisation_layer_is_used(tmp_path):
    module = small_net(((0.5,), (0.25,)))
    torch.save(module.state_dict(), tmp_path / "m.pth")
    loaded = quiet_foreign(tmp_path / "m.pth", arch="small_net")
    assert loaded.header.standardise == ((0.5,), (0.25,))
    assert torch.equal(loaded.module(INPUTS), module(INPUTS))


def test_bare_weights_need_an_architecture(tmp_path):
    module = small_net()
    torch.save(module.state_dict(), tmp_path / "m.pth")
    save_file(module.state_dict(), tmp_path / "m.safetensors")
    for name in ("m.pth", "m.safetensors"):
        with pytest.raises(ModelError, match="does not say which network it holds"):
            load_checkpoint(tmp_path / name)
        loaded = quiet_foreign(tmp_path / name, arch="small_net")
        assert loaded.header.standardise is None
        assert torch.equal(loaded.module(INPUTS), module(INPUTS))
    with pytest.raises(ModelError, match="does not say which network it holds: give arch"):
        load_checkpoint(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("arch", "shape"), [("lenet", (1, 28, 28)), ("mlp-5", (9,)), ("mlp", (3, 2)), ("cifar_resnet8", (3, 32, 32))]
)
def test_foreign_shapes_and_classes_are_seen_in_the_weights(tmp_path, arch, shape):
    module = build(arch, num_classes=4, input_shape=shape)
    torch.save({"arch": arch, "state_dict": module.state_dict()}, tmp_path / "m.pth")
    loaded = quiet_foreign(tmp_path / "m.pth", input_shape=None if len(shape) != 2 else shape)
    assert loaded.header.num_classes == 4
    assert loaded.header.input_shape == shape


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"arch": "vgg", "state_dict": {"w": torch.zeros(2, 2)}}, "there is no architecture 'vgg'"),
        ({"arch": "lenet", "state_dict": {"w": torch.zeros(2, 2)}}, "does not say which inputs lenet takes"),
        (
            {"arch": "small_mnist_net", "state_dict": {"w": torch.zeros(2, 2)}},
            "lacks conv1.bias, conv1.weight, lin1.bias",
        ),
        ({"arch": "small_mnist_net", "state_dict": {"w": torch.zeros(2)}}, "holds no linear layer"),
        ({"arch": "small_mnist_net", "state_dict": {}}, "holds a dict, not named tensors"),
        ({"arch": "small_mnist_net", "state_dict": {"w": 1}}, "holds a dict, not named tensors"),
        ([torch.zeros(2)], "holds a list, not named tensors"),
        (torch.zeros(2), "holds a Tensor, not named tensors"),
    ],
)
def test_foreign_files_that_do_not_fit(tmp_path, document, sentence):
    torch.save(document, tmp_path / "m.pth")
    with pytest.raises(ModelError, match=sentence):
        load_checkpoint(tmp_path / "m.pth")


def test_wrong_tensors_are_named(tmp_path):
    state = dict(small_net().state_dict())
    state["lin1.weight"] = torch.zeros(100, 143)
    state["extra"] = torch.zeros(1)
    torch.save({"arch": "small_mnist_net", "state_dict": state}, tmp_path / "m.pth")
    with pytest.raises(ModelError, match=r"has besides extra; it has lin1.weight of shape \(100, 143\) instead"):
        load_checkpoint(tmp_path / "m.pth")


def test_weights_that_are_not_finite_are_refused(tmp_path):
    state = dict(small_net().state_dict())
    state["lin1.bias"] = torch.full((100,), float("nan"))
    torch.save({"arch": "small_mnist_net", "state_dict": state}, tmp_path / "m.pth")
    with pytest.raises(ModelError, match="not finite"):
        load_checkpoint(tmp_path / "m.pth")


class RunsOnLoading:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_a_pickle_that_would_run_a_command_does_not_run_it(tmp_path, writer):
    trace, path = tmp_path / "was-run", tmp_path / "m.pth"
    document = {"arch": "small_mnist_net", "state_dict": RunsOnLoading(trace)}
    if writer == "torch":
        torch.save(document, path)
    else:
        path.write_bytes(pickle.dumps(document, protocol=2))
    with pytest.raises(ModelError, match=r"m\.pth was not loaded: it asks to run code \(.*system"):
        load_checkpoint(path)
    assert not trace.exists()
    with path.open("rb") as stream:
        if writer == "pickle":
            pickle.load(stream)  # the control: a careless loader does run it
            assert trace.exists()


@pytest.mark.parametrize("content", ["truncated", "text", "empty", "zeros"])
def test_damaged_torch_files_are_refused(tmp_path, content):
    path = tmp_path / "m.pth.tar"
    torch.save({"arch": "small_mnist_net", "state_dict": small_net().state_dict()}, path)
    whole = path.read_bytes()
    contents = {"truncated": whole[: len(whole) // 2], "text": b"not a model\n", "empty": b"", "zeros": bytes(1000)}
    path.write_bytes(contents[content])
    with pytest.raises(ModelError, match="was not loaded: it is cut short, damaged, or not a torch file"):
        load_checkpoint(path)


def test_levines_checkpoint_loads_and_classifies(shared_reference):
    path = shared_reference / "levine2021" / "models" / "small_mnist_net_noise_0.25.pth.tar"
    if not path.is_file():
        pytest.skip("the published checkpoint is not on this machine")
    with pytest.warns(ForeignCheckpointWarning):
        classifier = load_classifier(path, device="cpu")
    assert (classifier.num_classes, classifier.input_shape) == (10, (1, 7, 7))
    weights = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    batch = np.random.default_rng(0).random((64, 1, 7, 7), dtype=np.float32)
    functional = torch.nn.functional
    hidden = functional.conv2d(
        (torch.from_numpy(batch) - 0.1307) / 0.2307, weights["1.conv1.weight"], weights["1.conv1.bias"]
    )
    hidden = functional.linear(hidden.relu().flatten(1), weights["1.lin1.weight"], weights["1.lin1.bias"])
    logits = functional.linear(hidden.relu(), weights["1.lin2.weight"], weights["1.lin2.bias"])
    np.testing.assert_array_equal(classifier.classify(batch), logits.argmax(1).numpy())


@pytest.mark.parametrize(
    ("stated", "arch", "widths"),
    [("small_mnist_pca_net", "mlp-100-100", (10, 100, 100, 10)), ("swiss_roll_net", "mlp-10-10", (2, 10, 10, 2))],
)
@pytest.mark.parametrize("named", [False, True])
def test_levines_fully_connected_networks_load(tmp_path, stated, arch, widths, named):
    """Sequential(Identity, network with lin1, lin2, lin3), as their program saves it."""
    generator = torch.Generator().manual_seed(3)
    state = {}
    for place, (before, after) in enumerate(pairwise(widths), start=1):
        state[f"1.lin{place}.weight"] = torch.randn(after, before, generator=generator)
        state[f"1.lin{place}.bias"] = torch.randn(after, generator=generator)
    path = tmp_path / "checkpoint.pth.tar"
    torch.save({"epoch": 90, "arch": stated, "state_dict": state, "optimizer": {}}, path)
    with pytest.warns(ForeignCheckpointWarning):
        loaded = load_checkpoint(path, arch=arch if named else None)
    assert (loaded.header.arch, loaded.header.input_shape, loaded.header.num_classes) == (arch, widths[:1], widths[-1])
    assert loaded.header.standardise is None
    batch = torch.randn(64, widths[0], generator=generator)
    hidden = batch
    for place in (1, 2):
        linear = torch.nn.functional.linear(hidden, state[f"1.lin{place}.weight"], state[f"1.lin{place}.bias"])
        hidden = linear.relu()
    logits = torch.nn.functional.linear(hidden, state["1.lin3.weight"], state["1.lin3.bias"])
    torch.testing.assert_close(loaded.module(batch), logits, rtol=0, atol=0)


def test_a_file_with_two_layers_for_one_place_is_refused(tmp_path):
    network = build("mlp-10-10", num_classes=2, input_shape=(2,))
    state = {**network.state_dict(), "lin1.weight": torch.zeros(10, 2)}
    path = tmp_path / "checkpoint.pth.tar"
    torch.save({"arch": "swiss_roll_net", "state_dict": state}, path)
    with pytest.raises(ModelError, match=r"does not fit MLP: it has besides lin1\.weight"):
        load_checkpoint(path)


def test_naming_the_architecture_a_file_states_changes_nothing(tmp_path):
    """Published files have no normalisation constants; they are found by the architecture in the file."""
    path = tmp_path / "net.pth.tar"
    network = build("small_net", num_classes=10, input_shape=(1, 7, 7))
    torch.save({"arch": "small_mnist_net", "state_dict": network.state_dict()}, path)
    with pytest.warns(ForeignCheckpointWarning):
        plain, ours, theirs = (load_checkpoint(path, arch=arch) for arch in (None, "small_net", "small_mnist_net"))
    assert plain.header.standardise == ((0.1307,), (0.2307,))
    assert ours.header == plain.header == theirs.header

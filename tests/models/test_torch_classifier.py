"""Torch modules as classifiers: the votes of the module, for every batch, graph and thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.errors import InputError, ModelError
from smoothcert.models.architectures import build
from smoothcert.models.base import DeviceClassifier
from smoothcert.models.devices import torch_threads
from smoothcert.models.torch_classifier import TorchClassifier, TorchDeviceClassifier, pad_batch

SMALL = [("mlp", (1, 8, 8)), ("lenet", (1, 28, 28)), ("small_net", (1, 7, 7)), ("cifar_resnet20", (3, 32, 32))]


def network(arch, shape, *, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(arch, num_classes=10, input_shape=shape, standardise=((0.4,), (0.3,)))


def noisy_batch(rows, shape, *, seed=0):
    return np.random.default_rng(seed).normal(0.4, 0.5, (rows, *shape)).astype(np.float32)


@pytest.mark.parametrize(("arch", "shape"), SMALL)
def test_frozen_votes_equal_eager_votes(arch, shape):
    module = network(arch, shape).eval()
    classifier = TorchClassifier(module, input_shape=shape)
    assert classifier.backend == "torch cpu frozen"
    assert classifier.num_classes == 10
    batch = noisy_batch(96, shape)
    with torch.inference_mode():
        logits = module(torch.from_numpy(batch))
    top = logits.topk(2).values
    clear = (top[:, 0] - top[:, 1] > 1e-4).numpy()
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(classifier.classify(batch)[clear], logits.argmax(1).numpy()[clear])


@pytest.mark.parametrize(("arch", "shape"), SMALL)
def test_logits_of_a_row_do_not_depend_on_its_place_its_batch_or_the_threads(arch, shape):
    classifier = TorchClassifier(network(arch, shape), input_shape=shape)
    batch = noisy_batch(80, shape)

    def logits(rows_at_once, *, threads=1):
        parts = [batch[start : start + rows_at_once] for start in range(0, 80, rows_at_once)]
        with torch_threads(threads), torch.inference_mode():
            kept = [classifier._forward(torch.from_numpy(pad_batch(part)))[: len(part)] for part in parts]
        return torch.cat(kept)

    whole = logits(80)
    others = [*(logits(rows_at_once) for rows_at_once in (1, 7, 33, 64, 79)), logits(80, threads=2)]
    for other in others:
        torch.testing.assert_close(other, whole, rtol=1e-5, atol=1e-5)
    if not all(torch.equal(other, whole) for other in others):
        pytest.xfail("the matrix kernels of this processor sum a row differently from batch to batch")


def test_linear_layers_keep_the_product_that_treats_rows_alike():
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))  # no chain of products, because of its Tanh
    classifier = TorchClassifier(module, input_shape=(4,))
    operations = {node.kind() for node in classifier._forward.graph.nodes()}
    assert "aten::addmm" in operations
    assert not operations & {"aten::matmul", "aten::linear"}


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(4, 3),
        nn.Linear(4, 3, bias=False),
        nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 3), nn.Flatten(), nn.Linear(6, 3)),
    ],
    ids=["bare", "without bias", "on three dimensions"],
)
def test_linear_layers_of_every_kind(module):
    classifier = TorchClassifier(module, input_shape=(4,))
    assert classifier.backend == "torch cpu frozen"
    batch = noisy_batch(50, (4,))
    with torch.inference_mode():
        np.testing.assert_array_equal(classifier.classify(batch), module(torch.from_numpy(batch)).argmax(1).numpy())


def test_the_callers_module_is_left_alone():
    module = network("cifar_resnet20", (3, 32, 32)).double().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    TorchClassifier(module, input_shape=(3, 32, 32)).classify(noisy_batch(4, (3, 32, 32)))
    assert module.training
    assert all(parameter.requires_grad and parameter.dtype == torch.float64 for parameter in module.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_later_changes_of_the_callers_module_change_nothing():
    module = network("mlp", (4,))
    classifier = TorchClassifier(module, input_shape=(4,))
    batch = noisy_batch(32, (4,))
    before = classifier.classify(batch)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.neg_()
    np.testing.assert_array_equal(classifier.classify(batch), before)


class Fixed(nn.Module):
    """Returns the first K columns of its input, plus a bias so that there is a parameter to copy."""

    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, inputs):
        return inputs[:, : self.num_classes] + self.bias


HOSTILE = np.array(
    [
        [1, 2, 3],
        [3, 3, 3],
        [np.nan, 1, 2],
        [1, 2, np.nan],
        [np.inf, 0, 0],
        [-np.inf, 0, 1],
        [-np.inf, -np.inf, -np.inf],
        [0, 5, 5],
    ],
    dtype=np.float32,
)


@pytest.mark.parametrize("input_shape", [(3,), None])
def test_ties_and_non_finite_logits(input_shape):
    classifier = TorchClassifier(Fixed(3), num_classes=3, input_shape=input_shape)
    assert classifier.backend == f"torch cpu {'eager' if input_shape is None else 'frozen'}"
    assert classifier.classify(HOSTILE).tolist() == [2, 0, 3, 3, 3, 2, 3, 1]


def test_device_classifier_on_tensors():
    classifier = TorchDeviceClassifier(Fixed(3), device=torch.device("cpu"), input_shape=(3,))
    assert isinstance(classifier, DeviceClassifier)
    votes = classifier.classify_tensor(torch.from_numpy(HOSTILE.copy()))
    assert votes.dtype == torch.int64
    assert votes.device == classifier.device
    assert votes.tolist() == [2, 0, 3, 3, 3, 2, 3, 1]
    np.testing.assert_array_equal(classifier.classify(HOSTILE), votes.numpy())
    assert classifier.concurrency == 1


def test_the_cpu_classifier_is_not_a_device_classifier():
    assert not isinstance(TorchClassifier(Fixed(3), num_classes=3), DeviceClassifier)


def test_device_classifier_agrees_with_the_module():
    module = network("lenet", (1, 28, 28)).eval()
    classifier = TorchDeviceClassifier(module, device=torch.device("cpu"), input_shape=(1, 28, 28))
    batch = torch.from_numpy(noisy_batch(40, (1, 28, 28)))
    with torch.inference_mode():
        assert torch.equal(classifier.classify_tensor(batch), module(batch).argmax(1))
    with pytest.raises(InputError, match="the model takes"):
        classifier.classify_tensor(batch[:, :, :20])


class DataDependent(nn.Module):
    """Python control flow on values: a trace would keep one branch."""

    def forward(self, inputs):
        return -inputs if bool(inputs.sum() > 1e9) else inputs


class ShapeBound(nn.Module):
    """Works for every batch, but its trace contains the batch size of the example."""

    def forward(self, inputs):
        rows = int(inputs.shape[0])
        return inputs + torch.arange(rows, dtype=torch.float32)[:, None]


@pytest.mark.parametrize("module", [DataDependent(), ShapeBound()])
def test_modules_that_cannot_be_traced_run_as_they_are(module):
    classifier = TorchClassifier(module, input_shape=(4,))
    assert classifier.backend == "torch cpu eager"
    batch = noisy_batch(50, (4,))
    np.testing.assert_array_equal(classifier.classify(batch), batch.argmax(1))


def test_a_random_model_is_refused():
    class Dropping(nn.Module):
        def forward(self, inputs):
            return nn.functional.dropout(inputs, 0.5, training=True)

    with pytest.raises(ModelError, match="must be deterministic"):
        TorchClassifier(Dropping(), input_shape=(10,))


def test_threads_agree():
    classifier = TorchClassifier(network("lenet", (1, 28, 28)), input_shape=(1, 28, 28))
    batches = [noisy_batch(64, (1, 28, 28), seed=seed) for seed in range(8)]
    expected = [classifier.classify(batch) for batch in batches]
    found = [None] * 8

    def work(first):
        classifier.prepare_thread()
        for number in range(first, 8, 2):
            found[number] = classifier.classify(batches[number])

    workers = [threading.Thread(target=work, args=(first,)) for first in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    np.testing.assert_array_equal(found, expected)


class Answering(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, inputs):
        return self.answer(inputs)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda x: (x, x), "answers with a tuple"),
        (lambda x: x.argmax(1), "torch.int64 values"),
        (lambda x: x.sum(1), r"shape \(2,\)"),
        (lambda x: x[None], r"shape \(1, 2, 4\)"),
        (lambda x: x[:1], r"shape \(1, 4\)"),
        (lambda x: x @ torch.zeros(7, 2), r"does not take inputs of shape \(4,\)"),
    ],
)
def test_answers_that_are_not_logits_are_explained(answer, sentence):
    with pytest.raises(ModelError, match=sentence):
        TorchClassifier(Answering(answer), input_shape=(4,))


def test_wrong_answers_without_a_known_shape_are_explained():
    batch = noisy_batch(3, (4,))
    with pytest.raises(ModelError, match=r"expected logits of shape \(16, 3\)"):
        TorchClassifier(Answering(lambda x: x), num_classes=3).classify(batch)
    with pytest.raises(ModelError, match=r"failed on a float32 batch of shape \(16, 4\)"):
        TorchClassifier(nn.Linear(5, 3), num_classes=3).classify(batch)


def test_wrong_inputs_and_classes_are_explained():
    module = network("mlp", (4,))
    with pytest.raises(InputError, match=r"inputs of shape \(5,\) were given"):
        TorchClassifier(module, input_shape=(4,)).classify(noisy_batch(2, (5,)))
    with pytest.raises(ModelError, match="answers with 10 classes, but num_classes=3"):
        TorchClassifier(module, input_shape=(4,), num_classes=3)
    with pytest.raises(InputError, match="give num_classes"):
        TorchClassifier(module)


def test_read_only_batches_are_accepted():
    batch = noisy_batch(16, (4,))
    classifier = TorchClassifier(network("mlp", (4,)), input_shape=(4,))
    expected = classifier.classify(batch)
    batch.setflags(write=False)
    np.testing.assert_array_equal(classifier.classify(batch), expected)


def test_bfloat16_logits_are_accepted():
    classifier = TorchClassifier(Answering(lambda x: x.bfloat16()), num_classes=3)
    assert classifier.classify(np.eye(3, dtype=np.float32)).tolist() == [0, 1, 2]


def test_digest_tells_weights_structure_and_back_end_apart():
    first = TorchClassifier(network("mlp", (4,), seed=0), input_shape=(4,))
    again = TorchClassifier(network("mlp", (4,), seed=0), input_shape=(4,))
    others = [
        TorchClassifier(network("mlp", (4,), seed=1), input_shape=(4,)),
        TorchClassifier(network("mlp", (4,), seed=0), num_classes=10),
        TorchDeviceClassifier(network("mlp", (4,), seed=0), device=torch.device("cpu"), input_shape=(4,)),
        TorchClassifier(nn.Sequential(network("mlp", (4,), seed=0), nn.Tanh()), input_shape=(4,)),
    ]
    assert first.digest == again.digest
    assert len({first.digest, *(other.digest for other in others)}) == 5


def test_digest_sees_buffers_that_are_not_saved():
    def with_buffer(value):
        module = Fixed(3)
        module.register_buffer("scale", torch.tensor(value), persistent=False)
        return TorchClassifier(module, num_classes=3).digest

    assert with_buffer(1.0) != with_buffer(2.0)

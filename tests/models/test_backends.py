"""Torch networks computed by onnxruntime: equal up to rounding, independent of the batch, used only on request."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from smoothcert.errors import BatchTooLargeError, InputError, MissingExtraError, ModelError
from smoothcert.models import as_classifier, load_classifier
from smoothcert.models.architectures import build
from smoothcert.models.backends import get_backend_name
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.models.exported_classifier import ExportedClassifier, export_onnx
from smoothcert.models.torch_classifier import TorchClassifier, TorchDeviceClassifier

SMALL = [("mlp", (1, 8, 8)), ("lenet", (1, 28, 28)), ("small_net", (1, 7, 7)), ("cifar_resnet20", (3, 32, 32))]


def network(arch, shape, *, standardise=((0.4,), (0.3,)), seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(arch, num_classes=10, input_shape=shape, standardise=standardise).eval()


def noisy_batch(rows, shape, *, seed=0):
    return np.random.default_rng(seed).normal(0.4, 0.5, (rows, *shape)).astype(np.float32)


def logits_of(module, batch):
    with torch.inference_mode():
        return module(torch.from_numpy(batch)).numpy()


@pytest.mark.parametrize("standardise", [((0.4,), (0.3,)), None], ids=["standardised", "plain"])
@pytest.mark.parametrize(("arch", "shape"), SMALL)
def test_votes_and_scores_are_those_of_torch_but_for_rounding(arch, shape, standardise):
    module = network(arch, shape, standardise=standardise)
    by_torch = TorchClassifier(module, input_shape=shape)
    classifier = ExportedClassifier(module, input_shape=shape)
    assert classifier.backend == "onnxruntime cpu from torch"
    assert classifier.num_classes == 10
    batch = noisy_batch(96, shape)
    logits = logits_of(module, batch)
    np.testing.assert_allclose(classifier._logits(batch), logits, rtol=0, atol=1e-5 * np.abs(logits).max())
    top = np.sort(logits, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-4
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(classifier.classify(batch)[clear], logits.argmax(1)[clear])
    votes, scores = classifier.votes_and_scores(batch)
    np.testing.assert_array_equal(votes, classifier.classify(batch))
    np.testing.assert_allclose(scores, by_torch.votes_and_scores(batch)[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("arch", "shape"), SMALL)
def test_logits_of_a_row_do_not_depend_on_its_place_its_batch_or_other_threads(arch, shape):
    classifier = ExportedClassifier(network(arch, shape), input_shape=shape)
    batch = noisy_batch(80, shape)
    found = {}

    def logits(rows_at_once):
        parts = [classifier._logits(batch[start : start + rows_at_once]) for start in range(0, 80, rows_at_once)]
        found[rows_at_once] = np.concatenate(parts)

    logits(80)
    threads = [threading.Thread(target=logits, args=(rows_at_once,)) for rows_at_once in (1, 7, 33, 64, 79)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for other in found.values():
        np.testing.assert_allclose(other, found[80], rtol=1e-5, atol=1e-5)
    if not all(np.array_equal(other, found[80]) for other in found.values()):
        pytest.xfail("the matrix kernels of this processor sum a row differently from batch to batch")


def test_the_large_residual_network():
    module = network("resnet50", (3, 64, 64), standardise=((0.5, 0.4, 0.3), (0.2, 0.25, 0.3)))
    classifier = ExportedClassifier(module, input_shape=(3, 64, 64))
    batch = noisy_batch(8, (3, 64, 64))
    logits = logits_of(module, batch)
    np.testing.assert_allclose(classifier._logits(batch), logits, rtol=0, atol=1e-4 * np.abs(logits).max())


def test_the_digest_is_of_weights_and_back_end():
    module, same, other = network("mlp", (4,)), network("mlp", (4,)), network("mlp", (4,), seed=1)
    digest = ExportedClassifier(module, input_shape=(4,)).digest
    assert digest == ExportedClassifier(same, input_shape=(4,)).digest
    assert digest != ExportedClassifier(other, input_shape=(4,)).digest
    assert digest != TorchClassifier(module, input_shape=(4,)).digest


def test_the_callers_module_is_left_alone():
    module = network("cifar_resnet20", (3, 32, 32)).train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    ExportedClassifier(module, input_shape=(3, 32, 32)).classify(noisy_batch(4, (3, 32, 32)))
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


class Branching(nn.Module):
    """Another function if the first value is large: a trace would contain one branch only."""

    def forward(self, inputs):
        return inputs[:, :3] if inputs[0, 0] > 0.5 else -inputs[:, :3]


class Counting(nn.Module):
    """The answer depends on the number of rows, so the export for one batch size is wrong for others."""

    def forward(self, inputs):
        rows = torch.jit.annotate(int, int(inputs.shape[0]))
        return inputs[:, :3] * float(rows)


class Unknown(nn.Module):
    """An operation that ONNX does not have."""

    def forward(self, inputs):
        return torch.special.bessel_j0(inputs)


class Unsteady(nn.Module):
    def forward(self, inputs):
        return inputs + torch.rand_like(inputs)


@pytest.mark.parametrize("module", [Branching(), Counting(), Unknown()])
def test_unfaithful_exports_are_refused_and_fastest_uses_torch(module):
    with pytest.raises(ModelError, match="use the back end torch"):
        as_classifier(module, input_shape=(3,), backend="onnxruntime")
    assert as_classifier(module, input_shape=(3,), device="cpu", backend="fastest").backend.startswith("torch cpu")


def test_a_random_model_is_refused_for_export():
    with pytest.raises(ModelError, match="deterministic"):
        as_classifier(Unsteady(), input_shape=(3,), backend="onnxruntime")


def test_it_must_know_the_shape_of_an_input():
    with pytest.raises(InputError, match="give input_shape"):
        as_classifier(network("mlp", (4,)), num_classes=10, backend="onnxruntime")
    assert as_classifier(network("mlp", (4,)), num_classes=10, device="cpu", backend="fastest").backend == (
        "torch cpu eager"
    )


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_and_fastest_uses_torch(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package}: pip install 'smoothcert\[onnx\]'"):
        as_classifier(network("mlp", (4,)), input_shape=(4,), backend="onnxruntime")
    assert as_classifier(network("mlp", (4,)), input_shape=(4,), device="cpu", backend="fastest").backend == (
        "torch cpu frozen"
    )


def test_a_device_without_its_provider_is_refused():
    with pytest.raises(InputError, match="no CUDAExecutionProvider"):
        as_classifier(network("mlp", (4,)), input_shape=(4,), device="cuda", backend="onnxruntime")


def argmax(batch):
    return batch


@pytest.mark.parametrize("backend", ["torch", "onnxruntime", "fastest"])
def test_other_models_have_a_back_end_of_their_own(backend):
    fitted = LogisticRegression().fit(noisy_batch(20, (4,)), np.arange(20) % 3)
    for model, name in ((fitted, "LogisticRegression"), (argmax, "function")):
        with pytest.raises(InputError, match=rf"--backend {backend} is for torch networks, but the model is a {name}"):
            as_classifier(model, num_classes=4, input_shape=(4,), backend=backend)


def test_an_onnx_file_is_computed_by_onnxruntime(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(export_onnx(network("mlp", (4,)), (4,)))
    assert load_classifier(path, backend="onnxruntime").digest == load_classifier(path).digest
    for backend in ("torch", "fastest"):
        with pytest.raises(InputError, match="an ONNX file, which is computed by onnxruntime: leave --backend out"):
            load_classifier(path, backend=backend)


def test_a_base_classifier_keeps_its_back_end():
    classifier = as_classifier(network("mlp", (4,)), input_shape=(4,), backend="onnxruntime")
    assert as_classifier(classifier, backend="onnxruntime") is classifier
    with pytest.raises(InputError, match="computed by onnxruntime"):
        as_classifier(classifier, backend="torch")


def test_an_unknown_back_end_is_refused(tmp_path):
    for model in (network("mlp", (4,)), str(tmp_path / "m.safetensors"), argmax):
        with pytest.raises(InputError, match="there is no back end 'openvino': use torch, onnxruntime or fastest"):
            as_classifier(model, input_shape=(4,), backend="openvino")


def test_a_checkpoint_by_every_back_end(tmp_path):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, network("mlp", (4,), standardise=None), CheckpointHeader("mlp", 10, (4,)))
    assert load_classifier(path, device="cpu").backend == "torch cpu frozen"
    assert load_classifier(path, device="cpu", backend="torch").backend == "torch cpu frozen"
    by_onnxruntime = load_classifier(path, backend="onnxruntime")
    assert by_onnxruntime.backend == "onnxruntime cpu from torch"
    assert by_onnxruntime.description == "mlp from m.safetensors, 10 classes, inputs not standardised"


@pytest.mark.parametrize("slower", [TorchClassifier, ExportedClassifier])
def test_fastest_takes_the_faster_one(slower, monkeypatch):
    quick = slower.classify

    def delayed(self, batch):
        threading.Event().wait(0.02)
        return quick(self, batch)

    monkeypatch.setattr(slower, "classify", delayed)
    found = as_classifier(network("mlp", (4,)), input_shape=(4,), device="cpu", backend="fastest")
    assert isinstance(found, ExportedClassifier if slower is TorchClassifier else TorchClassifier)


def test_noise_in_the_first_layer_with_the_rest_by_onnxruntime():
    module = network("mlp", (1, 28, 28))
    plain = as_classifier(module, input_shape=(1, 28, 28), device="cpu", noise_at="first-layer")
    other = as_classifier(module, input_shape=(1, 28, 28), device="cpu", noise_at="first-layer", backend="onnxruntime")
    assert other.backend == "onnxruntime cpu from torch, noise in the first layer"
    batch = noisy_batch(64, (1, 28, 28))
    np.testing.assert_array_equal(other.classify(batch), plain.classify(batch))
    settled = as_classifier(module, input_shape=(1, 28, 28), device="cpu", noise_at="first-layer", backend="fastest")
    assert settled.backend in (plain.backend, other.backend)


def test_a_batch_that_does_not_fit_in_memory_has_its_own_error(monkeypatch):
    classifier = ExportedClassifier(network("mlp", (4,)), input_shape=(4,))

    class Full:
        def run(self, *_):
            raise RuntimeError("Failed to allocate memory for requested buffer of size 1")

    monkeypatch.setattr(classifier, "_session", Full())
    with pytest.raises(BatchTooLargeError, match="smaller --batch"):
        classifier.classify(noisy_batch(4, (4,)))


def test_names_of_back_ends(tmp_path):
    module = network("mlp", (4,))
    path = tmp_path / "model.onnx"
    path.write_bytes(export_onnx(module, (4,)))
    estimator = LogisticRegression().fit(np.eye(4), [0, 1, 0, 1])
    classifiers = [
        TorchClassifier(module, input_shape=(4,)),
        TorchDeviceClassifier(module, device=torch.device("cpu"), input_shape=(4,)),
        load_classifier(path, device="cpu"),
        ExportedClassifier(module, input_shape=(4,)),
        as_classifier(module, input_shape=(4,), device="cpu", noise_at="input", backend="onnxruntime"),
        as_classifier(estimator),
        None,
    ]
    assert [get_backend_name(classifier) for classifier in classifiers] == [
        "torch", "torch", "onnxruntime", "onnxruntime", "onnxruntime", None, None,
    ]  # fmt: skip

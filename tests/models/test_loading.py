"""`as_classifier` and `load_classifier` choose the adapter, and explain what they cannot load."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from smoothcert.errors import InputError, ModelError
from smoothcert.models import as_classifier, load_classifier
from smoothcert.models.architectures import build
from smoothcert.models.callable_classifier import CallableClassifier
from smoothcert.models.checkpoints import CheckpointHeader, ForeignCheckpointWarning, save_checkpoint
from smoothcert.models.sklearn_classifier import SklearnClassifier
from smoothcert.models.torch_classifier import TorchClassifier

BATCH = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)


def argmax(batch):
    return batch


def linear():
    return build("mlp", num_classes=3, input_shape=(4,))


def checkpoint(path):
    save_checkpoint(path, linear(), CheckpointHeader("mlp", 3, (4,)))
    return path


def test_importing_models_imports_no_framework():
    program = (
        "import sys, smoothcert.models; print([m for m in ('torch', 'sklearn', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_kind_of_object_finds_its_adapter(tmp_path):
    fitted = LogisticRegression().fit(BATCH, np.arange(20) % 3)
    path = checkpoint(tmp_path / "m.safetensors")
    kinds = {
        TorchClassifier: [linear(), path, str(path)],
        SklearnClassifier: [fitted],
        CallableClassifier: [argmax],
    }
    for kind, models in kinds.items():
        for model in models:
            classifier = as_classifier(model, input_shape=[4], device="cpu")
            assert type(classifier) is kind
            assert as_classifier(classifier) is classifier
            assert set(classifier.classify(BATCH)) <= set(range(classifier.num_classes))


def test_a_given_digest_replaces_the_computed_one():
    assert as_classifier(linear(), input_shape=(4,), device="cpu", digest="abc").digest == "abc"
    given = as_classifier(argmax, num_classes=4, digest="abc").digest
    assert given != as_classifier(argmax, num_classes=4).digest


class InferenceSession:
    """Has the name of the class in onnxruntime."""


@pytest.mark.parametrize(
    ("model", "sentence"),
    [(7, "a int is not a model"), ([1], "a list is not a model"), (InferenceSession(), "give the path")],
)
def test_objects_that_are_not_models_are_explained(model, sentence):
    with pytest.raises(InputError, match=sentence):
        as_classifier(model, num_classes=2)


def test_unknown_device_is_refused_for_every_model():
    with pytest.raises(InputError, match="device 'gpu' is unknown"):
        as_classifier(argmax, num_classes=2, device="gpu")


def test_checkpoint_contradictions_are_named(tmp_path):
    path = checkpoint(tmp_path / "m.safetensors")
    assert load_classifier(path, device="cpu", arch="MLP", num_classes=3, input_shape=(4,)).num_classes == 3
    with pytest.raises(ModelError, match=r"takes inputs of shape \(4,\), but the inputs have shape \(5,\)"):
        load_classifier(path, input_shape=(5,))
    with pytest.raises(ModelError, match="says num_classes is 3, but 10 was given"):
        load_classifier(path, num_classes=10)
    with pytest.raises(ModelError, match="says standardise is None"):
        load_classifier(path, standardise=((0.5,), (0.5,)))


def test_loaded_and_direct_models_have_one_digest(tmp_path):
    module = linear()
    save_checkpoint(tmp_path / "m.safetensors", module, CheckpointHeader("mlp", 3, (4,)))
    loaded = load_classifier(tmp_path / "m.safetensors", device="cpu")
    assert loaded.digest == as_classifier(module, input_shape=(4,), device="cpu").digest
    assert loaded.description == "mlp from m.safetensors, 3 classes, inputs not standardised"


def test_foreign_files_by_name(tmp_path):
    module = linear()
    torch.save(module.state_dict(), tmp_path / "m.pt")
    with pytest.warns(ForeignCheckpointWarning):
        classifier = load_classifier(tmp_path / "m.pt", arch="mlp", device="cpu")
    with torch.inference_mode():
        np.testing.assert_array_equal(classifier.classify(BATCH), module(torch.from_numpy(BATCH)).argmax(1).numpy())


@pytest.mark.parametrize("spec", ["model.h5", "nothing", "a folder/with spaces:x"])
def test_unknown_file_types_are_explained(spec):
    with pytest.raises(ModelError, match="is not a model smoothcert can load"):
        load_classifier(spec)


@pytest.mark.parametrize("name", ["absent.safetensors", "absent.pth", "absent.onnx"])
def test_missing_files_are_named(name):
    with pytest.raises(ModelError, match="there is no file"):
        load_classifier(name)


USER_CODE = """
import numpy as np

def logits(batch):
    return batch

def make(scale=2.0):
    return lambda batch: batch * scale

class Predictor:
    def __call__(self, batch):
        return -batch

class Holder:
    inner = Predictor()

def broken():
    return 1 / 0
"""


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    (tmp_path / "my_users_models.py").write_text(USER_CODE)
    monkeypatch.chdir(tmp_path)
    yield "my_users_models"
    sys.modules.pop("my_users_models", None)


@pytest.mark.parametrize(("name", "sign"), [("logits", 1), ("make", 1), ("Predictor", -1), ("Holder.inner", -1)])
def test_users_code_is_imported_from_the_current_folder(user_module, name, sign):
    before = list(sys.path)
    classifier = load_classifier(f"{user_module}:{name}", num_classes=4)
    np.testing.assert_array_equal(classifier.classify(BATCH), (sign * BATCH).argmax(1))
    assert sys.path == before


def test_missing_user_code_is_named(user_module):
    with pytest.raises(ModelError, match="cannot be imported"):
        load_classifier("no_such_module_here:model")
    with pytest.raises(ModelError, match="broken failed while it was imported: ZeroDivisionError"):
        load_classifier(f"{user_module}:broken", num_classes=4)
    with pytest.raises(ModelError, match="no attribute 'absent'"):
        load_classifier(f"{user_module}:absent", num_classes=4)

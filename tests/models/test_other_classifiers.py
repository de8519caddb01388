"""ONNX, scikit-learn and plain functions as classifiers, each against direct computation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from smoothcert.errors import InputError, ModelError
from smoothcert.models.callable_classifier import CallableClassifier
from smoothcert.models.digests import object_digest
from smoothcert.models.onnx_classifier import OnnxClassifier
from smoothcert.models.sklearn_classifier import SklearnClassifier

RNG = np.random.default_rng(5)
WEIGHT = RNG.normal(size=(6, 3)).astype(np.float32)
BIAS = RNG.normal(size=3).astype(np.float32)
BATCH = RNG.normal(size=(50, 2, 3)).astype(np.float32)
VOTES = (BATCH.reshape(50, 6) @ WEIGHT + BIAS).argmax(1)


def write_onnx(
    path, *, batch="N", sides=(2, 3), outputs=("logits",), kind=TensorProto.FLOAT, weight=WEIGHT, external=False
):
    """Flatten, multiply, add; optionally with label and other outputs, as scikit-learn converters write them."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        helper.make_node("ReduceSum", ["logits"], ["total"], keepdims=0),
    ]
    declared = {
        "logits": helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 3]),
        "unsized": helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, "K"]),
        "label": helper.make_tensor_value_info("label", TensorProto.INT64, [batch]),
        "total": helper.make_tensor_value_info("total", TensorProto.FLOAT, None),
    }
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", kind, [batch, *sides])],
        [declared[name] for name in outputs],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(BIAS, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path, save_as_external_data=external, location="weights.bin", size_threshold=0)
    return path


@pytest.mark.parametrize(
    ("batch", "outputs"),
    [
        ("N", ("logits",)),
        (None, ("unsized",)),
        (8, ("logits",)),
        (64, ("logits",)),
        ("N", ("label", "logits")),
        ("N", ("label",)),
        (8, ("label",)),
    ],
)
def test_onnx_agrees_with_direct_computation(tmp_path, batch, outputs):
    path = write_onnx(tmp_path / "m.onnx", batch=batch, outputs=outputs)
    classifier = OnnxClassifier(path, num_classes=3)
    assert classifier.input_shape == (2, 3)
    assert classifier.backend == "onnxruntime cpu"
    np.testing.assert_array_equal(classifier.classify(BATCH), VOTES)
    np.testing.assert_array_equal(classifier.classify(BATCH[:5]), VOTES[:5])


def test_onnx_finds_the_number_of_classes(tmp_path):
    assert OnnxClassifier(write_onnx(tmp_path / "a.onnx")).num_classes == 3
    assert OnnxClassifier(write_onnx(tmp_path / "b.onnx", outputs=("unsized",))).num_classes == 3
    with pytest.raises(InputError, match="give num_classes"):
        OnnxClassifier(write_onnx(tmp_path / "c.onnx", outputs=("label",)))
    with pytest.raises(ModelError, match="answers with 3 classes, but num_classes=10"):
        OnnxClassifier(tmp_path / "a.onnx", num_classes=10)


def test_onnx_non_finite_logits_are_invalid_votes(tmp_path):
    classifier = OnnxClassifier(write_onnx(tmp_path / "m.onnx"))
    batch = BATCH[:2].copy()
    batch[0] = np.nan
    assert classifier.classify(batch).tolist() == [3, VOTES[1]]


def test_onnx_symbolic_input_shape(tmp_path):
    path = write_onnx(tmp_path / "m.onnx", sides=("h", 3))
    assert OnnxClassifier(path).input_shape is None
    assert OnnxClassifier(path, input_shape=(2, 3)).input_shape == (2, 3)
    with pytest.raises(ModelError, match=r"takes inputs of shape \['h', 3\], not \(2, 4\)"):
        OnnxClassifier(path, input_shape=(2, 4))
    with pytest.raises(ModelError, match=r"not \(6,\)"):
        OnnxClassifier(path, input_shape=(6,))
    with pytest.raises(ModelError, match="failed on a float32 batch"):
        OnnxClassifier(path).classify(np.zeros((2, 5, 3), np.float32))


def test_onnx_wrong_batch_shape(tmp_path):
    with pytest.raises(InputError, match=r"\(6,\) were given, but the model takes \(2, 3\)"):
        OnnxClassifier(write_onnx(tmp_path / "m.onnx")).classify(np.zeros((2, 6), np.float32))


def test_onnx_files_that_are_not_classifiers_are_explained(tmp_path):
    with pytest.raises(ModelError, match="there is no file"):
        OnnxClassifier(tmp_path / "absent.onnx")
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(ModelError, match="cannot be loaded as an ONNX model"):
        OnnxClassifier(tmp_path / "text.onnx")
    whole = write_onnx(tmp_path / "m.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="cannot be loaded as an ONNX model"):
        OnnxClassifier(tmp_path / "cut.onnx")
    with pytest.raises(ModelError, match="expected float logits"):
        OnnxClassifier(write_onnx(tmp_path / "total.onnx", outputs=("total",)))


def test_onnx_devices_that_are_not_available(tmp_path):
    path = write_onnx(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="is unknown"):
        OnnxClassifier(path, device="tpu")
    with pytest.raises(InputError, match="'mps' is not available for ONNX"):
        OnnxClassifier(path, device="mps")


def test_onnx_digest_sees_weights_also_in_their_own_file(tmp_path):
    def digest(folder, weight, external):
        (tmp_path / folder).mkdir()
        path = write_onnx(tmp_path / folder / "m.onnx", weight=weight, external=external)
        classifier = OnnxClassifier(path)
        np.testing.assert_array_equal(classifier.classify(BATCH), (BATCH.reshape(50, 6) @ weight + BIAS).argmax(1))
        return classifier.digest

    inside = [digest(f"inside{number}", weight, False) for number, weight in enumerate((WEIGHT, WEIGHT, -WEIGHT))]
    beside = [digest(f"beside{number}", weight, True) for number, weight in enumerate((WEIGHT, WEIGHT, -WEIGHT))]
    assert inside[0] == inside[1] != inside[2]
    assert beside[0] == beside[1] != beside[2]


LABELS = np.array(["no", "yes", "maybe"])[VOTES]
FLAT = BATCH.reshape(50, 6)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(C=100.0),
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(n_estimators=5, random_state=0),
    ],
    ids=["logistic", "pipeline", "forest"],
)
def test_sklearn_agrees_with_predict(estimator):
    estimator.fit(FLAT, LABELS)
    classifier = SklearnClassifier(estimator, input_shape=(2, 3))
    assert classifier.num_classes == 3
    votes = classifier.classify(BATCH)
    assert votes.dtype == np.int64
    np.testing.assert_array_equal(estimator.classes_[votes], estimator.predict(FLAT))
    np.testing.assert_array_equal(SklearnClassifier(estimator).classify(BATCH), votes)


class UnsortedClasses:
    """Classes that are not sorted, as in some libraries that imitate scikit-learn."""

    classes_ = np.array([7, 3, 5])

    def __init__(self, answer):
        self.answer = answer

    def predict(self, inputs):
        return np.array(self.answer)


def test_classes_are_numbered_by_position():
    batch = np.zeros((4, 2), np.float32)
    assert SklearnClassifier(UnsortedClasses([5, 7, 3, 3])).classify(batch).tolist() == [2, 0, 1, 1]
    for wrong in ([4, 7, 3, 3], [9, 7, 3, 3], [[5, 7, 3, 3]]):
        with pytest.raises(ModelError, match="not in its classes_"):
            SklearnClassifier(UnsortedClasses(wrong)).classify(batch)


def test_sklearn_misuse_is_explained():
    with pytest.raises(ModelError, match="fit it first"):
        SklearnClassifier(LogisticRegression())
    with pytest.raises(ModelError, match="not a fitted classifier"):
        SklearnClassifier(LinearRegression().fit(FLAT, VOTES))
    fitted = LogisticRegression().fit(FLAT, VOTES)
    with pytest.raises(ModelError, match="have 8 values, but the estimator was fitted on 6"):
        SklearnClassifier(fitted, input_shape=(2, 4))
    with pytest.raises(ModelError, match=r"refused a batch of shape \(2, 7\)"):
        SklearnClassifier(fitted).classify(np.zeros((2, 7), np.float32))
    two_outputs = RandomForestClassifier(n_estimators=2).fit(FLAT, np.stack([VOTES, VOTES], axis=1))
    with pytest.raises(ModelError, match="several outputs"):
        SklearnClassifier(two_outputs)


@pytest.mark.parametrize("kind", [LogisticRegression, RandomForestClassifier])
def test_sklearn_digest_is_of_content(kind):
    options = {"random_state": 0, "n_estimators": 3} if kind is RandomForestClassifier else {}
    first, again = (kind(**options).fit(FLAT, VOTES) for _ in range(2))
    other = kind(**options).fit(FLAT[:-5], VOTES[:-5])
    assert SklearnClassifier(first).digest == SklearnClassifier(again).digest
    assert SklearnClassifier(first).digest != SklearnClassifier(other).digest


def test_object_digest_ignores_identity_and_order_of_sets_but_not_content():
    text = "shared"
    assert object_digest([text, text]) == object_digest(["sha" + "red", "shared"])
    assert object_digest({"a", "b", "c"}) == object_digest({"c", "b", "a"})
    values = [1, 1.0, True, "1", b"1", (1,), [1], {1}, None, np.array([1]), np.array([1.0]), np.float32(1), int, {1: 1}]
    values += [np.array([1, "x"], dtype=object), np.array([2, "x"], dtype=object), len, np.array([[1]])]
    assert len({object_digest(value) for value in values}) == len(values)


def test_object_digest_ends_on_cycles_and_names_what_it_cannot_read():
    loop = [1]
    loop.append(loop)
    assert object_digest(loop) != object_digest([1, [1]])
    with pytest.raises(ModelError, match="give digest="):
        object_digest([iter([1]).__next__, (value for value in "ab")])


def logits_function(batch):
    return batch.reshape(len(batch), -1) @ WEIGHT + BIAS


def label_function(batch):
    return logits_function(batch).argmax(1)


@pytest.mark.parametrize("function", [logits_function, label_function, lambda batch: logits_function(batch).tolist()])
def test_callables_agree_with_direct_computation(function):
    classifier = CallableClassifier(function, num_classes=3)
    np.testing.assert_array_equal(classifier.classify(BATCH), VOTES)
    assert classifier.concurrency == 1


def test_callable_number_of_classes():
    assert CallableClassifier(logits_function, input_shape=(2, 3)).num_classes == 3
    with pytest.raises(InputError, match="give num_classes"):
        CallableClassifier(label_function, input_shape=(2, 3))


def test_callable_that_fails_is_named():
    with pytest.raises(ModelError, match=r"logits_function failed on a float32 batch of shape \(2, 5\): ValueError"):
        CallableClassifier(logits_function, num_classes=3).classify(np.zeros((2, 5), np.float32))


def test_callable_digest():
    plain = CallableClassifier(logits_function, num_classes=3).digest
    assert plain == CallableClassifier(logits_function, num_classes=3).digest
    assert plain != CallableClassifier(label_function, num_classes=3).digest
    assert plain != CallableClassifier(logits_function, num_classes=3, digest="weights v2").digest


class Predictor:
    def __call__(self, batch):
        return logits_function(batch)


def test_callable_objects():
    classifier = CallableClassifier(Predictor(), num_classes=3)
    np.testing.assert_array_equal(classifier.classify(BATCH), VOTES)
    assert "Predictor" in classifier.description

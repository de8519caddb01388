"""Scores of every kind of model: the softmax in float64, probabilities, and models that only vote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper
from scipy import special
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from smoothcert.errors import ModelError
from smoothcert.models import ScoringClassifier, as_classifier
from smoothcert.models.base import BaseClassifier
from smoothcert.models.onnx_classifier import OnnxClassifier
from smoothcert.models.scores import ScoreRule, decide_rule, normalise_probabilities, require_scores, votes_and_softmax
from smoothcert.models.votes import votes_from_logits
from smoothcert.records.score_cells import SCORE_SLACK

RNG = np.random.default_rng(5)
WEIGHT = RNG.normal(size=(6, 3)).astype(np.float32)
BATCH = RNG.normal(size=(50, 2, 3)).astype(np.float32)
LOGITS = BATCH.reshape(50, 6) @ WEIGHT

ANY = st.one_of(
    st.floats(width=32), st.sampled_from([0.0, -0.0, 1e-30, 2e-30, 80.0, 1e38, -1e38, np.inf, -np.inf, np.nan])
)


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 20), st.integers(2, 12)), elements=ANY))
def test_softmax_of_anything(logits: np.ndarray) -> None:
    votes, scores = votes_and_softmax(logits)
    np.testing.assert_array_equal(votes, votes_from_logits(logits))
    invalid = votes == logits.shape[1]
    assert (scores[invalid] == 0).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert np.abs(scores[~invalid].sum(axis=1) - 1).max(initial=0) < SCORE_SLACK / 100
    wide = logits[~invalid].astype(np.float64)
    np.testing.assert_allclose(scores[~invalid], special.softmax(wide, axis=1), rtol=1e-12, atol=0)
    # A row is computed alone.
    for row in range(len(logits)):
        np.testing.assert_array_equal(votes_and_softmax(logits[row : row + 1])[1][0], scores[row])


def test_a_certain_answer_has_score_one() -> None:
    _, scores = votes_and_softmax(np.array([[100.0, 0.0, 0.0], [0.0, 1000.0, -np.inf]], dtype=np.float32))
    assert scores[0, 0] == 1.0
    assert scores[1].tolist() == [0.0, 1.0, 0.0]


def test_votes_cannot_be_computed_from_scores() -> None:
    """So both are computed in one pass."""
    votes, scores = votes_and_softmax(np.array([[1e-30, 2e-30]], dtype=np.float32))
    assert votes.tolist() == [1]
    assert scores[0, 0] == scores[0, 1]


def test_softmax_does_not_touch_the_logits() -> None:
    logits = np.array([[1.0, 2.0]])
    votes_and_softmax(logits)
    assert logits.tolist() == [[1.0, 2.0]]


def check(classifier: BaseClassifier, logits: np.ndarray = LOGITS) -> None:
    found = require_scores(classifier)
    votes, scores = found.votes_and_scores(BATCH)
    np.testing.assert_array_equal(votes, classifier.classify(BATCH))
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, special.softmax(logits.astype(np.float64), axis=1), rtol=2e-6)


def test_callable() -> None:
    def linear(batch: np.ndarray) -> np.ndarray:
        return batch.reshape(len(batch), -1) @ WEIGHT

    check(as_classifier(linear, input_shape=(2, 3)))

    def whole_numbers(batch: np.ndarray) -> np.ndarray:
        return np.tile([1, 0, 2], (len(batch), 1))

    check(as_classifier(whole_numbers, input_shape=(2, 3)), np.tile([1.0, 0.0, 2.0], (50, 1)))


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    from smoothcert.models.torch_classifier import TorchDeviceClassifier

    linear = torch.nn.Linear(6, 3, bias=False)
    linear.weight.data = torch.from_numpy(WEIGHT.T.copy())
    module = torch.nn.Sequential(torch.nn.Flatten(), linear)
    check(as_classifier(module, input_shape=(2, 3), device="cpu"))
    check(TorchDeviceClassifier(module, device=torch.device("cpu"), input_shape=(2, 3)))


def write_onnx(path: Path, output: str) -> Path:
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    declared = {
        "probabilities": helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 3]),
        "logits": helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 3]),
        "label": helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]),
    }
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 3])
    graph = helper.make_graph(nodes, "linear", [entry], [declared[output]], [numpy_helper.from_array(WEIGHT, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_onnx(tmp_path: Path) -> None:
    check(OnnxClassifier(write_onnx(tmp_path / "a.onnx", "logits")))
    with pytest.raises(ModelError, match=r"b\.onnx, 3 classes gives only votes"):
        require_scores(OnnxClassifier(write_onnx(tmp_path / "b.onnx", "label"), num_classes=3))


def test_scikit_learn() -> None:
    flat, labels = BATCH.reshape(50, 6), np.array(["c", "a", "b"])[LOGITS.argmax(axis=1)]
    fitted = LogisticRegression().fit(flat, labels)
    classifier = as_classifier(fitted, input_shape=(2, 3))
    votes, scores = require_scores(classifier).votes_and_scores(BATCH)
    np.testing.assert_array_equal(votes, classifier.classify(BATCH))
    np.testing.assert_allclose(scores, fitted.predict_proba(flat), rtol=1e-6)
    assert np.abs(scores.sum(axis=1) - 1).max() < 1e-15


@pytest.mark.parametrize(
    "answer",
    [
        np.array([[0.5, 0.4], [0.5, 0.5]]),
        np.array([[1.1, -0.1], [0.5, 0.5]]),
        np.array([[np.nan, 0.5], [0.5, 0.5]]),
        np.array([[1, 0], [0, 1]]),
        np.array([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]]),
        np.array([[0.5, 0.5]]),
    ],
)
def test_invalid_probabilities(answer: np.ndarray) -> None:
    with pytest.raises(ModelError, match="the model"):
        normalise_probabilities(answer, votes=np.array([0, 1]), num_classes=2, model="the model")


def test_probabilities_in_float32_are_made_to_add_up() -> None:
    scores = normalise_probabilities(
        np.array([[0.3, 0.7]], dtype=np.float32), votes=np.array([1]), num_classes=2, model="the model"
    )
    assert scores.sum() == pytest.approx(1, abs=1e-15)


def test_models_that_only_vote_are_named() -> None:
    flat = BATCH.reshape(50, 6)
    machine = LinearSVC().fit(flat, LOGITS.argmax(axis=1))
    for model in (machine, lambda batch: np.zeros(len(batch), dtype=np.int64)):
        classifier = as_classifier(model, num_classes=3, input_shape=(2, 3))
        assert isinstance(classifier, ScoringClassifier)
        assert not classifier.gives_scores
        with pytest.raises(ModelError, match=r"gives only votes; use a model that answers with logits .*gaussian"):
            require_scores(classifier)


def test_a_function_that_changes_its_mind_is_named() -> None:
    tried = [np.zeros((rows, 3)) for rows in (2, 16)]
    answers = [*tried, np.zeros(50, dtype=np.int64), np.array(["a"] * 50)]
    classifier = as_classifier(lambda batch: answers.pop(0), input_shape=(2, 3))
    with pytest.raises(ModelError, match="expected logits"):
        require_scores(classifier).votes_and_scores(BATCH)
    with pytest.raises(ModelError, match="expected logits"):
        require_scores(classifier).votes_and_scores(BATCH)


def softmax_rows(batch: np.ndarray) -> np.ndarray:
    return special.softmax(batch.reshape(len(batch), -1) @ WEIGHT, axis=1)


def check_probabilities(classifier: BaseClassifier) -> None:
    """Regression: outputs that are probabilities went through another softmax."""
    votes, scores = require_scores(classifier).votes_and_scores(BATCH)
    np.testing.assert_array_equal(votes, classifier.classify(BATCH))
    np.testing.assert_allclose(scores, softmax_rows(BATCH), rtol=2e-6)
    assert np.abs(scores.sum(axis=1) - 1).max() < 1e-15
    assert classifier.scores_are == "probabilities as given"
    assert "scores are probabilities as given" in classifier.description


def torch_network(*layers: object) -> object:
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(6, 3, bias=False)
    linear.weight.data = torch.from_numpy(WEIGHT.T.copy())
    return torch.nn.Sequential(torch.nn.Flatten(), linear, *layers)


def test_a_callable_that_gives_probabilities() -> None:
    check_probabilities(as_classifier(softmax_rows, input_shape=(2, 3)))
    check_probabilities(as_classifier(lambda batch: softmax_rows(batch).astype(np.float32), input_shape=(2, 3)))


@pytest.mark.parametrize("backend", ["torch", "onnxruntime"])
def test_a_torch_module_that_gives_probabilities(backend: str) -> None:
    torch = pytest.importorskip("torch")
    module = torch_network(torch.nn.Softmax(dim=1))
    check_probabilities(as_classifier(module, input_shape=(2, 3), device="cpu", backend=backend))


def test_a_torch_module_on_a_device_that_gives_probabilities() -> None:
    torch = pytest.importorskip("torch")
    from smoothcert.models.torch_classifier import TorchDeviceClassifier

    module = torch_network(torch.nn.Softmax(dim=1))
    check_probabilities(TorchDeviceClassifier(module, device=torch.device("cpu"), input_shape=(2, 3)))


def test_a_first_layer_before_probabilities() -> None:
    torch = pytest.importorskip("torch")
    module = torch_network(torch.nn.Softmax(dim=1))
    check_probabilities(as_classifier(module, input_shape=(2, 3), device="cpu", noise_at="first-layer"))


def test_an_onnx_file_that_gives_probabilities(tmp_path: Path) -> None:
    check_probabilities(OnnxClassifier(write_onnx(tmp_path / "p.onnx", "probabilities")))


def test_a_checkpoint_says_what_its_scores_are(tmp_path: Path) -> None:
    """The description of a checkpoint has the note too."""
    torch = pytest.importorskip("torch")
    from smoothcert.models import add_score_note

    classifier = as_classifier(torch_network(torch.nn.Softmax(dim=1)), input_shape=(2, 3), device="cpu")
    assert add_score_note("weights.pt", classifier) == "weights.pt; scores are probabilities as given"
    classifier = as_classifier(torch_network(), input_shape=(2, 3), device="cpu")
    assert add_score_note("weights.pt", classifier) == "weights.pt"


def test_logits_keep_their_softmax() -> None:
    torch = pytest.importorskip("torch")
    for module in (torch_network(), torch_network(torch.nn.LogSoftmax(dim=1))):
        classifier = as_classifier(module, input_shape=(2, 3), device="cpu")
        check(classifier)
        assert classifier.scores_are == "softmax of logits"
        assert "scores are" not in classifier.description


def test_a_uniform_answer_to_zeros_decides_nothing() -> None:
    """Logits that are 1/3 each for black images, and arbitrary elsewhere."""

    def thirds(batch: np.ndarray) -> np.ndarray:
        return batch.reshape(len(batch), -1) @ WEIGHT + 1 / 3

    assert as_classifier(thirds, input_shape=(2, 3)).scores_are == "softmax of logits"


def test_votes_one_hot_are_probabilities() -> None:
    def one_hot(batch: np.ndarray) -> np.ndarray:
        return np.eye(3, dtype=np.int64)[(batch.reshape(len(batch), -1) @ WEIGHT).argmax(axis=1)]

    classifier = as_classifier(one_hot, input_shape=(2, 3))
    votes, scores = require_scores(classifier).votes_and_scores(BATCH)
    np.testing.assert_array_equal(scores, np.eye(3)[votes])


def test_rows_that_are_not_finite_neither_decide_nor_count() -> None:
    def sometimes_nan(batch: np.ndarray) -> np.ndarray:
        rows = softmax_rows(batch)
        rows[batch.reshape(len(batch), -1)[:, 0] > 0.5] = np.nan
        return rows

    classifier = as_classifier(sometimes_nan, input_shape=(2, 3))
    assert classifier.scores_are == "probabilities as given"
    votes, scores = require_scores(classifier).votes_and_scores(BATCH)
    assert (votes == 3).any()
    assert (scores[votes == 3] == 0).all()

    def always_nan(batch: np.ndarray) -> np.ndarray:
        return np.full((len(batch), 3), np.nan)

    assert as_classifier(always_nan, input_shape=(2, 3)).scores_are == "softmax of logits"


@pytest.mark.parametrize("row", [[-0.1, 0.6, 0.5], [0.2, 0.2, 0.2], [0.5, 0.5, 0.5], [-np.inf, 0.5, 0.5]])
def test_probabilities_that_become_invalid(row: list[float]) -> None:
    def until_far_away(batch: np.ndarray) -> np.ndarray:
        rows = softmax_rows(batch)
        rows[np.abs(batch).max(axis=(1, 2)) > 100] = row
        return rows

    classifier = require_scores(as_classifier(until_far_away, input_shape=(2, 3)))
    classifier.votes_and_scores(BATCH)
    with pytest.raises(
        ModelError,
        match=r"returned probabilities when it was tried.* now it returns values that are negative or do not sum",
    ):
        classifier.votes_and_scores(np.concatenate([BATCH, np.full((1, 2, 3), 1000, np.float32)]))


def test_probabilities_are_never_softmaxed_unseen() -> None:
    """A model cannot be tried if the shape of its inputs is unknown."""
    torch = pytest.importorskip("torch")
    from smoothcert.models.torch_classifier import TorchClassifier

    classifier = TorchClassifier(torch_network(torch.nn.Softmax(dim=1)), num_classes=3)
    with pytest.raises(ModelError, match="give input_shape"):
        classifier.votes_and_scores(BATCH)
    check(TorchClassifier(torch_network(), num_classes=3))


def test_low_precision_probabilities_are_recognised() -> None:
    torch = pytest.importorskip("torch")

    def in_bfloat16(batch: np.ndarray) -> np.ndarray:
        return torch.from_numpy(softmax_rows(batch)).bfloat16().float().numpy()

    classifier = as_classifier(in_bfloat16, input_shape=(2, 3))
    assert classifier.scores_are == "probabilities as given"
    assert np.abs(require_scores(classifier).votes_and_scores(BATCH)[1].sum(axis=1) - 1).max() < 1e-15


def test_a_model_that_cannot_be_tried_fails_where_it_is_used() -> None:
    def only_two_rows(batch: np.ndarray) -> np.ndarray:
        if len(batch) != 2:
            raise ValueError("two, please")
        return softmax_rows(batch)

    classifier = require_scores(as_classifier(only_two_rows, input_shape=(2, 3)))
    with pytest.raises(ModelError, match="two, please"):
        classifier.votes_and_scores(BATCH)
    with pytest.raises(ModelError, match="seem to be probabilities"):
        classifier.votes_and_scores(BATCH[:2])


def test_a_rule_says_what_scores_are() -> None:
    rule = decide_rule(softmax_rows, input_shape=(2, 3))
    assert rule is ScoreRule.PROBABILITIES
    assert rule.note == "; scores are probabilities as given"
    assert decide_rule(lambda batch: batch.reshape(len(batch), -1), input_shape=(2, 3)).note == ""

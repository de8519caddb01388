"""SmoothedClassifier as a user holds it."""

import threading

import numpy as np
import pytest
import torch

from run_specs import without_times
from sample_models import at_distance, digits_by_brightness
from smoothcert import Outcome, SmoothedClassifier, Stage
from smoothcert.errors import InputError

X = np.random.default_rng(0).random((4, 1, 8, 8), dtype=np.float32)


def smoothed(**settings: object) -> SmoothedClassifier:
    return SmoothedClassifier(
        digits_by_brightness, **{"sigma": 0.1, "num_classes": 10, "seed": 4, "batch": 64, **settings}
    )


def test_records_say_everything() -> None:
    points = smoothed().certify(X, n0=30, n=500, alpha=0.01, labels=[1, 2, 3, 4])
    assert [point.index for point in points] == [0, 1, 2, 3]
    assert [point.label for point in points] == [1, 2, 3, 4]
    for point in points:
        selection, estimation = point.tally(Stage.SELECTION), point.tally(Stage.ESTIMATION)
        assert selection is not None
        assert estimation is not None
        assert (selection.n, estimation.n) == (30, 500)
        assert selection.stream != estimation.stream
        assert point.bounds is not None
        assert point.bounds.alpha == 0.01
        assert (point.radius > 0) == (point.outcome is Outcome.CERTIFIED)


def test_the_same_seed_gives_the_same_points_and_another_does_not() -> None:
    first = without_times(smoothed().certify(X, n=500))
    assert without_times(smoothed(batch=33, workers=1).certify(X, n=500)) == first
    assert without_times(smoothed(seed=5).certify(X, n=500)) != first


def test_every_call_uses_fresh_noise() -> None:
    """Otherwise two inputs given in two calls would share their noise, and their errors would not be independent."""
    classifier = smoothed()
    (first,) = classifier.certify(X[:1], n=500)
    (second,) = classifier.certify(X[:1], n=500)
    assert (first.index, second.index) == (0, 1)
    assert not np.array_equal(first.tallies[-1].counts, second.tallies[-1].counts)
    (again,) = classifier.certify(X[:1], n=500, indices=[0])
    assert again.tallies == first.tallies


def test_the_default_seed_comes_from_the_operating_system() -> None:
    seeds = {smoothed(seed=None).seed for _ in range(4)}
    assert len(seeds) == 4


def test_predict() -> None:
    model, x = at_distance(0.5)
    classifier = SmoothedClassifier(model, sigma=0.25, num_classes=2, seed=1, batch=64)
    (point,) = classifier.predict(x[None], n=200)
    assert point.outcome is Outcome.PREDICTED
    assert point.prediction == 1
    assert point.guarantee is None


def test_torch_module_estimator_and_onnx_agree(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """One linear function behind three adapters gives the same votes."""
    torch = pytest.importorskip("torch")
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    linear_model = pytest.importorskip("sklearn.linear_model")
    weights = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)

    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3, bias=False))
    module[1].weight.data = torch.from_numpy(weights)

    estimator = linear_model.LogisticRegression()
    estimator.classes_, estimator.coef_, estimator.intercept_ = np.arange(3), weights.astype(np.float64), np.zeros(3)

    nodes = [
        onnx.helper.make_node("Flatten", ["x"], ["flat"], axis=1),
        onnx.helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "linear",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 1, 8, 8])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["n", 3])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(weights.T), "w")],
    )
    file = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    file.ir_version = 9
    onnx.save(file, str(tmp_path / "linear.onnx"))

    def votes(model: object) -> list[np.ndarray]:
        classifier = SmoothedClassifier(model, sigma=0.25, num_classes=3, seed=9, batch=64, device="cpu")
        return [point.tallies[-1].counts for point in classifier.certify(X, n=700)]

    reference = votes(module)
    for model in (estimator, str(tmp_path / "linear.onnx"), lambda b: b.reshape(len(b), -1) @ weights.T):
        np.testing.assert_array_equal(votes(model), reference)


@pytest.mark.usefixtures("two_torch_threads")
def test_torch_tensors_are_inputs_and_the_module_is_left_alone() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 10)).train()
    threads = torch.get_num_threads()
    SmoothedClassifier(module, sigma=0.25, num_classes=10, batch=64, device="cpu").certify(torch.from_numpy(X), n=100)
    assert module.training
    assert torch.get_num_threads() == threads


def test_threads_started_later_keep_their_cores() -> None:
    """Workers set torch to one thread each; a thread the caller starts afterwards must not inherit that."""
    torch = pytest.importorskip("torch")

    def cores_of_a_new_thread() -> int:
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        return seen[0]

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        SmoothedClassifier(module, sigma=0.25, num_classes=10, batch=16, device="cpu").certify(X, n=200)
        assert cores_of_a_new_thread() == 3
    finally:
        torch.set_num_threads(before)


def test_explicit_indices_are_not_used_again() -> None:
    classifier = smoothed()
    classifier.certify(X[:1], n=100, indices=[0])
    classifier.certify(X[:1], n=100, indices=[7])
    assert [point.index for point in classifier.certify(X[:2], n=100)] == [8, 9]


def test_labels_may_be_missing_one_by_one() -> None:
    assert [p.label for p in smoothed().certify(X, n=100, labels=[1, None, 3, None])] == [1, None, 3, None]


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.full((1, 1, 8, 8), np.nan), "NaN"),
        (np.full((1, 1, 8, 8), 1e39), "infinite"),
        (np.full((1, 1, 8, 8), np.inf), "NaN or infinite"),
        (np.full((1, 1, 8, 8), 1.5), "sigma is in pixel units"),
        (np.zeros((0, 1, 8, 8)), "no inputs"),
        (np.zeros(64), "shape"),
        (np.array([["a", "b"]]), "type"),
    ],
)
def test_bad_inputs(x: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        smoothed().certify(x, n=100)


def test_shape_is_fixed_by_the_first_inputs() -> None:
    classifier = smoothed()
    classifier.certify(X, n=100)
    with pytest.raises(InputError, match=r"shape.*\(m, 1, 8, 8\)"):
        classifier.certify(np.zeros((2, 1, 4, 16)), n=100)


def test_any_range_when_asked() -> None:
    assert smoothed(input_range=None).certify(X * 5, n=100)


@pytest.mark.parametrize("sigma", [0.0, -0.1, float("nan"), float("inf"), 1e-50, 1e39])
def test_bad_sigma(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma"):
        smoothed(sigma=sigma)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n": 9}, "can never certify"),
        ({"n0": 0}, "n0"),
        ({"alpha": 0.7}, "alpha"),
        ({"certificate": "nonsense"}, "certificate"),
        ({"labels": [1]}, "labels"),
        ({"indices": [1]}, "indices"),
        ({"indices": [1, 1, 2, 3]}, "twice"),
        ({"indices": torch.tensor([0, 0, 1, 2])}, "twice"),
        ({"indices": [0.2, 0.7, 1.5, 2.5]}, "whole numbers"),
    ],
)
def test_bad_settings(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        smoothed().certify(X, **{"n": 100, **settings})


def test_what_was_checked_is_what_is_sampled_if_the_caller_changes_the_array() -> None:
    given = np.random.default_rng(1).random((300, 1, 8, 8), dtype=np.float32)
    expected = without_times(smoothed(workers=1).certify(given.copy(), n=200))
    points = smoothed(workers=1).certify(given, n=200, progress=lambda _: given.fill(0.9))
    assert given.min() == np.float32(0.9)
    assert without_times(points) == expected

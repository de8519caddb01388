"""Digests of objects and functions depend on content and code, not on names."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import sys
import threading
import types

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from smoothcert.errors import ModelError
from smoothcert.models.callable_classifier import CallableClassifier
from smoothcert.models.digests import object_digest
from smoothcert.models.sklearn_classifier import SklearnClassifier

FLAT = np.random.default_rng(5).normal(size=(50, 4))
LABELS = (FLAT[:, 0] > 0).astype(int)
LIMIT = 1.0


def all_differ(*values: object) -> bool:
    return len({object_digest(value) for value in values}) == len(values)


def all_equal(*values: object) -> bool:
    return len({object_digest(value) for value in values}) == 1


def raised_to(power):
    return lambda x: np.sign(x) * np.abs(x) ** power


class Powers:
    def __init__(self, power):
        self.power = power

    def method(self, x):
        return x**self.power

    def __call__(self, x):
        return x**self.power


def transformers():
    return {
        "lambda": [lambda x: x + 1e-9, lambda x: x - 1e-9],
        "constant": [lambda x: x * 1.0, lambda x: x * 1.0000001],
        "closure": [raised_to(1.0), raised_to(1.0000001)],
        "partial": [functools.partial(np.add, 1e-9), functools.partial(np.add, 2e-9)],
        "bound method": [Powers(1.0).method, Powers(1.0000001).method],
        "object": [Powers(1.0), Powers(1.0000001)],
        "ufunc": [np.arctan, np.sinh],
    }


@pytest.mark.parametrize("kind", transformers())
def test_functions_in_a_pipeline(kind):
    """Regression: two lambdas on one line had the same digest."""
    first, second = transformers()[kind]
    plain = make_pipeline(FunctionTransformer(), LogisticRegression()).fit(FLAT, LABELS)
    digests = []
    for function in (first, second, transformers()[kind][0]):
        estimator = copy.deepcopy(plain).set_params(functiontransformer__func=function)
        digests.append(SklearnClassifier(estimator).digest)
    assert digests[0] == digests[2] != digests[1]


def test_code_of_functions():
    def plain(x):
        return x + 1

    def other_constant(x):
        return x + 2

    def other_operation(x):
        return x - 1

    def other_name(x):
        return len(x)

    def another_name(x):
        return abs(x)

    def nested(x):
        return [one + 1 for one in x]

    def nested_other(x):
        return [one + 2 for one in x]

    def guarded(x):
        try:
            return x + 1
        except ValueError:
            return 0

    def with_default(x, y=1):
        return x + y

    def with_other_default(x, y=2):
        return x + y

    def with_keyword(x, *, y=1):
        return x + y

    functions = [plain, other_constant, other_operation, other_name, another_name, nested, nested_other, guarded]
    functions += [with_default, with_other_default, with_keyword, len, abs, np.sin, np.cos, operator.add]
    functions += [str.upper, str.lower, "a".upper, "b".upper, np.eye(2).dot, np.ones((2, 2)).dot]
    assert all_differ(*functions)


def test_the_name_of_a_function_and_how_often_it_ran_do_not_count():
    def first(x):
        return x * LIMIT + 1

    def second(x):
        return x * LIMIT + 1

    before = object_digest(first)
    for number in range(5000):
        first(number)
    assert object_digest(first) == before == object_digest(second)


def test_global_names_that_a_function_reads(monkeypatch):
    def limited(x):
        return min(x, LIMIT)

    def calls_another(x):
        return limited(x)

    def reads_nothing(x):
        return min(x, 1.0)

    before = [object_digest(one) for one in (limited, calls_another, reads_nothing)]
    monkeypatch.setitem(globals(), "LIMIT", 2.0)
    after = [object_digest(one) for one in (limited, calls_another, reads_nothing)]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, False, True]


def test_attributes_of_a_module_that_a_function_reads(monkeypatch):
    helpers = types.ModuleType("helpers_of_a_test")
    helpers.LIMIT = helpers.unused = 1.0
    monkeypatch.setitem(sys.modules, "helpers_of_a_test", helpers)
    names = {"helpers": helpers}
    exec("def function(x):\n    return helpers.LIMIT * x", names)
    before = object_digest(names["function"])
    helpers.unused = 2.0
    assert object_digest(names["function"]) == before
    helpers.LIMIT = 2.0
    assert object_digest(names["function"]) != before


def test_a_wrapper_that_bears_the_name_of_a_library():
    """`functools.wraps` copies module and name; the code is still of the user."""

    def wrapping(function, factor):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) * factor

        return wrapper

    assert all_differ(np.mean, wrapping(np.mean, 1.0), wrapping(np.mean, 2.0), wrapping(np.median, 1.0))


def test_a_function_inside_a_wrapper_of_a_library():
    assert all_differ(*(functools.lru_cache(raised_to(power)) for power in (1.0, 2.0)))
    assert all_differ(*(np.vectorize(raised_to(power)) for power in (1.0, 2.0)))
    with pytest.raises(ModelError, match=r"ufunc cannot be read .*frompyfunc.*give digest="):
        object_digest([np.frompyfunc(raised_to(1.0), 1, 1)])


def recursive(x):
    return mutual(x - 1) if x else 0


def mutual(x):
    return recursive(x - 1) + mutual(0) if x else 1


def test_functions_that_call_one_another():
    assert object_digest(recursive) != object_digest(mutual)
    assert object_digest(recursive) == object_digest(recursive)


def test_cycles_by_content_not_by_identity():
    def ring(*labels):
        start = [labels[0]]
        place = start
        for label in labels[1:]:
            place.append([label])
            place = place[1]
        place.append(start)
        return start

    assert all_equal(ring(1), ring(1, 1), ring(1, 1, 1), [1, ring(1)])
    assert all_differ(ring(1), ring(1, 2), ring(2, 1), ring(1, 1, 2), ring(1, 2, 2), [ring(1, 2), 1])


def test_many_paths_to_one_object():
    value: list[object] = [1]
    for _ in range(200):
        value = [value, value]
    deep: list[object] = [value]
    for _ in range(5000):
        deep = [deep]
    assert len(object_digest(deep)) == 64


def test_subclasses_of_plain_types_with_state():
    class Tagged(list):
        pass

    class TaggedText(str):
        tag = 1

    first, second = Tagged([1]), Tagged([1])
    second.tag = 2
    text, other = TaggedText("a"), TaggedText("a")
    other.tag = 2
    assert all_differ([1], first, second, "a", text, other)


def test_masked_and_transposed_arrays():
    masked = [np.ma.array([1.0, 2.0], mask=mask) for mask in ([0, 1], [1, 0])]
    square = np.arange(4.0).reshape(2, 2)
    assert all_differ(*masked, square, np.asfortranarray(square), square.astype(">f8"))
    assert all_equal(square, square.copy(), np.arange(8.0)[:4].reshape(2, 2))
    names = [np.zeros(2, dtype=[(name, "f8")]) for name in "ab"]
    assert all_differ(*names)


def test_order_counts_where_a_model_may_go_through_it():
    steps = {"clip": 1, "scale": 2}
    assert object_digest(steps) != object_digest(dict(reversed(steps.items())))
    first, second = Powers(1), Powers(1)
    first.a, first.b = 1, 2
    second.b, second.a = 2, 1
    assert object_digest(first) == object_digest(second)


def test_the_class_of_an_object_counts():
    class Rising:
        def __call__(self, x):
            return x

    class Falling:
        def __call__(self, x):
            return -x

    Falling.__qualname__ = Rising.__qualname__
    assert object_digest(Rising()) != object_digest(Falling())
    before = object_digest(Rising())
    Rising.bias = 1
    assert object_digest(Rising()) != before


def test_unusual_values():
    values = [10**5000, 0.0, -0.0, float("nan"), "\ud800", 1j, ..., range(3), slice(1), np.float32(2), np.float64(2)]
    assert all_differ(*values)
    for value in values:
        assert object_digest(value) == object_digest(copy.deepcopy(value))


def test_saved_and_loaded_estimators():
    estimator = make_pipeline(FunctionTransformer(np.tanh), LogisticRegression()).fit(FLAT, LABELS)
    assert object_digest(estimator) == object_digest(pickle.loads(pickle.dumps(estimator)))


def test_unreadable_objects():
    lock = threading.Lock()
    with pytest.raises(ModelError, match="lock cannot be read"):
        object_digest([lock])
    assert object_digest([lock], lenient=True) == object_digest([threading.Lock()], lenient=True)
    assert object_digest(lambda: lock) == object_digest(lambda: lock)


def callables():
    weights = np.eye(4)[:, :3]
    return [
        lambda batch: batch @ weights,
        lambda batch: batch @ (weights * 2),
        lambda batch, scale=1.0: batch @ weights * scale,
        lambda batch, scale=2.0: batch @ weights * scale,
        functools.partial(np.matmul, weights),
        functools.partial(np.matmul, weights + 1),
        Powers(1.0),
        Powers(2.0),
        Powers(1.0).method,
        Powers(2.0).method,
    ]


def test_callables_by_code_closure_defaults_and_state():
    first, again = ([CallableClassifier(one, num_classes=3).digest for one in callables()] for _ in range(2))
    assert first == again
    assert len(set(first)) == len(first)


def test_a_callable_that_closes_over_other_weights():
    """Regression: the digest covered the source text only."""

    def made(weights):
        return lambda batch: batch @ weights

    digests = [CallableClassifier(made(np.full((4, 3), value)), num_classes=3).digest for value in (1.0, 1.0, 2.0)]
    assert digests[0] == digests[1] != digests[2]

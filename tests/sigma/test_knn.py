"""The nearest-neighbour rule: its value, its proof (Theorem 8), its digest and its file."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError, ModelError
from smoothcert.records.envelopes import SemiElastic
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.rule import SigmaRule
from smoothcert.sigma.rule_files import load_rule, load_stored_rule, save_rule


def random(shape, *, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rule(points=None, **changes):
    settings = {"base_sigma": 0.12, "rate": 0.3, "k": 4, "offset": 1.5}
    return KnnSigma(points=random((50, 6)) if points is None else points, **(settings | changes))


def test_value_against_fifty_digits():
    knn, queries = rule(), random((5, 6), seed=1)
    assert isinstance(knn, SigmaRule)
    with mpmath.workdps(50):
        for x, sigma in zip(queries, knn.sigmas(queries), strict=True):
            distances = sorted(
                mpmath.sqrt(mpmath.fsum((mpmath.mpf(float(a)) - float(b)) ** 2 for a, b in zip(x, p, strict=True)))
                for p in knn.points
            )
            mean = mpmath.fsum(distances[:4]) / 4
            true = mpmath.mpf(0.12) * mpmath.exp(mpmath.mpf(0.3) * (mean - mpmath.mpf(1.5)))
            assert abs(sigma / true - 1) < 1e-13


@given(
    st.integers(0, 2**32),
    st.integers(1, 30),
    st.sampled_from([1, 2, 10, 100]),
    st.sampled_from([0.0, 0.01, 1.0, 4.0]),
    st.sampled_from([None, 0.12, 0.3]),
    st.floats(1e-6, 3.0),
    st.data(),
)
def test_theorem_8(seed, n, dimension, rate, most, step, data):
    """|log σ(x) - log σ(y)| ≤ rate·‖x-y‖ up to rounding, also for steps towards and away from a point."""
    points = random((n, dimension), seed=seed)
    knn = rule(points, rate=rate, k=data.draw(st.integers(1, n)), most=most)
    x = random((1, dimension), seed=seed + 1)
    y = x + np.float32(step) * random((1, dimension), seed=seed + 2)
    inputs = np.concatenate([x, y, points[:1], (x + points[:1]) / 2])
    logs = np.log(knn.sigmas(inputs))
    values = inputs.astype(np.float64)
    apart = np.sqrt(((values[:, None] - values[None]) ** 2).sum(axis=2))
    assert (np.abs(logs[:, None] - logs[None]) <= rate * apart * (1 + 1e-12) + 2e-11).all()


def test_the_bound_of_theorem_8_is_reached_moving_away_from_the_points():
    points = np.zeros((3, 2), dtype=np.float32)
    near, far = np.log(rule(points, k=3).sigmas(np.array([[3, 4], [6, 8]], dtype=np.float32)))
    assert far - near == pytest.approx(0.3 * 5, rel=1e-12)
    assert rule(points, k=3).envelope == SemiElastic(rate=0.3)


def test_what_an_input_gets_does_not_depend_on_the_batch():
    knn, queries = rule(random((300, 784)), k=20), random((30, 784), seed=1)
    together = knn.sigmas(queries)
    assert np.array_equal(together, np.concatenate([knn.sigmas(queries[i : i + 1]) for i in range(30)]))
    assert np.array_equal(together[7:19], knn.sigmas(queries[7:19]))


def test_the_largest_sigma():
    free, capped = rule(), rule(most=0.13)
    queries = random((40, 6), seed=1) * 2
    assert np.array_equal(capped.sigmas(queries), np.minimum(free.sigmas(queries), 0.13))
    assert free.sigmas(queries).max() > 0.13 > free.sigmas(queries).min()


def test_no_sigma_where_there_is_none():
    """NaN for inputs that are not finite and for σ outside the range of floats. NaN certifies nothing."""
    inputs = random((3, 6))
    inputs[1] = np.nan
    assert np.array_equal(np.isnan(rule().sigmas(inputs)), [False, True, False])
    assert np.isnan(rule(most=1.0).sigmas(inputs))[1]
    outlier = np.full((1, 6), 100, dtype=np.float32)
    assert np.isnan(rule(rate=1e3).sigmas(outlier)).all()
    assert np.array_equal(rule(rate=1e3, most=0.6).sigmas(outlier), [0.6])
    assert np.isnan(rule(rate=1e3, offset=1e3).sigmas(random((1, 6)))).all()


@pytest.mark.parametrize("grey", [False, True])
def test_saved_and_loaded_to_the_bit(tmp_path, grey):
    levels = np.random.default_rng(0).integers(0, 256, size=(40, 1, 3, 3), dtype=np.uint8)
    points = np.divide(levels, np.float32(255), dtype=np.float32) if grey else random((40, 1, 3, 3))
    knn, path = rule(points, most=0.6), tmp_path / "knn.safetensors"
    assert knn.points.dtype == (np.uint8 if grey else np.float32)
    save_rule(path, knn, facts={"data": "here"})
    loaded = load_stored_rule(path)
    assert loaded.facts == {"data": "here"}
    assert isinstance(loaded.rule, KnnSigma)
    assert loaded.rule.digest == knn.digest
    assert loaded.rule.to_json() == knn.to_json()
    assert np.array_equal(loaded.rule.points, knn.points)
    queries = random((5, 1, 3, 3), seed=2)
    assert np.array_equal(load_rule(path).sigmas(queries), knn.sigmas(queries))
    with pytest.raises(InputError, match="never overwritten"):
        save_rule(path, knn)


def test_grey_levels_and_their_floats_are_the_same_rule():
    levels = np.random.default_rng(0).integers(0, 256, size=(40, 9), dtype=np.uint8)
    assert rule(levels).digest == rule(np.divide(levels, np.float32(255), dtype=np.float32)).digest


def test_the_digest_sees_everything():
    moved = random((50, 6))
    moved[3, 3] = np.nextafter(moved[3, 3], np.float32(9))
    changes = [{}, {"base_sigma": 0.25}, {"rate": 0.31}, {"k": 5}, {"offset": 1.25}, {"most": 1.0}, {"points": moved}]
    assert len({rule(**change).digest for change in changes}) == len(changes)
    assert rule().digest == rule().digest


def test_points_cannot_be_changed_behind_its_back():
    with pytest.raises(ValueError, match="read-only"):
        rule().points[0] = 0


@pytest.mark.parametrize("keep", [0, 20, 300, -5])
def test_a_file_cut_short_is_refused(tmp_path, keep):
    path = tmp_path / "knn.safetensors"
    save_rule(path, rule())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match="cut short or damaged"):
        load_rule(path)


def test_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "knn.safetensors"
    save_rule(path, rule())
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match="does not match the digest"):
        load_rule(path)


def test_other_files_are_refused(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "other.safetensors"
    safetensors.save_file({"x": np.zeros(2)}, path)
    with pytest.raises(ModelError, match="holds no rule for sigma"):
        load_rule(path)
    with pytest.raises(ModelError, match="there is no file"):
        load_rule(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize(
    ("text", "broken", "message"),
    [
        ('\\"kind\\": \\"knn\\"', '\\"kind\\": \\"abc\\"', "kind 'abc' is unknown"),
        ('\\"format\\": 1', '\\"format\\": 9', "format 9"),
        ('\\"offset\\"', '\\"offsat\\"', "offset"),
        ('\\"k\\": 4', '\\"k\\": 0', "k=0"),
    ],
)
def test_descriptions_that_cannot_be_understood_are_refused(tmp_path, text, broken, message):
    path = tmp_path / "knn.safetensors"
    save_rule(path, rule())
    content = path.read_bytes()
    assert text.encode() in content
    path.write_bytes(content.replace(text.encode(), broken.encode()))
    with pytest.raises(ModelError, match=message):
        load_rule(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_sigma": 0.0},
        {"base_sigma": math.inf},
        {"rate": -0.01},
        {"rate": math.nan},
        {"k": 0},
        {"k": 51},
        {"offset": math.inf},
        {"most": 0.0},
        {"points": np.zeros((0, 3), dtype=np.float32)},
        {"points": np.zeros((3, 3))},
        {"points": np.full((9, 3), np.nan, dtype=np.float32)},
    ],
)
def test_impossible_rules_are_refused(changes):
    with pytest.raises(InputError):
        rule(**changes)

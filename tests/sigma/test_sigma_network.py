"""The learned noise level: its Lipschitz constant is a true bound, and no value depends on the batch."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from smoothcert.errors import InputError
from smoothcert.records.envelopes import LipschitzSigma
from smoothcert.sigma.network import SigmaNetwork, shrunk, spectral_norm_up
from smoothcert.sigma.rule import SigmaRule
from smoothcert.sigma.rule_files import load_rule, save_rule


def random_network(
    seed: int, widths: tuple[int, ...] = (12, 20, 1), *, scale: float = 0.3, most: float | None = None
) -> SigmaNetwork:
    random = np.random.default_rng(seed)
    layers = list(pairwise(widths))
    return SigmaNetwork(
        weights=tuple(scale * random.standard_normal((after, before)) for before, after in layers),
        biases=(*(random.standard_normal(after) for _, after in layers[:-1]), np.full(1, 0.5)),
        floor=0.25,
        most=most,
    )


def sigma_in_fifty_digits(network: SigmaNetwork, row: np.ndarray) -> mpf:
    hidden = [mpf(float(value)) for value in row]
    for weight, bias in zip(network.weights, network.biases, strict=True):
        sums = [
            mpmath.fdot(map(mpf, line.tolist()), hidden) + mpf(b) for line, b in zip(weight, bias.tolist(), strict=True)
        ]
        hidden = [max(value, mpf(0)) for value in sums]
    return mpf(network.floor) + hidden[0]


def test_it_is_a_rule() -> None:
    network = random_network(0)
    assert isinstance(network, SigmaRule)
    assert network.envelope == LipschitzSigma(constant=network.lipschitz_constant, floor=0.25)
    assert "network 12-20-1" in network.description


@given(st.integers(0, 2**32 - 1), st.sampled_from([(12, 1), (12, 20, 1), (12, 8, 8, 1)]), st.sampled_from([None, 1.5]))
def test_the_constant_bounds_every_change(seed: int, widths: tuple[int, ...], most: float | None) -> None:
    network = random_network(seed, widths, most=most)
    random = np.random.default_rng([seed, 1])
    x = random.standard_normal((8, 12)).astype(np.float32)
    y = (x + 10.0 ** random.uniform(-4, 1) * random.standard_normal(x.shape)).astype(np.float32)
    change = np.abs(network.sigmas(x) - network.sigmas(y))
    distance = np.linalg.norm(x.astype(np.float64) - y, axis=1)
    assert (change <= network.lipschitz_constant * distance * (1 + 1e-9) + 1e-11).all()


@given(st.integers(0, 2**32 - 1))
def test_one_linear_layer_attains_the_constant(seed: int) -> None:
    network = random_network(seed, (12, 1))
    direction = network.weights[0][0] / np.linalg.norm(network.weights[0])
    start = direction * (5.0 + np.abs(network.biases[0]))
    x, y = start.astype(np.float32)[None], (3 * start).astype(np.float32)[None]
    slope = (network.sigmas(y) - network.sigmas(x))[0] / np.linalg.norm(y.astype(np.float64) - x)
    assert slope == pytest.approx(network.lipschitz_constant, rel=1e-6)
    assert slope <= network.lipschitz_constant * (1 + 1e-12)


def test_steps_along_the_top_singular_vectors_come_close_and_stay_below() -> None:
    """The last layer is aligned with the largest singular vector of the first, and the step follows it."""
    random = np.random.default_rng(3)
    first = np.abs(random.standard_normal((20, 12)))
    left, _, right = np.linalg.svd(first)
    network = SigmaNetwork(weights=(first, np.abs(left[:, 0])[None]), biases=(np.zeros(20), np.zeros(1)), floor=0.1)
    x = np.abs(right[0]).astype(np.float32)[None]
    slope = (network.sigmas(2 * x) - network.sigmas(x))[0] / np.linalg.norm(x.astype(np.float64))
    assert network.lipschitz_constant * (1 - 1e-6) < slope <= network.lipschitz_constant * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (20, 30), (200, 784)])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_spectral_norm_is_just_above_the_largest_singular_value(shape: tuple[int, int], scale: float) -> None:
    matrix = scale * np.random.default_rng(0).standard_normal(shape)
    bound, library = spectral_norm_up(matrix), float(np.linalg.svd(matrix, compute_uv=False)[0])
    assert library < bound < library * (1 + 1e-9)


def test_spectral_norm_of_a_known_matrix_in_fifty_digits() -> None:
    matrix = np.random.default_rng(1).standard_normal((6, 9))
    with mpmath.workdps(50):
        gram = mpmath.matrix(matrix.tolist()) * mpmath.matrix(matrix.T.tolist())
        truth = mpmath.sqrt(max(mpmath.eigsy(gram, eigvals_only=True)))
        excess = float(mpf(spectral_norm_up(matrix)) / truth - 1)
    assert 0 < excess < 1e-12
    assert spectral_norm_up(np.zeros((3, 4))) == 0.0


def test_spectral_norm_does_not_trust_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong decomposition makes the bound larger, never too small."""
    matrix = np.random.default_rng(1).standard_normal((6, 9))
    truth = float(np.linalg.svd(matrix, compute_uv=False)[0])
    decompose = np.linalg.svd

    def damaged(*arguments: object, **options: object) -> tuple[np.ndarray, ...]:
        left, singular, right = decompose(*arguments, **options)  # type: ignore[call-overload]
        return left, 0.5 * singular, right

    monkeypatch.setattr(np.linalg, "svd", damaged)
    assert spectral_norm_up(matrix) >= truth


@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 10))
def test_shrinking_keeps_to_the_limit_and_gives_nothing_away(seed: int, limit: float) -> None:
    network = random_network(seed)
    small = shrunk(network.weights, lipschitz=limit)
    reached = SigmaNetwork(weights=small, biases=network.biases, floor=0.25).lipschitz_constant
    assert reached <= limit
    assert reached >= min(limit, network.lipschitz_constant) * (1 - 1e-9)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_values_in_fifty_digits(seed: int) -> None:
    network = random_network(seed)
    rows = np.random.default_rng([seed, 2]).standard_normal((3, 12)).astype(np.float32)
    with mpmath.workdps(50):
        for sigma, row in zip(network.sigmas(rows).tolist(), rows, strict=True):
            assert abs(float(mpf(sigma) / sigma_in_fifty_digits(network, row) - 1)) < 1e-14


def test_a_value_does_not_depend_on_the_batch_or_the_layout() -> None:
    network = random_network(5, (784, 200, 1), scale=0.01)
    inputs = np.random.default_rng(0).random((40, 1, 28, 28)).astype(np.float32)
    together = network.sigmas(inputs)
    alone = np.array([network.sigmas(inputs[number : number + 1])[0] for number in range(40)])
    assert (together == alone).all()
    assert (network.sigmas(inputs[::-1]) == together[::-1]).all()
    assert (network.sigmas(np.asfortranarray(inputs)) == together).all()
    assert len(np.unique(together)) == 40


def test_floor_and_most() -> None:
    inputs = np.random.default_rng(0).standard_normal((500, 12)).astype(np.float32)
    free, cut = random_network(2).sigmas(inputs), random_network(2, most=1.0).sigmas(inputs)
    assert free.min() == 0.25
    assert free.max() > 1.0
    assert (cut == np.minimum(free, 1.0)).all()


def test_what_cannot_be_promised_is_not_a_number() -> None:
    network = random_network(0)
    inputs = np.ones((4, 12), dtype=np.float32)
    inputs[0, 0], inputs[1, 0] = np.nan, np.inf
    assert np.isnan(network.sigmas(inputs)).tolist() == [True, True, False, False]
    # Large numbers that cancel: σ is small, but its error is not.
    cancelling = SigmaNetwork(weights=(np.array([[1.0, -1.0]]),), biases=(np.zeros(1),), floor=0.5)
    assert np.isnan(cancelling.sigmas(np.array([[1e4, 1e4], [1, 1]], dtype=np.float32))).tolist() == [True, False]


def test_saved_and_loaded_it_is_the_same_to_the_bit(tmp_path: Path) -> None:
    network = random_network(7, most=2.0)
    save_rule(tmp_path / "s.safetensors", network, facts={"why": "test"})
    loaded = load_rule(tmp_path / "s.safetensors")
    assert isinstance(loaded, SigmaNetwork)
    assert loaded.digest == network.digest
    assert loaded.to_json() == network.to_json()
    inputs = np.random.default_rng(0).random((10, 12)).astype(np.float32)
    assert (loaded.sigmas(inputs) == network.sigmas(inputs)).all()


def test_the_digest_sees_every_number() -> None:
    network = random_network(7)
    changed = [np.array(weight) for weight in network.weights]
    changed[0][3, 4] = math.nextafter(changed[0][3, 4], 9.0)
    digests = {
        network.digest,
        SigmaNetwork(weights=tuple(changed), biases=network.biases, floor=0.25).digest,
        SigmaNetwork(weights=network.weights, biases=network.biases, floor=0.26).digest,
        SigmaNetwork(weights=network.weights, biases=network.biases, floor=0.25, most=1.0).digest,
    }
    assert len(digests) == 4


def test_weights_cannot_be_changed_afterwards() -> None:
    network = random_network(0)
    with pytest.raises(ValueError, match="read-only"):
        network.weights[0][0, 0] = 100.0


W, B = np.ones((1, 12)), np.ones(1)


@pytest.mark.parametrize(
    ("weights", "biases", "numbers", "message"),
    [
        ((W,), (B,), {"floor": 0.0}, "floor"),
        ((W,), (B,), {"floor": 0.5, "most": 0.4}, "not below the floor"),
        ((), (), {"floor": 0.5}, "do not make a network"),
        ((np.ones((2, 12)),), (np.ones(2),), {"floor": 0.5}, "one output"),
        ((W, np.ones((1, 3))), (B, B), {"floor": 0.5}, "do not make a network"),
        ((W,), (np.ones(2),), {"floor": 0.5}, "do not make a network"),
        ((W * np.nan,), (B,), {"floor": 0.5}, "not finite"),
    ],
)
def test_unusable_networks_are_refused(
    weights: tuple[np.ndarray, ...], biases: tuple[np.ndarray, ...], numbers: dict[str, float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        SigmaNetwork(weights=weights, biases=biases, **numbers)


def test_inputs_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="made for 12 numbers"):
        random_network(0).sigmas(np.ones((2, 13), dtype=np.float32))

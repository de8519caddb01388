"""The grid that a `SmoothedClassifier` finds by itself, and what its guarantees say of the noise."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import CallableRule, SmoothedClassifier, Supposition
from smoothcert.errors import InputError
from smoothcert.noise import from_grid
from smoothcert.records import Guarantee, LipschitzSigma, Noise, Norm, Proof, SemiElastic

SIZE = 16
PIXELS = np.random.default_rng(5).integers(0, 256, (3, SIZE)).astype(np.uint8)
EXACT = from_grid(PIXELS.astype(np.int32), 256)
FLOATS = np.random.default_rng(6).random((3, SIZE)).astype(np.float32)
NOT_SOUND = "not sound in floating point"


def bright(batch: np.ndarray) -> np.ndarray:
    return (batch.reshape(len(batch), -1).mean(axis=1) > 0.2).astype(np.int64)


def divided(batch: np.ndarray) -> np.ndarray:
    """Votes of both kinds, by the very noise."""
    return (batch.reshape(len(batch), -1).mean(axis=1) > 0.45).astype(np.int64)


def smoothed(model: object = bright, **settings: object) -> SmoothedClassifier:
    usual = {"sigma": 0.25, "num_classes": 2, "batch": 200, "seed": 3}
    return SmoothedClassifier(model, **(usual | settings))


def counts(classifier: SmoothedClassifier, x: object) -> list[list[int]]:
    return [[tally.counts.tolist() for tally in point.tallies] for point in classifier.certify(x, n=400)]


GIVEN = {
    "float32": EXACT,
    "float64": PIXELS / 255,
    "uint8": PIXELS,
    "tensor of bytes": torch.from_numpy(PIXELS),
    "ToTensor": torch.from_numpy(PIXELS).to(torch.float32).div(255),
}


@pytest.mark.parametrize("x", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("asked", ["detect", None])
def test_eight_bits_are_found_and_used(x: object, asked: str | None) -> None:
    classifier = smoothed(divided, grid=asked)
    points = classifier.certify(x, n=400)
    assert classifier.grid == 256
    assert all(point.grid == 256 for point in points)
    assert all(point.bounds is not None and Proof.NOISE_TABLES in point.bounds.spent for point in points)
    assert [dataclasses.replace(point, seconds=0.0) for point in points] == [
        dataclasses.replace(point, seconds=0.0) for point in smoothed(divided, grid=256).certify(EXACT, n=400)
    ]


def test_a_black_image_does_not_lock_the_grid_of_two_levels() -> None:
    classifier = smoothed()
    classifier.certify(np.zeros((1, SIZE)), n=400)
    assert classifier.grid == 256
    classifier.certify(EXACT, n=400)


def test_sixteen_bits_are_found() -> None:
    classifier = smoothed()
    classifier.predict(np.arange(SIZE).reshape(1, SIZE) * 999 / 65535, n=50)
    assert classifier.grid == 65536


def test_what_lies_on_no_grid_gets_float_noise_as_before() -> None:
    classifier = smoothed(divided)
    assert counts(classifier, FLOATS) == counts(smoothed(divided, grid="float"), FLOATS)
    assert classifier.grid is None


def test_the_grid_is_that_of_the_first_inputs_and_others_are_refused() -> None:
    classifier = smoothed()
    classifier.certify(EXACT, n=400)
    with pytest.raises(InputError, match=r"the first inputs lay on a grid of 256 levels.*grid='float'"):
        classifier.certify(FLOATS, n=400)
    with pytest.raises(InputError, match="another SmoothedClassifier"):
        classifier.predict(FLOATS, n=400)
    # The other way round there is nothing to refuse: noise in float32 takes any inputs.
    later = smoothed()
    later.certify(FLOATS, n=400)
    (point, *_) = later.certify(PIXELS, n=400)
    assert later.grid is None
    assert point.grid is None


def test_float_noise_can_be_asked_for() -> None:
    assert smoothed(grid="float").grid is None
    of_bytes, of_floats = (counts(smoothed(divided, grid="float"), x) for x in (PIXELS, EXACT))
    assert of_bytes == of_floats
    assert of_bytes != counts(smoothed(divided), EXACT)


@pytest.mark.parametrize("wrong", ["256", "exact", 1, True, 255.0])
def test_a_grid_that_is_none_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(InputError, match="grid"):
        smoothed(grid=wrong)


def test_bytes_are_scaled_only_where_inputs_lie_in_the_unit_range() -> None:
    assert smoothed(input_range=(0, 1)).check_inputs(PIXELS).max() <= 1
    assert np.array_equal(smoothed(input_range=None).check_inputs(PIXELS), PIXELS)
    assert np.array_equal(smoothed(input_range=(0.0, 255.0)).check_inputs(PIXELS), PIXELS)
    # Bytes are bytes, also where they are all 0 and 1; other integers are what they are.
    bits = PIXELS % 2
    assert np.array_equal(smoothed().check_inputs(bits), bits / np.float32(255))
    assert np.array_equal(smoothed().check_inputs(bits.astype(np.int64)), bits)
    for kind in (np.uint16, np.int64):
        with pytest.raises(InputError, match=r"outside \[0, 1\]"):
            smoothed().check_inputs(PIXELS.astype(kind))


@pytest.mark.parametrize("noise", [noise for noise in Noise if noise.sampled])
def test_a_sigma_below_one_step_takes_a_finer_grid_or_none(noise: Noise) -> None:
    for sigma, levels in ((0.25, 256), (0.001, 65536), (1e-5, None)):
        classifier = smoothed(sigma=sigma, noise=noise)
        classifier.predict(EXACT, n=50)
        assert classifier.grid == levels


def test_a_rule_whose_levels_the_grid_cannot_carry_gets_float_noise() -> None:
    rule = CallableRule(lambda x: 1e-5, envelope=SemiElastic(rate=0.1))
    classifier = smoothed(sigma=rule)
    classifier.predict(EXACT, n=50)
    assert classifier.grid is None
    assert "does not suit a grid" in repr(classifier)


def test_shared_noise_goes_in_steps_too() -> None:
    classifier = smoothed(shared_noise=True)
    classifier.predict(EXACT, n=50)
    assert classifier.grid == 256


def test_inputs_that_may_lie_anywhere() -> None:
    anywhere = smoothed(input_range=None)
    anywhere.predict(EXACT, n=50)
    assert anywhere.grid == 256
    outside = smoothed(input_range=None)
    outside.predict(EXACT + 2, n=50)
    assert outside.grid is None


def test_a_sigma_that_varies_is_certified_on_a_grid_within_one_of_zero() -> None:
    """Further out float32 numbers are further from the grid than the envelope makes room for."""
    rule = CallableRule(lambda x: 0.3, envelope=SemiElastic(rate=0.01))
    classifier = smoothed(sigma=rule, input_range=None)
    (point, *_) = classifier.certify(EXACT, n=1000)
    assert point.grid is None
    with pytest.raises(InputError, match=r"certified within \[-1, 1\].*grid='float'"):
        smoothed(sigma=rule, input_range=(-2.0, 2.0), grid=256).certify(EXACT, n=1000)
    (point, *_) = smoothed(sigma=rule, input_range=(-1.0, 1.0), grid=256).certify(-EXACT, n=1000)
    assert point.grid == 256


def test_noise_in_the_first_layer_stays_float() -> None:
    model = nn.Sequential(nn.Linear(SIZE, 4), nn.ReLU(), nn.Linear(4, 2))
    classifier = SmoothedClassifier(model, sigma=0.25, noise_at="first-layer", seed=1, batch=50)
    (point,) = classifier.predict(PIXELS[:1], n=50)
    assert classifier.grid is None
    assert NOT_SOUND in repr(point)
    with pytest.raises(InputError, match="lies on no grid"):
        SmoothedClassifier(model, sigma=0.25, noise_at="first-layer", grid=256).predict(PIXELS, n=50)


def test_a_memory_takes_a_grid_that_is_named_and_else_float_noise(tmp_path: Path) -> None:
    """Two processes that see other inputs first must find each other's promises, and those made before."""
    settings = {"input_shape": (SIZE,)}
    with smoothed(memory=tmp_path / "m.sqlite", **settings) as classifier:
        assert classifier.grid is None
        key = classifier.memory_key
        (point, *_) = classifier.certify(PIXELS, n=1000)
        assert classifier.memory_key == key
    assert key.noise == "gaussian"
    assert "a memory keeps the regions of one grid" in repr(classifier)
    assert point.guarantee is not None
    assert NOT_SOUND in str(point.guarantee)
    assert point.guarantee.supposes == (
        Supposition.FIXED_FUNCTION,
        Supposition.FLOAT_NOISE,
        Supposition.MEMORY_KEPT,
    )
    with smoothed(memory=tmp_path / "m.sqlite", grid=256, **settings) as classifier:
        (point, *_) = classifier.certify(PIXELS, n=1000)
        assert classifier.memory_key.noise == "gaussian on 256 levels"
        assert NOT_SOUND not in str(point.guarantee)
        (again,) = classifier.predict(PIXELS[:1], n=1000)
        assert again.promise is not None
        assert again.grid == 256


def test_before_the_first_inputs_the_grid_is_not_known() -> None:
    classifier = smoothed(input_shape=(SIZE,))
    assert "on the grid of the first inputs" in repr(classifier)
    for ask in (lambda: classifier.grid, lambda: classifier.memory_key):
        with pytest.raises(InputError, match=r"grid of the inputs is not known yet: give grid=256"):
            ask()
    assert classifier.tune((SIZE,), samples=100) == 200


def test_products_in_float32_get_float_noise_and_the_reason_is_told() -> None:
    classifier = smoothed()
    classifier.predict(PIXELS.astype(np.float32) * np.float32(1 / 255), n=50)
    assert classifier.grid is None
    assert "divide by 255" in repr(classifier)


class TestGuarantees:
    def test_of_float_noise_say_that_they_are_not_sound(self) -> None:
        classifier = smoothed()
        (point, *_) = classifier.certify(FLOATS, n=1000)
        assert point.guarantee is not None
        assert not point.guarantee.sound_in_floating_point
        assert Supposition.FLOAT_NOISE in point.guarantee.supposes
        for told in (str(point.guarantee), repr(point.guarantee), repr(point), repr(classifier)):
            assert NOT_SOUND in told

    def test_of_exact_noise_do_not(self) -> None:
        classifier = smoothed()
        (point, *_) = classifier.certify(PIXELS, n=1000)
        assert point.guarantee is not None
        assert point.guarantee.sound_in_floating_point
        assert point.guarantee.supposes == (Supposition.FIXED_FUNCTION,)
        for told in (str(point.guarantee), repr(point.guarantee), repr(point), repr(classifier)):
            assert NOT_SOUND not in told
        for told in (repr(point.guarantee), repr(point), repr(classifier)):
            assert "in exact steps of 1/255" in told

    @pytest.mark.parametrize("grid", [256, None])
    def test_in_json(self, grid: int | None) -> None:
        guarantee = Guarantee(label=1, radius=0.5, norm=Norm.L2, alpha=0.001, grid=grid)
        document = json.loads(json.dumps(guarantee.to_json()))
        assert document == {
            "statement": str(guarantee),
            "label": 1,
            "radius": 0.5,
            "norm": "l2",
            "scale": None,
            "alpha": 0.001,
            "grid": grid,
            "sound_in_floating_point": grid is not None,
            "supposes": ["fixed_function"] if grid else ["fixed_function", "float_noise"],
        }

    def test_adaptive_answers_and_varying_sigma_know_the_noise_too(self) -> None:
        (point, *_) = smoothed().certify(PIXELS, n=2000, decide=0.01)
        assert point.grid == 256
        rule = CallableRule(lambda x: 0.3, envelope=LipschitzSigma(constant=0.01, floor=0.2))
        (point, *_) = smoothed(sigma=rule).certify(PIXELS, n=2000)
        assert point.grid == 256

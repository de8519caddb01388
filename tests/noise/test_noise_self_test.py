"""The self-test of the noise: it accepts correct noise, detects wrong noise, and is fast."""

import dataclasses
import time

import numpy as np
import pytest

from smoothcert.errors import NoiseError, SmoothcertError
from smoothcert.noise import GridLaw, constants, gaussian_law, grid_law, grid_noise, host, self_test
from smoothcert.noise.self_test import check_noise
from smoothcert.records import Noise


@pytest.mark.parametrize("evaluations", [2, 3, 441, 883, 3091])
def test_uniform_noise_may_end_at_a_border_between_steps(evaluations: int) -> None:
    """λ = N/2q, as for comparisons with splitting: the last threshold is 0, but for the rounding of λ."""
    check_noise(Noise.UNIFORM, sigma=evaluations / 510, levels=256)


def test_wrong_thresholds_at_the_end_of_uniform_noise_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    law = grid_law(Noise.UNIFORM, sigma=441 / 510, levels=256)
    thresholds = law.thresholds.copy()
    thresholds[1] += np.uint64(2**16)
    thresholds[-2] -= np.uint64(2**16)
    monkeypatch.setattr(self_test, "grid_law", lambda *_, **__: dataclasses.replace(law, thresholds=thresholds))
    with pytest.raises(NoiseError, match="tables"):
        check_noise(Noise.UNIFORM, sigma=441 / 510, levels=256)


CASES = [
    (Noise.GAUSSIAN, 0.5, None), (Noise.UNIFORM, 0.5, None), (Noise.GAUSSIAN, 0.12, 256), (Noise.GAUSSIAN, 1.0, 256),
    (Noise.GAUSSIAN, 0.25, 4081), (Noise.GAUSSIAN, 0.1, 2), (Noise.GAUSSIAN, 0.5, 2), (Noise.GAUSSIAN, 0.01, 17),
    (Noise.UNIFORM, 0.5, 256), (Noise.UNIFORM, 0.6, 2),
]  # fmt: skip


@pytest.mark.parametrize(("noise", "sigma", "levels"), CASES)
def test_healthy_noise_passes_again_and_again(noise: Noise, sigma: float, levels: int | None) -> None:
    for _ in range(5):
        check_noise(noise, sigma=sigma, levels=levels)


@pytest.mark.parametrize(("noise", "sigma", "levels"), CASES)
def test_it_is_quick(noise: Noise, sigma: float, levels: int | None) -> None:
    def seconds() -> float:
        began = time.process_time()
        check_noise(noise, sigma=sigma, levels=levels)
        return time.process_time() - began

    check_noise(noise, sigma=sigma, levels=levels)  # the generator is compiled, the tables are made
    assert min(seconds() for _ in range(3)) < 0.1


def test_the_error_is_one_of_ours() -> None:
    assert issubclass(NoiseError, SmoothcertError)
    assert NoiseError.exit_code == 9


def spoil(monkeypatch: pytest.MonkeyPatch, change) -> None:  # type: ignore[no-untyped-def]
    """Apply a change to the output of both generators."""
    on_grid, in_floats = grid_noise.grid_draws, host.unit_noise
    monkeypatch.setattr(grid_noise, "grid_draws", lambda *a, **k: change(on_grid(*a, **k)))
    monkeypatch.setattr(host, "unit_noise", lambda *a, **k: change(in_floats(*a, **k)))


def widened(draws: np.ndarray) -> np.ndarray:
    return np.trunc(draws * 1.06) if draws.dtype.kind == "i" else draws * 1.06


def shifted(draws: np.ndarray) -> np.ndarray:
    return draws + 0.03 * draws.std()


def one_sided(draws: np.ndarray) -> np.ndarray:
    return np.abs(draws)


def in_pairs(draws: np.ndarray) -> np.ndarray:
    """Dependent neighbours; every single value has the right law."""
    flipped = draws.copy()
    flipped[:, 1::2] = np.abs(draws[:, 1::2]) * np.where(draws[:, 0::2] < 0, -1, 1)
    return flipped


def repeated(draws: np.ndarray) -> np.ndarray:
    return np.broadcast_to(draws[:1, :8], (draws.shape[0], 8)).repeat(draws.shape[1] // 8, axis=1)


@pytest.mark.parametrize("change", [widened, shifted, one_sided, in_pairs, repeated])
@pytest.mark.parametrize(
    ("noise", "sigma", "levels"),
    [
        (Noise.GAUSSIAN, 0.5, None), (Noise.UNIFORM, 0.5, None), (Noise.GAUSSIAN, 0.5, 256),
        (Noise.GAUSSIAN, 1.0, 4081), (Noise.UNIFORM, 0.5, 256),
    ],
)  # fmt: skip
def test_a_biased_generator_is_caught(  # type: ignore[no-untyped-def]
    change, noise: Noise, sigma: float, levels: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, change)
    with pytest.raises(NoiseError, match="self-test of the noise"):
        check_noise(noise, sigma=sigma, levels=levels)


def three_valued(draws: np.ndarray) -> np.ndarray:
    """0 and ±√3 standard deviations, with the first five moments of a normal variable."""
    far = np.abs(draws) > 0.96742 * draws.std()
    return np.where(far, np.sign(draws) * np.sqrt(3.0) * draws.std(), 0.0)


@pytest.mark.parametrize("levels", [None, 256])
def test_the_whole_distribution_is_looked_at(levels: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, three_valued)
    with pytest.raises(NoiseError, match="the distribution of 200704 fresh draws"):
        check_noise(Noise.GAUSSIAN, sigma=0.5, levels=levels)


def cut_tails(law: GridLaw) -> GridLaw:
    """The tables of noise that ends at 5.7 standard deviations."""
    end = int(5.7 * law.sigma * (law.levels - 1))
    return dataclasses.replace(law, least=-end, thresholds=law.thresholds[law.most - end : law.most + end])


def coarse_tails(law: GridLaw) -> GridLaw:
    """Thresholds with 40 bits: right to 1e-12 everywhere, and wrong in the tail."""
    return dataclasses.replace(law, thresholds=law.thresholds >> np.uint64(24) << np.uint64(24))


def lopsided(law: GridLaw) -> GridLaw:
    thresholds = law.thresholds.copy()
    thresholds[-1] -= np.uint64(1)
    return dataclasses.replace(law, thresholds=thresholds)


def off_by_one_in_the_tail(law: GridLaw) -> GridLaw:
    """One threshold beyond 6 standard deviations, and its mirror image, moved by two units of 2⁻⁶⁴."""
    thresholds = law.thresholds.copy()
    i = int(law.most - 6.5 * law.sigma * (law.levels - 1))
    thresholds[i] += np.uint64(2)
    thresholds[-1 - i] -= np.uint64(2)
    return dataclasses.replace(law, thresholds=thresholds)


@pytest.mark.parametrize("damage", [cut_tails, coarse_tails, lopsided, off_by_one_in_the_tail])
@pytest.mark.parametrize("sigma", [0.25, 0.5])
def test_damaged_tables_are_caught(damage, sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    damaged = damage(grid_law(Noise.GAUSSIAN, sigma=sigma, levels=256))
    monkeypatch.setattr(self_test, "grid_law", lambda *_, **__: damaged)
    with pytest.raises(NoiseError, match=r"tables|extreme words"):
        check_noise(Noise.GAUSSIAN, sigma=sigma, levels=256)


def test_a_chacha_with_fewer_rounds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "CHACHA_DOUBLE_ROUNDS", 4)
    with pytest.raises(NoiseError, match="RFC 8439"):
        check_noise(Noise.GAUSSIAN, sigma=0.5, levels=256)


def test_another_philox_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ROUNDS", 9)
    with pytest.raises(NoiseError, match="Philox"):
        check_noise(Noise.GAUSSIAN, sigma=0.5, levels=None)


def test_float_noise_that_ends_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Box–Muller on 24 bits, as it is often made in float32, ends at 5.7 standard deviations."""
    right = gaussian_law._radius
    short = np.uint64(0xFFFFFF00)
    monkeypatch.setattr(gaussian_law, "_radius", lambda word: right((word & short) | np.uint64(0x80)))
    with pytest.raises(NoiseError, match="reaches"):
        check_noise(Noise.GAUSSIAN, sigma=0.5, levels=None)


def test_the_inequalities_are_on_the_safe_side() -> None:
    """With one alarm in a hundred for each of the six tests, instead of 1e-10, healthy noise fails in at most six per
    cent of the cases: in 100 more than 20 times with a probability below 1e-6. (It fails far less often.)
    """
    alarms = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_test, "_LOG", np.log(2 / 0.01))
        for _ in range(100):
            try:
                check_noise(Noise.GAUSSIAN, sigma=0.5, levels=256)
            except NoiseError:
                alarms += 1
    assert alarms <= 20

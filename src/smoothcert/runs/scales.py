"""The scale of the features of a run: read from its spec, and what cannot be combined with one."""

from __future__ import annotations

from smoothcert.errors import CorruptRunError, InputError
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.spec import DETECT, FIRST_LAYER, ConstantLevel, NoiseSpec, RunManifest, RunSpec


def scale_of(noise: NoiseSpec) -> FeatureScale | None:
    """The scale of noise that is settled; None without one."""
    return None if noise.scale is None or isinstance(noise.scale, str) else FeatureScale(noise.scale)


def scale_of_run(manifest: RunManifest) -> FeatureScale | None:
    """The scale of a run; a CorruptRunError if it cannot be the scale of its inputs."""
    try:
        scale = scale_of(manifest.spec.noise)
        if scale is not None:
            scale.check_fits(manifest.data.input_shape)
    except InputError as error:
        raise CorruptRunError(f"the manifest states an impossible scale: {error}") from error
    return scale


def check_scale(spec: RunSpec) -> None:
    """InputError for a scale that is impossible, or together with something that it cannot be combined with."""
    noise = spec.noise
    if noise.scale is None:
        return
    scale_of(noise)
    if not isinstance(spec.sigma, ConstantLevel):
        raise InputError(
            "--sigma-scale is for one level, --sigma: a rule gives each input a level of its own, and nothing is "
            "proved of it for scaled features"
        )
    if noise.place == FIRST_LAYER:
        raise InputError("--sigma-scale needs the noise at the input: leave --noise-at out")
    if noise.grid not in (DETECT, None):
        raise InputError(
            f"--grid {noise.grid} is for noise in exact steps, and inputs that are divided by --sigma-scale lie on no "
            "grid: leave --grid out"
        )

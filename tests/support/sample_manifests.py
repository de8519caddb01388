"""A valid manifest of a run that was never made."""

from __future__ import annotations

from typing import Any

import msgspec

from smoothcert.records import Noise
from smoothcert.spec import (
    ConstantLevel,
    DataFacts,
    DataSpec,
    Digests,
    FixedN,
    Measured,
    ModelFacts,
    ModelSpec,
    NoiseSpec,
    RunManifest,
    RunSpec,
)

SPEC = RunSpec(
    task="certify",
    model=ModelSpec(place="model.pt"),
    data=DataSpec(place="digits"),
    noise=NoiseSpec(kind=Noise.GAUSSIAN, grid=None, generator="philox4x32-10"),
    sigma=ConstantLevel(level=0.25),
    question=FixedN(n=1000, n0=100),
    alpha=0.001,
    certificates=("gaussian",),
)

MANIFEST = RunManifest(
    spec=SPEC,
    sampling_version=1,
    seed=1,
    digests=Digests(model="0" * 64, data="1" * 64, code="2" * 64),
    measured=Measured(batch=64, backend="torch"),
    model=ModelFacts(num_classes=10),
    data=DataFacts(name="digits", input_shape=(1, 8, 8), size=360, inputs=360),
)


def sample_spec(**changes: Any) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


def sample_manifest(**changes: Any) -> RunManifest:
    return msgspec.structs.replace(MANIFEST, **changes)

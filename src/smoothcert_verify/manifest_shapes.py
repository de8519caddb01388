"""The shape of a manifest: its parts, their fields, and the values that these may have."""

from __future__ import annotations

from typing import Any

from smoothcert_verify.arithmetic import MOST_TRIALS
from smoothcert_verify.feature_scales import SCALE
from smoothcert_verify.json_values import (
    BOOLEAN,
    OBJECT,
    TEXT,
    Later,
    ListOf,
    Number,
    OneOf,
    Optional,
    Record,
    TableOf,
    Tagged,
    Text,
    Whole,
    accept_anything,
)
from smoothcert_verify.noise_forms import NOISES

SCHEMA = 3
TASKS = ("certify", "predict", "recertify")
MOST_INDEX = 2**32 - 1

DTYPES = ("bfloat16", "float16")
"""Half precisions of a model; a manifest without one is about the model in its own precision."""
GRID_GENERATOR, FLOAT_GENERATOR = "chacha20", "philox4x32-10"
_LARGEST_GRID = 2**23 + 1
COUNT, LEVEL, _DIGEST, SEED = Whole(1, 2 * MOST_TRIALS), Number(1e-100, 1e100), Text(64), Whole(0, 2**128 - 1)
_ENDS, _SHAPE = ListOf(Number(), 2, 2), ListOf(Whole(1, 10**9), 1, 100)
_MAYBE_TEXT, MAYBE_COUNT = Optional(TEXT), Optional(COUNT)
_MAYBE_LEVEL, _MAYBE_DIGEST = Optional(LEVEL), Optional(_DIGEST)
_NAMES = Later(ListOf(TEXT))


def _check_range(value: Any, field: str) -> None:
    if value != "default":
        Optional(_ENDS)(value, field)


NOISE = Record(
    kind=OneOf(tuple(NOISES)),
    grid=Optional(Whole(2, _LARGEST_GRID)),
    generator=OneOf((GRID_GENERATOR, FLOAT_GENERATOR)),
    place=OneOf(("input", "first-layer")),
    rounds=Later(BOOLEAN),
    shared=BOOLEAN,
    scale=SCALE,
)
MODEL_SPEC = Record(
    place=TEXT,
    arch=_MAYBE_TEXT,
    standardise=Optional(ListOf(ListOf(Number()), 2, 2)),
    num_classes=MAYBE_COUNT,
    backend=_MAYBE_TEXT,
    device=TEXT,
    weights=Later(_MAYBE_TEXT),
    code_folder=Later(_MAYBE_TEXT),
    dtype=Later(OneOf(DTYPES)),
)
DATA_SPEC = Record(
    place=TEXT,
    split=TEXT,
    root=_MAYBE_TEXT,
    input_range=_check_range,
    input_shape=Optional(_SHAPE),
    skip=COUNT,
    max_inputs=MAYBE_COUNT,
    resize=Later(Optional(ListOf(COUNT, 2, 2))),
    shorter_side=Later(MAYBE_COUNT),
    label_column=Later(_MAYBE_TEXT),
    indices=Later(Optional(ListOf(Whole(0, MOST_INDEX), 1))),
)
_SIGMA_SPEC = Tagged(
    {
        "constant": Record(level=LEVEL),
        "rule": Record(place=TEXT, code_folder=Later(_MAYBE_TEXT)),
        "optimised": Record(
            start=LEVEL, search=TEXT, settings=OBJECT, least=_MAYBE_LEVEL, most=_MAYBE_LEVEL, two_class=BOOLEAN
        ),
    }
)
QUESTION_SPEC = Tagged(
    {
        "fixed-n": Record(n=COUNT, n0=Whole(0, MOST_TRIALS)),
        "decide": Record(radii=ListOf(Number(0), 1), n=COUNT, n0=COUNT),
        "precision": Record(width=Number(0), n=COUNT, n0=COUNT),
        "every-evaluation": Record(n=COUNT),
    }
)
ENGINE_SPEC = Tagged(
    {
        "local": Record(workers=MAYBE_COUNT),
        "ray": Record(address=_MAYBE_TEXT, actors=MAYBE_COUNT, cpus_per_actor=Number(0), gpus_per_actor=Number(0)),
    }
)
_SPEC = Record(
    task=OneOf(TASKS),
    model=MODEL_SPEC,
    data=DATA_SPEC,
    noise=NOISE,
    sigma=_SIGMA_SPEC,
    question=QUESTION_SPEC,
    alpha=Number(0, 1),
    certificates=ListOf(TEXT),
    best_of=BOOLEAN,
    memory=_MAYBE_TEXT,
    seed=Optional(SEED),
    batch=MAYBE_COUNT,
    rigorous=BOOLEAN,
    engine=ENGINE_SPEC,
)
_DATA = Record(
    name=TEXT,
    input_shape=_SHAPE,
    size=Whole(1, MOST_INDEX),
    inputs=COUNT,
    levels=Optional(Whole(2)),
    input_range=Optional(_ENDS),
    feature_names=_NAMES,
)
_MODEL = Record(
    num_classes=Whole(2, 10**6),
    description=TEXT,
    probe=accept_anything,
    class_names=_NAMES,
    has_random_weights=Later(BOOLEAN),
)
MANIFEST = Record(
    schema=OneOf((SCHEMA,)),
    spec=_SPEC,
    sampling_version=Whole(1),
    seed=SEED,
    digests=Record(model=_DIGEST, data=_DIGEST, sigma=_MAYBE_DIGEST, memory=_MAYBE_DIGEST, code=_DIGEST),
    measured=Record(batch=COUNT, backend=TEXT),
    model=_MODEL,
    data=_DATA,
    sigma=Optional(Record(rule=OBJECT, envelope=Optional(OBJECT))),
    alpha_split=TableOf(TableOf(Number(0, 1))),
    environment=TableOf(TEXT),
    recertified_from=Optional(OBJECT),
)

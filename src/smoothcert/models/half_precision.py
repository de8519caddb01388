"""Half precision as the user's choice: what it can be, and what cannot have it. torch is not imported."""

from __future__ import annotations

from smoothcert.errors import InputError
from smoothcert.models.base import BaseClassifier

BFLOAT16, FLOAT16 = "bfloat16", "float16"
DTYPES = (BFLOAT16, FLOAT16)


def read_dtype(dtype: object) -> str | None:
    """The name of a precision that is requested, also as torch.bfloat16; None for that of the model itself."""
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InputError(
            f"there is no precision {name!r}: use {' or '.join(DTYPES)}, which torch.autocast computes, or leave dtype "
            "(--dtype) out for the precision of the model itself"
        )
    return name


def check_dtype_fits(dtype: str | None, *, backend: str | None, noise_at: str) -> None:
    """InputError for a back end or a place of the noise that computes in float32 only."""
    if dtype is None:
        return
    if backend not in (None, "torch"):
        raise InputError(
            f"--dtype {dtype} is computed by torch.autocast, and --backend {backend} computes in float32: leave one of "
            "them out"
        )
    if noise_at != "input":
        raise InputError(
            f"--dtype {dtype} needs the noise at the input: with --noise-at {noise_at} the first layer is computed in "
            "float64 and rounded to float32. Leave one of them out"
        )


def check_no_dtype(dtype: str | None, model: str) -> None:
    """InputError if a precision is requested of a model that is not a torch network."""
    if dtype is not None:
        raise InputError(
            f"--dtype {dtype} is for torch networks, by torch.autocast, but the model is {model}, whose precision is "
            "not changed: leave --dtype out"
        )


def note_dtype(dtype: str | None) -> str:
    """What the description of a model says of its precision; nothing without a request."""
    return "" if dtype is None else f", in {dtype}"


def dtype_of(classifier: BaseClassifier) -> str | None:
    """The half precision in which a base classifier was requested; None for that of the model itself."""
    name = getattr(classifier, "autocast_dtype", None)
    return name if name in DTYPES else None

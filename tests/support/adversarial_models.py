"""All adversarial models: importing this file registers every case in `ROOM`."""

import adversarial_control_flow  # noqa: F401
import adversarial_modules  # noqa: F401
import adversarial_precision  # noqa: F401
import adversarial_state  # noqa: F401
from adversarial_cases import ROOM, SHAPE, SIZE, THRESHOLD, Case, Expected, Judge, bright, clamp_argument, clamped
from adversarial_hooks import ORDINARY

__all__ = [
    "ORDINARY", "ROOM",
    "SHAPE", "SIZE", "THRESHOLD", "Case", "Expected", "Judge", "bright", "clamp_argument", "clamped",
]  # fmt: skip

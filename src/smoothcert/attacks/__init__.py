"""Attacks: pure functions on tensors that look for a point close by at which an answer changes.

What is attacked is a `Target`; how is `pgd` or `ddn`. Nothing here knows of certificates or runs. No attack touches the
mode of a module or the gradients of its parameters, and all randomness comes from a generator that is passed in, on the
device of the inputs.
"""

from smoothcert.attacks.ddn import ddn
from smoothcert.attacks.estimated_target import EstimatedTarget
from smoothcert.attacks.geometry import lengths, project, random_start, steepest
from smoothcert.attacks.noises import FixedNoise, FreshNoise, Noises, unit_noise
from smoothcert.attacks.pgd import pgd
from smoothcert.attacks.plain_target import PlainTarget
from smoothcert.attacks.smoothed_target import AttackObjective, SmoothedTarget
from smoothcert.attacks.target import Assessment, Target

__all__ = [
    "Assessment",
    "AttackObjective",
    "EstimatedTarget",
    "FixedNoise",
    "FreshNoise",
    "Noises",
    "PlainTarget",
    "SmoothedTarget",
    "Target",
    "ddn",
    "lengths",
    "pgd",
    "project",
    "random_start",
    "steepest",
    "unit_noise",
]

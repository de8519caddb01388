"""Adversarial attacks on classifiers, as pure functions of tensors.

A `Target` is what is attacked; `pgd` and `ddn` are the attacks. They know nothing of certificates or runs, leave the
mode of a module and the gradients of its parameters unchanged, and take all randomness from a generator on the device
of the inputs. The modules `attack_*` apply them to a run.
"""

from smoothcert.attacks.attack_noise import FixedNoise, FreshNoise, NoiseSource, unit_noise
from smoothcert.attacks.ddn import ddn
from smoothcert.attacks.estimated_target import EstimatedTarget
from smoothcert.attacks.geometry import lengths, project, random_start, steepest_direction
from smoothcert.attacks.pgd import pgd
from smoothcert.attacks.smoothed_target import AttackObjective, SmoothedTarget
from smoothcert.attacks.target import Assessment, PlainTarget, Target

__all__ = [
    "Assessment",
    "AttackObjective",
    "EstimatedTarget",
    "FixedNoise",
    "FreshNoise",
    "NoiseSource",
    "PlainTarget",
    "SmoothedTarget",
    "Target",
    "ddn",
    "lengths",
    "pgd",
    "project",
    "random_start",
    "steepest_direction",
    "unit_noise",
]

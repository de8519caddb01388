"""Noise → model → tallies."""

from smoothcert.sampling.batch_size import measure_batch
from smoothcert.sampling.model_checks import ModelChecks
from smoothcert.sampling.picked import PickedVote
from smoothcert.sampling.requests import Request, inputs_per_shard, segments
from smoothcert.sampling.sampler import Sampler, Tallier

SAMPLING_VERSION = 1
"""The version of the votes. Two runs may be continued into one another only if it is the same.

Raise it by hand in every change after which a seed gives other votes, or the votes of a seed have another meaning. The
golden votes in the tests fail if this is forgotten.
"""

__all__ = [
    "SAMPLING_VERSION",
    "ModelChecks",
    "PickedVote",
    "Request",
    "Sampler",
    "Tallier",
    "inputs_per_shard",
    "measure_batch",
    "segments",
]

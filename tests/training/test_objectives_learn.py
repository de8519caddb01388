"""One epoch with any objective increases the average certified radius on held-out digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smoothcert import SmoothedClassifier
from smoothcert.models.architectures import build
from smoothcert.records import Noise
from smoothcert.training import CarriedSigma, TrainingConfig, parse_objective, run_training

SIGMA = 0.25
CHOSEN = slice(0, None, 8)
"""56 of the held-out digits."""


def average_certified_radius(module, held_out, *, noise=Noise.GAUSSIAN):
    """Mean of radius·1[right]; an abstention or a wrong class counts 0."""
    smoothed = SmoothedClassifier(
        module, sigma=SIGMA, noise=noise, num_classes=10, seed=1, batch=1024, workers=1, device="cpu"
    )
    points = smoothed.certify(held_out.inputs(CHOSEN), n0=50, n=1000, alpha=0.001)
    labels = held_out.labels[CHOSEN]
    return np.mean(
        [point.radius if point.prediction == label else 0.0 for point, label in zip(points, labels, strict=True)]
    )


@pytest.fixture(scope="module")
def untrained(held_out):
    """The best of three untrained networks."""
    radii = []
    for seed in range(3):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            module = build("mlp-64", num_classes=10, input_shape=(1, 8, 8))
        radii.append(average_certified_radius(module.eval(), held_out))
    return max(radii)


@pytest.mark.parametrize(
    "objective",
    [
        "gaussian",
        "stability",
        "consistency:weight=2",
        "macer:beta=4,weight=4",
        "adversarial:radius=0.5,steps=4",
        "smoothadv:radius=0.5,noises=2",
        "smoothadv:radius=0.5,noises=2,method=ddn,consistency=1",
        "smoothmix:noises=2,step=0.25",
        "smoothmix:noises=2,step=0.25,one_step=1",
    ],
)
def test_one_epoch_enlarges_the_average_certified_radius(objective, digits, held_out, untrained, tmp_path):
    """The largest possible is 0.62 with 1000 samples; chance gives about a tenth of what a class is sure of."""
    trained = one_epoch(digits, tmp_path, objective=parse_objective(objective))
    assert average_certified_radius(trained.module, held_out) > untrained + 0.2


def test_with_a_sigma_that_is_carried_along(digits, held_out, untrained, tmp_path):
    trained = one_epoch(digits, tmp_path, carried=CarriedSigma(after=0.2))
    assert average_certified_radius(trained.module, held_out) > untrained + 0.2
    assert trained.header.training["sigma_trained_with"]["max"] > SIGMA


def test_with_uniform_noise(digits, held_out, tmp_path):
    trained = one_epoch(digits, tmp_path, noise=Noise.UNIFORM)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = build("mlp-64", num_classes=10, input_shape=(1, 8, 8)).eval()
    before = average_certified_radius(fresh, held_out, noise=Noise.UNIFORM)
    assert average_certified_radius(trained.module, held_out, noise=Noise.UNIFORM) > before + 0.08


def one_epoch(digits, folder, **settings):
    config = TrainingConfig(arch="mlp-64", sigma=SIGMA, seed=3, epochs=1, batch=16, **settings)
    return run_training(config, digits, out=folder / "m.safetensors", device="cpu", threads=1)

"""Flips and shifts of images: all of them occur (2·81, or 25 without flips), equally often."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from smoothcert.errors import InputError
from smoothcert.training import Augment, TrainingConfig, run_training
from smoothcert.training.augment import augment_images


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def every_shift(image, furthest):
    """((2 furthest + 1)², C, H, W): moved down and right by -furthest … furthest, zeros moving in."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (furthest, furthest), (furthest, furthest)))
    steps = range(2 * furthest + 1)
    return np.array([padded[:, i : i + height, j : j + width] for i in steps for j in steps])


def every_possibility(image, how=Augment.FLIP_CROP):
    if how is Augment.SHIFT:
        return every_shift(image, 2)
    moved = every_shift(image, 4)
    return np.concatenate([moved, moved[:, :, :, ::-1]])


@pytest.mark.parametrize(("how", "possible"), [(Augment.FLIP_CROP, 162), (Augment.SHIFT, 25)])
def test_every_result_is_one_of_the_possibilities_and_all_are_equally_likely(how, possible):
    image = np.arange(1, 2 * 6 * 8 + 1, dtype=np.float32).reshape(2, 6, 8)
    kinds = {each.tobytes(): number for number, each in enumerate(every_possibility(image, how))}
    assert len(kinds) == possible
    count = possible * 60
    results = augment_images(torch.from_numpy(image).expand(count, -1, -1, -1), how, seeded()).numpy()
    assert results.shape == (count, 2, 6, 8)
    seen = np.bincount([kinds[each.tobytes()] for each in results], minlength=possible)
    # A false alarm once in 10000 trials, were the seed not fixed.
    assert stats.chisquare(seen).pvalue > 1e-4


def test_every_image_of_a_batch_is_changed_by_itself():
    images = torch.rand(50, 3, 5, 5, generator=seeded(1)) + 0.1
    results = augment_images(images, Augment.FLIP_CROP, seeded()).numpy()
    numbers = []
    for image, result in zip(images.numpy(), results, strict=True):
        (found,) = np.flatnonzero((every_possibility(image) == result).all(axis=(1, 2, 3)))[:1]
        numbers.append(int(found))
    assert len(set(numbers)) > 30


def test_the_generator_decides_and_the_images_stay_as_they_were():
    images = torch.rand(20, 1, 8, 8, generator=seeded(1))
    before = images.clone()
    first, again, other = (augment_images(images, Augment.FLIP_CROP, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(images, before)


def test_without_augmentation_nothing_is_done_and_nothing_drawn():
    images, generator = torch.rand(4, 1, 8, 8, generator=seeded(1)), seeded()
    assert augment_images(images, Augment.NONE, generator) is images
    assert torch.equal(generator.get_state(), seeded().get_state())


@pytest.mark.parametrize("how", [Augment.FLIP_CROP, Augment.SHIFT])
def test_what_is_no_image_is_refused(tmp_path, how):
    class Rows:
        name, split, num_classes, input_shape, digest = "rows", "train", 2, (4,), "d"
        labels = np.arange(8) % 2

        def __len__(self):
            return 8

        def inputs(self, indices):
            return np.zeros((8, 4), dtype=np.float32)[indices]

    config = TrainingConfig(arch="mlp-4", sigma=0.1, seed=0, augment=how)
    with pytest.raises(InputError, match=rf"--augment {how} needs images .*, but inputs have shape \(4,\)"):
        run_training(config, Rows(), out=tmp_path / "m.safetensors", device="cpu")
    assert list(tmp_path.iterdir()) == []

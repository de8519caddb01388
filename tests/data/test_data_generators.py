from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smoothcert.data import load_dataset
from smoothcert.data.named_datasets import CATALOGUE
from smoothcert.data.small_mnist import block_sums, principal_components, project, signs_by_extreme_image
from smoothcert.data.synthetic import CONE_HALF_ANGLE, CONE_SCALE
from smoothcert.errors import InputError


@pytest.mark.parametrize(
    ("name", "split", "digest"),
    [
        ("digits", "train", "a64e1daf305faf4ba57de7b0da269849453e97303ec8edbcd1101dd7f1b75363"),
        ("digits", "test", "b71e195a8d176bb66e1faaf6e36b54eb43d18ab08f162b195d6f87f5440f940c"),
        ("swiss-roll", "train", "e81b429c438145668d70fd6d643edce4c25f8f3d6e9a90f4fd1f5acbf8ab028f"),
        ("swiss-roll", "test", "542ba9b879083e05e6093586ad81f78cdd698e64d5ca51942e907a77bbc42e52"),
        ("levine-swiss-roll", "train", "e69a1fefb07d9be738d1c55fc525cef4130d8e37b20dba6c7209239f492ecbbe"),
        ("levine-swiss-roll", "test", "30794e5d0d4b7e4ec734585b44232e03e0cf7f816f188394f44a3c105df8f3f6"),
        ("cone", "train", "16699bbf37ff0064e98e2cb340302ca35e5db98d9b4b95f879b3ac9915c266ac"),
        ("cone", "test", "fad608060b770d7297c362f70e7b6b2d4bcdefdecdbca1f0d5f4f7bd71281966"),
        ("cone-18", "train", "2253622fd877248c9794c1cb65fb2c8e9d9e4b68e1c644ec5abbabf71fcf6015"),
        ("cone-18", "test", "f8ac62f94fa4dd07538f17a4809263e99d2e089d45580d48bf4c32b9d965d969"),
    ],
)
def test_data_made_here_is_the_same_everywhere_and_as_the_catalogue_says(name: str, split: str, digest: str) -> None:
    data = load_dataset(name, split=split)
    entry = CATALOGUE["cone" if name.startswith("cone") else name]
    inputs = data.inputs(slice(None))
    assert data.digest == digest
    assert len(data) == getattr(entry, split) == len(inputs)
    assert data.num_classes == entry.num_classes
    assert data.class_names == entry.class_names
    assert (data.levels, data.input_range) == (entry.levels, entry.input_range)
    assert inputs.dtype == np.float32
    assert inputs.shape[1:] == data.input_shape == ((18,) if name == "cone-18" else entry.input_shape)
    assert set(np.unique(data.labels)) == set(range(entry.num_classes))


def test_digits_split_is_stratified_and_complete() -> None:
    from sklearn.datasets import load_digits

    train, test = load_dataset("digits", split="train"), load_dataset("digits", split="test")
    shares = np.bincount(test.labels) / (np.bincount(test.labels) + np.bincount(train.labels))
    assert np.abs(shares - 0.25).max() < 0.006
    both = np.concatenate([train.inputs(slice(None)), test.inputs(slice(None))]).reshape(-1, 64)
    original = load_digits().data / 16
    assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, original.tolist()))


def test_digits_values_lie_on_their_grid() -> None:
    data = load_dataset("digits")
    values = data.inputs(slice(None))
    assert data.levels is not None
    assert np.array_equal(values * (data.levels - 1), np.rint(values * (data.levels - 1)))
    assert (values.min(), values.max()) == (0.0, 1.0)


@pytest.mark.parametrize("dimension", [2, 3, 18, 400])
def test_cone_classes_are_separated_by_the_cone(dimension: int) -> None:
    data = load_dataset("cone", split="train", dimension=dimension)
    points = data.inputs(slice(None)).astype(np.float64)
    distance = np.linalg.norm(points, axis=1)
    far = distance > 0.01  # nearer to the vertex, rounding to float32 may move a point across
    angle = np.arccos(np.clip(points[:, 0] / np.where(far, distance, 1), -1, 1))
    inside = data.labels == 0
    assert (angle[inside & far] <= CONE_HALF_ANGLE + 1e-3).all()
    assert (angle[~inside & far] >= CONE_HALF_ANGLE - 1e-3).all()
    assert inside.sum() == 500 == (~inside).sum()


@pytest.mark.parametrize("dimension", [2, 3, 18])
def test_cone_points_follow_their_laws(dimension: int) -> None:
    """Kolmogorov-Smirnov distances of 500 points; 0.087 is exceeded with probability 0.001."""
    data = load_dataset(f"cone-{dimension}", split="train")
    points = data.inputs(slice(None)).astype(np.float64)
    distance = np.linalg.norm(points, axis=1)
    angle = np.arccos(np.clip(points[:, 0] / distance, -1, 1))
    inside = data.labels == 0
    for chosen in (inside, ~inside):
        half_normal = np.array([math.erf(r / CONE_SCALE / math.sqrt(2)) for r in distance[chosen]])
        assert _distance_to_uniform(half_normal) < 0.087
    assert _distance_to_uniform(angle[inside] / CONE_HALF_ANGLE) < 0.087
    rng = np.random.default_rng(0)
    sphere = rng.standard_normal((400_000, dimension))
    reference = np.sort(np.arccos(sphere[:, 0] / np.linalg.norm(sphere, axis=1)))
    reference = reference[reference > CONE_HALF_ANGLE]
    ranks = np.searchsorted(reference, angle[~inside]) / len(reference)
    assert _distance_to_uniform(ranks) < 0.09


def _distance_to_uniform(values: np.ndarray) -> float:
    ordered = np.sort(values)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(ordered - steps[1:]).max(), np.abs(ordered - steps[:-1]).max()))


def test_cone_names_and_dimensions_must_agree() -> None:
    assert load_dataset("cone", dimension=18).digest == load_dataset("cone-18").digest
    assert load_dataset("cone-2").name == "cone"
    with pytest.raises(InputError, match="dimension 6 does not fit cone-18"):
        load_dataset("cone-18", dimension=6)
    with pytest.raises(InputError, match="dimension 3 does not fit digits"):
        load_dataset("digits", dimension=3)
    with pytest.raises(InputError, match="dimension 1 "):
        load_dataset("cone-1")


def test_swiss_roll_arms_are_half_a_turn_apart() -> None:
    data = load_dataset("swiss-roll", split="train")
    points = data.inputs(slice(None)).astype(np.float64)
    first, second = points[data.labels == 0], points[data.labels == 1]
    t = np.linspace(0.5 * np.pi, 3 * np.pi, 2000)
    arm = (t / (3 * np.pi))[:, None] * np.stack([np.cos(t), np.sin(t)], axis=1)
    for sample, centre in ((first, arm), (second, -arm)):
        gaps = np.linalg.norm(sample[:, None] - centre[None], axis=2).min(axis=1)
        assert gaps.max() < 0.16  # well under half the distance 1/3 between the arms


@pytest.mark.parametrize(("split", "count", "state"), [("train", 1000, 1), ("test", 100, 2)])
def test_levines_swiss_roll_is_that_of_scikit_learn(split: str, count: int, state: int) -> None:
    """The call and the two coordinates of the authors' program, rounded to multiples of 2^-20."""
    from sklearn.datasets import make_swiss_roll

    points, angle = make_swiss_roll(n_samples=count, noise=1.0, random_state=state)
    data = load_dataset("levine-swiss-roll", split=split)
    assert np.abs(data.inputs(slice(None)) - points[:, [0, 2]] / 10.0).max() < 2.0**-20
    assert np.array_equal(data.labels, angle > 3.0 * math.pi)


def test_train_and_test_share_no_point() -> None:
    for name in ("digits", "swiss-roll", "levine-swiss-roll", "cone-6"):
        train = {row.tobytes() for row in load_dataset(name, split="train").inputs(slice(None))}
        test = {row.tobytes() for row in load_dataset(name, split="test").inputs(slice(None))}
        assert not train & test


def test_block_sums_are_sums_of_blocks() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28)).astype(np.uint8)
    sums = block_sums(images)
    assert sums.shape == (3, 7, 7)
    for i in range(7):
        for j in range(7):
            block = images[:, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4].astype(int)
            assert np.array_equal(sums[:, i, j], block.sum(axis=(1, 2)))
    assert block_sums(np.full((1, 28, 28), 255, np.uint8)).max() == 4080


def test_projection_agrees_with_singular_value_decomposition() -> None:
    rng = np.random.default_rng(3)
    scales = np.linspace(2000, 50, 49)
    sums = np.clip(rng.normal(2000, scales, (4000, 49)) @ np.eye(49), 0, 4080).astype(np.uint16).reshape(-1, 7, 7)
    total, components = principal_components(sums)
    ours = project(sums[:200], total, components, train_size=len(sums))
    means = sums.reshape(-1, 49) / 4080.0
    _, _, rows = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    signs = np.sign(rows[np.arange(10), np.abs(rows[:10]).argmax(axis=1)])
    theirs = (means[:200] - means.mean(axis=0)) @ (rows[:10] * signs[:, None]).T
    assert np.abs(ours - theirs).max() < 2e-6


@pytest.fixture(scope="module")
def skewed_sums() -> NDArray[np.uint16]:
    """Block sums of images whose coordinates have one long tail, in either direction, as those of digits do."""
    rng = np.random.default_rng(8)
    tails = rng.standard_gamma(2.0, (3000, 49)) * np.linspace(300.0, 20.0, 49) * np.where(np.arange(49) % 3, 1.0, -1.0)
    turned = tails @ np.linalg.qr(rng.normal(size=(49, 49)))[0]
    return np.clip(np.rint(2000.0 + turned), 0, 4080).astype(np.uint16).reshape(-1, 7, 7)


def test_components_are_orthonormal_whatever_the_order_of_the_images(skewed_sums: NDArray[np.uint16]) -> None:
    _, components = principal_components(skewed_sums)
    rows = components / 2.0**22
    assert np.abs(rows @ rows.T - np.eye(10)).max() < 1e-6
    assert (rows[np.arange(10), np.abs(rows).argmax(axis=1)] > 0).all()
    _, again = principal_components(skewed_sums[::-1])
    assert np.array_equal(again, components)


@pytest.mark.parametrize("authors", [False, True], ids=["largest entry", "extreme image"])
def test_components_and_signs_are_those_of_scikit_learn(skewed_sums: NDArray[np.uint16], authors: bool) -> None:
    """Since version 1.5 the largest entry of a component is positive; before, the largest entry of U was."""
    from sklearn.decomposition import PCA
    from sklearn.utils.extmath import svd_flip

    means = skewed_sums.reshape(-1, 49) / 4080.0
    pca = PCA(n_components=10, svd_solver="full").fit(means)
    _, components = principal_components(skewed_sums)
    theirs = pca.components_
    if authors:
        u, _, rows = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
        theirs = svd_flip(u, rows, u_based_decision=True)[1][:10]
        signs = signs_by_extreme_image(skewed_sums, components)
        assert 0 < (signs < 0).sum() < 10, "the two rules must differ for this to be a test"
        components = components * signs[:, None]
    assert np.abs(components / 2.0**22 - theirs).max() < 1e-6
    coordinates = project(skewed_sums, *_with_total(skewed_sums, components), train_size=len(skewed_sums))
    assert np.abs(coordinates - (means - pca.mean_) @ theirs.T).max() < 2e-6
    assert np.allclose(coordinates.var(axis=0, ddof=1, dtype=np.float64), pca.explained_variance_, rtol=1e-5)


def _with_total(sums: NDArray[np.uint16], components: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return sums.reshape(len(sums), -1).sum(axis=0, dtype=np.float64), components

"""What people give to `certify` and `predict`: tensors, lists, images, datasets and loaders, with their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from smoothcert.errors import InputError, ModelError
from smoothcert.records import CertifiedPoint
from smoothcert.sampling import dataset_items, given_inputs
from smoothcert.smoothed import SmoothedClassifier

SHAPE = (3, 6, 5)
PIXELS = np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)
INPUTS = PIXELS / np.float32(255)
LABELS = [0, 1, 2, 3, 0, 1]


class Net(nn.Module):
    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.layer = nn.Linear(int(np.prod(SHAPE)), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.flatten(1))


def make(model: Any = None, **settings: Any) -> SmoothedClassifier:
    settings = {"sigma": 0.25, "seed": 3, "batch": 64, "workers": 1, **settings}
    return SmoothedClassifier(nn.Sequential(nn.Flatten(), Net().layer) if model is None else model, **settings)


def facts(points: Sequence[CertifiedPoint]) -> list[Any]:
    return [(point.index, point.label, point.prediction, point.radius, point.grid) for point in points]


def certify(x: Any, smoothed: SmoothedClassifier | None = None, **options: Any) -> list[Any]:
    return facts((smoothed or make()).certify(x, n0=20, n=100, **options))


EXPECTED = certify(INPUTS)
LABELLED = certify(INPUTS, labels=LABELS)


class Pairs(Dataset[Any]):
    """Counts how often each item is read."""

    def __init__(self, make_item: Any = lambda k: (INPUTS[k], LABELS[k])) -> None:
        self.make_item = make_item
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, position: int) -> Any:
        self.read.append(position)
        return self.make_item(position)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(INPUTS, LABELS, strict=True))


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor(INPUTS),
        torch.tensor(INPUTS, requires_grad=True),
        torch.tensor(PIXELS),
        PIXELS,
        list(INPUTS),
        [torch.tensor(one, requires_grad=True) for one in INPUTS],
        list(PIXELS),
        INPUTS.astype(np.float64),
        torch.tensor(np.moveaxis(INPUTS, 1, -1).copy()).movedim(-1, 1),
    ],
    ids=["tensor", "with gradient", "uint8 tensor", "uint8", "list", "tensors", "bytes", "float64", "strided"],
)
def test_arrays_and_tensors_mean_the_same(given: Any) -> None:
    assert certify(given) == EXPECTED


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_values(dtype: torch.dtype) -> None:
    half = torch.tensor(INPUTS).to(dtype)
    assert certify(half) == certify(half.float().numpy())


def test_images_become_channels_first() -> None:
    images = [Image.fromarray(np.moveaxis(one, 0, -1)) for one in PIXELS]
    assert certify(images) == EXPECTED
    assert certify(images[0]) == EXPECTED[:1]


def test_images_follow_the_shape_that_the_model_takes() -> None:
    grey = [Image.fromarray(one[0]) for one in PIXELS]

    def flat(batch: np.ndarray) -> np.ndarray:
        return batch.reshape(len(batch), -1)[:, :4]

    for shape in ((6, 5), (1, 6, 5), (6, 5, 1)):
        assert make(flat, input_shape=shape).check_inputs(grey).shape == (6, *shape)
    assert make(flat).check_inputs(grey).shape == (6, 1, 6, 5)
    coloured = Image.fromarray(np.moveaxis(PIXELS[0], 0, -1))
    assert make(flat, input_shape=(6, 5, 3)).check_inputs(coloured).shape == (1, 6, 5, 3)


def test_images_that_do_not_fit_say_both_shapes() -> None:
    smoothed = make(input_shape=SHAPE)
    with pytest.raises(
        InputError, match=r"5 x 6 pixels, mode L, gives inputs of shape \(1, 6, 5\).* takes \(3, 6, 5\)"
    ):
        smoothed.certify(Image.fromarray(PIXELS[0, 0]))
    with pytest.raises(InputError, match=r'convert\("RGB"\)'):
        smoothed.certify(Image.fromarray(PIXELS[0, 0]).convert("P"))
    images = [Image.new("RGB", (5, 6)), Image.new("RGB", (7, 6))]
    with pytest.raises(InputError, match=r"input 1 has shape \(3, 6, 7\), and input 0 has \(3, 6, 5\)"):
        make().certify(images)


def test_a_single_input_is_a_batch_of_one_if_the_shape_is_known() -> None:
    assert certify(INPUTS[0], make(input_shape=SHAPE)) == EXPECTED[:1]
    assert certify(torch.tensor(INPUTS[0]), make(input_shape=SHAPE), labels=2)[0][1] == 2
    with pytest.raises(ModelError, match=r"x\[None\]"):
        make(Net()).certify(INPUTS[0])
    with pytest.raises(InputError, match=r"x\[None\]"):
        make(Net()).certify(INPUTS.reshape(-1))


@pytest.mark.parametrize(
    "given",
    [
        TensorDataset(torch.tensor(INPUTS), torch.tensor(LABELS)),
        TensorDataset(torch.tensor(PIXELS), torch.tensor(LABELS)),
        Pairs(),
        Pairs(lambda k: (Image.fromarray(np.moveaxis(PIXELS[k], 0, -1)), torch.tensor(LABELS[k]))),
        Stream(),
        DataLoader(TensorDataset(torch.tensor(INPUTS), torch.tensor(LABELS)), batch_size=4),
        DataLoader(Pairs(), batch_size=None),
        DataLoader(Stream(), batch_size=4),
    ],
    ids=["tensors", "bytes", "own", "images", "iterable", "loader", "loader of items", "loader of a stream"],
)
def test_datasets_bring_their_labels(given: Any) -> None:
    assert certify(given) == LABELLED
    assert certify(given, labels=LABELS) == LABELLED
    with pytest.raises(InputError, match="the dataset says that input 2 has label 2, and labels= says 3"):
        certify(given, labels=[0, 1, 3, 3, 0, 1])


@pytest.mark.parametrize(
    "given",
    [
        TensorDataset(torch.tensor(INPUTS)),
        Pairs(lambda k: INPUTS[k]),
        Pairs(lambda k: (INPUTS[k], None)),
        DataLoader(TensorDataset(torch.tensor(INPUTS)), batch_size=4),
    ],
    ids=["tensors", "inputs", "none", "loader"],
)
def test_datasets_without_labels(given: Any) -> None:
    assert certify(given) == EXPECTED
    assert certify(given, labels=LABELS) == LABELLED


def test_a_dataset_may_label_some_inputs_only() -> None:
    some = [None, 1, None, 3, None, 1]
    assert [fact[1] for fact in certify(Pairs(lambda k: (INPUTS[k], some[k])))] == some
    assert certify(Pairs(lambda k: (INPUTS[k], some[k])), labels=LABELS) == LABELLED


def test_predict_takes_datasets_too() -> None:
    points = make().predict(Pairs(), n=100)
    assert [point.label for point in points] == LABELS


def test_a_run_of_a_dataset_is_that_of_its_arrays(tmp_path: Path) -> None:
    smoothed = make()
    runs = [
        smoothed.certify(x, labels=labels, n0=20, n=100, out=tmp_path / name)
        for name, x, labels in (("dataset", Pairs(), None), ("arrays", INPUTS, LABELS))
    ]
    assert facts(runs[0]) == facts(runs[1])
    assert [point.label for point in runs[0]] == LABELS


def count_reads(pairs: Pairs) -> list[int]:
    return [pairs.read.count(position) for position in range(len(pairs))]


class TestItemsAreRead:
    """Small numbers instead of the limits, so that six items show what thousands do."""

    @pytest.fixture(autouse=True)
    def few_are_read_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dataset_items, "_READ_TWICE", 1)
        monkeypatch.setattr(dataset_items, "_READ_TOGETHER", 4)

    def test_once_where_they_fit_into_memory(self) -> None:
        pairs = Pairs()
        assert certify(pairs) == LABELLED
        assert count_reads(pairs) == [2, 1, 1, 1, 1, 1]  # the first one again, to notice random transforms

    def test_to_be_checked_and_to_be_sampled_where_they_do_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(given_inputs, "_MOST_KEPT", 100)
        for ask in (certify, lambda data: make().predict(data, n=100)):
            pairs = Pairs()
            ask(pairs)
            assert count_reads(pairs) == [2] * 6

    @pytest.mark.parametrize("most_kept", [2**28, 100])
    def test_once_for_a_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_kept: int) -> None:
        monkeypatch.setattr(given_inputs, "_MOST_KEPT", most_kept)
        pairs = Pairs()
        assert certify(pairs, out=tmp_path / "run", progress=False) == LABELLED
        assert count_reads(pairs) == [2, 1, 1, 1, 1, 1]

    @pytest.mark.parametrize("most_kept", [2**28, 100])
    def test_with_the_digest_of_the_array(self, monkeypatch: pytest.MonkeyPatch, most_kept: int) -> None:
        monkeypatch.setattr(given_inputs, "_MOST_KEPT", most_kept)
        first, second = (make().certify(x, n0=20, n=100, labels=LABELS) for x in (INPUTS, Pairs()))
        assert first.manifest.digests == second.manifest.digests


def test_scaled_inputs_have_the_digest_of_the_original_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed before: of a dataset that is too large to be kept, the quotients were digested while they were sampled."""
    flat = INPUTS.reshape(len(INPUTS), -1)

    def digest_of(x: object) -> str:
        def model(batch: np.ndarray) -> np.ndarray:
            return (batch[:, 0] > 0.5).astype(np.int64)

        smoothed = make(model, sigma=[0.5] * flat.shape[1], num_classes=2)
        return smoothed.certify(x, n0=20, n=100).manifest.digests.data

    kept = digest_of(flat)
    monkeypatch.setattr(given_inputs, "_MOST_KEPT", 1)
    assert digest_of(Pairs(lambda k: flat[k])) == kept


def test_everything_is_checked_before_anything_is_sampled() -> None:
    broken = Pairs(lambda k: (INPUTS[k] * (np.nan if k == 5 else 1), LABELS[k]))
    seen: list[int] = []
    with pytest.raises(InputError, match="NaN"):
        make().certify(broken, n=100, progress=seen.append)
    assert seen == []


def test_a_random_transform_is_noticed() -> None:
    random = np.random.default_rng(0)
    with pytest.raises(InputError, match="another input when it was read again"):
        certify(
            Pairs(lambda k: (np.roll(INPUTS[k], random.integers(1, 5)) + random.random() * 1e-3, 0)),
            make(grid="float", input_range=None),
        )


def test_a_loader_that_shuffles_is_refused() -> None:
    tensors = TensorDataset(torch.tensor(INPUTS), torch.tensor(LABELS))
    for loader in (DataLoader(tensors, shuffle=True), DataLoader(tensors, batch_size=None, shuffle=True)):
        with pytest.raises(InputError, match="shuffle=False"):
            certify(loader)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Pairs(lambda k: {"pixel_values": INPUTS[k], "label": 1}), r"dictionaries \(pixel_values, label\)"),
        (DataLoader(Pairs(lambda k: {"x": INPUTS[k]}), batch_size=2), r"dictionaries \(x\)"),
        (Pairs(lambda k: (INPUTS[k], 1, "name")), "items of 3 parts"),
        (Pairs(lambda k: 1 / 0), "item 0 of the dataset failed: ZeroDivisionError"),
        (Pairs(lambda k: (INPUTS[k][:, :k], 1)), r"input 1 has shape"),
        (Pairs(lambda k: (INPUTS[k], np.eye(4)[LABELS[k]])), "argmax"),
        (TensorDataset(torch.tensor(INPUTS[:0])), "the dataset is empty"),
        (DataLoader(TensorDataset(torch.tensor(INPUTS[:0]))), "is empty"),
    ],
)
def test_items_that_cannot_be_read(given: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        certify(given)


@pytest.mark.parametrize("x", [INPUTS * 255, PIXELS.astype(np.int64), PIXELS.astype(np.float32) / 2])
def test_values_up_to_255_get_the_advice_to_divide(x: np.ndarray) -> None:
    with pytest.raises(InputError, match="give them as uint8 or divide by 255"):
        certify(x)


def test_bytes_outside_another_range_get_it_too() -> None:
    with pytest.raises(InputError, match="divide by 255"):
        certify(PIXELS, make(input_range=(-1, 1)))


def test_standardised_inputs_do_not() -> None:
    with pytest.raises(InputError, match="Standardise") as error:
        certify(INPUTS * 4 - 2)
    assert "255" not in str(error.value)


def test_numbers_of_samples_may_be_floats_and_numpy_scalars() -> None:
    expected = make().certify(INPUTS[:1], n=1000, n0=20, alpha=0.01)
    for n, n0, alpha in ((1e3, 2e1, np.float32(0.01)), (np.int64(1000), np.int32(20), np.float64(0.01))):
        (point,) = make().certify(INPUTS[:1], n=n, n0=n0, alpha=alpha)
        assert point.radius == pytest.approx(expected[0].radius, rel=1e-6)
        make().predict(INPUTS[:1], n=n, alpha=alpha)
    for smoothed_call in (make().certify, make().predict):
        with pytest.raises(InputError, match=r"n is 1\.5, which has a fraction"):
            smoothed_call(INPUTS, n=1.5)
        with pytest.raises(InputError, match="alpha is 'small'"):
            smoothed_call(INPUTS, n=100, alpha="small")

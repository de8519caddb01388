from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.data import load_dataset, parse_input_range
from smoothcert.data.user_files import load_file
from smoothcert.errors import DataError, InputError

X = np.linspace(0, 1, 24, dtype=np.float64).reshape(4, 6)
Y = np.array([0, 2, 1, 2])


@pytest.mark.parametrize(
    "keys",
    [
        ("x", "y"),
        ("X", "Y"),
        ("inputs", "labels"),
        ("images", "labels"),
        ("x_test", "y_test"),
        ("test_images", "test_labels"),
    ],
)
def test_npz_key_styles(tmp_path: Path, keys: tuple[str, str]) -> None:
    np.savez(tmp_path / "mine.npz", **{keys[0]: X, keys[1]: Y})
    data = load_dataset(str(tmp_path / "mine.npz"))
    assert np.array_equal(data.inputs(slice(None)), X.astype(np.float32))
    assert data.labels.tolist() == Y.tolist()
    assert (data.name, data.num_classes, data.levels, data.input_range) == ("mine", 3, None, (0.0, 1.0))


def test_npz_splits(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=X, y_train=[0, 1, 2, 7], x_test=X[:2], y_test=[0, 1], class_names=list("abcdefgh"))
    train, test = (load_dataset(str(path), split=split) for split in ("train", "test"))
    assert (len(train), len(test)) == (4, 2)
    assert train.num_classes == test.num_classes == 8  # a class only the other split shows is still a class
    assert test.class_names == tuple("abcdefgh")
    np.savez(tmp_path / "other.npz", x_train=X, y_train=Y)
    with pytest.raises(DataError, match="holds x_train, y_train: expected x_test and y_test"):
        load_dataset(str(tmp_path / "other.npz"))


def test_npy_with_labels_beside_it_or_without(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    unlabelled = load_dataset(str(tmp_path / "a.npy"))
    assert unlabelled.labels.tolist() == [-1] * 4
    assert unlabelled.num_classes == 0
    np.save(tmp_path / "labels.npy", Y)
    assert load_dataset(str(tmp_path / "a.npy")).labels.tolist() == Y.tolist()
    np.save(tmp_path / "a_labels.npy", Y[::-1])
    assert load_dataset(str(tmp_path / "a.npy")).labels.tolist() == Y[::-1].tolist()


@pytest.mark.parametrize(
    "text",
    [
        "0.1,0.2,1\n0.3,0.4,0\n",
        "a,b,label\n0.1,0.2,1\n0.3,0.4,0\n",
        "\ufeffLabel,a,b\r\n1,0.1,0.2\r\n\r\n0,0.3,0.4\r\n",
        'a,"label",b\n0.1,1,0.2\n0.3,0.0,0.4',
    ],
)
def test_csv_variants(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.csv").write_bytes(text.encode())
    data = load_dataset(str(tmp_path / "mine.csv"))
    assert np.array_equal(data.inputs(slice(None)), np.array([[0.1, 0.2], [0.3, 0.4]], np.float32))
    assert data.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,label\n", "header but no inputs"),
        ("0.1,0.2,1\n0.3,0\n", "line 2: 2 values, but the first line has 3"),
        ("0.1,0.2,1\n\n0.3,x,0\n", "line 3: 'x' is not a number"),
        ("a,b,kind\n0.1,0.2,1\n", "exactly one column named label, target, class or y; its header has a, b, kind"),
        ("class,b,label\n1,0.2,1\n", "exactly one column named label, target, class or y; it has class, label"),
        ("a,city,y\n1,Rome,1\n", "line 2: 'Rome' in column city is not a number"),
        ("a,b,y\n1,2,cat\n1,2,\n", "line 3: the label is empty"),
        ("label,label\n0.1,1\n", "exactly one column named label"),
        ("0.5\n0.6\n", "one column"),
        ("0.1,nan,1\n", "NaN or infinite values, the first is input 0"),
        ("0.1,0.2,1.5\n", "the label of input 0 is 1.5"),
        ("0.1,0.2,-3\n", "the label of input 0 is -3"),
        ("0.1,0.2,nan\n", "the label of input 0 is nan"),
        ("0.1,0.2,\n", "header but no inputs"),
    ],
)
def test_csv_mistakes_are_sentences(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path / "mine.csv"))


@pytest.mark.parametrize(
    ("text", "label_column", "features"),
    [
        ("a,b,target\n0.1,0.2,1\n0.3,0.4,0\n", None, ("a", "b")),
        ("a,Class,b\n0.1,1,0.2\n0.3,0,0.4\n", None, ("a", "b")),
        ("y,a,b\n1,0.1,0.2\n0,0.3,0.4\n", None, ("a", "b")),
        ("x,y,label\n0.1,0.2,1\n0.3,0.4,0\n", None, ("x", "y")),
        ("kind,y,b\n1,0.1,0.2\n0,0.3,0.4\n", "kind", ("y", "b")),
        ("0,1,kind\n0.1,0.2,1\n0.3,0.4,0\n", "kind", ("0", "1")),
    ],
)
def test_the_column_of_the_labels(
    tmp_path: Path, text: str, label_column: str | None, features: tuple[str, ...]
) -> None:
    (tmp_path / "mine.csv").write_text(text)
    data = load_file(tmp_path / "mine.csv", split="test", input_range=None, label_column=label_column)
    assert data.labels.tolist() == [1, 0]
    assert data.feature_names == features
    assert np.array_equal(data.inputs(slice(None)), np.array([[0.1, 0.2], [0.3, 0.4]], np.float32))


@pytest.mark.parametrize("text", ["a,b,y\n0.1,0.2,dog\n0.3,0.4,cat\n", "0.1,0.2,dog\n0.3,0.4,cat\n"])
def test_labels_that_are_texts(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.csv").write_text(text)
    data = load_dataset(str(tmp_path / "mine.csv"))
    assert (data.labels.tolist(), data.class_names) == ([1, 0], ("cat", "dog"))


def test_texts_of_both_splits_are_numbered_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x_train=X, y_train=list("bcda"), x_test=X[:2], y_test=["c", "a"])
    data = load_dataset(str(tmp_path / "mine.npz"))
    assert (data.labels.tolist(), data.class_names) == ([2, 0], tuple("abcd"))
    np.savez(tmp_path / "mine.npz", x=X[:2], y=["c", "a"], class_names=list("cba"))
    assert load_dataset(str(tmp_path / "mine.npz")).labels.tolist() == [0, 2]
    np.savez(tmp_path / "mine.npz", x=X[:2], y=["c", "d"], class_names=list("cba"))
    with pytest.raises(DataError, match="class_names and labels differ: the label 'd' is not a class"):
        load_dataset(str(tmp_path / "mine.npz"))


def test_a_label_column_where_there_are_no_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=X)
    (tmp_path / "mine.csv").write_text("0.1,0.2,1\n")
    with pytest.raises(InputError, match=r"is for \.csv files"):
        load_dataset(str(tmp_path / "mine.npz"), label_column="kind")
    with pytest.raises(DataError, match="has no header"):
        load_dataset(str(tmp_path / "mine.csv"), label_column="kind")
    with pytest.raises(InputError, match="label_column is only for your own csv files"):
        load_dataset("digits", label_column="kind")


def test_binary_rubbish_called_csv(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match="not a csv text file"):
        load_dataset(str(tmp_path / "mine.csv"))


def test_uint8_is_divided_and_remembered(tmp_path: Path) -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(4, 64)
    np.savez(tmp_path / "mine.npz", x=levels, y=Y)
    data = load_dataset(str(tmp_path / "mine.npz"))
    assert data.levels == 256
    assert np.array_equal(data.inputs(slice(None)), (levels / 255).astype(np.float32))
    np.savez(tmp_path / "mine.npz", x=levels > 100, y=Y)
    data = load_dataset(str(tmp_path / "mine.npz"))
    assert data.levels == 2
    assert set(np.unique(data.inputs(slice(None)))) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            X * 4.7 - 2.1,
            r"inputs lie in \[-2.1, 2.6\], not in \[0, 1\]: sigma is in pixel units; put Standardise inside",
        ),
        (np.rint(X * 255), "look like 8-bit images: save them as uint8, or divide by 255"),
        (np.where(X > 0.9, np.nan, X), "NaN or infinite values, the first is input 3"),
        (np.where(X > 0.9, 1e300, X), "NaN or infinite"),
        (X.astype(complex), "complex128"),
        (X.astype(str), "expected floats"),
        (np.zeros(4), r"shape \(4,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
    ],
)
def test_inputs_that_cannot_be_used(tmp_path: Path, inputs: np.ndarray[Any, Any], message: str) -> None:
    np.savez(tmp_path / "mine.npz", x=inputs, y=Y)
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path / "mine.npz"))


def test_the_way_out_of_the_range_is_named_and_works(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x=X * 4.7 - 2.1, y=Y)
    with pytest.raises(DataError, match="--input-range any"):
        load_dataset(str(path))
    data = load_dataset(str(path), input_range=None)
    assert data.input_range is None
    assert data.inputs(slice(None)).min() == np.float32(-2.1)
    assert load_dataset(str(path), input_range=(-3, 3)).input_range == (-3, 3)
    with pytest.raises(DataError, match=r"not in \[-1, 1\]"):
        load_dataset(str(path), input_range=(-1, 1))


def test_ranges_as_the_command_line_spells_them() -> None:
    assert parse_input_range("any") is None
    assert parse_input_range("-1,2.5") == (-1.0, 2.5)
    for text in ("", "1", "1,0", "0,nan", "0,1,2", "a,b", "-inf,1"):
        with pytest.raises(InputError, match="input range"):
            parse_input_range(text)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y[:3], r"4 inputs but labels of shape \(3,\)"),
        (np.eye(4), "argmax"),
        (np.array([b"a", b"b", b"c", b"d"]), "expected whole numbers"),
        (np.array([0, 1, 2, 0.5]), "label of input 3 is 0.5"),
    ],
)
def test_labels_that_cannot_be_used(tmp_path: Path, labels: np.ndarray[Any, Any], message: str) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=labels)
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path / "mine.npz"))


def test_label_columns_and_declared_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y[:, None].astype(np.float32))
    data = load_dataset(str(tmp_path / "mine.npz"), num_classes=10, input_shape=(1, 2, 3))
    assert data.num_classes == 10
    assert data.input_shape == (1, 2, 3)
    assert np.array_equal(data.inputs([1])[0, 0], X[1].reshape(2, 3).astype(np.float32))
    with pytest.raises(InputError, match="cannot be reshaped to"):
        load_dataset(str(tmp_path / "mine.npz"), input_shape=(4, 2))
    with pytest.raises(DataError, match="labels lie in 0 … 2"):
        load_dataset(str(tmp_path / "mine.npz"), num_classes=2)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, [1, 2]], dtype=object)
    np.savez(tmp_path / "a.npz", x=objects, y=[0, 1])
    np.save(tmp_path / "b.npy", objects)
    np.savez(tmp_path / "c.npz", x=X, y=np.array([0, 1, 2, None], dtype=object))
    for name in ("a.npz", "b.npy", "c.npz"):
        with pytest.raises(DataError, match="never unpickled"):
            load_dataset(str(tmp_path / name))


@pytest.mark.parametrize("name", ["mine.npz", "mine.npy"])
@pytest.mark.parametrize("content", [b"", b"rubbish", b"PK\x03\x04rubbish", b"\x93NUMPY\x01\x00"])
def test_damaged_numpy_files(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"mine.np[zy]"):
        load_dataset(str(tmp_path / name))


def test_truncated_npz(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "mine.npz", x=np.random.default_rng(0).random((50, 50)), y=np.zeros(50, int))
    content = bytearray((tmp_path / "mine.npz").read_bytes())
    content[500:900] = bytes(400)
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        load_dataset(str(tmp_path / "mine.npz"))


def test_a_single_array_called_npz_and_an_archive_called_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "b.npz", x=X)
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    (tmp_path / "b.npz").rename(tmp_path / "b.npy")
    for name in ("a.npz", "b.npy"):
        with pytest.raises(DataError, match=r"is named \.np[yz] but is not"):
            load_dataset(str(tmp_path / name))


@pytest.mark.parametrize("name", ["nowhere.npz", "nowhere.csv", "no/where.npy"])
def test_missing_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_dataset(str(tmp_path / name))


def test_unknown_endings(tmp_path: Path) -> None:
    (tmp_path / "mine.pkl").write_bytes(b"x")
    with pytest.raises(DataError, match=r"unknown ending: expected .npz, .npy, .csv"):
        load_dataset(str(tmp_path / "mine.pkl"))

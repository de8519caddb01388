"""Published tables, computed again from the authors' logs by the `table` verb."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from smoothcert.analysis.metrics import average_certified_radius, certified_accuracy
from smoothcert.cli.table import table
from smoothcert.runs.load import load_results
from smoothcert.runs.tsv import read_log, write_cohen_tsv

app = typer.Typer()
app.command()(table)


def printed_table(*arguments: object) -> list[dict[str, str]]:
    """The rows of a table as it is printed, by column."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--format", "csv"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def log_of(reference: Path, dataset: str, sigma: str) -> Path:
    network = {"imagenet": "resnet50", "cifar10": "resnet110"}[dataset]
    return reference / "cohen2019/certify" / dataset / network / f"noise_{sigma}/test/sigma_{sigma}"


# Cohen et al. 2019, table 2 (ImageNet).
TABLE_2 = {
    "0.25": "0.67 0.49 0.00 0.00 0.00 0.00 0.00",
    "0.50": "0.57 0.46 0.37 0.29 0.00 0.00 0.00",
    "1.00": "0.44 0.38 0.33 0.26 0.19 0.15 0.12",
}


@pytest.mark.parametrize("sigma", list(TABLE_2))
def test_cohen_table_2_to_the_printed_digit(shared_reference: Path, sigma: str) -> None:
    tokens = ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"]
    path = log_of(shared_reference, "imagenet", sigma)
    (row,) = printed_table(path, "--radii", ",".join(tokens), "--digits", "2")
    assert " ".join(row[f"certified_{token}"] for token in tokens) == TABLE_2[sigma]


def test_cohen_table_2_needs_at_least_and_nearest(shared_reference: Path) -> None:
    """The two conventions of this table, each told apart by one of its cells."""
    half = load_results(log_of(shared_reference, "imagenet", "0.50"))
    strictly_more = float(np.mean(half.correct & (half.radius > 1.5)))
    assert f"{strictly_more:.2f}" == "0.28"  # printed: 0.29
    quarter = load_results(log_of(shared_reference, "imagenet", "0.25"))
    assert certified_accuracy(quarter, [0])[0] == 285 / 427  # 0.6674…; rounded up it would be 0.67 as well,
    assert certified_accuracy(half, [0.5])[0] == 0.458  # but 0.458 is printed 0.46, so it is not rounded down.


# Súkeník et al. 2021, table 4: accuracy, abstention, misclassification.
TABLE_4 = {
    "0.12": "0.814 0.038 0.148",
    "0.25": "0.748 0.086 0.166",
    "0.50": "0.652 0.166 0.182",
    "1.00": "0.472 0.290 0.238",
}


@pytest.mark.parametrize("sigma", list(TABLE_4))
def test_sukenik_table_4_to_the_printed_digit(shared_reference: Path, sigma: str) -> None:
    (row,) = printed_table(log_of(shared_reference, "cifar10", sigma), "--digits", "3")
    assert " ".join(row[key] for key in ("accuracy", "abstention", "misclassification")) == TABLE_4[sigma]


# Cohen et al. 2019, table 3 (CIFAR-10); the paper used all 10000 images, the logs hold 500 of them.
TABLE_3 = {
    "0.12": [0.83, 0.60, 0.00, 0.00, 0.00, 0.00, 0.00],
    "0.25": [0.77, 0.61, 0.42, 0.25, 0.00, 0.00, 0.00],
    "0.50": [0.66, 0.55, 0.43, 0.32, 0.22, 0.14, 0.08],
    "1.00": [0.47, 0.41, 0.34, 0.28, 0.22, 0.17, 0.14],
}


@pytest.mark.parametrize("sigma", list(TABLE_3))
def test_cohen_table_3_within_two_and_a_half_points(shared_reference: Path, sigma: str) -> None:
    results = load_results(log_of(shared_reference, "cifar10", sigma))
    found = certified_accuracy(results, np.arange(7) * 0.25)
    assert np.abs(found - TABLE_3[sigma]).max() <= 0.025


# Cohen et al. 2019, table 4, from the released logs: correct/accurate in the order of the paper, then
# abstain.
PREDICT = {
    "100": "0.660 0.000 0.248 0.000 0.092",
    "1000": "0.680 0.000 0.288 0.000 0.032",
    "10000": "0.690 0.000 0.300 0.000 0.010",
}


def test_predict_against_the_gold_standard(shared_reference: Path) -> None:
    folder = shared_reference / "cohen2019/predict/imagenet/resnet50/noise_0.25/test"
    logs = [folder / f"N_{n}" for n in PREDICT]
    rows = printed_table(*logs, "--gold", folder / "N_100000", "--digits", "3")
    keys = ["correct_accurate", "correct_inaccurate", "incorrect_accurate", "incorrect_inaccurate", "abstain"]
    assert {row["run"].removeprefix("N_"): " ".join(row[key] for key in keys) for row in rows} == PREDICT


# Jeong & Shin 2020, LeNet on MNIST with Gaussian augmentation: log, ACR of this log on all images and on
# every 100th, and the published means over five trainings, of which the log is one.
MNIST = [
    ("mnist_lenet_gaussian_noise_0.25_3870", 0.910466, 0.892925, 0.911, 0.894),
    ("mnist_lenet_gaussian_noise_0.50_880", 1.555724, 1.476920, 1.558, 1.487),
    ("mnist_lenet_gaussian_noise_1.00_2110", 1.618714, 1.518030, 1.618, 1.518),
]


@pytest.mark.parametrize(("name", "whole", "hundredth", "mean_whole", "mean_hundredth"), MNIST)
def test_mnist_average_certified_radius(
    shared_reference: Path, name: str, whole: float, hundredth: float, mean_whole: float, mean_hundredth: float
) -> None:
    path = shared_reference / "jeong2020" / name
    (row,) = printed_table(path, "--digits", "6")
    assert float(row["acr"]) == whole
    results = load_results(path)
    subset = average_certified_radius(results.subset(results.index % 100 == 0))
    assert subset == pytest.approx(hundredth, abs=1e-6)
    # One training of five lies within about a hundredth of their mean.
    assert whole == pytest.approx(mean_whole, abs=0.003)
    assert subset == pytest.approx(mean_hundredth, abs=0.011)


def test_every_released_log_is_read(shared_reference: Path, tmp_path: Path) -> None:
    folders = [shared_reference / name for name in ("cohen2019", "levine2021/certify", "jeong2020")]
    logs = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    assert len(logs) == 42
    total = 0
    for number, path in enumerate(logs):
        results = read_log(path)
        assert np.isfinite(results.seconds).all()
        total += len(results)
        write_cohen_tsv(results, tmp_path / str(number))
        assert (read_log(tmp_path / str(number)).radius <= results.radius).all()
    assert total == 53040


def test_raw_counts_of_levine_are_kept(shared_reference: Path) -> None:
    folder = shared_reference / "levine2021/certify/small_mnist/small_mnist_net/noise_0.25/test"
    baseline, second, dipole = (
        read_log(folder / name) for name in ("N_100000", "second_order_N_100000", "dipole_N_100000")
    )
    assert (baseline.extra["raw_count"][0], baseline.p_a[0]) == (95126, 0.94912)
    assert set(second.extra) == {
        "raw_count",
        "p_A_bar",
        "raw_grad_norm",
        "grad_norm_bound",
        "grad_norm_bound_nonvacuous",
    }
    assert (dipole.extra["raw_count_symmetric"][0], dipole.extra["raw_count_asymmetric"][0]) == (44963, 2521)


def test_json_of_the_logs_uses_the_radii_as_typed(shared_reference: Path) -> None:
    paths = [str(log_of(shared_reference, "cifar10", sigma)) for sigma in TABLE_3]
    result = CliRunner().invoke(app, [*paths, "--radii", "0,0.25,0.50", "--json"], catch_exceptions=False)
    documents = json.loads(result.stdout)
    assert [document["run"] for document in documents] == [f"sigma_{sigma}" for sigma in TABLE_3]
    assert documents[0]["certified_accuracy"] == {"0": 0.814, "0.25": 0.586, "0.50": 0.0}

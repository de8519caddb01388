"""Read and write logs in the published dialects."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results_strategies import runs
from smoothcert.errors import InputError, RunError
from smoothcert.records import Outcome
from smoothcert.runs.result_columns import NO_CLASS, ResultColumns
from smoothcert.runs.tsv import read_log, write_cohen_tsv

CERTIFY = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
PREDICT = "idx\tlabel\tpredict\tcorrect\ttime\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_certify_dialect(log: Path) -> None:
    log.write_text(CERTIFY + "0\t3\t3\t0.378\t1\t15.4\n20\t7\t-1\t0.0\t0\t0:00:15.6\n40\t7\t5\t1.2e-1\t0\t0\n")
    results = read_log(log)
    assert results.name == "log"
    assert results.index.tolist() == [0, 20, 40]
    assert results.prediction.tolist() == [3, NO_CLASS, 5]
    assert results.correct.tolist() == [True, False, False]
    assert results.radius.tolist() == [0.378, 0.0, 0.12]
    assert results.seconds.tolist() == [15.4, 15.6, 0.0]
    assert results.is_outcome(Outcome.ABSTAINED).tolist() == [False, True, False]
    assert results.has_radius
    assert np.isnan(results.sigma).all()
    assert (results.alpha, results.num_classes, dict(results.extra)) == (None, None, {})


def test_predict_dialect(log: Path) -> None:
    log.write_text(PREDICT + "0\t0\t0\t1\t0:00:01.737771\n100\t2\t-1\t0\t0:00:00.158496\n")
    results = read_log(log)
    assert not results.has_radius
    assert results.is_outcome(Outcome.PREDICTED).tolist() == [True, False]


def test_dipole_dialect_keeps_its_counts(log: Path) -> None:
    header = "idx\tlabel\tpredict\tradius\traw_count_symmetric\traw_count_asymmetric\tp_A_symmetric_bar\t"
    log.write_text(
        header + "p_A_asymmetric_bar\tcorrect\ttime\n0\t7\t7\t0.405\t44963\t2521\t0.89476\t0.0472581\t1\t1\n"
    )
    results = read_log(log)
    assert results.extra["raw_count_symmetric"].tolist() == [44963.0]
    assert results.extra["p_A_asymmetric_bar"].tolist() == [0.0472581]
    assert np.isnan(results.p_a).all()


def test_baseline_dialect_gives_p_a(log: Path) -> None:
    log.write_text(
        "idx\tlabel\tpredict\tradius\traw_count\tp_A_bar\tcorrect\ttime\n0\t7\t7\t0.409\t95126\t0.94912\t1\t1\n"
    )
    results = read_log(log)
    assert results.p_a.tolist() == [0.94912]
    assert results.extra["raw_count"].tolist() == [95126.0]


def test_per_input_sigma(log: Path) -> None:
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\tsigma\n0\t1\t1\t0.3\t1\t1.0\t0.27\n")
    assert read_log(log).sigma.tolist() == [0.27]


def test_columns_in_another_order_and_windows_line_ends_and_byte_order_mark(log: Path) -> None:
    log.write_bytes(b"\xef\xbb\xbfradius\tpredict\tlabel\tidx\r\n0.5\t1\t1\t9\r\n")
    results = read_log(log)
    assert (results.index.tolist(), results.radius.tolist()) == ([9], [0.5])
    assert np.isnan(results.seconds).all()


def test_a_radius_rounded_away_is_an_answer_without_a_certificate(log: Path) -> None:
    log.write_text(CERTIFY + "0\t3\t3\t0.0\t1\t1\n")
    results = read_log(log)
    assert results.correct.tolist() == [True]
    assert results.is_outcome(Outcome.PREDICTED).tolist() == [True]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:02:31.238689", 151.238689),
        ("15.4", 15.4),
        ("0", 0.0),
        ("12:00:00", 43200.0),
        ("1 day, 2:03:04", 93784.0),
        ("10 days, 0:00:00.5", 864000.5),
        ("1e-3", 0.001),
    ],
)
def test_times(log: Path, text: str, seconds: float) -> None:
    log.write_text(f"{CERTIFY}0\t3\t3\t0.5\t1\t{text}\n")
    assert read_log(log).seconds.tolist() == [pytest.approx(seconds, rel=1e-15)]


GOOD = "0\t3\t3\t0.5\t1\t1.0\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (CERTIFY.encode(), "no results yet"),
        (b"\x80\x81\n", "line 1.*not UTF-8"),
        (CERTIFY.encode() + b"0\t3\t3\t0.5\t1\t1.0\n\xff\n", "line 3.*not UTF-8"),
        (b"PK\x03\x04\0\0", "not a text log"),
        (b"x" * 70000, "not a text log"),
        (b"hello\n", "line 1: the header is 'hello'; expected tab-separated"),
        (b"idx\tlabel\tpredict\ttime\n", "line 1.*at least one of radius and correct"),
        (b"idx\tlabel\tpredict\tradius\tradius\n", "line 1.*distinct name for every column"),
        ((CERTIFY + GOOD + "1\t3\t3\t0.5\t1\n").encode(), "line 3: 5 fields .*expected 6: idx label"),
        ((CERTIFY + GOOD + "\n" + GOOD).encode(), "line 3: 1 fields"),
        ((CERTIFY + GOOD + GOOD).encode(), "line 3: idx 0 was already on line 2"),
        ((CERTIFY + "-1\t3\t3\t0.5\t1\t1.0\n").encode(), "line 2: idx is '-1'"),
        ((CERTIFY + "1_0\t3\t3\t0.5\t1\t1.0\n").encode(), "line 2: idx is '1_0'"),
        ((CERTIFY + "0\t-1\t3\t0.5\t0\t1.0\n").encode(), "line 2: label is '-1'; expected a whole number"),
        ((CERTIFY + "0\t3\t-2\t0.5\t0\t1.0\n").encode(), "line 2: predict is '-2'"),
        ((CERTIFY + "0\t3\t3.0\t0.5\t0\t1.0\n").encode(), "line 2: predict is '3.0'"),
        ((CERTIFY + "0\t3\t3\tnan\t1\t1.0\n").encode(), "line 2: radius is 'nan'; expected a finite number"),
        ((CERTIFY + "0\t3\t3\tinf\t1\t1.0\n").encode(), "line 2: radius is 'inf'"),
        ((CERTIFY + "0\t3\t3\t1e999\t1\t1.0\n").encode(), "line 2: radius is '1e999'"),
        ((CERTIFY + "0\t3\t3\t-0.5\t1\t1.0\n").encode(), "line 2: radius is '-0.5'"),
        ((CERTIFY + "0\t3\t3\t \t1\t1.0\n").encode(), "line 2: radius is ' '"),
        ((CERTIFY + "0\t3\t-1\t0.5\t0\t1.0\n").encode(), "line 2: radius is '0.5'; expected 0 where predict is -1"),
        ((CERTIFY + "0\t3\t3\t0.5\t0\t1.0\n").encode(), "line 2: correct is '0'; expected 1 where"),
        ((CERTIFY + "0\t3\t3\t0.5\t1\tsoon\n").encode(), "line 2: time is 'soon'; expected seconds"),
        ((CERTIFY + "0\t3\t3\t0.5\t1\t-1\n").encode(), "line 2: time is '-1'"),
        (b"idx\tlabel\tpredict\tradius\tsigma\n0\t3\t3\t0.5\t0\n", "line 2: sigma is '0'; expected .* above 0"),
        (b"idx\tlabel\tpredict\tradius\tp_A_bar\n0\t3\t3\t0.5\t1.5\n", "line 2: p_A_bar is '1.5'; expected a prob"),
        (b"idx\tlabel\tpredict\tradius\traw_count\n0\t3\t3\t0.5\tmany\n", "line 2: raw_count is 'many'"),
    ],
)
def test_what_is_wrong_and_where(log: Path, content: bytes, complaint: str) -> None:
    log.write_bytes(content)
    with pytest.raises(RunError, match=complaint) as caught:
        read_log(log)
    assert str(log) in str(caught.value)


def test_a_log_still_being_written_is_recognised(log: Path) -> None:
    log.write_text(CERTIFY + GOOD + "1\t3\t3\t0.")
    with pytest.raises(RunError, match=r"line 3.*still being written"):
        read_log(log)


def test_a_finished_last_line_without_an_end_is_accepted(log: Path) -> None:
    log.write_text(CERTIFY + GOOD.rstrip("\n"))
    assert len(read_log(log)) == 1


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(RunError, match="cannot be read"):
            read_log(path)


# Fragments of logs, so that random text passes the header and reaches every parser.
_fragments = st.sampled_from([*CERTIFY.split("\t"), "sigma", "p_A_bar", "\t", "\n", "0", "-1", "1 day, 0:00:01", "nan"])
_noise = st.lists(st.one_of(_fragments, st.text(max_size=5)), max_size=30).map("".join)


@settings(max_examples=300)
@given(content=st.one_of(st.binary(max_size=200), _noise.map(lambda s: s.encode("utf-8", "surrogatepass"))))
def test_garbage_raises_only_run_errors(content: bytes) -> None:
    _read_or_refuse(content)


@settings(max_examples=300)
@given(row=st.lists(st.text(alphabet="0123456789.-+einaf:_ dysr,\u0663", max_size=12), min_size=6, max_size=6))
def test_garbage_rows_raise_only_run_errors(row: list[str]) -> None:
    _read_or_refuse((CERTIFY + "\t".join(row) + "\n").encode())


def _read_or_refuse(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(content)
        try:
            results = read_log(path)
        except RunError:
            return
    assert np.isfinite(results.radius).all()
    assert not (results.correct & ~results.decided).any()


@given(results=runs(), digits=st.integers(0, 12))
def test_written_and_read_back_never_says_more(results: ResultColumns, digits: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        write_cohen_tsv(results, path, digits=digits)
        back = read_log(path)
    assert (back.radius <= results.radius).all()
    assert (results.radius - back.radius < 1.001 * 10.0**-digits).all()
    assert back.index.tolist() == results.index.tolist()
    assert back.label.tolist() == results.label.tolist()
    assert back.prediction.tolist() == results.prediction.tolist()
    assert back.correct.tolist() == results.correct.tolist()
    assert back.seconds.tolist() == results.seconds.tolist()


def one_point(**changes: object) -> ResultColumns:
    fields: dict[str, object] = {
        "name": "one",
        "index": np.array([4]),
        "label": np.array([1]),
        "prediction": np.array([1]),
        "outcome": np.array([0]),
        "radius": np.array([1.2367]),
        "has_radius": True,
        "sigma": np.array([0.25]),
        "seconds": np.array([0.5]),
        "p_a": np.array([math.nan]),
    }
    return ResultColumns(**(fields | changes))  # type: ignore[arg-type]


def test_writer_rounds_down_and_uses_the_common_columns(log: Path) -> None:
    write_cohen_tsv(one_point(), log, digits=3)
    assert log.read_text() == CERTIFY + "4\t1\t1\t1.236\t1\t0.500000\n"


def test_writer_leaves_out_what_is_unknown(log: Path) -> None:
    write_cohen_tsv(one_point(seconds=np.array([math.nan])), log)
    assert log.read_text() == "idx\tlabel\tpredict\tradius\tcorrect\n4\t1\t1\t1.236700\t1\n"


def test_predictions_are_written_without_radii(log: Path) -> None:
    write_cohen_tsv(one_point(outcome=np.array([1]), radius=np.zeros(1), has_radius=False), log)
    assert log.read_text() == PREDICT + "4\t1\t1\t1\t0.500000\n"
    assert not read_log(log).has_radius


def test_writer_does_not_overwrite(log: Path) -> None:
    log.write_text("precious")
    with pytest.raises(RunError, match="already exists"):
        write_cohen_tsv(one_point(), log)
    assert log.read_text() == "precious"
    write_cohen_tsv(one_point(), log, overwrite=True)
    assert len(read_log(log)) == 1
    assert [path.name for path in log.parent.iterdir()] == ["log"]


def test_inputs_without_label_cannot_be_written(log: Path) -> None:
    with pytest.raises(InputError, match="without a label"):
        write_cohen_tsv(replace(one_point(), label=np.array([NO_CLASS])), log)


def test_a_missing_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be written"):
        write_cohen_tsv(one_point(), tmp_path / "absent" / "log")

"""Results: points of a call as a sequence, with numbers, tables, figures and files."""

from __future__ import annotations

import functools
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import smoothcert as sc
from sample_models import logistic_digits
from smoothcert.errors import InputError, MissingExtraError, RunError
from smoothcert.records import Outcome, Stage
from smoothcert.results.contents import MemoryContent
from smoothcert.results.results import Results

N0, N = 50, 1000


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, list[int]]:
    digits = load_digits()
    return (digits.data[:12] / 16.0).astype(np.float32), digits.target[:12].tolist()


@functools.cache
def fitted() -> Callable[[np.ndarray], np.ndarray]:
    """Logits by plain numpy: asking scikit-learn about one copy at a time takes longer than all else here."""
    model: Any = logistic_digits()
    weights, bias = model.coef_.T.copy(), model.intercept_.copy()
    return lambda batch: batch.reshape(len(batch), -1) @ weights + bias


def smooth(sigma: float = 0.3, **settings: Any) -> sc.SmoothedClassifier:
    return sc.SmoothedClassifier(fitted(), sigma=sigma, grid=17, batch=256, **{"seed": 3, **settings})


@pytest.fixture(scope="module")
def results(digits: tuple[np.ndarray, list[int]]) -> Results:
    x, labels = digits
    return smooth().certify(x, labels=labels, n0=N0, n=N)


class TestSequence:
    def test_points_as_before(self, results: Results) -> None:
        assert len(results) == 12
        assert [point.index for point in results] == list(range(12))
        assert results[0] is results.points[0]
        assert results[-1].index == 11
        assert results[3] in results
        assert results == list(results)
        assert results != list(results)[:-1]

    def test_a_slice_is_results(self, results: Results) -> None:
        some = results[2:8:2]
        assert isinstance(some, Results)
        assert some == [results[2], results[4], results[6]]
        assert some.accuracy == np.mean([point.correct for point in some])
        assert results[:0].points == ()
        assert repr(results[:0]) == "Results(σ=0.3: 0 inputs)"
        with pytest.raises(RunError, match="no results"):
            results[:0].accuracy  # noqa: B018

    def test_nothing_is_proved_about_no_inputs(self, digits: tuple[np.ndarray, list[int]]) -> None:
        names = tuple("abcdefghij")
        some = smooth(class_names=names).predict(digits[0][:2], n=20, alpha=0.1)
        assert some[:0].class_names == some.class_names == names
        with pytest.raises(RunError, match="nothing to check"):
            some[:0].verify()

    def test_repr_is_one_line(self, results: Results) -> None:
        certified = sum(point.outcome is Outcome.CERTIFIED for point in results)
        assert "\n" not in repr(results)
        assert f"12 inputs, {certified} certified" in repr(results)
        assert "n=1000, alpha=0.001" in repr(results)

    def test_they_hold_no_model_and_can_be_pickled(self, results: Results) -> None:
        again = pickle.loads(pickle.dumps(results))
        assert again == results
        assert again.manifest == results.manifest


class TestSettings:
    def test_what_was_asked(self, results: Results) -> None:
        assert results.spec is not None
        assert results.manifest is not None
        assert (results.spec.alpha, results.spec.question.n, results.spec.question.n0) == (0.001, N, N0)
        assert results.certificates == ("gaussian",)
        assert (results.manifest.seed, results.manifest.grid) == (3, 17)
        assert results.path is None
        assert len(results.manifest.digests.code) == 64

    def test_a_seed_that_was_drawn_is_not_called_chosen(self, digits: tuple[np.ndarray, list[int]]) -> None:
        drawn = smooth(seed=None).predict(digits[0][:1], n=20, alpha=0.1)
        assert drawn.spec is not None
        assert drawn.spec.seed is None

    def test_inputs_that_change_later_change_nothing(self, digits: tuple[np.ndarray, list[int]]) -> None:
        x = digits[0].copy()
        first, second = (smooth().predict(x, n=20, alpha=0.1) for _ in range(2))
        x[:] = 0
        assert first.manifest is not None
        assert second.manifest is not None
        assert first.manifest.digests.data == second.manifest.digests.data


class TestNumbers:
    def test_by_hand(self, results: Results) -> None:
        radii = [point.radius if point.correct else 0.0 for point in results]
        assert results.acr == pytest.approx(np.mean(radii))
        assert results.accuracy == np.mean([point.correct for point in results])
        assert results.certified_accuracy(0.3) == np.mean([radius >= 0.3 for radius in radii])
        assert isinstance(results.certified_accuracy(0.3), float)
        shares = results.certified_accuracy([0.0, 0.3])
        assert shares.tolist() == [results.accuracy, results.certified_accuracy(0.3)]

    def test_undecided_radii_are_unknown(self, digits: tuple[np.ndarray, list[int]]) -> None:
        decided = smooth().certify(digits[0][:4], labels=digits[1][:4], n0=20, n=400, decide=[0.1])
        assert np.isnan(decided.certified_accuracy(0.2))
        assert 0 <= decided.certified_accuracy(0.1) <= 1

    def test_without_labels(self, digits: tuple[np.ndarray, list[int]]) -> None:
        unlabelled = smooth().certify(digits[0][:3], n0=20, n=200)
        assert [point.correct for point in unlabelled] == [None, None, None]
        assert unlabelled.to_frame()["correct"].isna().all()
        with pytest.raises(RunError, match="no label"):
            unlabelled.accuracy  # noqa: B018
        assert "share certified" in unlabelled._repr_html_()
        assert "mean radius" in repr(unlabelled)

    def test_correct_is_false_for_an_abstention_with_a_label(self, results: Results) -> None:
        verdict = replace(results[0].verdict, outcome=Outcome.ABSTAINED, prediction=None, radius=0.0)
        assert replace(results[0], verdict=verdict).correct is False


class TestFrame:
    def test_votes_add_up(self, results: Results) -> None:
        frame = results.to_frame()
        assert len(frame) == 12
        votes = frame[[f"votes_{label}" for label in range(10)]]
        assert (votes.sum(axis=1) == N).all()
        assert (frame[[f"selection_votes_{label}" for label in range(10)]].sum(axis=1) == N0).all()
        tally = results[4].tally(Stage.ESTIMATION)
        assert tally is not None
        assert votes.loc[4].tolist() == tally.independent_votes().counts.tolist()

    def test_columns(self, results: Results) -> None:
        frame = results.to_frame()
        assert frame["radius"].tolist() == [point.radius for point in results]
        assert frame["label"].tolist() == [point.label for point in results]
        assert frame["outcome"].tolist() == [point.outcome for point in results]
        assert frame["certificate"].eq("gaussian").all()
        assert (frame["p_a"] > 0).all()
        assert [str(one) for one in frame["reason"].dropna()] == [
            str(point.reason) for point in results if point.reason is not None
        ]

    def test_names_of_classes(self, results: Results) -> None:
        named = Results(MemoryContent(results.points, results._content._manifest), name="named")  # type: ignore[attr-defined]
        named.__dict__["columns"] = replace(results.columns, class_names=tuple(f"digit {k}" for k in range(10)))
        frame = named.to_frame()
        assert frame["label_name"].tolist() == [f"digit {point.label}" for point in results]
        assert "prediction_name" in frame

    def test_predictions_have_votes_of_one_stage(self, digits: tuple[np.ndarray, list[int]]) -> None:
        frame = smooth().predict(digits[0][:3], n=200).to_frame()
        assert (frame[[f"votes_{label}" for label in range(10)]].sum(axis=1) == 200).all()
        assert not any(name.startswith("selection") for name in frame)
        assert frame["radius"].isna().all()

    def test_both_votes_of_a_pair_count(self, digits: tuple[np.ndarray, list[int]]) -> None:
        pairs = smooth().certify(digits[0][:2], n0=20, n=400, certificate="dipole")
        assert (pairs.to_frame()[[f"votes_{label}" for label in range(10)]].sum(axis=1) == 400).all()

    def test_without_pandas(self, results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(MissingExtraError, match="pip install 'smoothcert"):
            results.to_frame()


class TestShown:
    def test_table(self, results: Results) -> None:
        table = results.table([0, 0.25])
        assert "r=0.25" in str(table)
        assert table == results.table("0,0.25")
        frame = table.to_frame()
        assert isinstance(frame, pd.DataFrame)
        assert frame["certified_0.25"].item() == results.certified_accuracy(0.25)
        assert "<table" in table._repr_html_()

    def test_several_certificates(self, digits: tuple[np.ndarray, list[int]]) -> None:
        both = smooth().certify(digits[0], labels=digits[1], n0=N0, n=N, certificate="gaussian,li")
        assert both.table().to_frame()["run"].tolist() == ["σ=0.3@gaussian", "σ=0.3@li"]
        other = both.by_certificate("li")
        assert [point.radius for point in other] == [point.further[0].radius for point in both]
        assert other.acr == both.table().to_frame()["acr"][1]
        assert other.verify().consistent
        with pytest.raises(InputError, match="gaussian, li"):
            both.by_certificate("dipole")

    def test_a_selected_certificate_stays_selected(self, digits: tuple[np.ndarray, list[int]], tmp_path: Path) -> None:
        both = smooth().certify(digits[0][:6], labels=digits[1][:6], n0=N0, n=N, certificate="gaussian,li")
        li = both.by_certificate("li")
        again = li.recertify(alpha=0.01)
        assert again.certificates == ("li",)
        assert again.table().to_frame()["run"].tolist() == ["σ=0.3@li recertified"]
        assert again.acr == both.recertify(alpha=0.01).by_certificate("li").acr != both.recertify(alpha=0.01).acr
        assert li.recertify(certificate="gaussian").acr == both.acr
        page = li.report(tmp_path / "page.html").read_text()
        assert "σ=0.3@li" in page
        assert "@gaussian" not in page
        assert "@li@li" not in page

    def test_plot_returns_axes_and_adds_to_them(self, results: Results, digits: tuple[np.ndarray, list[int]]) -> None:
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        from matplotlib import pyplot

        wider = smooth(0.5).certify(digits[0], labels=digits[1], n0=N0, n=N)
        axes = results.plot()
        assert results.plot(ax=axes) is axes
        wider.plot(ax=axes, label="wide")
        first, _, last = axes.lines
        assert first.get_color() != last.get_color()
        assert last.get_label() == "wide"
        assert axes.get_xlim()[1] >= max(point.radius for point in (*results, *wider) if point.correct)
        with pytest.raises(InputError, match="accuracy"):
            results.plot(kind="pie")
        pyplot.close("all")

    def test_html_is_escaped_and_self_contained(self, results: Results) -> None:
        hostile = Results(results._content, name="<img src=x onerror=alert(1)>")
        html = hostile._repr_html_()
        assert "<img" not in html
        assert "&lt;img" in html
        assert "<svg" in html
        assert "<script" not in html
        assert "http" not in html.replace("http://www.w3.org/2000/svg", "")

    def test_html_of_many_steps_stays_small(self, results: Results) -> None:
        points = [
            replace(results[0], index=k, verdict=replace(results[0].verdict, radius=0.1 + 1e-4 * k))
            for k in range(3000)
        ]
        many = Results(MemoryContent(points, results.manifest), name="many")  # type: ignore[arg-type]
        assert len(many._repr_html_()) < 40_000


class TestVerify:
    def test_everything_is_proved(self, results: Results) -> None:
        inspection = results.verify()
        assert inspection.consistent
        assert "12 inputs" in str(inspection)
        assert results[5:7].verify().consistent

    def test_a_larger_radius_is_found(self, results: Results) -> None:
        certified = next(k for k, point in enumerate(results) if point.radius > 0)
        points = list(results)
        verdict = replace(points[certified].verdict, radius=points[certified].radius * 1.01)
        points[certified] = replace(points[certified], verdict=verdict)
        forged = Results(MemoryContent(points, results.manifest), name="forged")  # type: ignore[arg-type]
        inspection = forged.verify()
        assert not inspection.consistent
        assert f"input {certified}" in str(inspection)

    def test_a_later_call(self, digits: tuple[np.ndarray, list[int]]) -> None:
        smoothed = smooth()
        smoothed.certify(digits[0][:3], n0=20, n=100)
        later = smoothed.certify(digits[0][:2], n0=20, n=100)
        assert [point.index for point in later] == [3, 4]
        assert later.verify().consistent
        assert "not finished" not in str(later.table())


class TestRecertify:
    def test_another_alpha_and_n(self, results: Results) -> None:
        stricter = results.recertify(alpha=1e-6)
        assert stricter.spec is not None
        assert stricter.spec.alpha == 1e-6
        assert all(new.radius <= old.radius for new, old in zip(stricter, results, strict=True))
        assert results.recertify() == results
        assert results.recertify(n=500, certificate="li").verify().consistent

    def test_numbers_of_every_kind(self, results: Results, tmp_path: Path) -> None:
        expected = results[:3].recertify(n=500, alpha=0.1)
        for n in (np.int64(500), 5e2, "5e2"):
            again = results[:3].recertify(n=n, alpha=np.float32(0.125))  # type: ignore[arg-type]
            assert again == results[:3].recertify(n=500, alpha=0.125)
            again.export(tmp_path / f"{type(n).__name__}", format="certificate")
        assert results[:3].recertify(n=500, alpha="0.1") == expected  # type: ignore[arg-type]
        with pytest.raises(InputError, match="alpha is 'small'"):
            results.recertify(alpha="small")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="has a fraction"):
            results.recertify(n=0.5)

    def test_fewer_samples_are_those_of_a_smaller_call(
        self, results: Results, digits: tuple[np.ndarray, list[int]]
    ) -> None:
        small = smooth().certify(digits[0], labels=digits[1], n0=N0, n=500)
        assert [point.radius for point in results.recertify(n=500)] == [point.radius for point in small]

    def test_predictions_cannot(self, digits: tuple[np.ndarray, list[int]]) -> None:
        with pytest.raises(RunError, match="predict"):
            smooth().predict(digits[0][:1], n=100).recertify(alpha=0.01)


class TestFiles:
    def test_json_has_the_votes(self, results: Results, tmp_path: Path) -> None:
        document = json.loads(results.export(tmp_path / "out.json").read_text())
        for row, point in zip(document["points"], results, strict=True):
            assert sum(row["votes"]["estimation"]["counts"]) + row["votes"]["estimation"]["invalid"] == N
            assert sum(row["votes"]["selection"]["counts"]) == N0
            tally = point.tally(Stage.SELECTION)
            assert tally is not None
            assert row["votes"]["selection"]["counts"] == tally.independent_votes().counts.tolist()

    def test_formats(self, results: Results, tmp_path: Path) -> None:
        assert results.export(tmp_path / "out.csv").read_text().count("\n") == 13
        assert results.export(tmp_path / "out.tsv").read_text().startswith("idx\tlabel")
        folder = results.export(tmp_path / "certificates", format="certificate")
        assert len(list(folder.glob("*.json"))) == 12
        with pytest.raises(InputError, match="cohen-tsv"):
            results.export(tmp_path / "out.parquet")
        with pytest.raises(RunError, match="exists"):
            results.export(tmp_path / "out.csv")
        results.export(tmp_path / "out.csv", overwrite=True)

    def test_exported_certificates_are_proved(self, results: Results, tmp_path: Path) -> None:
        from smoothcert_verify.place_checks import CheckOptions, inspect_places

        results[:3].export(tmp_path / "certificates", format="certificate")
        assert inspect_places([tmp_path / "certificates"], CheckOptions()).consistent

    def test_report(self, results: Results, tmp_path: Path) -> None:
        page = results.report(tmp_path / "page.html", title="digits in memory").read_text()
        assert "digits in memory" in page
        assert "results in memory do not contain the inputs" in page

    def test_report_has_the_names_of_the_classes(self, digits: tuple[np.ndarray, list[int]], tmp_path: Path) -> None:
        names = [f"digit-{k}" for k in range(10)]
        named = smooth(class_names=names).certify(digits[0][:3], labels=digits[1][:3], n0=20, n=200)
        assert names[digits[1][0]] in named.report(tmp_path / "page.html").read_text().partition("class_names")[0]


KINDS = {
    "two classes": {"certificate": "gaussian-two-class"},
    "dipole": {"certificate": "dipole"},
    "scores": {"certificate": "gaussian-soft"},
    "gradients": {"certificate": "second-order", "n": 400},
    "best of": {"certificate": "gaussian,li", "best_of": True},
    "decide": {"decide": [0.1, 0.3]},
    "precision": {"precision": 0.1},
}


@pytest.mark.parametrize("asked", KINDS.values(), ids=KINDS)
def test_every_kind_of_call_is_described_well_enough_to_be_proved(
    asked: dict[str, Any], digits: tuple[np.ndarray, list[int]]
) -> None:
    results = smooth(workers=1).certify(digits[0][:3], **{"n0": 20, "n": 600, **asked})
    inspection = results.verify()
    assert inspection.consistent, str(inspection)
    assert results.recertify() == results


WORLDS: dict[str, dict[str, Any]] = {
    "uniform": {"noise": "uniform", "sigma": 0.8},
    "float32": {"grid": "float"},
    "shared": {"shared_noise": True},
    "any values": {"input_range": None, "grid": "float"},
}


@pytest.mark.parametrize("settings", WORLDS.values(), ids=WORLDS)
def test_every_noise(settings: dict[str, Any], digits: tuple[np.ndarray, list[int]]) -> None:
    settings = {"sigma": 0.3, "grid": 17, "batch": 256, "seed": 3, **settings}
    results = sc.SmoothedClassifier(fitted(), **settings).certify(digits[0][:3], n0=20, n=300)
    inspection = results.verify()
    assert inspection.consistent, str(inspection)


def _brightness(x: np.ndarray) -> float:
    return float(0.3 * np.exp(0.01 * np.sqrt(np.square(x.astype(np.float64)).sum())))


def test_sigma_that_varies(digits: tuple[np.ndarray, list[int]]) -> None:
    rule = sc.CallableRule(_brightness, envelope=sc.SemiElastic(rate=0.01))
    results = smooth(rule).certify(digits[0][:3], n0=20, n=300)  # type: ignore[arg-type]
    assert results.name == "σ by input"
    inspection = results.verify()
    assert inspection.consistent, str(inspection)
    assert results.recertify() == results


def test_regions_of_a_memory(digits: tuple[np.ndarray, list[int]], tmp_path: Path) -> None:
    search = sc.OptimisedSigma(0.3, search="grid:points=3,noises=8")
    with smooth(search, memory=tmp_path / "memory.sqlite") as smoothed:  # type: ignore[arg-type]
        results = smoothed.certify(digits[0][:2], n0=20, n=300)
        inspection = results.verify()
        assert inspection.consistent, str(inspection)
        with pytest.raises(RunError, match="memory"):
            results.recertify(alpha=0.01)

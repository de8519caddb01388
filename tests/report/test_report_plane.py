"""Decision regions in the plane: which points are evaluated, by which classifier, and what is drawn."""

from __future__ import annotations

import html
import math
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.special import ndtr
from scipy.stats import binom, ncx2

from cli_runner import command, environment, invoke, smoothcert
from report_runs import HOSTILE, made_run
from run_specs import finish_run, make_spec
from smoothcert.cli.main import app
from smoothcert.data import load_dataset
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError, RunError
from smoothcert.memory import open_existing
from smoothcert.records.decision_map import NOT_ASKED, UNDECIDED, DecisionMap, Rectangle
from smoothcert.report.content import ReportRequest, build_content
from smoothcert.report.outlines import trace_outline
from smoothcert.report.page import render_page, write_report
from smoothcert.report.plane import Ground, Plane, draw_planes, round_ball
from smoothcert.report.sources import Source, load_sources
from smoothcert.runs.decision_regions import MapSettings, answer, prepare_survey
from smoothcert.runs.load import load_results
from smoothcert.runs.resumption import Moved
from smoothcert.spec import LocalEngineSpec, RunSpec

SIGMA = 0.5
SQUARE = Rectangle((-3.0, -2.0), (3.0, 2.0))


def scattered(path: Path, *, count: int = 40, names: tuple[str, ...] = (), side: float = 2.0) -> Path:
    x = np.random.default_rng(0).uniform(-side, side, size=(count, 2)).astype(np.float32)
    extra: dict[str, Any] = {"class_names": np.array(names)} if names else {}
    np.savez(path, x=x, y=(x[:, 0] > 0).astype(np.int64), **extra)
    return path


def spec(data: Path, **changes: Any) -> RunSpec:
    settings: dict[str, Any] = {
        "task": "certify", "model": "memory_models:right_half", "data": str(data), "num_classes": 2, "sigma": SIGMA,
        "n0": 50, "n": 1000, "alpha": 0.001, "seed": 5, "batch": 1000, "input_range": "any", "workers": 1,
    }  # fmt: skip
    return make_spec(**{**settings, **changes})


def asked(
    run: Path, rectangle: Rectangle = SQUARE, *, points: int = 24, n: int = 400, soft: bool = False, **moved: Any
) -> DecisionMap:
    settings = MapSettings(points=points, n=n)
    with prepare_survey(run, rectangle, settings, soft=soft, moved=Moved(**moved)) as survey:
        return answer(survey)


def deciding(**settings: int) -> Callable[[Source, Rectangle], DecisionMap | str]:
    return lambda source, rectangle: asked(source.place, rectangle, **settings)


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the classifier whose border, smoothed or not, is the line x = 0."""
    folder = tmp_path_factory.mktemp("halves")
    finish_run(spec(scattered(folder / "points.npz")), folder / "run")
    return folder / "run"


class TestAnswers:
    def test_a_half_plane_is_found_where_it_is(self, halves: Path) -> None:
        found = asked(halves)
        assert found.answers.shape == (16, 24)
        x = found.points[..., 0]
        # Twelve columns on either side. Even the column next to the border, at 1/8, has the right class or none.
        truth = (x > 0).astype(np.int64)
        assert ((found.answers == truth) | (found.answers == UNDECIDED)).all()
        # P(right side) = Phi(0.375/0.5) = 0.77: 400 votes decide it, except with probability 1e-20.
        assert (found.answers == truth)[np.abs(x) > 0.3].all()
        assert found.remembered == 0

    def test_close_to_the_border_it_is_left_open(self, halves: Path) -> None:
        found = asked(halves, Rectangle((-0.01, -0.005), (0.01, 0.005)), points=12, n=200)
        # At most two of a hundred votes off balance: each of the 72 points abstains with probability > 0.99.
        assert (found.answers == UNDECIDED).mean() > 0.8

    def test_a_ball_is_found_smaller_than_it_is_by_the_known_amount(self, tmp_path: Path) -> None:
        """P(|x+e| <= 1) is a noncentral chi-square probability; at sigma = 1/2 it is one half at |x| = 0.77, not 1."""
        data = scattered(tmp_path / "points.npz", count=5)
        finish_run(spec(data, model="memory_models:in_unit_ball"), tmp_path / "run")
        n = 1000
        found = asked(tmp_path / "run", Rectangle((-1.5, -1.5), (1.5, 1.5)), points=24, n=n)
        away = np.linalg.norm(found.points, axis=-1)
        inside = ncx2.cdf(1 / SIGMA**2, 2, (away / SIGMA) ** 2)
        truth = (inside > 0.5).astype(np.int64)
        assert ((away < 1) & (truth == 0)).sum() > 50  # what the base classifier would have got right, g does not say
        assert ((found.answers == truth) | (found.answers == UNDECIDED)).all()
        sure = binom.cdf(600, n, np.maximum(inside, 1 - inside)) < 1e-9
        assert sure.sum() > 300
        assert (found.answers == truth)[sure].all()

    def test_mean_scores_are_asked_for_where_the_run_is_about_them(self, tmp_path: Path) -> None:
        """Scores (1, 0) on the right, (0.4, 0.6) on the left: votes and mean scores differ close to the border.

        With q = P(x+e is on the right), the votes are for class 0 where q > 1/2, the mean scores where q > 1/6. In
        between the class that `certify` would choose has not the largest mean score: it abstains, and so do we.
        """
        data = scattered(tmp_path / "points.npz", count=12)
        changes = {"model": "plane_rules:bold_on_the_right", "certificate": "gaussian-soft,gaussian-soft-two-class"}
        finish_run(spec(data, **changes), tmp_path / "run")
        strip = Rectangle((-1.5, -0.5), (1.5, 0.5))
        by_votes, by_scores = asked(tmp_path / "run", strip, n=1000), asked(tmp_path / "run", strip, n=1000, soft=True)
        q = ndtr(by_scores.points[..., 0] / SIGMA)
        for found, border in ((by_votes, 1 / 2), (by_scores, 1 / 6)):
            truth = (q < border).astype(np.int64)
            assert ((found.answers == truth) | (found.answers == UNDECIDED)).all()
            assert (found.answers == truth)[(q < border - 0.1) | (q > 0.6)].all()
        assert (by_scores.answers == UNDECIDED)[(q > 0.27) & (q < 0.4)].all()
        options = ("--regions", "--region-points", 12, "--region-samples", 200, "--gallery", 0)
        done = invoke(app, "report", tmp_path / "run", "-o", tmp_path / "page.html", *options)
        assert done.exit_code == 0, done.output
        assert done.stderr.count("asking at") == 1
        page = (tmp_path / "page.html").read_text()
        assert page.count('class="ground"') == 2
        assert "got another answer than the disc says: look" not in page

    def test_the_same_run_gives_the_same_map_and_another_seed_another(self, halves: Path, tmp_path: Path) -> None:
        near = Rectangle((-0.2, -0.1), (0.2, 0.1))
        first = asked(halves, near)
        assert (asked(halves, near, engine=LocalEngineSpec(workers=2)).answers == first.answers).all()
        finish_run(spec(scattered(tmp_path / "points.npz"), seed=6), tmp_path / "run")
        assert (asked(tmp_path / "run", near).answers != first.answers).any()

    @pytest.mark.parametrize(
        "changes",
        [
            {"noise": "uniform"},
            {"sigma": None, "sigma_rule": "plane_rules:wider_above", "memory": "memory.sqlite"},
            {"shared_noise": True},
            {"task": "predict", "n0": None},
            {"decide": "0.1,0.5"},
            {"certificate": "gaussian,gaussian-two-class"},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_every_kind_of_run_can_be_asked(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        if "memory" in changes:
            changes = {**changes, "memory": str(tmp_path / changes["memory"])}
        finish_run(spec(scattered(tmp_path / "points.npz", count=12), **changes), tmp_path / "run")
        found = asked(tmp_path / "run")
        truth = (found.points[..., 0] > 0).astype(np.int64)
        assert (found.answers == truth)[np.abs(found.points[..., 0]) > 0.5].all()
        for drawing in draw_planes(load_sources([tmp_path / "run"]), deciding(points=16, n=200)):
            assert drawing.ground is not None
            assert drawing.ground.contradicting == 0
            assert (drawing.ground.inside > 0) == (changes.get("task") != "predict")

    def test_points_are_those_of_the_grid_where_noise_is(self, tmp_path: Path) -> None:
        data = tmp_path / "points.npz"
        x = np.random.default_rng(0).integers(0, 256, size=(20, 2), dtype=np.uint8)
        np.savez(data, x=x, y=(x[:, 0] > 0).astype(np.int64))
        finish_run(spec(data, sigma=0.1, input_range=None), tmp_path / "run")
        found = asked(tmp_path / "run", Rectangle((0.5, 0.5), (0.52, 0.51)), points=64, n=100)
        assert np.rint(found.points * 255) / 255 == pytest.approx(found.points, abs=1e-7)
        # A few inputs for two thousand cells: neighbouring cells share an evaluation.
        assert len(np.unique(found.points.reshape(-1, 2), axis=0)) <= 6 * 4
        assert found.answers.size > 2000
        assert (found.answers == 1).all()


class TestWhoIsAsked:
    def test_another_model_is_refused(self, halves: Path) -> None:
        with pytest.raises(ManifestMismatchError, match=r"another model.*give the right one"):
            asked(halves, model="memory_models:in_unit_ball")

    def test_a_rule_that_was_changed_is_refused(self, tmp_path: Path) -> None:
        data = scattered(tmp_path / "points.npz", count=5)
        memory = str(tmp_path / "memory.sqlite")
        finish_run(spec(data, sigma=None, sigma_rule="plane_rules:wider_above", memory=memory), tmp_path / "run")
        manifest = tmp_path / "run" / "manifest.json"
        manifest.write_text(manifest.read_text().replace("plane_rules:wider_above", "plane_rules:narrower_above"))
        with pytest.raises(ManifestMismatchError, match="another sigma rule"):
            asked(tmp_path / "run")

    def test_a_memory_answers_and_is_not_changed(self, tmp_path: Path) -> None:
        data, memory = scattered(tmp_path / "points.npz"), tmp_path / "memory.sqlite"
        finish_run(spec(data, memory=str(memory)), tmp_path / "run")
        (source,) = load_sources([tmp_path / "run"])
        before = _claims(memory)
        (drawing,) = draw_planes([source], deciding(points=24, n=200))
        assert _claims(memory) == before
        assert drawing.ground is not None
        # The memory answers exactly the points in the balls: it has only the regions of this run.
        assert drawing.ground.remembered == drawing.ground.inside > 0
        assert drawing.ground.contradicting == 0

    def test_a_memory_that_lost_what_was_promised_is_refused(self, tmp_path: Path) -> None:
        data, memory = scattered(tmp_path / "points.npz", count=5), tmp_path / "memory.sqlite"
        finish_run(spec(data, memory=str(memory)), tmp_path / "run")
        memory.unlink()
        with pytest.raises(RunError, match="does not exist"):
            asked(tmp_path / "run")

    def test_with_a_memory_nothing_is_asked_outside_the_range_of_the_data(self, tmp_path: Path) -> None:
        data, memory = tmp_path / "points.npz", tmp_path / "memory.sqlite"
        x = np.random.default_rng(0).uniform(0, 1, size=(10, 2)).astype(np.float32)
        np.savez(data, x=x, y=np.ones(10, dtype=np.int64))
        finish_run(spec(data, memory=str(memory), input_range=None, sigma=0.1), tmp_path / "run")
        finish_run(spec(data, input_range=None, sigma=0.1), tmp_path / "free")
        wide = Rectangle((-0.5, -0.5), (1.5, 1.5))
        found = asked(tmp_path / "run", wide, points=20, n=100)
        within = ((found.points >= 0) & (found.points <= 1)).all(axis=-1)
        assert ((found.answers == NOT_ASKED) == ~within).all()
        assert found.asked == 100
        assert asked(tmp_path / "free", wide, points=20, n=100).asked == 400

    def test_it_stops_when_told(self, halves: Path) -> None:
        stop = threading.Event()
        stop.set()
        with (
            prepare_survey(halves, SQUARE, MapSettings(points=8, n=100)) as survey,
            pytest.raises(InterruptedRunError),
        ):
            answer(survey, stop=stop)

    @pytest.mark.parametrize("settings", [{"points": 1}, {"points": 300}, {"n": 5}])
    def test_settings_without_sense_are_refused(self, halves: Path, settings: dict[str, int]) -> None:
        with pytest.raises(InputError):
            asked(halves, **settings)


def _claims(memory: Path) -> list[Any]:
    with open_existing(memory) as found:
        return [(claim.position, claim.label, claim.radius, claim.entry) for claim in found.claims()]


def inside(path: str, x: float, y: float) -> bool:
    """Whether the path encloses the point: by its winding number."""
    turns = 0.0
    for text in path.split("z")[:-1]:
        first, *steps = (tuple(map(int, pair)) for pair in re.findall(r"(-?\d+) (-?\d+)", text))
        corners = np.cumsum(
            [
                first,
                *steps,
            ],
            axis=0,
        ).astype(float) - (x, y)
        angles = np.arctan2(corners[:, 1], corners[:, 0])
        turned = np.diff(np.append(angles, angles[0]))
        turns += float(np.sum((turned + np.pi) % (2 * np.pi) - np.pi))
    return abs(turns) > np.pi


class TestOutlines:
    @given(arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7)))
    def test_the_middle_of_every_cell_is_on_its_side(self, cells: np.ndarray) -> None:
        path = trace_outline(cells)
        for (row, column), value in np.ndenumerate(cells):
            assert inside(path, 2 * column + 1, 2 * row + 1) == value

    def test_one_cell_is_a_diamond_and_the_rim_goes_on(self) -> None:
        alone = np.zeros((3, 3), dtype=np.bool_)
        alone[1, 1] = True
        assert trace_outline(alone) == "M3 2l1 1 -1 1 -1 -1z"
        everything = trace_outline(np.ones((2, 2), dtype=np.bool_))
        for corner in [(0, 0), (0, 4), (4, 0), (4, 4)]:
            assert inside(everything, *corner)

    def test_a_slanting_border_is_short(self) -> None:
        rows, columns = np.indices((256, 256))
        assert len(trace_outline(rows > columns)) < 200
        noise = np.random.default_rng(0).random((64, 64)) < 0.5
        assert len(trace_outline(noise)) + len(trace_outline(~noise)) < 100_000


@pytest.fixture(scope="module")
def drawing(halves: Path) -> Plane:
    (found,) = draw_planes(load_sources([halves]), deciding(points=32, n=300))
    return found


class TestDrawing:
    def ground(self, drawing: Plane) -> Ground:
        assert drawing.ground is not None
        return drawing.ground

    def test_colours_are_those_of_the_discs(self, drawing: Plane) -> None:
        """In pixels, the centre of a disc and all grid points inside it are on the region of its colour."""
        ground, checked = self.ground(drawing), 0
        paths = dict(ground.paths)
        for ball in drawing.balls:
            x = (ball.x - drawing.left) / ground.step_x
            y = (drawing.bottom - ball.y) / ground.step_y
            others = [path for colour, path in paths.items() if colour != ball.colour]
            assert not any(inside(path, x, y) for path in others)
            if ball.r > 2 * ground.step_x:  # large enough to hold a grid point
                assert inside(paths[ball.colour], x, y)
                checked += 1
        assert checked > 20
        assert ground.inside > 100
        assert ground.contradicting == 0

    @given(st.floats(0, 500), st.floats(0, 500), st.floats(0, 300))
    def test_no_ball_reaches_further_than_it_was_proved(self, x: float, y: float, radius: float) -> None:
        """Also if its centre is rounded to a tenth of a pixel."""
        shown_x, shown_y, shown_radius = round_ball(x, y, radius)
        assert shown_radius == 0 or shown_radius + math.hypot(shown_x - x, shown_y - y) <= radius + 1e-9
        assert shown_radius >= radius - 0.12

    def test_the_ground_fills_the_frame_at_the_scale_of_the_discs(self, drawing: Plane) -> None:
        ground = self.ground(drawing)
        assert 2 * ground.columns * ground.step_x == pytest.approx(drawing.right - drawing.left, abs=0.1)
        assert 2 * ground.rows * ground.step_y == pytest.approx(drawing.bottom - drawing.top, abs=0.1)
        # The border x = 0, computed in pixels from the ticks, is between the two colours.
        at = {float(tick.text): tick.at for tick in drawing.x_ticks}[0.0]
        y = ground.rows + 0.0
        paths = {drawing.classes[colour]: path for colour, path in ground.paths}
        for name, sign in (("0", -1), ("1", 1)):
            half_cells = (at + sign * 60 - drawing.left) / ground.step_x
            assert inside(paths[name], half_cells, y)

    def test_a_contradiction_is_told(self, halves: Path) -> None:
        def lying(source: Source, rectangle: Rectangle) -> DecisionMap:
            found = asked(source.place, rectangle)
            answers = np.where(found.answers >= 0, 1 - found.answers, found.answers)
            return DecisionMap(found.rectangle, found.points, answers, found.n, found.alpha)

        shown = build_content(ReportRequest(runs=(halves,), decide=lying, gallery=0))
        ground = self.ground(shown.planes[0])
        assert 0 < ground.contradicting <= ground.inside
        page = html.unescape(render_page(shown).decode())
        assert f"{ground.contradicting:,} got another answer than the disc says" in page

    def test_without_being_asked_for_there_are_none_and_the_page_says_how(self, halves: Path) -> None:
        shown = build_content(ReportRequest(runs=(halves,), gallery=0))
        assert [one.ground for one in shown.planes] == [None]
        page = render_page(shown).decode()
        assert "--regions" in page
        assert 'class="ground"' not in page

    def test_a_class_only_the_ground_has_is_in_the_legend(self, halves: Path) -> None:
        def third(source: Source, rectangle: Rectangle) -> DecisionMap:
            rows, columns = rectangle.cells(longer=8)
            answers = np.full((rows, columns), 7, dtype=np.int64)
            return DecisionMap(rectangle, rectangle.centres(rows, columns), answers, 100, 0.001)

        (drawing,) = draw_planes(load_sources([halves]), third)
        assert drawing.classes == ("0", "1", "7")
        assert [colour for colour, _ in self.ground(drawing).paths] == [2]

    def test_very_high_and_very_flat_data_fit(self, tmp_path: Path) -> None:
        for k, stretch in enumerate(([1e-3, 1.0], [1.0, 1e-3])):
            file = tmp_path / f"{k}.npz"
            x = (np.random.default_rng(0).random(size=(30, 2)) * stretch).astype(np.float32)
            np.savez(file, x=x, y=np.arange(30) % 2)
            dataset = load_dataset(str(file))
            run = made_run(tmp_path / f"run{k}", dataset, source=str(file), inputs=30, grid=None, sigma=0.001)
            (drawing,) = draw_planes(load_sources([run]))
            assert 0.25 * drawing.width < drawing.height < 1.1 * drawing.width

    def test_the_extra_page_is_small(self, halves: Path, tmp_path: Path) -> None:
        bare = write_report(ReportRequest(runs=(halves,), gallery=0), tmp_path / "bare.html")
        drawn = write_report(
            ReportRequest(runs=(halves,), gallery=0, decide=deciding(points=64, n=50)), tmp_path / "a.html"
        )
        assert drawn - bare < 30_000


class TestCommand:
    def test_it_draws_what_was_asked_for_and_says_how(self, halves: Path, tmp_path: Path) -> None:
        out = tmp_path / "page.html"
        options = ("--regions", "--region-points", 24, "--region-samples", 300, "--gallery", 0)
        done = invoke(app, "report", halves, "-o", out, *options)
        assert done.exit_code == 0, done.output
        assert "300 samples each" in done.stderr
        text = html.unescape(re.sub(r"\s+", " ", out.read_text()))
        assert re.search(r"evaluated at 24 × \d+ points with 300 noisy copies each", text)
        assert "they are not certified" in text
        again = tmp_path / "again.html"
        invoke(app, "report", halves, "-o", again, *options)
        assert again.read_bytes() == out.read_bytes()

    def test_several_runs_and_what_cannot_be_asked(self, halves: Path, tmp_path: Path) -> None:
        data = scattered(tmp_path / "points.npz", count=8)
        finish_run(spec(data, model="memory_models:in_unit_ball"), tmp_path / "ball")
        log = tmp_path / "log.tsv"
        log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
        runs = (halves, tmp_path / "ball", log)
        options = ("--regions", "--region-points", 12, "--region-samples", 50, "--gallery", 0)
        done = smoothcert("report", *runs, "-o", tmp_path / "page.html", *options)
        assert done.returncode == 0, done.stderr
        page = (tmp_path / "page.html").read_text()
        assert page.count('class="ground"') == 2

    def test_several_certificates_are_asked_once(self, tmp_path: Path) -> None:
        data = scattered(tmp_path / "points.npz", count=8)
        finish_run(spec(data, certificate="gaussian,gaussian-two-class"), tmp_path / "run")
        options = ("--regions", "--region-points", 12, "--region-samples", 50, "--gallery", 0)
        done = invoke(app, "report", tmp_path / "run", "-o", tmp_path / "page.html", *options)
        assert done.stderr.count("asking at") == 1
        assert (tmp_path / "page.html").read_text().count('class="ground"') == 2

    def test_what_has_no_plane_is_refused_with_a_sentence(self, tmp_path: Path) -> None:
        file = tmp_path / "points.npz"
        x = np.random.default_rng(0).random((6, 3)).astype(np.float32)
        np.savez(file, x=x, y=np.arange(6) % 2)
        finish_run(spec(file, input_range=None), tmp_path / "run")
        done = smoothcert("report", tmp_path / "run", "-o", tmp_path / "page.html", "--regions")
        assert done.returncode == InputError.exit_code
        assert "run: its inputs are not points of the plane: their shape is 3" in done.stderr
        assert not (tmp_path / "page.html").exists()

    def test_results_without_a_model_are_refused_with_a_sentence(self, tmp_path: Path) -> None:
        file, log, fewer = tmp_path / "points.npz", tmp_path / "log.tsv", tmp_path / "fewer"
        np.savez(file, x=np.full((1, 2), 0.5, dtype=np.float32), y=np.array([1]))
        finish_run(spec(file, input_range=None), tmp_path / "run")
        assert invoke(app, "recertify", tmp_path / "run", "--n", 500, "-o", fewer).exit_code == 0
        log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
        for where, message in ((log, "a log does not contain the model"), (fewer, "use the run it was made from")):
            done = smoothcert("report", where, "--data", file, "-o", tmp_path / "page.html", "--regions")
            assert done.returncode == InputError.exit_code
            assert message in done.stderr
            assert not (tmp_path / "page.html").exists()

    def test_a_model_that_moved_is_found_and_another_refused(self, halves: Path, tmp_path: Path) -> None:
        options = ("--regions", "--region-points", 8, "--region-samples", 50, "--gallery", 0)
        other = smoothcert(
            "report", halves, "-o", tmp_path / "a.html", *options, "--model", "memory_models:in_unit_ball"
        )
        assert other.returncode == ManifestMismatchError.exit_code
        assert "another model" in other.stderr
        assert "Traceback" not in other.stderr
        moved = shutil.copytree(halves, tmp_path / "moved")
        manifest = moved / "manifest.json"
        manifest.write_text(manifest.read_text().replace("memory_models:right_half", "gone:away"))
        assert smoothcert("report", moved, "-o", tmp_path / "b.html", *options).returncode != 0
        found = smoothcert("report", moved, "-o", tmp_path / "b.html", *options, "--model", "memory_models:right_half")
        assert found.returncode == 0, found.stderr

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (["--watch", "--regions"], "use one of them"),
            (["--region-points", "9"], "--region-points is about the decision regions: it needs --regions"),
            (["--model", "a:b"], "--model is about the decision regions"),
            (["--regions", "--region-points", "1"], "give 2"),
            (["--regions", "--region-samples", "3"], "n=3 at alpha=0.001 can never predict"),
        ],
    )
    def test_options_that_do_not_go_together(self, halves: Path, tmp_path: Path, options: list[str], told: str) -> None:
        done = smoothcert("report", halves, *options, cwd=tmp_path)
        assert done.returncode == InputError.exit_code
        assert told in re.sub(r"\s+", " ", done.stderr)
        assert list(tmp_path.iterdir()) == []

    def test_ctrl_c_ends_it_and_writes_nothing(self, halves: Path, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        arguments = command("report", halves, "-o", page, "--regions", "--region-points", 256)
        process = subprocess.Popen(arguments, env=environment(), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        while "asking at" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGINT)
        told = process.communicate(timeout=60)[1]
        assert process.returncode == InterruptedRunError.exit_code, told
        assert "no page was written" in told
        assert "Traceback" not in told
        assert not page.exists()

    def test_hostile_names_stay_text(self, tmp_path: Path) -> None:
        data = scattered(tmp_path / "points.npz", names=HOSTILE[:2])
        finish_run(spec(data), tmp_path / "run")
        shown = build_content(ReportRequest(runs=(tmp_path / "run",), decide=deciding(points=12, n=50), gallery=0))
        page = render_page(shown).decode()
        assert shown.planes[0].classes == HOSTILE[:2]
        assert page.count("<script") == 3
        assert "alert(1)</script> 5" not in page
        assert re.search(r'aria-label="[^"]*on a background of estimated answers: &lt;script&gt;alert\(1\)', page)

    def test_a_run_with_answers_alone_has_a_plane_when_asked(self, tmp_path: Path) -> None:
        finish_run(spec(scattered(tmp_path / "points.npz"), task="predict", n0=None), tmp_path / "run")
        assert build_content(ReportRequest(runs=(tmp_path / "run",), gallery=0)).planes == ()
        shown = build_content(ReportRequest(runs=(tmp_path / "run",), gallery=0, decide=deciding(points=12, n=50)))
        assert len(shown.planes[0].dots) == len(load_results(tmp_path / "run"))
        assert "Each disc" not in render_page(shown).decode()

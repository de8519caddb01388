"""Decision regions in a real browser: the visible colours are those of the answers, in light and dark mode."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

from chromium_browser import visiting
from report_runs import HOSTILE, made_run
from smoothcert.data import load_dataset
from smoothcert.records.decision_map import UNDECIDED, DecisionMap, Rectangle
from smoothcert.report.content import ReportRequest
from smoothcert.report.page import write_report
from smoothcert.report.plane import Plane, draw_planes
from smoothcert.report.sources import Source, load_sources

LIGHT_AND_DARK = {"light": ((0, 114, 178), (192, 74, 0)), "dark": ((92, 179, 236), (255, 146, 86))}
"""The colours of the first two classes."""
PAGE = {"light": (255, 255, 255), "dark": (18, 22, 28)}
"""The colour of the page below them."""


def in_thirds(_: Source, rectangle: Rectangle) -> DecisionMap:
    """Class 0 on the left, undecided in the middle, class 1 on the right."""
    rows, columns = rectangle.cells(longer=30)
    answers = np.full((rows, columns), UNDECIDED, dtype=np.int64)
    answers[:, : columns // 3], answers[:, -(columns // 3) :] = 0, 1
    return DecisionMap(rectangle, rectangle.centres(rows, columns), answers, 100, 0.001)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small discs in the middle of the plane and a few distant inputs, with hostile names."""
    folder = tmp_path_factory.mktemp("plane")
    x = np.random.default_rng(0).uniform(0.4, 0.6, size=(30, 2)).astype(np.float32)
    x[:2] = [[0, 0], [1, 1]]
    np.savez(folder / "points.npz", x=x, y=np.arange(30) % 2, class_names=np.array(HOSTILE[:2]))
    dataset = load_dataset(str(folder / "points.npz"))
    return made_run(folder / "run", dataset, source=str(folder / "points.npz"), inputs=30, grid=None, sigma=0.002)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_regions_have_the_colours_of_their_classes(browser: Browser, run: Path, tmp_path: Path, scheme: Any) -> None:
    write_report(ReportRequest(runs=(run,), decide=in_thirds, gallery=0), tmp_path / "page.html")
    (drawing,) = draw_planes(load_sources([run]), in_thirds)
    with visiting(browser, (tmp_path / "page.html").as_uri(), color_scheme=scheme) as visit:
        assert visit.complaints == []
        picture = Image.open(io.BytesIO(visit.page.locator("svg.plane").screenshot())).convert("RGB")
        left, middle, right = (_seen(picture, drawing, share) for share in (0.25, 0.5, 0.75))
        for seen, of_class in ((left, 0), (right, 1)):
            colour, page = LIGHT_AND_DARK[scheme][of_class], PAGE[scheme]
            mixed = [0.17 * a + 0.83 * b for a, b in zip(colour, page, strict=True)]
            assert np.abs(seen.reshape(-1, 3) - mixed).max() < 3  # one even colour, and that of the class
        assert seen.std(axis=(0, 1)).max() < 1
        assert middle.std(axis=(0, 1)).max() > 5  # hatched
        label = visit.page.locator("svg.plane").get_attribute("aria-label")
        assert label is not None
        assert "estimated answers: <script>alert(1)</script> 33 %" in label
        assert "undecided 33 %" in label


def _seen(picture: Image.Image, drawing: Plane, share: float) -> np.ndarray:
    """Pixels low in the frame, between grid lines and inputs, at this distance from the left."""
    scale = picture.width / drawing.width
    x = drawing.left + share * (drawing.right - drawing.left)
    lines = [tick.at for tick in drawing.x_ticks]
    x = next(x + shift for shift in range(0, 60, 5) if all(abs(x + shift - line) > 12 for line in lines))
    y = drawing.bottom - 0.12 * (drawing.bottom - drawing.top)
    y = next(y - shift for shift in range(0, 60, 5) if all(abs(y - shift - tick.at) > 12 for tick in drawing.y_ticks))
    column, row = round(x * scale), round(y * scale)
    return np.asarray(picture, dtype=np.float64)[row - 8 : row + 8, column - 8 : column + 8]


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_says_how_regions_are_had(browser: Browser, run: Path, tmp_path: Path, width: int) -> None:
    write_report(ReportRequest(runs=(run,), gallery=0), tmp_path / "page.html")
    with visiting(browser, (tmp_path / "page.html").as_uri(), viewport={"width": width, "height": 800}) as visit:
        assert visit.complaints == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert "--regions" in visit.page.locator("#plane").inner_text()
        assert visit.page.locator("#plane .ground").count() == 0

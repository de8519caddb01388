"""The page in a real browser: it loads without requests or console messages, and its controls work."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

from chromium_browser import Visit, visiting
from report_runs import HOSTILE, hostile_run, made_run
from report_server import served
from smoothcert.data import load_dataset
from smoothcert.report.content import ReportRequest, build_content
from smoothcert.report.page import write_report
from smoothcert.report.watching import server_for
from smoothcert.runs.load import load_all
from smoothcert.runs.store import RunStore


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("made")
    digits = load_dataset("digits")
    first = made_run(folder / "first", digits, source="digits", inputs=60)
    return first, made_run(folder / "second", digits, source="digits", inputs=60, seed=1, sigma=0.5)


@pytest.fixture(scope="module")
def page_of_two(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(ReportRequest(runs=runs, radii="0,0.1,0.25,0.5"), path)
    return path.as_uri()


@pytest.fixture
def visit(browser: Browser, page_of_two: str) -> Iterator[Visit]:
    with visiting(browser, page_of_two, permissions=["clipboard-read", "clipboard-write"]) as found:
        yield found
        assert found.complaints == []


def asked_of_the_network(visit: Visit) -> list[str]:
    return [url for url in visit.requests if not url.startswith(("data:", "file:"))]


def curves(visit: Visit) -> list[str]:
    """The paths of the lines of the accuracy chart."""
    found = visit.page.evaluate(
        "[...document.querySelectorAll('[data-chart=accuracy] .mark-line path')].map(p => p.getAttribute('d'))"
    )
    return [str(path) for path in found]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_loads_alone_and_in_silence(browser: Browser, page_of_two: str, width: int, scheme: Any) -> None:
    size = {"width": width, "height": 844}
    with visiting(browser, page_of_two, viewport=size, color_scheme=scheme) as visit:
        assert visit.complaints == []
        assert visit.requests[0] == page_of_two
        assert asked_of_the_network(visit) == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.page.evaluate("document.querySelectorAll('.chart svg').length") == 4
        shown = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (shown == "rgb(255, 255, 255)") == (scheme == "light")


def test_runs_are_switched_off_and_on_by_mouse_and_keyboard(visit: Visit) -> None:
    assert len(curves(visit)) == 2
    button = visit.page.get_by_role("button", name="second").first
    button.click()
    visit.eventually("document.querySelectorAll('[data-chart=accuracy] .mark-line path').length === 1")
    assert button.get_attribute("aria-pressed") == "false"
    assert "second" not in visit.page.locator("#probe-values").inner_text()
    button.press("Space")
    visit.eventually("document.querySelectorAll('[data-chart=accuracy] .mark-line path').length === 2")
    assert "second" in visit.page.locator("#probe-values").inner_text()


def test_the_switch_shows_what_holds_with_high_probability(visit: Visit) -> None:
    before = curves(visit)
    assert visit.page.locator("#table-certified").is_visible()
    assert not visit.page.locator("#table-bounded").is_visible()
    visit.page.get_by_role("radio", name="high probability").first.check()
    visit.eventually(
        "document.querySelector('[data-chart=accuracy] .mark-line path').getAttribute('d') !== " + json.dumps(before[0])
    )
    assert visit.page.locator("#table-bounded").is_visible()
    assert not visit.page.locator("#table-certified").is_visible()
    assert visit.page.locator("input[value=bounded]:checked").count() == 2


def test_hovering_reads_the_curves(visit: Visit, runs: tuple[Path, Path]) -> None:
    probes = {row["text"]: row for row in build_content(ReportRequest(runs=runs, gallery=0)).probes}
    visit.page.locator("[data-chart=accuracy]").scroll_into_view_if_needed()
    box = visit.page.locator("[data-chart=accuracy] svg").bounding_box()
    assert box is not None
    for share in (0.3, 0.31, 0.6):
        visit.page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
    visit.page.mouse.move(box["x"] + 0.6 * box["width"] + 1, box["y"] + 0.5 * box["height"])
    visit.eventually("!document.getElementById('tip').hidden")
    title, *lines = visit.page.locator("#tip").inner_text().splitlines()
    radius = title.removeprefix("radius ")
    assert lines == [f"{probes[radius]['a0']} first", f"{probes[radius]['a1']} second"]
    visit.page.mouse.move(5, 5)
    visit.eventually("document.getElementById('tip').hidden")


@pytest.mark.parametrize(
    ("chart", "pattern"),
    [
        ("classes", r"(first|second): \d, \d+ inputs\nmedian \d\.\d{3}\n.*"),
        ("p_a", r"(first|second): \d+\.\d % of inputs in 0\.\d+ … \d(\.\d+)?"),
        ("pair-0", r"input \d+, \d: A \d\.\d{3}, B \d\.\d{3}"),
    ],
)
def test_marks_say_what_they_are(visit: Visit, chart: str, pattern: str) -> None:
    kind = "symbol" if chart == "pair-0" else "rect"
    marks = visit.page.locator(f"[data-chart={chart}] .mark-{kind} path")
    mark = marks.nth(marks.count() - 1)
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box is not None
    visit.page.mouse.move(box["x"] + box["width"] / 2 - 1, box["y"] + box["height"] / 2)
    visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    visit.eventually("!document.getElementById('tip').hidden")
    assert re.fullmatch(pattern, visit.page.locator("#tip").inner_text(), re.DOTALL)


def test_the_slider_reads_the_curves_by_keyboard(visit: Visit, runs: tuple[Path, Path]) -> None:
    probes = build_content(ReportRequest(runs=runs, gallery=0)).probes
    slider = visit.page.locator("#probe")
    slider.focus()
    slider.press("Home")
    slider.press("ArrowRight")
    assert visit.page.locator("#probe-radius").inner_text() == probes[1]["text"]
    values = visit.page.locator("#probe-values").inner_text()
    assert probes[1]["a0"] in values
    assert probes[1]["a1"] in values


def test_a_legend_switches_the_run_in_all_of_them(visit: Visit) -> None:
    classes = visit.page.locator("#classes .legend").get_by_role("button", name="first")
    classes.click()
    visit.eventually("document.querySelectorAll('[data-chart=accuracy] .mark-line path').length === 1")
    visit.eventually("document.querySelectorAll('[data-chart=p_a] .mark-line path').length === 1")
    pressed = visit.page.locator(".legend [data-run='0']")
    assert pressed.count() == 3
    assert {pressed.nth(k).get_attribute("aria-pressed") for k in range(3)} == {"false"}


def test_a_tap_reads_the_curves_and_moves_the_slider(browser: Browser, page_of_two: str) -> None:
    with visiting(browser, page_of_two, viewport={"width": 390, "height": 844}, has_touch=True) as visit:
        chart = visit.page.locator("[data-chart=accuracy]")
        chart.scroll_into_view_if_needed()
        box = chart.locator("svg").bounding_box()
        assert box is not None
        visit.page.touchscreen.tap(box["x"] + 0.6 * box["width"], box["y"] + 0.4 * box["height"])
        visit.eventually("!document.getElementById('tip').hidden")
        radius = visit.page.locator("#probe-radius").inner_text()
        assert visit.page.locator("#tip").inner_text().startswith(f"radius {radius}\n")
        assert float(radius) > 0
        visit.page.keyboard.press("Escape")
        visit.eventually("document.getElementById('tip').hidden")
        assert visit.complaints == []


def test_however_far_a_reader_drags_the_axis_stays_within_what_there_is(visit: Visit) -> None:
    labels = (
        "[...document.querySelectorAll('[data-chart=accuracy] .role-axis-label text')].map(t => parseFloat("
        "t.textContent.replace('−', '-')))"
    )
    chart = visit.page.locator("[data-chart=accuracy]")
    chart.scroll_into_view_if_needed()
    visit.page.get_by_role("button", name="Zoom in").click()
    box = chart.locator("svg").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    visit.page.mouse.move(box["x"] + 0.2 * box["width"], y)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 0.6 * box["width"], y, steps=4)
    visit.page.mouse.move(box["x"] + 0.95 * box["width"], y, steps=4)
    visit.page.mouse.up()
    visit.eventually(f"Math.min(...{labels}) === 0")
    assert min(visit.page.evaluate(labels)) == 0


def test_histograms_have_their_numbers_behind_a_fold(visit: Visit, runs: tuple[Path, Path]) -> None:
    visit.page.get_by_text("The votes as a table").click()
    table = visit.page.locator("#table-p_a")
    assert table.is_visible()
    for row, source in zip(table.locator("tbody tr").all(), load_all(runs), strict=True):
        cells = [float(str(cell.get_attribute("value"))) for cell in row.locator("data").all()]
        assert (cells[0], cells[1], cells[-1]) == (len(source), source.p_a.min(), source.p_a.max())


@pytest.mark.parametrize("width", [1280, 390])
def test_no_word_of_a_table_or_its_title_is_cut_off(browser: Browser, page_of_two: str, width: int) -> None:
    with visiting(browser, page_of_two, viewport={"width": width, "height": 844}) as visit:
        titles = visit.page.locator(".caption:visible")
        assert titles.count() > 3
        for title in titles.all():
            box = title.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        # A table that is wider than the screen scrolls, and the names of its rows stay visible.
        table = visit.page.locator(".scroll").first
        table.evaluate("place => { place.scrollLeft = 1e6; }")
        name, around = table.locator("tbody th").first.bounding_box(), table.bounding_box()
        assert name is not None
        assert around is not None
        assert name["x"] == pytest.approx(around["x"], abs=1)


def test_the_radius_axis_is_zoomed(visit: Visit) -> None:
    last = (
        "[...document.querySelectorAll('[data-chart=accuracy] .role-axis-label text')].map(t => t.textContent).sort()"
    )
    before = visit.page.evaluate(last)
    visit.page.get_by_role("button", name="Zoom in").click()
    visit.eventually(f"JSON.stringify({last}) !== {json.dumps(json.dumps(before, separators=(',', ':')))}")
    visit.page.get_by_role("button", name="all", exact=True).click()
    visit.eventually(f"JSON.stringify({last}) === {json.dumps(json.dumps(before, separators=(',', ':')))}")


@pytest.mark.parametrize("form", ["LaTeX", "Markdown", "CSV"])
def test_tables_are_copied(visit: Visit, runs: tuple[Path, Path], form: str) -> None:
    visit.page.get_by_role("button", name=f"Copy table as {form}").first.click()
    visit.eventually("document.getElementById('said').textContent !== ''")
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    expected = build_content(ReportRequest(runs=runs, radii="0,0.1,0.25,0.5", gallery=0)).approximate.copies[form]
    assert copied.replace("\r\n", "\n") == expected
    assert visit.page.locator("#said").inner_text() == f"Table copied as {form}."


def test_the_gallery_is_sorted_and_sifted(visit: Visit) -> None:
    radii = "[...document.querySelectorAll('.gallery:not([hidden]) .tile:not([hidden])')].map(t => +t.dataset.radius)"
    shown = visit.page.evaluate(radii)
    assert shown == sorted(shown)
    assert len(shown) == 24
    visit.page.locator("#gallery-sort").select_option("-radius")
    shown = visit.page.evaluate(radii)
    assert shown == sorted(shown, reverse=True)
    visit.page.locator("#gallery-kind").select_option("wrong")
    wrong = visit.page.locator(".gallery:not([hidden]) .tile:visible")
    assert wrong.count() > 0
    assert all("but it is" in text for text in wrong.all_inner_texts())
    assert visit.page.locator("#gallery-count").inner_text() == f"{wrong.count()} shown"
    visit.page.locator("#gallery-run").select_option("1")
    assert visit.page.locator(".gallery:visible h3").inner_text() == "second"


def test_pictures_are_the_inputs(visit: Visit) -> None:
    digits = load_dataset("digits")
    tiles = visit.page.locator(".gallery:not([hidden]) .tile")
    for k in range(tiles.count()):
        tile = tiles.nth(k)
        index = int(str(tile.get_attribute("data-index")))
        plain, noisy = (_pixels(str(tile.locator("img").nth(which).get_attribute("src"))) for which in (0, 1))
        expected = np.rint(255 * digits.inputs([index])[0, 0])
        assert np.array_equal(plain, expected)
        assert not np.array_equal(noisy, plain)
        assert visit.page.evaluate(f"document.querySelectorAll('.tile img')[{2 * k}].naturalWidth") == 8


def _pixels(source: str) -> np.ndarray[Any, Any]:
    assert source.startswith("data:image/png;base64,")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))


def test_a_certificate_is_downloaded(visit: Visit, runs: tuple[Path, Path], tmp_path: Path) -> None:
    with visit.page.expect_download() as caught:
        visit.page.locator(".tile:visible a[download]").first.click()
    name = caught.value.suggested_filename
    caught.value.save_as(tmp_path / name)
    document = json.loads((tmp_path / name).read_text())
    assert name == f"certificate-{document['input']['index']:06d}.json"
    # The gallery begins with the run of the headline, here the one with the larger radii.
    assert document["run"] == json.loads((runs[1] / "manifest.json").read_text())


def test_the_class_table_follows_the_radius(visit: Visit) -> None:
    visit.page.locator("#class-radius").select_option("2")
    assert visit.page.locator(".classes-at:visible").count() == 1
    assert "certified at radius 0.25" in visit.page.locator(".classes-at:visible .caption").inner_text()


def test_colours_are_switched(visit: Visit) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    assert visit.page.evaluate(colour) == "rgb(255, 255, 255)"
    visit.page.locator("#theme").click()
    visit.page.locator("#theme").click()
    assert visit.page.evaluate(colour) == "rgb(18, 22, 28)"


def test_the_first_stop_of_the_keyboard_skips_to_the_results(visit: Visit) -> None:
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.className") == "skip"
    visit.page.keyboard.press("Enter")
    assert visit.page.evaluate("document.activeElement.id") == "main"


def test_it_prints_everything_on_white(visit: Visit) -> None:
    visit.page.locator("#theme").click()
    visit.page.locator("#theme").click()
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert visit.page.locator("#table-bounded").is_visible()
    assert not visit.page.locator("nav").is_visible()
    assert len(visit.page.pdf(format="A4")) > 20_000


def test_without_scripts_the_tables_and_pictures_are_there(browser: Browser, page_of_two: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_of_two)
    assert page.locator("#table-certified").is_visible()
    assert page.locator("#table-bounded").is_visible()
    assert page.locator(".tile img").first.is_visible()
    assert page.get_by_text("The charts need JavaScript").is_visible()
    context.close()


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    run = hostile_run(tmp_path)
    same = str(tmp_path / "data.npz")
    other = made_run(tmp_path / "</script><script>alert(9)<", load_dataset(same), source=same, inputs=40, grid=256)
    path = tmp_path / "report.html"
    write_report(ReportRequest(runs=(run, other), title="</title><script>alert(8)</script>"), path)
    with visiting(browser, path.as_uri()) as visit:
        visit.page.locator("[data-chart=classes]").scroll_into_view_if_needed()
        box = visit.page.locator("[data-chart=classes] svg").bounding_box()
        assert box is not None
        for step in range(20):
            visit.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * step / 20)
        for button in visit.page.locator(".legend button").all():
            button.click()
        assert visit.complaints == []
        assert asked_of_the_network(visit) == []
        assert visit.page.evaluate("document.scripts.length") == 3
        assert visit.page.evaluate("document.querySelectorAll('img:not([src^=\"data:image/png\"])').length") == 0
        labels = visit.page.evaluate(
            "[...document.querySelectorAll('[data-chart=classes] .role-axis-label text')].map(t => t.textContent)"
        )
        assert any(text.startswith("<script>alert") for text in labels)
        assert HOSTILE[0] in visit.page.locator("#classes").inner_text()
        assert visit.page.title().startswith("</title><script>alert(8)</script>")


def test_the_policy_lets_nothing_in_and_nothing_out(browser: Browser, page_of_two: str) -> None:
    """What a bug in the templates might let through."""
    markup = (
        "<img src='http://127.0.0.1:9/a' onerror='window.ran = 1'><svg onload='window.ran = 2'></svg>"
        "<iframe src='http://127.0.0.1:9/b' srcdoc='<script>parent.ran = 3</script>'></iframe>"
        "<link rel=stylesheet href='http://127.0.0.1:9/c'><link rel=prefetch href='http://127.0.0.1:9/d'>"
        "<object data='http://127.0.0.1:9/e'></object><base href='http://127.0.0.1:9/'>"
        "<video src='http://127.0.0.1:9/f'></video><a id=bait href='javascript:window.ran=4'>x</a>"
        "<form id=form action='http://127.0.0.1:9/g'></form>"
        "<style>body { background: url(http://127.0.0.1:9/h) }</style>"
    )
    with visiting(browser, page_of_two) as visit:
        visit.page.evaluate("markup => document.body.insertAdjacentHTML('beforeend', markup)", markup)
        visit.page.evaluate(
            "() => { const made = document.createElement('script'); made.textContent = 'window.ran = 5';"
            " document.body.append(made); document.getElementById('bait').click();"
            " document.getElementById('form').submit(); new Image().src = 'http://127.0.0.1:9/i';"
            " fetch('http://127.0.0.1:9/j').catch(() => {}); navigator.sendBeacon('http://127.0.0.1:9/k');"
            " try { new WebSocket('ws://127.0.0.1:9/l'); } catch {}"
            " setTimeout('window.ran = 6', 0); }"
        )
        visit.page.wait_for_timeout(500)
        assert visit.page.evaluate("window.ran") is None
        assert visit.page.url == page_of_two
        # Playwright reports requests; what the policy refused is also on the console.
        refused = "\n".join(visit.complaints)
        sent = [url for url in asked_of_the_network(visit) if url not in refused]
        assert sent == []


def test_ten_thousand_inputs_stay_fluid(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    draw = np.random.default_rng(0)
    np.savez(file, x=draw.integers(0, 256, size=(10_000, 1, 8, 8), dtype=np.uint8), y=draw.integers(0, 10, size=10_000))
    dataset = load_dataset(str(file))
    both = [
        made_run(tmp_path / name, dataset, source=str(file), inputs=10_000, seed=k, n=100_000, grid=256)
        for k, name in enumerate("ab")
    ]
    path = tmp_path / "report.html"
    assert write_report(ReportRequest(runs=tuple(both)), path) < 5_000_000
    with visiting(browser, path.as_uri()) as visit:
        # The number of drawn elements does not grow with the inputs (benchmarks/report_page.py measures the time).
        assert visit.page.evaluate("document.querySelectorAll('svg *').length") < 6_000
        assert visit.page.evaluate("document.querySelectorAll('*').length") < 9_000
        button = visit.page.locator(".legend button").first
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        assert visit.complaints == []


def test_a_run_in_progress_is_followed(browser: Browser, tmp_path: Path) -> None:
    digits = load_dataset("digits")
    whole = made_run(tmp_path / "whole", digits, source="digits", inputs=40)
    with RunStore.open(whole) as store:
        points, manifest = store.points(), store.manifest
    growing = tmp_path / "growing"
    with (
        RunStore.create(growing, manifest) as store,
        served(server_for(ReportRequest(runs=(growing,)), port=0)) as server,
        visiting(browser, f"http://127.0.0.1:{server.server_port}/") as visit,
    ):
        assert "Nothing to show yet" in visit.page.locator("main").inner_text()
        store.add(points[:10])
        visit.eventually("document.body.innerText.includes('unfinished: 10 of 40 inputs')")
        store.add(points[10:])
        visit.eventually(
            "document.querySelectorAll('.chart').length > 0 && !document.body.innerText.includes('unfinished')"
        )
        assert visit.complaints == []
        own = f"http://127.0.0.1:{server.server_port}/"
        assert all(url.startswith((own, "data:")) for url in visit.requests)
        assert visit.page.locator(".following").inner_text() == "live: follows the run"
        server.shutdown()
        server.server_close()
        visit.eventually("document.querySelector('.following').textContent.startsWith('no longer followed')")


def test_the_reader_stays_where_he_was_when_the_page_is_made_anew(
    browser: Browser, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    both = [Path(shutil.copytree(run, tmp_path / run.name)) for run in runs]
    with (
        served(server_for(ReportRequest(runs=tuple(both)), port=0)) as server,
        visiting(browser, f"http://127.0.0.1:{server.server_port}/") as visit,
    ):
        page = visit.page
        page.get_by_role("button", name="second").first.click()
        page.get_by_role("radio", name="high probability").first.check()
        page.locator("#gallery-sort").select_option("-radius")
        page.locator("#gallery-run").select_option("1")
        page.locator("#made details").first.evaluate("fold => { fold.open = true; }")
        page.evaluate("scrollTo(0, 1500); window.before = true;")
        os.utime(both[0] / "results.sqlite", (0, 0))
        visit.eventually("!window.before && scrollY === 1500")
        assert set(page.locator(".legend button[aria-pressed=false]").all_inner_texts()) == {"second"}
        assert page.locator("input[value=bounded]:checked").count() == 2
        assert page.locator("#gallery-sort").input_value() == "-radius"
        assert page.locator(".gallery:visible h3").inner_text() == "second"
        assert page.locator("#made details[open]").count() == 1
        assert visit.complaints == []


@pytest.mark.network
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("alone", [True, False])
def test_axe_finds_nothing(browser: Browser, page_of_two: str, tmp_path: Path, scheme: Any, alone: bool) -> None:
    address = _page_of_the_plane(tmp_path) if alone else page_of_two
    if shutil.which("npm") is None:
        pytest.skip("npm, which fetches the accessibility checker, is not on this machine")
    done = subprocess.run(["npm", "pack", "--silent", "axe-core@4"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.strip().splitlines()[-1]) as packed:
        member = packed.extractfile("package/axe.min.js")
        assert member is not None
        axe = member.read().decode()
    # The policy of the page forbids other scripts, so it is bypassed for axe-core.
    with visiting(browser, address, bypass_csp=True, color_scheme=scheme) as visit:
        visit.page.add_script_tag(content=axe)
        visit.page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        found = visit.page.evaluate("axe.run(document)")
        told = [f"{problem['id']}: {problem['nodes'][0]['html'][:200]}" for problem in found["violations"]]
        assert told == []
        assert len(found["passes"]) > 30


def _page_of_the_plane(folder: Path) -> str:
    run = made_run(folder / "run", load_dataset("cone"), source="cone", inputs=60, grid=None)
    write_report(ReportRequest(runs=(run,)), folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_chart_is_on_the_first_screen(browser: Browser, page_of_two: str, width: int, height: int) -> None:
    with visiting(browser, page_of_two, viewport={"width": width, "height": height}) as visit:
        box = visit.page.locator('[data-chart="accuracy"]').bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= height
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1280, 390])
def test_numbers_stay_inside_their_cards(browser: Browser, page_of_two: str, width: int) -> None:
    with visiting(browser, page_of_two, viewport={"width": width, "height": 844}) as visit:
        too_wide = visit.page.evaluate(
            "[...document.querySelectorAll('.run dd, .run dt, .run h2')]"
            ".filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"
        )
        assert too_wide == []

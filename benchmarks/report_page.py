"""How large a report is, how long it takes to open, and how long a reader waits for what he does.

    python benchmarks/report_page.py                 # 2 and 6 runs of 10000 inputs with made-up votes
    python benchmarks/report_page.py report.html     # a page that is there

Needs Chromium and Playwright. Times are from the event to the frame after it, in milliseconds: median and largest.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from chromium_browser import running_browser, visiting
from report_runs import made_run
from smoothcert.data import load_dataset
from smoothcert.report.content import ReportRequest
from smoothcert.report.page import write_report

_INPUTS = 10_000
_MEASURE = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(0);
  }));
  const times = async (count, act) => {
    const found = [];
    for (let k = 0; k < count; k += 1) {
      await frame();
      const began = performance.now();
      act(k);
      await frame();
      found.push(performance.now() - began);
    }
    found.sort((a, b) => a - b);
    return [found[count >> 1], found[count - 1]];
  };
  const place = document.querySelector("[data-chart=accuracy]");
  place.scrollIntoView({ block: "center", behavior: "instant" });
  const box = place.querySelector("svg").getBoundingClientRect();
  const click = (selector) => document.querySelector(selector).click();
  const point = (k) => {
    const clientX = box.left + 80 + (box.width - 120) * k / 60, clientY = box.top + 100;
    const target = document.elementFromPoint(clientX, clientY) || place;
    target.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true, pointerType: "mouse" }));
  };
  const sort = (k) => {
    const select = document.querySelector("#gallery-sort");
    select.selectedIndex = k % select.options.length;
    select.dispatchEvent(new Event("change"));
  };
  const legend = document.querySelector(".legend button");
  return {
    "point at the curves": await times(60, point),
    ...(legend ? { "switch a run": await times(6, () => legend.click()) } : {}),
    "high probability": await times(6, (k) => click(`.switch input[value=${k % 2 ? "counted" : "bounded"}]`)),
    "zoom": await times(6, (k) => click(k % 2 ? "[data-zoom=out]" : "[data-zoom=in]")),
    "sort the gallery": await times(4, sort),
  };
}"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name, running_browser() as browser:
        folder = Path(name)
        pages = [Path(path) for path in sys.argv[1:]] or [_made(folder, runs) for runs in (2, 6)]
        for page in pages:
            with visiting(browser, page.resolve().as_uri()) as visit:
                print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB, all charts drawn after {visit.seconds:.1f} s")
                for what, (median, most) in visit.page.evaluate(_MEASURE).items():
                    print(f"  {what}: {median:.0f} ms, at most {most:.0f} ms")


def _made(folder: Path, runs: int) -> Path:
    file = folder / f"data-{runs}.npz"
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 256, size=(_INPUTS, 1, 28, 28), dtype=np.uint8)
    np.savez(file, x=pictures, y=draw.integers(0, 10, size=_INPUTS))
    dataset = load_dataset(str(file))
    made = [
        made_run(
            folder / f"{runs}-{k}", dataset, source=str(file), inputs=_INPUTS, seed=k, n=100_000, grid=256, sigma=0.25
        )
        for k in range(runs)
    ]
    page = folder / f"{runs} runs of {_INPUTS} inputs.html"
    write_report(ReportRequest(runs=tuple(made)), page)
    return page


if __name__ == "__main__":
    main()

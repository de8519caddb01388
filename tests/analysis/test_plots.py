"""Figures are written completely and deterministically, and show the numbers."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from results_strategies import simple_run
from smoothcert.analysis.metrics import certified_accuracy
from smoothcert.analysis.plots import COLOURS, accuracy_curve, draw
from smoothcert.analysis.table_choices import BoundChoice, PlotKind
from smoothcert.errors import InputError, MissingExtraError, RunError
from smoothcert.records import Norm
from smoothcert.runs.result_columns import ResultColumns

pytest.importorskip("matplotlib")

SIGNATURES = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


def several(count: int) -> list[ResultColumns]:
    rng = np.random.default_rng(7)
    made = []
    for number in range(count):
        run = simple_run(right=30, wrong=5)
        made.append(
            replace(
                run,
                name=f"run_{number}",
                radius=rng.uniform(0.01, 1 + number, 35),
                p_a=rng.uniform(0, 1, 35),
                label=run.label + np.arange(35) % 2,
                prediction=run.prediction + np.arange(35) % 2,
            )
        )
    return made


@pytest.mark.parametrize("kind", list(PlotKind))
@pytest.mark.parametrize("suffix", list(SIGNATURES))
def test_every_kind_in_every_format_twice_the_same(tmp_path: Path, kind: PlotKind, suffix: str) -> None:
    bound = BoundChoice() if kind in (PlotKind.ACCURACY, PlotKind.ENVELOPE) else None
    files = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for file in files:
        draw(several(3), file, kind=kind, title="A title", bound=bound)
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(SIGNATURES[suffix])
    assert first == second
    assert sorted(tmp_path.iterdir()) == files


def test_svg_names_every_run_in_its_own_look(tmp_path: Path) -> None:
    draw(several(2), tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    ElementTree.fromstring(text)
    assert all(colour.lower() in text for colour in COLOURS[:2])
    assert "<!-- run_0 -->" in text
    assert "<!-- run_1 -->" in text


def test_curve_is_exact_at_and_between_its_steps() -> None:
    (run,) = several(1)
    curve = accuracy_curve(run)
    middles = (curve.x[1:] + curve.x[:-1]) / 2
    assert certified_accuracy(run, curve.x).tolist() == curve.y.tolist()
    assert certified_accuracy(run, middles).tolist() == curve.y[1:].tolist()
    assert certified_accuracy(run, [np.nextafter(curve.x[-1], np.inf)]).tolist() == [0.0]


def test_an_existing_figure_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "figure.PNG"
    file.write_text("old")
    draw(several(1), file)
    assert file.read_bytes().startswith(SIGNATURES[".png"])


@pytest.mark.parametrize("name", ["figure", "figure.jpg"])
def test_unknown_suffix(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"expected \.png, \.svg, \.pdf"):
        draw(several(1), tmp_path / name)


def test_what_cannot_be_drawn_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "figure.png"
    (run,) = several(1)
    many = replace(run, label=np.arange(35))
    mixed = [run, replace(run, norm=Norm.L1)]
    with pytest.raises(InputError, match="no run"):
        draw([], file)
    with pytest.raises(InputError, match="no lower curve"):
        draw([run], file, kind=PlotKind.CLASSES, bound=BoundChoice())
    with pytest.raises(InputError, match="too many bars"):
        draw([many] * 4, file, kind=PlotKind.CLASSES)
    with pytest.raises(RunError, match="different norms"):
        draw(mixed, file)
    with pytest.raises(RunError, match="has no p_A"):
        draw([simple_run(right=3)], file, kind=PlotKind.P_A)
    with pytest.raises(RunError, match="cannot be written"):
        draw([run], tmp_path / "absent" / "figure.png")
    assert list(tmp_path.iterdir()) == []


def test_missing_matplotlib_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"drawing figures needs matplotlib: pip install 'smoothcert\[plot\]'"):
        draw(several(1), tmp_path / "figure.png")


def test_pyplot_is_not_imported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("idx\tlabel\tpredict\tradius\n0\t1\t1\t0.5\n")
    code = (
        "import sys; from pathlib import Path; from smoothcert.analysis.plots import draw;"
        "from smoothcert.runs.tsv import read_log; log, figure = map(Path, sys.argv[1:]);"
        "draw([read_log(log)], figure);"
        "found = {'matplotlib.pyplot', 'scipy', 'torch', 'pandas'} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code, str(log), str(tmp_path / "figure.png")], check=True, timeout=60)

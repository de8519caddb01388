"""Formulas, links and notebooks as the site shows them."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from docstring_lists import make_lists
from formulas import FormulaError, make_mathml, render_formulas
from notebook_execution import NotebookError, execute_notebooks
from notebook_pages import make_page
from page_links import rewrite_links


def test_formulas_become_mathml() -> None:
    page, errors = render_formulas(r'<p><span class="arithmatex">\(a \lt b\)</span></p>')
    assert page.startswith("<p><math")
    assert not errors


@pytest.mark.parametrize("latex", [r"\nosuchcommand", r"a & b"])
def test_what_cannot_be_converted_is_an_error(latex: str) -> None:
    with pytest.raises(FormulaError):
        make_mathml(latex, display=False)


def test_links_lead_to_pages_and_other_files_lose_theirs() -> None:
    text = "[a](../CONTRIBUTING.md#rules) [b](how-to/train.md) [c](../src/x.py) ![d](images/d.png)"
    expected = "[a](contributing.md#rules) [b](how-to/train.md) c ![d](images/d.png)"
    assert rewrite_links(text, source="docs/index.md", page="index.md") == expected
    assert (
        rewrite_links("[a](docs/how-to/train.md)", source="CHANGELOG.md", page="changelog.md") == "[a](how-to/train.md)"
    )


def write_notebook(path: Path, *code: str) -> Path:
    cells = [nbformat.v4.new_markdown_cell("# Title"), *map(nbformat.v4.new_code_cell, code)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_outputs_are_shown(tmp_path: Path) -> None:
    outputs = [
        nbformat.v4.new_output("stream", text="10 %\r100 %\n\x1b[31mred\x1b[0m\n"),
        nbformat.v4.new_output("display_data", data={"image/png": "AAAA"}),
        nbformat.v4.new_output("display_data", data={"text/html": "<b>x</b>\n\ny", "text/plain": "x"}),
    ]
    path = write_notebook(tmp_path / "a.ipynb", "print(1)")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].outputs = outputs
    nbformat.write(notebook, path)
    page = make_page(path, "a")
    assert "{ .python }\nprint(1)\n" in page.markdown
    assert "100 %\nred\n" in page.markdown
    assert "10 %\r" not in page.markdown
    assert page.figures == {"figures/a-2-2.png": b"\0\0\0"}
    assert '<div class="notebook-html"><b>x</b>\ny</div>' in page.markdown
    assert page.has_table


@pytest.mark.slow
def test_a_notebook_is_executed_once_and_its_error_is_shown(tmp_path: Path) -> None:
    good, cache = write_notebook(tmp_path / "good.ipynb", "print(6 * 7)"), tmp_path / "cache"
    executed = execute_notebooks([good], cache=cache)[good]
    assert "\n42\n" in make_page(executed, "good").markdown
    written = executed.stat().st_mtime_ns
    assert execute_notebooks([good], cache=cache)[good].stat().st_mtime_ns == written
    bad = write_notebook(tmp_path / "bad.ipynb", "1 / 0")
    with pytest.raises(NotebookError, match=r"(?s)bad\.ipynb failed.*ZeroDivisionError"):
        execute_notebooks([bad], cache=cache)
    assert list(cache.glob("bad*")) == []


def test_parameters_of_a_docstring_become_a_list() -> None:
    text = "What it is.\n\nmodel: a module,\n    or a file.\nn, n0: numbers."
    assert make_lists(text) == "What it is.\n\n- `model`: a module, or a file.\n- `n, n0`: numbers."
    assert make_lists("Text that\nruns on: here.") == "Text that\nruns on: here."

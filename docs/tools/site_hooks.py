"""What mkdocs calls while it builds the site: notebooks, generated parts of pages, formulas, links."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

# mkdocs loads this file by its path; the modules beside it are found in their folder.
sys.path.insert(0, str(Path(__file__).parent))

from code_tables import describe_exit_codes, describe_schema
from command_reference import describe_commands
from formulas import render_formulas
from notebook_execution import NotebookError, execute_notebooks
from notebook_pages import make_page
from page_links import INCLUDED, rewrite_links

_REPOSITORY = Path(__file__).resolve().parents[2]
_DOCS = _REPOSITORY / "docs"
_MARK = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)
_LOG = logging.getLogger("mkdocs.hooks.smoothcert")


class NotebookFile(File):
    """A notebook that is a page of the site; other pages link to it by the name of the notebook."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that are not Markdown in docs/: notebooks, and files of the repository."""
    for name, page in INCLUDED.items():
        files.append(File.generated(config, page, content=(_REPOSITORY / name).read_text()))
    notebooks = [file for file in files if file.src_uri.endswith(".ipynb")]
    try:
        executed = execute_notebooks([_DOCS / file.src_uri for file in notebooks])
    except NotebookError as error:
        raise PluginError(str(error)) from error
    for file in notebooks:
        _add_notebook(files, file, executed[_DOCS / file.src_uri], config)
    return files


def _add_notebook(files: Files, file: File, executed: Path, config: Any) -> None:
    name = Path(file.src_uri).stem
    page = make_page(executed, name)
    if not (page.figures and page.has_table):
        _LOG.warning("%s: a tutorial shows at least one figure and one table", file.src_uri)
    files.remove(file)
    files.append(NotebookFile.generated(config, file.src_uri, content=page.markdown))
    folder = file.src_uri.rpartition("/")[0]
    files.append(File.generated(config, f"{folder}/download/{name}.ipynb", content=(_DOCS / file.src_uri).read_bytes()))
    for figure, content in page.figures.items():
        files.append(File.generated(config, f"{folder}/{figure}", content=content))


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Fill in the generated parts, and lead links between files of the repository to pages."""
    uri = page.file.src_uri
    source = {name: path for path, name in INCLUDED.items()}.get(uri, f"docs/{uri}")
    return rewrite_links(_MARK.sub(_generate, markdown), source=source, page=uri)


def _generate(mark: re.Match[str]) -> str:
    match mark[1]:
        case "commands":
            from smoothcert.cli.main import app

            return describe_commands(app, list_example_pages())
        case "exit-codes":
            return describe_exit_codes()
        case "kept-results":
            # mkdocs restores the path after it has loaded this file; the experiments are beside docs/.
            if str(_REPOSITORY) not in sys.path:
                sys.path.append(str(_REPOSITORY))
            from experiments.reproduction.kept_tables import all_tables, load_kept
            from smoothcert.analysis.table_choices import TableFormat

            return all_tables(load_kept(), form=TableFormat.MARKDOWN)
        case "certificate-schema":
            return describe_schema(_DOCS / "reference" / "certificate.schema.json")
        case other:
            raise PluginError(f"no part of the reference is called {other!r}")


def list_example_pages() -> list[Path]:
    """Where the reference of the commands takes its examples from, the most useful pages first."""
    first = [_DOCS / "how-to" / "commands-by-task.md", _REPOSITORY / "README.md"]
    return [*first, *sorted({*_DOCS.rglob("*.md")} - {*first})]


def on_page_content(html: str, *, page: Any, config: Any, files: Files) -> str:
    """Formulas become MathML; one that cannot be converted is a warning, which fails a strict build."""
    rendered, errors = render_formulas(html)
    for error in errors:
        _LOG.warning("%s: %s", page.file.src_uri, error)
    return rendered

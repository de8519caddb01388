"""The content as one self-contained HTML file, which needs no network, no other file and no server."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.errors import MissingExtraError, RunError
from smoothcert.files import write_atomically
from smoothcert.report.content import Content, ReportRequest, build_content
from smoothcert.report.javascript import chart_library
from smoothcert.report.plain_text import clip, encode_for_script, escape_invisible

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_BEGINNING = b"<!doctype html>"
_LONGEST_TEXT = 200_000
"""Limit for every text on the page, because a manifest from outside may have megabytes."""


def write_report(request: ReportRequest, path: Path) -> int:
    """Write the page and return its size in bytes. An older page is replaced; any other file is refused."""
    _check_replaceable(path)
    _environment()  # a missing package is reported before the work starts
    page = render_page(build_content(request))
    write_atomically(path, page, overwrite=True)
    return len(page)


def _check_replaceable(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_file():
        raise RunError(f"{path} is not a file: give the name of a page, such as report.html")
    try:
        with path.open("rb") as stream:
            beginning = stream.read(len(_BEGINNING))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    if beginning and beginning.lower() != _BEGINNING:
        raise RunError(f"{path} exists and is not an HTML page: choose another name for the report")


def render_page(shown: Content, *, follow: str | None = None) -> bytes:
    """The page in UTF-8; the same content gives the same bytes.

    follow: the state of a run in progress, for a served page: it polls the state and reloads when that has changed.
    """
    library = chart_library()
    data = {
        "charts": shown.charts,
        "probes": shown.probes,
        "runs": [run.name for run in shown.runs],
        "copies": {table.name: table.copies for table in _list_tables(shown)},
        "follow": follow,
    }
    return _render("page.html", data, libraries=(library,), shown=shown, library=_markup(library))


def render_waiting(reason: str, *, follow: str) -> bytes:
    """A page that states that there is nothing to show yet, and polls the state of the run."""
    data = {"charts": {}, "probes": [], "runs": [], "copies": {}, "follow": follow}
    return _render("waiting.html", data, reason=reason)


def _render(template: str, data: dict[str, Any], *, libraries: tuple[str, ...] = (), **parts: Any) -> bytes:
    """A template with the script, style and data of the page. libraries: further scripts that the template contains."""
    script, style = _read("page.js"), _read("page.css")
    page = _environment().get_template(template)
    text = page.render(
        data=_markup(encode_for_script(data)),
        script=_markup(script),
        style=_markup(style),
        policy=_policy(scripts=(*libraries, script), style=style, served=data["follow"] is not None),
        **parts,
    )
    return text.encode()


def _list_tables(shown: Content) -> list[Any]:
    tables = [shown.approximate, shown.bounded, shown.class_radii, shown.costs]
    tables += [one.table for one in shown.classes] + [table for pair in shown.pairs for table in pair.tables]
    return [table for table in tables if table is not None]


def _policy(*, scripts: tuple[str, ...], style: str, served: bool) -> str:
    """The Content-Security-Policy: run exactly these scripts, show embedded pictures, and nothing else."""
    allowed = {
        "default-src": "'none'",
        "script-src": " ".join(_digest(script) for script in scripts),
        "style-src": _digest(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **({"connect-src": "'self'"} if served else {}),
    }
    return "; ".join(f"{what} {sources}" for what, sources in allowed.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _markup(text: str) -> Any:
    """Trusted text, which is not escaped."""
    from markupsafe import Markup

    return Markup(text)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("Jinja2", "report", "the report") from error
    from markupsafe import Markup

    def clean(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Markup):
            return escape_invisible(clip(value, most=_LONGEST_TEXT))
        return value

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=clean,
    )
    # A number in full precision, as in JSON.
    environment.filters["full"] = lambda value: repr(value) if isinstance(value, float) else str(value)
    return environment

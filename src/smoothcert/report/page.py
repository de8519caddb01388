"""Content laid out as one HTML file that needs nothing else: no network, no other file, no server."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.errors import MissingExtraError, RunError
from smoothcert.files import write_atomically
from smoothcert.report.content import Content, Request, content
from smoothcert.report.javascript import chart_library
from smoothcert.report.plain_text import clipped, script_json, showable

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_BEGINNING = b"<!doctype html>"
_LONGEST_TEXT = 200_000
"""Of anything on the page; a manifest from outside may have megabytes."""


def write_report(request: Request, path: Path) -> int:
    """Write the page, replacing an older one but nothing else; its size in bytes."""
    _refuse_to_destroy(path)
    _environment()  # what is not installed is said before anything takes time
    page = render_page(content(request))
    write_atomically(path, page, overwrite=True)
    return len(page)


def _refuse_to_destroy(path: Path) -> None:
    """An older page is replaced; a log, a run's results or a device that was named by mistake is not."""
    if not path.exists():
        return
    if not path.is_file():
        raise RunError(f"{path} is no file: give the name of a page, such as report.html")
    try:
        with path.open("rb") as stream:
            beginning = stream.read(len(_BEGINNING))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    if beginning and beginning.lower() != _BEGINNING:
        raise RunError(f"{path} exists and is no page: choose another name for the report")


def render_page(shown: Content, *, follow: str | None = None) -> bytes:
    """The page in UTF-8; the same content gives the same bytes.

    follow: the state of a run in progress, for a page that is served: it asks for the state again and again, and loads
    itself anew when that has changed.
    """
    library = chart_library()
    data = {
        "charts": shown.charts,
        "probes": shown.probes,
        "runs": [run.name for run in shown.runs],
        "copies": {table.name: table.copies for table in _tables(shown)},
        "follow": follow,
    }
    return _render("page.html", data, libraries=(library,), shown=shown, library=_markup(library))


def render_waiting(reason: str, *, follow: str) -> bytes:
    """A page that says that there is nothing to show yet, and follows the run like any other."""
    data = {"charts": {}, "probes": [], "runs": [], "copies": {}, "follow": follow}
    return _render("waiting.html", data, reason=reason)


def _render(template: str, data: dict[str, Any], *, libraries: tuple[str, ...] = (), **parts: Any) -> bytes:
    """A template with our script, which finds the data in the page, and our style. libraries: other scripts it has."""
    script, style = _read("page.js"), _read("page.css")
    page = (
        _environment()
        .get_template(template)
        .render(
            data=_markup(script_json(data)),
            script=_markup(script),
            style=_markup(style),
            policy=_policy(scripts=(*libraries, script), style=style, served=data["follow"] is not None),
            **parts,
        )
    )
    return page.encode()


def _tables(shown: Content) -> list[Any]:
    tables = [shown.approximate, shown.bounded, shown.class_radii, shown.costs]
    tables += [one.table for one in shown.classes] + [table for pair in shown.pairs for table in pair.tables]
    return [table for table in tables if table is not None]


def _policy(*, scripts: tuple[str, ...], style: str, served: bool) -> str:
    """What a browser may do for this page: run exactly these scripts, show pictures it carries, and nothing else."""
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
    """Text of our own that is to stand in the page as it is."""
    from markupsafe import Markup

    return Markup(text)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("Jinja2", "report", "the report") from error
    from markupsafe import Markup

    def cleaned(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Markup):
            return showable(clipped(value, most=_LONGEST_TEXT))
        return value

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=cleaned,
    )
    environment.filters["full"] = _full
    return environment


def _full(value: Any) -> str:
    """A number in full precision, as JSON has it."""
    return repr(value) if isinstance(value, float) else str(value)

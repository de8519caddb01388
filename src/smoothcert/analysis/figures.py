"""How every figure is created and written.

matplotlib's Figure is used directly, because pyplot starts a window system and takes half a second. The same drawing
gives the same bytes.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.errors import InputError, MissingExtraError
from smoothcert.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, for every kind of colour vision, without yellow, which is too faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
SUFFIXES = (".png", ".svg", ".pdf")
_DOTS_PER_INCH = 160
# Without these a file contains the date and random identifiers.
_METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
_STYLE: Any = {
    "svg.hashsalt": "smoothcert",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.facecolor": "#ffffff",
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "pdf.fonttype": 42,
}


def check_figure_path(path: Path) -> None:
    """Refuse a file name whose suffix is not a supported format."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path.name} ends in {path.suffix or 'nothing'}; expected {', '.join(SUFFIXES)}")


@contextlib.contextmanager
def open_figure(path: Path, *, size: tuple[float, float] = (6.4, 4.2)) -> Iterator[Figure]:
    """A figure to draw in. On exit it is written to `path`, replacing an existing file. size: in inches."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing figures") from error
    suffix, content = path.suffix.lower(), io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size)
        yield figure
        figure.savefig(content, format=suffix[1:], dpi=_DOTS_PER_INCH, metadata=_METADATA[suffix])
    write_atomically(path, content.getvalue(), overwrite=True)


def skip_matplotlib_docstrings() -> None:
    """Keep matplotlib from generating docstrings when it is imported, which takes a third of the import time.

    For a process that draws one figure and exits.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from matplotlib.artist import Artist

        Artist._update_set_signature_and_docstring = classmethod(lambda cls: None)  # type: ignore[attr-defined]

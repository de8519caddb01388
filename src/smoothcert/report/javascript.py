"""The JavaScript that draws the charts: Vega, Vega-Lite and Vega-Embed, as vl-convert-python bundles them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
from pathlib import Path

from smoothcert.errors import MissingExtraError
from smoothcert.files import write_whole

_PACKAGE = "vl-convert-python"
_ENTRY = "window.vegaEmbed = vegaEmbed;"


def chart_library() -> str:
    """The bundle, about 900 kB. It is put together once for each version of the package, and kept in the user's cache.

    Putting it together takes seconds; everything it is made of lies in the package, and nothing is fetched.
    """
    try:
        version = importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtraError(_PACKAGE, "report", "the report") from error
    kept = _kept_at(version)
    bundle = _read_kept(kept)
    if bundle is None:
        bundle = _bundle()
        # A cache that cannot be written costs time and nothing else.
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, _digest(bundle.encode()) + b"\n" + bundle.encode())
    return bundle


def _read_kept(file: Path) -> str | None:
    """The bundle that was kept, if it is there and whole: every page made from half of one would be broken."""
    try:
        digest, _, content = file.read_bytes().partition(b"\n")
        return content.decode() if digest == _digest(content) else None
    except (OSError, UnicodeDecodeError):
        return None


def _digest(content: bytes) -> bytes:
    """Of the bundle and of what is done to it here: another version of this file makes its own."""
    return hashlib.sha256(_ENTRY.encode() + content).hexdigest().encode()


def _bundle() -> str:
    try:
        import vl_convert
    except ImportError as error:
        raise MissingExtraError(_PACKAGE, "report", "the report") from error
    bundle = str(vl_convert.javascript_bundle(_ENTRY))
    # It ends up in a <script>, which the text "</script" would end; in JavaScript "<\/" is the same.
    return bundle.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _kept_at(version: str) -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("smoothcert") / "report" / f"charts-{version}.js"

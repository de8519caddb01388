"""The JavaScript that draws the charts: Vega, Vega-Lite and Vega-Embed, bundled by vl-convert-python."""

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
    """The bundle, about 900 kB. It is built once for each version of the package and kept in the user's cache.

    Building it takes seconds and needs no network.
    """
    try:
        version = importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtraError(_PACKAGE, "report", "the report") from error
    file = _cache_file(version)
    bundle = _read_cache(file)
    if bundle is None:
        bundle = _build_bundle()
        # Without a writable cache the bundle is built again each time.
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, _digest(bundle.encode()) + b"\n" + bundle.encode())
    return bundle


def _read_cache(file: Path) -> str | None:
    """The cached bundle, if it exists and is complete."""
    try:
        digest, _, content = file.read_bytes().partition(b"\n")
        return content.decode() if digest == _digest(content) else None
    except (OSError, UnicodeDecodeError):
        return None


def _digest(content: bytes) -> bytes:
    """Digest of the bundle and of its entry point, so that a changed entry point does not use an old cache."""
    return hashlib.sha256(_ENTRY.encode() + content).hexdigest().encode()


def _build_bundle() -> str:
    try:
        import vl_convert
    except ImportError as error:
        raise MissingExtraError(_PACKAGE, "report", "the report") from error
    bundle = str(vl_convert.javascript_bundle(_ENTRY))
    # Inside a <script> element "</script" would end it; in JavaScript "<\/" means the same as "</".
    return bundle.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _cache_file(version: str) -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("smoothcert") / "report" / f"charts-{version}.js"

"""How commands show their help."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from smoothcert.cli import options as o


class Verb(TyperCommand):
    """A command whose help is wrapped to the terminal, not to the lines of its docstring, with its panels in order."""

    def __init__(self, name: str | None, *, help: str | None = None, params: Any = None, **settings: Any) -> None:
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in (help or "").split("\n\n"))
        super().__init__(name, help=text, params=sorted(params or (), key=_place_of_panel), **settings)

    def get_help_option(self, ctx: Any) -> Any:
        """--help, in the panel of --json if there is one: else it would make a panel of its own, above all others."""
        option: Any = super().get_help_option(ctx)
        if any(getattr(one, "rich_help_panel", None) == o.OUTPUT for one in self.params):
            option.rich_help_panel = o.OUTPUT
        return option


def _place_of_panel(parameter: Any) -> int:
    return o.PANELS.index(parameter.rich_help_panel)

"""Formulas of the pages as MathML, which browsers show without a script or a font from elsewhere."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

_MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
_ALIGNED = re.compile(r"\\(begin|end)\{aligned\}")
_ROW = re.compile(r"<(?P<tag>mi|mo|mtext)>(?P<text>\\[A-Za-z]+|&amp;|&)</(?P=tag)>")


class FormulaError(ValueError):
    """A formula has something that cannot be converted."""


def make_mathml(latex: str, *, display: bool) -> str:
    """One formula as MathML. Raises FormulaError for commands that the converter does not know."""
    # The converter knows align* and not aligned; inside $$…$$ both mean the same.
    text = _ALIGNED.sub(r"\\\1{align*}", html.unescape(latex).strip())
    try:
        mathml: str = convert(text, display="block" if display else "inline")
    except Exception as error:  # the converter has no common base of its errors
        raise FormulaError(f"the formula {latex!r} cannot be converted: {type(error).__name__}") from error
    unknown = _ROW.search(mathml)
    if unknown:
        raise FormulaError(f"the formula {latex!r} has {unknown['text']!r}, which the converter does not know")
    return mathml


def render_formulas(page: str) -> tuple[str, list[str]]:
    """HTML with the formulas that arithmatex marked as MathML, and the errors found."""
    errors: list[str] = []

    def render(match: re.Match[str]) -> str:
        display = match["open"] == "["
        try:
            mathml = make_mathml(match["latex"], display=display)
        except FormulaError as error:
            errors.append(str(error))
            return match[0]
        return f'<div class="formula">{mathml}</div>' if display else mathml

    return _MARKED.sub(render, page), errors

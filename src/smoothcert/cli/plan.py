"""`smoothcert plan`: how fast sigma may vary with the input before a required radius is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.cli import options as o

if TYPE_CHECKING:
    from smoothcert.sigma.sigma_planning import SigmaPlan

_ROWS = 9


def plan(
    dim: Annotated[int, typer.Option("--dim", help="Dimension of an input: 784 for MNIST, 3072 for CIFAR-10.")],
    sigma: Annotated[float, typer.Option("--sigma", help="Noise level at the input, in the units of the input.")],
    p_a: Annotated[float, typer.Option("--p-a", help="Lower bound on the probability of the class at the input.")],
    radius: Annotated[
        float | None,
        typer.Option("--radius", help="The required radius (default: 95 % of the radius of a constant sigma)."),
    ] = None,
    floor: Annotated[
        float | None, typer.Option("--floor", help="Smallest value of a Lipschitz sigma (default: sigma/1000).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the curves to this .png, .svg or .pdf file.")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Print the fastest change of sigma that still certifies the radius, and the radius for other rates.

    There are two bounds on the change between points at distance a: a semi-elastic sigma changes by a factor of at most
    exp(rate x a), a Lipschitz sigma by at most constant x a.
    """
    from smoothcert.analysis.figures import check_figure_path
    from smoothcert.sigma.sigma_planning import plan as make_plan

    if plot is not None:
        check_figure_path(plot)
    found = make_plan(dimension=dim, sigma=sigma, p_a=p_a, radius=radius, floor=floor)
    if plot is not None:
        from smoothcert.analysis.sigma_figures import draw_plan

        draw_plan(
            {"semi-elastic rate": found.rate_curve, "Lipschitz constant": found.lipschitz_curve},
            {"semi-elastic rate": found.rate, "Lipschitz constant": found.lipschitz},
            plot,
            constant_radius=found.constant_radius,
            radius=found.radius,
            title=f"dimension {dim}, sigma {sigma:g}, p_a {p_a:g}",
        )
    typer.echo(json.dumps(found.to_json()) if as_json else _describe(found))
    if plot is not None and not as_json:
        typer.echo(f"wrote {plot}", err=True)


def _describe(found: SigmaPlan) -> str:
    from smoothcert.numerics.rounding import format_down

    share = found.radius / found.constant_radius
    smallest, largest = found.ratios
    lines = [
        f"A constant sigma certifies {format_down(found.constant_radius, decimals=6)}.",
        f"To certify {format_down(found.radius, decimals=6)} ({share:.0%} of that) sigma may change",
        f"  by a factor of exp({_format_four_digits(found.rate)} x distance)   (semi-elastic rate), or",
        f"  by {_format_four_digits(found.lipschitz)} x distance   (Lipschitz constant, floor {found.floor:.4g}).",
        f"A point whose sigma is not between {smallest:.4f} and {largest:.4f} times this one is never certified, "
        "at any distance.",
        "",
        "      rate  radius    Lipschitz  radius",
    ]
    step = (len(found.rate_curve[0]) - 1) // (_ROWS - 1)
    for k in range(0, len(found.rate_curve[0]), step):
        (rate, by_rate), (constant, by_constant) = (
            (curve[0][k], format_down(float(curve[1][k]), decimals=4))
            for curve in (found.rate_curve, found.lipschitz_curve)
        )
        lines.append(f"{rate:10.4g}  {by_rate}  {constant:11.4g}  {by_constant}")
    return "\n".join(lines)


def _format_four_digits(value: float) -> str:
    """Rounded down to four significant digits, so that the printed rate still certifies the radius."""
    from math import floor, log10

    if value <= 0:
        return "0"
    from smoothcert.numerics.rounding import format_down

    return format_down(value, decimals=max(0, 3 - floor(log10(value))))

"""`smoothcert radius CERTIFICATE`: the radius a theorem gives for known probabilities."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def radius(
    certificate: Annotated[str, typer.Argument(help="The theorem: gaussian, lecuyer, li.")],
    sigma: Annotated[float, typer.Option("--sigma", help="Noise level, in the units of the input.")],
    p_a: Annotated[float | None, typer.Option("--p-a", help="Lower bound on the probability of the class.")] = None,
    p_b: Annotated[
        float | None, typer.Option("--p-b", help="Upper bound on the probability of every other class.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"radius": …}.')] = False,
) -> None:
    """Print the certified radius, rounded down; 0 if nothing is certified.

    The probabilities are taken as true bounds: no sampling, no confidence level.
    """
    from smoothcert.certificates import radius_of_family
    from smoothcert.records import Quantity

    given = {Quantity.TOP_LOWER: p_a, Quantity.RUNNER_UP_UPPER: p_b}
    value = radius_of_family(certificate, {q: v for q, v in given.items() if v is not None}, sigma=sigma)
    if as_json:
        typer.echo(json.dumps({"radius": value}))
    else:
        from smoothcert.numerics.rounding import format_down

        typer.echo(format_down(value, decimals=6))

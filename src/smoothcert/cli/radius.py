"""`smoothcert radius CERTIFICATE`: the radius that a theorem gives for known probabilities."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.errors import InputError

if TYPE_CHECKING:
    from smoothcert.records import Smoothing


def _known(name: str, meaning: str) -> Any:
    return typer.Option(name, show_default=False, help=meaning)


Known = float | None
SPLITTING = "splitting-l1"


def radius(
    certificate: Annotated[
        str,
        typer.Argument(
            help="The theorem, such as gaussian, dipole, second-order or renyi; envelope or lipschitz for a sigma that "
            "varies. All names: `smoothcert certify --help`."
        ),
    ],
    sigma: Annotated[Known, _known("--sigma", "Noise level, in the units of the input; splitting needs none.")] = None,
    p_a: Annotated[Known, _known("--p-a", "Lower bound on the probability of the class.")] = None,
    p_b: Annotated[Known, _known("--p-b", "Upper bound on the probability of every other class.")] = None,
    both: Annotated[Known, _known("--both", "dipole: lower bound on P(both votes are the class).")] = None,
    one_sided: Annotated[
        Known, _known("--one-sided", "dipole: lower bound on P(the vote at x+ε is the class, that at x-ε is not).")
    ] = None,
    gradient_norm: Annotated[
        Known, _known("--gradient-norm", "second-order: upper bound on the gradient's norm, in 1/length.")
    ] = None,
    other_neither: Annotated[
        Known, _known("--other-neither", "dipole, another class c: lower bound on P(neither vote is c).")
    ] = None,
    other_one_sided: Annotated[
        Known, _known("--other-one-sided", "dipole: lower bound on P(the vote at x+ε is not c, that at x-ε is).")
    ] = None,
    other_p: Annotated[Known, _known("--other-p", "second-order: upper bound on the probability of c.")] = None,
    other_gradient_norm: Annotated[
        Known, _known("--other-gradient-norm", "second-order: upper bound on the norm of c's gradient.")
    ] = None,
    dim: Annotated[int | None, typer.Option("--dim", help="Dimension of an input, if sigma varies.")] = None,
    rate: Annotated[
        Known, _known("--rate", "Sigma changes by a factor of at most exp(rate x distance): a semi-elastic sigma.")
    ] = None,
    lipschitz: Annotated[
        Known, _known("--lipschitz", "Sigma changes by at most this times the distance; needs --floor.")
    ] = None,
    floor: Annotated[Known, _known("--floor", "With --lipschitz: sigma is never below this.")] = None,
    num_classes: Annotated[int | None, typer.Option("--num-classes", help="lipschitz: number of classes.")] = None,
    votes: Annotated[
        str | None,
        typer.Option(
            "--votes",
            metavar="N,N[,N...]",
            help="splitting-l1: votes of all evaluations, class by class, as 300,100,41.",
        ),
    ] = None,
    grid: Annotated[
        int | None, typer.Option("--grid", help="splitting-l1: levels of the inputs (default: 256).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"radius": …}.')] = False,
) -> None:
    """Print the certified radius, rounded down; 0 if nothing is certified.

    The probabilities are used as true bounds, without sampling or confidence level. With --other-… the radius is that
    against one other class; the smallest over all other classes is certified.
    """
    from smoothcert.certificates import radius_of_family
    from smoothcert.records import Quantity

    given = {
        Quantity.TOP_LOWER: p_a,
        Quantity.RUNNER_UP_UPPER: p_b,
        Quantity.PAIR_BOTH_LOWER: both,
        Quantity.PAIR_ONE_SIDED_LOWER: one_sided,
        Quantity.GRADIENT_NORM_UPPER: gradient_norm,
        Quantity.OTHER_NEITHER_LOWER: other_neither,
        Quantity.OTHER_ONE_SIDED_LOWER: other_one_sided,
        Quantity.OTHER_UPPER: other_p,
        Quantity.OTHER_GRADIENT_NORM_UPPER: other_gradient_norm,
    }
    quantities = {q: v for q, v in given.items() if v is not None}
    if votes is not None or grid is not None or certificate == SPLITTING:
        value = _radius_of_votes(certificate, votes, levels=256 if grid is None else grid, others=bool(quantities))
        _show(value, as_json=as_json)
        return
    if sigma is None:
        raise InputError("--sigma is required: the radius is proportional to the noise level")
    smoothing = _smoothing(dim=dim, rate=rate, lipschitz=lipschitz, floor=floor, num_classes=num_classes)
    value = radius_of_family(certificate, quantities, sigma=sigma, smoothing=smoothing)
    _show(value, as_json=as_json)


def _show(value: float, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"radius": value}))
    else:
        from smoothcert.numerics.rounding import format_down

        typer.echo(format_down(value, decimals=6))


def _radius_of_votes(certificate: str, votes: str | None, *, levels: int, others: bool) -> float:
    """The radius of splitting from the votes of all evaluations."""
    import numpy as np

    from smoothcert.certificates import splitting_l1_radius
    from smoothcert.records import Stage, StreamId, Tally
    from smoothcert.statistics import plurality, safe_steps

    if certificate != SPLITTING:
        raise InputError(f"--votes and --grid are for {SPLITTING}: {certificate} takes bounds on probabilities")
    if levels < 2:
        raise InputError(f"--grid {levels} is invalid: a grid has at least two levels")
    if votes is None or others:
        raise InputError(f"{SPLITTING} takes --votes and nothing else: the votes of all evaluations, as in 300,100,41")
    try:
        counts = np.array([int(part) for part in votes.split(",")], dtype=np.int64)
        if len(counts) < 2 or counts.min() < 0 or counts.sum() < 2:
            raise ValueError
    except ValueError as error:
        raise InputError(
            f"--votes {votes!r} is invalid: expected votes of two classes or more, as 300,100,41"
        ) from error
    total = int(counts.sum())
    tally = Tally(StreamId(0, 0, Stage.ESTIMATION), sigma=1.0, counts=counts, invalid=0, ranges=((0, total),))
    label = plurality(tally)
    assert label is not None  # there are votes, and none is invalid
    return float(splitting_l1_radius(safe_steps([tally], [label], 0.0), levels=levels)[0])


def _smoothing(
    *, dim: int | None, rate: Known, lipschitz: Known, floor: Known, num_classes: int | None
) -> Smoothing | None:
    """How sigma varies, from the options; None for a constant sigma."""
    from smoothcert.records import ConstantSigma, Envelope, LipschitzSigma, SemiElastic, Smoothing

    if rate is not None and (lipschitz is not None or floor is not None):
        raise InputError("--rate cannot be combined with --lipschitz and --floor: use one bound on sigma")
    if (lipschitz is None) != (floor is None):
        raise InputError("--lipschitz and --floor must be given together")
    envelope: Envelope = ConstantSigma()
    if rate is not None:
        envelope = SemiElastic(rate=rate)
    elif lipschitz is not None and floor is not None:
        envelope = LipschitzSigma(constant=lipschitz, floor=floor)
    if dim is None and num_classes is None and isinstance(envelope, ConstantSigma):
        return None
    if dim is None:
        raise InputError("--dim is required: if sigma varies, the radius depends on the dimension of an input")
    if dim < 1:
        raise InputError(f"--dim is {dim}; the dimension of an input must be at least 1")
    return Smoothing(envelope=envelope, dimension=dim, num_classes=num_classes)

"""The interface of certificates, and the checks and forms that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, Noise, Norm, Proof, Quantity, Smoothing


class Certificate(Protocol):
    """A theorem that turns bounded quantities into a radius.

    name: unique, as given to `--certificate`. family: the theorem, as given to `smoothcert radius`; several forms of
        one theorem share it and differ in `needs`.
    norm: of the radius. noise: the noise of the theorem.
    needs: the quantities the formula takes. proofs: how they are bounded; this decides what is sampled and how α is
        split.
    varying_sigma: whether the theorem can hold for a σ that differs between inputs; most hold for a constant one.
    """

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def norm(self) -> Norm: ...

    @property
    def noise(self) -> Noise: ...

    @property
    def needs(self) -> tuple[Quantity, ...]: ...

    @property
    def proofs(self) -> tuple[Proof, ...]: ...

    @property
    def varying_sigma(self) -> bool: ...

    def check_suits(self, smoothing: Smoothing, /) -> None:
        """Raise an InputError, before anything is sampled, if the theorem does not cover this smoothing."""

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        """Certified radii, rounded down; 0 where nothing is certified.

        quantities: one array per entry of `needs`, shapes that broadcast with sigma. Never NaN, never infinite. Where
        an array has one row for each of several alternatives, so has the result, and the smallest radius is certified.
        """


def check_constant(name: str, smoothing: Smoothing) -> None:
    """Raise an InputError if σ varies: for theorems about a constant σ."""
    if smoothing.varying:
        raise InputError(
            f"{name} is proved for a constant sigma and says nothing where sigma differs from input to input; use the "
            "certificate envelope, or a memory of promised regions (--memory)"
        )


def check_noise(certificate: Certificate, smoothing: Smoothing) -> None:
    """Raise an InputError if the theorem of the certificate is about another noise."""
    if certificate.noise is not smoothing.noise:
        raise InputError(
            f"{certificate.name} is proved for {certificate.noise} noise, and the noise here is {smoothing.noise}; use "
            f"the certificate {smoothing.noise.facts.constant_sigma_certificate}, or --noise {certificate.noise}"
        )


def known_dimension(name: str, smoothing: Smoothing) -> int:
    """The dimension of an input; an InputError if it is not known."""
    if smoothing.dimension is None:
        raise InputError(f"the {name} radius depends on the dimension of an input, and that is not known")
    return smoothing.dimension


@dataclass(frozen=True, slots=True)
class FormulaCertificate:
    """A certificate whose radius is one function of its quantities, in the order of `needs`, and of sigma."""

    name: str
    family: str
    needs: tuple[Quantity, ...]
    proofs: tuple[Proof, ...]
    formula: Callable[..., FloatArray]
    noise: Noise = Noise.GAUSSIAN
    varying_sigma: bool = False

    @property
    def norm(self) -> Norm:
        return self.noise.norm

    def check_suits(self, smoothing: Smoothing, /) -> None:
        check_constant(self.name, smoothing)

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        return self.formula(*(quantities[quantity] for quantity in self.needs), sigma=sigma)


_ONE = (Quantity.TOP_LOWER,)
_TWO = (Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER)
Form = tuple[str, tuple[Quantity, ...], tuple[Proof, ...]]
"""The end of the name of a certificate, what it needs, and how that is proved."""
VOTE_FORMS: tuple[Form, ...] = (
    # The binary form: everything but the class is one opponent.
    ("", _ONE, (Proof.TOP,)),
    # The strongest other class is bounded separately, at the price of half of α.
    ("-two-class", _TWO, (Proof.TOP, Proof.RUNNER_UP)),
)
SCORE_FORMS: tuple[Form, ...] = (
    # For the class of the largest mean score instead of the class with most votes.
    ("-soft", _ONE, (Proof.SCORE_TOP,)),
    ("-soft-two-class", _TWO, (Proof.SCORE_TOP, Proof.SCORE_OTHER)),
    # For comparison, and for more samples than the betting bound supports.
    ("-soft-bernstein", _ONE, (Proof.SCORE_TOP_BERNSTEIN,)),
    ("-soft-two-class-bernstein", _TWO, (Proof.SCORE_TOP_BERNSTEIN, Proof.SCORE_OTHER_BERNSTEIN)),
)


def certificates_of(
    family: str,
    forms: Sequence[Form],
    radius: Callable[..., FloatArray],
    two_class_radius: Callable[..., FloatArray],
    *,
    kind: type[FormulaCertificate] = FormulaCertificate,
    noise: Noise = Noise.GAUSSIAN,
    varying_sigma: bool = False,
) -> tuple[FormulaCertificate, ...]:
    """One certificate for each form of a theorem. radius takes p_A, two_class_radius takes p_A and p_B."""
    formulas = {_ONE: radius, _TWO: two_class_radius}
    return tuple(
        kind(f"{family}{end}", family, needs, proofs, formulas[needs], noise, varying_sigma)
        for end, needs, proofs in forms
    )

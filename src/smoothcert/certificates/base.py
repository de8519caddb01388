"""What every certificate offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, Noise, Norm, Proof, Quantity, Smoothing


class Certificate(Protocol):
    """A theorem that turns bounded quantities into a radius.

    name: unique, as given to `--certificate`. family: the theorem, as given to `smoothcert radius`; several forms of
        one theorem share it and differ in `needs`.
    norm: of the radius. noise: the noise the theorem is about.
    needs: the quantities the formula takes. proofs: how they are to be bounded; this decides what is sampled and how α
        is split.
    varying_sigma: whether the theorem can hold for a σ that differs from input to input; most hold for a constant one.
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
        """Refuse a smoothing the theorem says nothing about, before anything is sampled."""

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        """Certified radii, rounded down; 0 where nothing is certified.

        quantities: one array per entry of `needs`, shapes that broadcast with sigma. Never NaN, never infinite. Where
        an array has one row for each of several alternatives, so has the result, and the smallest radius is certified.
        """


def check_constant(name: str, smoothing: Smoothing) -> None:
    """For theorems about a constant σ."""
    if smoothing.varying:
        raise InputError(
            f"{name} is proved for a constant sigma and says nothing where sigma differs from input to input; use the "
            "certificate envelope, or a memory of promised regions (--memory)"
        )


def check_noise(certificate: Certificate, smoothing: Smoothing) -> None:
    """A theorem about one kind of noise says nothing about another."""
    if certificate.noise is not smoothing.noise:
        raise InputError(
            f"{certificate.name} is proved for {certificate.noise} noise, and the noise here is {smoothing.noise}; use "
            f"the certificate {smoothing.noise.facts.constant_sigma_certificate}, or --noise {certificate.noise}"
        )


def known_dimension(name: str, smoothing: Smoothing) -> int:
    """For theorems that depend on it."""
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
    norm: Norm = Norm.L2
    noise: Noise = Noise.GAUSSIAN
    varying_sigma: bool = False

    def check_suits(self, smoothing: Smoothing, /) -> None:
        check_constant(self.name, smoothing)

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        return self.formula(*(quantities[quantity] for quantity in self.needs), sigma=sigma)

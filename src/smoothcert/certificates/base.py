"""What every certificate offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from smoothcert.records import FloatArray, Norm, Proof, Quantity, Smoothing


class Certificate(Protocol):
    """A theorem that turns bounded quantities into a radius.

    name: unique, as given to `--certificate`. family: the theorem, as given to `smoothcert radius`; several forms of
        one theorem share it and differ in `needs`.
    needs: the quantities the formula takes. proofs: how they are to be bounded; this decides what is sampled and how α
        is split.
    varying_sigma: whether the theorem holds for a σ that differs from input to input; most hold for a constant σ only.
    """

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def norm(self) -> Norm: ...

    @property
    def needs(self) -> tuple[Quantity, ...]: ...

    @property
    def proofs(self) -> tuple[Proof, ...]: ...

    @property
    def varying_sigma(self) -> bool: ...

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        """Certified radii, rounded down; 0 where nothing is certified.

        quantities: one array per entry of `needs`, shapes that broadcast with sigma. Never NaN, never infinite. Where
        an array has one row for each of several alternatives, so has the result, and the smallest radius is certified.
        """


@dataclass(frozen=True, slots=True)
class FormulaCertificate:
    """A certificate whose radius is one function of its quantities, in the order of `needs`, and of sigma."""

    name: str
    family: str
    needs: tuple[Quantity, ...]
    proofs: tuple[Proof, ...]
    formula: Callable[..., FloatArray]
    norm: Norm = Norm.L2
    varying_sigma: bool = False

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        return self.formula(*(quantities[quantity] for quantity in self.needs), sigma=sigma)

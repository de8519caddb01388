"""Portfolios: the certificates computed from one tally, and whether the best of them is used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from smoothcert.certificates.certificate import Certificate, check_noise
from smoothcert.errors import InputError
from smoothcert.records import Proof, Smoothing, TallyKind

_SAMPLED = {
    TallyKind.PAIRS: "votes at x+ε and x-ε",
    TallyKind.GRADIENTS: "independent votes and their noise",
    TallyKind.SCORES: "independent scores",
}
"""Samples that cannot be derived from plain votes, nor from each other."""

_BEST_OF = re.compile(r"best-of\((.*)\)")


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Certificates over the same samples, in the given order.

    Without best_of each certificate spends the whole α and holds alone: choosing between them after looking is not
    covered. With best_of all proofs hold at once at a total of α, so the largest radius may be used.
    """

    certificates: tuple[Certificate, ...]
    best_of: bool = False

    def __post_init__(self) -> None:
        names = [certificate.name for certificate in self.certificates]
        if not names:
            raise InputError("at least one certificate is needed")
        if len(set(names)) != len(names):
            raise InputError(f"a certificate was named twice: {', '.join(names)}")
        if self.best_of and len(names) < 2:
            raise InputError(f"the best of one certificate is that one: name another beside {names[0]}")
        sampled = {kind: found for kind in _SAMPLED if (found := self._names_sampling(kind))}
        if len(sampled) > 1:
            (one, first), (other, second), *_ = sampled.items()
            raise InputError(
                f"{first} and {second} cannot share their samples: the one needs {_SAMPLED[one]}, the other "
                f"{_SAMPLED[other]}; make two runs, and `smoothcert compare` them"
            )
        soft = sampled.get(TallyKind.SCORES, "")
        hard = ", ".join(one.name for one in self.certificates if not is_soft(one))
        if self.best_of and soft and hard:
            raise InputError(
                f"the best of {hard} and {soft} cannot be taken: they speak of two classifiers, of which the one gives "
                "the class with most votes, the other the class of the largest mean score; name them without best-of"
            )
        if len({certificate.norm for certificate in self.certificates}) > 1:
            raise InputError(f"{', '.join(names)} give radii in different norms, which cannot be compared")

    def _names_sampling(self, kind: TallyKind) -> str:
        return ", ".join(one.name for one in self.certificates if any(proof.tally is kind for proof in one.proofs))

    @property
    def proofs(self) -> tuple[Proof, ...]:
        """All proofs of the certificates, without repetition."""
        return tuple(dict.fromkeys(proof for certificate in self.certificates for proof in certificate.proofs))

    @property
    def tally(self) -> TallyKind:
        """The kind of tally that must be sampled."""
        kinds = [proof.tally for proof in self.proofs if proof.tally is not TallyKind.VOTES]
        return kinds[0] if kinds else TallyKind.VOTES

    @property
    def every_class(self) -> bool:
        """Whether the gradients of all classes are needed, not only that of the predicted class."""
        return Proof.GRADIENTS_OF_EVERY_CLASS in self.proofs

    def check_suits(self, smoothing: Smoothing) -> None:
        """Raise an InputError if a theorem does not cover this smoothing."""
        for certificate in self.certificates:
            check_noise(certificate, smoothing)
            certificate.check_suits(smoothing)

    def alternatives(self) -> tuple[Self, ...]:
        """The portfolios that are bounded separately: the whole with best_of, otherwise each certificate alone."""
        return (self,) if self.best_of else tuple(type(self)((certificate,)) for certificate in self.certificates)

    def __str__(self) -> str:
        names = ",".join(certificate.name for certificate in self.certificates)
        return f"best-of({names})" if self.best_of else names


def is_soft(certificate: Certificate) -> bool:
    """Whether the certificate is about the class with the largest mean score, not the class with most votes."""
    return any(proof.tally is TallyKind.SCORES for proof in certificate.proofs)


def split_names(text: str) -> tuple[list[str], bool]:
    """The names in "a,b" or "best-of(a,b)", and whether it is the latter."""
    match = _BEST_OF.fullmatch(text.strip())
    inner = match.group(1) if match else text
    return [name.strip() for name in inner.split(",")], match is not None

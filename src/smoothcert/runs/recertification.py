"""A finished run at another α, with fewer samples, or by another certificate: from its tallies, without the model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.certificates import Portfolio, get_portfolio
from smoothcert.errors import CorruptRunError, InputError, RunError
from smoothcert.questions import Question, stated_question
from smoothcert.questions.answers import Inquiry, answer_points, check_can_ask, only_certificate, spent_on
from smoothcert.questions.certification import alpha_split, check_can_certify, recertify_points, smoothing_of
from smoothcert.records import (
    CertifiedPoint,
    ConstantSigma,
    Envelope,
    GradientTally,
    Noise,
    RunManifest,
    Smoothing,
    Stage,
    TallyKind,
    envelope_from_json,
)
from smoothcert.runs.load import results_of_run
from smoothcert.runs.manifest import code_digest, environment
from smoothcert.runs.results import Results
from smoothcert.runs.store import RunStore

RECERTIFY = "recertify"


@dataclass(frozen=True, slots=True)
class Recertified:
    """The recomputed points, the parameters they were computed with, and the manifest of the run they come from."""

    points: list[CertifiedPoint]
    parameters: Mapping[str, Any]
    source: RunManifest

    @property
    def _manifest(self) -> RunManifest:
        # Another task: such a run is complete as it is, and must not be taken for one that sampled with this n.
        return dataclasses.replace(self.source, task=RECERTIFY, parameters=self.parameters)

    def results(self, *, name: str) -> list[Results]:
        """The points as columns, one for each certificate that is carried."""
        spent = {point.index: sum(tally.n for tally in point.tallies) for point in self.points}
        return results_of_run(self.points, self._manifest, estimation_kinds(self.points), name=name, spent=spent)

    def save(self, out: Path) -> None:
        """Store as a run of its own."""
        portfolio = get_portfolio(self.parameters["certificate"])
        manifest = dataclasses.replace(
            self._manifest,
            environment=environment(),
            code=code_digest(),
            extra={
                "recertified_from": self.source.to_json(),
                "alpha_split": self._alpha_split(portfolio),
            },
        )
        with RunStore.create(out, manifest) as store:
            store.add(self.points)

    def _alpha_split(self, portfolio: Portfolio) -> dict[str, dict[str, float]]:
        question, alpha = stated_question(self.parameters, run="the run"), self.parameters["alpha"]
        if question is not None:
            return spent_on(question, portfolio, alpha=alpha)
        return alpha_split(portfolio, alpha=alpha)


def recertify_run(
    path: Path,
    *,
    alpha: float | None = None,
    n: int | None = None,
    certificate: str | Sequence[str] | None = None,
    best_of: bool = False,
) -> Recertified:
    """Recompute every point of a run; what is not given stays as it was. best_of: of the certificates given, or of
    those the run carries.

    Each result is valid at its own α. Trying many settings and keeping the best is a choice after looking, which the
    α of none of them covers, unless best_of pays for it.

    A run that was sampled until a question was answered is asked the same question again, by the same anytime-valid
    tests: bounds for a fixed n do not hold for its votes. Its votes end where they end, so a smaller α certifies less
    than a run made with that α would.
    """
    if not path.exists() and "@" in path.name:
        run, _, name = str(path).rpartition("@")
        raise RunError(
            f"{path} does not exist; to choose a certificate: smoothcert recertify {run} --certificate {name}"
        )
    with RunStore.open(path) as store:
        manifest, points = store.manifest, store.points()
    if manifest.task not in ("certify", RECERTIFY):
        raise RunError(f"{path} is a {manifest.task} run; only the votes of a certify run can be certified again")
    if not points:
        raise RunError(f"{path} holds no finished input yet")
    if "memory" in manifest.parameters:
        raise RunError(
            f"the radii of {path} are regions that a memory has promised; another radius would be promised by nobody. "
            "Certify the inputs again: `smoothcert certify … --memory`"
        )
    parameters = dict(manifest.parameters)
    if not {"alpha", "certificate", "n"} <= parameters.keys():
        raise CorruptRunError(f"{path} does not say with what alpha, n and certificate it was made")
    parameters["alpha"] = parameters["alpha"] if alpha is None else alpha
    portfolio = get_portfolio(parameters["certificate"] if certificate is None else certificate, best_of=best_of)
    parameters["certificate"] = str(portfolio)
    parameters["n"] = parameters["n"] if n is None else n
    _check_kind(points, portfolio, path)
    smoothing = _smoothing(manifest, path)
    question = stated_question(parameters, run=path)
    if question is not None:
        points = _answered_again(points, question, portfolio, parameters, n=n, smoothing=smoothing)
        return Recertified(points=points, parameters=parameters, source=manifest)
    points = recertify_points(points, portfolio, alpha=parameters["alpha"], n=n, smoothing=smoothing)
    halved = portfolio.tally is TallyKind.VOTES and TallyKind.PAIRS in estimation_kinds(points)
    check_can_certify(
        portfolio,
        n=parameters["n"] // 2 if halved else parameters["n"],
        alpha=parameters["alpha"],
        num_classes=points[0].tallies[0].num_classes,
    )
    return Recertified(points=points, parameters=parameters, source=manifest)


def _answered_again(
    points: Sequence[CertifiedPoint],
    question: Question,
    portfolio: Portfolio,
    parameters: Mapping[str, Any],
    *,
    n: int | None,
    smoothing: Smoothing,
) -> list[CertifiedPoint]:
    alpha, most = parameters["alpha"], parameters["n"]
    drawn = max(tally.ranges[-1][1] for point in points for tally in point.tallies)
    if n is not None and n > drawn:
        raise InputError(f"n={n} is not possible: no input was sampled further than {drawn}")
    check_can_ask(question, portfolio, n=most, alpha=alpha)
    portfolio.check_suits(smoothing)
    certificate = only_certificate(portfolio)
    return answer_points(points, Inquiry(question, certificate, smoothing, n=most, alpha=alpha))


def _smoothing(manifest: RunManifest, path: Path) -> Smoothing:
    """What the manifest says of the smoothed classifier."""
    shape, num_classes = manifest.data.get("input_shape"), manifest.model.get("num_classes")
    if not (isinstance(shape, list) and all(type(size) is int for size in shape) and type(num_classes) is int):
        raise CorruptRunError(f"{path} does not say what shape its inputs have, or how many classes there are")
    envelope: Envelope = ConstantSigma()
    if "sigma_rule" in manifest.parameters or "envelope" in manifest.parameters:
        envelope = _stated_envelope(manifest.parameters.get("envelope"), path)
    return smoothing_of(
        envelope,
        dimension=math.prod(shape),
        num_classes=num_classes,
        noise=_stated_noise(manifest, path),
        grid=_stated_grid(manifest, path),
    )


def _stated_grid(manifest: RunManifest, path: Path) -> int | None:
    grid = manifest.parameters.get("grid")
    if grid is not None and (type(grid) is not int or grid < 2):
        raise CorruptRunError(f"{path} was made with noise on a grid of {grid!r} levels, which makes no sense")
    return grid


def _stated_noise(manifest: RunManifest, path: Path) -> Noise:
    """The first word of what the manifest says of the noise; the second is the type of its numbers."""
    kind = str(manifest.parameters.get("noise", Noise.GAUSSIAN)).partition(" ")[0].removesuffix(",")
    if kind not in set(Noise):
        raise CorruptRunError(f"{path} was made with {kind!r} noise, of which nothing is known")
    return Noise(kind)


def _stated_envelope(document: Any, path: Path) -> Envelope:
    if isinstance(document, dict) and document.get("kind") == "user":
        raise RunError(
            f"{path} was certified with an envelope of the user's own, {document.get('name')!r}: a function, which no "
            "run can hold; so its votes cannot be certified again from the run alone"
        )
    try:
        return envelope_from_json(document)
    except (InputError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRunError(f"{path} does not say by what envelope its sigma varies: {error}") from error


def estimation_kinds(points: Sequence[CertifiedPoint]) -> set[TallyKind]:
    """What was sampled to prove something."""
    return {tally.kind for point in points for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION}


def _check_kind(points: Sequence[CertifiedPoint], portfolio: Portfolio, path: Path) -> None:
    """Plain votes can be had from every tally; pairs, and the gradients of all classes, must have been sampled."""
    tallies = [tally for point in points for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION]
    sampled = estimation_kinds(points)
    wanted = portfolio.certificates[0].name
    if portfolio.tally is not TallyKind.VOTES and sampled != {portfolio.tally}:
        raise RunError(
            f"{path} holds {' and '.join(sorted(sampled))}, but {portfolio} is computed from {portfolio.tally}: these "
            f"must be sampled, by `smoothcert certify --certificate {wanted}`"
        )
    if portfolio.every_class and not all(
        isinstance(tally, GradientTally) and tally.products.size == tally.num_classes + 1 for tally in tallies
    ):
        raise RunError(
            f"{path} holds the gradient of one class, but {portfolio} is computed from those of all: they must be "
            "sampled, by `smoothcert certify --certificate second-order-multi-class`"
        )

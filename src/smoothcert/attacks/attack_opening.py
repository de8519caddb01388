"""Opening a run to attack it: the classifier, its data, and a search for points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from smoothcert.attacks.attack_gradients import AttackedModel, choose_gradients
from smoothcert.attacks.attack_search import AttackSearch, PointSearch
from smoothcert.attacks.attack_settings import AttackBounds, AttackMethod, AttackSettings
from smoothcert.attacks.attack_targets import PlainTargets, TargetFactory
from smoothcert.attacks.attacked_classifier import AttackedClassifier, AttackedSmoothed
from smoothcert.attacks.selected_attack import AttackedSelection
from smoothcert.attacks.selected_target import SelectedTargets
from smoothcert.attacks.split_search import SplitSearch
from smoothcert.certificates import get_portfolio
from smoothcert.certificates.portfolio import is_soft
from smoothcert.data import Dataset, ProgressCallback
from smoothcert.errors import InputError
from smoothcert.noise.splitting import required_levels
from smoothcert.records import CertifiedPoint, Norm
from smoothcert.runs.building import portfolio_of
from smoothcert.runs.reopening import reopen_run, spec_to_reopen
from smoothcert.runs.resumption import Moved
from smoothcert.runs.selected_reopening import OpenedPart, OpenedSelection, reopen_selected
from smoothcert.runs.selected_run import SelectedRun
from smoothcert.sigma import OptimisedRule
from smoothcert.sigma.constant import ConstantRule
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import EveryEvaluation, RunSpec

_SMALL = 4096
_SAMPLES_OF_SMALL_INPUTS = 512


_ABOUT_SAMPLES = ("objective", "gradient", "step_size", "n", "looks", "alpha")


def settle_settings(settings: AttackSettings, spec: RunSpec) -> AttackSettings:
    """The settings with the method for the noise of the run; where nothing is sampled, without samples."""
    kind, method = spec.noise.kind, settings.method
    if isinstance(spec.question, EveryEvaluation):
        if method not in (AttackMethod.AUTO, AttackMethod.GREEDY):
            raise InputError(f"{method} needs noise that is added, and {kind} is not: use --method greedy")
        if settings.bounds == AttackBounds.ANY:
            raise InputError(f"certificates under {kind} are about inputs in [0, 1]: use --bounds data")
        usual = AttackSettings(radii=settings.radii)
        for name in _ABOUT_SAMPLES:
            if getattr(settings, name) != getattr(usual, name):
                option = name.replace("_", "-")
                raise InputError(
                    f"the attack on {kind} is greedy, and counts all evaluations of the points found: leave --{option} "
                    "out"
                )
        return replace(settings, method=AttackMethod.GREEDY.value, n=spec.question.n, looks=1, alpha=0.0)
    if method == AttackMethod.GREEDY:
        raise InputError(f"the greedy attack is for splitting, and the noise of this run is {kind}: use --method pgd")
    return replace(settings, method=AttackMethod.PGD.value) if method == AttackMethod.AUTO else settings


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """models: the digests of all base classifiers of a selected run, by part; None for an ordinary run."""

    attacked: AttackedClassifier
    dataset: Dataset
    search: PointSearch
    models: Mapping[str, str] | None = None


@contextmanager
def open_plain_run(
    run: Path,
    settings: AttackSettings,
    points: Sequence[CertifiedPoint],
    certificate: str | None,
    *,
    moved: Moved,
    fetching: ProgressCallback | None,
) -> Iterator[OpenedRun]:
    """Open an ordinary run. certificate: of the radii; None for the first."""
    spec = spec_to_reopen(run, purpose="attack", moved=moved)
    norm = spec.noise.kind.norm
    if settings.method == AttackMethod.DDN and norm is not Norm.L2:
        raise InputError(f"ddn is an l2 attack, and the radii of {run} are in {norm}: use --method pgd")
    if spec.memory is not None and settings.bounds == AttackBounds.ANY:
        raise InputError(
            f"{run} has a memory, and its classifier accepts only inputs in the range of the data: use --bounds data"
        )
    with reopen_run(run, spec, fetching=fetching) as (smoothed, dataset):
        _check_bounds(smoothed, settings)
        smoothed = _prepare_classifier(smoothed, dataset, settings, len(points) * settings.n)
        if not spec.noise.kind.sampled:
            yield OpenedRun(AttackedSmoothed(smoothed, soft=False), dataset, _build_split_search(smoothed, settings))
            return
        portfolio = portfolio_of(spec) if certificate is None else get_portfolio(certificate)
        soft = spec.task == "certify" and is_soft(portfolio.certificates[0])
        # An optimised sigma costs more than the attack to compute in each step, so the sigma of the input is kept.
        keeps_sigma = isinstance(smoothed.rule, ConstantRule | OptimisedRule)
        targets = PlainTargets(
            _find_gradients(spec, smoothed, dataset, settings),
            settings,
            smoothed.noise,
            rule=None if keeps_sigma else smoothed.rule,
            by_votes=not soft,
            samples_at_once=_count_at_once(smoothed, dataset),
        )
        search = _build_search(targets, settings, dataset, norm=norm, grid=smoothed.grid)
        yield OpenedRun(AttackedSmoothed(smoothed, soft), dataset, search)


@contextmanager
def open_selected_run(
    run: SelectedRun,
    settings: AttackSettings,
    points: Sequence[CertifiedPoint],
    *,
    moved: Moved,
    fetching: ProgressCallback | None,
) -> Iterator[OpenedRun]:
    """Open a selected run with all its levels."""
    with reopen_selected(run, purpose="attack", moved=moved, fetching=fetching) as opened:
        dataset = opened.dataset

        def prepare(part: OpenedPart) -> OpenedPart:
            copies = len(points) * settings.n
            return OpenedPart(part.name, part.spec, _prepare_classifier(part.smoothed, dataset, settings, copies))

        opened = OpenedSelection(prepare(opened.selector), tuple(prepare(level) for level in opened.levels), dataset)
        targets = SelectedTargets(
            [_find_gradients(part.spec, part.smoothed, dataset, settings) for part in opened.parts],
            [run.spec.selector_sigma, *run.spec.levels],
            settings,
            samples_at_once=_count_at_once(opened.selector.smoothed, dataset),
        )
        grid = opened.selector.smoothed.grid
        search = _build_search(targets, settings, dataset, norm=Norm.L2, grid=grid)
        models = {part.name: part.smoothed.classifier.digest for part in opened.parts}
        yield OpenedRun(AttackedSelection(opened), dataset, search, models)


def _check_bounds(smoothed: SmoothedClassifier, settings: AttackSettings) -> None:
    """A run with a scale is attacked in the units of its noise, where each feature would have its own bounds."""
    if smoothed.scale is not None and smoothed.input_range is not None and settings.bounds != AttackBounds.ANY:
        raise InputError(
            "a run with a scale of its features is attacked in scaled units, in which the range of the data differs "
            f"from feature to feature: use --bounds {AttackBounds.ANY}"
        )


def _prepare_classifier(
    smoothed: SmoothedClassifier, dataset: Dataset, settings: AttackSettings, copies: int
) -> SmoothedClassifier:
    """For points anywhere, if wanted, and in the units of the noise. copies: samples for which the batch is tuned."""
    if settings.bounds == AttackBounds.ANY or smoothed.scale is not None:
        smoothed = smoothed.derive(seed=smoothed.seed, any_inputs=True, in_noise_units=True)
    smoothed.tune(dataset.input_shape, samples=copies)
    return smoothed


def _find_gradients(
    spec: RunSpec, smoothed: SmoothedClassifier, dataset: Dataset, settings: AttackSettings
) -> AttackedModel:
    gradients = choose_gradients(spec, smoothed.classifier, settings, input_shape=dataset.input_shape)
    return AttackedModel(smoothed.classifier, gradients)


def _count_at_once(smoothed: SmoothedClassifier, dataset: Dataset) -> int:
    """The batch of the run; more for small inputs, where that is faster."""
    is_small = math.prod(dataset.input_shape) <= _SMALL
    return max(smoothed.known_batch(), _SAMPLES_OF_SMALL_INPUTS if is_small else 1)


def _build_split_search(smoothed: SmoothedClassifier, settings: AttackSettings) -> SplitSearch:
    return SplitSearch(
        settings=settings,
        classifier=smoothed.classifier,
        levels=required_levels(smoothed.grid),
        seed=smoothed.seed,
        batch=smoothed.known_batch(),
        closed=smoothed.memory is None,
    )


def _build_search(
    targets: TargetFactory, settings: AttackSettings, dataset: Dataset, *, norm: Norm, grid: int | None
) -> AttackSearch:
    return AttackSearch(
        settings=settings,
        targets=targets,
        norm=norm,
        bounds=None if settings.bounds == AttackBounds.ANY else dataset.input_range,
        grid=grid,
    )

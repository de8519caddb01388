"""An attack on a finished run: every input within every radius, each change checked by fresh samples, resumable."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.attacks.attack_record import AttackRecord, AttackResult, FreshVerdict, open_record, recorded_seed
from smoothcert.attacks.attack_search import Found, Search, distances, gradient_source
from smoothcert.attacks.attack_settings import CERTIFIED, AttackBounds, AttackMethod, AttackSettings
from smoothcert.attacks.attack_verdicts import checked, samples_of_selection
from smoothcert.certificates import get_portfolio
from smoothcert.certificates.portfolio import is_soft
from smoothcert.data import Dataset, ProgressCallback
from smoothcert.errors import CorruptRunError, InputError, InterruptedRunError, RunError
from smoothcert.models.devices import make_thread_sequential, restore_thread_default, usable_cores
from smoothcert.questions import check_predict_is_possible, check_question
from smoothcert.records import CertifiedPoint, FloatArray, InputArray, Norm, Outcome
from smoothcert.runs.building import portfolio_of
from smoothcert.runs.execution import Notice
from smoothcert.runs.load import carried_certificates, split_certificate
from smoothcert.runs.reopening import reopen_run, spec_to_reopen
from smoothcert.runs.results import verdict_by
from smoothcert.runs.resumption import NOT_MOVED, Moved
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.sampling.sampler import Progress
from smoothcert.sigma import OptimisedRule
from smoothcert.sigma.constant import ConstantRule
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import FixedN, RunManifest, RunSpec

RECORD = "attack.jsonl"
"""Where an attack is recorded in the directory of its run, unless another place is named."""

_INPUTS_AT_ONCE = 16
_SMALL = 4096
_SAMPLES_OF_SMALL_INPUTS = 512


@dataclass(frozen=True, slots=True)
class Attack:
    """Everything loaded. points: the inputs taken from the run; `finished` results were recorded before."""

    settings: AttackSettings
    manifest: RunManifest
    smoothed: SmoothedClassifier
    dataset: Dataset
    search: Search
    soft: bool
    points: tuple[CertifiedPoint, ...]
    record: AttackRecord
    finished: int

    def victims(self, radius: str) -> list[CertifiedPoint]:
        """The inputs to attack: those certified, whatever their class, and those rightly predicted."""
        return [point for point in self.points if _is_victim(point, radius)]

    @property
    def tests(self) -> int:
        """How many points will be checked by fresh samples: they share alpha."""
        return sum(len(self.victims(radius)) for radius in self.settings.radii)

    def level(self, look: int) -> float:
        """The error probability of one look at one point."""
        return self.settings.alpha / max(self.tests, 1) * self.settings.share(look)

    @property
    def samples_per_test(self) -> int:
        """Without the looks that only some points need."""
        return self.search.samples_per_input + self.settings.n

    @property
    def workers(self) -> int:
        """Groups attacked side by side: one a core; one alone where the model or its device takes no more."""
        if self.search.device.type != "cpu":
            return 1
        allowed = usable_cores() if self.search.module is not None else self.smoothed.classifier.concurrency
        return max(1, min(self.smoothed.workers or usable_cores(), allowed))


def _is_victim(point: CertifiedPoint, radius: str) -> bool:
    certified = point.outcome is Outcome.CERTIFIED
    return certified or (radius != CERTIFIED and point.prediction is not None and point.correct)


@contextmanager
def prepare_attack(
    run: Path,
    settings: AttackSettings,
    *,
    out: Path | None = None,
    notice: Notice = lambda _: None,
    fetching: ProgressCallback | None = None,
    moved: Moved = NOT_MOVED,
) -> Iterator[Attack]:
    """Load what the run was made with, check that it is the same, and begin or resume the record.

    run: a directory, or RUN@CERTIFICATE for the radii of another certificate than the first of those it carries.
    moved: where model, data or memory are now, another device or number of workers.
    """
    settings.check()
    run, certificate = split_certificate(run)
    manifest = read_manifest(run)
    spec = spec_to_reopen(run, purpose="attack", moved=moved)
    if certificate is None:
        _tell_of_others(run, manifest, notice)
    if out is None:
        out = run / (RECORD if certificate is None else f"attack-{certificate}.jsonl")
    if settings.seed is None:
        known = recorded_seed(out)
        settings = dataclasses.replace(settings, seed=secrets.randbits(64) if known is None else known)
    norm = spec.noise.kind.norm
    if settings.method == AttackMethod.DDN and norm is not Norm.L2:
        raise InputError(f"ddn looks for short perturbations in l2; the radii of {run} are in {norm}: use --method pgd")
    if spec.memory is not None and settings.bounds == AttackBounds.ANY:
        raise InputError(
            f"the memory of {run} keeps the regions of a classifier that takes inputs in the range of its data "
            "alone: use --bounds data"
        )
    with reopen_run(run, spec, fetching=fetching) as (smoothed, dataset), RunStore.open(run) as store:
        points = _points_of(store, settings, certificate, run)
        _check_some(run, points, settings)
        if settings.bounds == AttackBounds.ANY:
            smoothed = smoothed.derive(any_inputs=True)
        smoothed.tune(dataset.input_shape, samples=len(points) * settings.n)
        portfolio = portfolio_of(spec) if certificate is None else get_portfolio(certificate)
        soft = manifest.task == "certify" and is_soft(portfolio.certificates[0])
        search = _search(spec, settings, smoothed, dataset, norm=norm, soft=soft)
        with open_record(out, _header(manifest, points, settings, search)) as record:
            attack = Attack(
                settings, manifest, smoothed, dataset, search, soft, points, record, finished=len(record.found)
            )
            _check_level(attack)
            _check_recorded(attack)
            notice(
                f"{smoothed.classifier.description}; gradients: {search.source}; {attack.tests} attacks, each checked "
                f"at level {attack.level(0):.2g}"
            )
            yield attack


def _tell_of_others(run: Path, manifest: RunManifest, notice: Notice) -> None:
    first, *others = carried_certificates(manifest)
    if others:
        named = ", ".join(f"{run}@{other}" for other in others)
        notice(f"{run} carries several certificates: attacked within the radii of {first}; for the others give {named}")


def _points_of(
    store: RunStore, settings: AttackSettings, certificate: str | None, run: Path
) -> tuple[CertifiedPoint, ...]:
    """The inputs to take, each with the verdict of that certificate alone."""
    taken = store.points(with_tallies=False)[:: settings.skip][: settings.max_inputs]
    return tuple(
        dataclasses.replace(point, verdict=verdict_by(point, certificate, str(run)), further=()) for point in taken
    )


def _check_some(run: Path, points: Sequence[CertifiedPoint], settings: AttackSettings) -> None:
    if not any(_is_victim(point, radius) for radius in settings.radii for point in points):
        raise RunError(f"{run} has no input to attack: none is certified, and none is rightly predicted")


def _check_level(attack: Attack) -> None:
    for look in range(attack.settings.looks):
        n, alpha = attack.settings.samples(look), attack.level(look)
        if attack.soft:
            portfolio = get_portfolio(attack.smoothed.noise.facts.soft_two_class_certificate)
            question = FixedN(n=n, n0=samples_of_selection(n))
            check_question(question, portfolio, alpha=alpha, num_classes=attack.smoothed.classifier.num_classes)
        else:
            check_predict_is_possible(n=n, alpha=alpha)


def _check_recorded(attack: Attack) -> None:
    """What the record says of the run is what the run says."""
    known = {
        (radius, point.index, point.label, point.prediction, point.radius)
        for radius in attack.settings.radii
        for point in attack.victims(radius)
    }
    for result in attack.record.found:
        told = (result.radius, result.index, result.label, result.prediction, result.certified_radius)
        if told not in known:
            raise CorruptRunError(
                f"{attack.record.path} says of input {result.index} what the run does not: give another --out, or move "
                "it away"
            )


def _search(
    spec: RunSpec, settings: AttackSettings, smoothed: SmoothedClassifier, dataset: Dataset, *, norm: Norm, soft: bool
) -> Search:
    module, source, device = gradient_source(spec, smoothed.classifier, settings, input_shape=dataset.input_shape)
    # A search for sigma at every step would cost more than the attack: there the level of the input is kept.
    fixed = isinstance(smoothed.rule, ConstantRule | OptimisedRule)
    return Search(
        settings=settings,
        classifier=smoothed.classifier,
        module=module,
        source=source,
        device=device,
        noise=smoothed.noise,
        norm=norm,
        rule=None if fixed else smoothed.rule,
        by_votes=not soft,
        bounds=None if settings.bounds == AttackBounds.ANY else dataset.input_range,
        grid=smoothed.grid,
        samples_at_once=_samples_at_once(smoothed.known_batch(), size=math.prod(dataset.input_shape)),
    )


def _samples_at_once(batch: int, *, size: int) -> int:
    """Noisy copies differentiated together: the batch of the run; more for small inputs, where that is quicker."""
    return max(batch, _SAMPLES_OF_SMALL_INPUTS if size <= _SMALL else 1)


def _header(
    manifest: RunManifest, points: Sequence[CertifiedPoint], settings: AttackSettings, search: Search
) -> dict[str, Any]:
    """What an attack depends on: the settings, and the answers and radii of the run it is about."""
    promised = hashlib.sha256()
    for point in points:
        promised.update(f"{point.index} {point.label} {point.prediction} {point.radius!r}\n".encode())
    return {
        "run": {
            "seed": manifest.seed,
            "model": manifest.digests.model,
            "data": manifest.digests.data,
            "alpha": manifest.spec.alpha,
            "inputs": len(points),
            "answers": promised.hexdigest(),
        },
        "settings": {**settings.to_json(), "gradient": search.source.value},
    }


def run_attack(
    attack: Attack,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    notice: Notice = lambda _: None,
    on_results: Callable[[Sequence[AttackResult]], None] | None = None,
) -> None:
    """Attack group after group, recording each; what the record holds is not done again.

    notice: hears of the first broken certificate at once, and of looks that take more samples.

    As many groups as there are workers are attacked side by side, each on one core; which ones changes nothing. Their
    checks follow, one after the other. stop: when set, the groups in flight are finished and recorded, then
    InterruptedRunError is raised.
    """
    done = {(result.radius, result.index) for result in attack.record.found}
    pending = [
        (radius, points)
        for radius, points in _groups(attack)
        if any((radius, point.index) not in done for point in points)
    ]
    warned = _warned(attack.record.found, notice)
    for at in range(0, len(pending), attack.workers):
        if stop is not None and stop.is_set():
            raise InterruptedRunError(f"stopped on request; what was finished is in {attack.record.path}")
        together = [_loaded(attack, radius, points) for radius, points in pending[at : at + attack.workers]]
        for group, found in zip(together, _found(attack, together, progress), strict=True):
            results = _checked(attack, group, found, progress, notice)
            attack.record.add([result for result in results if (result.radius, result.index) not in done])
            warned = warned or _warned(results, notice)
            if on_results is not None:
                on_results(results)


def _warned(results: Sequence[AttackResult], notice: Notice) -> bool:
    broken = [result for result in results if result.breaks_certificate]
    if broken:
        notice(
            f"CERTIFICATE BROKEN: the answer to input {broken[0].index} changes inside its certified radius; the "
            "attack goes on, and all such inputs are named at its end"
        )
    return bool(broken)


def _groups(attack: Attack) -> Iterator[tuple[str, list[CertifiedPoint]]]:
    """What is attacked together: a radius, and inputs that share the noise of the attack.

    Fixed by the settings and the batch of the run, whatever is recorded already: resuming repeats the same groups.
    """
    size = min(_INPUTS_AT_ONCE, attack.smoothed.known_batch())
    for radius in attack.settings.radii:
        victims = attack.victims(radius)
        for at in range(0, len(victims), size):
            yield radius, victims[at : at + size]


@dataclass(frozen=True, slots=True)
class _Group:
    """Inputs that are attacked together within one radius."""

    radius: str
    points: Sequence[CertifiedPoint]
    inputs: InputArray


def _loaded(attack: Attack, radius: str, points: Sequence[CertifiedPoint]) -> _Group:
    inputs = attack.dataset.inputs([point.index for point in points])
    return _Group(radius, points, attack.smoothed.check_inputs(inputs))


def _found(attack: Attack, groups: Sequence[_Group], progress: Progress | None) -> list[Found]:
    """The strongest points found, group by group, each in a thread of its own."""
    if attack.workers == 1:
        return [_points(attack, group, progress) for group in groups]
    abandoned = threading.Event()

    def tell(samples: int) -> None:
        if abandoned.is_set():
            raise InterruptedRunError("stopped at once")
        if progress is not None:
            progress(samples)

    try:
        with ThreadPoolExecutor(attack.workers, initializer=make_thread_sequential) as pool:
            futures = [pool.submit(_points, attack, group, tell) for group in groups]
            try:
                return [future.result() for future in futures]
            except BaseException:
                abandoned.set()
                raise
    finally:
        restore_thread_default()


def _points(attack: Attack, group: _Group, progress: Progress | None) -> Found:
    return attack.search.points(
        group.inputs,
        np.array([point.prediction for point in group.points], dtype=np.int64),
        sigmas=_sigmas(attack.smoothed, group.inputs, group.points),
        limits=np.array([AttackSettings.limit(group.radius, certified=point.radius) for point in group.points]),
        seed=_derived(attack, "attack", group.radius, group.points[0].index),
        progress=progress,
    )


def _checked(
    attack: Attack, group: _Group, found: Found, progress: Progress | None, notice: Notice
) -> list[AttackResult]:
    """What fresh samples say at the points found; where they say nothing about a certificate, more are asked."""
    everything = list(range(len(group.points)))
    results = _looked(attack, group, found, everything, 0, progress)
    for look in range(1, attack.settings.looks):
        rows = [row for row, result in enumerate(results) if result.unsettled]
        if not rows:
            break
        notice(
            f"{len(rows)} of {len(results)} certificates are neither confirmed nor contradicted: looking again, with "
            f"{attack.settings.samples(look):,} fresh samples each"
        )
        for row, result in zip(rows, _looked(attack, group, found, rows, look, None), strict=True):
            results[row] = result
    return results


def _looked(
    attack: Attack, group: _Group, found: Found, rows: Sequence[int], look: int, progress: Progress | None
) -> list[AttackResult]:
    """One look at some of the points, by samples of its own."""
    # A stream of its own for every radius and look; within it the index of the input tells draws apart.
    smoothed = attack.smoothed.derive(seed=_derived(attack, "check", group.radius, look))
    points, inputs = found.points[rows], group.inputs[rows]
    verdicts = checked(
        smoothed,
        points,
        [group.points[row] for row in rows],
        n=attack.settings.samples(look),
        level=attack.level(look),
        soft=attack.soft,
        progress=progress,
    )
    away = distances(points, inputs, attack.search.norm)
    return [
        _result(group, found, row, verdict, distance=float(distance))
        for row, verdict, distance in zip(rows, verdicts, away, strict=True)
    ]


def _result(group: _Group, found: Found, row: int, verdict: FreshVerdict, *, distance: float) -> AttackResult:
    point = group.points[row]
    result = AttackResult(
        **dataclasses.asdict(verdict),
        radius=group.radius,
        index=point.index,
        label=point.label,
        certified_radius=point.radius,
        distance=distance,
        moved=bool(found.moved[row]),
    )
    if not (result.breaks_certificate or result.unsettled):
        return result
    evidence = base64.b64encode(found.points[row].astype("<f4").tobytes()).decode()
    return dataclasses.replace(result, point=evidence)


def _sigmas(smoothed: SmoothedClassifier, inputs: InputArray, group: Sequence[CertifiedPoint]) -> FloatArray:
    """The levels of the inputs: those of the run, or, where a memory answered without one, asked for now."""
    known = np.array([point.sigma for point in group], dtype=np.float64)
    missing = [row for row, point in enumerate(group) if not math.isfinite(point.sigma)]
    if missing:
        levels = smoothed.sigmas(inputs[missing], [group[row].index for row in missing])
        known[missing] = list(levels.values())
    return known


def _derived(attack: Attack, *names: object) -> int:
    """A seed of its own for every purpose: no draw is shared with the run, or between attack and check."""
    text = " ".join(map(str, (attack.settings.seed, attack.manifest.seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])

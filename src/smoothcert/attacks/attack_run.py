"""Attack a finished run: each input within each radius, with a check by fresh samples. Resumable."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.attacks.attack_opening import OpenedRun, open_plain_run, open_selected_run, settle_settings
from smoothcert.attacks.attack_record import AttackRecord, AttackResult, FreshVerdict, open_record, read_recorded_seed
from smoothcert.attacks.attack_search import PointSearch, StrongestPoints
from smoothcert.attacks.attack_settings import CERTIFIED, AttackSettings
from smoothcert.attacks.attacked_classifier import AttackedClassifier
from smoothcert.data import Dataset, ProgressCallback
from smoothcert.errors import CorruptRunError, InterruptedRunError, RunError
from smoothcert.models.devices import make_thread_sequential, restore_thread_default, usable_cores
from smoothcert.records import CertifiedPoint, InputArray, Outcome
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.runs.execution import Notice
from smoothcert.runs.load import list_certificates, split_certificate
from smoothcert.runs.result_columns import find_verdict
from smoothcert.runs.resumption import NOT_MOVED, Moved
from smoothcert.runs.scales import scale_of_run
from smoothcert.runs.selected_run import SelectedRun, open_stored
from smoothcert.runs.store import RunStore
from smoothcert.sampling.sampler import Progress
from smoothcert.spec import RunManifest

RECORD = "attack.jsonl"
"""The default record of an attack, in the directory of its run."""

_INPUTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Attack:
    """A prepared attack. points: the inputs taken from the run.

    recorded_before: number of results that the record held when it was opened. If the run has a scale of its features,
    `attacked` takes inputs that are divided by it: points and distances are in the units of the noise.
    """

    settings: AttackSettings
    manifest: RunManifest
    attacked: AttackedClassifier
    dataset: Dataset
    search: PointSearch
    points: tuple[CertifiedPoint, ...]
    record: AttackRecord
    recorded_before: int

    def victims(self, radius: str) -> list[CertifiedPoint]:
        """The inputs to attack: all certified ones, and for a fixed radius also the correctly predicted ones."""
        return [point for point in self.points if _is_victim(point, radius)]

    @property
    def tests(self) -> int:
        """Number of points to check by fresh samples. They share alpha."""
        return sum(len(self.victims(radius)) for radius in self.settings.radii)

    def level(self, look: int) -> float:
        """The error probability of one look at one point."""
        return self.settings.alpha / max(self.tests, 1) * self.settings.share(look)

    @property
    def scale(self) -> FeatureScale | None:
        """By which inputs are divided before distances are measured; None without a scale."""
        return scale_of_run(self.manifest)

    @property
    def samples_per_test(self) -> int:
        """Samples of one attack and its first look."""
        return self.search.samples_per_input + self.attacked.count_samples(self.settings.n)

    @property
    def workers(self) -> int:
        """Number of groups attacked in parallel: one per core, if model and device allow it."""
        allowed = self.search.most_workers or usable_cores()
        return max(1, min(self.attacked.workers or usable_cores(), usable_cores(), allowed))


def _is_victim(point: CertifiedPoint, radius: str) -> bool:
    certified = point.outcome is Outcome.CERTIFIED
    return certified or (radius != CERTIFIED and point.correct is True)


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
    """Load model, data and memory of the run, check that they are the same, and begin or resume the record.

    run: a directory, or RUN@CERTIFICATE for the radii of a certificate other than the first. moved: new places of
    model, data and memory, another device or number of workers.
    """
    settings.check()
    run, certificate = split_certificate(run)
    with open_stored(run) as store:
        manifest = store.manifest
        settings = settle_settings(settings, manifest.spec)
        if certificate is None:
            _mention_other_certificates(run, manifest, notice)
        if out is None:
            out = run / (RECORD if certificate is None else f"attack-{certificate}.jsonl")
        if settings.seed is None:
            known = read_recorded_seed(out)
            settings = dataclasses.replace(settings, seed=secrets.randbits(64) if known is None else known)
        points = _select_points(store, settings, certificate)
        if isinstance(store, SelectedRun):
            opening = open_selected_run(store, settings, points, moved=moved, fetching=fetching)
        else:
            opening = open_plain_run(run, settings, points, certificate, moved=moved, fetching=fetching)
        with opening as opened:
            if not any(_is_victim(point, radius) for radius in settings.radii for point in points):
                raise RunError(f"{run} has no input to attack: none is certified or correctly predicted")
            header = _build_header(manifest, points, settings, opened)
            with open_record(out, header) as record:
                attack = Attack(
                    settings, manifest, opened.attacked, opened.dataset, opened.search, points, record,
                    recorded_before=len(record.results),
                )  # fmt: skip
                _check_samples_suffice(attack)
                _check_recorded(attack)
                check = "by every evaluation" if settings.certain else f"at level {attack.level(0):.2g}"
                notice(
                    f"{attack.attacked.description}; gradients: {attack.search.source}; {attack.tests} attacks, each "
                    f"checked {check}"
                )
                yield attack


def _mention_other_certificates(run: Path, manifest: RunManifest, notice: Notice) -> None:
    first, *others = list_certificates(manifest)
    if others:
        named = ", ".join(f"{run}@{other}" for other in others)
        notice(f"{run} carries several certificates: attacked within the radii of {first}; for the others give {named}")


def _select_points(
    store: RunStore | SelectedRun, settings: AttackSettings, certificate: str | None
) -> tuple[CertifiedPoint, ...]:
    """The inputs that the settings select, each with only the verdict of that certificate."""
    selected = store.points(with_tallies=False)[:: settings.skip][: settings.max_inputs]
    return tuple(
        dataclasses.replace(point, verdict=find_verdict(point, certificate, str(store.path)), further=())
        for point in selected
    )


def _check_samples_suffice(attack: Attack) -> None:
    """Raise an InputError if a look cannot prove anything at its level."""
    for look in range(attack.settings.looks):
        attack.attacked.check_samples(attack.settings.samples(look), level=attack.level(look))


def _check_recorded(attack: Attack) -> None:
    """Raise a CorruptRunError if a recorded result is about an input, answer or radius that the run does not have."""
    known = {
        (radius, point.index, point.label, point.prediction, point.radius)
        for radius in attack.settings.radii
        for point in attack.victims(radius)
    }
    for result in attack.record.results:
        stated = (result.radius, result.index, result.label, result.prediction, result.certified_radius)
        if stated not in known:
            raise CorruptRunError(
                f"{attack.record.path} contradicts the run about input {result.index}: choose another --out, or move "
                "the file"
            )


def _build_header(
    manifest: RunManifest, points: Sequence[CertifiedPoint], settings: AttackSettings, opened: OpenedRun
) -> dict[str, Any]:
    """Everything an attack depends on: its settings, and the answers and radii of the run."""
    answers = hashlib.sha256()
    for point in points:
        answers.update(f"{point.index} {point.label} {point.prediction} {point.radius!r}\n".encode())
    return {
        "run": {
            "seed": manifest.seed,
            "model": manifest.digests.model,
            "data": manifest.digests.data,
            "alpha": manifest.spec.alpha,
            "inputs": len(points),
            "answers": answers.hexdigest(),
            **({} if opened.models is None else {"models": dict(opened.models)}),
        },
        "settings": {**settings.to_json(), "gradient": opened.search.source},
    }


@dataclass(frozen=True, slots=True)
class _AttackGroup:
    """Inputs that are attacked together within one radius, with the same noise."""

    radius: str
    points: Sequence[CertifiedPoint]


def run_attack(
    attack: Attack,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    notice: Notice = lambda _: None,
    on_results: Callable[[Sequence[AttackResult]], None] | None = None,
) -> None:
    """Attack group after group and record each. Groups that are already recorded are skipped.

    Groups are attacked in parallel, one per worker, which does not change the results; then they are checked one after
    the other. notice: is called at the first broken certificate, and for each look that takes more samples. stop: when
    set, the current groups are finished and recorded, then InterruptedRunError is raised.
    """
    done = {(result.radius, result.index) for result in attack.record.results}
    pending = [
        group
        for group in _form_groups(attack)
        if any((group.radius, point.index) not in done for point in group.points)
    ]
    has_warned = _warn_if_broken(attack.record.results, notice)
    for at in range(0, len(pending), attack.workers):
        if stop is not None and stop.is_set():
            raise InterruptedRunError(f"stopped on request; finished attacks are in {attack.record.path}")
        groups = pending[at : at + attack.workers]
        inputs = [_load_inputs(attack, group) for group in groups]
        for group, clean, found in zip(groups, inputs, _search_groups(attack, groups, inputs, progress), strict=True):
            results = _check_group(attack, group, clean, found, progress, notice)
            attack.record.add([result for result in results if (result.radius, result.index) not in done])
            has_warned = has_warned or _warn_if_broken(results, notice)
            if on_results is not None:
                on_results(results)


def _warn_if_broken(results: Sequence[AttackResult], notice: Notice) -> bool:
    broken = [result for result in results if result.breaks_certificate]
    if broken:
        notice(
            f"CERTIFICATE BROKEN: the answer to input {broken[0].index} changes inside its certified radius; the "
            "attack continues, and lists all such inputs at its end"
        )
    return bool(broken)


def _form_groups(attack: Attack) -> Iterator[_AttackGroup]:
    """Groups depend on the settings and the batch of the run only, so a resumed attack repeats them."""
    size = min(_INPUTS_AT_ONCE, attack.attacked.batch)
    for radius in attack.settings.radii:
        victims = attack.victims(radius)
        for at in range(0, len(victims), size):
            yield _AttackGroup(radius, victims[at : at + size])


def _load_inputs(attack: Attack, group: _AttackGroup) -> InputArray:
    inputs = attack.dataset.inputs([point.index for point in group.points])
    return attack.attacked.check_inputs(inputs if attack.scale is None else attack.scale.divide(inputs))


def _search_groups(
    attack: Attack, groups: Sequence[_AttackGroup], inputs: Sequence[InputArray], progress: Progress | None
) -> list[StrongestPoints]:
    """The strongest points of each group. Each group has its own thread."""
    if attack.workers == 1:
        return [_search_group(attack, group, clean, progress) for group, clean in zip(groups, inputs, strict=True)]
    is_abandoned = threading.Event()

    def report(samples: int) -> None:
        if is_abandoned.is_set():
            raise InterruptedRunError("stopped at once")
        if progress is not None:
            progress(samples)

    try:
        with ThreadPoolExecutor(attack.workers, initializer=make_thread_sequential) as pool:
            futures = [
                pool.submit(_search_group, attack, group, clean, report)
                for group, clean in zip(groups, inputs, strict=True)
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                is_abandoned.set()
                raise
    finally:
        restore_thread_default()


def _search_group(
    attack: Attack, group: _AttackGroup, inputs: InputArray, progress: Progress | None
) -> StrongestPoints:
    return attack.search.find_points(
        inputs,
        np.array([point.prediction for point in group.points], dtype=np.int64),
        sigmas=attack.attacked.find_sigmas(inputs, group.points),
        limits=np.array([attack.search.limit(group.radius, certified=point.radius) for point in group.points]),
        seed=_derive_seed(attack, "attack", group.radius, group.points[0].index),
        progress=progress,
    )


def _check_group(
    attack: Attack,
    group: _AttackGroup,
    inputs: InputArray,
    found: StrongestPoints,
    progress: Progress | None,
    notice: Notice,
) -> list[AttackResult]:
    """Judge the points found by fresh samples. Unsettled certificates get further looks, with more samples."""
    away = attack.search.measure(found.points, inputs)
    results: list[AttackResult] = []
    for look in range(attack.settings.looks):
        rows = [row for row in range(len(group.points)) if look == 0 or results[row].is_unsettled]
        if not rows:
            break
        n = attack.settings.samples(look)
        if look > 0:
            notice(
                f"{len(rows)} of {len(results)} certificates are neither confirmed nor contradicted: looking again, "
                f"with {n:,} fresh samples each"
            )
        # Each radius and look has its own stream, in which the index of the input separates the draws.
        verdicts = attack.attacked.judge(
            found.points[rows],
            [group.points[row] for row in rows],
            seed=_derive_seed(attack, "check", group.radius, look),
            n=n,
            level=attack.level(look),
            progress=progress if look == 0 else None,
        )
        latest = {
            row: _build_result(group, found, row, verdict, distance=float(away[row]), closed=attack.search.closed)
            for row, verdict in zip(rows, verdicts, strict=True)
        }
        results = [latest[row] if row in latest else results[row] for row in range(len(group.points))]
    return results


def _build_result(
    group: _AttackGroup, found: StrongestPoints, row: int, verdict: FreshVerdict, *, distance: float, closed: bool
) -> AttackResult:
    point = group.points[row]
    result = AttackResult(
        **{each.name: getattr(verdict, each.name) for each in dataclasses.fields(verdict)},
        radius=group.radius,
        index=point.index,
        label=point.label,
        certified_radius=point.radius,
        distance=distance,
        moved=bool(found.moved[row]),
        closed=closed,
    )
    if not (result.breaks_certificate or result.is_unsettled):
        return result
    evidence = base64.b64encode(found.points[row].astype("<f4").tobytes()).decode()
    return dataclasses.replace(result, point=evidence)


def _derive_seed(attack: Attack, *names: object) -> int:
    """A separate seed per purpose, so that run, attack and checks share no draw."""
    text = " ".join(map(str, (attack.settings.seed, attack.manifest.seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])

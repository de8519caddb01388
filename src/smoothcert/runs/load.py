"""Load the results of run directories and log files."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from smoothcert.errors import RunError
from smoothcert.records import CertifiedPoint, Outcome, Remark, RemarkCode, Settlement, TallyKind
from smoothcert.records.selection import SELECTED
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.scales import scale_of_run
from smoothcert.runs.tsv import read_log
from smoothcert.spec import Decide, EveryEvaluation, FixedN, RunManifest

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-200, 1e200


def load_results(path: Path, *, name: str | None = None) -> ResultColumns:
    """The results in a run directory or a TSV log. name: in tables.

    RUN@CERTIFICATE selects one of the certificates of a run; RUN alone selects the first, or the best of several.
    """
    name = name or distinguish_names([path])[0]
    return _load_place(*split_certificate(path), name=name)[0]


def load_all(paths: Sequence[Path]) -> list[ResultColumns]:
    """Several runs, each named by the shortest tail of its path that no other path has.

    A run with several certificates gives one entry for each of them.
    """
    return [results for _, results in load_each(paths)]


def load_each(paths: Sequence[Path]) -> list[tuple[Path, ResultColumns]]:
    """As `load_all`, each with the run directory or log it was read from."""
    loaded: list[tuple[Path, ResultColumns]] = []
    times: Counter[str] = Counter()
    for path, name in zip(paths, distinguish_names(paths), strict=True):
        place, certificate = split_certificate(path)
        for results in _load_place(place, certificate, name=name):
            _check_radii(results)
            times[results.name] += 1
            if times[results.name] > 1:  # the same certificate of a run was given twice
                results = dataclasses.replace(results, name=f"{results.name} ({times[results.name]})")
            loaded.append((place, results))
    return loaded


def _check_radii(results: ResultColumns) -> None:
    """Refuse radii with which the arithmetic of tables and figures would overflow."""
    largest = float(results.radius.max(initial=0.0))
    if largest and not _SMALLEST_SCALE < largest < _LARGEST_SCALE:
        raise RunError(f"{results.name} has radii up to {largest:g}, which no noise level allows")


def load_pair(first: Path, second: Path) -> tuple[ResultColumns, ResultColumns]:
    """Two runs to compare, with distinct names; of each the first certificate, or the one named."""
    one, other = distinguish_names([first, second])
    return load_results(first, name=one), load_results(second, name=other)


def split_certificate(path: Path) -> tuple[Path, str | None]:
    """The place and the certificate of RUN@CERTIFICATE. A path that exists has no certificate."""
    if path.exists():
        return path, None
    run, at, certificate = str(path).rpartition("@")
    if at and certificate and Path(run).is_dir():
        return Path(run), certificate
    raise RunError(f"{path} does not exist; expected a run directory or a log file")


def distinguish_names(paths: Sequence[Path]) -> list[str]:
    """For each path its shortest tail that no other path has; a repeated path is numbered."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    names: list[str] = []
    for own in parts:
        others = [other for other in parts if other != own]
        depth = next((n for n in range(1, len(own)) if all(other[-n:] != own[-n:] for other in others)), len(own))
        name = "/".join(own[-depth:])
        repeats = sum(1 for earlier in parts[: len(names)] if earlier == own)
        names.append(f"{name} ({repeats + 1})" if repeats else name)
    return names


def _load_place(place: Path, certificate: str | None, *, name: str) -> list[ResultColumns]:
    """The results by this certificate; by default, by each certificate of the run, in order. A log has one."""
    if not place.is_dir():
        return [read_log(place, name=name)]
    # The store imports SQLite and file locks, which a log does not need.
    from smoothcert.runs.selected_run import open_stored

    with open_stored(place) as store:
        points, manifest, kinds = store.points(with_tallies=False), store.manifest, store.kinds()
        spent = {} if _takes_n(manifest) else store.samples()
    return make_run_results(points, manifest, kinds, name=name, spent=spent, certificate=certificate)


def load_points(path: Path) -> list[CertifiedPoint]:
    """The points of RUN or RUN@CERTIFICATE with their tallies; none for a log."""
    place, _ = split_certificate(path)
    if not place.is_dir():
        return []
    from smoothcert.runs.selected_run import open_stored

    with open_stored(place) as store:
        return store.points()


def make_run_results(
    points: Sequence[CertifiedPoint],
    manifest: RunManifest,
    kinds: Set[TallyKind],
    *,
    name: str,
    spent: Mapping[int, int],
    certificate: str | None = None,
) -> list[ResultColumns]:
    """The points of a run as columns, once for each of its certificates. kinds: of the tallies of the estimation.

    spent: samples by index; only needed if their number depends on the input. certificate: only this one; `name` is
    then used as it is.
    """
    collected = CollectedResults(manifest, name=name, certificate=certificate)
    collected.add(points)
    return collected.finish(kinds, spent=spent)


class CollectedResults:
    """The points of a run as columns, once for each of its certificates. The points may come in batches.

    certificate: only this one; `name` is then used as it is.
    """

    def __init__(self, manifest: RunManifest, *, name: str, certificate: str | None = None) -> None:
        self._manifest = manifest
        self._names: dict[str | None, str] = {certificate: name}
        if certificate is None:
            self._names = {one: name if one is None else f"{name}@{one}" for one in list_certificates(manifest)}
        self._parts: dict[str | None, list[ResultColumns]] = {one: [] for one in self._names}
        self._settlements: Counter[Settlement] = Counter()

    def add(self, points: Sequence[CertifiedPoint]) -> None:
        for certificate, parts in self._parts.items():
            name = self._names[certificate]
            parts.append(ResultColumns.from_points(points, name=name, certificate=certificate))
        self._settlements.update(point.promise.settlement for point in points if point.promise is not None)

    def finish(self, kinds: Set[TallyKind], *, spent: Mapping[int, int]) -> list[ResultColumns]:
        """As of `make_run_results`, of all points so far."""
        return [
            _state_facts(first.joined(rest), self._manifest, kinds, settlements=self._settlements, spent=spent)
            for first, *rest in self._parts.values()
        ]


def _state_facts(
    columns: ResultColumns,
    manifest: RunManifest,
    kinds: Set[TallyKind],
    *,
    settlements: Counter[Settlement],
    spent: Mapping[int, int],
) -> ResultColumns:
    """The columns of one certificate with the facts of the manifest, and with remarks."""
    name = columns.name
    spec = manifest.spec
    results = dataclasses.replace(
        columns,
        alpha=spec.alpha,
        num_classes=manifest.model.num_classes,
        class_names=manifest.model.class_names,
        has_radius=manifest.task != "predict",
        independent_noise=not spec.noise.shared,
        scale=scale_of_run(manifest),
        expected=manifest.data.inputs,
        settings={"n": str(spec.question.n), "model": manifest.digests.model, "data": manifest.digests.data},
    )
    if not _takes_n(manifest):
        samples = np.array([spent.get(int(index), 0) for index in results.index], dtype=np.float64)
        results = dataclasses.replace(
            results,
            decided_radii=spec.question.radii if isinstance(spec.question, Decide) else (),
            most_samples=_most_samples(manifest),
            extra={**results.extra, "samples": samples},
        )
    remarks = [*_remark_halved(results, kinds), *_remark_memory(settlements, results), *_remark_spent(results)]
    if results.scale is not None and results.has_radius:
        values = {"norm": results.norm.value, "scale": list(results.scale.numbers)}
        remarks.append(Remark(RemarkCode.SCALED_NORM, name, values))
    if not spec.noise.kind.sampled:
        remarks.append(
            Remark(RemarkCode.EVERY_EVALUATION, name, {"n": spec.question.n, "steps": (manifest.grid or 2) - 1})
        )
    if manifest.grid is None and results.has_radius:
        remarks.append(Remark(RemarkCode.FLOAT_NOISE, name, {}))
    if spec.model.precision is not None:
        remarks.append(Remark(RemarkCode.HALF_PRECISION, name, {"dtype": spec.model.precision}))
    if manifest.model.has_random_weights:
        remarks.append(Remark(RemarkCode.RANDOM_WEIGHTS, name, {}))
    return dataclasses.replace(results, remarks=tuple(remarks))


def _takes_n(manifest: RunManifest) -> bool:
    """Whether every input takes n samples, or evaluations."""
    question = manifest.spec.question
    return isinstance(question, FixedN) or (isinstance(question, EveryEvaluation) and manifest.sigma is None)


def _most_samples(manifest: RunManifest) -> int:
    """The most samples one input takes; with a selector, of it and of all levels that may be sampled."""
    own = manifest.spec.question.n + manifest.spec.question.n0
    rule = manifest.sigma.rule if manifest.sigma is not None else {}
    if rule.get("kind") != SELECTED:
        return own
    return int(rule["sampled"]) * own + int(rule["selector_n"])


def _remark_spent(results: ResultColumns) -> Iterator[Remark]:
    """For a run that stopped early: its cost, and the radii it decided on."""
    if results.most_samples is None:
        return
    samples, inputs = results.extra["samples"], len(results)
    total = int(samples.sum())
    yield Remark(
        RemarkCode.SAMPLES_SPENT,
        results.name,
        {
            "total": total,
            "inputs": inputs,
            "mean": total / inputs,
            "percent": 100 * total / (results.most_samples * inputs),
            "limit": results.most_samples,
            "most": int(samples.max()),
        },
    )
    if results.decided_radii:
        yield Remark(RemarkCode.DECIDED_RADII, results.name, {"radii": list(results.decided_radii)})


def _remark_memory(settlements: Counter[Settlement], results: ResultColumns) -> Iterator[Remark]:
    """For results from a memory: how often it changed an answer, and what the radii depend on."""
    if settlements and results.has_radius:
        counts = {one.value: settlements[one] for one in Settlement}
        yield Remark(RemarkCode.REGIONS_OF_MEMORY, results.name, {"settlements": counts})
    elif settlements:
        values = {"answers": settlements.total(), "inputs": len(results)}
        yield Remark(RemarkCode.ANSWERS_FROM_MEMORY, results.name, values)


def _remark_halved(results: ResultColumns, kinds: Set[TallyKind]) -> Iterator[Remark]:
    """For results from pairs: a bound on p_A alone uses half of the votes."""
    from_votes = np.isfinite(results.p_a) & results.is_outcome(Outcome.CERTIFIED)
    if TallyKind.PAIRS in kinds and from_votes.any():
        names = [str(name) for name in np.unique(results.certificate[from_votes])]
        yield Remark(RemarkCode.HALF_OF_THE_VOTES, results.name, {"certificates": names})


def list_certificates(manifest: RunManifest) -> list[str | None]:
    """The certificates to show separately; [None] for a single one or the best of several: the point's own verdict."""
    names = () if manifest.spec.best_of else manifest.spec.certificates
    return list(names) if len(names) > 1 else [None]

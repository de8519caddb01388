"""Opening what a user points at: a run directory of ours, or a log file somebody has."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from smoothcert.errors import CorruptRunError, RunError
from smoothcert.records import CertifiedPoint, Outcome, RunManifest, Settlement, TallyKind
from smoothcert.runs.results import Results
from smoothcert.runs.tsv import read_log

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-200, 1e200


def load_results(path: Path, *, name: str | None = None) -> Results:
    """The results in a run directory or a TSV log; `name` is what tables call it.

    RUN@CERTIFICATE means that one of the certificates the run carries; RUN alone means the first, or the best of them.
    """
    name = name or distinguishing_names([path])[0]
    place, certificate = split_certificate(path)
    return _load_directory(place, certificate, name=name)[0] if place.is_dir() else read_log(place, name=name)


def load_all(paths: Sequence[Path]) -> list[Results]:
    """Several runs, each named by the shortest tail of its path that tells it from the others.

    A run that carries several certificates is there once for each of them.
    """
    return [results for _, results in load_each(paths)]


def load_each(paths: Sequence[Path]) -> list[tuple[Path, Results]]:
    """As `load_all`, each with the run directory or log it was read from."""
    found: list[Results] = []
    places: list[Path] = []
    for path, name in zip(paths, distinguishing_names(paths), strict=True):
        place, certificate = split_certificate(path)
        if place.is_dir():
            found += _load_directory(place, certificate, name=name)
        else:
            found.append(read_log(place, name=name))
        places += [place] * (len(found) - len(places))
    for results in found:
        _refuse_absurd_radii(results)
    return list(zip(places, _numbered(found), strict=True))


def _refuse_absurd_radii(results: Results) -> None:
    """What tables and figures compute with radii must stay within what a float can hold."""
    largest = float(results.radius.max(initial=0.0))
    if largest and not _SMALLEST_SCALE < largest < _LARGEST_SCALE:
        raise RunError(f"{results.name} holds radii up to {largest:g}, which no level of noise allows")


def _numbered(runs: Sequence[Results]) -> list[Results]:
    """The same certificate of a run, asked for twice, is told apart by a number."""
    seen: Counter[str] = Counter()
    numbered = []
    for run in runs:
        seen[run.name] += 1
        again = seen[run.name]
        numbered.append(run if again == 1 else dataclasses.replace(run, name=f"{run.name} ({again})"))
    return numbered


def load_pair(first: Path, second: Path) -> tuple[Results, Results]:
    """Two runs to be compared, with names that tell them apart; of each the first certificate, or the one named."""
    one, other = distinguishing_names([first, second])
    return load_results(first, name=one), load_results(second, name=other)


def split_certificate(path: Path) -> tuple[Path, str | None]:
    """The place and the certificate that RUN@CERTIFICATE names; a path that exists is taken as it is."""
    if path.exists():
        return path, None
    run, at, certificate = str(path).rpartition("@")
    if at and certificate and Path(run).is_dir():
        return Path(run), certificate
    raise RunError(f"{path} does not exist; expected a run directory or a log file")


def distinguishing_names(paths: Sequence[Path]) -> list[str]:
    """For each path its shortest tail that no other path ends in; the same path given again is numbered."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    names: list[str] = []
    for own in parts:
        others = [other for other in parts if other != own]
        depth = next((n for n in range(1, len(own)) if all(other[-n:] != own[-n:] for other in others)), len(own))
        name = "/".join(own[-depth:])
        repeats = sum(1 for earlier in parts[: len(names)] if earlier == own)
        names.append(f"{name} ({repeats + 1})" if repeats else name)
    return names


def _load_directory(path: Path, certificate: str | None, *, name: str) -> list[Results]:
    """The results by that certificate; without one, by each of those the run carries, the first one first."""
    # The store brings SQLite and file locks along, which a log file does not need.
    from smoothcert.runs.store import RunStore

    with RunStore.open(path) as store:
        points, manifest, kinds = store.points(with_tallies=False), store.manifest, store.kinds()
        spent = store.samples() if _was_stopped(manifest) else {}
    if certificate is not None:
        return [_results(points, manifest, kinds, name=name, certificate=certificate, spent=spent)]
    return results_of_run(points, manifest, kinds, name=name, spent=spent)


def _was_stopped(manifest: RunManifest) -> bool:
    """Whether every input was sampled only until its votes had answered a question."""
    return "decide" in manifest.parameters or "precision" in manifest.parameters


def results_of_run(
    points: Sequence[CertifiedPoint],
    manifest: RunManifest,
    kinds: Set[TallyKind],
    *,
    name: str,
    spent: Mapping[int, int],
) -> list[Results]:
    """The points of a run as columns, once for each certificate it carries. kinds: what was sampled to prove it.

    spent: by index, how many samples were drawn; only needed where that differs from input to input.
    """
    return [
        _results(points, manifest, kinds, name=name if one is None else f"{name}@{one}", certificate=one, spent=spent)
        for one in carried_certificates(manifest.parameters.get("certificate", ""))
    ]


def _results(
    points: Sequence[CertifiedPoint],
    manifest: RunManifest,
    kinds: Set[TallyKind],
    *,
    name: str,
    certificate: str | None,
    spent: Mapping[int, int],
) -> Results:
    """The verdicts of one certificate, None for the points' own, with what the manifest says about all of them."""
    alpha, num_classes = manifest.parameters.get("alpha"), manifest.model.get("num_classes")
    stated = {
        "n": manifest.parameters.get("n"),
        "model": manifest.model.get("digest"),
        "data": manifest.data.get("digest"),
    }
    results = Results.from_points(
        points,
        name=name,
        alpha=None if alpha is None else float(alpha),
        num_classes=None if num_classes is None else int(num_classes),
        has_radius=manifest.task != "predict",
        independent_noise=bool(manifest.parameters.get("independent_noise", True)),
        expected=manifest.parameters.get("inputs"),
        certificate=certificate,
        settings={key: str(value) for key, value in stated.items() if value is not None},
    )
    if _was_stopped(manifest):
        results = _stopped(results, manifest, spent)
    halved = _halved(results) if TallyKind.PAIRS in kinds else ()
    in_float = _in_floating_point(results, manifest)
    return dataclasses.replace(results, remarks=(*halved, *_settled(points, results), *_saved(results), *in_float))


def _in_floating_point(results: Results, manifest: RunManifest) -> tuple[str, ...]:
    """What the reader of radii should know about noise that was not exact."""
    if manifest.parameters.get("grid") is not None or not results.has_radius:
        return ()
    return (f"{results.name}: noise was added in float32 and taken for the ideal one; not sound in floating point.",)


def _stopped(results: Results, manifest: RunManifest, spent: Mapping[int, int]) -> Results:
    """With what is particular to a run that stopped sampling when it had an answer."""
    parameters = manifest.parameters
    samples = np.array([spent.get(int(index), 0) for index in results.index], dtype=np.float64)
    try:
        return dataclasses.replace(
            results,
            asked=tuple(float(radius) for radius in parameters.get("decide") or ()),
            most_samples=int(parameters["n"]) + int(parameters["n0"]),
            extra={**results.extra, "samples": samples},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRunError(f"{results.name} does not say what was asked of its inputs: {error}") from error


def _saved(results: Results) -> tuple[str, ...]:
    """What the reader of a run that stopped early should know: what it cost, and which radii it says nothing about."""
    if results.most_samples is None:
        return ()
    samples, whole = results.extra["samples"], results.most_samples * len(results)
    total = int(samples.sum())
    cost = (
        f"{results.name}: {total:,} samples for {len(results)} inputs, {total / len(results):,.0f} each, selection "
        f"included: {100 * total / whole:.3g} % of what n0 + n = {results.most_samples:,} samples each would be. "
        f"The most for one input was {int(samples.max()):,}."
    )
    if not results.asked:
        return (cost,)
    asked = ", ".join(f"{radius:g}" for radius in results.asked)
    return (
        cost,
        f"{results.name}: only the radii {asked} were decided. Each input has the largest of them that is proved, so "
        "ACR is a lower bound; so is certified accuracy between them, and beyond them nothing is known.",
    )


def _settled(points: Sequence[CertifiedPoint], results: Results) -> tuple[str, ...]:
    """What the reader of results from a memory should know: how often it changed an answer, and what they hang on."""
    settled = Counter(point.promise.settlement for point in points if point.promise is not None)
    if not settled:
        return ()
    if not results.has_radius:
        return (f"{results.name}: {settled.total()} of {len(results)} answers were looked up in a memory.",)
    counts = ", ".join(f"{settled[one]} {one.name.lower()}" for one in Settlement)
    return (
        f"{results.name}: regions kept by a memory: {counts}. The radii hold for as long as the memory lives and is "
        "consulted, and depend on the order of the inputs.",
    )


def _halved(results: Results) -> tuple[str, ...]:
    """What the reader of results from pairs should know: a bound on p_A alone has used half of the votes."""
    from_votes = np.isfinite(results.p_a) & results.is_outcome(Outcome.CERTIFIED)
    if not from_votes.any():
        return ()
    names = ", ".join(np.unique(results.certificate[from_votes]))
    return (
        f"{results.name}: {names} used the votes at x+ε only, half of all, because those at x-ε depend on them; "
        "compare dipole with a run of its own.",
    )


def carried_certificates(stated: str) -> list[str | None]:
    """The certificates to show apart, of what a manifest states.

    All of "a,b". For "best-of(a,b)" and for a single one None, which means the point's own verdict.
    """
    names = [] if stated.startswith("best-of(") else stated.split(",")
    return list(names) if len(names) > 1 else [None]

"""The results of a report, with what their run directory and their dataset state about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from smoothcert.data import Dataset, load_requested
from smoothcert.data.matching import match_dataset
from smoothcert.data.named_datasets import CATALOGUE
from smoothcert.errors import DataError, RunError, SmoothcertError
from smoothcert.records import CertifiedPoint, FloatArray, Noise, TallyKind
from smoothcert.records.class_names import find_shared_names
from smoothcert.records.selection import SELECTED
from smoothcert.records.sentences import describe_noise
from smoothcert.report.plain_text import clip
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.load import list_certificates, load_each
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.run_files import locate_data
from smoothcert.runs.selected_run import open_stored
from smoothcert.spec import FIRST_LAYER, ConstantLevel, DataSpec, RunManifest

_LARGEST_UNASKED = 2**31
"""Largest file, in bytes, that is read because a manifest names it. `--data` has no limit."""

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Inputs:
    """The dataset of a run, or why it cannot be shown. class_names: those of the run."""

    dataset: Dataset | None
    missing: str | None = None
    class_names: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes: of the run, else of the dataset."""
        return self.class_names or (() if self.dataset is None else self.dataset.class_names)

    def class_name(self, label: int) -> str:
        names = self.names
        return clip(names[label], most=_LONGEST_NAME) if 0 <= label < len(names) else str(label)


@dataclass(frozen=True, slots=True)
class Source:
    """One set of results, with what its run directory states; a log states nothing.

    samples: noisy copies that were classified in total. unanimous: by index the class that won every vote. held: the
    run, if it is in memory; `place` is then only its name.
    """

    place: Path
    results: ResultColumns
    inputs: Inputs
    manifest: RunManifest | None = None
    kinds: frozenset[TallyKind] = frozenset()
    samples: int | None = None
    unanimous: Mapping[int, int] = field(default_factory=dict)
    held: HeldRun | None = None

    @property
    def name(self) -> str:
        return self.results.name

    @property
    def run_name(self) -> str:
        """The name of the run, without the certificate."""
        certificate = str(self.results.certificate[0])
        return self.name.removesuffix(f"@{certificate}") if self.has_several_certificates else self.name

    @property
    def has_curve(self) -> bool:
        """Whether certified accuracy is known: there are radii, and all labels are known."""
        return self.results.has_radius and bool(self.results.labelled.all())

    @property
    def levels(self) -> FloatArray:
        """The known noise levels of the inputs."""
        return self.results.sigma[np.isfinite(self.results.sigma)]

    @property
    def selectable_levels(self) -> tuple[float, ...]:
        """The noise levels that a selector chooses among; empty without one."""
        rule = {} if self.manifest is None or self.manifest.sigma is None else self.manifest.sigma.rule
        return tuple(rule["levels"]) if rule.get("kind") == SELECTED else ()

    @property
    def has_several_certificates(self) -> bool:
        """Whether the results of several certificates are shown separately."""
        return self.manifest is not None and len(list_certificates(self.manifest)) > 1

    @property
    def has_memory(self) -> bool:
        return self.manifest is not None and self.manifest.digests.memory is not None

    @property
    def noise(self) -> Noise:
        return Noise.GAUSSIAN if self.manifest is None else self.manifest.spec.noise.kind

    @property
    def grid(self) -> int | None:
        return None if self.manifest is None else self.manifest.grid

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """The settings of the run, by title."""
        if self.manifest is None:
            return (("source", "a log"),)
        manifest, spec = self.manifest, self.manifest.spec
        sigma = "by input"
        if isinstance(spec.sigma, ConstantLevel):
            sigma = str(spec.sigma.level)
        elif self.levels.size:
            sigma = f"by input, {self.levels.min():.4g} to {self.levels.max():.4g}"
        if self.selectable_levels and manifest.sigma is not None:
            levels = ", ".join(f"{level:g}" for level in self.selectable_levels)
            sigma = f"one of {levels}, chosen by a selector whose own is {manifest.sigma.rule['selector_sigma']:g}"
        sampled = spec.noise.kind.sampled
        settings = {
            "model": manifest.model.description or spec.model.place,
            "data": manifest.data.name,
            "split": spec.data.split,
            "noise": f"{spec.noise.kind} {describe_noise(self.grid, first_layer=spec.noise.place == FIRST_LAYER)}",
            self.noise.facts.level_symbol: sigma,
            "samples to select the class (n0)": spec.question.n0 or None,
            "samples to prove it (n)" if sampled else "evaluations of each input": spec.question.n,
            "error probability (α)": spec.alpha if sampled else "0: nothing is sampled",
            "certificate": spec.certificate_text or None,
            "back end": manifest.measured.backend,
            "precision of the model": spec.model.precision,
            "seed" if sampled else "seed of the offsets": manifest.seed,
        }
        return tuple((title, str(value)) for title, value in settings.items() if value is not None)

    def points_of(self, indices: Sequence[int]) -> list[CertifiedPoint]:
        """The stored points with their tallies; none for a log."""
        if self.manifest is None:
            return []
        if self.held is not None:
            wanted = set(indices)
            return [point for point in self.held.points if point.index in wanted]
        with open_stored(self.place) as store:
            return store.points_of(indices)


def load_sources(
    paths: Sequence[Path], *, data: str | None = None, held: Mapping[str, tuple[HeldRun, str | None]] | None = None
) -> list[Source]:
    """Load runs and logs, named as in `table`. data: where the inputs are, if not where the runs state. held: further
    runs, which are in memory, by name, each with the certificate to show; None shows all of them.
    """
    if not paths and not held:
        raise RunError("no run was given; a report needs at least one")
    datasets: dict[tuple[DataSpec, bool], Inputs] = {}
    by_place: dict[Path, Source] = {}
    sources = []
    for place, results in load_each(paths):
        if place not in by_place:
            by_place[place] = _read_source(place, results, data, datasets)
        known = by_place[place]
        sources.append(replace(known, results=results, inputs=_check_labels(known.inputs, results)))
    return sources + [source for name, run in (held or {}).items() for source in _list_held(name, *run)]


def _list_held(name: str, run: HeldRun, certificate: str | None) -> list[Source]:
    """A run in memory, by this certificate, or once for each that it has."""
    inputs = Inputs(None, "results in memory do not contain the inputs", run.manifest.model.class_names)
    samples = sum(run.samples.values())
    return [
        Source(Path(name), results, inputs, run.manifest, frozenset(run.kinds), samples, run.unanimous, run)
        for results in run.results(name=name, certificate=certificate)
    ]


def shared_inputs(sources: Sequence[Source]) -> Inputs:
    """Only the class names of all sources; none if they differ."""
    return Inputs(None, class_names=find_shared_names(source.inputs.names for source in sources))


def _check_labels(inputs: Inputs, results: ResultColumns) -> Inputs:
    """The inputs, unless indices or labels differ from those of the results. A log has no digest to compare."""
    if inputs.dataset is None:
        return inputs
    name, size = inputs.dataset.name, len(inputs.dataset)
    if int(results.index.min()) < 0 or int(results.index.max()) >= size:
        return Inputs(None, f"{name} has only inputs 0 to {size - 1}", inputs.class_names)
    labels, known = inputs.dataset.labels[results.index], results.labelled
    other = int(((labels != results.label) & known & (labels >= 0)).sum())
    if other:
        return Inputs(None, f"{name} has other labels for {other} of {len(results)} inputs", inputs.class_names)
    return inputs


def _read_source(
    place: Path, results: ResultColumns, data: str | None, datasets: dict[tuple[DataSpec, bool], Inputs]
) -> Source:
    """datasets: those loaded for other runs of the same report."""
    if not place.is_dir():
        inputs = Inputs(None, "a log does not state which inputs it is about; give --data")
        if data is not None:
            inputs = _load_once(DataSpec(place=data), datasets, named_by_user=True)
        return Source(place, results, inputs)
    with open_stored(place) as store:
        manifest, kinds, samples, unanimous = store.manifest, store.kinds(), store.samples(), store.unanimous()
    kept = locate_data(place, manifest.spec.data)
    wanted = kept if data is None else msgspec.structs.replace(kept, place=data)
    inputs = _check_digest(_load_once(wanted, datasets, named_by_user=data is not None), manifest)
    inputs = replace(inputs, class_names=manifest.model.class_names)
    return Source(place, results, inputs, manifest, frozenset(kinds), sum(samples.values()), unanimous)


def _check_digest(inputs: Inputs, manifest: RunManifest) -> Inputs:
    """The inputs with columns and labels as the run has them, if they have the digest of the manifest.

    A manifest may come from a stranger: nothing of a file that it names is shown unless it also knows the digest.
    """
    if inputs.dataset is None:
        return inputs
    try:
        dataset = match_dataset(
            inputs.dataset, class_names=manifest.model.class_names, feature_names=manifest.data.feature_names
        )
        same = dataset.digest == manifest.digests.data
    except (SmoothcertError, OSError) as error:
        return Inputs(None, f"the inputs could not be read ({type(error).__name__})")
    name = inputs.dataset.name
    return Inputs(dataset) if same else Inputs(None, f"{name} is not the data that was certified: its digest differs")


def _load_once(data: DataSpec, datasets: dict[tuple[DataSpec, bool], Inputs], *, named_by_user: bool) -> Inputs:
    key = (data, named_by_user)
    if key not in datasets:
        datasets[key] = _load_inputs(data, named_by_user=named_by_user)
    return datasets[key]


def _load_inputs(data: DataSpec, *, named_by_user: bool) -> Inputs:
    """The dataset, if it is on this machine. Unless the reader named it, it may be any of the reader's files."""
    try:
        if not named_by_user:
            _refuse_large_file(data.place)
        dataset = load_requested(data, fetch_missing=False)
    except (SmoothcertError, OSError, ValueError, RuntimeError) as error:
        # The error may quote the file, and the page may be sent to the person who named that file.
        quotable = named_by_user or data.place in CATALOGUE
        return Inputs(
            None, f"the inputs could not be loaded{f' ({error})' if quotable else f': try --data {data.place}'}"
        )
    return Inputs(dataset)


def _refuse_large_file(name: str) -> None:
    path = Path(name).expanduser()
    if path.is_file() and path.stat().st_size > _LARGEST_UNASKED:
        raise DataError(f"{name} has more than {_LARGEST_UNASKED:,} bytes")

"""What a report is made from: results, and what their run directory and their dataset say besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.data import Dataset, load_dataset, parse_input_range, parse_shape
from smoothcert.data.named_datasets import CATALOGUE
from smoothcert.errors import DataError, RunError, SmoothcertError
from smoothcert.records import CertifiedPoint, FloatArray, Noise, RunManifest, TallyKind
from smoothcert.report.plain_text import clipped
from smoothcert.runs.load import carried_certificates, load_each
from smoothcert.runs.results import Results
from smoothcert.runs.store import RunStore

_LARGEST_UNASKED = 2**31
"""Bytes of a file that are read because a manifest names it; more are read only where the reader names it."""

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Inputs:
    """The dataset of a run, or why it cannot be shown."""

    dataset: Dataset | None
    missing: str | None = None

    def class_name(self, label: int) -> str:
        names = () if self.dataset is None else self.dataset.class_names
        return clipped(names[label], most=_LONGEST_NAME) if 0 <= label < len(names) else str(label)


@dataclass(frozen=True, slots=True)
class Source:
    """One set of results. manifest, kinds, samples, unanimous: what the run says; None and nothing for a log.

    samples: how many noisy copies were classified in all. unanimous: by index the class that won every vote.
    """

    place: Path
    results: Results
    manifest: RunManifest | None
    kinds: frozenset[TallyKind]
    samples: int | None
    unanimous: Mapping[int, int]
    inputs: Inputs

    @property
    def name(self) -> str:
        return self.results.name

    @property
    def run_name(self) -> str:
        """The name without the certificate, where the run carries several."""
        return self.name.rpartition("@")[0] if len(self.certificates) > 1 and "@" in self.name else self.name

    @property
    def certificates(self) -> list[str | None]:
        """Those that are shown apart."""
        return carried_certificates(str(self.parameters.get("certificate", "")))

    @property
    def has_curve(self) -> bool:
        """Whether certified accuracy can be told: there are radii, and every label is known."""
        return self.results.has_radius and bool(self.results.labelled.all())

    @property
    def levels(self) -> FloatArray:
        """The noise levels that are known, one for each input that has one."""
        return self.results.sigma[np.isfinite(self.results.sigma)]

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {} if self.manifest is None else self.manifest.parameters

    @property
    def origin(self) -> Mapping[str, Any]:
        """What was recorded when the samples were drawn: where model and data lay, and what was asked for."""
        return {} if self.manifest is None else _origin(self.manifest)

    @property
    def recertified(self) -> bool:
        return self.manifest is not None and "recertified_from" in self.manifest.extra

    @property
    def job(self) -> Mapping[str, Any]:
        return _job(self.origin)

    @property
    def noise(self) -> Noise:
        stated = str(self.parameters.get("noise", ""))
        return next((noise for noise in Noise if stated.startswith(noise.value)), Noise.GAUSSIAN)

    @property
    def grid(self) -> int | None:
        grid = self.parameters.get("grid")
        return grid if type(grid) is int and grid > 1 else None

    def points_of(self, indices: Sequence[int]) -> list[CertifiedPoint]:
        """The stored points with their tallies; none for a log."""
        if self.manifest is None:
            return []
        with RunStore.open(self.place) as store:
            return store.points_of(indices)


def load_sources(paths: Sequence[Path], *, data: str | None = None) -> list[Source]:
    """The runs and logs, named as `table` names them. data: where the inputs lie, if not where the runs say."""
    if not paths:
        raise RunError("no run was given: a report needs at least one")
    loaded: dict[str, Inputs] = {}
    facts: dict[Path, _Facts] = {}
    sources = []
    for place, results in load_each(paths):
        if place not in facts:
            facts[place] = _facts(place, data, loaded)
        known = facts[place]
        sources.append(
            Source(
                place=place,
                results=results,
                manifest=known.manifest,
                kinds=known.kinds,
                samples=known.samples,
                unanimous=known.unanimous,
                inputs=_fitting(known.inputs, results),
            )
        )
    return sources


def shared_inputs(sources: Sequence[Source]) -> Inputs:
    """Whose class names may stand for the classes of all: nobody's, where two datasets name them differently."""
    known = [source.inputs for source in sources if source.inputs.dataset is not None]
    names = {one.dataset.class_names for one in known if one.dataset is not None}
    return known[0] if len(names) == 1 else Inputs(None)


def _fitting(inputs: Inputs, results: Results) -> Inputs:
    """The inputs, if they can be those of the results: a log has no digest, but it has indices and labels."""
    if inputs.dataset is None:
        return inputs
    name, size = inputs.dataset.name, len(inputs.dataset)
    if int(results.index.min()) < 0 or int(results.index.max()) >= size:
        return Inputs(None, f"{name} has only inputs 0 to {size - 1}")
    labels, known = inputs.dataset.labels[results.index], results.labelled
    other = int(((labels != results.label) & known & (labels >= 0)).sum())
    if other:
        return Inputs(None, f"{name} has other labels for {other} of {len(results)} inputs")
    return inputs


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a run directory says besides its results; see Source."""

    inputs: Inputs
    manifest: RunManifest | None = None
    kinds: frozenset[TallyKind] = frozenset()
    samples: int | None = None
    unanimous: Mapping[int, int] = field(default_factory=dict)


def _facts(place: Path, data: str | None, loaded: dict[str, Inputs]) -> _Facts:
    """loaded: datasets that other runs of the same report brought; most reports are about one."""
    if not place.is_dir():
        missing = Inputs(None, "a log does not say which inputs it is about; give --data")
        return _Facts(missing if data is None else _load_once({"data": data}, loaded, named_by_user=True))
    with RunStore.open(place) as store:
        manifest, kinds, samples, unanimous = store.manifest, store.kinds(), store.samples(), store.unanimous()
    recorded = _job(_origin(manifest))
    if data is not None:
        recorded = {**recorded, "data": data}
    inputs = _load_once(recorded, loaded, named_by_user=data is not None)
    return _Facts(_certified(inputs, manifest), manifest, frozenset(kinds), sum(samples.values()), unanimous)


def _origin(manifest: RunManifest) -> Mapping[str, Any]:
    """The extra part of the manifest that the samples were drawn under; a recertified run carries it along."""
    extra: Any = manifest.extra
    while isinstance(source := extra.get("recertified_from"), dict) and isinstance(source.get("extra"), dict):
        extra = source["extra"]
    return dict(extra)


def _job(origin: Mapping[str, Any]) -> Mapping[str, Any]:
    job = origin.get("job")
    return job if isinstance(job, dict) else {}


def _certified(inputs: Inputs, manifest: RunManifest) -> Inputs:
    """The inputs, if they are those of the run.

    A manifest may come from a stranger: nothing of a file that it names is shown unless its digest is known, too.
    """
    if inputs.dataset is None:
        return inputs
    try:
        same = inputs.dataset.digest == manifest.data.get("digest")
    except (SmoothcertError, OSError) as error:
        return Inputs(None, f"the inputs could not be read ({type(error).__name__})")
    name = inputs.dataset.name
    return inputs if same else Inputs(None, f"the data called {name} is not what was certified: its digest differs")


def _load_once(job: Mapping[str, Any], loaded: dict[str, Inputs], *, named_by_user: bool) -> Inputs:
    keys = ("data", "split", "data_root", "input_range", "input_shape", "num_classes")
    what = repr([named_by_user, *(job.get(key) for key in keys)])
    if what not in loaded:
        loaded[what] = _load_inputs(job, named_by_user=named_by_user)
    return loaded[what]


def _load_inputs(job: Mapping[str, Any], *, named_by_user: bool) -> Inputs:
    """The dataset a run names, if it is here. Where the reader did not name it himself, it may be any file of his."""
    name = job.get("data")
    if not isinstance(name, str) or not name:
        return Inputs(None, "the run does not say where its inputs lie; give --data")
    root, classes = job.get("data_root"), job.get("num_classes")
    try:
        if not named_by_user:
            _refuse_what_is_too_large(name)
        dataset = load_dataset(
            name,
            split=str(job.get("split") or "test"),
            root=Path(root) if isinstance(root, str) else None,
            input_range=parse_input_range(_text(job.get("input_range"))),
            input_shape=parse_shape(_text(job.get("input_shape"))),
            num_classes=classes if type(classes) is int else None,
            fetch_missing=False,
        )
    except (SmoothcertError, OSError, ValueError, RuntimeError) as error:
        # The error may quote the file, and the page is made to be sent, perhaps to whoever named that file.
        why = f" ({error})" if named_by_user or name in CATALOGUE else f": see what --data {name} says"
        return Inputs(None, f"the inputs could not be loaded{why}")
    return Inputs(dataset)


def _refuse_what_is_too_large(name: str) -> None:
    path = Path(name).expanduser()
    if path.is_file() and path.stat().st_size > _LARGEST_UNASKED:
        raise DataError(f"{name} has more than {_LARGEST_UNASKED:,} bytes")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

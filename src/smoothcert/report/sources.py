"""What a report is made from: results, and what their run directory and their dataset say besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.data import load_dataset, parse_input_range, parse_shape
from smoothcert.data.base import Dataset
from smoothcert.errors import RunError, SmoothcertError
from smoothcert.records import CertifiedPoint, Noise, RunManifest, TallyKind
from smoothcert.runs.load import carried_certificates, load_each
from smoothcert.runs.results import Results
from smoothcert.runs.store import RunStore


@dataclass(frozen=True, slots=True)
class Inputs:
    """The dataset of a run, or why it cannot be shown."""

    dataset: Dataset | None
    missing: str | None = None

    def class_name(self, label: int) -> str:
        names = () if self.dataset is None else self.dataset.class_names
        return names[label] if 0 <= label < len(names) else str(label)


@dataclass(frozen=True, slots=True)
class Source:
    """One set of results. manifest, kinds, samples: what the run says; None and nothing for a log.

    samples: how many noisy copies were classified in all.
    """

    place: Path
    results: Results
    manifest: RunManifest | None
    kinds: frozenset[TallyKind]
    samples: int | None
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
    def parameters(self) -> Mapping[str, Any]:
        return {} if self.manifest is None else self.manifest.parameters

    @property
    def noise(self) -> Noise:
        return Noise.UNIFORM if str(self.parameters.get("noise", "")).startswith("uniform") else Noise.GAUSSIAN

    @property
    def grid(self) -> int | None:
        grid = self.parameters.get("grid")
        return grid if type(grid) is int and grid > 1 else None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one input; empty where neither data nor manifest say it."""
        if self.inputs.dataset is not None:
            return self.inputs.dataset.input_shape
        shape = None if self.manifest is None else self.manifest.data.get("input_shape")
        return tuple(shape) if isinstance(shape, list) and all(type(side) is int for side in shape) else ()

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
    facts: dict[Path, tuple[RunManifest | None, frozenset[TallyKind], int | None, Inputs]] = {}
    sources = []
    for place, results in load_each(paths):
        if place not in facts:
            facts[place] = _facts(place, data)
        manifest, kinds, samples, inputs = facts[place]
        sources.append(Source(place, results, manifest, kinds, samples, _fitting(inputs, results)))
    return sources


def _fitting(inputs: Inputs, results: Results) -> Inputs:
    """The inputs, if they can be those of the results: a log has no digest, but it has indices and labels."""
    if inputs.dataset is None:
        return inputs
    name, size = inputs.dataset.name, len(inputs.dataset)
    if int(results.index.max()) >= size:
        return Inputs(None, f"{name} has only {size} inputs")
    labels, known = inputs.dataset.labels[results.index], results.labelled
    other = int(((labels != results.label) & known & (labels >= 0)).sum())
    if other:
        return Inputs(None, f"{name} has other labels for {other} of {len(results)} inputs")
    return inputs


def _facts(place: Path, data: str | None) -> tuple[RunManifest | None, frozenset[TallyKind], int | None, Inputs]:
    if not place.is_dir():
        inputs = Inputs(None, "a log does not say which inputs it is about; give --data")
        return None, frozenset(), None, inputs if data is None else _load_inputs({"data": data}, digest=None)
    with RunStore.open(place) as store:
        manifest, kinds, samples = store.manifest, frozenset(store.kinds()), sum(store.samples().values())
    job = manifest.extra.get("job")
    recorded = job if isinstance(job, dict) else {}
    if data is not None:
        recorded = {**recorded, "data": data}
    digest = manifest.data.get("digest")
    # A manifest may come from a stranger: nothing of a file that it names is shown unless its digest is known, too.
    return manifest, kinds, samples, _load_inputs(recorded, digest=digest if isinstance(digest, str) else "")


def _load_inputs(job: Mapping[str, Any], *, digest: str | None) -> Inputs:
    """The dataset that was certified, if it is here and still the same. digest: None where nobody recorded one."""
    name = job.get("data")
    if not isinstance(name, str) or not name:
        return Inputs(None, "the run does not say where its inputs lie; give --data")
    root, classes = job.get("data_root"), job.get("num_classes")
    try:
        dataset = load_dataset(
            name,
            split=str(job.get("split") or "test"),
            root=Path(root) if isinstance(root, str) else None,
            input_range=parse_input_range(_text(job.get("input_range"))),
            input_shape=parse_shape(_text(job.get("input_shape"))),
            num_classes=classes if type(classes) is int else None,
            fetch_missing=False,
        )
        same = digest is None or dataset.digest == digest
    except (SmoothcertError, OSError) as error:
        return Inputs(None, f"the inputs could not be loaded ({error})")
    if not same:
        return Inputs(None, f"the data called {name} is not what was certified: its digest differs")
    return Inputs(dataset)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

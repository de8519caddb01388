"""What differs between two runs, value by value: whether one can be resumed as the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from smoothcert.spec import LocalEngineSpec, ModelSpec, RuleLevel, RunManifest, SigmaSpec, to_json


def list_differences(stored: RunManifest, wanted: RunManifest) -> list[str]:
    """One line for every value that prevents `stored` from being resumed as `wanted`.

    Compared are the specs without places and engines, the sampling version, the seed, the digests of model, data, sigma
    and memory, and what was measured. Versions of libraries, the code digest and descriptions are information.
    """
    differing = list_differing_values(_comparable(stored), _comparable(wanted), holder="run")
    if stored.digests.sigma != wanted.digests.sigma:
        differing += list_differing_values(_sigma_facts(stored), _sigma_facts(wanted), holder="run")
    return differing


def list_differing_values(stored: Mapping[str, Any], wanted: Mapping[str, Any], *, holder: str) -> list[str]:
    """One line for every value, however deep, in which two JSON objects differ. holder: of the stored one."""
    old, new = dict(_flatten(stored)), dict(_flatten(wanted))
    return [
        f"{key}: the {holder} has {old.get(key, 'nothing')!r}, now {new.get(key, 'nothing')!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _comparable(manifest: RunManifest) -> dict[str, Any]:
    spec = msgspec.structs.replace(
        manifest.spec,
        # What was requested of model and data is compared as what came out: digests, classes, shape and range. The
        # precision is in the digest of the model too; here it names the reason.
        model=ModelSpec(place="", dtype=manifest.spec.model.dtype),
        data=msgspec.structs.replace(
            manifest.spec.data,
            place="",
            root=None,
            input_range=None,
            input_shape=None,
            label_column=None,
            resize=None,
            shorter_side=None,
        ),
        sigma=_without_place(manifest.spec.sigma),
        memory=None,
        seed=None,
        batch=None,
        rigorous=False,
        engine=LocalEngineSpec(),
    )
    digests = msgspec.structs.replace(manifest.digests, code="")
    return {
        "spec": to_json(spec),
        "sampling_version": manifest.sampling_version,
        "seed": manifest.seed,
        "digests": to_json(digests),
        "measured": to_json(manifest.measured),
        "num_classes": manifest.model.num_classes,
        "input_shape": list(manifest.data.input_shape),
        "input_range": None if manifest.data.input_range is None else list(manifest.data.input_range),
        "inputs": manifest.data.inputs,
    }


def _sigma_facts(manifest: RunManifest) -> dict[str, Any]:
    return {"sigma": None if manifest.sigma is None else to_json(manifest.sigma)}


def _without_place(sigma: SigmaSpec) -> SigmaSpec:
    return RuleLevel(place="") if isinstance(sigma, RuleLevel) else sigma


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value

"""What is given again when a run is resumed reaches its spec, and does not make it another run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sample_manifests import sample_manifest
from smoothcert.cli import options
from smoothcert.errors import RunError
from smoothcert.runs.resumption import NOT_MOVED, Moved, spec_of_run
from smoothcert.runs.store import read_manifest
from smoothcert.spec import LocalEngineSpec, to_json
from smoothcert.spec_differences import list_differences

GIVEN: dict[str, Any] = {
    "model": "elsewhere.pt",
    "weights": "elsewhere.safetensors",
    "data": "elsewhere.npz",
    "data_root": "/elsewhere",
    "memory": "elsewhere.sqlite",
    "device": "cuda:1",
    "engine": LocalEngineSpec(workers=3),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "manifest.json").write_text(json.dumps(to_json(sample_manifest())), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Moved) if field.name != "selector"])
def test_what_is_moved_reaches_the_spec_of_the_same_run(run: Path, name: str) -> None:
    before = spec_of_run(run, task="certify", moved=NOT_MOVED)
    after = spec_of_run(run, task="certify", moved=Moved(**{name: GIVEN[name]}))
    changed = {field for field in before.__struct_fields__ if getattr(before, field) != getattr(after, field)}
    assert changed == {{"data_root": "data", "device": "model", "weights": "model"}.get(name, name)}
    stored, wanted = (msgspec.structs.replace(sample_manifest(), spec=spec) for spec in (before, after))
    assert list_differences(stored, wanted) == []


def test_only_a_selected_run_has_a_selector_to_move(run: Path) -> None:
    with pytest.raises(RunError, match="has one model and no selector: leave --selector out"):
        spec_of_run(run, task="certify", moved=Moved(selector="elsewhere.pt"))


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        (NOT_MOVED, ("mynet:Net", "/old/net.pt", "/old")),
        (Moved(weights="net.pt"), ("mynet:Net", "net.pt", "/old")),
        (Moved(model="other:Net"), ("other:Net", "/old/net.pt", None)),
        (Moved(model="whole.safetensors"), ("whole.safetensors", None, None)),
        (Moved(model="new/net.pt"), ("mynet:Net", "new/net.pt", "/old")),
    ],
)
def test_the_recorded_folder_is_used_for_the_recorded_code_only(
    tmp_path: Path, moved: Moved, expected: tuple[str | None, ...]
) -> None:
    manifest = to_json(sample_manifest())
    manifest["spec"]["model"] |= {"place": "mynet:Net", "weights": "/old/net.pt", "code_folder": "/old"}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    model = spec_of_run(tmp_path, task="certify", moved=moved).model
    assert (model.place, model.weights, model.code_folder) == expected


def test_runs_made_before_a_field_was_added_are_read(tmp_path: Path) -> None:
    manifest = to_json(sample_manifest())
    for part, name in (("model", "weights"), ("model", "code_folder"), ("data", "resize"), ("data", "shorter_side")):
        del manifest["spec"][part][name]
    del manifest["model"]["has_random_weights"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert spec_of_run(tmp_path, task="certify", moved=NOT_MOVED).model.weights is None
    assert list_differences(read_manifest(tmp_path), sample_manifest()) == []


def test_the_command_line_accepts_it_with_resume() -> None:
    assert {field.name for field in dataclasses.fields(Moved)} <= options._MAY_CHANGE_ON_RESUME

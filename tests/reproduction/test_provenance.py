"""Digests of products: what makes two of them the same."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.reproduction.provenance import compute_digest, read_rule_digest


def write(path: Path, name: str, document: dict[str, object], numbers: bytes = b"") -> Path:
    header = json.dumps({"__metadata__": {name: json.dumps(document)}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + numbers)
    return path


def test_a_checkpoint_is_its_network_and_not_its_training(tmp_path: Path) -> None:
    model = {"arch": "mlp", "tensors_sha256": "ab", "training": {"seconds": 1.0}}
    one = write(tmp_path / "one.safetensors", "smoothcert", model)
    slower = write(tmp_path / "two.safetensors", "smoothcert", {**model, "training": {"seconds": 2.0}})
    weights = write(tmp_path / "three.safetensors", "smoothcert", {**model, "tensors_sha256": "cd"})
    network = write(tmp_path / "four.safetensors", "smoothcert", {**model, "arch": "mlp-8"})
    assert compute_digest(one) == compute_digest(slower)
    assert len({compute_digest(one), compute_digest(weights), compute_digest(network)}) == 3
    assert read_rule_digest(one) is None


def test_a_rule_has_the_digest_that_manifests_hold(tmp_path: Path) -> None:
    document = {"rule": {"k": 5}, "digest": "ef", "facts": {"sigma": 1}}
    rule = write(tmp_path / "rule.safetensors", "smoothcert-sigma", document)
    assert read_rule_digest(rule) == "ef"


def test_a_foreign_file_is_hashed_as_a_whole(tmp_path: Path) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.pth.tar"
    one.write_bytes(b"\xff" * 20)
    other.write_bytes(b"\xff" * 20)
    assert compute_digest(one) == compute_digest(other) is not None
    other.write_bytes(b"\xff" * 21)
    assert compute_digest(one) != compute_digest(other)
    assert compute_digest(tmp_path / "nowhere") is None
    assert compute_digest(tmp_path) is None  # a folder that is not a run

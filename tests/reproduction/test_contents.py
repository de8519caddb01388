"""What makes two products the same."""

from __future__ import annotations

import json
from pathlib import Path

from smoothcert.reproduction.contents import digest_of, rule_digest


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
    assert digest_of(one) == digest_of(slower)
    assert len({digest_of(one), digest_of(weights), digest_of(network)}) == 3
    assert rule_digest(one) is None


def test_a_rule_has_the_digest_that_manifests_hold(tmp_path: Path) -> None:
    document = {"rule": {"k": 5}, "digest": "ef", "facts": {"sigma": 1}}
    rule = write(tmp_path / "rule.safetensors", "smoothcert-sigma", document)
    assert rule_digest(rule) == "ef"


def test_files_of_others_are_their_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.pth.tar"
    one.write_bytes(b"\xff" * 20)
    other.write_bytes(b"\xff" * 20)
    assert digest_of(one) == digest_of(other) is not None
    other.write_bytes(b"\xff" * 21)
    assert digest_of(one) != digest_of(other)
    assert digest_of(tmp_path / "nowhere") is None
    assert digest_of(tmp_path) is None  # a folder that is no run

"""Networks of the zoo: named in every command and in Python, checked against their cards, found where they may be."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import smoothcert as sc
from cli_runner import invoke
from experiments.zoo import MODELS, app, find_problems
from smoothcert.cli.main import app as smoothcert_app
from smoothcert.cluster.ray_model import pack_model
from smoothcert.errors import InputError, ModelError
from smoothcert.models import as_classifier, load_classifier
from smoothcert.models import zoo as zoo_module
from smoothcert.models.architectures import build
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.models.zoo import find_zoo_model, list_zoo, locate_model
from smoothcert.runs.archives import write_archive
from smoothcert.runs.store import read_manifest
from smoothcert.training import find_arch
from smoothcert.user_code import is_code_name

NAME = "digits-mlp-0.25"
DATA = ("--data", "digits", "--sigma", 0.25, "--seed", 1, "--batch", 50, "--workers", 1)
FACTS = {
    "dataset": "digits", "data": "0" * 64, "objective": {"name": "consistency", "weight": 5.0}, "sigma": 0.25,
    "noise": "gaussian", "epochs_done": 3, "seed": 1, "noisy_accuracy": 0.75, "noisy_accuracy_split": "test",
    "noisy_accuracy_inputs": 445,
}  # fmt: skip
REPOSITORY = Path(__file__).resolve().parents[2]
MOST_BYTES = 60_000_000


def write_checkpoint(path: Path, *, seed: int = 1, **facts: Any) -> Path:
    torch.manual_seed(seed)
    header = CheckpointHeader("mlp-8", 10, (1, 8, 8), training={**FACTS, **facts})
    save_checkpoint(path, build("mlp-8", num_classes=10, input_shape=(1, 8, 8)), header)
    return path


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo with one network, named by the variable; no other zoo is found."""
    folder = tmp_path / "my zoo"
    file = write_checkpoint(tmp_path / "net.safetensors")
    invoke(app, file, "--name", NAME, "--command", "smoothcert train", "--folder", folder)
    monkeypatch.setenv("SMOOTHCERT_ZOO", str(folder))
    monkeypatch.setattr(zoo_module, "_PLACE", Path("no such folder"))
    monkeypatch.chdir(tmp_path)
    return folder


def card_of(zoo: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((zoo / f"{NAME}.json").read_text())
    return card


def certify(out: Path, *further: object) -> Path:
    invoke(
        smoothcert_app, "certify", "--model", f"zoo:{NAME}", *DATA, "--n0", 10, "--n", 60, "--max", 3, "--out", out,
        *further,
    )  # fmt: skip
    return out


def test_a_card_says_what_the_network_is(zoo: Path) -> None:
    card = card_of(zoo)
    assert card["objective"] == "consistency:weight=5.0"
    assert (card["data"], card["arch"], card["sigma"], card["epochs"], card["seed"]) == ("digits", "mlp-8", 0.25, 3, 1)
    assert card["accuracy"] == {
        "value": 0.75,
        "under": "one draw of gaussian noise for each input, sigma 0.25",
        "split": "test",
        "inputs": 445,
    }
    assert card["acr"] is None
    assert find_problems(zoo) == []


def test_the_name_is_the_same_function_as_the_file(zoo: Path) -> None:
    of_file = load_classifier(zoo / f"{NAME}.safetensors", input_shape=(1, 8, 8))
    of_name = load_classifier(f"zoo:{NAME}", input_shape=(1, 8, 8))
    assert of_name.digest == of_file.digest
    assert f"from zoo:{NAME} ({card_of(zoo)['digest'][:12]})" in of_name.description
    assert as_classifier(f"zoo:{NAME}").num_classes == 10
    assert find_arch(f"zoo:{NAME}") == "mlp-8"
    assert locate_model(f"zoo:{NAME}") == (zoo / f"{NAME}.safetensors").resolve()
    assert locate_model("zoo.safetensors") == Path("zoo.safetensors")
    assert not is_code_name(f"zoo:{NAME}")


def test_a_cluster_gets_the_weights(zoo: Path) -> None:
    packed = pack_model(f"zoo:{NAME}", {})
    assert packed.named is None
    assert packed.files == {f"{NAME}.safetensors": (zoo / f"{NAME}.safetensors").read_bytes()}


@pytest.mark.slow
def test_python_takes_the_name(zoo: Path, tmp_path: Path) -> None:
    digits = sc.load_dataset("digits", split="test")
    smoothed = sc.SmoothedClassifier(f"zoo:{NAME}", sigma=0.25, grid=digits.levels, seed=1, workers=1)
    results = smoothed.certify(digits.inputs(range(3)), labels=digits.labels[:3], n0=10, n=60, out=tmp_path / "run")
    assert len(results.points) == 3
    assert read_manifest(tmp_path / "run").spec.model.place == f"zoo:{NAME}"


@pytest.mark.slow
def test_a_run_records_the_name_and_is_resumed(zoo: Path, tmp_path: Path) -> None:
    run = certify(tmp_path / "run")
    manifest = read_manifest(run)
    assert manifest.spec.model.place == f"zoo:{NAME}"
    assert card_of(zoo)["digest"][:12] in manifest.model.description
    assert manifest.digests.model == load_classifier(zoo / f"{NAME}.safetensors", input_shape=(1, 8, 8)).digest
    invoke(smoothcert_app, "certify", "--resume", run)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SMOOTHCERT_ZOO")
        with pytest.raises(ModelError, match=f"there is no zoo:{NAME}"):
            invoke(smoothcert_app, "certify", "--resume", run)
        invoke(smoothcert_app, "certify", "--resume", run, "--model", zoo / f"{NAME}.safetensors")
    write_archive(run, tmp_path / "archive")
    assert read_manifest(tmp_path / "archive").spec.model.place == f"zoo:{NAME}"


@pytest.mark.slow
def test_other_commands_take_the_name(zoo: Path, tmp_path: Path) -> None:
    model = ("--model", f"zoo:{NAME}")
    invoke(smoothcert_app, "predict", *model, *DATA, "--n", 50, "--max", 2, "--out", tmp_path / "classes")
    run = certify(tmp_path / "run")
    invoke(smoothcert_app, "attack", run, "--radius", "0.1", "--steps", 1, "--max", 1, "--workers", 1)
    rule = ("--epochs", 1, "--max", 50, "--samples", 1, "--hidden", 4, "--seed", 1)
    words = ("--sigma-min", 0.2, "--lipschitz", 0.1, *rule, "--out", tmp_path / "rule.safetensors")
    invoke(smoothcert_app, "sigma", "train", *model, "--data", "digits", *words)
    assert invoke(smoothcert_app, "verify", run, "--replay", f"zoo:{NAME}", 1).exit_code == 0
    selector = ("--levels", "0.25,0.5", "--n", 4, "--epochs", 1, "--seed", 1, "--threads", 1)
    places = ("--models", f"zoo:{NAME}", "--out", tmp_path / "selector.safetensors")
    invoke(smoothcert_app, "selector", "train", "--data", "digits", *places, *selector)


@pytest.mark.slow
def test_the_acr_on_a_card_is_that_of_a_run_of_the_network(zoo: Path, tmp_path: Path) -> None:
    run = certify(tmp_path / "run")
    words = ("--name", NAME, "--command", "smoothcert train", "--folder", zoo)
    invoke(app, zoo / f"{NAME}.safetensors", *words, "--run", run, "--force")
    acr = card_of(zoo)["acr"]
    (table,) = json.loads(invoke(smoothcert_app, "table", run, "--json").stdout)
    assert acr["value"] == table["acr"]
    assert (acr["inputs"], acr["n"], acr["sigma"], acr["split"], acr["max_inputs"]) == (3, 60, 0.25, "test", 3)
    assert find_problems(zoo) == []
    other = write_checkpoint(tmp_path / "other.safetensors", seed=2)
    with pytest.raises(InputError, match="certified another model"):
        invoke(app, other, *words, "--run", run, "--force")


def test_networks_are_listed(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = invoke(smoothcert_app, "zoo").stdout
    assert f"zoo:{NAME}" in text
    assert "0.750" in text
    (card,) = json.loads(invoke(smoothcert_app, "zoo", "--json").stdout)
    assert card == {**card_of(zoo), "weights": str((zoo / f"{NAME}.safetensors").resolve())}
    monkeypatch.delenv("SMOOTHCERT_ZOO")
    assert "there are no networks (no folder experiments/models was found)" in invoke(smoothcert_app, "zoo").stdout


def test_what_is_not_there_is_an_error_with_a_list(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=rf"there is no zoo:cifar: there are zoo:{NAME}"):
        load_classifier("zoo:cifar")
    with pytest.raises(ModelError, match=f"there is no zoo:cifar: there are zoo:{NAME}"):
        sc.SmoothedClassifier("zoo:cifar", sigma=0.25)
    monkeypatch.delenv("SMOOTHCERT_ZOO")
    with pytest.raises(ModelError, match=r"there is no folder .* here\. Run in a checkout .*\$SMOOTHCERT_ZOO"):
        load_classifier(f"zoo:{NAME}")
    monkeypatch.setenv("SMOOTHCERT_ZOO", "nowhere")
    with pytest.raises(ModelError, match=r"\$SMOOTHCERT_ZOO is nowhere, which is not a folder"):
        load_classifier(f"zoo:{NAME}")


@pytest.mark.parametrize("name", ["", "../net", "a/b", "..", ".hidden", "a\\b", "-net"])
def test_names_are_no_paths(name: str, zoo: Path) -> None:
    with pytest.raises(ModelError, match="does not name a network of the zoo"):
        load_classifier(f"zoo:{name}")


def test_weights_of_another_network_are_refused(zoo: Path, tmp_path: Path) -> None:
    weights = zoo / f"{NAME}.safetensors"
    weights.write_bytes(write_checkpoint(tmp_path / "other.safetensors", seed=2).read_bytes())
    with pytest.raises(ModelError, match=r"is not the network of its card: its SHA-256 is .*, and the card states"):
        load_classifier(f"zoo:{NAME}")
    assert "is not the network of its card" in find_problems(zoo)[0]
    weights.unlink()
    with pytest.raises(ModelError, match="has no weights: there is no"):
        find_zoo_model(f"zoo:{NAME}")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is damaged"),
        ("[]", "is not the card of a network: expected format 1"),
        ('{"format": 1}', "is not the card of a network: it lacks accuracy, acr, arch"),
    ],
)
def test_damaged_cards_are_refused(content: str, complaint: str, zoo: Path) -> None:
    (zoo / f"{NAME}.json").write_text(content)
    with pytest.raises(ModelError, match=complaint):
        load_classifier(f"zoo:{NAME}")
    assert find_problems(zoo)


@pytest.mark.parametrize(("field", "value"), [("sigma", 0.5), ("epochs", 90), ("arch", "lenet"), ("accuracy", None)])
def test_a_card_that_says_something_else_is_found(field: str, value: object, zoo: Path) -> None:
    (zoo / f"{NAME}.json").write_text(json.dumps({**card_of(zoo), field: value}))
    assert any(f"{field} is {value!r}, the weights say" in problem for problem in find_problems(zoo))


def test_a_card_without_its_own_name_is_refused(zoo: Path) -> None:
    for suffix in ("json", "safetensors"):
        (zoo / f"{NAME}.{suffix}").rename(zoo / f"another.{suffix}")
    with pytest.raises(ModelError, match=f"is the card of {NAME}: name both files after the network"):
        list_zoo()


def test_the_folder_of_the_checkout_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMOOTHCERT_ZOO", raising=False)
    file = write_checkpoint(tmp_path / "net.safetensors")
    here = tmp_path / "experiments" / "models"
    invoke(app, file, "--name", NAME, "--command", "smoothcert train", "--folder", here)
    monkeypatch.chdir(tmp_path)
    assert find_zoo_model(f"zoo:{NAME}").weights == here.resolve() / f"{NAME}.safetensors"
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setattr(zoo_module, "__file__", str(tmp_path / "src" / "smoothcert" / "models" / "zoo.py"))
    assert find_zoo_model(f"zoo:{NAME}").weights == here.resolve() / f"{NAME}.safetensors"


def test_a_network_is_not_replaced_by_accident(zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="choose another --name, or --force"):
        invoke(app, tmp_path / "net.safetensors", "--name", NAME, "--command", "c", "--folder", zoo)
    with pytest.raises(ModelError, match="does not name a network of the zoo"):
        invoke(app, tmp_path / "net.safetensors", "--name", "../net", "--command", "c", "--folder", zoo)
    bare = tmp_path / "bare.safetensors"
    save_checkpoint(
        bare, build("mlp-8", num_classes=10, input_shape=(1, 8, 8)), CheckpointHeader("mlp-8", 10, (1, 8, 8))
    )
    with pytest.raises(InputError, match=r"does not say how it was trained \(it lacks data, dataset"):
        invoke(app, bare, "--name", "bare", "--command", "c", "--folder", zoo)


# What is committed.


def test_every_committed_card_fits_its_weights() -> None:
    assert not MODELS.exists() or find_problems(MODELS) == []


def test_the_repository_stays_small() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is not a checkout by git")
    files = [REPOSITORY / name for name in listed.stdout.decode().split("\0") if name]
    total = sum(file.stat().st_size for file in files if file.is_file())
    assert 1_000_000 < total < MOST_BYTES

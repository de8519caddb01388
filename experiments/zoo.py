"""`python -m experiments.zoo FILE --name NAME`: put a trained network into the zoo, with a card.

Writes `experiments/models/NAME.safetensors`, a copy of the checkpoint, and `NAME.json`: what it was trained with, its
accuracy under noise from the training, the ACR of a run that certified it, its SHA-256 and the command that trains it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.reproduction.keeping import strip_folders
from smoothcert.cli.main import run as run_app
from smoothcert.errors import InputError, SmoothcertError
from smoothcert.files import write_atomically
from smoothcert.models.zoo import CARD_FORMAT, check_name, check_weights, read_model

MODELS = Path(__file__).resolve().parent / "models"

_REQUIRED = {
    "dataset", "data", "objective", "sigma", "noise", "epochs_done", "seed", "noisy_accuracy", "noisy_accuracy_split",
    "noisy_accuracy_inputs",
}  # fmt: skip
"""What a card takes from the facts of a training."""

app = typer.Typer(name="python -m experiments.zoo", add_completion=False, pretty_exceptions_enable=False)


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="The checkpoint, by `smoothcert train`.")],
    name: Annotated[str, typer.Option("--name", help="Name in the zoo, such as mnist-lenet-0.5.")],
    command: Annotated[str, typer.Option("--command", help="The command that trains it.")],
    run: Annotated[
        Path | None, typer.Option("--run", help="A run or archive that certified it: its ACR goes on the card.")
    ] = None,
    folder: Annotated[Path, typer.Option("--folder", help="The zoo.", show_default=False)] = MODELS,
    force: Annotated[bool, typer.Option("--force", help="Replace the network of this name.")] = False,
) -> None:
    """Copy the weights and write the card."""
    check_name(name)
    card = make_card(file, name=name, command=command, run=run)
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / f"{name}.safetensors"
    if weights.exists() and not force:
        raise InputError(f"{weights} exists: choose another --name, or --force to replace it")
    write_atomically(weights, file.read_bytes(), overwrite=True)
    content = json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(folder / f"{name}.json", content.encode(), overwrite=True)
    typer.echo(f"zoo:{name}: {weights}, {weights.stat().st_size:,} bytes, and its card")


def make_card(file: Path, *, name: str, command: str, run: Path | None = None) -> dict[str, Any]:
    """What is known of a checkpoint, from its header and from a run that certified it."""
    from smoothcert.models.checkpoints import load_checkpoint, read_tensors

    header = load_checkpoint(file).header
    facts = strip_folders(dict(header.training))
    _, document = read_tensors(file)
    if document is None or (missing := _REQUIRED - facts.keys()):
        unknown = "" if document is None else f" (it lacks {', '.join(sorted(missing))})"
        raise InputError(f"{file} does not say how it was trained{unknown}: expected a checkpoint by smoothcert train")
    return {
        "format": CARD_FORMAT,
        "name": name,
        "data": facts["dataset"],
        "data_digest": facts["data"],
        "arch": header.arch,
        "objective": _spell_objective(facts["objective"]),
        "sigma": facts["sigma"],
        "noise": facts["noise"],
        "epochs": facts["epochs_done"],
        "seed": facts["seed"],
        "accuracy": {
            "value": facts["noisy_accuracy"],
            "under": f"one draw of {facts['noise']} noise for each input, sigma {facts['sigma']}",
            "split": facts["noisy_accuracy_split"],
            "inputs": facts["noisy_accuracy_inputs"],
        },
        "acr": None if run is None else measure_acr(run, file),
        "digest": hashlib.sha256(file.read_bytes()).hexdigest(),
        "tensors_sha256": document["tensors_sha256"],
        "command": command,
        "training": facts,
    }


def measure_acr(run: Path, file: Path) -> dict[str, Any]:
    """The ACR of a run of this network, and of which inputs it is."""
    from smoothcert.analysis.summary import summarise
    from smoothcert.models import load_classifier
    from smoothcert.runs.load import load_results
    from smoothcert.runs.store import read_manifest

    manifest = read_manifest(run)
    given = manifest.spec
    classifier = load_classifier(file, input_shape=manifest.data.input_shape, backend=given.model.backend)
    if classifier.digest != manifest.digests.model:
        raise InputError(f"{run} certified another model than {file}: their digests differ")
    results = load_results(run)
    if len(results) < manifest.data.inputs:
        raise InputError(f"{run} is unfinished: it has {len(results)} of {manifest.data.inputs} inputs")
    acr = summarise(results, radii={"0": 0.0}).acr
    if acr is None:
        raise InputError(f"{run} has no ACR: its inputs have no labels, or it predicts classes alone")
    return {
        "value": acr,
        "data": manifest.data.name,
        "split": given.data.split,
        "inputs": len(results),
        "skip": given.data.skip,
        "max_inputs": given.data.max_inputs,
        "sigma": float(results.sigma.max()),
        "n": given.question.n,
        "alpha": given.alpha,
        "certificate": given.certificate_text,
        "seed": manifest.seed,
    }


def _spell_objective(objective: Any) -> str:
    """The objective as `--objective` takes it."""
    if not isinstance(objective, Mapping):
        return str(objective)
    settings = ",".join(f"{key}={value}" for key, value in objective.items() if key != "name")
    return f"{objective['name']}:{settings}" if settings else str(objective["name"])


def find_problems(folder: Path = MODELS) -> list[str]:
    """What is wrong in a zoo: cards that do not fit their weights, files without a card, weights without facts."""
    problems = []
    names = {file.stem for file in folder.iterdir() if file.suffix in (".json", ".safetensors")}
    problems += [f"{file} does not belong to a zoo" for file in sorted(folder.iterdir()) if file.stem not in names]
    for name in sorted(names):
        try:
            model = read_model(folder, name)
            check_weights(model)
            made = make_card(model.weights, name=name, command=model.card["command"])
        except SmoothcertError as error:
            problems.append(str(error))
            continue
        for key, value in made.items():
            if key != "acr" and model.card.get(key) != value:
                problems.append(f"{folder / name}.json: {key} is {model.card.get(key)!r}, the weights say {value!r}")
    return problems


if __name__ == "__main__":
    run_app(app)

"""`python -m experiments.splitting DATASET`: certain l1 certificates, beside those from samples of uniform noise.

Trains a network under splitting for each number of evaluations, and one under uniform noise of the same level;
certifies every input by all evaluations, and some by samples; attacks some inside their certified radius; and writes a
table with the time of each. Without the step `uniform` there is no uniform noise. Finished steps do not run again; an
interrupted one is resumed by the same command. `--steps keep` archives the runs in
`experiments/results/splitting/DATASET`, from which `--steps table --out experiments/results/splitting/DATASET` makes
the table again.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from experiments.reproduction.kept import RESULTS
from experiments.steps import Step, archive_runs, run_steps, spell, train_once
from smoothcert.noise import level_of

RADII = (0.25, 0.5, 1.0, 2.0, 4.0)
_LEVELS = 256
_TRAINING = {"--average": 0.999, "--precision": "bfloat16", "--seed": 0}
_STEPS = ("train", "certify", "uniform", "attack", "table")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """skip, uniform_skip: every so many-th input is certified by all evaluations, and by n samples."""

    data: str
    out: Path
    evaluations: tuple[int, ...]
    arch: str
    epochs: int
    objective: str
    optimiser: str
    lr: float
    augment: str
    skip: int
    uniform_skip: int
    n: int
    threads: int
    backend: str

    def network(self, noise: str, count: int) -> Path:
        return self.out / f"{noise}-{self.data}-{count}.safetensors"

    def run(self, noise: str, count: int) -> Path:
        return self.out / f"{noise}-{self.data}-{count}"


@app.command()
def compare_splitting(
    data: Annotated[str, typer.Argument(help="mnist or cifar10.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of everything.")] = Path("runs/splitting"),
    steps: Annotated[str, typer.Option("--steps", help="Which steps to run.")] = ",".join(_STEPS),
    evaluations: Annotated[str, typer.Option("--evaluations")] = "441,3091",
    arch: Annotated[str, typer.Option("--arch")] = "lenet",
    epochs: Annotated[int, typer.Option("--epochs")] = 12,
    objective: Annotated[str, typer.Option("--objective")] = "consistency:weight=5,entropy=0.5",
    optimiser: Annotated[str, typer.Option("--optimiser", help="adamw where sgd does not begin to learn.")] = "sgd",
    lr: Annotated[float, typer.Option("--lr")] = 0.05,
    augment: Annotated[str, typer.Option("--augment")] = "none",
    skip: Annotated[int, typer.Option("--skip")] = 1,
    uniform_skip: Annotated[int, typer.Option("--uniform-skip")] = 50,
    n: Annotated[int, typer.Option("--n", help="Samples of uniform noise.")] = 100_000,
    threads: Annotated[int, typer.Option("--threads")] = 1,
    backend: Annotated[str, typer.Option("--backend", help="torch or onnxruntime.")] = "onnxruntime",
) -> None:
    """Train, certify and compare."""
    counts = tuple(int(count) for count in evaluations.split(","))
    settings = Settings(
        data, out, counts, arch, epochs, objective, optimiser, lr, augment, skip, uniform_skip, n, threads, backend
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    wanted = steps.split(",")
    note_seconds(settings, run_steps(list_commands(settings), wanted=wanted))
    if "keep" in wanted:
        keep_runs(settings, RESULTS / "splitting" / data)
    if "table" in wanted:
        write_results(settings)


def keep_runs(settings: Settings, folder: Path) -> None:
    """Archive the runs that there are."""
    runs = [settings.run(noise, count) for noise in ("splitting", "uniform") for count in settings.evaluations]
    archive_runs([run for run in runs if run.exists()], folder)


def list_commands(settings: Settings) -> list[Step]:
    """In order, without trainings that are finished."""
    found: list[Step] = []
    options: dict[str, Any]
    for count in settings.evaluations:
        level = level_of(count, levels=_LEVELS)
        for step, noise, own in (
            ("train", "splitting", {"--evaluations": count}),
            ("uniform", "uniform", {"--sigma": level}),
        ):
            options = {
                "--data": settings.data, "--arch": settings.arch, "--objective": settings.objective, "--noise": noise,
                **own, "--epochs": settings.epochs, "--optimiser": settings.optimiser, "--lr": settings.lr,
                "--augment": settings.augment, **_TRAINING, "--threads": settings.threads,
            }  # fmt: skip
            found += train_once(step, ["train"], options, settings.network(noise, count))
    common = {"--data": settings.data, "--workers": settings.threads, "--backend": settings.backend}
    for count in settings.evaluations:
        options = {
            "--model": settings.network("splitting", count), "--noise": "splitting", "--evaluations": count, **common,
            "--skip": settings.skip, "--out": settings.run("splitting", count),
        }  # fmt: skip
        found.append(("certify", ["certify", *spell(options)]))
        options = {
            "--model": settings.network("uniform", count), "--noise": "uniform",
            "--sigma": level_of(count, levels=_LEVELS), "--n": settings.n, **common, "--seed": 1,
            "--skip": settings.uniform_skip, "--out": settings.run("uniform", count),
        }  # fmt: skip
        found.append(("uniform", ["certify", *spell(options)]))
        attack = {"--radius": "certified", "--max": 50, "--seed": 1}
        found.append(("attack", ["attack", str(settings.run("splitting", count)), *spell(attack)]))
    return found


def note_seconds(settings: Settings, seconds: dict[str, float]) -> None:
    """Add the time of each command to seconds-DATA.json; a resumed one has the sum of its parts."""
    place = settings.out / f"seconds-{settings.data}.json"
    known = json.loads(place.read_text()) if place.exists() else {}
    for command, took in seconds.items():
        known[command] = known.get(command, 0.0) + took
    place.write_text(json.dumps(known, indent=2) + "\n")


def write_results(settings: Settings) -> None:
    """splitting-DATA.csv: certified accuracy of both noises at each radius, and what an input costs."""
    import smoothcert as sc

    table = settings.out / f"splitting-{settings.data}.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        names = ["noise", "N or n", "images", "ACR", "accuracy", *(f"r={radius:g}" for radius in RADII)]
        writer.writerow([*names, "evaluations", "seconds per image"])
        for count in settings.evaluations:
            for noise in ("splitting", "uniform"):
                if not settings.run(noise, count).exists():
                    continue  # without the step `uniform`
                results = sc.open_run(settings.run(noise, count))
                columns = results.columns
                shares = [results.certified_accuracy(radius) for radius in RADII]
                taken = count if noise == "splitting" else settings.n + 100
                writer.writerow(
                    [noise, count if noise == "splitting" else f"{settings.n} (as {count})", len(columns)]
                    + [f"{number:.4f}" for number in (results.acr, results.accuracy, *shares)]
                    + [taken, f"{float(np.mean(columns.seconds)):.4f}"]
                )
    print(table.read_text())


if __name__ == "__main__":
    app()

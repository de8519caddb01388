"""`python -m experiments.selected DATASET`: a noise level chosen by a selector, against single levels and the oracle.

Trains a base classifier for each level and a selector, certifies each level alone and both forms of the selected level
with the same number of samples in all, attacks both stages inside the certified radii, and writes table and figure. The
published form needs one level only, so it has a run of its own, in which that level gets all samples of the levels;
without the step `published`, its row is that of the votes of the sharper form. Finished steps do not run again; a step
that was interrupted is resumed by the same command. `--steps keep` archives the runs in
`experiments/results/selected/DATASET`, from which `--steps table --out experiments/results/selected/DATASET` makes
table and figure again.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from experiments.reproduction.kept import RESULTS
from experiments.steps import Step, archive_runs, run_steps, spell, train_once
from smoothcert.records import FloatArray

if TYPE_CHECKING:
    from smoothcert import Results

RADII = tuple(float(step) / 4 for step in range(11))
_BASE_OBJECTIVE = "smoothadv:radius=1,steps=1,noises=2,consistency=5,entropy=0.1"
_BASE_EPOCHS = {0.25: 12, 0.5: 14, 1.0: 20}
_SELECTOR_OBJECTIVE = "exclusion:weight=4,noises=4,cross_entropy=1"
_TRAINING = {"--lr": 0.05, "--average": 0.999, "--precision": "bfloat16", "--seed": 0}
_STEPS = ("base", "selector", "selected", "published", "attack", "single", "table")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """levels: with a base classifier each. n: samples of an input in all. sampled: levels sampled for each input.

    selector_n: the selector's part of n; the sampled levels share the rest. backend: computes the models that are
    certified; the same for all of them.
    """

    data: str
    out: Path
    levels: tuple[float, ...]
    arch: str
    epochs: int
    sigma: float
    softness: float
    objective: str
    selector_epochs: int
    votes: int
    n: int
    selector_n: int
    sampled: int
    skip: int
    threads: int
    backend: str

    def base(self, level: float) -> Path:
        return self.out / f"base-{self.data}-{level}.safetensors"

    @property
    def tag(self) -> str:
        """The settings of the selector, in names of files."""
        return f"s{self.sigma}-t{self.softness}-{self.objective.replace(':', '-').replace('=', '').replace(',', '-')}"

    @property
    def models(self) -> str:
        return ",".join(str(self.base(level)) for level in self.levels)

    @property
    def selector(self) -> Path:
        return self.out / f"selector-{self.data}-{self.tag}.safetensors"

    @property
    def selected(self) -> Path:
        return self.out / f"selected-{self.data}-{self.tag}-{self.sampled}"

    @property
    def published(self) -> Path:
        return self.out / f"published-{self.data}-{self.tag}"

    def single(self, level: float) -> Path:
        return self.out / f"single-{self.data}-{level}"

    def level_n(self, sampled: int) -> int:
        """Samples of each level if so many are sampled."""
        return (self.n - self.selector_n) // sampled


@app.command()
def compare_selected(
    data: Annotated[str, typer.Argument(help="mnist or fashion-mnist.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of everything.")] = Path("runs/selected"),
    steps: Annotated[str, typer.Option("--steps", help="Which to run; keep archives the runs.")] = ",".join(_STEPS),
    levels: Annotated[str, typer.Option("--levels")] = "0.25,0.5,1.0",
    arch: Annotated[str, typer.Option("--arch")] = "lenet",
    epochs: Annotated[int, typer.Option("--epochs", help="Of the base classifiers; 0: 12 to 20, by level.")] = 0,
    sigma: Annotated[float, typer.Option("--sigma", help="Noise level of the selector.")] = 1.0,
    softness: Annotated[float, typer.Option("--softness")] = 0.2,
    objective: Annotated[str, typer.Option("--objective", help="Of the selector.")] = _SELECTOR_OBJECTIVE,
    selector_epochs: Annotated[int, typer.Option("--selector-epochs")] = 6,
    votes: Annotated[int, typer.Option("--votes", help="Samples of each training input at each level.")] = 32,
    n: Annotated[int, typer.Option("--n", help="Samples of an input in all.")] = 100_000,
    selector_n: Annotated[int, typer.Option("--selector-n", help="The selector's part.")] = 30_000,
    sampled: Annotated[int, typer.Option("--sampled-levels")] = 2,
    skip: Annotated[int, typer.Option("--skip")] = 50,
    threads: Annotated[int, typer.Option("--threads")] = 1,
    backend: Annotated[str, typer.Option("--backend", help="torch or onnxruntime.")] = "onnxruntime",
) -> None:
    """Train, certify and compare."""
    chosen = tuple(float(level) for level in levels.split(","))
    settings = Settings(
        data, out, chosen, arch, epochs, sigma, softness, objective, selector_epochs, votes, n, selector_n, sampled,
        skip, threads, backend,
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    wanted = steps.split(",")
    run_steps(list_commands(settings), wanted=wanted)
    if "table" in wanted:
        write_results(settings)
    if "keep" in wanted:
        keep_runs(settings, RESULTS / "selected" / data)


def keep_runs(settings: Settings, folder: Path) -> None:
    """Archive the runs that the table is made from, under their names."""
    published = [settings.published] if settings.published.exists() else []  # that step may be left out
    archive_runs([settings.selected, *published, *(settings.single(level) for level in settings.levels)], folder)


def list_commands(settings: Settings) -> list[Step]:
    """(step, arguments of smoothcert), in order, without trainings that are finished."""
    found: list[Step] = []
    threads = str(settings.threads)
    for level in settings.levels:
        options = {
            "--data": settings.data, "--arch": settings.arch, "--objective": _BASE_OBJECTIVE, "--sigma": level,
            "--epochs": settings.epochs or _BASE_EPOCHS.get(level, 20), **_TRAINING, "--threads": threads,
        }  # fmt: skip
        found += train_once("base", ["train"], options, settings.base(level))
    options = {
        "--data": settings.data, "--models": settings.models, "--levels": ",".join(map(str, settings.levels)),
        "--sigma": settings.sigma, "--softness": settings.softness, "--n": settings.votes,
        "--votes": settings.out / f"votes-{settings.data}.safetensors", "--epochs": settings.selector_epochs,
        "--objective": settings.objective, **_TRAINING, "--threads": threads, "--backend": settings.backend,
    }  # fmt: skip
    found += train_once("selector", ["selector", "train"], options, settings.selector)
    common = {
        "--data": settings.data, "--skip": settings.skip, "--workers": threads, "--seed": 1,
        "--backend": settings.backend,
    }  # fmt: skip
    both = ("selected", "selected-published")
    for step, out, sampled, forms in (
        ("selected", settings.selected, settings.sampled, both),
        ("published", settings.published, 1, both[1:]),
    ):
        options = {
            "--sigma-rule": settings.selector, "--model": settings.models, "--n": settings.level_n(sampled),
            "--selector-n": settings.selector_n, "--sampled-levels": sampled, **common, "--out": out,
        }  # fmt: skip
        found.append(
            (step, ["certify", *spell(options), *(word for form in forms for word in ("--certificate", form))])
        )
    attack = {"--radius": "certified", "--seed": 2, "--workers": threads}
    found.append(("attack", ["attack", str(settings.selected), *spell(attack)]))
    for level in settings.levels:
        options = {
            "--model": settings.base(level), "--sigma": level, "--n": settings.n, **common,
            "--out": settings.single(level),
        }  # fmt: skip
        found.append(("single", ["certify", *spell(options)]))
    return found


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. reach: radius of each input, 0 where the answer is wrong or missing. right: correct answers.

    At radius 0 the accuracy is the share of `right`, at others of reach ≥ radius, as everywhere.
    """

    name: str
    reach: FloatArray
    right: FloatArray

    @property
    def acr(self) -> float:
        return float(self.reach.mean())

    def accuracies(self) -> list[float]:
        return [float((self.right if radius == 0 else self.reach >= radius).mean()) for radius in RADII]


def write_results(settings: Settings) -> None:
    """comparison-DATA.csv and .json, and the figure."""
    import smoothcert as sc

    singles = [_row(f"sigma {level:g}", sc.open_run(settings.single(level))) for level in settings.levels]
    run = sc.open_run(settings.selected)
    selected = _row("selected", run.by_certificate("selected"))
    of_same_votes = _row("selected-published", run.by_certificate("selected-published"))
    sharper = {"same_run_same_votes": _compare(selected, of_same_votes)}
    published = of_same_votes
    if settings.published.exists():
        published = _row("selected-published", sc.open_run(settings.published))
        sharper["own_runs"] = _compare(selected, published)
    oracle = _best("oracle", singles)
    rows = [*singles, published, selected, oracle]
    base = f"comparison-{settings.data}-{settings.tag}-{settings.sampled}"
    table, page, picture = (settings.out / f"{base}.{kind}" for kind in ("csv", "json", "png"))
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "ACR", *(f"r={radius:g}" for radius in RADII)])
        for row in rows:
            writer.writerow([row.name, f"{row.acr:.4f}", *(f"{share:.3f}" for share in row.accuracies())])
    document: dict[str, Any] = {
        "settings": {name: str(getattr(settings, name)) for name in settings.__dataclass_fields__ if name != "out"},
        "rows": {row.name: {"acr": row.acr, "certified_accuracy": row.accuracies()} for row in rows},
        "radii": list(RADII),
        "goals": _judge(singles, selected),
        "sharper": sharper,
        "oracle_missed": _explain(settings, oracle, selected),
    }
    page.write_text(json.dumps(document, indent=2) + "\n")
    print(table.read_text())
    for one in document["sharper"].values():
        del one["gain_of_each_input"]  # in the file
    print(json.dumps({name: document[name] for name in ("goals", "sharper", "oracle_missed")}, indent=2))
    _draw(rows, picture, title=f"{settings.data}, {len(oracle.reach)} images, n = {settings.n}")


def _row(name: str, results: Results) -> Row:
    columns = results.columns
    return Row(name, np.where(columns.correct, columns.radius, 0.0), columns.correct.astype(np.float64))


def _best(name: str, rows: Sequence[Row]) -> Row:
    """The best row for each input, knowing the answers."""
    return Row(name, np.max([row.reach for row in rows], axis=0), np.max([row.right for row in rows], axis=0))


def _judge(singles: Sequence[Row], selected: Row) -> dict[str, Any]:
    """Against the goals: ACR above the best single level, at most two points below it at each radius."""
    best = np.max([row.accuracies() for row in singles], axis=0)
    behind = best - np.array(selected.accuracies())
    return {
        "acr_gain": selected.acr - max(row.acr for row in singles),
        "points_behind_best_single": [round(100 * float(points), 1) for points in behind],
        "most_points_behind": round(100 * float(behind.max()), 1),
    }


def _compare(selected: Row, published: Row) -> dict[str, Any]:
    """The sharper form against the published one, input by input: radii, where the answer is right."""
    gain = selected.reach - published.reach
    return {
        "acr": {"selected": selected.acr, "published": published.acr},
        "acr_gain": float(gain.mean()),
        "inputs_better": int((gain > 0).sum()),
        "inputs_worse": int((gain < 0).sum()),
        "inputs_equal": int((gain == 0).sum()),
        "largest_gain": max(0.0, float(gain.max())),
        "largest_loss": max(0.0, float(-gain.min())),
        "gain_of_each_input": [round(float(one), 6) for one in gain],
    }


def _explain(settings: Settings, oracle: Row, selected: Row) -> dict[str, float]:
    """The ACR that the oracle is ahead by, in three parts that add up to it.

    samples: the oracle has all n samples and α for every level; choice: the level that leads is not the best sampled
    one; exclusion: other levels are not excluded as far out as that level reaches.
    """
    import smoothcert as sc

    places = {level: place for level in settings.levels if (place := settings.selected / f"level-{level!r}").exists()}
    reach = np.zeros((len(oracle.reach), len(settings.levels)))
    at = {int(index): row for row, index in enumerate(sc.open_run(settings.selected).columns.index)}
    for number, level in enumerate(settings.levels):
        if level not in places:
            continue
        columns = sc.open_run(places[level]).columns
        rows = [at[int(index)] for index in columns.index]
        labels = sc.open_run(settings.single(level)).columns.label[rows]
        reach[rows, number] = np.where(columns.prediction == labels, columns.radius, 0.0)
    sigma = sc.open_run(settings.selected).columns.sigma
    leading = np.array([settings.levels.index(level) if level in settings.levels else 0 for level in sigma])
    own = reach[np.arange(len(reach)), leading]
    best = reach.max(axis=1)
    return {
        "acr": float(oracle.acr - selected.acr),
        "samples": float(oracle.acr - best.mean()),
        "choice": float((best - own).mean()),
        "exclusion": float(own.mean() - selected.acr),
    }


def _draw(rows: Sequence[Row], file: Path, *, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.0, 4.2))
    last = max(float(row.reach.max()) for row in rows)
    at = np.linspace(0.0, last, 400)
    for row in rows:
        style = {"oracle": ("k", ":", 1.2), "selected": ("C3", "-", 2.4), "selected-published": ("C1", "--", 1.6)}
        colour, line, width = style.get(row.name, (None, "-", 1.0))
        shares = [float((row.right if radius == 0 else row.reach >= radius).mean()) for radius in at]
        axes.plot(at, shares, line, color=colour, linewidth=width, label=f"{row.name}, ACR {row.acr:.3f}")
    axes.set(xlabel="radius (ℓ₂)", ylabel="certified accuracy", title=title, xlim=(0, last), ylim=(0, 1))
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


if __name__ == "__main__":
    app()

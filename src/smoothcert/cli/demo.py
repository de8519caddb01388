"""`smoothcert demo`: digits at three noise levels, certified, with tables, figures and a report. Every step resumes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.analysis.table_choices import BoundChoice, BoundMethod, PlotKind, TableFormat
from smoothcert.cli.printing import say

if TYPE_CHECKING:
    import threading

    from smoothcert.sampling.sampler import Progress

_RADII = "0,0.25,0.5,0.75,1,1.25,1.5"
_FIGURES = {
    "certified-accuracy.png": (PlotKind.ACCURACY, "digits: certified against every ℓ2 change"),
    "certified-accuracy.svg": (PlotKind.ACCURACY, "digits: certified against every ℓ2 change"),
    "envelope.png": (PlotKind.ENVELOPE, "digits: the best noise level for each radius"),
    "votes.png": (PlotKind.P_A, "digits: how sure the votes are"),
    "classes.png": (PlotKind.CLASSES, "digits: accuracy of the smoothed classifier by class"),
}
_TABLES = {"txt": TableFormat.TEXT, "md": TableFormat.MARKDOWN, "tex": TableFormat.LATEX}


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")] = Path("demo"),
    seed: Annotated[int, typer.Option("--seed", help="Seed of training and noise.")] = 0,
) -> None:
    """Train on digits at several noise levels, certify each model, and write tables, figures and an HTML report.

    Takes a few minutes. If it is interrupted, the same command resumes.
    """
    from smoothcert.cli.progress import samples_progress, stop_on_interrupt

    demonstration = Demo(out, seed=seed)
    with stop_on_interrupt() as stop:
        for sigma in demonstration.sigmas:
            say(f"sigma {sigma:g}: training on digits")
            demonstration.train(sigma, stop=stop)
            say(f"sigma {sigma:g}: certifying {demonstration.inputs} test images, {demonstration.n} noisy copies each")
            with samples_progress(demonstration.samples) as progress:
                demonstration.certify(sigma, stop=stop, progress=progress)
    typer.echo(demonstration.write_tables())
    for figure in demonstration.write_figures():
        say(f"wrote {figure}")
    say(f"tables: {out}/table.txt, .md and .tex; runs: {out}/sigma-*")
    say(f"report: {demonstration.write_report().resolve().as_uri()}")


class Demo:
    """A model and a run per noise level in one folder, and the tables, figures and report made from the runs."""

    def __init__(
        self,
        out: Path,
        *,
        seed: int,
        sigmas: Sequence[float] = (0.12, 0.25, 0.5),
        inputs: int = 150,
        n: int = 100_000,
        epochs: int = 60,
    ) -> None:
        self.out = out
        self.seed = seed
        self.sigmas = tuple(sigmas)
        self.inputs = inputs
        self.n = n
        self.epochs = epochs

    @property
    def samples(self) -> int:
        """Noisy copies classified per noise level."""
        return self.inputs * (self.n + 100)

    def model_path(self, sigma: float) -> Path:
        return self.out / f"digits-sigma-{sigma:g}.safetensors"

    def run_path(self, sigma: float) -> Path:
        return self.out / f"sigma-{sigma:g}"

    @property
    def _runs(self) -> tuple[Path, ...]:
        return tuple(self.run_path(sigma) for sigma in self.sigmas)

    def train(self, sigma: float, *, stop: threading.Event | None = None) -> None:
        """Train a small network on noisy digits. An existing model is kept."""
        from smoothcert.data import load_dataset
        from smoothcert.training import TrainingConfig, run_training

        path = self.model_path(sigma)
        if path.exists():
            return
        self.out.mkdir(parents=True, exist_ok=True)
        config = TrainingConfig(arch="mlp", sigma=sigma, seed=self.seed, epochs=self.epochs, batch=128)
        run_training(config, load_dataset("digits", split="train"), out=path, resume=True, device="cpu", stop=stop)

    def certify(self, sigma: float, *, stop: threading.Event | None = None, progress: Progress | None = None) -> None:
        """Certify the first test images. Stored results are kept."""
        from smoothcert.errors import ManifestMismatchError, RunError
        from smoothcert.runs.execution import execute_run, prepare_run
        from smoothcert.spec import ConstantLevel, DataSpec, FixedN, ModelSpec, NoiseSpec, RunSpec

        spec = RunSpec(
            task="certify",
            model=ModelSpec(place=str(self.model_path(sigma)), device="cpu"),
            data=DataSpec(place="digits", max_inputs=self.inputs),
            noise=NoiseSpec(),
            sigma=ConstantLevel(level=sigma),
            question=FixedN(n=self.n, n0=100),
            alpha=0.001,
            seed=self.seed,
        )
        try:
            with prepare_run(spec, self.run_path(sigma)) as run:
                execute_run(run, stop=stop, progress=progress)
        except ManifestMismatchError as error:
            raise RunError(f"{self.out} holds an older demonstration; remove it, or use another --out") from error

    def write_tables(self) -> str:
        """Write table.txt, table.md and table.tex; returns the text."""
        from smoothcert.analysis.formatting import TableRequest, format_results
        from smoothcert.files import write_atomically

        texts = {}
        for ending, form in _TABLES.items():
            texts[form] = format_results(TableRequest(runs=self._runs, radii=_RADII, form=form, envelope=True))
            write_atomically(self.out / f"table.{ending}", (texts[form] + "\n").encode(), overwrite=True)
        return texts[TableFormat.TEXT]

    def write_figures(self) -> list[Path]:
        """Draw the figures from the stored runs."""
        from smoothcert.analysis.plots import draw
        from smoothcert.runs.load import load_all

        runs = load_all(self._runs)
        for name, (kind, title) in _FIGURES.items():
            bound = BoundChoice(BoundMethod.EXACT) if kind is PlotKind.ACCURACY else None
            draw(runs, self.out / name, kind=kind, title=title, bound=bound)
        return [self.out / name for name in _FIGURES]

    def write_report(self) -> Path:
        """Write one HTML page about all runs."""
        from smoothcert.report.content import ReportRequest
        from smoothcert.report.page import write_report

        page = self.out / "report.html"
        title = "digits: one small network at three noise levels" if len(self.sigmas) == 3 else "digits"
        write_report(ReportRequest(runs=self._runs, radii=_RADII, title=title), page)
        return page

"""The demonstration: digits, three noise levels, certified-accuracy curves. Every step resumes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from smoothcert.analysis.options import BoundChoice, BoundMethod, PlotKind, TableFormat
from smoothcert.analysis.plots import draw
from smoothcert.analysis.reporting import TableRequest, results_table
from smoothcert.data import load_dataset
from smoothcert.errors import ManifestMismatchError, RunError
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.files import write_atomically
from smoothcert.runs.load import load_all
from smoothcert.sampling.sampler import Progress
from smoothcert.spec import ConstantLevel, DataSpec, FixedN, ModelSpec, NoiseSpec, RunSpec

_RADII = "0,0.25,0.5,0.75,1,1.25,1.5"
_FIGURES = {
    "certified-accuracy.png": (PlotKind.ACCURACY, "digits: certified against every ℓ2 change"),
    "certified-accuracy.svg": (PlotKind.ACCURACY, "digits: certified against every ℓ2 change"),
    "envelope.png": (PlotKind.ENVELOPE, "digits: the best noise level for each radius"),
    "votes.png": (PlotKind.P_A, "digits: how sure the votes are"),
    "classes.png": (PlotKind.CLASSES, "digits: accuracy of the smoothed classifier by class"),
}


class Demo:
    """A model and a run per noise level under one folder, and the tables, figures and page made from the runs."""

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

    def train(self, sigma: float, *, stop: threading.Event | None = None) -> None:
        """A small network trained on noisy digits; a model that is already there is kept."""
        from smoothcert.training import NoiseAugmentation, TrainingConfig, train

        if self.model_path(sigma).exists():
            return
        self.out.mkdir(parents=True, exist_ok=True)
        config = TrainingConfig(
            arch="mlp", objective=NoiseAugmentation(), sigma=sigma, seed=self.seed, epochs=self.epochs, batch=128
        )
        train(
            config,
            load_dataset("digits", split="train"),
            out=self.model_path(sigma),
            resume=True,
            device="cpu",
            stop=stop,
        )

    def certify(self, sigma: float, *, stop: threading.Event | None = None, progress: Progress | None = None) -> None:
        """Certified radii for the first test images; what is already stored is not done again."""
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
            raise RunError(f"{self.out} holds an older demonstration; remove it, or give another --out") from error

    def write_tables(self) -> str:
        """table.txt, table.md and table.tex; returns the text."""
        texts = {
            form: results_table(TableRequest(runs=self._runs(), radii=_RADII, form=form, envelope=True))
            for form in (TableFormat.TEXT, TableFormat.MARKDOWN, TableFormat.LATEX)
        }
        for form, ending in ((TableFormat.TEXT, "txt"), (TableFormat.MARKDOWN, "md"), (TableFormat.LATEX, "tex")):
            write_atomically(self.out / f"table.{ending}", (texts[form] + "\n").encode(), overwrite=True)
        return texts[TableFormat.TEXT]

    def write_figures(self) -> list[Path]:
        """The figures, drawn from the stored runs."""
        runs = load_all(self._runs())
        for name, (kind, title) in _FIGURES.items():
            bound = BoundChoice(BoundMethod.EXACT) if kind is PlotKind.ACCURACY else None
            draw(runs, self.out / name, kind=kind, title=title, bound=bound)
        return [self.out / name for name in _FIGURES]

    def write_report(self) -> Path:
        """One page about all of it."""
        from smoothcert.report.content import Request
        from smoothcert.report.page import write_report

        page = self.out / "report.html"
        title = "digits: one small network at three noise levels" if len(self.sigmas) == 3 else "digits"
        write_report(Request(runs=self._runs(), radii=_RADII, title=title), page)
        return page

    def _runs(self) -> tuple[Path, ...]:
        return tuple(self.run_path(sigma) for sigma in self.sigmas)

"""Options that the verbs share that train."""

from __future__ import annotations

from typing import Annotated

import typer

from smoothcert.cli import options as o
from smoothcert.training.choices import FloatFormat

TrainingData = Annotated[
    str,
    typer.Option(
        "--data",
        rich_help_panel=o.WHAT,
        autocompletion=o.complete_data,
        help="A dataset name (see `data list`) or a file.",
    ),
]
Epochs = Annotated[int, typer.Option("--epochs", rich_help_panel=o.TRAINING, help="Number of passes over the data.")]
StepBatch = Annotated[int, typer.Option("--batch", rich_help_panel=o.TRAINING, help="Inputs per step.")]
WeightAverage = Annotated[
    float,
    typer.Option(
        "--average",
        rich_help_panel=o.TRAINING,
        help="Decay of a moving average of the weights, such as 0.999; 0 for none.",
    ),
]
StepPrecision = Annotated[
    FloatFormat,
    typer.Option(
        "--precision",
        rich_help_panel=o.TRAINING,
        help="Number format of forward and backward passes; weights stay float32.",
    ),
]
TrainingSeed = Annotated[
    int | None,
    typer.Option("--seed", rich_help_panel=o.TRAINING, help="Seed of weights, order and noise (default: random)."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", rich_help_panel=o.ENGINE, help="Number of threads (default: one per core).")
]

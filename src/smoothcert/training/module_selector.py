"""`smoothcert.train_selector`: train a selector in Python, with models and data as Python objects."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothcert.errors import InputError
from smoothcert.models import as_classifier
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.models.zoo import locate_model
from smoothcert.records.selection import check_levels
from smoothcert.sigma.selected import read_levels
from smoothcert.training.choices import USUAL_RATES, Augment, Optimiser
from smoothcert.training.config import TrainingConfig
from smoothcert.training.module_training import choose_word
from smoothcert.training.objective import Objective
from smoothcert.training.objectives import parse_objective
from smoothcert.training.selector_training import SelectorConfig, TrainedSelector, train_selector_network
from smoothcert.training.selector_votes import read_votes_seed
from smoothcert.training.shown_progress import TrainingProgressOption, show_training
from smoothcert.training.state import choose_seed, partial_path
from smoothcert.training.training_data import read_training_data


def train_selector(
    models: Sequence[Any],
    data: Any,
    *,
    levels: Sequence[float],
    arch: str | None = None,
    sigma: float | None = None,
    n: int = 100,
    softness: float = 0.0,
    balance: bool = False,
    objective: str | Objective = "consistency",
    epochs: int = 10,
    batch: int = 256,
    lr: float | None = None,
    optimiser: str = "sgd",
    average: float = 0.0,
    augment: str = "none",
    out: str | Path | None = None,
    votes: str | Path | None = None,
    seed: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    progress: TrainingProgressOption = None,
) -> TrainedSelector:
    """Train a selector, which chooses one of `levels` for each input; `module, report = train_selector(…)`.

    models: the base classifier of each level, or one for all, as `SmoothedClassifier` takes them. data: as for `train`;
    of a dataset by name, or a file with splits, the training split. arch: the network of the selector, such as "lenet";
    None takes that of the last model, if it is a checkpoint of smoothcert. sigma: the noise level of the selector
    itself, the largest level if None.

    Each training input is sampled n times at each level. softness: a level whose estimated radius is smaller than the
    best by less than about this much is nearly as good a choice; 0: only the best level is right. balance: shift the
    outputs of the trained selector so that the mean estimated radius is largest on inputs it was not trained on.

    out: a checkpoint to write (.safetensors), which `certify --sigma-rule` takes; the votes are stored beside it, or in
    the file `votes`, which further selectors can use. The same call resumes an interrupted one, on the CPU bit for bit.
    The other arguments are those of `train`.
    """
    path = None if out is None else Path(out)
    if path is not None and path.suffix != ".safetensors":
        raise InputError(f"out={str(out)!r} must end in .safetensors, the format of checkpoints")
    if isinstance(models, str | Path) or not models:
        raise InputError("models must be a list: the base classifier of each level, or one for all")
    store = Path(votes) if votes is not None else None if path is None else votes_path(path)
    own_seed, votes_seed = choose_seeds(seed, path, store, resume=True)
    chosen = choose_word(Optimiser, optimiser, "optimiser")
    dataset, _ = read_training_data(data)
    wanted = read_levels(levels)
    check_levels(wanted)
    config = SelectorConfig(
        levels=wanted, n=n, softness=softness, balance=balance,
        training=TrainingConfig(
            arch=arch or find_arch(models[-1]), sigma=max(wanted) if sigma is None else sigma,
            objective=parse_objective(objective) if isinstance(objective, str) else objective,
            seed=own_seed, epochs=epochs, batch=batch, optimiser=chosen,
            peak_rate=USUAL_RATES[chosen] if lr is None else lr, average=average,
            augment=choose_word(Augment, augment, "augment"),
        ),
    )  # fmt: skip
    classifiers = [as_classifier(model, input_shape=dataset.input_shape, device=device) for model in models]
    with show_training(progress) as report:
        return train_selector_network(
            config, dataset, classifiers, out=path, votes_file=store,
            votes_seed=votes_seed, resume=True, device=device, threads=threads, progress=report,
            notice=lambda text: warnings.warn(text, stacklevel=4),
        )  # fmt: skip


def choose_seeds(given: int | None, out: Path | None, store: Path | None, *, resume: bool) -> tuple[int, int]:
    """(seed of the training, seed of the votes). Stored votes keep theirs, which is the default of the training."""
    stored = None if store is None else read_votes_seed(store)
    resumed = resume and out is not None and partial_path(out).exists()
    seed = stored if given is None and stored is not None and not resumed else choose_seed(given, out, resume=resume)
    return seed, seed if stored is None else stored


def votes_path(out: Path) -> Path:
    """Where the votes at the levels are stored, for the selector `out`."""
    return out.with_suffix(".votes.safetensors")


def find_arch(model: Any) -> str:
    """The architecture of a checkpoint of smoothcert, for a selector that is to be like it."""
    model = locate_model(model) if isinstance(model, str) else model
    if isinstance(model, Path) and model.suffix == ".safetensors" and model.is_file():
        return load_checkpoint(model).header.arch
    raise InputError(f"{model} does not say which network the selector should be: give arch (--arch), such as lenet")

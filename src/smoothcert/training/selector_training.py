"""Train a selector: a classifier that chooses, from an input under noise, the noise level of its base classifier.

Each training input is sampled at each level. Its label is the level at which the base classifier has the largest
estimated radius for the right class. The rest is an ordinary training with the noise of the selector (Sun, Mao, Vechev,
ICLR 2026, train theirs with consistency regularisation).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from smoothcert.data import Dataset, DatasetPart, write_part
from smoothcert.data.matching import match_dataset
from smoothcert.errors import DataError, InputError
from smoothcert.models import BaseClassifier, as_classifier
from smoothcert.models.devices import resolve_device
from smoothcert.models.tabular_names import check_same_classes, get_class_names, get_feature_names
from smoothcert.records import IntArray, Noise
from smoothcert.records.selection import check_levels, check_model_count
from smoothcert.sigma.over_data import Done, spread_evenly
from smoothcert.sigma.selected import SelectorFacts
from smoothcert.training.batches import seeded_generator
from smoothcert.training.config import TrainingConfig
from smoothcert.training.holding_out import held_out_path, hold_out
from smoothcert.training.level_labels import label_by_level
from smoothcert.training.level_votes import LevelVotes
from smoothcert.training.selector_balance import LEAST_BALANCED, MOST_BALANCED, balance_selector
from smoothcert.training.selector_report import SelectorReport, report_choices, sample_choices
from smoothcert.training.selector_votes import VotesRequest, sample_level_votes
from smoothcert.training.settings import check_count
from smoothcert.training.training_loop import TrainedModel, TrainingProgress
from smoothcert.training.training_run import check_output, run_training

_SHARE_KEPT, _MOST_KEPT = 0.1, 2000
_MOST_SAMPLED, _SAMPLES_REPORTED = 500, 1000
"""At most this many of the kept inputs are sampled for the report, and how often."""


@dataclass(frozen=True, slots=True)
class SelectorConfig:
    """Settings of one selector.

    levels: ascending. training: of the network; its sigma is the noise level of the selector. n: samples of each
    training input at each level. softness: in units of the radius: a level whose estimated radius is smaller than the
    best by less than about this much is nearly as good (`LevelVotes.soften`); 0 for the best level alone.
    share_held_out: of data without a test split, held out as in `run_training`; None for data with one. balance: shift
    the outputs so that the mean estimated radius is largest on inputs that are not trained on.
    """

    levels: tuple[float, ...]
    training: TrainingConfig
    n: int = 100
    softness: float = 0.0
    share_held_out: float | None = None
    balance: bool = False

    def __post_init__(self) -> None:
        check_levels(self.levels)
        check_count("n", self.n)
        if not (math.isfinite(self.softness) and self.softness >= 0):
            raise InputError(f"softness is {self.softness}: expected a finite number, at least 0")
        if not isinstance(self.sigma, float | int) or not self.sigma > 0:
            raise InputError(f"the noise level of a selector is {self.sigma}: expected a positive number")
        if self.training.noise is not Noise.GAUSSIAN or self.training.carried is not None:
            raise InputError("a selector is smoothed with Gaussian noise of one level")
        if self.softness > 0 and not getattr(self.training.objective, "uses_targets", False):
            raise InputError(
                f"the objective {self.training.objective.name} takes one level for each input: use softness 0 with it, "
                "or consistency, stability or gaussian"
            )

    @property
    def sigma(self) -> float:
        """The noise level of the selector."""
        sigma: Any = self.training.sigma
        return sigma  # type: ignore[no-any-return]

    @property
    def facts(self) -> SelectorFacts:
        return SelectorFacts(self.levels, float(self.sigma))


@dataclass(frozen=True, slots=True)
class TrainedSelector:
    """A finished selector. Unpacks to (module, report).

    trained: network, checkpoint and history. votes: of the levels for all training inputs. report: on training inputs
    that it was not trained on.
    """

    trained: TrainedModel
    votes: LevelVotes
    report: SelectorReport

    def __iter__(self) -> Any:
        return iter((self.trained.module, self.report))


def train_selector_network(
    config: SelectorConfig,
    dataset: Dataset,
    classifiers: Sequence[BaseClassifier],
    *,
    out: Path | None,
    votes_file: Path | None = None,
    votes_seed: int | None = None,
    resume: bool = False,
    device: str = "auto",
    threads: int | None = None,
    sampling: Done | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    notice: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> TrainedSelector:
    """Sample the levels, label the inputs of `dataset`, train the selector, and report how it chooses.

    classifiers: the base classifier of each level, or one for all. votes_file: where the votes are stored, from where
    an interrupted sampling is resumed; they may be used for further selectors. votes_seed: of their noise, that of the
    training if None. A tenth of the inputs, at most 2000, is not trained on: half of them, if that is enough, balance
    the outputs, and the others are for the report. sampling is called with (inputs done, all
    inputs). The other arguments are those of `run_training`, whose resumption is bit for bit.
    """
    if out is not None:
        check_output(out, resume=resume)  # before the levels are sampled
    each = list(classifiers) * (len(config.levels) if len(classifiers) == 1 else 1)
    check_classifiers(each, config.levels)
    seed, rest = config.training.seed, None
    if config.share_held_out is not None:
        dataset, rest = hold_out(dataset, share=config.share_held_out, seed=seed)
    data = _match(dataset, each[0])
    request = VotesRequest(
        dataset=data, classifiers=each, levels=config.levels, n=config.n, workers=threads,
        seed=seed if votes_seed is None else votes_seed,
    )  # fmt: skip
    votes = sample_level_votes(request, votes_file, progress=sampling, stop=stop)
    trained_on, kept = _split(len(data), seed)
    kept_data = label_by_level(data, kept, votes, softness=0.0, split="kept")
    balanced, reported = _halve(kept) if config.balance else (kept[:0], kept)
    target = resolve_device(device)

    def adjust(module: nn.Module) -> dict[str, Any]:
        part = DatasetPart(data, balanced, split="kept")
        radii = votes.take(balanced).radii
        found = balance_selector(module, part, radii, sigma=config.sigma, seed=seed, device=target, stop=stop)
        return {} if found is None else {"balance": asdict(found)}

    trained = run_training(
        config.training,
        label_by_level(data, trained_on, votes, softness=config.softness, split="train"),
        held_out=kept_data, out=out, selector=config.facts, further=_describe(config, request),
        adjust=adjust if len(balanced) else None,
        resume=resume, device=device, threads=threads, progress=progress, notice=notice, stop=stop,
    )  # fmt: skip
    if out is not None and rest is not None:
        write_part(held_out_path(out), rest)
    selector = as_classifier(trained.module, input_shape=data.input_shape, device=device)
    reported = reported[spread_evenly(len(reported), most=_MOST_SAMPLED)]
    report = report_choices(
        sample_choices(
            selector, DatasetPart(data, reported, split="kept"), sigma=config.sigma, n=_SAMPLES_REPORTED, seed=seed,
            workers=threads,
        ),
        votes.take(reported),
        sigma=config.sigma,
    )  # fmt: skip
    return TrainedSelector(trained, votes, report)


def check_classifiers(classifiers: Sequence[BaseClassifier], levels: Sequence[float]) -> None:
    """Refuse base classifiers that do not fit the levels or each other."""
    check_model_count(len(classifiers), levels=len(levels))
    check_same_classes([(classifier.description, classifier) for classifier in classifiers])


def _match(dataset: Dataset, classifier: BaseClassifier) -> Dataset:
    """The data with its columns and labels as the models take them."""
    data = match_dataset(dataset, class_names=get_class_names(classifier), feature_names=get_feature_names(classifier))
    low, high = int(data.labels.min()), int(data.labels.max())
    if low < 0 or high >= classifier.num_classes:
        raise DataError(
            f"{data.name} has labels in {low} … {high}, and the models have {classifier.num_classes} classes: every "
            "input needs a label that the models can answer"
        )
    return data


def _split(count: int, seed: int) -> tuple[IntArray, IntArray]:
    """(trained on, kept for the report): indices in ascending order."""
    kept = min(_MOST_KEPT, max(1, int(_SHARE_KEPT * count)))
    order = torch.randperm(count, generator=seeded_generator(seed, "kept for the report")).numpy()
    return np.sort(order[kept:]), np.sort(order[:kept])


def _halve(kept: IntArray) -> tuple[IntArray, IntArray]:
    """(inputs that balance the outputs, inputs for the report). None balance them where they would be too few."""
    balanced = kept[::2]
    if len(balanced) < LEAST_BALANCED:
        return kept[:0], kept
    return balanced[spread_evenly(len(balanced), most=MOST_BALANCED)], kept[1::2]


def _describe(config: SelectorConfig, request: VotesRequest) -> dict[str, Any]:
    """What the weights depend on, beside the settings of the training."""
    return {
        "noise_levels": list(config.levels),
        "softness": config.softness,
        **({"balanced": True} if config.balance else {}),
        "votes": {name: value for name, value in request.to_json().items() if name != "levels"},
    }

"""Where the gradients of an attack come from: the torch module of a classifier, or its answers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.attacks.attack_settings import AttackSettings, GradientSource
from smoothcert.errors import InputError
from smoothcert.models import TORCH_SUFFIXES, BaseClassifier, resolve_device
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.models.imported_models import import_model
from smoothcert.models.scaled_module import ScaledModule
from smoothcert.models.scores import gives_scores
from smoothcert.models.torch_classifier import private_copy
from smoothcert.models.torch_logits import take_logits
from smoothcert.models.torchscript import is_torchscript, load_torchscript
from smoothcert.models.zoo import locate_model
from smoothcert.records import InputArray
from smoothcert.runs.scales import scale_of
from smoothcert.spec import ModelSpec, RunSpec
from smoothcert.user_code import is_code_name


def to_numpy(points: Tensor) -> InputArray:
    values: InputArray = points.detach().cpu().numpy()
    return values


@dataclass(frozen=True, slots=True)
class GradientAccess:
    """How gradients are computed. module: to differentiate; None estimates gradients from answers, by `source`."""

    module: nn.Module | None
    source: GradientSource
    device: torch.device


@dataclass(frozen=True, slots=True)
class AttackedModel:
    """A base classifier, and how its gradients are computed."""

    classifier: BaseClassifier
    gradients: GradientAccess

    @property
    def concurrency(self) -> int | None:
        """How many threads may use it at once; None for any number."""
        return None if self.gradients.module is not None else self.classifier.concurrency

    def answer(self, batch: Tensor) -> Tensor:
        """(N, K): scores or one-hot votes, on the device of the batch, without a module's gradient."""
        values = np.ascontiguousarray(to_numpy(batch))
        if self.gradients.source is GradientSource.SCORES and gives_scores(self.classifier):
            scores = self.classifier.votes_and_scores(values)[1]
            return torch.from_numpy(scores).to(batch)
        votes = torch.from_numpy(self.classifier.classify(values)).to(batch.device)
        classes = torch.arange(self.classifier.num_classes, device=batch.device)
        return (votes[:, None] == classes).to(batch.dtype)


def choose_gradients(
    spec: RunSpec, classifier: BaseClassifier, settings: AttackSettings, *, input_shape: tuple[int, ...]
) -> GradientAccess:
    """Exact gradients for torch modules; otherwise estimates from scores or votes, as the settings ask."""
    wanted = GradientSource(settings.gradient)
    if wanted in (GradientSource.AUTO, GradientSource.EXACT):
        module = _load_module(spec, input_shape)
        if module is not None:
            scale = scale_of(spec.noise)
            module = module if scale is None else ScaledModule(module, scale)
            device = resolve_device(spec.model.device)
            return GradientAccess(private_copy(module, device), GradientSource.EXACT, device)
        if wanted is GradientSource.EXACT:
            raise InputError(
                f"{spec.model.place} is not a torch module, so it has no gradient: use --gradient scores or votes, "
                "which estimate it from answers"
            )
    has_scores = gives_scores(classifier)
    if wanted is GradientSource.SCORES and not has_scores:
        raise InputError(f"{spec.model.place} answers with classes alone, without scores: use --gradient votes")
    by_scores = has_scores and wanted is not GradientSource.VOTES
    return GradientAccess(None, GradientSource.SCORES if by_scores else GradientSource.VOTES, torch.device("cpu"))


def _load_module(spec: RunSpec, input_shape: tuple[int, ...]) -> nn.Module | None:
    """The torch module that the spec names; None if the model is of another kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same warnings were shown when the classifier was loaded
        model = _load_object(spec.model, input_shape)
        return take_logits(model, input_shape) if isinstance(model, nn.Module) else None


def _load_object(model: ModelSpec, input_shape: tuple[int, ...]) -> object:
    if is_code_name(model.place):
        return import_model(
            model.place,
            weights=model.weights,
            standardise=model.standardise,
            input_shape=input_shape,
            code_folder=model.code_folder,
        ).model
    path = locate_model(model.place)
    if path.suffix.lower() not in (".safetensors", *TORCH_SUFFIXES):
        return None
    if path.suffix.lower() in TORCH_SUFFIXES and is_torchscript(path):
        return load_torchscript(path)
    return load_checkpoint(
        path,
        arch=model.arch,
        num_classes=model.num_classes,
        input_shape=input_shape,
        standardise=model.standardise,
    ).module

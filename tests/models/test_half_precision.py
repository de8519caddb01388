"""Half precision as the user's choice: the module under autocast is another classifier, and is checked as such."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothcert.cluster.ray_model import ModelIdentity, pack_model
from smoothcert.errors import InputError, ModelError, ModelMismatchError
from smoothcert.models import as_classifier, load_classifier
from smoothcert.models.architectures import build
from smoothcert.models.autocast_module import AutocastModule, autocast_dtype_of, in_half_precision
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.models.half_precision import DTYPES, dtype_of
from smoothcert.models.original import is_tie
from smoothcert.models.scaled_classifier import scale_classifier
from smoothcert.models.torch_classifier import TorchClassifier, TorchDeviceClassifier
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.sampling import ModelChecks
from smoothcert.smoothed import SmoothedClassifier

CPU = torch.device("cpu")
ROUNDED = np.array([[1.0, 1.001], [1.001, 1.0], [0.0, 0.5]], dtype=np.float32)
"""In half precision 1.001 is 1 in bfloat16, and the next number in float16."""


def diagonal(factor: float = 1.0) -> nn.Module:
    """Logits are the inputs times a factor."""
    layer = nn.Linear(2, 2, bias=False)
    nn.init.eye_(layer.weight)
    with torch.no_grad():
        layer.weight.mul_(factor)
    return layer


def coarse() -> nn.Module:
    """Class 0 in bfloat16, where 256 and x is 256; class 1 in float32, where x is bright. Layers of torch only."""
    add, judge = nn.Linear(4, 4), nn.Linear(4, 2)
    nn.init.eye_(add.weight)
    nn.init.constant_(add.bias, 256.0)
    with torch.no_grad():
        judge.weight.copy_(torch.tensor([[0.0] * 4, [10.0] * 4]))
        judge.bias.copy_(torch.tensor([1.0, -10240.0]))
    return nn.Sequential(add, judge)


def network(name: str, shape: tuple[int, ...]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(name, num_classes=10, input_shape=shape).eval()


def test_the_classifier_is_the_module_under_autocast() -> None:
    votes = {
        dtype: as_classifier(diagonal(), input_shape=(2,), dtype=dtype).classify(ROUNDED) for dtype in (None, *DTYPES)
    }
    assert votes[None].tolist() == [1, 0, 1]
    assert votes["bfloat16"].tolist() == [0, 0, 1]  # a tie goes to the lowest class
    assert votes["float16"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_votes_of_a_network_are_those_that_autocast_gives(dtype: str) -> None:
    module = network("lenet", (1, 28, 28))
    batch = np.random.default_rng(0).random((32, 1, 28, 28), dtype=np.float32)
    classifier = as_classifier(module, input_shape=(1, 28, 28), dtype=dtype)
    with torch.no_grad(), torch.autocast("cpu", dtype=getattr(torch, dtype)):
        expected = module(torch.from_numpy(batch))
    assert expected.dtype is getattr(torch, dtype)
    assert classifier.classify(batch).tolist() == expected.float().argmax(dim=1).tolist()
    scores = classifier.votes_and_scores(batch)[1]
    assert np.allclose(scores, expected.double().softmax(dim=1).numpy())


def test_it_is_another_classifier_and_says_so() -> None:
    made = {dtype: as_classifier(diagonal(), input_shape=(2,), dtype=dtype) for dtype in (None, *DTYPES)}
    assert len({classifier.digest for classifier in made.values()}) == 3
    assert made["bfloat16"].digest == as_classifier(diagonal(), input_shape=(2,), dtype=torch.bfloat16).digest
    assert [dtype_of(classifier) for classifier in made.values()] == [None, *DTYPES]
    for dtype in DTYPES:
        assert made[dtype].description.endswith(f"in {dtype}")
        assert made[dtype].backend == f"torch cpu eager, autocast to {dtype}"
        assert made[dtype].as_given == f"it computes in {dtype}"  # never a fused graph, which rounds elsewhere
        assert not made[dtype].has_independent_rows  # nothing is claimed of kernels that differ by processor
    assert made[None].has_independent_rows


def test_the_description_of_a_checkpoint_names_the_precision(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "net.safetensors", network("mlp", (1, 4, 4)), CheckpointHeader("mlp", 10, (1, 4, 4)))
    loaded = load_classifier(tmp_path / "net.safetensors", dtype="bfloat16")
    assert loaded.description == "mlp from net.safetensors, 10 classes, inputs not standardised, in bfloat16"


def test_nothing_of_the_users_module_is_changed() -> None:
    module = diagonal()
    module.train()
    classifier = as_classifier(module, input_shape=(2,), dtype="bfloat16")
    classifier.classify(ROUNDED)
    assert classifier.original.answer(ROUNDED[0]).vote == 0
    assert module.weight.dtype is torch.float32
    assert module.training
    assert not torch.is_autocast_enabled("cpu")
    with torch.no_grad():
        assert module(torch.from_numpy(ROUNDED)).argmax(dim=1).tolist() == [1, 0, 1]


def test_other_threads_compute_in_it_too() -> None:
    """Fails where autocast is entered once: it belongs to a thread."""
    classifier = as_classifier(diagonal(), input_shape=(2,), dtype="bfloat16")
    found: list[list[int]] = []

    def work() -> None:
        classifier.prepare_thread()
        found.append(classifier.classify(ROUNDED).tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    classifier.release_threads()
    assert found == [[0, 0, 1]]


def test_overflow_in_float16_is_an_invalid_vote() -> None:
    batch = np.array([[100.0, 1.0], [1.0, 2.0], [-100.0, -100.0]], dtype=np.float32)
    invalid = 2
    overflowing = as_classifier(diagonal(1000.0), input_shape=(2,), dtype="float16")
    assert overflowing.classify(batch).tolist() == [invalid, 1, invalid]
    assert overflowing.votes_and_scores(batch)[0].tolist() == [invalid, 1, invalid]
    assert [overflowing.original.answer(row).vote for row in batch] == [invalid, 1, invalid]
    assert as_classifier(diagonal(1000.0), input_shape=(2,), dtype="bfloat16").classify(batch).tolist() == [0, 1, 0]


def test_nan_after_an_overflow_is_an_invalid_vote() -> None:
    module = nn.Sequential(diagonal(1000.0), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[1].weight.copy_(torch.tensor([[1.0, -1.0], [1.0, 1.0]]))
    classifier = as_classifier(module, input_shape=(2,), dtype="float16")
    assert classifier.classify(np.array([[100.0, 100.0], [1.0, 2.0]], dtype=np.float32)).tolist() == [2, 1]


def test_on_a_device_the_votes_are_the_same() -> None:
    """Exercised on the processor: no accelerator is needed for the code of accelerators."""
    there = TorchDeviceClassifier(in_half_precision(diagonal(), "bfloat16", CPU), device=CPU, input_shape=(2,))
    assert there.backend == "torch cpu, autocast to bfloat16"
    assert there.classify(ROUNDED).tolist() == [0, 0, 1]
    assert there.classify_tensor(torch.from_numpy(ROUNDED)).tolist() == [0, 0, 1]
    assert there.autocast_dtype == "bfloat16"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "shape"), [("mlp", (1, 8, 8)), ("small_net", (1, 7, 7))])
def test_votes_do_not_depend_on_the_batch_beyond_rounding(name: str, shape: tuple[int, ...], dtype: str) -> None:
    """Every vote of any batch is that of the module asked alone, or rounding explains it by the rule of the checks."""
    classifier = as_classifier(network(name, shape), input_shape=shape, dtype=dtype)
    copies = np.random.default_rng(1).normal(0.5, 0.5, (96, *shape)).astype(np.float32)
    alone = [classifier.original.answer(row) for row in copies]
    for batch in (1, 7, 16, 50, 96):
        votes = np.concatenate([classifier.classify(copies[at : at + batch].copy()) for at in range(0, 96, batch)])
        different = [row for row, vote in enumerate(votes) if vote != alone[row].vote]
        assert len(different) <= 0.05 * len(copies)
        assert all(is_tie(classifier.original, copies[row], alone[row], int(votes[row])) for row in different)


def test_votes_are_checked_against_the_module_in_that_precision() -> None:
    smoothed = SmoothedClassifier(coarse(), sigma=0.01, grid="float", dtype="bfloat16", seed=1, batch=64)
    (point,) = smoothed.certify(np.full((1, 4), 0.5), n0=20, n=200, alpha=0.01)
    assert point.prediction == 0
    assert (smoothed.checks.asked, smoothed.checks.ties) == (220, 0)
    (in_float32,) = SmoothedClassifier(coarse(), sigma=0.01, grid="float", seed=1, batch=64).certify(
        np.full((1, 4), 0.5), n0=20, n=200, alpha=0.01
    )
    assert in_float32.prediction == 1


def test_votes_in_float32_are_not_those_of_the_module_in_bfloat16() -> None:
    """Fails where the original is asked in its own precision, or where the tolerance of half precision hides it."""
    smoothed = SmoothedClassifier(coarse(), sigma=0.01, grid="float", dtype="bfloat16", input_shape=(4,), batch=64)
    assert isinstance(smoothed.classifier, TorchClassifier)
    smoothed.classifier._forward = coarse().eval()
    with pytest.raises(ModelMismatchError, match="what was sampled is not the model that was given"):
        smoothed.certify(np.full((1, 4), 0.5), n0=20, n=200, alpha=0.01)


class AgainstTheBatch(nn.Module):
    """Class 1 for inputs brighter than the mean of their batch; alone, an input is as bright as that."""

    def __init__(self) -> None:
        super().__init__()
        self.total = nn.Linear(4, 1, bias=False)
        nn.init.ones_(self.total.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        total = self.total(inputs)
        return torch.cat([torch.full_like(total, 0.1), total - total.mean()], dim=1)


@pytest.mark.slow
def test_a_row_that_depends_on_its_batch_is_refused() -> None:
    smoothed = SmoothedClassifier(AgainstTheBatch(), sigma=0.5, grid="float", dtype="bfloat16", batch=64)
    with pytest.raises(ModelMismatchError):
        smoothed.certify(np.full((1, 4), 0.5), n0=20, n=200, alpha=0.01)


class OwnCode(nn.Module):
    """One graph for all values, which only torch.export can show."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.layer(inputs))


@pytest.mark.slow
def test_a_module_of_the_users_own_code_is_exported_under_autocast() -> None:
    """Whether it is one graph decides how many threads may call it."""
    classifier = as_classifier(OwnCode(), input_shape=(4,), dtype="bfloat16")
    assert classifier.as_given == "it computes in bfloat16"
    assert classifier.concurrency == as_classifier(OwnCode(), input_shape=(4,)).concurrency


def test_a_scaled_classifier_keeps_it() -> None:
    base = as_classifier(diagonal(), input_shape=(2,), dtype="bfloat16")
    assert dtype_of(scale_classifier(base, FeatureScale((1.0, 2.0)))) == "bfloat16"


def test_a_packed_model_arrives_in_it(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_checkpoint(path, network("mlp", (1, 4, 4)), CheckpointHeader("mlp", 10, (1, 4, 4)))
    here = load_classifier(path, dtype="bfloat16", device="cpu")
    there = pack_model(str(path), {"dtype": "bfloat16", "device": "cpu"}).unpack(ModelIdentity.of(here))
    assert (there.digest, there.backend) == (here.digest, here.backend)
    plain = pack_model(str(path), {"device": "cpu"}).unpack(ModelIdentity.of(here))
    with pytest.raises(ModelError, match="another function"):
        ModelIdentity.of(here).check_agrees(ModelIdentity.of(plain), node="a")


def test_a_user_cannot_be_taken_for_our_classifier() -> None:
    """An attribute of somebody's own classifier with another content says nothing."""

    class Own:
        autocast_dtype = torch.bfloat16

    assert dtype_of(Own()) is None  # type: ignore[arg-type]
    assert autocast_dtype_of(diagonal()) is None
    assert autocast_dtype_of(AutocastModule(diagonal(), torch.float16)) is torch.float16


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "bf16", 16, torch.float64])
def test_an_unknown_precision_is_refused(dtype: object) -> None:
    with pytest.raises(InputError, match=r"there is no precision .*: use bfloat16 or float16"):
        SmoothedClassifier(diagonal(), sigma=0.5, dtype=dtype)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "onnxruntime"}, "--backend onnxruntime computes in float32"),
        ({"backend": "fastest"}, "--backend fastest computes in float32"),
        ({"noise_at": "first-layer"}, "needs the noise at the input"),
    ],
)
def test_what_computes_in_float32_is_refused_with_it(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SmoothedClassifier(diagonal(), sigma=0.5, dtype="bfloat16", **options)
    with pytest.raises(InputError, match=message):
        as_classifier(diagonal(), input_shape=(2,), dtype="bfloat16", **options)


def test_models_without_torch_are_refused() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    fitted = linear_model.LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    others = (lambda batch: batch, fitted, "net.onnx", as_classifier(diagonal(), input_shape=(2,)))
    for model in others:
        with pytest.raises(
            InputError, match=r"--dtype bfloat16 is for torch networks, by torch\.autocast, but the model"
        ):
            as_classifier(model, input_shape=(2,), num_classes=2, dtype="bfloat16")


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_a_module_with_another_precision_of_its_own_is_refused(kind: torch.dtype) -> None:
    with pytest.raises(ModelError, match="is for float32 networks, and the model has"):
        as_classifier(diagonal().to(kind), input_shape=(2,), dtype="bfloat16")


def test_torchscript_is_refused() -> None:
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        script = torch.jit.trace(diagonal(), torch.zeros(1, 2))
    for module in (script, nn.Sequential(script)):
        with pytest.raises(ModelError, match="a TorchScript program was compiled for the precision it has"):
            as_classifier(module, input_shape=(2,), dtype="bfloat16")


def test_a_device_where_torch_switches_autocast_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch only warns there, and the model would be computed in float32."""
    monkeypatch.setattr(torch, "autocast", functools.partial(torch.autocast, enabled=False))
    with pytest.raises(InputError, match=r"torch computes in torch.float32 on cpu, although torch.bfloat16"):
        in_half_precision(diagonal(), "bfloat16", CPU)


def test_the_checks_know_the_rounding_of_the_precision() -> None:
    for dtype, rounding in (("bfloat16", 5e-2), ("float16", 1e-2)):
        classifier = as_classifier(diagonal(), input_shape=(2,), dtype=dtype)
        answer = classifier.original.answer(ROUNDED[0])
        assert answer.rounding == rounding
        assert answer.last_place == torch.finfo(getattr(torch, dtype)).eps
        assert ModelChecks(classifier).asked == 0

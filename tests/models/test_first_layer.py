"""Noise drawn in the first layer: the same smoothed classifier in law; other networks are refused."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import nn

from smoothcert.errors import InputError, ModelError
from smoothcert.models.architectures import build
from smoothcert.models.base import FirstLayerNoise
from smoothcert.models.first_layer import FirstLayerClassifier
from smoothcert.models.standardise import Standardise
from smoothcert.models.torch_classifier import TorchClassifier
from smoothcert.records import Noise, Stage, StreamId, TallyKind
from smoothcert.sampling import Request, Sampler

SHAPE = (1, 6, 6)


def tail_on_torch(module, width, *, classes=3):
    return TorchClassifier(module, num_classes=classes, input_shape=(width,))


def in_first_layer(module, *, classes=3, shape=SHAPE):
    make_tail = functools.partial(tail_on_torch, classes=classes)
    return FirstLayerClassifier(module, input_shape=shape, make_tail=make_tail)


def network(**settings):
    torch.manual_seed(0)
    return build("mlp-8", num_classes=3, input_shape=SHAPE, **settings).eval()


def images(count, shape=SHAPE):
    return np.random.default_rng(1).random((count, *shape), dtype=np.float32)


class Viewing(nn.Module):
    """Flattens by the size of the batch, as many networks do."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(36, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        return self.second(torch.relu(self.first(inputs.view(inputs.size(0), -1))))


class Skipping(Viewing):
    def forward(self, inputs):
        flat = inputs.flatten(1)
        return self.second(torch.relu(self.first(flat))) + flat[:, :3]


class Squaring(Viewing):
    def forward(self, inputs):
        return self.second(torch.relu(self.first((inputs * inputs).flatten(1))))


class Branching(Viewing):
    def forward(self, inputs):
        return super().forward(inputs if inputs.sum() > 0 else -inputs)


@pytest.mark.parametrize(
    "module",
    [
        network(),
        network(standardise=((0.3,), (0.5,))),
        Viewing(),
        nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3)),
    ],
    ids=["mlp", "standardised", "view", "sequential"],
)
def test_without_noise_it_answers_as_the_network(module):
    torch.manual_seed(1)
    plain = TorchClassifier(module, num_classes=3, input_shape=SHAPE)
    classifier = in_first_layer(module)
    assert isinstance(classifier, FirstLayerNoise)
    assert not isinstance(plain, FirstLayerNoise)
    batch = images(200)
    assert np.array_equal(classifier.classify(batch), plain.classify(batch))
    votes, scores = classifier.votes_and_scores(batch)
    assert np.array_equal(votes, plain.classify(batch))
    np.testing.assert_allclose(scores, plain.votes_and_scores(batch)[1], atol=1e-6)
    assert classifier.tail.input_shape == (8,)
    assert "noise in the first layer" in classifier.backend
    assert classifier.digest != plain.digest


def test_the_draws_have_the_covariance_of_the_layer():
    """Two derivations: R from QR of the layer as it is run, and WWᵀ/std² from its weights."""
    module = network(standardise=((0.3,), (0.5,)))
    classifier = in_first_layer(module)
    normals = np.eye(8, dtype=np.float32)
    rows = np.empty_like(normals)
    classifier.colour(normals, rows)
    weight = module[1].layers[0].weight.detach().double().numpy()
    np.testing.assert_allclose(rows.T.astype(np.float64) @ rows, weight @ weight.T / 0.25, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 250])
def test_a_draw_does_not_depend_on_the_batch_it_is_made_in(rows):
    classifier = in_first_layer(network())
    normals = np.random.default_rng(2).standard_normal((rows, 8)).astype(np.float32)
    together, alone = np.empty_like(normals), np.empty_like(normals)
    classifier.colour(normals, together)
    for i in range(rows):
        classifier.colour(normals[i : i + 1], alone[i : i + 1])
    assert np.array_equal(together, alone)


def linear_votes(classifier, x, *, n, sigma=0.7, **settings):
    request = Request(0, StreamId(5, 0, Stage.ESTIMATION), sigma, 0, n, **settings)
    return Sampler(classifier, batch=256, workers=2).tally(x, [request])[0]


@pytest.mark.parametrize("shared", [False, True])
def test_votes_of_a_half_space_follow_the_closed_form(shared):
    """Logits (0, w·x + b) through a first layer of 2: P(class 1) = Φ((w·x + b)/σ‖w‖)."""
    torch.manual_seed(3)
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    with torch.no_grad():
        module[1].weight[0] = 0
        module[1].bias[0] = 0
    x, n = images(1), 40_000
    w, b = module[1].weight[1].detach().double().numpy(), float(module[1].bias[1].detach())
    p = special.ndtr((x.reshape(-1).astype(float) @ w + b) / (0.7 * np.linalg.norm(w)))
    tally = linear_votes(in_first_layer(module, classes=2), x, n=n, shared=shared)
    # A false alarm once in a million, were the seed not fixed.
    assert stats.binomtest(int(tally.counts[1]), n, p).pvalue > 1e-6
    assert stats.binomtest(int(tally.counts[1]), n, p + 0.02).pvalue < 1e-6


def test_votes_agree_in_law_with_noise_at_the_input():
    module = network()
    x, n = images(1), 30_000
    plain = linear_votes(TorchClassifier(module, num_classes=3, input_shape=SHAPE), x, n=n)
    here = linear_votes(in_first_layer(module), x, n=n)
    assert not np.array_equal(plain.counts, here.counts)
    used = (plain.counts + here.counts) > 20
    assert stats.chi2_contingency([plain.counts[used], here.counts[used]]).pvalue > 1e-6


def test_pairs_mirror_the_noise_in_the_layer():
    """At x = 0 a linear network with no offset votes for one of two classes at ε, and for the other at -ε."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 2, bias=False))
    tally = linear_votes(
        in_first_layer(module, classes=2), np.zeros((1, *SHAPE), np.float32), n=500, kind=TallyKind.PAIRS
    )
    assert tally.both.sum() == 0
    assert tally.first_only.sum() == tally.second_only.sum() == 500


def test_methods_that_need_noise_at_the_input_are_refused():
    classifier = in_first_layer(network())
    with pytest.raises(InputError, match="certificates from gradients need the noise at the input"):
        linear_votes(classifier, images(1), n=10, kind=TallyKind.GRADIENTS, group=(0, 1, 1, 1))
    with pytest.raises(InputError, match="uniform noise has another law"):
        linear_votes(classifier, images(1), n=10, noise=Noise.UNIFORM)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (Skipping(), "sees the input past it"),
        (Squaring(), "comes before it"),
        (Branching(), "cannot be read"),
        (nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(36, 3)), "comes before it"),
        (nn.Sequential(nn.Conv2d(1, 3, 6), nn.Flatten()), "it has none"),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3)), "comes before it"),
        (nn.Sequential(nn.Flatten(), nn.Linear(36, 36), nn.ReLU(), nn.Linear(36, 3)), "saves nothing"),
        (nn.Sequential(Standardise((0.0,), (1.0,)), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)), "comes before it"),
    ],
)
def test_a_network_with_another_first_layer_is_refused(module, why):
    with pytest.raises(ModelError, match=why) as error:
        in_first_layer(module)
    assert "omit --noise-at" in str(error.value).lower()


class Clipping(Standardise):
    """A standardisation that is not affine."""

    def forward(self, inputs):
        return super().forward(inputs.clamp(0, 1))


class ScaledLinear(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs.abs())


class ClippingFlatten(nn.Flatten):
    def forward(self, inputs):
        return super().forward(inputs.clamp(0, 1))


class Casting(Viewing):
    def forward(self, inputs):
        return self.second(torch.relu(self.first(inputs.view(torch.float32).view(inputs.size(0), -1))))


class Mixed(Viewing):
    """Computes the layer in bfloat16, which a symbolic trace does not show."""

    def forward(self, inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(inputs).float()


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 3)))


def clipping_first(front):
    return nn.Sequential(front, *plain())


def test_a_subclass_of_a_known_layer_is_refused():
    """Regression: a standardisation that clips was treated as affine, and another class was certified."""
    refused = [Clipping((0.0,), (1.0,)), ClippingFlatten()]
    for front in refused:
        with pytest.raises(ModelError, match="comes before it"):
            in_first_layer(clipping_first(front))
    with pytest.raises(ModelError, match="Omit --noise-at"):
        in_first_layer(nn.Sequential(nn.Flatten(), ScaledLinear(36, 8), nn.ReLU(), nn.Linear(8, 3)))


def clamp_inputs(module, inputs):
    return (inputs[0].clamp(0, 1),)


HOOKS = {
    "pre": lambda one: one.register_forward_pre_hook(clamp_inputs),
    "pre with kwargs": lambda one: one.register_forward_pre_hook(
        lambda module, inputs, names: ((inputs[0].clamp(0, 1),), names), with_kwargs=True
    ),
    "forward": lambda one: one.register_forward_hook(lambda module, inputs, output: output.abs()),
    "forward with kwargs": lambda one: one.register_forward_hook(
        lambda module, inputs, names, output: output.abs(), with_kwargs=True
    ),
    "own forward": lambda one: setattr(one, "forward", lambda inputs, old=one.forward: old(inputs).abs()),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("place", ["", "0", "1", "3", "3.0"])
def test_hooks_are_refused_wherever_they_are(hook, place):
    """Regression: hooks of the root and of containers were ignored."""
    module = plain()
    HOOKS[hook](module.get_submodule(place))
    with pytest.raises(ModelError, match=r"hook|replaced forward") as error:
        in_first_layer(module)
    assert "Omit --noise-at" in str(error.value)


@pytest.mark.parametrize(
    "register",
    [
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ],
)
def test_hooks_on_all_modules_are_refused(register):
    handle = register(lambda *arguments: None)
    try:
        with pytest.raises(ModelError, match="hooks on all modules"):
            in_first_layer(plain())
    finally:
        handle.remove()


def test_parametrizations_are_refused():
    module = plain()
    nn.utils.parametrizations.weight_norm(module[3][0])
    with pytest.raises(ModelError, match=r"has a parametrization\. Omit --noise-at"):
        in_first_layer(module)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_refused(dtype):
    with pytest.raises(ModelError, match=rf"float32 and .* is {dtype}\. Omit --noise-at"):
        in_first_layer(plain().to(dtype))


@pytest.mark.parametrize("check", [torch.equal, torch.allclose])
def test_branches_on_values_cannot_be_read(check):
    class Comparing(Viewing):
        def forward(self, inputs):
            return super().forward(inputs if check(inputs, inputs.clamp(0, 1)) else -inputs)

    with pytest.raises(ModelError, match="cannot be read"):
        in_first_layer(Comparing())


def test_a_branch_on_whether_a_value_is_zero_cannot_be_read():
    class Comparing(Viewing):
        def forward(self, inputs):
            return super().forward(inputs if torch.is_nonzero(inputs.sum()) else -inputs)

    with pytest.raises(ModelError, match="cannot be read"):
        in_first_layer(Comparing())


@pytest.mark.parametrize("module", [Casting(), Mixed()], ids=["view of other bits", "autocast"])
def test_code_that_a_trace_does_not_show_is_refused(module):
    with pytest.raises(ModelError, match=r"[Oo]mit --noise-at"):
        in_first_layer(module)


class Deceiving(nn.Module):
    """Gives other answers outside [0, 1], which a trace does not show."""

    def __init__(self):
        super().__init__()
        self.inner = plain()

    def forward(self, inputs):
        hidden = self.inner(inputs)
        if isinstance(hidden, torch.Tensor) and bool((inputs < -1).any()):
            return -hidden
        return hidden


def test_the_split_network_is_compared_with_the_module_on_noisy_inputs():
    with pytest.raises(ModelError, match=r"other logits than the network .*Omit --noise-at"):
        in_first_layer(Deceiving())


def test_the_votes_of_the_rest_are_compared_too():
    def wrong_tail(rest, width):
        return tail_on_torch(nn.Sequential(rest, Negative()), width)

    with pytest.raises(ModelError, match="other logits"):
        FirstLayerClassifier(plain(), input_shape=SHAPE, make_tail=wrong_tail)


class Negative(nn.Module):
    def forward(self, logits):
        return -logits


def test_dropout_and_other_known_layers_are_taken():
    module = nn.Sequential(Standardise((0.3,), (0.5,)), nn.Dropout(0.5), nn.Identity(), *plain())
    assert in_first_layer(module).num_classes == 3

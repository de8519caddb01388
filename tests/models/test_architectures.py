"""Architectures: shapes, parameter counts computed by hand, and the parameter names of published checkpoints."""

from __future__ import annotations

import pytest
import torch

from smoothcert.errors import InputError
from smoothcert.models.architectures import ARCHITECTURES, build, canonical_name
from smoothcert.models.standardise import Standardise


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def conv_bn(channels_in, channels, kernel):
    return channels_in * channels * kernel**2 + 2 * channels


@pytest.mark.parametrize(
    ("arch", "input_shape", "num_classes", "parameters"),
    [
        ("mlp", (1, 28, 28), 10, 784 * 200 + 200 + 200 * 10 + 10),
        ("mlp-64-32", (8, 8), 3, 64 * 64 + 64 + 64 * 32 + 32 + 32 * 3 + 3),
        ("lenet", (1, 28, 28), 10, 20 * 26 + 50 * 501 + 500 * 801 + 10 * 501),
        ("small_net", (1, 7, 7), 10, 4 * 5 + 100 * 145 + 10 * 101),
        ("cifar_resnet20", (3, 32, 32), 10, 272474),
    ],
)
def test_shapes_and_parameter_counts(arch, input_shape, num_classes, parameters):
    module = build(arch, num_classes=num_classes, input_shape=input_shape)
    assert count(module) == parameters
    assert module.eval()(torch.zeros(3, *input_shape)).shape == (3, num_classes)


def test_resnet20_count_by_hand():
    stage1 = 6 * conv_bn(16, 16, 3)
    stage2 = conv_bn(16, 32, 3) + 5 * conv_bn(32, 32, 3) + conv_bn(16, 32, 1)
    stage3 = conv_bn(32, 64, 3) + 5 * conv_bn(64, 64, 3) + conv_bn(32, 64, 1)
    total = conv_bn(3, 16, 3) + stage1 + stage2 + stage3 + 65 * 10
    assert total == 272474


def test_cifar_resnet_has_the_published_parameter_names():
    names = set(build("cifar_resnet20", num_classes=10, input_shape=(3, 32, 32)).state_dict())
    expected = {"conv1.weight", "fc.weight", "fc.bias", *batch_norm("bn1")}
    for stage in (1, 2, 3):
        for block in range(3):
            for part in (1, 2):
                expected |= {f"layer{stage}.{block}.conv{part}.weight", *batch_norm(f"layer{stage}.{block}.bn{part}")}
    for stage in (2, 3):
        expected |= {f"layer{stage}.0.downsample.0.weight", *batch_norm(f"layer{stage}.0.downsample.1")}
    assert names == expected


def test_resnet50_has_the_published_parameter_names_and_count():
    with torch.device("meta"):
        module = build("resnet50", num_classes=1000, input_shape=(3, 224, 224))
    assert count(module) == 25557032
    expected = {"conv1.weight", "fc.weight", "fc.bias", *batch_norm("bn1")}
    for stage, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            for part in (1, 2, 3):
                expected |= {f"layer{stage}.{block}.conv{part}.weight", *batch_norm(f"layer{stage}.{block}.bn{part}")}
        expected |= {f"layer{stage}.0.downsample.0.weight", *batch_norm(f"layer{stage}.0.downsample.1")}
    assert set(module.state_dict()) == expected
    assert module.layer2[0].conv2.stride == (2, 2)
    assert module.layer2[0].conv1.stride == (1, 1)


def test_resnet50_forward_on_a_small_image():
    module = build("resnet50", num_classes=7, input_shape=(3, 64, 64)).eval()
    with torch.inference_mode():
        assert module(torch.zeros(1, 3, 64, 64)).shape == (1, 7)


def test_resnet110_forward():
    module = build("cifar_resnet110", num_classes=10, input_shape=(3, 32, 32)).eval()
    assert len(module.layer1) == len(module.layer2) == len(module.layer3) == 18
    with torch.inference_mode():
        logits = module(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 10)
    assert torch.isfinite(logits).all()


def test_lenet_pools_and_rectifies_as_written():
    module = build("lenet", num_classes=10, input_shape=(1, 28, 28)).eval()
    inputs = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    functional = torch.nn.functional
    hidden = functional.max_pool2d(functional.relu(module.conv1(inputs)), 2)
    hidden = functional.max_pool2d(functional.relu(module.conv2(hidden)), 2)
    assert torch.equal(module(inputs), module.fc2(functional.relu(module.fc1(hidden.flatten(1)))))


@pytest.mark.parametrize(
    ("arch", "shape", "sentence"),
    [
        ("lenet", (1, 8, 8), r"lenet takes inputs of shape \(channels, 28, 28\), not \(1, 8, 8\)"),
        ("small_net", (49,), r"small_net takes inputs of shape \(channels, 7, 7\)"),
        ("cifar_resnet20", (3, 28, 28), r"\(channels, 32, 32\)"),
        ("resnet50", (224, 224), r"\(channels, height, width\)"),
        ("cifar_resnet21", (3, 32, 32), "depth is 6k\\+2"),
        ("lenett", (1, 28, 28), "did you mean lenet"),
        ("vgg", (1, 28, 28), "there is no architecture 'vgg'"),
        ("mlp", (), "not usable"),
        ("mlp", (0, 4), "not usable"),
    ],
)
def test_inputs_that_do_not_fit_are_explained(arch, shape, sentence):
    with pytest.raises(InputError, match=sentence):
        build(arch, num_classes=10, input_shape=shape)


def test_one_class_is_refused():
    with pytest.raises(InputError, match="at least 2 classes"):
        build("mlp", num_classes=1, input_shape=(4,))


def test_names_are_canonical():
    assert [canonical_name(name) for name in ARCHITECTURES] == list(ARCHITECTURES)
    assert canonical_name("Small-Net") == "small_net"
    assert canonical_name("MLP_64_32") == "mlp-64-32"


@pytest.mark.parametrize(
    ("shape", "mean", "std"),
    [((3, 4, 4), (0.1, 0.2, 0.3), (1.0, 2.0, 4.0)), ((5,), (0.5,), (2.0,)), ((3,), (1.0, 2.0, 3.0), (1.0, 2.0, 4.0))],
)
def test_standardise_is_per_channel(shape, mean, std):
    inputs = torch.rand(2, *shape)
    outputs = Standardise(mean, std)(inputs)
    for channel in range(shape[0]):
        entry = channel if len(mean) > 1 else 0
        torch.testing.assert_close(outputs[:, channel], (inputs[:, channel] - mean[entry]) / std[entry])


def test_standardise_comes_first_and_is_saved():
    module = build("mlp", num_classes=2, input_shape=(3,), standardise=((0.5,), (0.25,)))
    assert isinstance(module[0], Standardise)
    assert {"0.mean", "0.std"} <= set(module.state_dict())


@pytest.mark.parametrize(
    ("mean", "std"), [((0.5,), (0.0,)), ((0.5,), (-1.0,)), ((float("nan"),), (1.0,)), ((0.5, 0.5), (1.0,)), ((), ())]
)
def test_impossible_standardisation_is_refused(mean, std):
    with pytest.raises(InputError, match="standardisation"):
        Standardise(mean, std)


def test_standardisation_of_another_number_of_channels_is_refused():
    with pytest.raises(InputError, match="need 1 or 3"):
        build("cifar_resnet20", num_classes=10, input_shape=(3, 32, 32), standardise=((0.5, 0.5), (1.0, 1.0)))


def batch_norm(name):
    return {f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}

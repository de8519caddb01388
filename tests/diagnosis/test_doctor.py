"""`smoothcert doctor`: passes on the processor, with the code for accelerators too, and finds what is broken."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

from smoothcert.cli.main import app
from smoothcert.diagnosis import diagnose, noise_checks, vote_checks
from smoothcert.errors import InputError, NoiseError
from smoothcert.models.torch_classifier import TorchClassifier, TorchDeviceClassifier
from smoothcert.noise.device_noise import TorchNoise
from smoothcert.records import Noise
from tests.support.cli_runner import invoke

CPU = torch.device("cpu")


def failed(findings):
    return [finding.name for finding in findings if not finding.passed]


def test_the_command_passes_on_the_processor():
    result = invoke(app, "doctor", "--device", "cpu", "--no-speeds")
    assert result.exit_code == 0, result.output
    assert "all checks passed" in result.stdout
    assert "FAILED" not in result.stdout
    assert "forward/s" not in result.stdout


@pytest.mark.slow
def test_speeds_as_json():
    result = invoke(app, "doctor", "--device", "cpu", "--json")
    found = json.loads(result.stdout)
    assert found["passed"] is True
    assert [speed["network"] for speed in found["speeds"]] == list(vote_checks.SHAPES)
    for speed in found["speeds"]:
        assert speed["sampling"] > 0
        assert speed["sampling_by_bare"] == pytest.approx(speed["sampling"] / speed["bare"])
    assert found["peak_memory"]["bytes"] > 2**26
    assert found["versions"]["torch"] == torch.__version__


def test_the_code_for_accelerators_passes():
    found = diagnose(CPU, accelerated=True, version="1", speeds=False)
    assert found.passed
    assert isinstance(vote_checks.make_classifier("lenet", CPU, accelerated=True), TorchDeviceClassifier)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="device 'mps' is not available"):
        invoke(app, "doctor", "--device", "mps")


def test_every_noise_is_compared():
    names = [case.name for case in noise_checks._list_cases(CPU)]
    for noise in Noise:
        if noise.sampled:
            assert any(name.startswith(f"{noise} noise in float32") for name in names)
            assert any(name.startswith(f"{noise} noise, sigma 1, 65536 levels") for name in names)
        else:
            assert any(name.startswith(f"{noise}, sigma 1, 65536 levels") for name in names)


def test_a_wrong_cell_of_the_device_is_found(monkeypatch):
    split = noise_checks.split_with_torch

    def split_wrongly(k, offsets, numbers, **options):
        return split(k, offsets, numbers + (numbers > 300), **options)

    monkeypatch.setattr(noise_checks, "split_with_torch", split_wrongly)
    found = noise_checks.check_bits(CPU)
    assert not found.passed
    assert "differs from plain numpy for splitting" in found.detail


@pytest.mark.parametrize("maker", ["grid_draws", "unit_noise"])
def test_a_wrong_bit_of_the_device_is_found(maker, monkeypatch):
    module = noise_checks.grid_with_torch if maker == "grid_draws" else noise_checks.with_torch
    draw = getattr(module, maker)

    def draw_wrongly(*arguments, size, **options):
        drawn = draw(*arguments, size=size, **options)
        if size == 784:
            drawn[5, 783] = drawn[5, 783] + (1 if maker == "grid_draws" else 1e-6)
        return drawn

    monkeypatch.setattr(module, maker, draw_wrongly)
    finding = noise_checks.check_bits(CPU)
    assert not finding.passed
    assert finding.detail.startswith("torch on cpu differs from plain numpy for gaussian noise")


def test_a_wrong_bit_of_compiled_code_is_found(monkeypatch):
    monkeypatch.setattr(noise_checks, "unit_noise", lambda *_, count, size, **__: np.zeros((count, size), np.float32))
    assert "compiled code differs" in noise_checks.check_bits(CPU).detail


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_without_a_kernel_the_check_says_so(device):
    found = noise_checks.check_kernel(torch.device(device))
    assert found.passed
    assert f"there is none for {device}: torch operations make the noise" in found.detail


def test_a_kernel_that_was_refused_is_a_failed_check(monkeypatch):
    def refuse(device, dtype):
        warnings.warn("the noise kernel is not used on cpu", stacklevel=1)

    monkeypatch.setattr(noise_checks, "can_have_kernel", lambda device: True)
    monkeypatch.setattr(noise_checks, "find_kernel", refuse)
    found = noise_checks.check_kernel(CPU)
    assert not found.passed
    assert found.detail == "the noise kernel is not used on cpu"
    monkeypatch.setattr(noise_checks, "find_kernel", lambda device, dtype: None)
    found = noise_checks.check_kernel(CPU)
    assert found.passed
    assert "Triton is not installed" in found.detail


def test_the_bits_of_the_kernel_are_compared(monkeypatch):
    class Wrong(TorchNoise):
        name = "a kernel"

        def add_on_grid(self, out, place, law, stream, *, start):
            super().add_on_grid(out, place, law, stream, start=start + (law.levels == 65536))

    monkeypatch.setattr(noise_checks, "can_have_kernel", lambda device: True)
    monkeypatch.setattr(noise_checks, "_SIZES", (31,))
    for made, passed in ((TorchNoise(), True), (Wrong(), False)):
        monkeypatch.setattr(noise_checks, "find_kernel", lambda device, dtype, made=made: made)
        found = noise_checks.check_kernel(CPU)
        assert found.passed is passed
    assert "a kernel differs from plain numpy for gaussian noise of 65536 levels" in found.detail


def test_a_failed_self_test_is_reported(monkeypatch):
    def fail(*_, **__):
        raise NoiseError("the tails are wrong")

    monkeypatch.setattr(noise_checks, "check_noise", fail)
    found = diagnose(CPU, version="1", speeds=False)
    assert failed(found.findings) == ["noise law"]
    assert "FAILED  noise law" in found.describe()
    assert "1 of 9 checks failed" in found.describe()


class Disturbed:
    """A classifier whose votes another function changes."""

    def __init__(self, classifier, disturb):
        self._classifier, self._disturb = classifier, disturb

    def __getattr__(self, name):
        return getattr(self._classifier, name)

    def classify(self, batch):
        return self._disturb(self._classifier.classify(batch))


def change_some(votes):
    votes[::50] = (votes[::50] + 1) % 10
    return votes


def change_in_large_batches(votes):
    return change_some(votes) if len(votes) > 64 else votes


def change_at_random(votes):
    votes[np.random.default_rng().integers(0, len(votes), 1 + len(votes) // 50)] = 0
    return votes


@pytest.mark.parametrize(
    ("disturb", "names"),
    [
        (change_some, {"votes"}),
        (change_in_large_batches, {"rows alone"}),
        (change_at_random, {"repeated"}),
    ],
)
def test_wrong_votes_are_found(disturb, names, monkeypatch):
    def make(arch, device, *, accelerated):
        network = vote_checks.make_network(arch)
        return Disturbed(TorchClassifier(network, input_shape=vote_checks.SHAPES[arch]), disturb)

    monkeypatch.setattr(vote_checks, "make_classifier", make)
    found = {name.split(",")[0] for name in failed(vote_checks.check_votes(CPU, accelerated=False))}
    assert names <= found


def test_a_failed_check_is_exit_code_1(monkeypatch):
    monkeypatch.setattr(noise_checks, "unit_noise", lambda *_, count, size, **__: np.zeros((count, size), np.float32))
    result = invoke(app, "doctor", "--device", "cpu", "--no-speeds")
    assert result.exit_code == 1
    assert "FAILED  noise bits" in result.stdout

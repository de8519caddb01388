"""Who makes noise on a device: the choice, what it falls back to, and the test that runs make."""

from __future__ import annotations

import sys
import types
import warnings

import pytest
import torch

from smoothcert.errors import NoiseError
from smoothcert.noise import device_noise as chosen
from smoothcert.noise import device_test
from smoothcert.noise.device_noise import NoiseTargets, TorchNoise, find_kernel
from smoothcert.noise.device_test import NoiseCase, check_on_device, equals_host, find_difference
from smoothcert.records import Noise

CPU = torch.device("cpu")


class OneBit(TorchNoise):
    """The lowest bit of one value of x+ε is flipped, in long rows."""

    name = "a wrong kernel"

    def add_on_grid(self, out: NoiseTargets, *arguments, **options):
        super().add_on_grid(out, *arguments, **options)
        self._flip(out)

    def add_float(self, out: NoiseTargets, *arguments, **options):
        super().add_float(out, *arguments, **options)
        self._flip(out)

    def _flip(self, out):
        if out.shape[1] > 50:
            out.plus.view(torch.int32)[-1, 40] ^= 1


class Behind(TorchNoise):
    """Writes one row too many."""

    def add_float(self, out: NoiseTargets, *arguments, **options):
        super().add_float(out, *arguments, **options)
        out.plus.as_strided((out.shape[0] + 1, out.shape[1]), out.plus.stride())[-1] = 0.0


@pytest.fixture
def kernel(monkeypatch):
    """Put a class in the place of the kernel, on the processor."""

    def use(made):
        module = types.ModuleType("smoothcert.noise.with_triton")
        module.KernelNoise = made
        monkeypatch.setitem(sys.modules, "smoothcert.noise.with_triton", module)
        monkeypatch.setenv("TRITON_INTERPRET", "1")

    return use


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_torch_operations_give_the_bits_of_the_host(dtype):
    assert find_difference(TorchNoise(), CPU, dtype) is None


def test_one_bit_and_one_row_are_noticed():
    """Negative control."""
    for levels in (None, 256):
        case = NoiseCase(Noise.GAUSSIAN, 0.5, levels, 69, 2**32 - 3)
        assert not equals_host(OneBit(), case, CPU, torch.float32)
    assert not equals_host(Behind(), NoiseCase(Noise.UNIFORM, 0.5, None, 9, 0), CPU, torch.float32)


def test_a_kernel_with_the_bits_of_the_host_is_chosen(kernel):
    class Kernel(TorchNoise):
        name = "a kernel"

    kernel(Kernel)
    assert isinstance(find_kernel(CPU, torch.float32), Kernel)


def test_a_kernel_with_other_bits_is_not_used(kernel):
    kernel(OneBit)
    with pytest.warns(
        UserWarning, match="not used on cpu, torch operations are: it does not draw the bits of the host"
    ):
        assert find_kernel(CPU, torch.float32) is None


def test_a_kernel_that_fails_is_not_used(kernel):
    def fail():
        raise RuntimeError("the compiler\nfailed")

    kernel(fail)
    with pytest.warns(UserWarning, match="it fails with RuntimeError: failed"):
        assert find_kernel(CPU, torch.float32) is None


def test_without_triton_and_on_other_devices_nothing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "smoothcert.noise.with_triton", None)  # importing it is an ImportError
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        assert find_kernel(CPU, torch.float32) is None
        monkeypatch.delenv("TRITON_INTERPRET")
        assert find_kernel(CPU, torch.float32) is None
        assert find_kernel(torch.device("mps"), torch.float32) is None


def test_a_run_with_other_bits_on_its_device_is_refused(monkeypatch):
    monkeypatch.setattr(device_test, "device_noise", lambda device, dtype: OneBit())
    with pytest.raises(NoiseError, match="a wrong kernel on cpu does not draw the bits of the host for uniform noise"):
        check_on_device(CPU, torch.float32, noise=Noise.UNIFORM, sigma=0.5, levels=256)
    check_on_device(CPU, torch.float32, noise=Noise.SPLITTING, sigma=0.5, levels=256)  # nothing is drawn
    monkeypatch.setattr(device_test, "device_noise", chosen.device_noise)
    for levels in (None, 256):
        check_on_device(CPU, torch.float32, noise=Noise.UNIFORM, sigma=0.5, levels=levels)

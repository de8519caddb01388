"""Devices: missing ones are named, and settings are restored."""

from __future__ import annotations

import threading

import pytest
import torch

from smoothcert.errors import InputError
from smoothcert.models import devices


def test_cpu_and_auto_resolve():
    assert devices.resolve_device("cpu") == torch.device("cpu")
    assert devices.resolve_device(" CPU ") == torch.device("cpu")
    assert devices.resolve_device("auto").type in ("cpu", "cuda", "mps")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:-1", "cpu:0", "mps:1", "auto:0", "cuda:x"])
def test_unknown_names_are_refused(name):
    with pytest.raises(InputError, match="is unknown: use auto"):
        devices.resolve_device(name)


def test_absent_cuda_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="'cuda' is not available"):
        devices.resolve_device("cuda")


def test_absent_second_card_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert devices.resolve_device("cuda:0") == torch.device("cuda", 0)
    assert devices.resolve_device("auto") == torch.device("cuda", 0)
    with pytest.raises(InputError, match="'cuda:1' is not available: this machine has 1"):
        devices.resolve_device("cuda:1")


def test_absent_mps_is_named(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError, match="'mps' is not available"):
        devices.resolve_device("mps")


@pytest.mark.usefixtures("two_torch_threads")
def test_thread_count_is_restored():
    before = torch.get_num_threads()
    with devices.torch_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_a_sequential_worker_leaves_the_main_thread_alone():
    with devices.torch_threads(2):
        seen = []

        def work() -> None:
            devices.make_thread_sequential()
            seen.append(torch.get_num_threads())

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        assert seen == [1]
        assert torch.get_num_threads() == 2


def test_reproducible_kernels_are_scoped():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        with devices.reproducible_kernels():
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.backends.cudnn.deterministic
            assert not torch.backends.cudnn.benchmark
        assert torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.benchmark = before[1]
    assert torch.get_float32_matmul_precision() == before[0]


def test_cores_are_counted():
    assert devices.usable_cores() >= 1

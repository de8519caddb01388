"""Data to train and evaluate small networks on."""

from __future__ import annotations

import pytest

from smoothcert.data import load_dataset


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", split="train")


@pytest.fixture(scope="module")
def held_out():
    return load_dataset("digits", split="test")

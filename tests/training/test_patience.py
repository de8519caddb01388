"""Early stopping: decided on held-back training inputs, with the weights of the best epoch."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch

from small_training import SmallDigits
from smoothcert.errors import DataError, InputError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import Steps, TrainingConfig, noisy_accuracy, run_training
from smoothcert.training.objectives.augmentation import NoiseAugmentation

CPU = torch.device("cpu")


def config(**changes):
    """A constant rate: an epoch does not depend on how many follow."""
    settings = {
        "arch": "mlp-32", "sigma": 0.0, "seed": 2, "epochs": 10, "batch": 32, "schedule": Steps(drops=0),
        "peak_rate": 0.05, "patience": 2,
    }  # fmt: skip
    return TrainingConfig(**(settings | changes))


def run(out, *, data=None, held_out=None, **changes):
    return run_training(
        config(**changes), data or SmallDigits(300), held_out=held_out, out=out, device="cpu", threads=1
    )


class Watching(NoiseAugmentation):
    """Records the training inputs of every epoch."""

    __slots__ = ()
    seen: ClassVar[list[list[bytes]]] = []

    def terms(self, module, batch, generator, /):
        self.seen.append([each.tobytes() for each in batch.inputs.numpy()])
        return super().terms(module, batch, generator)


class Unlearning(NoiseAugmentation):
    """Learns for 27 steps, three epochs of 270 inputs, then forgets."""

    __slots__ = ()
    steps: ClassVar[list[int]] = []

    def terms(self, module, batch, generator, /):
        self.steps.append(1)
        sign = 1.0 if len(self.steps) <= 27 else -1.0
        return {name: sign * value for name, value in super().terms(module, batch, generator).items()}


def same_weights(first, second):
    return all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_tenth_is_kept_back_and_never_learned_from(tmp_path, monkeypatch):
    monkeypatch.setattr(Watching, "seen", [])
    data = SmallDigits(300)
    trained = run(tmp_path / "m.safetensors", data=data, objective=Watching(), epochs=3, patience=3)
    place = {each.tobytes(): number for number, each in enumerate(data.inputs(slice(None)))}
    assert len(place) == 300
    assert len(Watching.seen) == 3 * 9
    epochs = [[place[each] for batch in Watching.seen[at : at + 9] for each in batch] for at in (0, 9, 18)]
    assert all(len(set(each)) == len(each) == 270 for each in epochs)
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    kept_back = np.setdiff1d(np.arange(300), epochs[0])
    # Without noise the order does not matter: the accuracy that decides is that of the inputs kept back.
    best = max(each.accuracy for each in trained.history)
    assert noisy_accuracy(trained.module, data, sigma=0.0, seed=9, device=CPU, among=kept_back) == best
    assert all(each.accuracy * 30 == pytest.approx(round(each.accuracy * 30)) for each in trained.history)


def test_other_seeds_keep_other_inputs_back_and_without_patience_none_are(tmp_path, monkeypatch):
    used = []
    for number, changes in enumerate([{"seed": 1}, {"seed": 2}, {"patience": None}]):
        monkeypatch.setattr(Watching, "seen", [])
        run(tmp_path / f"{number}.safetensors", objective=Watching(), epochs=1, **changes)
        used.append({each for batch in Watching.seen for each in batch})
    assert [len(each) for each in used] == [270, 270, 300]
    assert used[0] != used[1]


@pytest.mark.parametrize("average", [0.0, 0.3])
def test_the_weights_of_the_best_epoch_are_written(average, tmp_path, monkeypatch):
    monkeypatch.setattr(Unlearning, "steps", [])
    stopped = run(tmp_path / "stopped.safetensors", objective=Unlearning(), average=average)
    accuracies = [each.accuracy for each in stopped.history]
    best = int(np.argmax(accuracies))
    facts = stopped.header.training
    assert best < len(accuracies) - 1
    assert facts["epoch_taken"] == best + 1
    assert facts["epochs_done"] == len(accuracies) == best + 1 + 2 < 10
    # A training of just so many epochs ends there.
    monkeypatch.setattr(Unlearning, "steps", [])
    short = run(tmp_path / "short.safetensors", objective=Unlearning(), average=average, epochs=best + 1)
    assert same_weights(short.module.state_dict(), stopped.module.state_dict())
    assert same_weights(
        load_checkpoint(tmp_path / "stopped.safetensors").module.state_dict(), short.module.state_dict()
    )
    assert short.accuracy == stopped.accuracy


def test_what_is_held_out_decides_nothing(tmp_path, monkeypatch):
    test = SmallDigits(100, split="test")
    lying = SmallDigits(100, split="test", labels=(test.labels + 1) % 10)
    results = []
    for number, held_out in enumerate([test, lying, None]):
        monkeypatch.setattr(Unlearning, "steps", [])
        results.append(run(tmp_path / f"{number}.safetensors", objective=Unlearning(), held_out=held_out))
    assert len({each.header.training["epoch_taken"] for each in results}) == 1
    assert len({each.header.training["epochs_done"] for each in results}) == 1
    for other in results[1:]:
        assert same_weights(other.module.state_dict(), results[0].module.state_dict())
        assert [each.accuracy for each in other.history] == [each.accuracy for each in results[0].history]
    assert results[0].accuracy > results[1].accuracy + 0.2
    direct = noisy_accuracy(results[0].module, test, sigma=0.0, seed=2, device=CPU)
    assert results[0].accuracy == direct


def test_a_training_that_goes_on_getting_better_is_not_stopped(tmp_path):
    trained = run(tmp_path / "m.safetensors", epochs=3, patience=3)
    assert trained.header.training["epochs_done"] == 3
    assert len(trained.history) == 3


def test_impossible_patience_is_refused(tmp_path):
    with pytest.raises(InputError, match="patience is 0: expected at least 1, or None"):
        config(patience=0)
    with pytest.raises(DataError, match="1 inputs in split train to train on; training needs at least 2"):
        run(tmp_path / "m.safetensors", data=SmallDigits(2), batch=2)

"""`smoothcert.train`: the user's module, in Python, by the loop of the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
import typer
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler, TensorDataset

import own_networks
import smoothcert as sc
from cli_runner import environment, invoke
from smoothcert import progress_display
from smoothcert.cli import train as verb
from smoothcert.data import load_dataset
from smoothcert.errors import DataError, InputError, ManifestMismatchError, ModelError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import curves_path, partial_path
from smoothcert.training.objectives.consistency import Consistency

OPTIONS = {"sigma": 0.25, "epochs": 2, "batch": 64, "seed": 4, "device": "cpu", "threads": 1}


@pytest.fixture(scope="module")
def arrays():
    digits = load_dataset("digits", split="train")
    return digits.inputs(slice(0, 300)), digits.labels[:300]


def make_net():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return own_networks.Net()


def weights(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def assert_same_weights(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.fixture(scope="module")
def expected(arrays):
    """Weights after the training of `make_net()` on the arrays."""
    return weights(sc.train(make_net(), arrays, **OPTIONS).module)


def test_it_trains_in_place_and_returns_module_and_history(arrays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net, before, reports = make_net(), weights(make_net()), []
    random = torch.get_rng_state()
    trained = sc.train(net, arrays, objective="consistency", progress=reports.append, **OPTIONS)
    module, history = trained
    assert module is trained.module is net
    assert not net.training
    assert not torch.equal(net.last.weight, before["last.weight"])
    assert history[1].loss < history[0].loss
    assert set(history[0].terms) == {"cross_entropy", "consistency", "entropy"}
    assert [each.evaluated_on for each in history] == ["train", "train"]
    assert trained.path is None
    assert trained.header.arch == "own_networks:Net"
    assert reports[-1].step == reports[-1].steps
    assert torch.equal(torch.get_rng_state(), random)
    assert list(tmp_path.iterdir()) == []


def test_the_history_is_a_frame(arrays):
    pandas = pytest.importorskip("pandas")
    _, history = sc.train(make_net(), arrays, **OPTIONS)
    frame = history.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["epoch"]) == [1, 2]
    assert {"loss", "accuracy_under_noise", "learning_rate", "mean_sigma", "seconds", "evaluated_on"} <= set(frame)


def test_progress_is_lines_a_bar_or_nothing(arrays, capsys, monkeypatch):
    sc.train(make_net(), arrays, progress=True, **OPTIONS)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert "train accuracy under noise" in lines[0]
    sc.train(make_net(), arrays, **OPTIONS)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress_display, "_SECONDS_BEFORE_SHOWN", 0.0)
    sc.train(make_net(), arrays, **OPTIONS)
    shown = capsys.readouterr().err
    assert "100%" in shown
    assert "epoch 2/2  loss" in shown
    assert "taken" in shown
    sc.train(make_net(), arrays, progress=False, **OPTIONS)
    assert capsys.readouterr().err == ""


def test_the_trained_module_is_certified(arrays):
    net, _ = sc.train(make_net(), arrays, **(OPTIONS | {"epochs": 8}))
    points = sc.SmoothedClassifier(net, sigma=0.25, num_classes=10, device="cpu").certify(arrays[0][:5], n=500)
    assert sum(point.radius is not None and point.radius > 0 for point in points) >= 3


class Images(Dataset):
    """Items as torchvision gives them: a tensor and a number."""

    def __init__(self, inputs, labels):
        self.inputs_, self.labels_ = torch.tensor(inputs), labels

    def __len__(self):
        return len(self.labels_)

    def __getitem__(self, index):
        return self.inputs_[index], int(self.labels_[index])


KINDS = {
    "tensors": lambda x, y: (torch.tensor(x), torch.tensor(y)),
    "float64 and lists": lambda x, y: [x.astype(np.float64), y.tolist()],
    "TensorDataset": lambda x, y: TensorDataset(torch.tensor(x), torch.tensor(y)),
    "Dataset": lambda x, y: Images(x, y),
    "DataLoader": lambda x, y: DataLoader(Images(x, y), batch_size=32),
    "shuffling DataLoader": lambda x, y: DataLoader(Images(x, y), batch_size=32, shuffle=True),
    "Subset": lambda x, y: Subset(Images(np.concatenate([x, x]), np.concatenate([y, y])), range(len(x))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_the_same_bits(kind, arrays, expected):
    trained = sc.train(make_net(), KINDS[kind](*arrays), **OPTIONS)
    assert_same_weights(weights(trained.module), expected)


def test_uint8_means_256_levels(arrays):
    """As in files."""
    inputs = np.rint(arrays[0] * 255).astype(np.uint8)
    trained = sc.train(make_net(), (inputs, arrays[1]), **OPTIONS)
    same = sc.train(make_net(), (inputs / np.float32(255), arrays[1]), **OPTIONS)
    assert_same_weights(weights(trained.module), weights(same.module))


def test_the_command_line_gives_the_same_bits(tmp_path):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(verb.train)
    settings = ["--sigma", 0.25, "--epochs", 2, "--batch", 64, "--seed", 4, "--device", "cpu", "--threads", 1]
    more = ["--objective", "stability:weight=1", "--optimiser", "adamw", "--average", 0.9]
    out = tmp_path / "cli.safetensors"
    assert invoke(app, *settings, *more, "--data", "digits", "--arch", "own_networks:Net", "--out", out).exit_code == 0
    python = sc.train(
        "own_networks:Net", "digits", objective="stability:weight=1", optimiser="adamw", average=0.9,
        out=tmp_path / "python.safetensors", **OPTIONS,
    )  # fmt: skip
    loaded = load_checkpoint(out, arch="own_networks:Net")
    assert_same_weights(weights(loaded.module), weights(python.module))
    facts = [{**header.training, "seconds": 0} for header in (loaded.header, python.header)]
    assert facts[0] == facts[1]
    assert facts[0]["noisy_accuracy_split"] == "test"
    curves = [curves_path(path).read_text().splitlines() for path in (out, tmp_path / "python.safetensors")]
    assert [line.split(",")[:4] for line in curves[0]] == [line.split(",")[:4] for line in curves[1]]


def test_objective_as_a_name_with_settings_or_as_an_object(arrays):
    first = sc.train(make_net(), arrays, objective="consistency:weight=3,noises=2", **OPTIONS)
    second = sc.train(make_net(), arrays, objective=Consistency(weight=3.0, noises=2), **OPTIONS)
    assert_same_weights(weights(first.module), weights(second.module))


def test_the_average_is_what_the_module_has_afterwards(arrays, expected, tmp_path):
    net = make_net()
    trained = sc.train(net, arrays, average=0.9, out=tmp_path / "m.safetensors", **OPTIONS)
    assert trained.module is net
    assert not torch.equal(net.last.weight, expected["last.weight"])
    assert_same_weights(weights(load_checkpoint(trained.path, arch="own_networks:Net").module), weights(net))


def test_validation_data_and_a_share_to_hold_out(arrays, tmp_path):
    (inputs, labels), out = arrays, tmp_path / "m.safetensors"
    named = sc.train(make_net(), arrays, validation=(inputs[:50], labels[:50]), **OPTIONS)
    assert named.header.training["noisy_accuracy_split"] == "validation"
    assert named.header.training["noisy_accuracy_inputs"] == 50
    shared = sc.train(make_net(), arrays, validation=0.25, out=out, **OPTIONS)
    assert {each.evaluated_on for each in shared.history} == {"held-out"}
    assert shared.header.training["hold_out"] == 0.25
    assert len(load_dataset(str(out.with_suffix(".held-out.npz")))) == 75


def test_a_held_out_file_of_something_else_is_not_overwritten(arrays, tmp_path):
    out = tmp_path / "m.safetensors"
    out.with_suffix(".held-out.npz").write_bytes(b"mine")
    with pytest.raises(InputError, match="never overwritten"):
        sc.train(make_net(), arrays, validation=0.25, out=out, **OPTIONS)
    assert out.with_suffix(".held-out.npz").read_bytes() == b"mine"


PROGRAM = """
import sys, time
import smoothcert as sc
from smoothcert.training import training_loop
from test_module_training import OPTIONS, make_net
from smoothcert.data import load_dataset

real = training_loop.save_state
def save_slowly(path, state):
    real(path, state)
    print(state.epoch, state.batch, flush=True)
    time.sleep(0.2)
training_loop._SECONDS_BETWEEN_STATES = 0.0
training_loop.save_state = save_slowly
digits = load_dataset("digits", split="train")
sc.train(make_net(), (digits.inputs(slice(0, 300)), digits.labels[:300]), out=sys.argv[1], **OPTIONS)
"""


@pytest.mark.slow
def test_kill_nine_and_the_same_call_gives_the_same_bits(arrays, expected, tmp_path):
    out = tmp_path / "m.safetensors"
    places = {**environment(), "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), environment()["PYTHONPATH"]])}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(out)], env=places, stdout=subprocess.PIPE, text=True
    ) as process:
        assert any(tuple(map(int, line.split())) >= (1, 2) for line in iter(process.stdout.readline, ""))
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert partial_path(out).exists()
    assert not out.exists()
    # Other first weights do not matter: those of the stored state are used.
    options = {name: value for name, value in OPTIONS.items() if name != "seed"}
    resumed = sc.train(own_networks.Net(), arrays, out=str(out), **options)
    assert_same_weights(weights(resumed.module), expected)
    assert resumed.header.training["seed"] == OPTIONS["seed"]
    assert len(resumed.history) == 2
    assert_same_weights(weights(load_checkpoint(out, arch="own_networks:Net").module), expected)
    assert not partial_path(out).exists()


class Stopped(BaseException):
    """As KeyboardInterrupt, in the middle of a training."""


def test_an_interrupted_training_is_resumed_only_with_its_settings(arrays, expected, tmp_path):
    def stop_in_second_epoch(report):
        if report.epoch == 2:
            raise Stopped

    out = tmp_path / "m.safetensors"
    with pytest.raises(Stopped):
        sc.train(make_net(), arrays, out=out, progress=stop_in_second_epoch, **OPTIONS)
    with pytest.raises(ManifestMismatchError, match=r"sigma was 0\.25, now 0\.5"):
        sc.train(make_net(), arrays, out=out, **(OPTIONS | {"sigma": 0.5}))
    with pytest.raises(ManifestMismatchError, match="data was"):
        sc.train(make_net(), (arrays[0][:200], arrays[1][:200]), out=out, **OPTIONS)
    resumed = sc.train(make_net(), arrays, out=out, **OPTIONS)
    assert_same_weights(weights(resumed.module), expected)
    with pytest.raises(InputError, match="exists and is never overwritten"):
        sc.train(make_net(), arrays, out=out, **OPTIONS)


class Augmented(Images):
    def __getitem__(self, index):
        inputs, label = super().__getitem__(index)
        return inputs.flip(-1) if torch.rand(()) < 0.5 else inputs, label


def refused_data(inputs, labels):
    return {
        "random transforms": (Augmented(inputs, labels), InputError, "was another input when it was read again"),
        "a sampler": (
            DataLoader(Images(inputs, labels), sampler=SubsetRandomSampler(range(5))),
            InputError,
            "chooses inputs by a SubsetRandomSampler",
        ),
        "a collate_fn": (DataLoader(Images(inputs, labels), collate_fn=list), InputError, "its own collate_fn"),
        "no labels": (TensorDataset(torch.tensor(inputs)), InputError, "input 0 has no label"),
        "inputs alone": (inputs, InputError, "is not data to train on: expected the name of a dataset"),
        "one-hot labels": ((inputs, np.eye(10)[labels]), InputError, r"argmax\(axis=1\)"),
        "too few labels": ((inputs, labels[:5]), InputError, "300 inputs came with 5 labels"),
        "fractions": ((inputs, labels + 0.5), InputError, "expected a whole number"),
        "NaN": ((np.full_like(inputs, np.nan), labels), InputError, "NaN or infinite"),
        "an unknown name": ("no-such-dataset", DataError, "no-such-dataset"),
        "nothing": (TensorDataset(torch.zeros(0, 3), torch.zeros(0)), InputError, "the dataset is empty"),
    }


@pytest.mark.parametrize("case", refused_data(np.zeros((300, 1, 8, 8), np.float32), np.zeros(300, np.int64)))
def test_data_that_cannot_be_trained_on_is_refused(case, arrays):
    data, error, message = refused_data(*arrays)[case]
    with pytest.raises(error, match=message):
        sc.train(make_net(), data, **OPTIONS)


@pytest.mark.parametrize(
    ("module", "changes", "error", "message"),
    [
        (own_networks.Net, {}, InputError, r"expected a torch.nn.Module: call it, Net\(\)"),
        (lambda x: x, {}, InputError, "a function cannot be trained"),
        ("lennet", {}, InputError, "did you mean lenet"),
        (own_networks.FewLogits(), {}, ModelError, "gives 3 logits, but data has 10 classes"),
        (own_networks.Flat(), {}, ModelError, "own_networks:Flat"),
        (own_networks.Net(), {"objective": "unknown"}, InputError, "there is no objective 'unknown'"),
        (own_networks.Net(), {"optimiser": "adam"}, InputError, "optimiser='adam' is unknown: use sgd, adamw"),
        (own_networks.Net(), {"augment": "mixup"}, InputError, "augment='mixup' is unknown"),
        (own_networks.Net(), {"out": "m.pth"}, InputError, "must end in .safetensors"),
        (own_networks.Net(), {"validation": 1.5}, InputError, "share to hold out is 1.5"),
        (own_networks.Net(), {"noise": "laplace"}, InputError, "there is no noise 'laplace'"),
        (own_networks.Net(), {"lr": -1.0}, InputError, "learning rate is -1.0"),
        (own_networks.Net(), {"lr": 1e30}, ModelError, "diverged in epoch 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(module, changes, error, message, arrays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        sc.train(module, arrays, **(OPTIONS | changes))
    assert list(tmp_path.iterdir()) == []


def test_without_torch_it_says_how_to_install_it():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import smoothcert\n"
        "try:\n    smoothcert.train\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "training needs torch: pip install 'smoothcert[torch]'" in done.stdout

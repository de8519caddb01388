"""The user's own code as a model: weights from a file, random weights, factories, and where code is found."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from smoothcert.errors import InputError, ModelError
from smoothcert.models import load_classifier
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.models.imported_models import RandomWeightsWarning, import_model
from smoothcert.models.own_weights import AdjustedWeightsWarning
from smoothcert.models.standardise import Standardise
from smoothcert.records.outcomes import RemarkCode
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.user_code import RecordedFolderWarning, locate_code

CODE = """
import functools
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))

class Wide(nn.Module):
    def __init__(self, width, *, depth):
        super().__init__()

def make():
    return Net()

def make_lazy():
    torch.manual_seed(0)
    return nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())

def make_seeded():
    torch.manual_seed(0)
    return Net()

def make_wide(width, depth):
    return Wide(width, depth=depth)

def make_function(width):
    return lambda batch: batch[:, :width]

def make_linear(classes):
    return nn.Linear(4, classes)

def logits(batch):
    return batch[:, :3]

class Loaded(Net):
    def __init__(self):
        super().__init__()
        for one in self.parameters():
            nn.init.constant_(one, 0.5)

shared = make_seeded()
"""
SHAPE = (4,)
BATCH = np.random.default_rng(0).random((32, 4), dtype=np.float32)


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module in the current folder, imported."""
    (tmp_path / "home_nets.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import home_nets

    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    yield home_nets
    sys.modules.pop("home_nets", None)


@pytest.fixture
def trained(code: Any) -> Any:
    torch.manual_seed(7)
    net = code.Net().eval()
    net.norm.running_mean.uniform_()
    return net


def votes(module: Any) -> np.ndarray:
    with torch.no_grad():
        return module(torch.from_numpy(BATCH)).argmax(1).numpy()


class TestWeights:
    @pytest.mark.parametrize("name", ["net.pt", "net.pth", "net.safetensors"])
    @pytest.mark.parametrize("maker", ["Net", "make", "shared"])
    def test_a_state_dict_of_an_own_class(self, trained: Any, name: str, maker: str) -> None:
        (save_file if name.endswith("safetensors") else torch.save)(trained.state_dict(), name)
        classifier = load_classifier(f"home_nets:{maker}", weights=name, input_shape=SHAPE)
        np.testing.assert_array_equal(classifier.classify(BATCH), votes(trained))
        assert classifier.description.endswith(f"weights from {name}")
        assert not getattr(classifier, "has_random_weights", False)

    def test_a_module_of_the_users_code_is_not_changed(self, code: Any, trained: Any) -> None:
        torch.save(trained.state_dict(), "net.pt")
        before = code.shared.out.weight.clone()
        load_classifier("home_nets:shared", weights="net.pt", input_shape=SHAPE)
        assert torch.equal(code.shared.out.weight, before)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (lambda state: {"state_dict": state, "epoch": 3}, "entry 'state_dict'"),
            (lambda state: {"model_state_dict": state, "optimizer": {}}, "entry 'model_state_dict'"),
            (lambda state: {"model": state}, "entry 'model'"),
            (lambda state: {f"module.{name}": one for name, one in state.items()}, "begin with 'module.'"),
            (lambda state: {f"_orig_mod.{name}": one for name, one in state.items()}, "begin with '_orig_mod.'"),
        ],
    )
    def test_what_wrappers_add_is_removed_and_said(self, trained: Any, change: Callable[[Any], Any], told: str) -> None:
        torch.save(change(dict(trained.state_dict())), "net.pt")
        with pytest.warns(AdjustedWeightsWarning, match=told):
            classifier = load_classifier("home_nets:Net", weights="net.pt", input_shape=SHAPE)
        np.testing.assert_array_equal(classifier.classify(BATCH), votes(trained))

    def test_a_sequential_network_keeps_its_names(self, code: Any, tmp_path: Path) -> None:
        """Fails where "1." is taken as a network behind a normalising layer, as in files of Cohen et al."""
        (tmp_path / "own_sequential.py").write_text(
            "from torch import nn\ndef make():\n    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3))\n"
        )
        module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 3))
        torch.save(module.state_dict(), "net.pt")
        classifier = load_classifier("own_sequential:make", weights="net.pt", input_shape=SHAPE)
        np.testing.assert_array_equal(classifier.classify(BATCH), votes(module))
        sys.modules.pop("own_sequential")

    def test_what_does_not_fit_is_named(self, trained: Any) -> None:
        state = dict(trained.state_dict())
        state["head.bias"] = state.pop("out.bias")
        state["hidden.weight"] = torch.zeros(5, 9)
        torch.save(state, "net.pt")
        with pytest.raises(ModelError) as error:
            load_classifier("home_nets:Net", weights="net.pt", input_shape=SHAPE)
        assert str(error.value) == (
            "net.pt does not fit home_nets:Net: it lacks out.bias; it has besides head.bias; it has hidden.weight "
            "of shape (5, 9) instead of (5, 4)"
        )

    def test_no_number_is_rounded(self, trained: Any) -> None:
        state = {name: one.double() for name, one in trained.state_dict().items()}
        torch.save(state, "same.pt")
        load_classifier("home_nets:Net", weights="same.pt", input_shape=SHAPE)
        state["out.bias"] += 1e-12
        torch.save(state, "finer.pt")
        with pytest.raises(ModelError, match=r"out.bias in torch.float64, and home_nets:Net has it in"):
            load_classifier("home_nets:Net", weights="finer.pt", input_shape=SHAPE)

    def test_code_in_the_file_is_not_run(self, trained: Any) -> None:
        torch.save(trained, "net.pt")
        with pytest.raises(ModelError, match=r"asks to run code.*save its weights alone.*--weights FILE"):
            load_classifier("home_nets:Net", weights="net.pt", input_shape=SHAPE)

    @pytest.mark.parametrize(
        ("model", "error", "message"),
        [
            ("net.pt", InputError, "--weights are for a network in your own code"),
            ("home_nets:logits", ModelError, "needs the argument batch"),
            ("home_nets:functools", InputError, "is a module"),
        ],
    )
    def test_weights_are_for_torch_modules(
        self, trained: Any, model: str, error: type[Exception], message: str
    ) -> None:
        torch.save(trained.state_dict(), "net.pt")
        with pytest.raises(error, match=message):
            load_classifier(model, weights="net.pt", input_shape=SHAPE)

    def test_a_missing_file_is_named(self, code: Any) -> None:
        with pytest.raises(ModelError, match=r"there is no file gone.pt"):
            load_classifier("home_nets:Net", weights="gone.pt", input_shape=SHAPE)

    def test_a_file_of_weights_alone_says_the_command(self, trained: Any) -> None:
        torch.save({"model_state_dict": trained.state_dict()}, "net.pt")
        with pytest.raises(ModelError, match=r"--model mynet:Net --weights net.pt"):
            load_classifier("net.pt", input_shape=SHAPE)


class TestStandardise:
    NUMBERS = ((0.5,), (0.25,))

    def test_comes_first(self, trained: Any) -> None:
        torch.save(trained.state_dict(), "net.pt")
        expected = votes(torch.nn.Sequential(Standardise(*self.NUMBERS), trained))
        classifier = load_classifier("home_nets:Net", weights="net.pt", standardise=self.NUMBERS, input_shape=SHAPE)
        np.testing.assert_array_equal(classifier.classify(BATCH), expected)
        assert not np.array_equal(expected, votes(trained))

    def test_of_a_checkpoint_of_smoothcert_is_kept(self, trained: Any, tmp_path: Path) -> None:
        module = torch.nn.Sequential(Standardise(*self.NUMBERS), trained)
        header = CheckpointHeader(arch="mlp", num_classes=3, input_shape=SHAPE, standardise=self.NUMBERS)
        save_checkpoint(tmp_path / "net.safetensors", module, header)
        classifier = load_classifier("home_nets:Net", weights="net.safetensors", input_shape=SHAPE)
        np.testing.assert_array_equal(classifier.classify(BATCH), votes(module))
        with pytest.raises(ModelError, match="says standardise is"):
            load_classifier("home_nets:Net", weights="net.safetensors", standardise=((0.0,), (1.0,)), input_shape=SHAPE)

    def test_is_not_ignored(self, code: Any) -> None:
        """Fails where the option has no effect on the user's own code."""
        with pytest.raises(InputError, match="--standardise is for torch modules"):
            load_classifier("home_nets:logits", standardise=self.NUMBERS, input_shape=SHAPE)
        with pytest.raises(InputError, match="--arch lenet is for a file of weights"):
            load_classifier("home_nets:logits", arch="lenet", input_shape=SHAPE)


class TestRandomWeights:
    @pytest.mark.parametrize("maker", ["Net", "make", "make_lazy"])
    def test_are_said_aloud(self, code: Any, maker: str) -> None:
        with pytest.warns(RandomWeightsWarning, match=r"WARNING: home_nets:\w+ was just constructed"):
            classifier = load_classifier(f"home_nets:{maker}", input_shape=SHAPE)
        assert classifier.has_random_weights  # type: ignore[attr-defined]
        assert classifier.description.endswith("random weights")

    @pytest.mark.parametrize("out", [None, "run"])
    @pytest.mark.parametrize("maker", ["Net", "make_seeded"])
    def test_are_recorded_by_calls_and_runs_in_python(self, code: Any, maker: str, out: str | None) -> None:
        is_random = maker == "Net"
        with pytest.warns(RandomWeightsWarning) if is_random else nullcontext():
            smoothed = SmoothedClassifier(f"home_nets:{maker}", sigma=0.25, seed=1, batch=32, workers=1)
        assert repr(smoothed).startswith("SmoothedClassifier(Net, ")
        results = smoothed.certify(BATCH[:2], n0=10, n=50, out=out)
        assert results.manifest is not None
        assert results.manifest.model.has_random_weights is is_random
        assert any(remark.code is RemarkCode.RANDOM_WEIGHTS for remark in results.columns.remarks) is is_random
        assert results.manifest.model.description.endswith("random weights") is is_random

    @pytest.mark.parametrize("maker", ["make_seeded", "Loaded", "shared", "logits"])
    def test_nothing_is_said_of_weights_that_stay_the_same(self, code: Any, maker: str) -> None:
        classifier = load_classifier(f"home_nets:{maker}", input_shape=SHAPE)
        assert not getattr(classifier, "has_random_weights", False)


class TestFactories:
    @pytest.mark.parametrize(
        ("name", "arguments", "call"),
        [
            ("Wide", "width, depth", "return Wide(width=..., depth=...)"),
            ("make_wide", "width, depth", "return make_wide(width=..., depth=...)"),
        ],
    )
    def test_required_arguments_are_named(self, code: Any, name: str, arguments: str, call: str) -> None:
        with pytest.raises(ModelError) as error:
            load_classifier(f"home_nets:{name}", input_shape=SHAPE)
        assert f"home_nets:{name} needs the arguments {arguments}" in str(error.value)
        assert call in str(error.value)
        assert "give home_nets:make_model" in str(error.value)

    def test_one_argument_is_taken_as_a_batch_and_that_is_said(self, code: Any) -> None:
        message = "was taken as a function of a batch of inputs; if it makes the model.* calls it with classes"
        with pytest.raises(ModelError, match=message):
            load_classifier("home_nets:make_linear", input_shape=SHAPE)

    def test_one_argument_that_anything_fits(self, code: Any) -> None:
        """Fails where the answer, a function, is taken for labels: the number of classes was said to be missing."""
        with pytest.raises(ModelError, match=r"with a function, not with logits.* calls it with width"):
            load_classifier("home_nets:make_function", input_shape=SHAPE)

    def test_a_path_is_not_the_name_of_a_module(self) -> None:
        with pytest.raises(ModelError, match="the name of a module, not its path"):
            load_classifier("src/mynet.py:Net")


class TestFolders:
    @pytest.fixture
    def away(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """Code in a folder that is not the current one."""
        home = tmp_path / "home"
        (home / "mypack" / "inner").mkdir(parents=True)
        (home / "mynet_away.py").write_text("def model(batch):\n    return batch\n")
        for folder in ("mypack", "mypack/inner"):
            (home / folder / "__init__.py").write_text("")
        (home / "mypack/inner/net.py").write_text("from mypack import inner\ndef model(batch):\n    return batch\n")
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        yield home
        for name in [one for one in sys.modules if one.partition(".")[0] in ("mynet_away", "mypack")]:
            del sys.modules[name]

    @pytest.mark.parametrize("spec", ["mynet_away:model", "mypack.inner.net:model"])
    def test_code_is_found_where_it_was(self, away: Path, spec: str) -> None:
        with pytest.raises(ModelError, match="cannot be imported"):
            import_model(spec)
        before = list(sys.path)
        with pytest.warns(RecordedFolderWarning, match=f"its code is imported from {away}"):
            assert callable(import_model(spec, code_folder=str(away)).model)
        assert sys.path == before
        assert locate_code(spec) == str(away)

    def test_code_from_here_takes_precedence(self, away: Path) -> None:
        Path("mynet_away.py").write_text("model = 7\n")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert import_model("mynet_away:model", code_folder=str(away)).model == 7

    def test_a_folder_of_that_name_does_not_hide_the_module(self, away: Path) -> None:
        """As in the parent of a project whose folder has the name of its module."""
        Path("mynet_away").mkdir()
        with pytest.warns(RecordedFolderWarning):
            assert callable(import_model("mynet_away:model", code_folder=str(away)).model)

    def test_a_module_that_lacks_another_is_not_searched_elsewhere(self, away: Path) -> None:
        Path("mynet_away.py").write_text("import not_installed_anywhere\n")
        with pytest.raises(ModelError, match="No module named 'not_installed_anywhere'"):
            import_model("mynet_away:model", code_folder=str(away))

    @pytest.mark.parametrize("folder", ["../home", ".", "/nowhere/at/all"])
    def test_relative_and_missing_folders_are_not_used(self, away: Path, folder: str) -> None:
        with pytest.raises(ModelError, match="is not the absolute path of a folder"):
            import_model("mynet_away:model", code_folder=folder)

"""What an installed smoothcert with one extra must be able to do: python -I wheel_smoke.py EXTRA, in an empty folder.

Run by tools/check_wheels.py with the interpreter of an environment that has the wheel and one extra and nothing else.
Every environment answers --help, and does what needs no extra. What needs another extra must say which one.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SCRIPTS = Path(sys.executable).parent

_MODEL = """
import numpy as np


def classify(batch):
    excess = batch.reshape(len(batch), -1).sum(axis=1) - 2
    return np.stack([-excess, excess], axis=1)
"""

_TRAIN = ("train", "--data", "data.npz", "--arch", "mlp", "--sigma", "0.25", "--epochs", "1")
_CERTIFY = ("--sigma", "0.25", "--n", "500", "--max", "4")


class SmokeError(AssertionError):
    """The installed package does not do what it must."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise SmokeError(message)


def run_smoothcert(*words: str, expected: int = 0) -> str:
    """Standard output and error of a command that must end with the exit code `expected`."""
    done = subprocess.run(
        [SCRIPTS / "smoothcert", *words], capture_output=True, text=True, encoding="utf-8", check=False
    )
    said = done.stdout + done.stderr
    command = f"smoothcert {' '.join(words)}"
    require(done.returncode == expected, f"{command}: exit code {done.returncode}, not {expected}\n{said}")
    require("Traceback" not in said, f"{command} printed a traceback\n{said}")
    return said


def check_needs(extra: str, *words: str) -> None:
    """A command that cannot work here names the extra that it needs."""
    said = run_smoothcert(*words, expected=2)
    require(f"smoothcert[{extra}]" in said, f"smoothcert {' '.join(words)} does not name the extra {extra}:\n{said}")


def write_inputs() -> None:
    """A model of the user, and a data file for it: four values, two classes."""
    import numpy as np

    Path("own_model.py").write_text(_MODEL, encoding="utf-8")
    inputs = np.random.default_rng(0).random((40, 4)).astype(np.float32)
    np.savez("data.npz", x=inputs, y=(inputs.sum(axis=1) > 2).astype(np.int64))


def check_start(extra: str) -> None:
    """Every environment: --version, --help, and a run of a function of the user."""
    version = importlib.metadata.version("smoothcert")
    require(run_smoothcert("--version").strip() == f"smoothcert {version}", "--version is not that of the metadata")
    require("certify" in run_smoothcert("--help"), "--help does not list certify")
    has_torch = importlib.util.find_spec("torch") is not None
    require(has_torch == (extra == "torch"), f"torch is installed: {has_torch}")
    write_inputs()
    run_smoothcert("certify", "--model", "own_model:classify", "--data", "data.npz", *_CERTIFY, "--out", "runs/core")
    require("ACR" in run_smoothcert("table", "runs/core"), "table prints no ACR")


def check_core() -> None:
    """What needs no extra works; what needs one says which."""
    require(float(run_smoothcert("radius", "gaussian", "--sigma", "0.5", "--p-a", "0.9")) > 0.6, "radius is wrong")
    run_smoothcert("recertify", "runs/core", "--alpha", "0.01", "--out", "runs/recertified")
    run_smoothcert("compare", "runs/core", "runs/recertified")
    run_smoothcert("export", "runs/core", "--format", "certificate", "--output", "certificates")
    check_needs("verify", "verify", "runs/core")
    check_needs("plot", "plot", "runs/core", "--output", "curve.png")
    check_needs("report", "report", "runs/core", "--output", "page.html")
    check_needs("torch", *_TRAIN, "--out", "net.safetensors")
    check_needs("postgres", "memory", "stats", "postgresql://127.0.0.1:1/nobody-listens")
    check_needs("sklearn", "certify", "--model", "own_model:classify", "--data", "digits", *_CERTIFY, "--out", "runs/x")


def check_torch() -> None:
    run_smoothcert(*_TRAIN, "--out", "net.safetensors")
    run_smoothcert("certify", "--model", "net.safetensors", "--data", "data.npz", *_CERTIFY, "--out", "runs/torch")
    check_needs("tensorboard", *_TRAIN, "--out", "curves.safetensors", "--tensorboard", "logs")


def check_onnx() -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((4, 2), np.float32) * np.array([0, 1], np.float32), "weights")
    biases = numpy_helper.from_array(np.array([2, 0], np.float32), "biases")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "weights", "biases"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])],
        [weights, biases],
    )
    # An old intermediate representation and operator set: every onnxruntime in the version range reads them.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, "linear.onnx")
    run_smoothcert("certify", "--model", "linear.onnx", "--data", "data.npz", *_CERTIFY, "--out", "runs/onnx")


def check_sklearn() -> None:
    from sklearn.linear_model import LogisticRegression

    import smoothcert as sc

    digits = sc.load_dataset("digits", split="train")
    inputs = digits.inputs(range(300)).reshape(300, -1)
    fitted = LogisticRegression(max_iter=500).fit(inputs, digits.labels[:300])
    results = sc.SmoothedClassifier(fitted, sigma=0.25).certify(inputs[:4], labels=digits.labels[:4].tolist(), n=500)
    require(len(results) == 4 and results.acr >= 0, "no certified radius")


def check_images() -> None:
    from PIL import Image

    for name, shade in (("dark", 0), ("light", 255)):
        folder = Path("images") / name
        folder.mkdir(parents=True)
        Image.new("L", (2, 2), shade).save(folder / "one.png")
    said = run_smoothcert(
        *("certify", "--model", "own_model:classify", "--data", "images", *_CERTIFY, "--out", "runs/images")
    )
    require("images" in said, "the run on a folder of images prints no table")


def check_plot() -> None:
    run_smoothcert("plot", "runs/core", "--output", "curve.png")
    require(Path("curve.png").read_bytes().startswith(b"\x89PNG"), "plot wrote no image")


def check_pandas() -> None:
    import smoothcert as sc

    require(len(sc.open_run("runs/core").to_frame()) == 4, "the frame has another number of rows than the run")


def check_tensorboard() -> None:
    # Curves come from a training, which needs torch as well.
    require(importlib.util.find_spec("tensorboard") is not None, "tensorboard is not installed")
    check_needs("torch", *_TRAIN, "--out", "net.safetensors", "--tensorboard", "logs")


def check_postgres() -> None:
    # There is no server here: with the driver the message is about the connection, and not about an extra.
    said = run_smoothcert("memory", "stats", "postgresql://127.0.0.1:1/nobody-listens", expected=6)
    require("smoothcert[" not in said and "127.0.0.1" in said, f"an unclear message: {said}")


def check_ray() -> None:
    run_smoothcert(
        *("certify", "--model", "own_model:classify", "--data", "data.npz", *_CERTIFY),
        *("--engine", "ray", "--actors", "1", "--out", "runs/ray"),
    )


def check_verify() -> None:
    run_smoothcert("verify", "runs/core")
    run_smoothcert("export", "runs/core", "--format", "certificate", "--output", "certificates")
    documents = sorted(str(path) for path in Path("certificates").rglob("*.json"))
    require(bool(documents), "export wrote no certificate")
    subprocess.run([sys.executable, "-m", "smoothcert_verify", documents[0]], check=True, capture_output=True)


def check_report() -> None:
    run_smoothcert("report", "runs/core", "--output", "page.html")
    require("certified" in Path("page.html").read_text(encoding="utf-8").lower(), "the page says nothing")


def check_triton() -> None:
    """The kernels can be imported. What they draw is compared by `doctor`, which needs torch and a card."""
    if sys.platform != "linux":
        return
    from smoothcert.noise import float_with_triton, grid_with_triton

    require(callable(grid_with_triton.add_noise_on_grid.run), "the kernel of noise on a grid cannot be launched")
    require(callable(float_with_triton.add_float_noise.run), "the kernel of float noise cannot be launched")


OWN_CHECKS: dict[str, Callable[[], None]] = {
    "core": check_core,
    "torch": check_torch,
    "onnx": check_onnx,
    "sklearn": check_sklearn,
    "images": check_images,
    "plot": check_plot,
    "pandas": check_pandas,
    "tensorboard": check_tensorboard,
    "postgres": check_postgres,
    "ray": check_ray,
    "triton": check_triton,
    "verify": check_verify,
    "report": check_report,
}
"""By extra: what it adds to the core. tests/packaging fails if an extra of pyproject.toml is missing here."""


def main() -> None:
    extra = sys.argv[1]
    try:
        check_start(extra)
        OWN_CHECKS[extra]()
    except SmokeError as error:
        sys.exit(f"{extra}: {error}")


if __name__ == "__main__":
    main()

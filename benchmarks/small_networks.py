"""Where the time of sampling small networks goes: exact noise, forward pass and votes, in nanoseconds for each copy.

    python benchmarks/small_networks.py [--turns 150] [--models small_net,mlp] [--backends torch,onnxruntime] [--stages]

Processor time of one thread, single batches in turn. The quietest batch of each counts: on a shared processor the other
programs can only make a batch slower. `bare` is the forward pass with its votes on inputs made beforehand, at its own
best batch size; `sampling` is one batch of noise, forward pass, votes and counts, at its own best batch size. `noise`
and `classify` are the two parts of such a batch, timed in a batch of their own. To compare versions, run this file with
PYTHONPATH set to the sources of each, in turn. --stages: the steps of the generator, each repeated on its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from smoothcert.models import as_classifier
from smoothcert.noise import from_grid, grid_law
from smoothcert.records import Noise, Stage, StreamId
from smoothcert.sampling import Request
from smoothcert.sampling.counters import host_counter
from smoothcert.sampling.noisy_copies import noisy_copies
from smoothcert.sampling.requests import batch_slices
from timing import SHAPES, network

BATCHES = {"small_net": (1024, 2048, 4096), "mlp": (256, 512, 1024)}
LEVELS = {"small_net": 4081, "mlp": 256}
STREAM = StreamId(0, 0, Stage.ESTIMATION)
SIGMA = 0.25
_REPEATED = 20


def seconds(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def parts_of_batches(arch: str, backend: str, *, batch: int, turns: int) -> dict[str, float]:
    """Nanoseconds for each copy."""
    shape, levels = SHAPES[arch], LEVELS[arch]
    classifier = as_classifier(network(arch), input_shape=shape, device="cpu", backend=backend)
    made = np.random.default_rng(0).random((batch, *shape), dtype=np.float32)
    inputs = from_grid(np.rint(made[:1] * (levels - 1)).astype(np.int32), levels)
    requests = [Request(0, STREAM, SIGMA, 0, 2 * (turns + 1) * batch, grid=levels)]
    counter = host_counter(classifier, inputs, requests, draws=batch)
    copies = noisy_copies(inputs.reshape(1, -1), requests, draws=batch)
    noisy = np.empty_like(made)
    batches = batch_slices(requests, batch=batch)
    found: dict[str, list[float]] = {"bare": [], "sampling": [], "noise": [], "classify": []}
    with classifier.in_calling_thread():
        for _ in range(turns):
            classifier.classify(made)
            found["bare"].append(seconds(lambda: classifier.classify(made)))
            slices, others = next(batches), next(batches)
            found["noise"].append(seconds(lambda: copies.write(others, noisy.reshape(batch, -1))))  # noqa: B023
            found["classify"].append(seconds(lambda: classifier.classify(noisy)))
            found["sampling"].append(seconds(lambda: counter.add(slices)))  # noqa: B023
    return {name: min(values) / batch * 1e9 for name, values in found.items()}


def report(arch: str, backend: str, *, turns: int) -> None:
    found = {batch: parts_of_batches(arch, backend, batch=batch, turns=turns) for batch in BATCHES[arch]}
    bare = min(found[batch]["bare"] for batch in found)
    best = min(found, key=lambda batch: found[batch]["sampling"])
    parts = "  ".join(f"{name} {value:6.0f}" for name, value in found[best].items() if name != "bare")
    ratio = bare / found[best]["sampling"]
    print(f"{arch:10s} {backend:12s} batch {best:5d}  bare {bare:6.0f}  {parts}  ratio {ratio:.2f}", flush=True)


def stages(arch: str, *, turns: int) -> dict[str, float]:
    """Nanoseconds for each copy, of every step of the compiled generator; the processor must be able to follow curves.

    A step is repeated inside compiled code: a call from Python takes as long as the step of some rows.
    """
    import numba

    from smoothcert.noise import grid_with_numba as steps
    from smoothcert.noise.chacha_with_numba import fill_words
    from smoothcert.noise.curve_with_numba import follow_curve
    from smoothcert.noise.grid_noise import _arguments, split_inverse

    size, levels = int(np.prod(SHAPES[arch])), LEVELS[arch]
    law, curve, stream, start, scratch = _arguments(
        grid_law(Noise.GAUSSIAN, sigma=SIGMA, levels=levels), STREAM, start=0, count=4096, size=size
    )
    draws, words, listed, further, rows_of, blocks_of = scratch
    blocks = -(-size // 32)
    rows = len(draws) // (32 * blocks)
    out, k, some = np.empty((rows, size), dtype=np.float32), np.full(size, 100, dtype=np.int32), listed.copy()

    many = _REPEATED

    @numba.njit  # type: ignore[untyped-decorator]
    def fill(words, used, rows, blocks):  # type: ignore[no-untyped-def]
        for _ in range(many):
            fill_words(words, used, rows, blocks, stream, start)

    @numba.njit  # type: ignore[untyped-decorator]
    def follow(draws, listed, words, curve):  # type: ignore[no-untyped-def]
        found = 0
        for _ in range(many):
            found = follow_curve(draws, listed, words, curve, rows, blocks, size)
        return found

    @numba.njit  # type: ignore[untyped-decorator]
    def look_up(draws, listed, some, found, words, law, further):  # type: ignore[no-untyped-def]
        kept, needed = 0, 0
        for _ in range(many):
            some[:found] = listed[:found]
            kept = steps._look_up_listed(draws, some, found, words, law)
            needed = steps._place_further(some, kept, rows_of, further)
        return kept, needed

    @numba.njit  # type: ignore[untyped-decorator]
    def settle(draws, some, kept, words, law, further):  # type: ignore[no-untyped-def]
        for _ in range(many):
            steps._settle_listed(draws, some, kept, words, law, further)

    @numba.njit  # type: ignore[untyped-decorator]
    def write(out, k, draws, parts):  # type: ignore[no-untyped-def]
        for _ in range(many):
            for i in range(rows):
                steps._write_row(out[i], k, draws[i * 32 * blocks :], parts)

    def measured(step: Callable[..., Any], *given: Any) -> tuple[Any, float]:
        result = step(*given)
        return result, min(seconds(lambda: step(*given)) for _ in range(turns)) / _REPEATED / rows * 1e9

    _, chacha = measured(fill, words, rows * blocks, rows_of, blocks_of)
    found, curves = measured(follow, draws, listed, words, curve)
    (kept, needed), looked_up = measured(look_up, draws, listed, some, found, words, law, further)
    _, more = measured(fill, further[0], needed, further[2], further[3])
    _, settled = measured(settle, draws, some, kept, words, law, further)
    _, written = measured(write, out, k, draws, split_inverse(levels - 1))
    return {
        "blocks": blocks, "ChaCha20": chacha, "curve": curves, "listed": found / rows, "look-ups": looked_up,
        "unsettled": kept / rows, "further blocks": needed / rows, "further ChaCha20": more, "settling": settled,
        "writing": written,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=150)
    parser.add_argument("--models", default=",".join(BATCHES))
    parser.add_argument("--backends", default="torch,onnxruntime")
    parser.add_argument("--stages", action="store_true", help="the steps of the generator instead")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for arch in arguments.models.split(","):
        if arguments.stages:
            found = stages(arch, turns=arguments.turns)
            print(f"{arch:10s}", "  ".join(f"{name} {value:.1f}" for name, value in found.items()), flush=True)
            continue
        for backend in arguments.backends.split(","):
            report(arch, backend, turns=arguments.turns)


if __name__ == "__main__":
    main()

"""A selection of inputs to look at: the weakest, middling and strongest, wrong answers and abstentions."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, SmoothcertError
from smoothcert.numerics.rounding import format_down_as_read
from smoothcert.records import CertifiedPoint, InputArray, Noise, Outcome, Stage
from smoothcert.report.sources import Source
from smoothcert.runs.certificate_documents import document_of
from smoothcert.runs.result_columns import OUTCOMES, ResultColumns

_LARGEST_SIDE = 56
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_GREY, _PNG_RGB = 0, 2
_MOST_CERTIFICATE_BYTES = 60_000
_MOST_VOTES_SHOWN = 3
_LARGEST_SIGMA = 1e6
"""Limit for files from outside; no real run exceeds it."""
_DRAW = 0x5EED
"""Seed of the noise in the pictures, together with the index of the input."""


@dataclass(frozen=True, slots=True)
class ClassVotes:
    """The votes for one class. width: its share of all votes, in percent."""

    name: str
    count: int
    width: float


@dataclass(frozen=True, slots=True)
class Card:
    """One input. kind: why it was chosen. picture, noisy: PNG files as data URIs; None if the input is not a picture.

    width: of its ball on the scale of the run, in percent. certificate: the JSON document as a data URI; None for a log
    and for a document that is too large.
    """

    index: int
    kind: str
    answer: str
    label: str | None
    correct: bool | None
    outcome: str
    reason: str
    radius: float
    radius_text: str
    width: float
    sigma: str | None
    p_a: float
    picture: str | None
    noisy: str | None
    votes: tuple[ClassVotes, ...]
    votes_total: int
    certificate: str | None

    @property
    def certificate_name(self) -> str:
        return f"certificate-{self.index:06d}.json"


@dataclass(frozen=True, slots=True)
class Gallery:
    """run: its number. certified: whether it has radii. largest: the radius at the right end of the scale.

    why_no_pictures: None if there are pictures. thinned: k if every k-th pixel is shown.
    """

    run: int
    certified: bool
    cards: tuple[Card, ...]
    largest: str
    kinds: tuple[str, ...]
    why_no_pictures: str | None
    thinned: int


def build_gallery(number: int, source: Source, *, most: int) -> Gallery:
    results = source.results
    chosen = choose(results, most=most)
    positions = [position for _, position in chosen]
    indices = [int(results.index[position]) for position in positions]
    points = {point.index: point for point in source.points_of(indices)}
    pictures, why, thinned = _pictures(source, indices)
    largest = float(results.radius.max())
    cards = tuple(
        _card(source, position, kind, points.get(index), pictures.get(index), largest)
        for (kind, position), index in zip(chosen, indices, strict=True)
    )
    kinds = tuple(dict.fromkeys(card.kind for card in cards))
    return Gallery(number, results.has_radius, cards, format_down_as_read(largest, decimals=3), kinds, why, thinned)


def choose(results: ResultColumns, *, most: int) -> list[tuple[str, int]]:
    """Up to `most` positions, each with the kind it was chosen for. The choice is deterministic.

    The kinds take turns until their inputs are used up. No input is chosen twice.
    """
    order = np.argsort(results.radius, kind="stable")
    good = results.correct if results.labelled.all() else results.decided
    ascending = order[good[order]]
    from_middle = np.abs(np.arange(ascending.size) - (ascending.size - 1) / 2)
    middle = ascending[np.argsort(from_middle, kind="stable")]
    wrong = order[(results.decided & results.labelled & ~results.correct)[order]][::-1]
    queues: dict[str, list[int]] = {
        # Without radii no answer is weaker than another.
        **({"weakest": ascending.tolist(), "strongest": ascending[::-1].tolist()} if results.has_radius else {}),
        "wrong": wrong.tolist(),
        "abstained": _by_votes(results, Outcome.ABSTAINED),
        "middling" if results.has_radius else "answered": middle.tolist(),
        "failed": _by_votes(results, Outcome.FAILED),
    }
    taken: dict[int, str] = {}
    while len(taken) < most and any(queues.values()):
        for kind, queue in queues.items():
            while queue and queue[0] in taken:
                queue.pop(0)
            if queue and len(taken) < most:
                taken[queue.pop(0)] = kind
    ranked = sorted(taken, key=lambda position: (results.radius[position], results.index[position]))
    return [(taken[position], position) for position in ranked]


def _by_votes(results: ResultColumns, outcome: Outcome) -> list[int]:
    """The inputs with this outcome, those with the largest p_A first."""
    positions = np.flatnonzero(results.is_outcome(outcome))
    return [int(k) for k in positions[np.argsort(-np.nan_to_num(results.p_a[positions]), kind="stable")]]


def _card(
    source: Source,
    position: int,
    kind: str,
    point: CertifiedPoint | None,
    picture: tuple[str, str] | None,
    largest: float,
) -> Card:
    results = source.results
    outcome = OUTCOMES[results.outcome[position]]
    radius, sigma = float(results.radius[position]), float(results.sigma[position])
    labelled, decided = bool(results.labelled[position]), bool(results.decided[position])
    votes, total = _votes(source, point)
    return Card(
        index=int(results.index[position]),
        kind=kind,
        answer=source.inputs.class_name(int(results.prediction[position])) if decided else outcome.name.lower(),
        label=source.inputs.class_name(int(results.label[position])) if labelled else None,
        correct=bool(results.correct[position]) if labelled and decided else None,
        outcome=outcome.name.lower(),
        reason="" if decided or results.reason[position] is None else str(results.reason[position]),
        radius=radius,
        radius_text=format_down_as_read(radius, decimals=3),
        width=100 * radius / largest if largest > 0 else 0.0,
        sigma=None if math.isnan(sigma) else f"{sigma:.4g}",
        p_a=float(np.nan_to_num(results.p_a[position])),
        picture=None if picture is None else picture[0],
        noisy=None if picture is None else picture[1],
        votes=votes,
        votes_total=total,
        certificate=_certificate(source, point),
    )


def _votes(source: Source, point: CertifiedPoint | None) -> tuple[tuple[ClassVotes, ...], int]:
    """The classes with the most votes, and the number of votes: of the estimation, or else of the selection."""
    if point is None:
        return (), 0
    tally = point.tally(Stage.ESTIMATION) or point.tally(Stage.SELECTION)
    if tally is None:
        return (), 0
    votes = tally.independent_votes()
    best = np.argsort(-votes.counts, kind="stable")[:_MOST_VOTES_SHOWN].tolist()
    shown = tuple(
        ClassVotes(source.inputs.class_name(label), int(votes.counts[label]), 100 * int(votes.counts[label]) / votes.n)
        for label in best
        if votes.counts[label] > 0
    )
    return shown, votes.n


def _certificate(source: Source, point: CertifiedPoint | None) -> str | None:
    if point is None or source.manifest is None or source.manifest.task != "certify":
        return None
    try:
        text = json.dumps(document_of(point, source.manifest), allow_nan=False, separators=(",", ":")).encode()
    except (SmoothcertError, ValueError, RecursionError):
        # A manifest from outside may contain values that JSON cannot express.
        return None
    if len(text) > _MOST_CERTIFICATE_BYTES:
        return None
    return "data:application/json;base64," + base64.b64encode(text).decode()


def _pictures(source: Source, indices: Sequence[int]) -> tuple[dict[int, tuple[str, str]], str | None, int]:
    """By index the picture and its noisy version, or why there are none; and k if every k-th pixel is shown."""
    dataset = source.inputs.dataset
    if dataset is None:
        return {}, source.inputs.missing, 1
    shape = picture_shape(dataset.input_shape)
    if shape is None or dataset.input_range is None:
        return {}, f"inputs of shape {'×'.join(map(str, dataset.input_shape))} are not pictures", 1
    every = max(1, math.ceil(max(shape[:2]) / _LARGEST_SIDE))
    at = {int(index): k for k, index in enumerate(source.results.index)}
    pictures = {}
    for index in indices:
        try:
            # One at a time and thinned immediately, because many large pictures would fill the memory.
            values = dataset.inputs([index])[0][..., ::every, ::every].copy()
        except (SmoothcertError, OSError) as error:
            return {}, f"the inputs could not be read ({error})", 1
        sigma = float(source.results.sigma[at[index]])
        noisy = values
        if not math.isnan(sigma):
            noisy = add_noise(values, index, sigma=sigma, noise=source.noise, grid=source.grid)
        pictures[index] = (
            _data_uri(as_pixels(values, dataset.input_range)),
            _data_uri(as_pixels(noisy, dataset.input_range)),
        )
    return pictures, None, every


def picture_shape(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Height and width (and 3 colours) of an input that is a picture, else None."""
    if len(shape) == 2:
        return shape
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape[1:] if shape[0] == 1 else (shape[1], shape[2], 3)
    return None


def as_pixels(values: InputArray, input_range: tuple[float, float]) -> NDArray[np.uint8]:
    """(h, w), (1, h, w) or (3, h, w) values as eight-bit pixels, clipped to the range."""
    low, high = input_range
    scaled = np.rint(255.0 * (np.asarray(values, dtype=np.float64) - low) / (high - low))
    pixels = np.clip(scaled, 0, 255).astype(np.uint8)
    if pixels.ndim == 2:
        return pixels
    return pixels[0] if pixels.shape[0] == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))


def add_noise(values: InputArray, index: int, *, sigma: float, noise: Noise, grid: int | None) -> InputArray:
    """Add one draw of the noise of the run, made by numpy to show the level. It is not one of the draws of the run."""
    draw = np.random.default_rng([_DRAW, index])
    shift = min(sigma, _LARGEST_SIGMA) * noise.facts.illustrate(draw, values.shape)
    if grid is not None:
        shift = np.rint(shift * (grid - 1)) / (grid - 1)
    return np.asarray(values + shift, dtype=np.float32)


def _data_uri(pixels: NDArray[np.uint8]) -> str:
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """pixels: (height, width) grey or (height, width, 3) RGB. The same pixels give the same bytes."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise InputError(f"pixels of shape {pixels.shape} and type {pixels.dtype} are not a grey or RGB image")
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    # Every row starts with its filter; 0 is none.
    filtered = np.concatenate([np.zeros((height, 1), dtype=np.uint8), rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, _PNG_GREY if pixels.ndim == 2 else _PNG_RGB, 0, 0, 0)
    body = zlib.compress(filtered.tobytes(), 9)
    return _PNG_SIGNATURE + _png_chunk(b"IHDR", header) + _png_chunk(b"IDAT", body) + _png_chunk(b"IEND", b"")


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

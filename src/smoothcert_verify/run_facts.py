"""The manifest of a run: what it says of inputs and smoothing, and whether it agrees with itself."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from smoothcert_verify.feature_scales import check_scale
from smoothcert_verify.findings import Finding, note, refuse
from smoothcert_verify.manifest_shapes import DTYPES, FLOAT_GENERATOR, GRID_GENERATOR, LEVEL, MANIFEST, SCHEMA
from smoothcert_verify.noise_forms import NOISES
from smoothcert_verify.noise_kinds import NoiseForm
from smoothcert_verify.proof_checks import EVERY_EVALUATION

SMALLEST_ALPHA = Fraction(1, 10**100)
NEARLY_ALL = 1 - Fraction(1, 10**9)
"""The share of α that must be spent: less would be another split than the one that was asked for."""

_EVERY_EVALUATION = "every-evaluation"
_MOST_RECERTIFIED = 50


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a manifest states, as far as the checker uses it.

    n: samples of an input, or the most of them where a question ends the sampling or nothing is sampled. radii, width:
    of that question. alpha: 0 exactly if nothing is sampled; then there is a grid, and n0 is 0. envelope: what the
    theorems assume of σ; None if nothing. level: the one σ of all inputs, if there is one. indices: the requested
    inputs.
    """

    manifest: Mapping[str, Any]
    task: str
    seed: int
    alpha: Fraction
    n: int
    n0: int
    radii: tuple[Fraction, ...] | None
    width: float | None
    certificates: tuple[str, ...]
    best_of: bool
    noise: Mapping[str, Any]
    envelope: Mapping[str, Any] | None
    level: float | None
    shape: tuple[int, ...]
    num_classes: int
    indices: range | frozenset[int]
    source: RunFacts | None

    @property
    def kind(self) -> str:
        """The kind of noise."""
        return str(self.noise["kind"])

    @property
    def form(self) -> NoiseForm:
        return NOISES[self.kind]

    @property
    def is_sampled(self) -> bool:
        """Whether votes are samples; if not, every evaluation is made."""
        return self.form.is_sampled

    @property
    def has_tables(self) -> bool:
        """Whether noise was drawn by tables of thresholds, which cost a share of α."""
        return self.is_sampled and self.grid is not None

    @property
    def rounds(self) -> bool:
        """Whether inputs are rounded to the grid."""
        return bool(self.noise.get("rounds", False))

    @property
    def grid(self) -> int | None:
        grid: int | None = self.noise["grid"]
        return grid

    @property
    def scale(self) -> list[float] | None:
        """By what features are divided before noise is added and distances are measured; None without a scale."""
        scale: list[float] | None = self.noise.get("scale")
        return scale

    @property
    def dtype(self) -> str | None:
        """The half precision in which the model is computed; None for its own."""
        dtype: str | None = self.manifest["spec"]["model"].get("dtype")
        return dtype

    @property
    def dimension(self) -> int:
        return math.prod(self.shape)

    @property
    def memory(self) -> str | None:
        """The digest of the key of the memory that the run claimed from."""
        digest: str | None = self.manifest["digests"]["memory"]
        return digest

    @property
    def class_names(self) -> list[str]:
        """The names of the classes; empty if they are only numbered."""
        return list(self.manifest["model"].get("class_names", []))

    @property
    def feature_names(self) -> list[str]:
        """The names of the columns, in the order of the model; empty if they have none."""
        return list(self.manifest["data"].get("feature_names", []))

    @property
    def is_sequential(self) -> bool:
        """Whether sampling ended when a question was answered."""
        return self.radii is not None or self.width is not None

    @property
    def smoothing(self) -> dict[str, Any]:
        """What documents of the run say of its smoothing, without the σ of the input."""
        return {
            "noise": self.noise,
            "dimension": self.dimension,
            "num_classes": self.num_classes,
            "envelope": self.envelope,
            "remembered": self.memory is not None,
        }


def read_run(manifest: Any, *, recertified: int = 0) -> RunFacts:
    """What this manifest states; MalformedError if it is not a manifest of this format.

    recertified: how often the run was recertified after this one.
    """
    if recertified > _MOST_RECERTIFIED:
        raise refuse("recertified-too-often", most=_MOST_RECERTIFIED)
    if isinstance(manifest, Mapping) and type(manifest.get("schema")) is int and manifest["schema"] != SCHEMA:
        raise refuse("unknown-schema", value=manifest["schema"], expected=SCHEMA)
    MANIFEST(manifest, "run")
    spec, data = manifest["spec"], manifest["data"]
    question, source = spec["question"], manifest["recertified_from"]
    dimension, alpha = math.prod(data["input_shape"]), Fraction(spec["alpha"])
    if dimension > 10**9:
        raise refuse("invalid-value", field="run.data.input_shape", value=data["input_shape"], expected="a shape")
    _check_is_possible(spec)
    envelope = _assumed_envelope(manifest)
    return RunFacts(
        manifest=manifest,
        task=spec["task"],
        seed=manifest["seed"],
        alpha=alpha,
        n=question["n"],
        n0=question.get("n0", 0),
        radii=tuple(map(Fraction, question["radii"])) if question["kind"] == "decide" else None,
        width=question["width"] if question["kind"] == "precision" else None,
        certificates=tuple(spec["certificates"]),
        best_of=spec["best_of"],
        noise=spec["noise"],
        envelope=envelope,
        level=None if envelope is None else envelope.get("sigma"),
        shape=tuple(data["input_shape"]),
        num_classes=manifest["model"]["num_classes"],
        indices=_requested_inputs(spec["data"], size=data["size"]),
        source=None if source is None else read_run(source, recertified=recertified + 1),
    )


def _check_is_possible(spec: Mapping[str, Any]) -> None:
    """Refuse a spec whose noise, question and α cannot go together: without samples, α is 0, and there is a grid."""
    noise, alpha = spec["noise"], Fraction(spec["alpha"])
    if NOISES[noise["kind"]].is_sampled:
        if spec["question"]["kind"] == _EVERY_EVALUATION:
            raise refuse("question-of-other-noise", question=_EVERY_EVALUATION, noise=noise["kind"])
        if not SMALLEST_ALPHA <= alpha < Fraction(1, 2):
            raise refuse("invalid-value", field="run.spec.alpha", value=alpha, expected="a probability below 1/2")
        return
    if spec["question"]["kind"] != _EVERY_EVALUATION:
        raise refuse("question-of-other-noise", question=spec["question"]["kind"], noise=noise["kind"])
    if alpha != 0:
        raise refuse("invalid-value", field="run.spec.alpha", value=alpha, expected="0, because nothing is sampled")
    if noise["grid"] is None:
        raise refuse("invalid-value", field="run.spec.noise.grid", value=None, expected="a number of levels")


def _requested_inputs(data: Mapping[str, Any], *, size: int) -> range | frozenset[int]:
    """The inputs that the run is for: those that are listed, or every so many-th."""
    chosen = data.get("indices")
    if chosen is None:
        every = range(0, size, data["skip"])
        return every if data["max_inputs"] is None else every[: data["max_inputs"]]
    if chosen != sorted(set(chosen)) or chosen[-1] >= size or data["skip"] != 1 or data["max_inputs"] is not None:
        raise refuse("invalid-value", field="run.spec.data.indices", value=chosen[:10], expected="ascending indices")
    return frozenset(chosen)


def _assumed_envelope(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the theorems assume of σ: one level everywhere, or how far it may move; None if they assume nothing."""
    stated, facts = manifest["spec"]["sigma"], manifest["sigma"]
    if stated["kind"] == "constant":
        return {"kind": "constant", "sigma": stated["level"]}
    if facts is not None and facts["rule"].get("kind") == "constant":
        LEVEL(facts["rule"].get("sigma"), "run.sigma.rule.sigma")
        return {"kind": "constant", "sigma": facts["rule"]["sigma"]}
    return None if facts is None else facts["envelope"]


def check_run(run: RunFacts) -> Iterator[Finding]:
    """Whether the parts of a manifest agree with each other, and with the run it was recertified from."""
    manifest, spec = run.manifest, run.manifest["spec"]
    model, data = manifest["model"], manifest["data"]
    if data["inputs"] != len(run.indices):
        yield _differ("run.data.inputs", data["inputs"], len(run.indices))
    stated = [
        ("run.spec.seed", spec["seed"], manifest["seed"]),
        ("run.spec.batch", spec["batch"], manifest["measured"]["batch"]),
        ("run.spec.model.num_classes", spec["model"]["num_classes"], model["num_classes"]),
        ("run.spec.data.input_shape", spec["data"]["input_shape"], data["input_shape"]),
    ]
    yield from (_differ(field, value, fact) for field, value, fact in stated if value is not None and value != fact)
    for field, names, count in (
        ("run.model.class_names", run.class_names, model["num_classes"]),
        ("run.data.feature_names", run.feature_names, run.dimension),
    ):
        if len(names) not in (0, count):
            yield _differ(field, len(names), count)
    ends = spec["data"]["input_range"]
    if ends != "default" and ends != data["input_range"]:
        yield _differ("run.spec.data.input_range", ends, data["input_range"])
    if (spec["memory"] is None) != (run.memory is None):
        yield _differ("run.digests.memory", run.memory, spec["memory"])
    if run.task == "predict":
        if run.is_sequential or run.n0 or run.certificates or run.best_of:
            yield note("certificates-of-a-prediction")
    elif not run.certificates or (run.is_sampled and not run.n0):
        yield note("no-certificates", certificates=run.certificates, n0=run.n0)
    if run.radii is not None and not all(a < b for a, b in zip((Fraction(0), *run.radii), run.radii, strict=False)):
        yield _differ("run.spec.question.radii", list(map(float, run.radii)), "positive, increasing radii")
    if run.width is not None and not run.width > 0:
        yield _differ("run.spec.question.width", run.width, "a positive width")
    yield from _check_noise(run)
    yield from _check_precision(run)
    yield from _check_sigma(run)
    yield from _check_split(run)
    yield from _check_source(run)


def _differ(field: str, value: Any, expected: Any) -> Finding:
    return note("differs", field=field, value=value, expected=expected)


def _check_noise(run: RunFacts) -> Iterator[Finding]:
    """Grid, generator and place belong together, and the data lies on the grid as far as its levels are known."""
    noise, levels = run.noise, run.manifest["data"]["levels"]
    generator = FLOAT_GENERATOR if run.grid is None else GRID_GENERATOR
    if noise["generator"] != generator:
        yield _differ("run.spec.noise.generator", noise["generator"], generator)
    if run.grid is not None and noise["place"] != "input":
        yield _differ("run.spec.noise.place", noise["place"], "input")
    if run.rounds and run.is_sampled:
        yield _differ("run.spec.noise.rounds", run.rounds, False)
    if run.grid is not None and levels is not None and (run.grid - 1) % (levels - 1) and not run.rounds:
        yield note("data-off-the-grid", grid=run.grid, levels=levels)
    if run.grid is not None and run.level is not None and not run.is_sampled:
        evaluations = run.form.count_evaluations(sigma=run.level, levels=run.grid)
        if run.n != evaluations or not run.form.has_room(sigma=run.level, levels=run.grid):
            yield note("number-of-evaluations", n=run.n, sigma=run.level, grid=run.grid, evaluations=evaluations)
    yield from check_scale(noise, shape=run.shape, sigma=run.manifest["spec"]["sigma"]["kind"])


def _check_precision(run: RunFacts) -> Iterator[Finding]:
    """Half precision is computed by torch, with the noise at the input, and is named by the back end."""
    spec, backend = run.manifest["spec"]["model"], run.manifest["measured"]["backend"]
    named = next(
        (dtype for dtype in DTYPES if backend.startswith("torch ") and f", autocast to {dtype}" in backend), None
    )
    if run.dtype != named:
        yield _differ("run.spec.model.dtype", run.dtype, named)
    if run.dtype is None:
        return
    if spec["backend"] not in (None, "torch"):
        yield _differ("run.spec.model.backend", spec["backend"], "torch")
    if run.noise["place"] != "input":
        yield _differ("run.spec.noise.place", run.noise["place"], "input")


def _check_sigma(run: RunFacts) -> Iterator[Finding]:
    """The envelope is the one that is proved for the rule for σ, and the rule is one for inputs of this shape."""
    stated, facts, digest = run.manifest["spec"]["sigma"], run.manifest["sigma"], run.manifest["digests"]["sigma"]
    if (facts is None) != (stated["kind"] == "constant") or (digest is None) != (facts is None):
        yield note("sigma-stated-twice", kind=stated["kind"])
        return
    if facts is None:
        return
    rule = facts["rule"]
    kind = rule.get("kind")
    match kind:
        case "knn":
            proved: Any = {"kind": "semi-elastic", "rate": rule.get("rate")}
        case "network":
            proved = {"kind": "lipschitz", "constant": rule.get("lipschitz"), "floor": rule.get("floor")}
        case "callable":
            proved = rule.get("envelope")
        case "constant":
            proved = {"kind": "constant"}
        case "optimised":
            proved = None
        case _:
            yield note("unknown-rule", kind=kind)
            return
    if (kind == "optimised") != (stated["kind"] == "optimised"):
        yield _differ("run.sigma.rule.kind", kind, stated["kind"])
    if facts["envelope"] != proved:
        yield _differ("run.sigma.envelope", facts["envelope"], proved)
    known = compute_rule_digest(rule, model=run.manifest["digests"]["model"])
    if known is not None and digest != known:
        yield _differ("run.digests.sigma", digest, known)
    widths = rule.get("widths")
    made_for = {"knn": rule.get("input_shape"), "network": widths[:1] if isinstance(widths, list) else None}.get(kind)
    wanted = list(run.shape) if kind == "knn" else [run.dimension]
    if kind in ("knn", "network") and made_for != wanted:
        yield note("rule-for-another-shape", made_for=made_for, shape=run.shape)


def compute_rule_digest(rule: Mapping[str, Any], *, model: str) -> str | None:
    """The digest of a rule that its parameters determine; None if it covers more: a file, or code."""
    if rule["kind"] == "constant":
        return digest_constant(rule["sigma"])
    if rule["kind"] == "optimised":
        content = {name: value for name, value in rule.items() if name != "digest"} | {"model": model}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return None


def digest_constant(sigma: float) -> str:
    """The digest of the rule that gives every input this level."""
    return hashlib.sha256(f"constant {float(sigma)!r}".encode()).hexdigest()


def _check_split(run: RunFacts) -> Iterator[Finding]:
    """The prices of the proofs add up to alpha, in equal shares; on a grid the price of the noise comes off first.

    Where every evaluation is made, that is the one proof, and it costs nothing.
    """
    split = run.manifest["alpha_split"]
    names = {f"best-of({','.join(run.certificates)})"} if run.best_of else set(run.certificates)
    if set(split) != names:
        yield _differ("run.alpha_split", sorted(split), sorted(names))
    for name, shares in split.items():
        if not run.is_sampled and shares != {EVERY_EVALUATION: 0}:
            yield note("uneven-split", certificate=name, shares=shares, alpha=run.alpha)
            continue
        total = sum(map(Fraction, shares.values()), Fraction(0))
        if not run.alpha * NEARLY_ALL <= Fraction(float(total)) <= run.alpha or len(set(shares.values())) != 1:
            yield note("uneven-split", certificate=name, shares=shares, alpha=run.alpha)


_FREE_FIELDS = ("task", "alpha", "certificates", "best_of", "batch", "rigorous", "engine")
"""What recertify may change of a spec, besides a smaller n: it draws nothing. Least of all may it change the question
that ended the sampling: bounds for a fixed number of samples do not hold for votes that were looked at before."""


def _check_source(run: RunFacts) -> Iterator[Finding]:
    """What recertify took over from the run it names, whose manifest is checked like any other."""
    source = run.source
    if (source is not None) != (run.task == "recertify"):
        yield note("source-of-recertified", task=run.task)
    if source is None:
        return
    yield from (finding.at("the run it was recertified from") for finding in check_run(source))
    if source.task == "predict":
        yield note("recertified-predictions")
    before, after = _list_drawn(source), _list_drawn(run)
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            yield note("changed-by-recertify", field=name, value=after.get(name), expected=before.get(name))
    if run.n > source.n:
        yield note("changed-by-recertify", field="n", value=run.n, expected=source.n)


def _list_drawn(run: RunFacts) -> dict[str, Any]:
    """All that says what was drawn, and why sampling ended."""
    manifest = run.manifest
    question = {name: value for name, value in manifest["spec"]["question"].items() if name != "n"}
    digests = {name: value for name, value in manifest["digests"].items() if name != "code"}
    spec = {f"spec.{name}": value for name, value in manifest["spec"].items() if name not in _FREE_FIELDS}
    spec["spec.noise"] = {"scale": None, "rounds": False, **run.noise}  # earlier versions did not write it
    facts = {name: manifest[name] for name in ("model", "data", "seed", "sampling_version", "sigma", "measured")}
    return {**spec, **facts, "spec.question": question, "digests": digests}

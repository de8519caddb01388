"""What was requested of a run, as one frozen, typed value: `RunSpec`.

The command line and Python build a `RunSpec`; the manifest of a run contains it; resuming compares it; `recertify`,
`report` and `verify` read its fields. `decode_part` and `to_json` are the only way from and to JSON: a value of the
wrong type, an unknown field or a missing one is an error that names the field.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from smoothcert.errors import CorruptRunError, InputError
from smoothcert.records.noises import Noise
from smoothcert.records.tallies import MOST_SAMPLES
from smoothcert.settings_text import whole_number

SCHEMA_VERSION = 3
"""Format of manifests. Earlier formats are refused."""

Task = Literal["certify", "predict", "recertify"]
DETECT: Literal["detect"] = "detect"
"""The value of `NoiseSpec.grid` until the data is known."""
FIRST_LAYER, STD = "first-layer", "std"

Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_SAMPLES)]
Levels = Annotated[int, msgspec.Meta(ge=2)]
Probability = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]
Level = Annotated[float, msgspec.Meta(gt=0.0)]
Seed = Annotated[int, msgspec.Meta(ge=0)]


class SpecPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all parts: immutable, and strict when decoded."""


class ModelSpec(SpecPart, frozen=True, kw_only=True):
    """place: a file, or package.module:attribute. backend: None uses the model's own.

    standardise: mean and standard deviation of the first layer, one number or one for each channel; None takes what the
    file says. weights: a file with the weights of the network that the code at `place` makes. code_folder: the folder
    in which that code was found. dtype: the half precision in which a float32 torch network is computed; UNSET for the
    model's own, which manifests do not mention, as in earlier versions.
    """

    place: str
    arch: str | None = None
    standardise: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    num_classes: Count | None = None
    backend: Literal["torch", "onnxruntime", "fastest"] | None = None
    device: str = "auto"
    weights: str | None = None
    code_folder: str | None = None
    dtype: Literal["bfloat16", "float16"] | msgspec.UnsetType = msgspec.UNSET

    @property
    def precision(self) -> str | None:
        """The half precision that was requested; None for that of the model itself."""
        return None if isinstance(self.dtype, msgspec.UnsetType) else self.dtype


def spec_dtype(name: str | None) -> Literal["bfloat16", "float16"] | msgspec.UnsetType:
    """A precision as `ModelSpec` has it. Another name than those is refused where the spec is read."""
    return msgspec.UNSET if name is None else cast(Literal["bfloat16", "float16"], name)


class DataSpec(SpecPart, frozen=True, kw_only=True):
    """place: the name of a dataset, or a file. input_range: "default" is that of the dataset; None allows any values.

    label_column: of a csv file; None for one of the usual names. Every `skip`-th input is used, at most `max_inputs` of
    them. resize: (height, width) of the images of a folder; None takes them as they are. shorter_side: resize this
    side, and cut `resize` out of the centre. indices: these inputs, in ascending order, instead of `skip` and
    `max_inputs`.
    """

    place: str
    split: str = "test"
    root: str | None = None
    input_range: tuple[float, float] | Literal["default"] | None = "default"
    input_shape: tuple[Count, ...] | None = None
    skip: Count = 1
    max_inputs: Count | None = None
    resize: tuple[Count, Count] | None = None
    shorter_side: Count | None = None
    label_column: str | None = None
    indices: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] | None = None

    def __post_init__(self) -> None:
        if self.indices is None:
            return
        if not self.indices or any(a >= b for a, b in itertools.pairwise(self.indices)):
            raise ValueError("the indices of a run must be given in ascending order, each once")
        if self.skip != 1 or self.max_inputs is not None:
            raise ValueError("a run has either chosen indices, or every skip-th input")

    def list_indices(self, size: int) -> list[int]:
        """The inputs of a dataset with `size` of them that are requested; an InputError if it has fewer."""
        if self.indices is None:
            return list(range(0, size, self.skip))[: self.max_inputs]
        if self.indices[-1] >= size:
            raise InputError(f"input {self.indices[-1]} is requested, and {self.place} has {size} inputs")
        return list(self.indices)


class NoiseSpec(SpecPart, frozen=True, kw_only=True):
    """grid: levels of the inputs, in whose exact steps the noise is added; None for float32; "detect" until the data is
    known. generator: set together with the grid. place: where noise is added. shared: the same noise for all inputs.
    scale: divides the features of a table before noise is added; "std" until the data is known. rounds: inputs are
    rounded to the grid.
    """

    kind: Noise = Noise.GAUSSIAN
    grid: Levels | Literal["detect"] | None = DETECT
    generator: Literal["chacha20", "philox4x32-10"] | None = None
    place: Literal["input", "first-layer"] = "input"
    rounds: bool = False
    shared: bool = False
    scale: tuple[Level, ...] | Literal["std"] | None = None

    @property
    def levels(self) -> int | None:
        """The levels of the grid, None for float32; an InputError while the grid is not known."""
        if isinstance(self.grid, str) or isinstance(self.scale, str):
            unknown = "grid of the inputs" if isinstance(self.grid, str) else "scale of the features"
            raise InputError(f"the {unknown} is not known yet")
        return self.grid

    def settle(self, levels: int | None) -> NoiseSpec:
        """The same noise on a known grid, or in float32."""
        generator: Literal["chacha20", "philox4x32-10"] = "philox4x32-10" if levels is None else "chacha20"
        return msgspec.structs.replace(self, grid=levels, generator=generator)


class ConstantLevel(SpecPart, frozen=True, kw_only=True, tag="constant", tag_field="kind"):
    """One noise level for all inputs."""

    level: Level


class RuleLevel(SpecPart, frozen=True, kw_only=True, tag="rule", tag_field="kind"):
    """The noise level of each input by a rule: a file, or package.module:attribute.

    code_folder: the folder in which that code was found.
    """

    place: str
    code_folder: str | None = None


class OptimisedLevel(SpecPart, frozen=True, kw_only=True, tag="optimised", tag_field="kind"):
    """The best noise level of each input, searched within [least, most] from `start`.

    search: the name of the search. settings: of the search; the command line adds the defaults. two_class: for a
    two-class certificate.
    """

    start: Level
    search: str = "ascent"
    settings: dict[str, int | float | str] = {}
    least: Level | None = None
    most: Level | None = None
    two_class: bool = False


SigmaSpec = ConstantLevel | RuleLevel | OptimisedLevel


class FixedN(SpecPart, frozen=True, kw_only=True, tag="fixed-n", tag_field="kind"):
    """Draw n samples of every input. n0 others select the class; 0 for a prediction, which needs none."""

    n: Count
    n0: Annotated[int, msgspec.Meta(ge=0, le=MOST_SAMPLES)] = 0


class Decide(SpecPart, frozen=True, kw_only=True, tag="decide", tag_field="kind"):
    """Is the radius at least R, for each of these R? An input is sampled until that is known, or n times."""

    radii: tuple[float, ...]
    n: Count
    n0: Count

    def __post_init__(self) -> None:
        if not self.radii:
            raise InputError("there is no radius to decide: give at least one, such as 0.25,0.5")
        for radius in self.radii:
            if not (math.isfinite(radius) and radius > 0):
                raise InputError(f"{radius:g} cannot be decided: a radius must be a positive finite number")
        if len(set(self.radii)) < len(self.radii):
            raise InputError(f"a radius to decide was given twice: {', '.join(f'{radius:g}' for radius in self.radii)}")
        if list(self.radii) != sorted(self.radii):
            raise InputError("the radii to decide must be in increasing order")


class Precision(SpecPart, frozen=True, kw_only=True, tag="precision", tag_field="kind"):
    """What is the radius? An input is sampled until less than `width` could be added to it, or n times."""

    width: float
    n: Count
    n0: Count

    def __post_init__(self) -> None:
        if not (math.isfinite(self.width) and self.width > 0):
            raise InputError(f"a precision of {self.width:g} is not possible: a positive finite distance was expected")


class EveryEvaluation(SpecPart, frozen=True, kw_only=True, tag="every-evaluation", tag_field="kind"):
    """Make all n evaluations of every input that there are. Nothing is sampled, so nothing selects, and α is 0.

    n: the most for an input, where their number differs.
    """

    n: Count

    @property
    def n0(self) -> int:
        return 0


QuestionSpec = FixedN | Decide | Precision | EveryEvaluation


def make_question(
    *, n: float, n0: float, decide: float | Sequence[float] | None = None, precision: float | None = None
) -> QuestionSpec:
    """The question that these settings ask; a fixed n unless `decide` or `precision` is given. n may be 1e5."""
    if decide is not None and precision is not None:
        raise InputError("decide and precision are two questions: use one of them")
    n, n0 = whole_number(n, name="n"), whole_number(n0, name="n0")
    if decide is not None:
        radii = decide if isinstance(decide, Iterable) else (decide,)
        return Decide(radii=tuple(sorted(float(radius) for radius in radii)), n=n, n0=n0)
    return FixedN(n=n, n0=n0) if precision is None else Precision(width=float(precision), n=n, n0=n0)


class LocalEngineSpec(SpecPart, frozen=True, kw_only=True, tag="local", tag_field="kind"):
    """Threads of this process. workers: None for one per core."""

    workers: Count | None = None


class RayEngineSpec(SpecPart, frozen=True, kw_only=True, tag="ray", tag_field="kind"):
    """Actors on a Ray cluster. address: None starts Ray here."""

    address: str | None = None
    actors: Count | None = None
    cpus_per_actor: float = 1.0
    gpus_per_actor: float = 0.0


EngineSpec = LocalEngineSpec | RayEngineSpec


class RunSpec(SpecPart, frozen=True, kw_only=True):
    """Everything that was requested of a run.

    certificates: names, in order; empty for a prediction. best_of: share alpha among them and take the largest radius.
    alpha: 0 where nothing is sampled. memory: a file or a URL. seed: of all noise, and of the offsets of splitting;
    None takes one from the operating system, or 0. batch: samples classified at once; None measures it. rigorous:
    confirm every result by the independent checker before it is stored.
    """

    task: Task
    model: ModelSpec
    data: DataSpec
    noise: NoiseSpec
    sigma: SigmaSpec
    question: QuestionSpec
    alpha: Probability
    certificates: tuple[str, ...] = ()
    best_of: bool = False
    memory: str | None = None
    seed: Seed | None = None
    batch: Count | None = None
    rigorous: bool = False
    engine: EngineSpec = LocalEngineSpec()

    def __post_init__(self) -> None:
        counted = isinstance(self.question, EveryEvaluation)
        if counted == self.noise.kind.sampled:
            made = "sampled" if self.noise.kind.sampled else "evaluated in full"
            raise InputError(f"{self.noise.kind} noise is {made}, and the question is {type(self.question).__name__}")
        if counted and self.alpha > 0:
            raise InputError(f"alpha={self.alpha:g} is the probability of an error by sampling, and nothing is sampled")
        if not counted and self.alpha == 0:
            raise InputError("alpha=0 is not possible with samples: it is the probability that they mislead")

    @property
    def certificate_text(self) -> str:
        """The certificates as `--certificate` and tables write them: "a,b" or "best-of(a,b)"."""
        names = ",".join(self.certificates)
        return f"best-of({names})" if self.best_of else names


class Digests(SpecPart, frozen=True, kw_only=True):
    """SHA-256 of what the run depends on. sigma: None for a constant level. memory: the key of the regions, if any.

    code: of the source files, as information only; `sampling_version` decides whether a run can be resumed.
    """

    model: str
    data: str
    sigma: str | None = None
    memory: str | None = None
    code: str = ""


class Measured(SpecPart, frozen=True, kw_only=True):
    """What was chosen by a measurement, or given: the batch size, and the back end in use."""

    batch: Count
    backend: str


class ModelFacts(SpecPart, frozen=True, kw_only=True):
    """probe: answers of the model to fixed inputs, by which another function is noticed. class_names: one for each
    class, from the model or the data; empty if classes are only numbered. has_random_weights: it was constructed for
    the run, without weights of a training.
    """

    num_classes: Count
    description: str = ""
    probe: Any = None
    has_random_weights: bool = False
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.class_names) not in (0, self.num_classes):
            raise ValueError(f"{len(self.class_names)} names for {self.num_classes} classes")


class DataFacts(SpecPart, frozen=True, kw_only=True):
    """size: of the dataset; inputs: how many of them the run is for. levels: of the values, if the dataset has them.

    feature_names: of the columns, in the order the model takes them; empty if they have none.
    """

    name: str
    input_shape: tuple[Count, ...]
    size: Count
    inputs: Count
    levels: Levels | None = None
    input_range: tuple[float, float] | None = None
    feature_names: tuple[str, ...] = ()


class SigmaFacts(SpecPart, frozen=True, kw_only=True):
    """A rule for sigma: its description as JSON, and its envelope, if it has one."""

    rule: dict[str, Any]
    envelope: dict[str, Any] | None = None


class RunManifest(SpecPart, frozen=True, kw_only=True):
    """The spec of a run, its digests, its seed, and what was measured. It is written once, before anything is drawn.

    sigma: None for a constant level. alpha_split: the share of alpha of every proof, by certificate.
    recertified_from: the manifest of the run whose tallies these results were computed from.
    """

    schema: Literal[3] = 3
    spec: RunSpec
    sampling_version: int
    seed: Seed
    digests: Digests
    measured: Measured
    model: ModelFacts
    data: DataFacts
    sigma: SigmaFacts | None = None
    alpha_split: dict[str, dict[str, float]] = {}
    environment: dict[str, str] = {}
    recertified_from: dict[str, Any] | None = None

    @property
    def task(self) -> Task:
        return self.spec.task

    @property
    def grid(self) -> int | None:
        """Levels of the grid of the noise; None for float32."""
        return self.spec.noise.levels

    def to_json(self) -> dict[str, Any]:
        return to_json(self)


Part = TypeVar("Part", bound=SpecPart)


def to_json(part: SpecPart) -> dict[str, Any]:
    """The part as plain JSON; `decode_part` reads it back."""
    # Through text, so that tuples become lists and the document equals what is read back from a file.
    document: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(part)))
    return document


def decode_part(document: object, kind: type[Part]) -> Part:
    """The part that this JSON document describes; a ValueError that names the field where it is not one."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def decode_manifest(document: object, *, source: object) -> RunManifest:
    """The manifest in a JSON document; a CorruptRunError that names the field where it is not one."""
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if schema != SCHEMA_VERSION and type(schema) is int:
        raise CorruptRunError(
            f"{source} has format {schema}, and this version reads format {SCHEMA_VERSION}. Earlier runs cannot be "
            "read: certify the inputs again"
        )
    try:
        manifest = decode_part(document, RunManifest)
        manifest.spec.noise.levels  # noqa: B018  (raises while the grid is not known)
        _check_states_sigma(manifest)
    except ValueError as error:
        raise CorruptRunError(f"{source} is not a valid manifest: {error}") from error
    return manifest


def _check_states_sigma(manifest: RunManifest) -> None:
    """Without the facts about its rule a run would be read as one with a constant level."""
    varies = not isinstance(manifest.spec.sigma, ConstantLevel)
    if varies != (manifest.sigma is not None) or varies != (manifest.digests.sigma is not None):
        expected = "required" if varies else "not allowed"
        raise ValueError(
            f"`$.sigma` and `$.digests.sigma` are {expected} where `$.spec.sigma` is {manifest.spec.sigma}"
        )

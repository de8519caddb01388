"""RunSpec and manifests: JSON both ways, errors that name the field, and what makes two runs the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from run_specs import make_spec
from sample_manifests import MANIFEST, SPEC, sample_manifest, sample_spec
from smoothcert.cli.main import app
from smoothcert.cli.spec_options import EngineOptions, build_moved_engine
from smoothcert.errors import CorruptRunError, InputError
from smoothcert.records import MOST_SAMPLES, Noise
from smoothcert.sigma import parse_search
from smoothcert.sigma.searches import search_settings
from smoothcert.spec import (
    SCHEMA_VERSION,
    ConstantLevel,
    DataFacts,
    DataSpec,
    Decide,
    Digests,
    EngineSpec,
    EveryEvaluation,
    FixedN,
    LocalEngineSpec,
    Measured,
    ModelFacts,
    ModelSpec,
    NoiseSpec,
    OptimisedLevel,
    Precision,
    RayEngineSpec,
    RuleLevel,
    RunManifest,
    RunSpec,
    SigmaFacts,
    SpecPart,
    decode_manifest,
    decode_part,
    make_question,
    to_json,
)
from smoothcert.spec_differences import list_differences

replace = msgspec.structs.replace

# Every kind of part, as Hypothesis draws it.

TEXT = st.text(max_size=8)
COUNT = st.integers(1, MOST_SAMPLES)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=1e-300, max_value=1e300)
DIGEST = st.text("0123456789abcdef", min_size=64, max_size=64)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def tuples_of(strategy: st.SearchStrategy[Any], **size: int) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=3, **size).map(tuple)


MODELS = st.builds(
    ModelSpec,
    place=TEXT,
    arch=maybe(TEXT),
    standardise=maybe(st.tuples(tuples_of(FINITE), tuples_of(FINITE))),
    num_classes=maybe(COUNT),
    backend=st.sampled_from([None, "torch", "onnxruntime", "fastest"]),
    device=TEXT,
)
DATA = st.builds(
    DataSpec,
    place=TEXT,
    split=TEXT,
    root=maybe(TEXT),
    input_range=st.sampled_from(["default", None]) | st.tuples(FINITE, FINITE),
    input_shape=maybe(tuples_of(COUNT)),
    skip=COUNT,
    max_inputs=maybe(COUNT),
)
NOISES = st.builds(
    NoiseSpec,
    kind=st.sampled_from(Noise),
    grid=st.sampled_from([None, "detect"]) | st.integers(2, 2**40),
    generator=st.sampled_from([None, "chacha20", "philox4x32-10"]),
    place=st.sampled_from(["input", "first-layer"]),
    rounds=st.booleans(),
    shared=st.booleans(),
)
SIGMAS = (
    st.builds(ConstantLevel, level=POSITIVE)
    | st.builds(RuleLevel, place=TEXT)
    | st.builds(
        OptimisedLevel,
        start=POSITIVE,
        search=TEXT,
        settings=st.dictionaries(TEXT, st.integers(-(2**60), 2**60) | FINITE | TEXT, max_size=3),
        least=maybe(POSITIVE),
        most=maybe(POSITIVE),
        two_class=st.booleans(),
    )
)
RADII = st.lists(POSITIVE, min_size=1, max_size=4, unique=True).map(lambda radii: tuple(sorted(radii)))
QUESTIONS = (
    st.builds(FixedN, n=COUNT, n0=st.integers(0, MOST_SAMPLES))
    | st.builds(Decide, radii=RADII, n=COUNT, n0=COUNT)
    | st.builds(Precision, width=POSITIVE, n=COUNT, n0=COUNT)
)
ENGINES = st.builds(LocalEngineSpec, workers=maybe(COUNT)) | st.builds(
    RayEngineSpec, address=maybe(TEXT), actors=maybe(COUNT), cpus_per_actor=FINITE, gpus_per_actor=FINITE
)
ASKED = st.tuples(
    NOISES.filter(lambda noise: noise.kind.sampled),
    QUESTIONS,
    st.floats(0.0, 1.0, exclude_min=True, exclude_max=True),
) | st.tuples(NOISES.filter(lambda noise: not noise.kind.sampled), st.builds(EveryEvaluation, n=COUNT), st.just(0.0))
"""Noise, question and alpha that go together."""
SPECS = ASKED.flatmap(
    lambda asked: st.builds(
        RunSpec,
        task=st.sampled_from(["certify", "predict", "recertify"]),
        model=MODELS,
        data=DATA,
        noise=st.just(asked[0]),
        sigma=SIGMAS,
        question=st.just(asked[1]),
        alpha=st.just(asked[2]),
        certificates=tuples_of(TEXT),
        best_of=st.booleans(),
        memory=maybe(TEXT),
        seed=maybe(st.integers(0, 2**128 - 1)),
        batch=maybe(COUNT),
        rigorous=st.booleans(),
        engine=ENGINES,
    )
)


def through_text(part: SpecPart) -> Any:
    return json.loads(json.dumps(to_json(part), allow_nan=False))


@given(SPECS)
def test_every_spec_comes_back_from_json(spec: RunSpec) -> None:
    assert decode_part(through_text(spec), RunSpec) == spec


@given(SPECS, st.integers(0, 2**128 - 1), DIGEST, COUNT, st.dictionaries(TEXT, FINITE, max_size=2))
def test_every_manifest_comes_back_from_json(
    spec: RunSpec, seed: int, digest: str, batch: int, facts: dict[str, float]
) -> None:
    varies = not isinstance(spec.sigma, ConstantLevel)
    manifest = RunManifest(
        spec=replace(spec, noise=spec.noise.settle(256)),
        sampling_version=4,
        seed=seed,
        digests=Digests(model=digest, data=digest, sigma=digest if varies else None, memory=digest, code=digest),
        measured=Measured(batch=batch, backend="torch cpu"),
        model=ModelFacts(num_classes=3, description="net", probe={"votes": [0, 1]}),
        data=DataFacts(name="d", input_shape=(1, 8, 8), size=9, inputs=5, levels=256, input_range=(0.0, 1.0)),
        sigma=SigmaFacts(rule=dict(facts), envelope=dict(facts)) if varies else None,
        alpha_split={"gaussian": {"clopper-pearson": 0.001}},
        environment={"numpy": "2"},
        recertified_from=to_json(MANIFEST),
    )
    assert decode_manifest(through_text(manifest), source="run") == manifest


def test_a_question_is_told_by_its_kind() -> None:
    assert to_json(FixedN(n=5, n0=1)) == {"kind": "fixed-n", "n": 5, "n0": 1}
    assert to_json(Decide(radii=(0.1,), n=5, n0=1)) == {"kind": "decide", "radii": [0.1], "n": 5, "n0": 1}
    assert to_json(Precision(width=0.1, n=5, n0=1)) == {"kind": "precision", "width": 0.1, "n": 5, "n0": 1}
    assert to_json(SPEC)["engine"] == {"kind": "local", "workers": None}
    assert to_json(SPEC)["noise"]["kind"] == "gaussian"


# Anything else is an error that names the field.

WHOLE = to_json(
    sample_manifest(
        spec=sample_spec(
            sigma=OptimisedLevel(start=0.25, settings={"points": 7}, least=0.1, most=0.5),
            question=Decide(radii=(0.1, 0.2), n=1000, n0=100),
            engine=RayEngineSpec(address="head:1", actors=2),
            seed=3,
            batch=64,
            memory="memory.sqlite",
        ),
        digests=Digests(model="0" * 64, data="1" * 64, sigma="2" * 64, memory="3" * 64, code="4" * 64),
        sigma=SigmaFacts(rule={}, envelope=None),
    )
)
FREE = {("sigma", "rule"), ("model", "probe"), ("environment",), ("alpha_split",), ("spec", "sigma", "settings")}
"""Places where any JSON, or any name, may stand."""

Place = tuple[str, ...]


def places(document: dict[str, Any], above: Place = ()) -> Iterator[Place]:
    for name, value in document.items():
        place = (*above, name)
        yield place
        if isinstance(value, dict) and place not in FREE:
            yield from places(value, place)


def changed(place: Place, value: object) -> dict[str, Any]:
    """The document with another value there; a missing one for `...`."""
    document: dict[str, Any] = json.loads(json.dumps(WHOLE))
    inner = document
    for name in place[:-1]:
        inner = inner[name]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return document


def refused(document: object) -> str:
    with pytest.raises(CorruptRunError) as caught:
        decode_manifest(document, source="run/manifest.json")
    assert str(caught.value).startswith("run/manifest.json ")
    return str(caught.value)


def test_the_whole_document_is_valid() -> None:
    assert to_json(decode_manifest(json.loads(json.dumps(WHOLE)), source="run")) == WHOLE


@pytest.mark.parametrize("place", [place for place in places(WHOLE) if place != ("model", "probe")], ids=".".join)
def test_a_value_of_the_wrong_type_is_named(place: Place) -> None:
    """A list of an object fits nowhere."""
    message = refused(changed(place, [{"x": 1}]))
    assert "$." + ".".join(place) in message or place == ("schema",)


OBJECTS: list[Place] = sorted({place[:-1] for place in places(WHOLE)})


@pytest.mark.parametrize("place", OBJECTS, ids=lambda place: ".".join(place) or "manifest")
def test_an_unknown_field_is_named(place: Place) -> None:
    message = refused(changed((*place, "novelty"), 1))
    assert "unknown field `novelty`" in message
    if place:
        assert "$." + ".".join(place) in message


REQUIRED: list[Place] = [
    ("spec",), ("sampling_version",), ("seed",), ("digests",), ("measured",), ("model",), ("data",),
    ("spec", "task"), ("spec", "model"), ("spec", "data"), ("spec", "noise"), ("spec", "sigma"), ("spec", "question"),
    ("spec", "alpha"), ("spec", "model", "place"), ("spec", "data", "place"), ("spec", "sigma", "start"),
    ("spec", "sigma", "kind"), ("spec", "question", "kind"), ("spec", "question", "radii"), ("spec", "question", "n"),
    ("spec", "question", "n0"), ("digests", "model"), ("digests", "data"), ("measured", "batch"),
    ("measured", "backend"), ("model", "num_classes"), ("data", "name"), ("data", "input_shape"), ("data", "size"),
    ("data", "inputs"), ("sigma", "rule"),
]  # fmt: skip


@pytest.mark.parametrize("place", REQUIRED, ids=".".join)
def test_a_missing_field_is_named(place: Place) -> None:
    message = refused(changed(place, ...))
    assert f"missing required field `{place[-1]}`" in message
    if place[:-1]:
        assert "$." + ".".join(place[:-1]) in message


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("spec", "alpha"), 1.0),
        (("spec", "alpha"), -0.1),
        (("spec", "alpha"), "0.001"),
        (("spec", "task"), "attack"),
        (("spec", "seed"), -1),
        (("spec", "seed"), 0.5),
        (("spec", "batch"), 0),
        (("spec", "best_of"), 1),
        (("spec", "certificates"), "gaussian"),
        (("spec", "model", "num_classes"), 0),
        (("spec", "model", "backend"), "openvino"),
        (("spec", "model", "standardise"), [[0.5]]),
        (("spec", "data", "skip"), 0),
        (("spec", "data", "max_inputs"), 0),
        (("spec", "data", "input_shape"), [0]),
        (("spec", "data", "input_range"), "any"),
        (("spec", "data", "input_range"), [0, 1, 2]),
        (("spec", "noise", "kind"), "unheard-of"),
        (("spec", "noise", "grid"), 1),
        (("spec", "noise", "grid"), "float"),
        (("spec", "noise", "generator"), "mersenne"),
        (("spec", "noise", "place"), "second-layer"),
        (("spec", "sigma", "kind"), "guessed"),
        (("spec", "sigma", "start"), 0.0),
        (("spec", "sigma", "least"), -1.0),
        (("spec", "question", "kind"), "guess"),
        (("spec", "question", "n"), 0),
        (("spec", "question", "n"), MOST_SAMPLES + 1),
        (("spec", "question", "n0"), 0),
        (("spec", "question", "radii"), [0.1, "0.2"]),
        (("spec", "engine", "kind"), "spark"),
        (("spec", "engine", "actors"), 0),
        (("seed",), -1),
        (("sampling_version",), "1"),
        (("measured", "batch"), 0),
        (("model", "num_classes"), 0),
        (("data", "inputs"), 0),
        (("data", "levels"), 1),
    ],
    ids=str,
)
def test_a_value_out_of_range_is_named(place: Place, value: object) -> None:
    assert "$." + ".".join(place) in refused(changed(place, value))


def test_alpha_is_zero_where_nothing_is_sampled_and_only_there() -> None:
    assert "alpha=0 is not possible with samples" in refused(changed(("spec", "alpha"), 0.0))
    split = changed(("spec", "noise", "kind"), "splitting")
    assert "is evaluated in full, and the question is Decide" in refused(split)
    split["spec"]["question"] = {"kind": "every-evaluation", "n": 441}
    assert "nothing is sampled" in refused(split)
    split["spec"]["alpha"] = 0.0
    assert decode_manifest(split, source="run").spec.question == EveryEvaluation(n=441)
    sampled = changed(("spec", "question"), {"kind": "every-evaluation", "n": 441})
    assert "is sampled, and the question is EveryEvaluation" in refused(sampled)


@pytest.mark.parametrize(
    ("radii", "words"),
    [
        ([], "there is no radius to decide"),
        ([0.0], "a radius must be a positive finite number"),
        ([-1.0], "a radius must be a positive finite number"),
        ([0.1, 0.1], "given twice"),
        ([0.2, 0.1], "increasing order"),
    ],
)
def test_radii_that_cannot_be_decided(radii: list[float], words: str) -> None:
    message = refused(changed(("spec", "question", "radii"), radii))
    assert words in message
    assert "$.spec.question" in message
    with pytest.raises(InputError, match=words):
        Decide(radii=tuple(radii), n=100, n0=10)


def test_a_grid_must_be_known_in_a_manifest() -> None:
    assert decode_part(to_json(NoiseSpec()), NoiseSpec).grid == "detect"  # a spec may still have to find it
    with pytest.raises(InputError, match="grid of the inputs is not known yet"):
        _ = NoiseSpec().levels
    assert "grid" in refused(changed(("spec", "noise", "grid"), "detect"))


def test_a_scale_must_be_known_in_a_manifest() -> None:
    assert decode_part(to_json(NoiseSpec(scale="std")), NoiseSpec).scale == "std"
    assert decode_part(to_json(NoiseSpec(scale=(0.5, 2.0))), NoiseSpec).scale == (0.5, 2.0)
    assert "scale" in refused(changed(("spec", "noise", "scale"), "std"))
    for wrong in ("deviations", [0.0], ["a"], 2.0):
        assert "noise.scale" in refused(changed(("spec", "noise", "scale"), wrong))


@pytest.mark.parametrize("place", [("sigma",), ("digests", "sigma")], ids=".".join)
def test_a_rule_without_its_facts_is_not_taken_for_a_constant_level(place: Place) -> None:
    assert "sigma" in refused(changed(place, None))
    constant = to_json(MANIFEST)
    constant["digests"]["sigma"] = "2" * 64
    assert "sigma" in refused(constant)


@pytest.mark.parametrize("schema", [1, 2, SCHEMA_VERSION + 1])
def test_other_formats_are_refused_by_a_message_that_says_so(schema: int) -> None:
    message = refused({"schema": schema, "task": "certify", "parameters": {}})
    assert f"has format {schema}, and this version reads format {SCHEMA_VERSION}" in message
    assert "certify the inputs again" in message


@pytest.mark.parametrize("document", [None, [], "x", 3, {}, {"schema": "3"}, {"schema": True}], ids=str)
def test_what_is_no_manifest_at_all(document: object) -> None:
    assert "is not a valid manifest" in refused(document)


def test_decode_part_raises_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"\$\.n"):
        decode_part({"kind": "fixed-n", "n": "5", "n0": 1}, FixedN)


# What makes two runs the same.

VARYING = sample_manifest(
    spec=sample_spec(sigma=RuleLevel(place="knn.safetensors"), memory="memory.sqlite"),
    digests=Digests(model="0" * 64, data="1" * 64, sigma="2" * 64, memory="3" * 64, code="4" * 64),
    sigma=SigmaFacts(rule={"kind": "knn"}, envelope={"kind": "semi-elastic", "rate": 0.02}),
)


def of_spec(**changes: Any) -> RunManifest:
    return sample_manifest(spec=sample_spec(**changes))


@pytest.mark.parametrize(
    "other",
    [
        of_spec(model=replace(SPEC.model, place="moved/model.pt")),
        of_spec(model=replace(SPEC.model, device="cuda:1")),
        of_spec(model=replace(SPEC.model, backend="torch")),
        of_spec(data=replace(SPEC.data, place="moved/digits.npz")),
        of_spec(data=replace(SPEC.data, root="/data")),
        # Requests whose outcome is the same: digests, classes, shape and range are compared instead.
        of_spec(model=replace(SPEC.model, arch="mlp")),
        of_spec(model=replace(SPEC.model, num_classes=5)),
        of_spec(model=replace(SPEC.model, standardise=((0.5,), (1.0,)))),
        of_spec(data=replace(SPEC.data, input_range=None)),
        of_spec(data=replace(SPEC.data, input_shape=(8, 8))),
        of_spec(engine=LocalEngineSpec(workers=3)),
        of_spec(engine=RayEngineSpec(address="head:1", actors=9)),
        of_spec(seed=1),
        of_spec(batch=64),
        of_spec(memory="moved.sqlite"),
        of_spec(rigorous=True),
        sample_manifest(digests=replace(MANIFEST.digests, code="9" * 64)),
        sample_manifest(environment={"numpy": "99"}),
        sample_manifest(model=replace(MANIFEST.model, description="another sentence")),
        sample_manifest(data=replace(MANIFEST.data, name="another name")),
    ],
    ids=range(20),
)
def test_what_does_not_matter(other: RunManifest) -> None:
    assert other != MANIFEST
    assert list_differences(MANIFEST, other) == []
    assert list_differences(other, MANIFEST) == []


def test_the_place_of_a_rule_does_not_matter() -> None:
    spec = replace(VARYING.spec, sigma=RuleLevel(place="run/sigma.safetensors"), memory="elsewhere.sqlite")
    assert list_differences(VARYING, replace(VARYING, spec=spec)) == []


@pytest.mark.parametrize(
    ("other", "lines"),
    [
        (of_spec(task="predict"), ["spec.task: the run has 'certify', now 'predict'"]),
        (of_spec(alpha=0.01), ["spec.alpha: the run has 0.001, now 0.01"]),
        (sample_manifest(model=replace(MANIFEST.model, num_classes=5)), ["num_classes: the run has "]),
        (of_spec(data=replace(SPEC.data, split="train")), ["spec.data.split: the run has 'test', now 'train'"]),
        (sample_manifest(data=replace(MANIFEST.data, input_range=(-9.0, 9.0))), ["input_range: the run has "]),
        (sample_manifest(data=replace(MANIFEST.data, input_shape=(8, 9))), ["input_shape: the run has "]),
        (of_spec(data=replace(SPEC.data, skip=2)), ["spec.data.skip: the run has 1, now 2"]),
        (of_spec(data=replace(SPEC.data, max_inputs=9)), ["spec.data.max_inputs: the run has None, now 9"]),
        (of_spec(noise=replace(SPEC.noise, kind=Noise.UNIFORM)), ["spec.noise.kind"]),
        (of_spec(noise=SPEC.noise.settle(256)), ["spec.noise.generator", "spec.noise.grid: the run has None, now 256"]),
        (of_spec(noise=replace(SPEC.noise, place="first-layer")), ["spec.noise.place"]),
        (of_spec(noise=replace(SPEC.noise, shared=True)), ["spec.noise.shared: the run has False, now True"]),
        (of_spec(sigma=ConstantLevel(level=0.5)), ["spec.sigma.level: the run has 0.25, now 0.5"]),
        (of_spec(question=FixedN(n=1001, n0=100)), ["spec.question.n: the run has 1000, now 1001"]),
        (of_spec(question=FixedN(n=1000, n0=101)), ["spec.question.n0: the run has 100, now 101"]),
        (
            of_spec(question=Precision(width=0.1, n=1000, n0=100)),
            [
                "spec.question.kind: the run has 'fixed-n', now 'precision'",
                "spec.question.width: the run has 'nothing'",
            ],
        ),
        (of_spec(certificates=("gaussian", "li")), ["spec.certificates"]),
        (of_spec(best_of=True), ["spec.best_of: the run has False, now True"]),
        (sample_manifest(seed=2), ["seed: the run has 1, now 2"]),
        (sample_manifest(sampling_version=2), ["sampling_version: the run has 1, now 2"]),
        (sample_manifest(measured=replace(MANIFEST.measured, batch=65)), ["measured.batch: the run has 64, now 65"]),
        (sample_manifest(measured=replace(MANIFEST.measured, backend="onnx")), ["measured.backend"]),
        (sample_manifest(data=replace(MANIFEST.data, inputs=9)), ["inputs: the run has 360, now 9"]),
        (sample_manifest(digests=replace(MANIFEST.digests, model="9" * 64)), ["digests.model"]),
        (sample_manifest(digests=replace(MANIFEST.digests, data="9" * 64)), ["digests.data"]),
        (sample_manifest(digests=replace(MANIFEST.digests, memory="9" * 64)), ["digests.memory"]),
    ],
    ids=range(26),
)
def test_what_matters_is_listed(other: RunManifest, lines: list[str]) -> None:
    found = list_differences(MANIFEST, other)
    assert len(found) == len(lines)
    assert all(line.startswith(expected) for line, expected in zip(found, lines, strict=True))
    assert len(list_differences(other, MANIFEST)) == len(lines)


def test_another_rule_is_listed_with_its_facts() -> None:
    other = replace(
        VARYING,
        digests=replace(VARYING.digests, sigma="5" * 64),
        sigma=SigmaFacts(rule={"kind": "knn"}, envelope={"kind": "semi-elastic", "rate": 0.05}),
    )
    digest, envelope = list_differences(VARYING, other)
    assert digest.startswith("digests.sigma: the run has '2222")
    assert envelope == "sigma.envelope.rate: the run has 0.02, now 0.05"
    # A description alone is information.
    assert list_differences(VARYING, replace(VARYING, sigma=other.sigma)) == []


def test_a_search_is_compared_by_its_settings() -> None:
    level = OptimisedLevel(start=0.25, search="grid", settings={"points": 7})
    mine = replace(VARYING, spec=replace(VARYING.spec, sigma=level))
    other = replace(mine, spec=replace(mine.spec, sigma=replace(level, settings={"points": 8})))
    assert list_differences(mine, other) == ["spec.sigma.settings.points: the run has 7, now 8"]


# The command line and Python build the same spec.

Task = Literal["certify", "predict"]


def parsed(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[RunSpec, Path]:
    """What the verb hands to `run_spec`."""
    heard: list[tuple[RunSpec, Path]] = []
    monkeypatch.setattr("smoothcert.cli.running.run_spec", lambda spec, out, *, as_json: heard.append((spec, out)))
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    ((spec, out),) = heard
    return spec, out


MODEL = ("--model", "net.pt", "--data", "digits")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("certify", *MODEL, "--sigma", 0.25),
            RunSpec(
                task="certify",
                model=ModelSpec(place="net.pt"),
                data=DataSpec(place="digits"),
                noise=NoiseSpec(),
                sigma=ConstantLevel(level=0.25),
                question=make_question(n=100_000, n0=100),
                alpha=0.001,
            ),
        ),
        (
            (
                "certify", *MODEL, "--sigma-rule", "knn.safetensors", "--noise", "uniform", "--grid", 256,
                "--certificate", "uniform-l1", "--certificate", "uniform-l1-two-class", "--best-of", "--decide",
                "0.5,0.25", "--n", 5000, "--n0", 50, "--alpha", 0.01, "--memory", "m.sqlite", "--seed", 7, "--batch",
                64, "--rigorous", "--workers", 2, "--skip", 3, "--max", 9, "--split", "train",
            ),
            RunSpec(
                task="certify",
                model=ModelSpec(place="net.pt"),
                data=DataSpec(place="digits", split="train", skip=3, max_inputs=9),
                noise=NoiseSpec(kind=Noise.UNIFORM, grid=256),
                sigma=RuleLevel(place="knn.safetensors"),
                question=Decide(radii=(0.25, 0.5), n=5000, n0=50),
                alpha=0.01,
                certificates=("uniform-l1", "uniform-l1-two-class"),
                best_of=True,
                memory="m.sqlite",
                seed=7,
                batch=64,
                rigorous=True,
                engine=LocalEngineSpec(workers=2),
            ),
        ),
        (
            (
                "certify", *MODEL, "--sigma-rule", "optimised-two-class", "--sigma", 0.5, "--sigma-range", "0.1,1",
                "--search", "grid:points=7,noises=16", "--precision", 0.1, "--noise", "float", "--arch", "mlp-16",
                "--standardise", "0.1307/0.3081", "--num-classes", 10, "--backend", "onnxruntime", "--device", "cpu",
                "--input-range", "any", "--input-shape", "1,8,8", "--data-root", "data", "--shared-noise", "--weights",
                "w.pt", "--resize", "9:8",
            ),
            RunSpec(
                task="certify",
                model=ModelSpec(
                    place="net.pt",
                    arch="mlp-16",
                    standardise=((0.1307,), (0.3081,)),
                    num_classes=10,
                    backend="onnxruntime",
                    device="cpu",
                    weights="w.pt",
                ),
                data=DataSpec(
                    place="digits",
                    root="data",
                    input_range=None,
                    input_shape=(1, 8, 8),
                    resize=(8, 8),
                    shorter_side=9,
                ),
                noise=NoiseSpec(grid=None, shared=True),
                sigma=OptimisedLevel(
                    start=0.5,
                    search="grid",
                    settings=search_settings(parse_search("grid:points=7,noises=16")),
                    least=0.1,
                    most=1.0,
                    two_class=True,
                ),
                question=Precision(width=0.1, n=100_000, n0=100),
                alpha=0.001,
            ),
        ),
        (
            (
                "predict", *MODEL, "--sigma", 1, "--n", 300, "--noise-at", "first-layer", "--input-range", "0,2",
                "--engine", "ray", "--actors", 3, "--gpus-per-actor", 0.5, "--address", "head:6379",
            ),
            RunSpec(
                task="predict",
                model=ModelSpec(place="net.pt"),
                data=DataSpec(place="digits", input_range=(0.0, 2.0)),
                noise=NoiseSpec(place="first-layer"),
                sigma=ConstantLevel(level=1.0),
                question=FixedN(n=300),
                alpha=0.001,
                engine=RayEngineSpec(address="head:6379", actors=3, gpus_per_actor=0.5),
            ),
        ),
    ],
    ids=["defaults", "rule", "search", "predict"],
)  # fmt: skip
def test_the_command_line_builds_the_spec_that_python_builds(
    arguments: tuple[object, ...], expected: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, _ = parsed(monkeypatch, *arguments)
    assert spec == expected
    assert to_json(spec) == to_json(expected)


def test_so_do_the_flat_settings_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, _ = parsed(
        monkeypatch, "certify", *MODEL, "--sigma", 0.5, "--certificate", "dipole,gaussian", "--n", 2000, "--n0", 30,
        "--seed", 4, "--grid", "float",
    )  # fmt: skip
    flat = make_spec(
        model="net.pt", data="digits", sigma=0.5, certificate="dipole,gaussian", n=2000, n0=30, alpha=0.001, seed=4,
        grid="float",
    )  # fmt: skip
    assert spec == flat


# With --resume, options about the engine that are not given keep their value.

ON_RAY = RayEngineSpec(address="head:1", actors=4, cpus_per_actor=2.0)


def options(**given: Any) -> EngineOptions:
    none: dict[str, Any] = dict.fromkeys(("engine", "workers", "address", "actors", "cpus_per_actor", "gpus_per_actor"))
    return EngineOptions(**(none | given))


@pytest.mark.parametrize(
    ("given", "recorded", "expected"),
    [
        ({}, LocalEngineSpec(workers=3), LocalEngineSpec(workers=3)),
        ({"workers": 1}, LocalEngineSpec(workers=3), LocalEngineSpec(workers=1)),
        ({"engine": "local"}, LocalEngineSpec(workers=3), LocalEngineSpec(workers=3)),
        ({"engine": "ray"}, LocalEngineSpec(workers=3), RayEngineSpec()),
        ({"engine": "ray", "actors": 2}, LocalEngineSpec(workers=3), RayEngineSpec(actors=2)),
        ({}, ON_RAY, ON_RAY),
        ({"actors": 2}, ON_RAY, replace(ON_RAY, actors=2)),
        ({"engine": "ray", "address": "other:1"}, ON_RAY, replace(ON_RAY, address="other:1")),
        ({"engine": "local"}, ON_RAY, LocalEngineSpec()),
    ],
    ids=str,
)
def test_the_engine_of_a_resumed_run(given: dict[str, Any], recorded: EngineSpec, expected: EngineSpec) -> None:
    assert build_moved_engine(options(**given), recorded) == expected


@pytest.mark.parametrize(
    ("given", "recorded", "words"),
    [
        ({"actors": 2}, LocalEngineSpec(), "--actors is about a cluster: it needs --engine ray"),
        ({"workers": 2}, ON_RAY, "with --engine ray give --actors"),
        ({"engine": "spark"}, ON_RAY, "--engine spark is unknown"),
    ],
    ids=str,
)
def test_options_of_the_other_engine(given: dict[str, Any], recorded: EngineSpec, words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_moved_engine(options(**given), recorded)

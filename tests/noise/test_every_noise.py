"""What every noise must have, in every place that knows it: run this first when you add one (CONTRIBUTING.md)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from smoothcert.certificates import CERTIFICATES, get_certificate
from smoothcert.cli.options import NOISES as NOISES_IN_HELP
from smoothcert.errors import InputError
from smoothcert.noise import AdditiveLaw, additive_law_of, grid_law, law_of, unit_noise, with_numpy
from smoothcert.noise.self_test import check_noise
from smoothcert.records import Noise, Stage, StreamId, TallyKind

STREAM = StreamId(2**63 + 12345, 77, Stage.ESTIMATION)
PLACE = {"start": 2**32 - 7, "count": 40, "size": 129}

EVERY = pytest.mark.parametrize("noise", list(Noise))
ADDED = pytest.mark.parametrize("noise", [noise for noise in Noise if isinstance(law_of(noise), AdditiveLaw)])
"""Those that are added to the input; others have tests of their own."""


@EVERY
@pytest.mark.parametrize("levels", [None, 17, 256])
def test_it_passes_the_self_test(noise: Noise, levels: int | None) -> None:
    if levels is None and not isinstance(law_of(noise), AdditiveLaw):
        with pytest.raises(InputError, match="inputs on a grid"):
            check_noise(noise, sigma=0.5, levels=levels)
        return
    check_noise(noise, sigma=0.5, levels=levels)


@ADDED
def test_all_versions_give_the_same_bits(noise: Noise) -> None:
    torch = pytest.importorskip("torch")
    from smoothcert.noise import with_torch

    plain = with_numpy.unit_noise(noise, STREAM, **PLACE)
    assert plain.dtype == np.float32
    assert plain.tobytes() == unit_noise(noise, STREAM, **PLACE).tobytes()
    on_device = with_torch.unit_noise(noise, STREAM, device=torch.device("cpu"), **PLACE)
    assert plain.tobytes() == on_device.numpy().tobytes()


@ADDED
def test_draws_for_training_have_its_variance(noise: Noise) -> None:
    torch = pytest.importorskip("torch")
    drawn = additive_law_of(noise).draw_with_generator(torch.zeros(400, 500), torch.Generator().manual_seed(3)).double()
    moments = additive_law_of(noise).self_test.even_moments
    assert noise.facts.unit_variance == pytest.approx(moments[0])
    assert abs(float((drawn**2).mean()) - moments[0]) < 6 * np.sqrt((moments[1] - moments[0] ** 2) / drawn.numel())
    pictured = noise.facts.illustrate(np.random.default_rng(4), (400, 500))
    assert abs((pictured**2).mean() - moments[0]) < 6 * np.sqrt((moments[1] - moments[0] ** 2) / pictured.size)


@ADDED
def test_tables_end_where_its_facts_say(noise: Noise) -> None:
    """`table_reach` is part of the price of noise on a grid: too small a number would be a wrong certificate."""
    law, reach = additive_law_of(noise), noise.facts.table_reach
    assert law.probability_below(-float(reach)) < 2.0**-65 * (1 - 2.0**-34)
    table = grid_law(noise, sigma=0.5, levels=256)
    assert table.most <= np.ceil(float(reach) * table.scale)
    assert table.most - Fraction(1, 2) <= law.farthest * Fraction(table.scale)


@EVERY
def test_its_usual_certificates_are_about_it(noise: Noise) -> None:
    facts = noise.facts
    names = (facts.constant_sigma_certificate, facts.varying_sigma_certificate, facts.soft_two_class_certificate)
    for name in filter(None, names):
        assert (get_certificate(name).noise, get_certificate(name).norm) == (noise, noise.norm)
    assert (TallyKind.SCORES in law_of(noise).tallies) is (facts.soft_two_class_certificate is not None)
    assert TallyKind.VOTES in law_of(noise).tallies
    assert any(one.noise is noise for one in CERTIFICATES.values())


@EVERY
def test_the_checker_knows_the_same(noise: Noise) -> None:
    forms = pytest.importorskip("smoothcert_verify.noise_forms")
    form = forms.NOISES[noise.value]
    assert (form.norm, form.is_sampled) == (noise.norm.value, noise.sampled)
    if not isinstance(form, forms.AdditiveForm):
        assert not noise.sampled, "tests/verify/test_split_inputs.py compares what the model sees"
        return
    assert form.table_reach == noise.facts.table_reach
    assert Fraction(form.quarters, 4) == additive_law_of(noise).farthest
    stream = forms.Stream(STREAM.seed, STREAM.index, int(STREAM.stage))
    again = forms.unit_noise(noise.value, stream, **PLACE)
    assert again.tobytes() == unit_noise(noise, STREAM, **PLACE).tobytes()
    law = grid_law(noise, sigma=0.5, levels=256)
    limits, least = forms.thresholds(noise.value, sigma=0.5, levels=256)
    assert (limits.tobytes(), least) == (law.thresholds.tobytes(), law.least)


@EVERY
def test_the_schema_of_certificates_names_it(noise: Noise) -> None:
    schema = json.loads(
        (Path(__file__).parents[2] / "docs" / "reference" / "certificate.schema.json").read_text(encoding="utf-8")
    )
    assert noise.value in schema["$defs"]["noise"]["properties"]["kind"]["enum"]


@EVERY
def test_the_help_of_the_command_line_names_it(noise: Noise) -> None:
    assert noise.value in NOISES_IN_HELP

"""A noise level of every input's own: what is sampled with it, what is refused, and that radii are true."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import special

from run_specs import without_times
from sample_models import Linear, logistic_digits
from sample_rules import random_network
from smoothcert.certificates import CERTIFICATES, envelope_radius, gaussian_radius
from smoothcert.errors import InputError
from smoothcert.records import CertifiedPoint, Outcome, Quantity
from smoothcert.records.envelopes import ConstantSigma, Envelope, LipschitzSigma, MonotoneEnvelope, SemiElastic
from smoothcert.sigma import CallableRule, ConstantRule, SigmaRule
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.network import SigmaNetwork
from smoothcert.smoothed import SmoothedClassifier

SIZE = 8
INPUTS = np.random.default_rng(1).random((9, SIZE), dtype=np.float32)
WEIGHTS = np.random.default_rng(2).normal(size=SIZE)
MODEL = Linear(WEIGHTS, -0.5 * float(WEIGHTS.sum()))


def by_mean(x: np.ndarray) -> float:
    return 0.1 + 0.4 * float(x.astype(np.float64).mean())


PROVEN = CallableRule(by_mean, envelope=LipschitzSigma(constant=0.4 / math.sqrt(SIZE), floor=0.05))


TRAINING = np.random.default_rng(7).random((6, SIZE), dtype=np.float32)


def knn(points: np.ndarray = TRAINING, *, rate: float = 0.3, base_sigma: float = 0.3, k: int = 2) -> KnnSigma:
    return KnnSigma(points=points.astype(np.float32), base_sigma=base_sigma, rate=rate, k=k, offset=0.5)


def network(*, lipschitz: float = 0.2, floor: float = 0.2, seed: int = 0) -> SigmaNetwork:
    return random_network(SIZE, lipschitz=lipschitz, floor=floor, spread=0.05, seed=seed)


RULES: dict[str, SigmaRule] = {"function": PROVEN, "neighbours": knn(), "network": network()}


def smooth(sigma: object, *, model: object = MODEL, batch: int = 64, workers: int | None = None, seed: int = 3):  # type: ignore[no-untyped-def]
    return SmoothedClassifier(model, sigma=sigma, num_classes=2, seed=seed, batch=batch, workers=workers)  # type: ignore[arg-type]


def same(points: Sequence[CertifiedPoint], others: Sequence[CertifiedPoint]) -> bool:
    """Equal to the bit, except that a radius, which is found by iteration, may differ in its last digits."""
    if [point.radius for point in points] != pytest.approx([other.radius for other in others], rel=1e-12, abs=0.0):
        return False
    facts, others_facts = (
        [(one.index, one.sigma, one.prediction, one.outcome, one.bounds, one.tallies) for one in several]
        for several in (points, others)
    )
    return facts == others_facts


class TestSampling:
    @pytest.mark.parametrize("name", RULES)
    def test_every_tally_carries_the_level_of_its_input(self, name: str) -> None:
        rule = RULES[name]
        expected = rule.sigmas(INPUTS)
        assert len(set(expected)) == len(INPUTS)
        for points in (
            smooth(rule).certify(INPUTS, n0=20, n=300),
            smooth(rule).predict(INPUTS, n=100),
        ):
            assert [point.sigma for point in points] == expected.tolist()
            assert all(tally.sigma == point.sigma for point in points for tally in point.tallies)

    def test_the_noise_the_model_sees_has_that_level(self) -> None:
        """4 · 4000 values each: the variance is within 5 standard deviations (false alarm 2e-6 for all three)."""
        places = np.array([[0.0] * 4, [100.0] * 4, [200.0] * 4], dtype=np.float32)
        levels = {0: 0.25, 100: 0.5, 200: 3.0}
        seen: list[np.ndarray] = []

        def recording(batch: np.ndarray) -> np.ndarray:
            if len(batch) > 1:  # now and then a row is asked again alone
                seen.append(np.array(batch, dtype=np.float64))
            return (batch[:, 0] > 50).astype(np.int64)

        smoothed = SmoothedClassifier(
            recording, sigma=lambda x: levels[int(x[0])], num_classes=2, input_shape=(4,), seed=1, batch=512,
            input_range=None,
        )  # fmt: skip
        seen.clear()
        smoothed.predict(places, n=4000)
        noisy = np.concatenate(seen)
        assert len(noisy) == 3 * 4000
        nearest = np.abs(noisy.mean(axis=1)[:, None] - places[:, 0]).argmin(axis=1)
        for row, level in enumerate(levels.values()):
            noise = noisy[nearest == row] - places[row]
            assert noise.shape == (4000, 4)
            assert np.mean(np.square(noise)) == pytest.approx(level**2, rel=5 * math.sqrt(2 / noise.size))
            assert abs(noise.mean()) < 5 * level / math.sqrt(noise.size)

    @pytest.mark.parametrize("name", RULES)
    def test_batch_order_and_grouping_change_nothing(self, name: str) -> None:
        rule = RULES[name]
        whole = smooth(rule).certify(INPUTS, n0=20, n=300)
        assert any(point.radius > 0 for point in whole)
        assert same(smooth(rule, batch=7).certify(INPUTS, n0=20, n=300), whole)
        turned = list(reversed(range(len(INPUTS))))
        again = smooth(rule, batch=1000).certify(INPUTS[turned], n0=20, n=300, indices=turned)
        assert same(again[::-1], whole)
        single = [smooth(rule).certify(INPUTS[i : i + 1], n0=20, n=300, indices=[i])[0] for i in range(len(INPUTS))]
        assert same(single, whole)

    def test_workers_change_nothing(self) -> None:
        torch = pytest.importorskip("torch")
        module = torch.nn.Linear(SIZE, 2)
        with torch.no_grad():
            module.weight.copy_(torch.tensor(np.stack([-WEIGHTS, WEIGHTS])))
            module.bias.copy_(torch.tensor([-MODEL.bias, MODEL.bias]))
        one, three = (
            without_times(smooth(knn(), model=module, workers=workers).certify(INPUTS, n0=20, n=500))
            for workers in (1, 3)
        )
        assert one == three

    def test_noise_is_the_same_normals_times_another_level(self) -> None:
        """The level changes no draw: an input that a constant σ gives the same level has the same votes."""
        rule = knn()
        varying = smooth(rule).certify(INPUTS, n0=20, n=300)
        for point, level in zip(varying, rule.sigmas(INPUTS), strict=True):
            constant = smooth(float(level)).certify(
                INPUTS[point.index : point.index + 1], n0=20, n=300, indices=[point.index]
            )[0]
            assert constant.tallies == point.tallies
            assert constant.radius >= point.radius

    def test_a_constant_rule_is_the_number(self) -> None:
        plain = without_times(smooth(0.3).certify(INPUTS, n0=20, n=300))
        assert without_times(smooth(ConstantRule(0.3)).certify(INPUTS, n0=20, n=300)) == plain
        assert all(point.verdict.certificate == "gaussian" for point in plain)

    def test_a_level_no_noise_can_carry_names_the_input(self) -> None:
        rule = CallableRule(lambda x: 1e-30 if x[0] == INPUTS[4, 0] else 0.2, envelope=SemiElastic(rate=0.1))
        with pytest.raises(InputError, match=r"input 14 cannot be smoothed: sigma=1e-30 is outside"):
            smooth(rule).certify(INPUTS, n0=20, n=300, indices=range(10, 19))
        far = KnnSigma(points=INPUTS, base_sigma=0.2, rate=500.0, k=1, offset=0.0)
        with pytest.raises(InputError, match=r"input 0 cannot be smoothed"):
            SmoothedClassifier(MODEL, sigma=far, num_classes=2, input_range=None, batch=8).predict(
                100 + INPUTS[:1], n=100
            )


class TestWhatIsRefused:
    def test_a_plain_function_predicts(self) -> None:
        points = smooth(by_mean).predict(INPUTS, n=500)
        assert [point.sigma for point in points] == [by_mean(x) for x in INPUTS]
        assert {point.outcome for point in points} <= {Outcome.PREDICTED, Outcome.ABSTAINED}
        decided = [point for point in points if point.prediction is not None]
        assert len(decided) >= 5
        assert all(point.prediction == int(MODEL(INPUTS[point.index : point.index + 1])[0]) for point in decided)

    @pytest.mark.parametrize("certificate", [None, "envelope", "gaussian", "envelope,renyi"])
    def test_a_plain_function_is_not_certified_and_both_ways_out_are_named(self, certificate: str | None) -> None:
        asked: list[int] = []

        def watched(batch: np.ndarray) -> np.ndarray:
            asked.append(len(batch))
            return MODEL(batch)

        with pytest.raises(InputError) as caught:
            smooth(by_mean, model=watched).certify(INPUTS, n0=20, n=300, certificate=certificate)
        message = str(caught.value)
        assert "this sigma has no envelope" in message
        for way in ("an envelope", "SemiElastic", "a memory", "smoothcert predict"):
            assert way in message
        assert sum(asked) <= 2  # the trial that showed what it answers with

    @pytest.mark.parametrize(
        "certificate",
        ["gaussian", "gaussian-two-class", "dipole", "second-order", "lecuyer", "li", "gaussian-soft",
         "envelope,gaussian", "best-of(envelope,gaussian)"],
    )  # fmt: skip
    @pytest.mark.parametrize("name", RULES)
    def test_theorems_for_a_constant_level_are_refused(self, certificate: str, name: str) -> None:
        with pytest.raises(InputError, match=r"is proved for a constant sigma .* use the certificate envelope"):
            smooth(RULES[name]).certify(INPUTS, n0=20, n=300, certificate=certificate)

    def test_which_theorems_take_a_varying_level(self) -> None:
        allowed = {name for name, certificate in CERTIFICATES.items() if certificate.varying_sigma}
        assert {CERTIFICATES[name].family for name in allowed} == {"envelope", "lipschitz", "renyi"}
        assert all(
            certificate.name in allowed
            for certificate in CERTIFICATES.values()
            if certificate.family in {"envelope", "lipschitz", "renyi"}
        )

    def test_the_default_certificate(self) -> None:
        assert smooth(0.3).usual_certificate == "gaussian"
        assert smooth(ConstantRule(0.3)).usual_certificate == "gaussian"
        for rule in RULES.values():
            assert smooth(rule).usual_certificate == "envelope"
            points = smooth(rule).certify(INPUTS[:2], n0=20, n=300)
            assert {point.verdict.certificate for point in points} == {"envelope"}

    def test_the_lipschitz_theorem_needs_a_lipschitz_level(self) -> None:
        smoothed = SmoothedClassifier(logistic_digits(), sigma=knn(np.random.default_rng(0).random((9, 64))), batch=64)
        with pytest.raises(InputError, match=r"needs a sigma with a Lipschitz constant and a floor"):
            smoothed.certify(np.zeros((1, 64)), n0=20, n=300, certificate="lipschitz")

    def test_an_envelope_that_is_none_gives_no_radius(self) -> None:
        """It comes back to σ after a while: not monotone."""
        bent = MonotoneEnvelope(
            "bent", lambda s, a: s * (1 - 0.1 * np.sin(40 * a) ** 2), lambda s, a: s * (1 + 0.1 * np.sin(40 * a) ** 2)
        )
        with pytest.raises(InputError, match="its lower bound must decrease and its upper bound must increase"):
            smooth(CallableRule(lambda x: 0.3, envelope=bent)).certify(INPUTS, n0=20, n=1000)

    @pytest.mark.parametrize(
        "batch",
        [
            pytest.param(64, id="one shard"),
            pytest.param(5, id="a shard for each"),
        ],
    )
    def test_levels_that_differ_are_not_constant(self, batch: int) -> None:
        """Said to be constant, seen not to be: the votes at hand disprove the envelope."""
        rule = CallableRule(by_mean, envelope=ConstantSigma())
        with pytest.raises(InputError, match="constant"):
            smooth(rule, batch=batch).certify(INPUTS, n0=20, n=300)

    @pytest.mark.parametrize("shape", [(), (3,), (9, 1)], ids=str)
    def test_a_rule_that_gives_another_number_of_levels(self, shape: tuple[int, ...]) -> None:
        class Odd(ConstantRule):
            def sigmas(self, inputs: np.ndarray, /) -> np.ndarray:
                return np.full(shape, 0.2)

        with pytest.raises(InputError, match=r"levels|sigma"):
            smooth(Odd(0.2)).predict(INPUTS, n=100)

    def test_a_rule_for_another_size(self) -> None:
        for rule in (knn(np.zeros((4, 3))), random_network(3, lipschitz=0.1, floor=0.2)):
            with pytest.raises(
                InputError, match=r"shape \(8,\).* (made for 3 numbers|fitted on are float32 of shape \(3,\))"
            ):
                smooth(rule).predict(INPUTS, n=100)


BALL_RADIUS = 1.0


def in_ball(batch: np.ndarray) -> np.ndarray:
    """The base classifier of the counter-example: 1 inside the unit ball, 0 outside."""
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    return (np.square(flat).sum(axis=1) < BALL_RADIUS**2).astype(np.int64)


def chance_of_ball(x: np.ndarray, sigma: np.ndarray | float) -> np.ndarray:
    """P(‖x+ε‖ < 1), exactly; x: (…, N)."""
    distance = np.linalg.norm(np.asarray(x, dtype=np.float64), axis=-1)
    chance: np.ndarray = special.chndtr(np.square(BALL_RADIUS / sigma), x.shape[-1], np.square(distance / sigma))
    return chance


class TestUnitBallCounterExample:
    """Súkeník et al. 2022, appendix C.2: a level of each input's own, without memory and without envelope."""

    FAR, NEAR = np.array([50.0, 0.0]), np.array([0.0, 0.0])
    LARGE, SMALL = 20.0, 0.25

    @classmethod
    def optimised(cls, x: np.ndarray) -> float:
        """As an optimiser of radii would have it: large where that pays, small in the ball."""
        return cls.LARGE if float(np.linalg.norm(x)) > 10 else cls.SMALL

    def test_the_naive_radius_is_false(self) -> None:
        outside = 1.0 - float(chance_of_ball(self.FAR, self.LARGE))
        assert outside > 0.999  # class 0, almost surely
        naive = float(gaussian_radius(outside, sigma=self.LARGE))
        assert naive > np.linalg.norm(self.FAR - self.NEAR) == 50.0
        assert float(chance_of_ball(self.NEAR, self.SMALL)) == pytest.approx(1 - math.exp(-8), rel=1e-12)  # class 1
        # With one level for both, the theorem is right: the origin is class 0 too.
        assert float(chance_of_ball(self.NEAR, self.LARGE)) < 0.5

    def test_votes_agree_with_the_exact_probabilities(self) -> None:
        smoothed = SmoothedClassifier(
            in_ball, sigma=self.optimised, num_classes=2, seed=1, batch=2000, input_range=None
        )
        far, near = smoothed.predict(np.stack([self.FAR, self.NEAR]), n=10_000)
        assert (far.sigma, near.sigma) == (20.0, 0.25)
        assert (far.prediction, near.prediction) == (0, 1)

    def test_it_is_refused(self) -> None:
        smoothed = SmoothedClassifier(in_ball, sigma=self.optimised, num_classes=2, seed=1, batch=200, input_range=None)
        ways_out = r"Either use a sigma with an envelope .* or keep all promised regions in a memory"
        with pytest.raises(InputError, match=rf"has no envelope: .* {ways_out}"):
            smoothed.certify(np.stack([self.FAR, self.NEAR]), n=1000)

    @pytest.mark.parametrize(
        "envelope",
        [SemiElastic(rate=0.01), SemiElastic(rate=0.1), SemiElastic(rate=math.log(80.0) / 50.0),
         LipschitzSigma(constant=(20.0 - 0.25) / 50.0, floor=0.25), LipschitzSigma(constant=0.05, floor=0.25)],
        ids=str,
    )  # fmt: skip
    def test_with_an_envelope_the_radius_is_true(self, envelope: Envelope) -> None:
        """Even for the worst level the envelope allows, at the nearest points: towards the ball."""
        p_a = 1.0 - float(chance_of_ball(self.FAR, self.LARGE))
        radius = float(envelope_radius(p_a, sigma=self.LARGE, dimension=2, envelope=envelope))
        assert 0 < radius <= float(gaussian_radius(p_a, sigma=self.LARGE))
        assert self.worst_chance(envelope, up_to=radius) < 0.5
        # The radius the envelope replaces fails the same check, wherever the envelope lets σ fall far enough.
        if float(envelope.low(np.array(20.0), np.array(50.0))) < 0.5:
            assert self.worst_chance(envelope, up_to=float(gaussian_radius(p_a, sigma=20.0))) > 0.5

    @classmethod
    def worst_chance(cls, envelope: Envelope, *, up_to: float) -> float:
        """The largest probability of the ball over all points within this distance and all levels allowed there."""
        distances = np.linspace(0.0, up_to, 400)
        level = np.full_like(distances, cls.LARGE)
        low, high = envelope.low(level, distances), envelope.high(level, distances)
        levels = np.exp(np.linspace(np.log(low), np.log(high), 200))  # (200, 400)
        places = np.stack([np.maximum(50.0 - distances, 0.0), np.zeros_like(distances)], axis=-1)
        return float(chance_of_ball(np.broadcast_to(places, (200, 400, 2)), levels).max())


Truth = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Points (m, N) and their levels (m,) → the class of the smoothed classifier, exactly."""


def ball_truth(points: np.ndarray, levels: np.ndarray) -> np.ndarray:
    return (chance_of_ball(points, levels) > 0.5).astype(np.int64)


def robust_radius(x: np.ndarray, rule: SigmaRule, truth: Truth, *, most: float) -> float:
    """The smallest distance in 2-d at which another class was seen, on rings of 36 points; `most` if none was."""
    angles = np.linspace(0.0, 2 * np.pi, 36, endpoint=False)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    own = truth(x[None].astype(np.float64), rule.sigmas(x[None]))[0]
    distances = np.linspace(0.0, most, 41)[1:]
    places = (x.astype(np.float64) + distances[:, None, None] * ring).astype(np.float32)
    flat = places.reshape(-1, 2)
    changed = truth(flat.astype(np.float64), rule.sigmas(flat)) != own
    if not changed.any():
        return most
    return float(np.linalg.norm(flat[changed].astype(np.float64) - x.astype(np.float64), axis=1).min())


CLOUD = np.random.default_rng(5).normal(size=(12, 2)).astype(np.float32) * 0.1
SPIKED = SigmaNetwork(  # 0.3 + 2|x₀|: as fast as the product of norms allows, up to a factor of 2
    weights=(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[2.0, 2.0]])),
    biases=(np.zeros(2), np.zeros(1)),
    floor=0.3,
)
PLANE_RULES: dict[str, SigmaRule] = {
    "neighbours, slow": KnnSigma(points=CLOUD, base_sigma=0.3, rate=0.2, k=3, offset=0.1),
    "neighbours, fast": KnnSigma(points=CLOUD, base_sigma=0.3, rate=3.0, k=3, offset=0.1),
    "network, slow": random_network(2, lipschitz=0.1, floor=0.25, spread=0.05, seed=1),
    "network, fast": SPIKED,
}
PLANE_INPUTS = np.array(
    [[0.0, 0.0], [0.3, 0.1], [-0.1, 0.5], [0.02, -0.2], [1.6, 0.0], [-1.2, -1.1], [0.1, 2.0]], dtype=np.float32
)


@functools.cache
def certify_in_plane(model: object, rule_name: str) -> list[CertifiedPoint]:
    rule = PLANE_RULES[rule_name]
    smoothed = SmoothedClassifier(model, sigma=rule, num_classes=2, seed=11, batch=4000, input_range=None)
    return smoothed.certify(PLANE_INPUTS, n0=100, n=10_000, certificate="envelope,envelope-two-class,renyi")


class TestSoundness:
    """Each radius may be false with probability 0.001; at these seeds none is."""

    @pytest.mark.parametrize("name", PLANE_RULES)
    def test_no_radius_is_larger_than_the_true_one_of_a_ball(self, name: str) -> None:
        rule = PLANE_RULES[name]
        points = certify_in_plane(in_ball, name)
        certified = [point for point in points if point.outcome is Outcome.CERTIFIED]
        assert len(certified) >= 5
        for point in certified:
            x = PLANE_INPUTS[point.index]
            assert point.prediction == ball_truth(x[None].astype(np.float64), rule.sigmas(x[None]))[0]
            cohen = float(gaussian_radius(top_lower(point), sigma=point.sigma))
            true = robust_radius(x, rule, ball_truth, most=cohen)
            assert 0 < point.radius <= true
            assert all(verdict.radius <= true for verdict in point.further)

    @pytest.mark.parametrize("name", ["neighbours, fast", "network, fast"])
    def test_control_the_radius_for_a_constant_level_is_too_large(self, name: str) -> None:
        """The same points and the same check, with Cohen's radius at each input's own level: it is caught."""
        rule = PLANE_RULES[name]
        caught = 0
        for point in certify_in_plane(in_ball, name):
            if point.outcome is Outcome.CERTIFIED:
                cohen = float(gaussian_radius(top_lower(point), sigma=point.sigma))
                caught += cohen > robust_radius(PLANE_INPUTS[point.index], rule, ball_truth, most=2 * cohen)
        assert caught >= 1

    @pytest.mark.parametrize("name", PLANE_RULES)
    def test_no_radius_is_larger_than_the_distance_to_a_plane(self, name: str) -> None:
        """The class of a linear classifier does not depend on σ, so its radius is the distance to the border."""
        linear = Linear(np.array([1.0, -0.5]), 0.6)
        ratios = []
        for point in certify_in_plane(linear, name):
            x = PLANE_INPUTS[point.index]
            exact = linear.exact_radius(x.astype(np.float64))
            if point.outcome is Outcome.CERTIFIED:
                assert point.prediction == int(linear(x[None])[0])
                ratios.append(point.radius / exact)
        assert len(ratios) >= 4
        assert max(ratios) <= 1.0
        # Slow rules lose little: where votes decide, not σ, the radius is close to the truth.
        assert max(ratios) > (0.6 if "slow" in name else 0.1)

    @pytest.mark.parametrize("seed", range(3))
    def test_rules_in_eight_dimensions(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        x = generator.random((12, SIZE), dtype=np.float32)
        for rule in (knn(x[:6], rate=0.5), network(lipschitz=0.3, seed=seed)):
            points = smooth(rule, batch=4000, seed=seed).certify(x, n0=100, n=5000)
            ratios = [p.radius / MODEL.exact_radius(x[p.index].astype(np.float64)) for p in points]
            assert max(ratios) <= 1.0
            assert max(ratios) > 0.3

    @pytest.mark.parametrize("name", ["network", "neighbours"])
    def test_forms_side_by_side(self, name: str) -> None:
        """What is known of them: Rényi's form is never above the tight one; a bound on the other class costs half α."""
        points = smooth(RULES[name], batch=4000).certify(
            INPUTS, n0=100, n=5000, certificate="envelope,renyi,envelope-two-class"
        )
        assert any(point.outcome is Outcome.CERTIFIED for point in points)
        for point in points:
            renyi, two = point.further
            assert renyi.radius <= point.radius * (1 + 1e-9)
            assert two.radius <= point.radius * (1 + 1e-9)
            assert two.radius >= 0.8 * point.radius or point.radius < 0.05

    def test_the_best_of_two_pays(self) -> None:
        rule = RULES["neighbours"]
        alone = smooth(rule).certify(INPUTS, n0=50, n=1000)
        best = smooth(rule).certify(INPUTS, n0=50, n=1000, certificate=["envelope", "envelope-two-class"], best_of=True)
        for one, other in zip(alone, best, strict=True):
            assert other.radius <= one.radius * (1 + 1e-9)
            assert one.bounds is None or one.bounds.alpha == pytest.approx(0.001)
            assert other.bounds is None or other.bounds.alpha == pytest.approx(0.001)


def top_lower(point: CertifiedPoint) -> float:
    assert point.bounds is not None
    return point.bounds.quantities[Quantity.TOP_LOWER].value


def test_a_wider_envelope_never_gives_more() -> None:
    """The same σ-function, the same votes, and less and less said about it.

    One input at a time: two of them would contradict the lowest rates.
    """
    radii: list[Sequence[float]] = []
    for rate in (0.0, 0.1, 0.3, 1.0, 3.0):
        rule = CallableRule(by_mean, envelope=SemiElastic(rate=rate))
        calls = [smooth(rule).certify(INPUTS[k : k + 1], indices=[k], n0=50, n=2000) for k in range(len(INPUTS))]
        radii.append([point.radius for points in calls for point in points])
    table = np.array(radii)
    assert (np.diff(table, axis=0) <= 1e-12).all()
    assert (table[-1] < table[0])[table[0] > 0].all()


def test_a_rate_of_zero_is_nearly_the_constant_level() -> None:
    """What is lost is the room for the error of σ, about 1e-6."""
    flat = CallableRule(lambda x: 0.3, envelope=SemiElastic(rate=0.0))
    constant = smooth(0.3).certify(INPUTS, n0=50, n=2000)
    for one, other in zip(smooth(flat).certify(INPUTS, n0=50, n=2000), constant, strict=True):
        assert one.tallies == other.tallies
        assert one.radius <= other.radius
        assert one.radius == pytest.approx(other.radius, rel=1e-5)
    assert isinstance(ConstantRule(0.3).envelope, ConstantSigma)

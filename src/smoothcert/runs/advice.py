"""Which certificate to use: from what was measured and what is wanted to a command, its cost and its alternatives.

Pure functions; `runs.pilot` measures. Times are estimates, radii are limits of the theorem and rounded down.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass

import numpy as np

from smoothcert.certificates import get_certificate
from smoothcert.errors import InputError
from smoothcert.questions.deciding import DecideMonitor, least_probabilities
from smoothcert.questions.monitor import Monitor
from smoothcert.questions.narrowing import PrecisionMonitor
from smoothcert.questions.sequential import list_looks
from smoothcert.records import FloatArray, Noise, Quantity, Smoothing
from smoothcert.sampling.model_checks import LEAST_ASKED, ONE_IN
from smoothcert.statistics import alpha_after_noise, clopper_pearson_lower, noise_price, one_sided_lower

USUAL_N, SELECTION_N, USUAL_INPUTS = 100_000, 100, 500
_SIZES = (100_000, 50_000, 20_000, 10_000, 5_000, 2_000, 1_000)
"""The numbers of samples per input that are considered to fit a budget."""
_USEFUL_N, _USEFUL_INPUTS = 10_000, 50
"""If the user names no number of inputs, fewer inputs are certified before n or their number falls below these."""
_TUNING_SHARE, _LEAST_TUNING, _MOST_TUNING = 0.03, 0.25, 4.0
_LITTLE_LOST = 0.05
"""A level whose certified accuracy is within this of the best one is acceptable."""
_COLLAPSED = 0.2
"""If the accuracy drops by this much at the chosen level, the model was hardly trained under noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Measured on this machine. check_seconds: of the user's own model for one input."""

    samples_per_second: float
    check_seconds: float
    loading_seconds: float
    batch: int
    workers: int

    def estimate_seconds(self, inputs: int, samples_per_input: float, *, cost: float = 1.0) -> float:
        """The time of a run: loading, measuring the batch size, sampling, and asking the model again."""
        copies = inputs * (samples_per_input + SELECTION_N)
        sampling = cost * copies / self.samples_per_second
        tuning = min(_MOST_TUNING, max(_LEAST_TUNING, _TUNING_SHARE * sampling))
        checks = min(copies, max(LEAST_ASKED, copies / ONE_IN))
        return self.loading_seconds + tuning + sampling + checks * self.check_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelVotes:
    """A few votes at one noise level. hits: for the class with most votes, by input. right: it is the expected one."""

    sigma: float
    votes: int
    hits: tuple[int, ...]
    right: tuple[bool, ...]

    @property
    def accuracy(self) -> float:
        return sum(self.right) / len(self.right)

    @property
    def certified_accuracy(self) -> float:
        """The share of inputs whose class is right and seems to have more than half of the probability."""
        return sum(right and share > 0.5 for right, share in zip(self.right, self.shares, strict=True)) / len(
            self.right
        )

    @property
    def shares(self) -> tuple[float, ...]:
        """Estimates of p_A, pulled a little towards one half: unanimous votes do not mean p_A = 1."""
        return tuple((hits + 0.5) / (self.votes + 1.0) for hits in self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What was found and measured.

    clean_accuracy: without noise; None without labels. cost_of_…: of a sample relative to a plain vote; None if that is
    not possible with this model or noise. has_other_backend: ONNX Runtime could compute the model.
    gives_scores: the model gives more than labels.
    """

    model: str
    backend: str
    num_classes: int
    input_shape: tuple[int, ...]
    data: str
    size: int
    is_labelled: bool
    grid: int | None
    why_float: str
    noise: Noise
    smoothing: Smoothing
    clean_accuracy: float | None
    votes: tuple[LevelVotes, ...]
    speed: Speed
    cost_of_pairs: float | None = None
    cost_of_gradients: float | None = None
    cost_of_first_layer: float | None = None
    has_other_backend: bool = False
    gives_scores: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user asked for. words: the options of model and data, repeated in every command. budget: in seconds."""

    words: tuple[str, ...]
    sigma: float | None = None
    radius: float | None = None
    budget: float | None = None
    inputs: int | None = None
    alpha: float = 0.001

    def __post_init__(self) -> None:
        for name, value in (("--budget", self.budget), ("--radius", self.radius)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} {value:g} must be a positive finite number")
        if self.inputs is not None and self.inputs < 1:
            raise InputError(f"--inputs {self.inputs} must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to sample. decide, precision: stop early. options: further words of the command."""

    sigma: float
    inputs: int
    n: int = USUAL_N
    decide: float | None = None
    precision: float | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A way to certify. seconds: estimated; None if it was not measured. largest_radius: what n samples can prove."""

    title: str
    command: str | None
    seconds: float | None
    largest_radius: float | None
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommended choice first, then what else there is, and what the user should know."""

    plan: Plan
    choice: Choice
    alternatives: tuple[Choice, ...]
    notes: tuple[str, ...]
    certified_share: float | None
    samples_per_input: float


def parse_seconds(text: str) -> float:
    """A duration such as 90, 90s, 30m or 2h, in seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError as error:
        raise InputError(f"--budget {text!r} is invalid: expected a time such as 90s, 30m or 2h") from error
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"--budget {text} must be a positive time such as 90s, 30m or 2h")
    return seconds


def find_largest_radius(n: int, *, sigma: float, alpha: float, smoothing: Smoothing) -> float:
    """The radius when all n votes agree: no input can get more. Rounded down."""
    left = alpha_after_noise(alpha, noise_price(smoothing, draws=n, sigma=sigma))
    return _find_radius(clopper_pearson_lower([n], [n], alpha=left), sigma=sigma, smoothing=smoothing)


def choose_level(situation: Situation, wishes: Wishes) -> LevelVotes:
    """The given level; else the one that certifies the radius for most inputs; else the largest that costs little.

    Ties go to the larger level, which can certify more.
    """
    if wishes.sigma is not None or wishes.radius is None:
        best = max(votes.certified_accuracy for votes in situation.votes)
        close = [one for one in situation.votes if one.certified_accuracy >= best - _LITTLE_LOST]
        return max(close, key=lambda one: one.sigma)
    radius = wishes.radius
    return max(
        situation.votes,
        key=lambda one: (estimate_share(one, radius, situation.smoothing), one.certified_accuracy, one.sigma),
    )


def estimate_share(votes: LevelVotes, radius: float, smoothing: Smoothing) -> float:
    """The share of inputs whose class is right and whose radius, at the estimated p_A, reaches this one."""
    p0 = _least_probability(votes.sigma, radius, smoothing)
    reached = [right and share >= p0 for right, share in zip(votes.right, votes.shares, strict=True)]
    return sum(reached) / len(reached)


def _least_probability(sigma: float, radius: float, smoothing: Smoothing) -> float:
    certificate = get_certificate(smoothing.noise.usual_certificate(constant_sigma=True))
    found = least_probabilities(certificate, (radius,), sigmas=np.array([sigma]), smoothing=smoothing)
    return float(np.nan_to_num(found[0, 0], nan=1.0))


def estimate_samples(plan: Plan, votes: LevelVotes, *, alpha: float, smoothing: Smoothing) -> float:
    """The mean number of samples per input until the question of the plan is answered.

    Sampling is simulated with the estimated p_A of the inputs of the pilot.
    """
    if plan.decide is None and plan.precision is None:
        return float(plan.n)
    shares = np.array(votes.shares)
    sigmas = np.full(shares.shape, plan.sigma)
    certificate = get_certificate(smoothing.noise.usual_certificate(constant_sigma=True))
    monitor: Monitor
    if plan.decide is not None:
        p0 = least_probabilities(certificate, (plan.decide,), sigmas=sigmas, smoothing=smoothing)
        monitor = DecideMonitor(p0, (plan.decide,), n=plan.n, alpha=alpha)
    else:
        assert plan.precision is not None
        monitor = PrecisionMonitor(
            certificate, plan.precision, sigmas=sigmas, smoothing=smoothing, n=plan.n, alpha=alpha
        )
    draw = np.random.default_rng(0)
    hits, drawn, before = np.zeros(shares.shape, dtype=np.int64), np.zeros(shares.shape, dtype=np.int64), 0
    for look in list_looks(plan.n):
        rows = np.flatnonzero(monitor.open)
        if not rows.size:
            break
        hits[rows] += draw.binomial(look - before, shares[rows])
        drawn[rows] = before = look
        monitor.look(rows, hits[rows], drawn[rows])
    return float(drawn.mean())


def list_sizes(situation: Situation, wishes: Wishes) -> list[tuple[int, int]]:
    """Pairs (inputs, n) in the order of preference.

    If the user names no number of inputs, n stays useful and fewer inputs are certified; else n falls first.
    """
    wanted = min(situation.size, wishes.inputs or USUAL_INPUTS)
    least = _SIZES[-1] if wishes.inputs is not None else _USEFUL_N
    fewer = [count for count in (400, 300, 200, 100, _USEFUL_INPUTS) if count < wanted]
    pairs = [(wanted, n) for n in _SIZES if n >= least]
    pairs += [(count, least) for count in fewer]
    few = fewer[-1] if fewer else wanted
    pairs += [(few, n) for n in _SIZES if n < least]
    return pairs + [(count, _SIZES[-1]) for count in (20, 10, 5, 2, 1) if count < few]


def make_plan(situation: Situation, wishes: Wishes, votes: LevelVotes) -> Plan:
    """The first plan that fits the budget, or the usual one without a budget."""
    plans: list[Plan] = []
    for inputs, n in list_sizes(situation, wishes):
        decide = wishes.radius if _can_decide(n, votes.sigma, situation, wishes) else None
        if wishes.radius is None or decide is not None or not plans:
            plans.append(Plan(sigma=votes.sigma, inputs=inputs, n=n, decide=decide))
    if wishes.budget is None:
        return plans[0]
    for plan in plans:
        if time_plan(plan, situation, wishes, votes) <= wishes.budget:
            return plan
    least = time_plan(plans[-1], situation, wishes, votes)
    raise InputError(
        f"--budget {format_seconds(wishes.budget)} is too short: one input with n={plans[-1].n} takes about "
        f"{format_seconds(least)} on this machine, with loading and the checks of the model"
    )


def _can_decide(n: int, sigma: float, situation: Situation, wishes: Wishes) -> bool:
    """Whether unanimous votes reach the radius. The betting test needs a little more than a fixed n."""
    if wishes.radius is None:
        return False
    limit = find_largest_radius(n // 2, sigma=sigma, alpha=wishes.alpha, smoothing=situation.smoothing)
    return limit >= wishes.radius


def time_plan(plan: Plan, situation: Situation, wishes: Wishes, votes: LevelVotes, *, cost: float = 1.0) -> float:
    """The estimated seconds of a plan. cost: of a sample relative to a plain vote."""
    samples = estimate_samples(plan, votes, alpha=wishes.alpha, smoothing=situation.smoothing)
    return situation.speed.estimate_seconds(plan.inputs, samples, cost=cost)


def write_command(plan: Plan, situation: Situation, wishes: Wishes) -> str:
    """The complete command of a plan."""
    skip = max(1, situation.size // plan.inputs)
    words = ["smoothcert", "certify", *wishes.words]
    if situation.noise is not Noise.GAUSSIAN:
        words += ["--noise", str(situation.noise)]
    words += ["--sigma", f"{plan.sigma:g}"]
    if skip > 1:
        words += ["--skip", str(skip)]
    if -(-situation.size // skip) > plan.inputs:
        words += ["--max", str(plan.inputs)]
    words += ["--n", str(plan.n)]
    if wishes.alpha != Wishes.__dataclass_fields__["alpha"].default:
        words += ["--alpha", f"{wishes.alpha:g}"]
    if plan.decide is not None:
        words += ["--decide", f"{plan.decide:g}"]
    if plan.precision is not None:
        words += ["--precision", f"{plan.precision:g}"]
    return shlex.join([*words, *plan.options])


def describe_choice(
    title: str,
    plan: Plan,
    situation: Situation,
    wishes: Wishes,
    votes: LevelVotes,
    *,
    remark: str,
    cost: float = 1.0,
    is_limited_by_votes: bool = True,
) -> Choice:
    """A plan with its command, time and limit. is_limited_by_votes: the limit is that of the usual certificate."""
    return Choice(
        title=title,
        command=write_command(plan, situation, wishes),
        seconds=time_plan(plan, situation, wishes, votes, cost=cost),
        largest_radius=_limit_radius(plan, situation, wishes) if is_limited_by_votes else None,
        remark=remark,
    )


def _limit_radius(plan: Plan, situation: Situation, wishes: Wishes) -> float:
    """The largest radius that an input can get: by a question with early stopping it is less than by a fixed n."""
    if plan.decide is not None:
        return plan.decide
    smoothing = situation.smoothing
    if plan.precision is None:
        return find_largest_radius(plan.n, sigma=plan.sigma, alpha=wishes.alpha, smoothing=smoothing)
    left = alpha_after_noise(wishes.alpha, noise_price(smoothing, draws=plan.n, sigma=plan.sigma))
    return _find_radius(one_sided_lower([plan.n], [plan.n], alpha=left), sigma=plan.sigma, smoothing=smoothing)


def _find_radius(lower: FloatArray, *, sigma: float, smoothing: Smoothing) -> float:
    certificate = get_certificate(smoothing.noise.usual_certificate(constant_sigma=True))
    return float(certificate.radius({Quantity.TOP_LOWER: lower}, sigma=sigma, smoothing=smoothing)[0])


def is_collapsed(situation: Situation, votes: LevelVotes) -> bool:
    """Whether the model loses its accuracy under the noise: it was hardly trained with it."""
    clean = 1.0 if situation.clean_accuracy is None else situation.clean_accuracy
    return votes.certified_accuracy < clean - _COLLAPSED


def format_seconds(seconds: float) -> str:
    """A time for people, to two digits."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size or (seconds >= size and unit != "min"):
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds)} s"


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def median_share(votes: LevelVotes) -> float:
    """The median of the estimated p_A."""
    return float(np.median(votes.shares))

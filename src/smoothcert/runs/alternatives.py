"""What else there is besides the recommended command: what each alternative costs, and what it gains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from smoothcert.certificates import dipole_radius, gaussian_radius, second_order_radius
from smoothcert.noise import evaluations_of
from smoothcert.numerics.rounding import format_down
from smoothcert.records import Noise
from smoothcert.runs.advice import (
    USUAL_N,
    Advice,
    Choice,
    LevelVotes,
    Plan,
    Situation,
    Wishes,
    choose_level,
    describe_choice,
    estimate_samples,
    estimate_share,
    find_largest_radius,
    format_seconds,
    is_collapsed,
    make_plan,
    median_share,
    write_command,
)
from smoothcert.sigma.sigma_planning import USUAL_SHARE, fastest_rate

_OTHER_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_ASCENT_EVALUATIONS = 3 * 40 * 32
"""Of the default search for sigma: 40 steps with 32 draws; a step forward and backward costs about three passes."""
_PRECISION_SHARE = 0.2


def advise(situation: Situation, wishes: Wishes) -> Advice:
    """The command for this model, data and machine, with its alternatives."""
    votes = choose_level(situation, wishes)
    plan = make_plan(situation, wishes, votes)
    maker = _Alternatives(situation, wishes, votes, plan)
    return Advice(
        plan=plan,
        choice=maker.recommend(),
        alternatives=tuple(maker.list_all()),
        notes=tuple(maker.list_notes()),
        certified_share=None if wishes.radius is None else estimate_share(votes, wishes.radius, situation.smoothing),
        samples_per_input=estimate_samples(plan, votes, alpha=wishes.alpha, smoothing=situation.smoothing),
    )


class _Alternatives:
    def __init__(self, situation: Situation, wishes: Wishes, votes: LevelVotes, plan: Plan) -> None:
        self._situation, self._wishes, self._votes, self._plan = situation, wishes, votes, plan
        self._fixed = replace(plan, decide=None)

    def _describe(self, title: str, plan: Plan, *, remark: str, cost: float = 1.0, usual: bool = True) -> Choice:
        return describe_choice(
            title,
            plan,
            self._situation,
            self._wishes,
            self._votes,
            remark=remark,
            cost=cost,
            is_limited_by_votes=usual,
        )

    def recommend(self) -> Choice:
        name = "uniform-l1" if self._situation.noise is Noise.UNIFORM else "gaussian"
        if self._plan.decide is None:
            remark = "The usual certificate with a fixed number of samples, and the largest radii."
            return self._describe(f"{name}, fixed n", self._plan, remark=remark)
        remark = f"Says for each input whether its radius is at least {self._plan.decide:g}, and nothing beyond that."
        return self._describe(f"{name}, sample until decided", self._plan, remark=remark)

    def list_all(self) -> Iterator[Choice]:
        """Those that exist for this noise and model."""
        yield from self._list_questions()
        yield from self._list_sizes()
        yield from self._list_two_class()
        if self._situation.noise is Noise.GAUSSIAN:
            yield from self._list_shapes()
            yield from self._list_first_layer()
            yield from self._list_varying()

    def _list_questions(self) -> Iterator[Choice]:
        if self._plan.decide is not None:
            remark = "Gives the radius of each input, not only a yes or no."
            yield self._describe("fixed n", self._fixed, remark=remark)
        width = float(f"{_PRECISION_SHARE * self._plan.sigma:.1g}")
        yield self._describe(
            f"--precision {width:g}",
            replace(self._fixed, precision=width),
            remark=f"Stops when the radius is known to within {width:g}; inputs with clear votes still take many "
            "samples.",
        )

    def _list_sizes(self) -> Iterator[Choice]:
        for n in _OTHER_SIZES:
            if n != self._fixed.n:
                remark = "Smaller radii for less time." if n < self._fixed.n else "Larger radii for more time."
                yield self._describe(f"--n {n}", replace(self._fixed, n=n), remark=remark)

    def _list_two_class(self) -> Iterator[Choice]:
        if self._situation.num_classes < 3:
            return
        name = "uniform-l1-two-class" if self._situation.noise is Noise.UNIFORM else "gaussian-two-class"
        yield self._with_certificate(
            name,
            "The same samples. Bounds the second class separately, with half of alpha: larger radii where the votes "
            "against the class are split among several classes, slightly smaller ones elsewhere.",
        )

    def _with_certificate(self, name: str, remark: str, *, cost: float = 1.0) -> Choice:
        plan = replace(self._fixed, options=("--certificate", name))
        return self._describe(f"--certificate {name}", plan, remark=remark, cost=cost, usual=False)

    def _list_shapes(self) -> Iterator[Choice]:
        p = median_share(self._votes)
        if p <= 0.5:
            return
        first = float(gaussian_radius(p, sigma=1.0))
        limits = {
            "dipole": (float(dipole_radius(p, 0.0, sigma=1.0)), self._situation.cost_of_pairs),
            "second-order": (float(second_order_radius(p, 0.0, sigma=1.0)), self._situation.cost_of_gradients),
        }
        uses = {"dipole": "each noise at x+ε and x-ε", "second-order": "the noise at which the votes were cast"}
        for name, (best, cost) in limits.items():
            if cost is not None:
                yield self._with_certificate(
                    name,
                    f"Uses {uses[name]}; {cost:.2g} times the time per sample (measured). At the median p_A of "
                    f"{p:.3f} it gains at most {100 * max(0.0, best / first - 1):.0f} %, and only if the votes against "
                    "the class come from opposite sides.",
                    cost=cost,
                )

    def _list_first_layer(self) -> Iterator[Choice]:
        cost = self._situation.cost_of_first_layer
        if cost is None or cost >= 1.0:
            return
        exact = " Noise is then in float32: exact steps, and soundness in floating point, are given up."
        yield self._describe(
            "--noise-at first-layer",
            replace(self._plan, options=("--noise-at", "first-layer")),
            remark=f"The same certificate, {1 / cost:.2g} times as fast (measured)."
            + (exact if self._situation.grid is not None else ""),
            cost=cost,
        )

    def _list_varying(self) -> Iterator[Choice]:
        yield self._describe_envelope()
        if not self._situation.gives_scores:
            return
        share = _ASCENT_EVALUATIONS / self._fixed.n
        memory = ("--sigma-rule", "optimised", "--memory", "memory.db")
        command = write_command(replace(self._fixed, options=memory), self._situation, self._wishes)
        fixed = self._describe("", replace(self._fixed, n=self._fixed.n + _ASCENT_EVALUATIONS), remark="")
        yield Choice(
            title="--sigma-rule optimised --memory",
            command=command,
            seconds=fixed.seconds,
            largest_radius=None,
            remark=f"Searches the best sigma of each input ({share:.0%} more evaluations, an estimate). Radii "
            "hold only while the memory is kept, and depend on the order of the "
            "inputs.",
        )

    def _describe_envelope(self) -> Choice:
        p, sigma = median_share(self._votes), self._plan.sigma
        remark = "A sigma that varies with the input by a rule (`smoothcert sigma fit` or `sigma train`)."
        if p > 0.5:
            radius = float(gaussian_radius(p, sigma=sigma))
            dimension = math.prod(self._situation.input_shape)
            rate = fastest_rate(dimension=dimension, sigma=sigma, p_a=p, radius=USUAL_SHARE * radius)
            change = math.expm1(rate * radius)
            remark += (
                f" To keep {USUAL_SHARE:.0%} of the radius at the median p_A, sigma may change by {_percent(change)} "
                f"over that distance in dimension {dimension}" + (": it rarely gains." if change < 0.1 else ".")
            )
        return Choice(
            title="--sigma-rule RULE (envelope)",
            command=None,
            seconds=self._describe("", self._fixed, remark="").seconds,
            largest_radius=None,
            remark=remark,
        )

    def list_notes(self) -> Iterator[str]:
        yield from self._list_warnings()
        situation = self._situation
        if situation.noise is Noise.UNIFORM:
            yield (
                "Left out: dipole, second-order, envelope, a memory with optimised sigma and first-layer noise are for "
                "Gaussian noise."
            )
            if situation.grid is not None:
                evaluations = evaluations_of(self._plan.sigma, levels=situation.grid)
                yield (
                    f"Not estimated: --noise splitting --sigma {self._plan.sigma:g} makes {evaluations} evaluations of "
                    "each input instead of drawing samples, and its l1 radii are certain. Train the model under it."
                )
        else:
            yield "Left out: uniform-l1 and splitting-l1 certify the l1 norm; use --norm l1 for them."
        if situation.cost_of_first_layer is None and situation.noise is Noise.GAUSSIAN:
            yield (
                "Left out: --noise-at first-layer needs a torch network whose first layer is linear and narrower than "
                "the input."
            )
        if situation.has_other_backend:
            yield "Not measured: --backend fastest compares torch and ONNX Runtime when the run starts."
        if self._wishes.radius is None:
            yield "With --radius R, sampling until decided is considered; it often takes far fewer samples."

    def _list_warnings(self) -> Iterator[str]:
        situation, wishes, plan = self._situation, self._wishes, self._plan
        if is_collapsed(situation, self._votes):
            yield (
                f"Warning: at sigma {plan.sigma:g} only {self._votes.certified_accuracy:.0%} of the inputs can be "
                "certified with the right class (estimate). The model was hardly trained under this noise. Train it "
                f"with noise first (`smoothcert train --sigma {plan.sigma:g}`), or use a smaller sigma."
            )
        if wishes.radius is not None and plan.decide is None:
            limit = find_largest_radius(plan.n, sigma=plan.sigma, alpha=wishes.alpha, smoothing=situation.smoothing)
            yield (
                f"Warning: a radius of {wishes.radius:g} is out of reach at sigma {plan.sigma:g} and n={plan.n}: no "
                f"input can get more than {format_down(limit, decimals=3)}. Use a larger sigma."
            )
        if wishes.budget is not None and plan.n < USUAL_N:
            smaller, usual = (
                find_largest_radius(n, sigma=plan.sigma, alpha=wishes.alpha, smoothing=situation.smoothing)
                for n in (plan.n, USUAL_N)
            )
            yield (
                f"The budget of {format_seconds(wishes.budget)} allows n={plan.n}: no radius exceeds "
                f"{format_down(smaller, decimals=3)}, against {format_down(usual, decimals=3)} at n={USUAL_N}."
            )


def _percent(share: float) -> str:
    return "several times" if share > 10 else f"{100 * share:.2g} %"

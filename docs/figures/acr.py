"""Draw two synthetic classifiers that the average certified radius ranks the wrong way round.

    python docs/figures/acr.py -o docs/images/acr-misleads.png

Nothing is sampled: the votes of every input are given, and the radii follow from them. "Steady" gets moderate margins
on nearly all inputs. "Specialised" gives up a quarter of the inputs and is nearly always right on the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from smoothcert.certificates import gaussian_radius
from smoothcert.records import FloatArray
from smoothcert.statistics import clopper_pearson_lower

SIGMA, SAMPLES, ALPHA, INPUTS = 0.5, 100_000, 0.001, 1000
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def list_probabilities() -> dict[str, FloatArray]:
    """p_A of every input under either classifier, in increasing order: the quantiles of Beta laws, (INPUTS,) each."""
    given_up = INPUTS // 4
    shares = (np.arange(INPUTS) + 0.5) / INPUTS
    easy = (np.arange(INPUTS - given_up) + 0.5) / (INPUTS - given_up)
    return {
        "steady": stats.beta(20, 1.5).ppf(shares),
        "specialised": np.concatenate([np.full(given_up, 0.4), stats.beta(60, 0.5).ppf(easy)]),
    }


def certify_probabilities(probabilities: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower bounds on p_A and radii, if every input gets its expected number of votes, rounded to a whole number."""
    votes = np.round(SAMPLES * probabilities).astype(np.int64)
    bounds = clopper_pearson_lower(votes, np.full(votes.shape, SAMPLES), alpha=ALPHA)
    return bounds, gaussian_radius(bounds, sigma=SIGMA)


def describe(name: str, bounds: FloatArray, radii: FloatArray) -> str:
    """ACR, certified accuracy at RADII, and quantiles of the bounds on p_A, as one line."""
    accuracy = " ".join(f"{(radii >= max(r, 1e-12)).mean():.3f}" for r in RADII)
    quantiles = " ".join(f"{q:.4f}" for q in np.quantile(bounds, QUANTILES))
    return f"{name:12} ACR {radii.mean():.3f} | certified {accuracy} | p_A {quantiles}"


def draw(results: dict[str, tuple[FloatArray, FloatArray]], path: Path) -> None:
    """Certified accuracy against the radius, and the sorted bounds on p_A."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    curves, probabilities = figure.subplots(1, 2)
    for name, (bounds, radii) in results.items():
        curves.step(
            np.append(0.0, np.sort(radii)), np.linspace(1.0, 0.0, INPUTS + 1), where="pre", label=_label(name, radii)
        )
        probabilities.plot(np.linspace(0.0, 1.0, INPUTS), np.sort(bounds), label=name)
    curves.set(xlabel="radius", ylabel="certified accuracy", ylim=(0, 1.02), xlim=(0, 2))
    curves.legend()
    probabilities.set(xlabel="share of the inputs", ylabel="lower bound on $p_A$", ylim=(0.35, 1.02))
    probabilities.axhline(0.5, color="0.7", linewidth=0.8)
    figure.savefig(path, dpi=150)


def _label(name: str, radii: FloatArray) -> str:
    return f"{name}: ACR {radii.mean():.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/images/acr-misleads.png"))
    out = parser.parse_args().out
    results = {name: certify_probabilities(p) for name, p in list_probabilities().items()}
    for name, (bounds, radii) in results.items():
        print(describe(name, bounds, radii))
    draw(results, out)


if __name__ == "__main__":
    main()

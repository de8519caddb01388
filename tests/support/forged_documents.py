"""Edits of certificate documents as a careful forger makes them: in every place at once, and then sealed anew."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smoothcert_verify.statements import statement_of
from verified_runs import redigested

Document = dict[str, Any]
Edit = Callable[[Document], None]


@dataclass(frozen=True, slots=True)
class Forgery:
    """An edit, what refuses it, and what a replay says of it.

    reason: of the refusal without a replay, a regular expression; "" where only a replay finds it. replayed: of the
    refusal with one; "" where it was refused before.
    """

    edit: Edit
    reason: str = ""
    replayed: str = ""


def forged(document: Mapping[str, Any], *edits: Edit) -> Document:
    """A copy with these edits, a statement that says what it says now, and digests that fit."""
    copied: Document = json.loads(json.dumps(document))
    for edit in edits:
        edit(copied)
    try:
        copied["statement"] = statement_of(copied)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        copied["statement"] = "It is robust."
    return redigested(copied)


def everywhere(name: str, value: Any) -> Edit:
    """A setting of the run, wherever it stands: parameters, job, and what the document says of the smoothing."""

    def edit(document: Document) -> None:
        run = document["run"]
        run["parameters"][name] = value
        job = run["extra"].get("job", {})
        if name in job:
            job[name] = value

    return edit


def in_verdict(**values: Any) -> Edit:
    return lambda document: document["verdicts"][0].update(values)


def scaled(name: str, factor: float) -> Edit:
    """A number of the first verdict."""

    def edit(document: Document) -> None:
        document["verdicts"][0][name] *= factor

    return edit


def both(*edits: Edit) -> Edit:
    def edit(document: Document) -> None:
        for one in edits:
            one(document)

    return edit


def with_alpha(factor: float) -> Edit:
    """α of the run, of its split, and of every bound."""

    def edit(document: Document) -> None:
        run = document["run"]
        alpha = run["parameters"]["alpha"] * factor
        everywhere("alpha", alpha)(document)
        for shares in run["extra"]["alpha_split"].values():
            for proof in shares:
                shares[proof] *= factor
        for verdict in document["verdicts"]:
            bounds = verdict["bounds"]
            if bounds is None:
                continue
            tables = bounds["spent"].get("finite tables of the noise", 0.0)
            proofs = [proof for proof in bounds["spent"] if proof != "finite tables of the noise"]
            for proof in proofs:
                bounds["spent"][proof] = (alpha - tables) / len(proofs) * (1 - 2**-52)
            for bound in bounds["quantities"].values():
                bound["alpha"] = bounds["spent"][bound["method"]]

    return edit


def with_sigma(factor: float) -> Edit:
    """σ in every place, and radii that grow with it, as those of a theorem for one level do."""

    def edit(document: Document) -> None:
        sigma = document["smoothing"]["sigma"] * factor
        everywhere("sigma", sigma)(document)
        document["smoothing"] |= {"sigma": sigma, "envelope": {"kind": "constant", "sigma": sigma}}
        for tally in document["tallies"]:
            tally["sigma"] = sigma
        for verdict in document["verdicts"]:
            verdict["radius"] *= factor * (1 - 2**-40)

    return edit


def with_shape(*shape: int) -> Edit:
    def edit(document: Document) -> None:
        document["run"]["data"]["input_shape"] = list(shape)
        dimension = 1
        for size in shape:
            dimension *= size
        document["smoothing"]["dimension"] = dimension

    return edit


def with_classes(count: int) -> Edit:
    def edit(document: Document) -> None:
        document["run"]["model"]["num_classes"] = document["smoothing"]["num_classes"] = count
        for tally in document["tallies"]:
            tally["num_classes"] = count

    return edit


def with_grid(levels: int | None) -> Edit:
    """Another grid, or none, in every place; the data is said to lie on it."""

    def edit(document: Document) -> None:
        run = document["run"]
        parameters, job = run["parameters"], run["extra"]["job"]
        document["smoothing"]["grid"] = levels
        kind = document["smoothing"]["noise"]
        if levels is None:
            parameters.pop("grid", None)
            parameters.pop("generator", None)
            parameters["noise"] = f"{kind} float32, not sound in floating point"
            job["noise"] = "float" if kind == "gaussian" else f"{kind}-float"
        else:
            parameters |= {
                "grid": levels,
                "generator": "chacha20",
                "noise": f"{kind} in exact steps of 1/{levels - 1}",
            }
            job["noise"] = kind
            run["data"]["levels"] = levels

    return edit


def with_tables(share: float) -> Edit:
    """What is paid for the tables of the noise, taken from the other shares; 0: nothing."""

    def edit(document: Document) -> None:
        alpha = document["run"]["parameters"]["alpha"]
        for verdict in document["verdicts"]:
            bounds = verdict["bounds"]
            if bounds is None:
                continue
            spent = bounds["spent"]
            spent.pop("finite tables of the noise", None)
            for proof in spent:
                spent[proof] = (alpha - share) / len(spent) * (1 - 2**-52)
            for bound in bounds["quantities"].values():
                bound["alpha"] = spent[bound["method"]]
            if share:
                spent["finite tables of the noise"] = share

    return edit


def with_slack_of_bounds(factor: float) -> Edit:
    """Bounds and radii a little smaller, so that they are safe whatever was rounded."""

    def edit(document: Document) -> None:
        for verdict in document["verdicts"]:
            verdict["radius"] *= factor
            for bound in (verdict["bounds"] or {"quantities": {}})["quantities"].values():
                bound["value"] *= 1 - (1 - factor) / 50

    return edit


def with_noise(kind: str) -> Edit:
    def edit(document: Document) -> None:
        run = document["run"]
        before = document["smoothing"]["noise"]
        document["smoothing"]["noise"] = kind
        run["parameters"]["noise"] = run["parameters"]["noise"].replace(before, kind)
        run["extra"]["job"]["noise"] = kind
        for verdict in document["verdicts"]:
            verdict["norm"] = {"gaussian": "l2", "uniform": "l1"}[kind]

    return edit


def with_certificate(name: str) -> Edit:
    """Another certificate in every place, with the same bounds."""

    def edit(document: Document) -> None:
        everywhere("certificate", name)(document)
        split = document["run"]["extra"]["alpha_split"]
        document["run"]["extra"]["alpha_split"] = {name: next(iter(split.values()), {})}
        document["verdicts"][0]["certificate"] = name

    return edit


def in_tallies(stage: str, **values: Any) -> Edit:
    def edit(document: Document) -> None:
        for tally in document["tallies"]:
            if tally["stage"] == stage:
                tally.update(values)

    return edit


def moved_votes(stage: str, count: int) -> Edit:
    """Votes for other classes, given to the class with most of them; a negative count takes them away."""

    def edit(document: Document) -> None:
        label = str(document["verdicts"][0]["bounds"]["label"])
        for tally in document["tallies"]:
            if tally["stage"] != stage:
                continue
            votes = tally["counts"]["votes"]
            other = next((name for name in votes if name != label), "0" if label != "0" else "1")
            if votes.get(label, 0) >= -count and votes.get(other, 0) >= count:
                votes[label] = votes.get(label, 0) + count
                votes[other] = votes.get(other, 0) - count
                tally["counts"]["votes"] = {name: votes[name] for name in sorted(votes) if votes[name]}
                return

    return edit


def at(*path: str | int, to: Any) -> Edit:
    """One value, in one place."""

    def edit(document: Document) -> None:
        holder: Any = document
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = to

    return edit


def without(*path: str | int) -> Edit:
    def edit(document: Document) -> None:
        holder: Any = document
        for key in path[:-1]:
            holder = holder[key]
        del holder[path[-1]]

    return edit

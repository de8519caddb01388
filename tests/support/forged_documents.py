"""Edits of certificate documents as a careful forger makes them: in every place at once, and then sealed anew."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from verified_runs import redigested

Document = dict[str, Any]
Edit = Callable[[Document], None]


@dataclass(frozen=True, slots=True)
class Forgery:
    """An edit, what refuses it, and what a replay says of it.

    reason: the finding without a replay, a regular expression for its code and the field it names; "" if only a replay
    finds it. replayed: of a replay; "" if it was refused before.
    """

    edit: Edit
    reason: str = ""
    replayed: str = ""


def forged(document: Mapping[str, Any], *edits: Edit) -> Document:
    """A copy with these edits, and digests that fit."""
    copied: Document = json.loads(json.dumps(document))
    for edit in edits:
        edit(copied)
    return redigested(copied)


def in_spec(*path: str, to: Any) -> Edit:
    """A setting of the run."""
    return at("run", "spec", *path, to=to)


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
        alpha = run["spec"]["alpha"] = run["spec"]["alpha"] * factor
        for shares in run["alpha_split"].values():
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
        document["run"]["spec"]["sigma"]["level"] = sigma
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
        generator = "philox4x32-10" if levels is None else "chacha20"
        for noise in (document["smoothing"]["noise"], run["spec"]["noise"]):
            noise |= {"grid": levels, "generator": generator}
        if levels is not None:
            run["data"]["levels"] = levels

    return edit


def with_tables(share: float) -> Edit:
    """What is paid for the tables of the noise, taken from the other shares; 0: nothing."""

    def edit(document: Document) -> None:
        alpha = document["run"]["spec"]["alpha"]
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
        for noise in (document["smoothing"]["noise"], document["run"]["spec"]["noise"]):
            noise["kind"] = kind
        for verdict in document["verdicts"]:
            verdict["norm"] = {"gaussian": "l2", "uniform": "l1"}[kind]

    return edit


def with_certificate(name: str) -> Edit:
    """Another certificate in every place, with the same bounds."""

    def edit(document: Document) -> None:
        run = document["run"]
        run["spec"]["certificates"] = [name]
        run["alpha_split"] = {name: next(iter(run["alpha_split"].values()), {})}
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

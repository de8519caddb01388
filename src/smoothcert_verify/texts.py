"""Sentences for findings and verified certificates. Codes and values are the data; sentences may be reworded."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from smoothcert_verify.feature_scales import describe_distance
from smoothcert_verify.findings import Finding

TEMPLATES: Mapping[str, str] = {
    # Any content
    "cannot-be-checked": "this cannot be checked: {error}",
    "differs": "{field} is {value!r}, expected {expected!r}",
    "digest-differs": "{field} is not the digest of the content: something was changed after it was written",
    "invalid-value": "{field} is {value!r}, expected {expected}",
    "missing-field": "{field} is missing",
    "not-a-number": "this is not JSON: {value} is not a number",
    "not-json": "this is not JSON: {error}",
    "number-too-large": "the number {value} is too large",
    "repeated-name": "an object has the same name twice",
    "unknown-field": "{field} is not a field of this format",
    "unknown-format": "the format is not {expected!r}",
    "unknown-version": "the version is {value!r}; only version {expected} can be verified: export the run again",
    # The manifest
    "certificates-of-a-prediction": "a prediction has a fixed n, no n0 and no certificates; this manifest differs",
    "changed-by-recertify": "{field} is {value!r}; the run it was recertified from has {expected!r}",
    "data-off-the-grid": "the noise is on a grid of {grid} levels, on which data of {levels} levels does not lie",
    "not-with-a-scale": "{field} is {value!r}; where features have a scale, only {expected!r} is possible",
    "no-certificates": "a run that certifies needs certificates and n0; it has {certificates!r} and {n0}",
    "recertified-too-often": "the run was recertified more than {most} times",
    "recertified-predictions": "a run was recertified from predictions",
    "number-of-evaluations": "sigma {sigma!r} on a grid of {grid} levels makes {evaluations} evaluations, not {n}",
    "question-of-other-noise": "the question {question!r} cannot be asked about {noise} noise",
    "rule-for-another-shape": "the rule for sigma is for inputs of shape {made_for!r}; these have {shape!r}",
    "sigma-stated-twice": "sigma is {kind}, and the manifest does not describe it accordingly",
    "source-of-recertified": "only a recertified run names the run it was made from, and it must; the task is {task}",
    "uneven-split": "the split of alpha for {certificate} is {shares!r}, not alpha {alpha!r} in equal shares",
    "unknown-rule": "the rule for sigma is of the kind {kind!r}, which is not known: nothing about it is proved",
    "unknown-schema": "the manifest has format {value!r}; only format {expected} can be verified: certify again",
    # Tallies
    "evaluations-in-parts": "the evaluations of {stage} are {parts} tallies, and they are counted in one",
    "gap-in-samples": "the samples of {stage} have a gap or an overlap at {at}",
    "impossible-tally": "a tally cannot have draws {start} to {stop} at sigma {sigma!r}",
    "invalid-groups": "{classes} classes and invalid answers cannot be put into the groups {groups!r}",
    "invalid-histogram": "a histogram of scores is not one of {valid} valid answers",
    "length-of-sums": "the sums of a tally are {size} numbers, expected {expected}",
    "no-samples": "there are no samples of {stage}",
    "not-plain-votes": "the samples of {stage} are {kind}, not plain votes",
    "odd-gradient-draws": "gradients are counted over pairs of draws, not {start} to {stop}",
    "pairs-do-not-add-up": "{draws} pairs must have as many first votes and as many second votes",
    "sample-count": "{stage} has {drawn} samples, expected {least} to {most}",
    "sums-of-kind": "a tally of {kind} has sums exactly if its kind needs them",
    "sums-too-large": "the sums of the noise are larger than any noise adds up to",
    "tallies-differ": "the tallies of {stage} differ in {what}",
    "too-many-differing-pairs": "a class has more pairs with one of two different votes than there are such pairs",
    "unexpected-stage": "a {task} run has no samples of the stage {stage}",
    "unknown-class": "there are votes for class {label!r} of {classes}",
    "unreadable-sums": "the sums of a tally cannot be unpacked: {error}",
    "votes-do-not-add-up": "{draws} draws cannot give {votes} votes and {invalid} invalid answers",
    # Verdicts
    "alpha-not-spent": "{total:r} is spent in all, less than alpha {alpha:r}",
    "alpha-on-other-proofs": "alpha is spent on {spent!r}, expected {expected!r}",
    "alpha-overspent": "{total:r} is spent in all, more than alpha {alpha:r}",
    "alpha-too-small": "alpha {alpha:g} is too small for a joint region",
    "best-not-first": "the best verdict must come first; the radii are {radii!r}",
    "bound-not-proved": "{quantity} {value:r} is not proved by {count} of {trials} at alpha {alpha:g}",
    "bound-too-loose": "{quantity} {value:r} is looser than {count} of {trials} at alpha {alpha:g} allow",
    "bounds-not-proved": "{first} {value:r} and {second} {other:r} are not proved by the tallies at alpha {alpha:g}",
    "bounds-without-samples": "there are bounds, and no samples that prove them",
    "certificate-of-other-noise": "the certificate is about {noise} noise and {norm}, not {kind} noise",
    "certified-without-promise": "the run has a memory, and this input is certified without a promise of it",
    "chi-square-not-evaluated": "the chi-square law with {dimension} degrees of freedom could not be evaluated",
    "constant-sigma-only": "the certificate holds for a constant sigma only",
    "envelope-is-a-function": "not proved: the envelope of sigma is a Python function of the user, so the radius was "
    "only compared with that of a constant sigma",
    "envelope-without-ends": "the envelope of sigma {sigma!r} leaves nothing above 0, or no end, at {distance!r}",
    "impossible-outcome": "the outcome cannot be {outcome}: most votes are for class {best}",
    "impossible-verdict": "a verdict cannot be {outcome} with radius {radius!r} and class {prediction}",
    "index-not-requested": "input {index} is not one of those that the run asks for",
    "inherited-with-claim": "an inherited answer claims nothing; this one asks for class {label}, radius {radius!r}",
    "more-than-a-prediction": "a prediction has one verdict, without certificate, bounds and radius",
    "no-bounds": "there are no bounds",
    "no-class-selected": "the outcome cannot be {outcome}: the selection votes settle on no class",
    "no-noise-tables": "{paid:r} is paid for noise tables, and float32 noise has none",
    "norm-not-proved": "{quantity} {value:r} is not proved by the sums of noise, which allow {needed!r}",
    "norm-too-loose": "{quantity} {value:r} is looser than the sums of noise allow",
    "not-every-evaluation": "evaluations {spans!r} were made, and every one of {evaluations!r} is needed",
    "not-significant": "{votes} votes for class {label} against {other} are not significant at alpha {alpha:g}",
    "not-the-selected-class": "the verdict {what} class {label}; the votes are for class {chosen}",
    "nothing-assumed-of-sigma": "sigma differs between inputs, and neither an envelope nor a memory makes that safe",
    "other-bounds": "the verdict bounds {bounds!r}; its theorem takes {expected!r}",
    "other-steps": "{value:r} steps are stated; the votes allow {steps}",
    "other-certificates": "the verdicts are by {certificates!r}; the run asks for {expected!r}",
    "prediction-with-claim": "a prediction claims no region, and this one was settled as {settlement}",
    "promise-of-class": "class {asked} was asked, and {label} is promised as {settlement}",
    "promise-of-more": "radius {radius!r} is promised as {settlement}, and {asked!r} was asked",
    "promise-without-memory": "there is a promise of a memory, and the run has none",
    "radius-not-asked": "radius {radius:r} is not one of those that were to be decided",
    "radius-not-certified": "the bounds do not certify the radius {radius:r}",
    "radius-too-small": "the bounds certify more than the radius {radius:r}",
    "radius-without-bounds": "there is a radius {radius:r}, and no bounds",
    "reason-differs": "the reason is {value!r}; the tallies give {expected!r}",
    "score-bound-not-proved": "{quantity} {value:r} is not proved by the scores at alpha {alpha:g}",
    "scores-of-another-class": "the scores were counted for class {counted}, not for class {label}",
    "shared-group": "the noise of class {label} was added up together with that of other classes",
    "sigma-beyond-grid": "sigma {sigma!r} is not possible on a grid of {grid} levels",
    "sigma-without-samples": "sigma is {sigma!r}; an input has a sigma exactly if samples were drawn around it",
    "too-many-coordinates": "{dimension} coordinates are more than the {most} for which this was proved",
    "too-many-scores": "{count} scores cannot be checked, expected 1 to {most}",
    "uneven-shares": "alpha is not split in equal shares: {shares!r}",
    "unknown-certificate": "this certificate is not known: nothing about it is proved",
    "unknown-proof": "alpha {alpha!r} cannot be spent on {proof!r}",
    "unpaid-noise-tables": "{paid:r} of alpha is paid for noise tables, which take {needed:.3g}",
    "wrong-kind-of-samples": "{proof} needs {needed}; there are {kind}",
    # Runs and directories
    "damaged-file": "{name} is damaged: {error}",
    "fewer-copies-drawn": "{drawn} noisy copies were drawn by the count of the run, and {samples} are stored",
    "impossible-model-checks": "the counts of how often the model was asked again are impossible",
    "invalid-inputs-file": "these are not the inputs of a run: {error}",
    "invalid-rule-file": "this is not a rule for sigma: {error}",
    "gap-in-tensors": "the tensors do not follow one another without a gap",
    "length-of-tensors": "the tensors take {expected} bytes, and the file has {length}",
    "manifest-seal-broken": "the manifest is not the one the run was started with: seal 0 is another digest",
    "missing-file": "there is no {name}",
    "missing-certificates": "{missing} of the {certificates} certificates of the index are missing, such as {name}",
    "missing-inputs": "{missing} of the {inputs} requested inputs are missing: unfinished, or removed",
    "missing-seals": "after seal {before} comes seal {position}: some were removed",
    "missing-tables": "the results have no table {tables}. Runs of earlier versions cannot be verified",
    "model-asked-too-rarely": "the model was asked again about {asked} of {drawn} noisy copies, less than a run asks",
    "no-first-seal": "the first seal, that of the manifest, is missing",
    "not-sealed": "this input is not sealed",
    "other-columns": "the table {table} of the results does not have the columns of a run",
    "rows-of-input": "there are {rows} rows in the table {table}",
    "not-as-indexed": "this is not the certificate that the index of the directory names",
    "not-in-index": "this file is not in the index of the directory",
    "same-input": "this is about the same input of the same run as {other}",
    "seal-broken": "the seal is broken: a row is not what was stored, or not in its place",
    "sealed-but-missing": "input {index!r} is sealed, and it is missing",
    "unfinished-export": "{found} of {certificates} certificates are there: the export was cut short; the same command "
    "continues it",
    "steeper-network": "the network has the Lipschitz constant {norm:.6g}, more than the stated {stated!r}",
    "stopped-run": "the run was stopped by a check of its model, and its results must not be used: {reason}",
    "stray-rows": "the table {table} has rows of input {index!r}, which is missing",
    "unknown-tensors": "there are tensors that do not belong to such a rule: {names!r}",
    "unnumbered-verdicts": "the verdicts are not numbered 0, 1, …",
    # Levels of several inputs
    "below-the-floor": "input {index} has sigma {sigma!r}, below the floor: impossible under the envelope {envelope!r}",
    "levels-excluded": "inputs {first} and {second} have sigma {sigma!r} and {other!r} at a distance of at most "
    "{distance:.6g}: impossible under the envelope {envelope!r} (and {more} more pairs)",
    "two-levels": "input {index} has sigma {sigma!r} here and {other!r} there, by the same rule",
    # Memories
    "another-classifier": "the memory is that of another classifier: {field} is {value!r}, the run has {expected!r}",
    "another-log": "the log up to position {position} is not the one in which the promise was made",
    "chain-broken": "the entry is another digest: the claim was changed, or does not follow the claim before it",
    "claim-of-another-input": "claim {position} is around another input",
    "missing-claims": "after claim {before} comes claim {position}: some are missing",
    "no-such-claim": "the log has no claim at position {position}",
    "no-such-memory": "there is no memory {digest} at this place, and a run claims from it",
    "not-in-region": "a ball of radius {radius!r} around the input is not inside the region of claim {position}",
    "other-head": "the log does not end as it should: its head counts {claims!r} claims, and the last one is {last}",
    "overruled-outside": "claim {position} was overruled, and its region lies in no earlier region of class {label}",
    "regions-meet": "the regions of claims {positions!r} meet, and their classes are {labels!r}",
    "shared-claim": "inputs {first} and {second} both state claim {position} as their own, which only equal inputs "
    "may; with --data this can be checked",
    # Runs whose noise level is chosen by a selector
    "attack-unchecked": "{name} was not checked: it is the record of an attack on a selected run",
    "claim-without-answer": "there is a claim, and {name} has no answer for this input",
    "found-elsewhere": "{field} is {value!r}, and {expected!r} was requested: only digests show if they are equal",
    "missing-part": "the part {name} is missing, and inputs are to be sampled in it",
    "no-claim": "there is no claim about this input",
    "other-levels": "levels number {value!r} were sampled; the votes of the selector choose {expected!r}",
    "repeated-claim": "there are {count} claims about this input",
    "unknown-part": "{name} is a run, and no part of this one",
    # Records of attacks
    "attack-on-other-answers": "this is a record of an attack on other answers or radii than those of this run",
    "fate-differs": "fate, answer and lead are {value!r}; the counts give {expected!r}",
    "line-seal-broken": "the seal of line {line} is broken: a line was changed, removed or inserted",
    "nothing-to-attack": "there was nothing to attack",
    "point-without-evidence": "a point is stored exactly if it contradicts a certificate or leaves one unsettled",
    "repeated-result": "this result is stored twice",
    "samples-of-no-look": "there are {samples} samples, which no look has",
    "too-far-away": "the distance is {distance!r}; no point farther than {limit!r} was searched",
    "votes-beside-memory": "a memory answered, and there are votes",
    # Replays
    "nothing-drawn": "nothing was drawn again: none of these inputs was sampled. --memory checks answers of a memory",
    "nothing-proved-again": "nothing was drawn again that proves what is stated about the inputs of the replay",
    "original-differs": "the model itself answers class {vote} where {counted} was counted, in {rows} rows asked alone",
    "other-answers": "the model is not the one of the run: of the fixed inputs, {difference}",
    "other-data": "the data is not that of the run: its {field} is {value!r}, expected {expected!r}",
    "other-model": "the model is not the one of the run: its {field} is {value!r}, expected {expected!r}",
    "other-sampling": "the run has sampling version {value!r}; only version {expected} can be drawn again",
    "other-sigma-by-rule": "sigma is {value!r} as stored, and {expected!r} by the rule",
    "other-sums": "samples {start} to {stop} of {stage} have other {what} than those stored",
    "other-votes": "samples {start} to {stop} of {stage} count {counted!r}, and {stored!r} is stored",
    "other-votes-kept": "the votes that recertify kept count {counted!r}, and others are stored",
    # Remarks
    "attack-not-repeated": "{name} was compared with the run; only repeating the attack shows its samples",
    "float-noise": "the noise is float32, which is not sound in floating point: the theorems are about real numbers",
    "levels-unmeasured": "distances between inputs were not measured, so the sigmas were only compared across the "
    "whole range of the inputs: give the data by --data",
    "model-not-asked": "the run stores no checks of the model against the counted votes, because it drew none itself",
    "no-index": "there is no {name}, so certificates may be missing without notice",
    "no-rule-file": "{name} is not in the run, so the rule for sigma was not checked",
    "promises-unchecked": "the promises of the memory were not looked up: give the memory by --memory",
    "replay-skipped": "no samples were drawn again, because what is stored is not consistent",
    "rounded-inputs": "inputs are rounded to a grid of {grid} levels: what is stated is about the rounded inputs",
    "scaled-norm": "radii are in the scaled {norm} norm: the change |x'_j - x_j| of each feature is divided by its "
    "scale s_j; s is {scale!r}",
    "several-classifiers": "these inputs belong to {count} different smoothed classifiers (another model, noise or "
    "sigma): a certificate of one says nothing of another",
    "sigma-from-tallies": "the rule for sigma is not a file of the run, so sigma was taken from the tallies",
}

_LONGEST = 80


class _Brief:
    """A value in a sentence, cut to a length that can be read."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return _shorten(self._value) if isinstance(self._value, str) else repr(self)

    def __repr__(self) -> str:
        try:
            value = float(self._value) if isinstance(self._value, Fraction) else self._value
            return _shorten(repr(value))
        except (ValueError, RecursionError, OverflowError):
            return "something too long to be shown"

    def __format__(self, spec: str) -> str:
        if spec == "r":  # a number in full
            return repr(float(self._value))
        return format(float(self._value), spec) if spec else str(self)


def _shorten(text: str) -> str:
    line = " ".join(text.split()) if "\n" in text else text
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def describe_finding(finding: Finding) -> str:
    """The sentence for a finding, after the place that it is about."""
    brief = {name: _Brief(value) for name, value in finding.values.items()}
    text = TEMPLATES[finding.code].format_map(brief)
    return f"{finding.where}: {text}" if finding.where else text


def describe_guarantee(document: Mapping[str, Any]) -> str:
    """What the first verdict of a verified document states."""
    verdict, promise = document["verdicts"][0], document["promise"]
    label, radius, norm, outcome = (verdict[name] for name in ("prediction", "radius", "norm", "outcome"))
    distance = describe_distance(norm, document["smoothing"]["noise"].get("scale"))
    index = f"input {document['input']['index']}"
    if outcome == "predicted":
        return f"{index}: class {label} is predicted; no radius is certified"
    if outcome != "certified":
        reason = verdict["reason"] or {}
        numbers = ", ".join(f"{name} {value}" for name, value in reason.items() if name != "code")
        return f"{index}: nothing is certified: {outcome}, {reason.get('code')}" + (f" ({numbers})" if numbers else "")
    voted = promise is None or promise["settlement"] in ("WHOLE", "CUT")
    alpha = float(sum(map(Fraction, verdict["bounds"]["spent"].values()))) if voted else None
    noise = document["smoothing"]["noise"]
    if promise is None and alpha == 0:
        certain = _describe_certainty(label, radius, distance, noise)
        return f"{index}: {certain}{_name_precision(document['run']['spec']['model'])}"
    if promise is None:
        text = (
            f"{index}: except with probability at most {alpha!r} over the sampling, the smoothed classifier answers "
            f"class {label} at every point closer than {radius!r} in {distance}"
        )
    else:
        text = (
            f"{index}: from position {promise['position']} of the memory {promise['memory'][:12]} on, and as long as "
            f"that memory is kept and consulted, the answer is class {label} within {radius!r} in {distance}"
        )
        mistaken = f"except with probability at most {alpha!r} over the sampling" if alpha else "for certain"
        text += (
            f"; {mistaken}, the classifier smoothed with the sigma of this input answers so too"
            if voted
            else "; an earlier claim promised it, in whose region this input lies"
        )
    return text + _name_precision(document["run"]["spec"]["model"]) + _warn_of_float(noise)


def _describe_certainty(label: int, radius: float, distance: str, noise: Mapping[str, Any]) -> str:
    """What is stated where every evaluation was made."""
    rounded = ", rounded to that grid" if noise.get("rounds") else ""
    return (
        f"for certain, the smoothed classifier answers class {label} at every input on the grid of {noise['grid']} "
        f"levels within {radius!r} in {distance} of this one{rounded}; every evaluation was made"
    )


def describe_selected_guarantee(document: Mapping[str, Any]) -> str:
    """The same for an input of a selected run."""
    verdict, selection = document["verdicts"][0], document["selection"]
    label, outcome = verdict["prediction"], verdict["outcome"]
    index = f"input {document['input']['index']}"
    if outcome == "predicted":
        return f"{index}: class {label} is predicted; no radius is certified"
    if outcome != "certified":
        return f"{index}: nothing is certified: {outcome}, {(verdict['reason'] or {}).get('code')}"
    return (
        f"{index}: except with probability at most {selection['alpha']!r} over the sampling, the classifier whose "
        f"noise level is chosen by the selector answers class {label} at every point closer than "
        f"{verdict['radius']!r} in {verdict['norm']} distance{_name_precision(selection['selector'])}"
        + _warn_of_float(selection["noise"])
    )


def _name_precision(model: Mapping[str, Any]) -> str:
    dtype = model.get("dtype")
    return "" if dtype is None else f"; the model is computed in {dtype}"


def _warn_of_float(noise: Mapping[str, Any]) -> str:
    return "; the noise is float32, which is not sound in floating point" if noise["grid"] is None else ""

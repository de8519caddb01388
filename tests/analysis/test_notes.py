"""Notes and remarks are codes with values, and every code has a sentence."""

from __future__ import annotations

import pytest

from smoothcert.analysis.notes import Note, NoteCode
from smoothcert.records import Remark, RemarkCode

_NOTES = {
    NoteCode.CONTRADICTION: {"indices": (1, 2), "probability": None},
    NoteCode.CLASSES_DIFFER: {"indices": (1,), "probability": 0.002, "reason": "sigma"},
    NoteCode.LEFT_OUT: {"inputs": 1500, "run": "A"},
    NoteCode.SETTING_DIFFERS: {"setting": "sigma", "a": (0.25, 0.25), "b": (0.25, 0.5)},
    NoteCode.MODELS_DIFFER: {},
    NoteCode.DATA_DIFFER: {},
    NoteCode.SETTINGS_UNKNOWN: {"settings": "alpha"},
    NoteCode.RADII_UNDECIDED: {"run": "a", "radii": "0.1, 0.2"},
    NoteCode.TEST_SET_BOUND: {"rho": 0.001, "method": "exact"},
    NoteCode.INPUTS_DIFFER: {},
    NoteCode.ACR_MISLEADS: {
        "winner": "B",
        "loser": "A",
        "acr_winner": 0.5,
        "acr_loser": 0.4,
        "radius": 0.1,
        "accuracy_winner": 0.7,
        "accuracy_loser": 0.8,
        "only_winner": 2,
        "only_loser": 12,
        "probability": 0.0065,
    },
}
_REMARKS = {
    RemarkCode.FLOAT_NOISE: {},
    RemarkCode.HALF_OF_THE_VOTES: {"certificates": ["gaussian"]},
    RemarkCode.ANSWERS_FROM_MEMORY: {"answers": 1, "inputs": 2},
    RemarkCode.REGIONS_OF_MEMORY: {"settlements": {"whole": 3, "cut": 1}},
    RemarkCode.SAMPLES_SPENT: {"total": 10, "inputs": 2, "mean": 5.0, "percent": 50.0, "limit": 10, "most": 7},
    RemarkCode.DECIDED_RADII: {"radii": [0.1, 0.25]},
    RemarkCode.UNFINISHED: {"done": 2, "expected": 7},
    RemarkCode.SEVERAL_CERTIFICATES: {"certificates": {"dipole": 5, "gaussian": 3}},
    RemarkCode.OTHER_NORM: {"norm": "l1"},
    RemarkCode.SCALED_NORM: {"norm": "l2", "scale": [0.1, 2.0]},
    RemarkCode.RANDOM_WEIGHTS: {},
    RemarkCode.EVERY_EVALUATION: {"n": 441, "steps": 255},
    RemarkCode.HALF_PRECISION: {"dtype": "bfloat16"},
}


@pytest.mark.parametrize("code", NoteCode)
def test_every_note_is_a_sentence(code: NoteCode) -> None:
    text = str(Note(code, _NOTES[code]))
    assert text.endswith(".")
    assert "{" not in text


@pytest.mark.parametrize("code", RemarkCode)
def test_every_remark_is_a_sentence_with_the_name_in_front(code: RemarkCode) -> None:
    text = str(Remark(code, "run", _REMARKS[code]))
    assert text.startswith("run: ")
    assert text.endswith(".")
    assert "{" not in text


def test_numbers_and_lists_in_sentences() -> None:
    assert str(Note(NoteCode.LEFT_OUT, _NOTES[NoteCode.LEFT_OUT])) == "Left out: 1,500 inputs only in A."
    differs = str(Note(NoteCode.SETTING_DIFFERS, _NOTES[NoteCode.SETTING_DIFFERS]))
    assert differs == "The runs differ in sigma: A has 0.25, B has 0.25 to 0.5."
    several = str(Remark(RemarkCode.SEVERAL_CERTIFICATES, "run", _REMARKS[RemarkCode.SEVERAL_CERTIFICATES]))
    assert several == "run: number of largest radii by certificate: 5 dipole, 3 gaussian."

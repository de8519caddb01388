"""Sampling until a question is answered, and no further.

A question is put to every input (`questions`); a judge follows the votes look by look and says who is still open
(`deciding`, `narrowing`); rounds of drawing feed it (`rounds`); what is stored is judged again from the stored votes
alone (`answers`), which is also how `recertify` does it, without a model.
"""

from smoothcert.questions.questions import Decide, Precision, Question, asked_question, parse_question, stated_question

__all__ = ["Decide", "Precision", "Question", "asked_question", "parse_question", "stated_question"]

"""From tallies to points: bounds, certificates, and when sampling is enough.

A question of a `RunSpec` (`FixedN`, `Decide`, `Precision`) becomes an `Inquiry`: the question with everything its
answer depends on besides the votes. An inquiry says what is drawn for each input and turns tallies into points.
Sampling, `recertify` and `--rigorous` use the same inquiry.
"""

from smoothcert.questions.feasibility import check_predict_is_possible, check_question
from smoothcert.questions.inquiry import Inquiry, Votes, make_inquiry, split_alpha_of, stored_votes
from smoothcert.questions.prediction import predict_votes
from smoothcert.questions.smoothing_setup import describe_smoothing

__all__ = [
    "Inquiry",
    "Votes",
    "check_predict_is_possible",
    "check_question",
    "describe_smoothing",
    "make_inquiry",
    "predict_votes",
    "split_alpha_of",
    "stored_votes",
]

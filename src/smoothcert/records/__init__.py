"""The frozen records that pass between rooms, and the enums they use.

Nothing here computes a statistic or a radius. A record checks itself when it is created, so every record that exists is
well formed; reading one back from disk runs the same checks.
"""

from smoothcert.records.bounds import Bound, Bounds, Proof, Quantity, Side
from smoothcert.records.envelopes import (
    ConstantSigma,
    Envelope,
    LipschitzSigma,
    MonotoneEnvelope,
    SemiElastic,
    Widened,
    envelope_from_json,
)
from smoothcert.records.noises import Noise, Norm
from smoothcert.records.outcomes import Outcome, Reason, ReasonCode, Remark, RemarkCode, Settlement, Supposition
from smoothcert.records.points import CertifiedPoint, CheckCounts, Guarantee, Promise, Verdict
from smoothcert.records.smoothing import Smoothing
from smoothcert.records.tallies import (
    MOST_SAMPLES,
    AnyTally,
    FloatArray,
    GradientTally,
    InputArray,
    IntArray,
    PairTally,
    ScoreTally,
    Stage,
    StreamId,
    Tally,
    TallyKind,
    merge,
)

__all__ = [
    "MOST_SAMPLES",
    "AnyTally",
    "Bound",
    "Bounds",
    "CertifiedPoint",
    "CheckCounts",
    "ConstantSigma",
    "Envelope",
    "FloatArray",
    "GradientTally",
    "Guarantee",
    "InputArray",
    "IntArray",
    "LipschitzSigma",
    "MonotoneEnvelope",
    "Noise",
    "Norm",
    "Outcome",
    "PairTally",
    "Promise",
    "Proof",
    "Quantity",
    "Reason",
    "ReasonCode",
    "Remark",
    "RemarkCode",
    "ScoreTally",
    "SemiElastic",
    "Settlement",
    "Side",
    "Smoothing",
    "Stage",
    "StreamId",
    "Supposition",
    "Tally",
    "TallyKind",
    "Verdict",
    "Widened",
    "envelope_from_json",
    "merge",
]

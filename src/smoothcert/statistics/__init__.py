"""Bounds on sampled quantities, each with the probability of being wrong it was given."""

from smoothcert.statistics.anytime import (
    log_threshold,
    log_wealth_above,
    log_wealth_below,
    log_wealth_mixture,
    one_sided_lower,
    time_uniform_upper,
)
from smoothcert.statistics.binomial import check_alpha, clopper_pearson_lower, clopper_pearson_upper, sign_test_p_value
from smoothcert.statistics.budget import equal_share, split_alpha
from smoothcert.statistics.gradient import pair_product_margin
from smoothcert.statistics.means import (
    MOST_BETS,
    betting_lower,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
)
from smoothcert.statistics.noise_price import alpha_after_noise, noise_price, price_of
from smoothcert.statistics.proofs import Proven, prove
from smoothcert.statistics.score_bounds import mean_score
from smoothcert.statistics.thinning import first_samples
from smoothcert.statistics.vote_bounds import plurality, safe_steps, significant_plurality, smallest_lead

__all__ = [
    "MOST_BETS",
    "Proven",
    "alpha_after_noise",
    "betting_lower",
    "betting_upper",
    "check_alpha",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "empirical_bernstein_lower",
    "empirical_bernstein_upper",
    "equal_share",
    "first_samples",
    "log_threshold",
    "log_wealth_above",
    "log_wealth_below",
    "log_wealth_mixture",
    "mean_score",
    "noise_price",
    "one_sided_lower",
    "pair_product_margin",
    "plurality",
    "price_of",
    "prove",
    "safe_steps",
    "sign_test_p_value",
    "significant_plurality",
    "smallest_lead",
    "split_alpha",
    "time_uniform_upper",
]

"""log(1+u) - u against many digits."""

import mpmath
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smoothcert.numerics.logarithm import log1p_minus


@settings(max_examples=300)
@given(
    st.one_of(
        st.floats(-0.999999, 1e6),
        st.floats(-0.5, 0.5),
        st.floats(1e-150, 0.1),
        st.floats(-0.1, -1e-150),
    )
)
@example(0.4)
@example(-0.4)
@example(np.nextafter(0.4, 0))
@example(np.nextafter(-0.4, 0))
@example(1e-9)
def test_against_many_digits(u: float) -> None:
    with mpmath.workdps(400):
        exact = mpmath.log1p(mpmath.mpf(u)) - mpmath.mpf(u)
        if abs(exact) > 1e-290:
            assert abs(mpmath.mpf(float(log1p_minus(u))) / exact - 1) < 2e-15


def test_edges_and_shapes() -> None:
    values = log1p_minus([[0.0, -1.0, -2.0]])
    assert values.shape == (1, 3)
    assert values[0, 0] == 0.0
    assert values[0, 1] == -np.inf
    assert np.isnan(values[0, 2])

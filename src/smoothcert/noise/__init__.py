"""Random noise as a pure function of where it is used.

Sample number `counter` of a stream (seed, input index, stage) has its noise made from exactly those numbers. The
compiled, the plain numpy and the torch version give the same bits on any IEEE machine: batch size, number of workers,
order and interruption change nothing, and an auditor can draw any sample again. There are two kinds.

For inputs on a grid (`grid_law`, `add_grid_noise`) noise is exact: whole numbers, drawn with ChaCha20 from the law of
rounded Gaussian or uniform noise and added as whole numbers. See `grid_law.py`.

In floating point (`add_noise`) it fits any input. It is made by Philox4x32-10 (Salmon et al. 2011): Gaussian noise by
Box–Muller with our own polynomials, uniform noise from the upper bits of each word. Only additions, multiplications and
square roots of float32 are used, each rounded on its own, and one product with sigma in float64.

Noise in float32 is not the noise of the theorems, which speak of real numbers. Gaussian noise ends at 6.66 σ. Uniform
noise takes 2²⁴ equally likely values in each coordinate, λ·(2k+1-2²⁴)·2⁻²⁴: the midpoints of 2²⁴ equal cells of
[-λ, λ], so it is exactly uniform noise moved by at most 2⁻²⁴·λ. Both are then rounded to float32, and so is their sum
with the input. Certificates take the float noise for the ideal one, as is usual; a base classifier made to look at
low-order bits can break what they promise.
"""

from smoothcert.noise.constants import GRID_GENERATOR
from smoothcert.noise.detection import DETECT, FLOAT, DetectedGrid, asked_grid, detect_grid
from smoothcert.noise.grid import add_grid_noise, from_grid, grid_draws, to_grid
from smoothcert.noise.grid_law import GridLaw, check_suits_grid, grid_law
from smoothcert.noise.host import COUNTER_LIMIT, add_noise, as_noise, check_sigma, scale_noise, unit_noise

__all__ = [
    "COUNTER_LIMIT",
    "DETECT",
    "FLOAT",
    "GRID_GENERATOR",
    "DetectedGrid",
    "GridLaw",
    "add_grid_noise",
    "add_noise",
    "as_noise",
    "asked_grid",
    "check_sigma",
    "check_suits_grid",
    "detect_grid",
    "from_grid",
    "grid_draws",
    "grid_law",
    "scale_noise",
    "to_grid",
    "unit_noise",
]

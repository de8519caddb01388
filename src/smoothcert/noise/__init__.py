"""Random noise as a pure function of (seed, input index, stage, counter).

The compiled, the plain numpy and the torch version give the same bits on every IEEE machine. So batch size, workers,
order and interruption change nothing, and an auditor can draw every sample again. Each noise law is one class, in its
file `…_law.py`, registered in `laws.py`. There are two ways to add noise; `splitting.py` adds none.

On a grid (`grid_law`, `add_grid_noise`) noise is exact: whole numbers, drawn with ChaCha20 from the law of rounded
noise and added as whole numbers. See `grid_law.py`.

In floating point (`add_noise`) it suits any input. It is made from the words of Philox4x32-10 (Salmon et al. 2011).
Only additions, multiplications and square roots of float32 are used, each rounded on its own, and one product with
sigma in float64.

The theorems are about noise in real numbers; noise in float32 differs from it, as the file of each law says. It is then
rounded to float32, and so is its sum with the input. As is usual, certificates treat float noise as ideal noise. A base
classifier built to read low-order bits can violate such a certificate.
"""

from smoothcert.noise.constants import GRID_GENERATOR
from smoothcert.noise.detection import DETECT, FLOAT, DetectedGrid, detect_grid, parse_grid
from smoothcert.noise.grid_law import GridLaw, check_suits_grid, grid_law
from smoothcert.noise.grid_noise import add_grid_noise, from_grid, grid_draws, to_grid
from smoothcert.noise.host import COUNTER_LIMIT, add_noise, as_noise, check_sigma, new_seed, scale_noise, unit_noise
from smoothcert.noise.law import AdditiveLaw, NoiseLaw
from smoothcert.noise.laws import additive_law_of, law_of
from smoothcert.noise.splitting import draw_offsets, evaluations_of, level_of, split_inputs

__all__ = [
    "COUNTER_LIMIT",
    "DETECT",
    "FLOAT",
    "GRID_GENERATOR",
    "AdditiveLaw",
    "DetectedGrid",
    "GridLaw",
    "NoiseLaw",
    "add_grid_noise",
    "add_noise",
    "additive_law_of",
    "as_noise",
    "check_sigma",
    "check_suits_grid",
    "detect_grid",
    "draw_offsets",
    "evaluations_of",
    "from_grid",
    "grid_draws",
    "grid_law",
    "law_of",
    "level_of",
    "new_seed",
    "parse_grid",
    "scale_noise",
    "split_inputs",
    "to_grid",
    "unit_noise",
]

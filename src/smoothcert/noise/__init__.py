"""Random noise as a pure function of where it is used.

Sample number `counter` of a stream (seed, input index, stage) has its noise made by Philox4x32-10 (Salmon et al.
2011) from exactly those numbers, then by Box–Muller with our own polynomials. Only additions, multiplications and
square roots of float32 are used, each rounded on its own, and one product with sigma in float64, so the compiled, the
plain numpy and the torch version give the same bits on any IEEE machine: batch size, number of workers, order and
interruption change nothing, and an auditor can draw any sample again.
"""

from smoothcert.noise.gaussian import COUNTER_LIMIT, add_gaussian, check_sigma, scale_normals, standard_normals

__all__ = ["COUNTER_LIMIT", "add_gaussian", "check_sigma", "scale_normals", "standard_normals"]

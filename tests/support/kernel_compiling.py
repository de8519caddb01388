"""Compiles the noise kernels for a CUDA card that is not there, and prints what their code does.

python kernel_compiling.py 80: for sm_80.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from smoothcert.noise.float_with_triton import add_float_noise
from smoothcert.noise.gaussian_with_triton import normals
from smoothcert.noise.grid_with_triton import add_noise_on_grid
from smoothcert.noise.with_triton import _EXACT, KernelNoise

ALL = {"ADD": True, "SUBTRACT": False, "KEEP": False}
ON_GRID = {"plus": "*fp32", "minus": "*fp32", "draws": "*i32", "place": "*i32", "table": "*i16", "thresholds": "*i64"}
IN_FLOATS = {"plus": "*bf16", "minus": "*bf16", "draws": "*fp32", "x": "*fp32"}


def compile_kernel(kernel, pointers, constants, *, arch, needed):
    types = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in kernel.arg_names}
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=values)
    code = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=dict(_EXACT)).asm["ptx"]
    operations = set(re.findall(r"\b(?:fma|mad|mul|add|sub|div|sqrt|cvt|max)\.[\w.]*f(?:32|64)[\w.]*", code))
    return {"operations": sorted(operations), "needed": needed, "spilled_bytes": count_spilled(code)}


def count_spilled(code):
    """The bytes of registers that ptxas, which triton brings, moves to memory."""
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        text.write_text(code)
        target = re.search(r"^\.target (\w+)", code, re.MULTILINE)[1]  # sm_90a, for 90
        done = subprocess.run(
            [ptxas, "-v", "--fmad=false", f"-arch={target}", text, "-o", binary],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return max(int(size) for size in re.findall(r"(\d+) bytes spill stores", done.stderr))


def main(arch):
    found = {}
    for size in (49, 784, 3072):
        tile = KernelNoise()._grid_tile(size, 0.03)
        name = f"grid, {size} values"
        found[name] = compile_kernel(add_noise_on_grid, ON_GRID, {**tile, **ALL}, arch=arch, needed="div.rn.f32")
    constants = {"LANES": normals, "ROWS": 1, "BLOCKS": 512, **ALL}
    found["floats"] = compile_kernel(add_float_noise, IN_FLOATS, constants, arch=arch, needed="sqrt.rn.f32")
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The curve of a law (`grid_curve`) compiled with numba: the steps of 32 draws at once, in vectors of 16 bits.

The instructions that look up 64 short numbers in two registers, and that keep the marked lanes of a vector, exist on
processors with AVX-512 BW only. Others look up every draw in the table.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from smoothcert.noise import constants as c
from smoothcert.noise import grid_curve
from smoothcert.noise.chacha_with_numba import array_data, load_vector, splat, store_vector
from smoothcert.noise.with_numba import has_feature

CURVES_WORK = has_feature("avx512f") and has_feature("avx512bw")

_LANES = c.DRAWS_PER_BLOCK
_SHORT, _INT, _LONG = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_SHORTS, _WIDE = ir.VectorType(_SHORT, _LANES), ir.VectorType(_INT, _LANES)
_INTS, _BITS = ir.VectorType(_INT, _LANES // 2), ir.VectorType(ir.IntType(1), _LANES)


def _same(value: int) -> Any:
    """The number in every lane of 16 bits."""
    return ir.Constant(_SHORTS, [value] * _LANES)


def _product_high(builder: Any, a: Any, b: Any) -> Any:
    """The upper halves of the products of unsigned numbers."""
    product = builder.mul(builder.zext(a, _WIDE), builder.zext(b, _WIDE))
    return builder.trunc(builder.lshr(product, ir.Constant(_WIDE, [16] * _LANES)), _SHORTS)


def _load_curve(builder: Any, data: Any) -> list[Any]:
    """Two vectors for each row of a curve."""
    ends = range(0, 5 * grid_curve.SEGMENTS, _LANES)
    halves = [load_vector(builder, data, _LONG(at), _SHORTS) for at in ends]
    return [halves[at : at + 2] for at in range(0, len(halves), 2)]


def _steps(builder: Any, words: Any, curve: Any, places: Any) -> tuple[Any, Any]:
    """(steps j, whether the curve does not tell them) for 32 draws. See `grid_curve.evaluate`."""
    permute = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_SHORTS, [_SHORTS] * 3), "llvm.x86.avx512.vpermi2var.hi.512"
    )
    upper = builder.ashr(words, _same(15))
    v = builder.xor(words, upper)
    segment, d = builder.lshr(v, _same(9)), builder.shl(v, _same(7))
    left, offset, slope, bend, limit = (builder.call(permute, [low, segment, high]) for low, high in curve)
    inner = builder.sub(slope, _product_high(builder, d, bend))
    height = builder.add(offset, _product_high(builder, d, inner))
    below = builder.add(left, builder.lshr(height, places))
    fraction = builder.and_(height, builder.sub(builder.shl(_same(1), places), _same(1)))
    untold = builder.icmp_unsigned(">=", fraction, limit)
    return builder.sub(builder.xor(below, upper), upper), untold


def _list_marked(builder: Any, marks: Any, first: Any, listed: Any, found: Any) -> None:
    """Append first + lane for every marked lane to `listed`, without a branch. found: place of the number listed."""
    compress = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(_INTS, [_INTS, _INTS, ir.VectorType(ir.IntType(1), _LANES // 2)]),
        "llvm.x86.avx512.mask.compress.v16i32",
    )
    for half in range(0, _LANES, _LANES // 2):
        lanes = ir.Constant(_INTS, list(range(half, half + _LANES // 2)))
        some = builder.shuffle_vector(marks, marks, lanes)
        positions = builder.add(splat(builder, builder.trunc(first, _INT), _INTS), lanes)
        at = builder.load(found)
        store_vector(builder, builder.call(compress, [positions, positions, some]), listed, at)
        count = builder.ctpop(builder.bitcast(some, ir.IntType(_LANES // 2)))
        builder.store(builder.add(at, builder.zext(count, _LONG)), found)


@intrinsic  # type: ignore[untyped-decorator]
def _follow(
    typing_context: Any, draws: Any, listed: Any, words: Any, curve: Any, places: Any, rows: Any, blocks: Any, size: Any
) -> Any:
    """See `follow_curve`. rows, blocks, size: of the draws in a row."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        draws, listed, words, curve = (array_data(context, builder, signature.args[n], arguments[n]) for n in range(4))
        held, shift = _load_curve(builder, curve), splat(builder, builder.trunc(arguments[4], _SHORT), _SHORTS)
        found = cgutils.alloca_once_value(builder, _LONG(0))
        rows, blocks, size = arguments[5:]
        # In the last block of a row, the lanes beyond its end are not wanted.
        beyond = builder.trunc(builder.sub(builder.mul(blocks, _LONG(_LANES)), size), _INT)
        in_last = builder.bitcast(builder.lshr(_INT(0xFFFFFFFF), beyond), _BITS)
        with cgutils.for_range(builder, rows) as row, cgutils.for_range(builder, blocks) as block:
            first = builder.mul(builder.add(builder.mul(row.index, blocks), block.index), _LONG(_LANES))
            bits = load_vector(builder, words, builder.lshr(first, _LONG(1)), _INTS)
            steps, untold = _steps(builder, builder.bitcast(bits, _SHORTS), held, shift)
            store_vector(builder, steps, draws, first)
            is_last = builder.icmp_signed("==", builder.add(block.index, _LONG(1)), blocks)
            wanted = builder.select(is_last, in_last, ir.Constant(_BITS, [1] * _LANES))
            _list_marked(builder, builder.and_(untold, wanted), first, listed, found)
        return builder.load(found)

    counts = types.int64, types.int64, types.int64, types.int64
    return types.int64(draws, listed, words, curve, *counts), generate


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def follow_curve(draws: Any, listed: Any, words: Any, curve: Any, rows: Any, blocks: Any, size: Any) -> Any:
    """Write the step of every draw of whole rows that the curve tells; list the places of the others in order.

    draws: (≥ 32 · blocks · rows,) int16; words: half as many; listed: (≥ 32 + the number of draws,) uint32. Returns the
    number listed. Draws beyond `size` in a row have any value, and are not listed.
    """
    return _follow(draws, listed, words, curve[0], curve[1], rows, blocks, size)

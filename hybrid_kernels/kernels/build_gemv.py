"""Builds `_gemv_int4`, the C kernel of the CPU device, with cffi in API mode: no Python object is touched inside a
call and the GIL is released. setup.py names `ffibuilder`; the flags suit any x86-64 and aarch64, because the wide
variants are compiled by target attributes and chosen when they run.
"""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

_HERE = Path(__file__).parent

# Contraction off: every fused multiply-add is written as one, so that a compiler's choice changes no bit.
COMPILE_ARGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-pthread"]
"""What the kernel is compiled with, on any processor."""

ffibuilder = FFI()
ffibuilder.cdef("""
    int hk_gemv_f32(const uint8_t *packed, const float *scales, const uint8_t *zero_points, const float *x, float *y,
                    int64_t n, int64_t k, int block, int threads, int variant);
    int hk_gemv_i8(const uint8_t *packed, const float *scales, const uint8_t *zero_points, const float *x, float *y,
                   int64_t n, int64_t k, int block, int threads, int variant);
    int hk_gemv_f32_repeat(const uint8_t *packed, const float *scales, const uint8_t *zero_points, const float *x,
                           float *y, int64_t n, int64_t k, int block, int threads, int variant, double share);
    int hk_stream_read(const uint8_t *p, int64_t bytes, int threads, uint64_t *sum);
    int hk_copy(uint8_t *dst, const uint8_t *src, int64_t bytes, int threads);
    int hk_variants(void);
    const char *hk_variant_name(int variant);
    int hk_variant_usable(int variant, int mode);
    const char *hk_variant_auto(int mode);
""")
ffibuilder.set_source(
    "hybrid_kernels.kernels._gemv_int4",
    '#include "gemv_int4.c"',
    include_dirs=[str(_HERE)],
    depends=[str(_HERE / "gemv_int4.c")],
    extra_compile_args=COMPILE_ARGS,
    extra_link_args=["-pthread"],
)

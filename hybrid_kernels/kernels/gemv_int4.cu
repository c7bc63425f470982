// y = W x for int4 weights in the MatMulNBits layout, one column of activations (M = 1), on NVIDIA GPUs.
//
//   packed       uint8 [n, k/block, block/2]        codes, low nibble first; the last block of a row is filled up
//   scales       fp16  [n, k/block]
//   zero_points  uint8 [n, ceil(k/block / 2)]       low nibble = even block; kernels ending in _sym take none (then 8)
//   x            fp16  [k]      y  fp16 [n]         (k/block rounded up throughout)
//
//   y[row] = sum over k of x[k] * scales[row, k/block] * (code[row, k] - zero[row, k/block])
//
// Only the pointer `packed` differs between the tiers: everything else lies in device memory. Each output is summed by
// one fixed set of threads in one fixed order, so equal bytes give equal bits, whatever memory they lie in.
//
// Versions, with their ideas:
//   narrow   As a plain engine writes it: a warp a row, one byte a lane. Reads well from device memory's point of view
//            (a warp's bytes are neighbours), but one request covers only 32 bytes, and over a link every request is
//            a transaction of its own. float32 throughout.

#include <cstdint>

#include <cuda_fp16.h>

namespace {

constexpr unsigned int kAllLanes = 0xffffffffu;

// Zero point of block `b` of a row whose zero points start at `zeros`.
__device__ __forceinline__ int zero_point(const uint8_t* __restrict__ zeros, int b) {
    return (zeros[b >> 1] >> ((b & 1) * 4)) & 15;
}

__device__ __forceinline__ float sum_lanes(float v) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(kAllLanes, v, step);
    return v;
}

// blockDim (32, warps): a warp a row.
template <int kBlock, bool kZeros>
__device__ __forceinline__ void gemv_narrow(const uint8_t* __restrict__ packed, const __half* __restrict__ scales,
                                            const uint8_t* __restrict__ zero_points, const __half* __restrict__ x,
                                            __half* __restrict__ y, int n, int k) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    const int blocks = (k + kBlock - 1) / kBlock;  // quantisation blocks a row
    packed += static_cast<size_t>(row) * blocks * (kBlock / 2);
    scales += static_cast<size_t>(row) * blocks;
    if (kZeros) zero_points += static_cast<size_t>(row) * ((blocks + 1) / 2);
    float sum = 0.0f;
#pragma unroll 4
    for (int byte = threadIdx.x; byte < (k + 1) / 2; byte += 32) {
        const int b = byte / (kBlock / 2);
        const int zero = kZeros ? zero_point(zero_points, b) : 8;
        const int codes = packed[byte];
        const float low = static_cast<float>((codes & 15) - zero) * __half2float(x[2 * byte]);
        const float high = 2 * byte + 1 < k ? static_cast<float>((codes >> 4) - zero) * __half2float(x[2 * byte + 1]) : 0.0f;
        sum += __half2float(scales[b]) * (low + high);
    }
    sum = sum_lanes(sum);
    if (threadIdx.x == 0) y[row] = __float2half_rn(sum);
}

}  // namespace

#define GEMV(VARIANT, BLOCK, SUFFIX, ZEROS, THREADS)                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) gemv_int4_##VARIANT##_b##BLOCK##_##SUFFIX(              \
        const uint8_t* __restrict__ packed, const __half* __restrict__ scales,                                   \
        const uint8_t* __restrict__ zero_points, const __half* __restrict__ x, __half* __restrict__ y, int n,     \
        int k) {                                                                                                 \
        gemv_##VARIANT<BLOCK, ZEROS>(packed, scales, zero_points, x, y, n, k);                                   \
    }
#define GEMV_BLOCKS(VARIANT, SUFFIX, ZEROS, THREADS) \
    GEMV(VARIANT, 16, SUFFIX, ZEROS, THREADS)        \
    GEMV(VARIANT, 32, SUFFIX, ZEROS, THREADS)        \
    GEMV(VARIANT, 64, SUFFIX, ZEROS, THREADS)        \
    GEMV(VARIANT, 128, SUFFIX, ZEROS, THREADS)

GEMV_BLOCKS(narrow, zp, true, 256)
GEMV_BLOCKS(narrow, sym, false, 256)

// Reads with nothing computed: the ceiling of any kernel on a tier, a checksum, and access patterns that explain a rate.
//
//   stream_read          16-byte loads, a warp on 512 contiguous bytes, 8 loads in flight a thread: what the
//                        multiprocessors can pull when nothing else is asked of them.
//   checksum             two 64-bit sums over 8-byte words, plain and weighted by position: a page that is stale, swapped
//                        or unmapped changes them. Integer sums modulo 2^64, so the order of the additions is free.
//   access_*             one knob at a time: bytes a request covers, loads in flight, distance from the 128-byte line,
//                        neighbours read in order (coalesced) or chunks strewn over the buffer (scattered).
//
// No load may be optimised away: every thread folds what it read into one word, and one word a block is written out.

#include <cstdint>

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kStreamLoads = 8;  // independent 16-byte loads a thread issues before it uses the first

// Folds a block's words into sink[blockIdx.x].
__device__ __forceinline__ void put(u32 word, u32* sink) {
    __shared__ u32 folded[32];
    word = __reduce_xor_sync(0xffffffffu, word);
    if ((threadIdx.x & 31u) == 0) folded[threadIdx.x >> 5] = word;
    __syncthreads();
    if (threadIdx.x < 32) {
        const u32 warps = (blockDim.x + 31u) >> 5;
        word = threadIdx.x < warps ? folded[threadIdx.x] : 0u;
        word = __reduce_xor_sync(0xffffffffu, word);
        if (threadIdx.x == 0) sink[blockIdx.x] = word;
    }
}

template <int kBytes>
struct Word;
template <>
struct Word<1> { using type = unsigned char; };
template <>
struct Word<2> { using type = unsigned short; };
template <>
struct Word<4> { using type = u32; };
template <>
struct Word<8> { using type = uint2; };
template <>
struct Word<16> { using type = uint4; };

__device__ __forceinline__ u32 fold(unsigned char v) { return v; }
__device__ __forceinline__ u32 fold(unsigned short v) { return v; }
__device__ __forceinline__ u32 fold(u32 v) { return v; }
__device__ __forceinline__ u32 fold(uint2 v) { return v.x ^ v.y; }
__device__ __forceinline__ u32 fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

// Neighbouring lanes read neighbouring words of kBytes: a warp's request covers 32 * kBytes contiguous bytes.
template <int kBytes, int kLoads>
__device__ __forceinline__ u32 read_coalesced(const uint8_t* __restrict__ data, u64 bytes) {
    using T = typename Word<kBytes>::type;
    const T* __restrict__ words = reinterpret_cast<const T*>(data);
    const u64 count = bytes / kBytes;
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    u32 seen = 0;
#pragma unroll 1
    for (; i + (kLoads - 1) * stride < count; i += kLoads * stride) {
        T v[kLoads];
#pragma unroll
        for (int l = 0; l < kLoads; ++l) v[l] = __ldcs(words + i + l * stride);
#pragma unroll
        for (int l = 0; l < kLoads; ++l) seen ^= fold(v[l]);
    }
#pragma unroll 1
    for (; i < count; i += stride) seen ^= fold(__ldcs(words + i));
    return seen;
}

// Chunks of kChunk bytes, 4 bytes a lane, in an order that strews neighbours over the buffer: chunk number c lies at
// c * odd modulo the largest power of two of chunks in the buffer, a permutation, so every chunk is read once.
template <int kChunk, int kLoads>
__device__ __forceinline__ u32 read_scattered(const uint8_t* __restrict__ data, u64 bytes) {
    constexpr int kLanes = kChunk / 4;  // lanes on one chunk; 64 and more for chunks wider than one warp's request
    const u32* __restrict__ words = reinterpret_cast<const u32*>(data);
    const u64 chunks = bytes / kChunk;
    if (chunks == 0) return 0;
    const u64 mask = (1ull << (63 - __clzll(static_cast<long long>(chunks)))) - 1;
    const u64 count = (mask + 1) * kLanes;
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    u32 seen = 0;
#pragma unroll 1
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += kLoads * stride) {
        u32 v[kLoads];
#pragma unroll
        for (int l = 0; l < kLoads; ++l) {
            const u64 j = i + l * stride;
            const u64 chunk = ((j / kLanes) * 0x9E3779B97F4A7C15ull) & mask;
            v[l] = j < count ? __ldcs(words + chunk * kLanes + j % kLanes) : 0u;
        }
#pragma unroll
        for (int l = 0; l < kLoads; ++l) seen ^= v[l];
    }
    return seen;
}

}  // namespace

// data [bytes], 16-byte aligned; sink uint32 [gridDim.x].
extern "C" __global__ void __launch_bounds__(1024, 1) stream_read(const uint8_t* __restrict__ data, u64 bytes, u32* __restrict__ sink) {
    u32 seen = read_coalesced<16, kStreamLoads>(data, bytes);
    const u64 tail = bytes & ~15ull;  // the last bytes that fill no 16-byte word
    if (blockIdx.x == 0 && tail + threadIdx.x < bytes) seen ^= data[tail + threadIdx.x];
    put(seen, sink);
}

// data [bytes], 8-byte aligned; out uint64 [2], zeroed by the caller: out[0] += sum of the words,
// out[1] += sum of (position + 1) * word, both modulo 2^64; the last word is filled up with zero bytes.
extern "C" __global__ void __launch_bounds__(1024, 1) checksum(const uint8_t* __restrict__ data, u64 bytes, u64* __restrict__ out) {
    const u64* __restrict__ words = reinterpret_cast<const u64*>(data);
    const u64 count = bytes / 8;
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    const u64 first = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    u64 plain = 0, weighted = 0;
    for (u64 i = first; i < count; i += stride) {
        const u64 word = __ldcs(words + i);
        plain += word;
        weighted += (i + 1) * word;
    }
    if (first == 0 && (bytes & 7u)) {
        u64 word = 0;
        for (u64 b = count * 8; b < bytes; ++b) word |= static_cast<u64>(data[b]) << (8 * (b & 7u));
        plain += word;
        weighted += (count + 1) * word;
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
        plain += __shfl_xor_sync(0xffffffffu, plain, step);
        weighted += __shfl_xor_sync(0xffffffffu, weighted, step);
    }
    if ((threadIdx.x & 31u) == 0) {
        atomicAdd(out, plain);
        atomicAdd(out + 1, weighted);
    }
}

// One kernel a pattern, named access_<coalesced|scattered>_<bytes a request covers>_<loads in flight a thread>.
// Reads [data + offset, data + offset + bytes), whole words or chunks only; sink uint32 [gridDim.x].
#define ACCESS(PATTERN, REQUEST, UNIT, LOADS)                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 1) access_##PATTERN##_##REQUEST##_##LOADS(                  \
        const uint8_t* __restrict__ data, u64 bytes, u32 offset, u32* __restrict__ sink) {                      \
        put(read_##PATTERN<UNIT, LOADS>(data + offset, bytes), sink);                                           \
    }
#define ACCESS_LOADS(PATTERN, REQUEST, UNIT) \
    ACCESS(PATTERN, REQUEST, UNIT, 1)        \
    ACCESS(PATTERN, REQUEST, UNIT, 4)        \
    ACCESS(PATTERN, REQUEST, UNIT, 8)

ACCESS_LOADS(coalesced, 32, 1)
ACCESS_LOADS(coalesced, 64, 2)
ACCESS_LOADS(coalesced, 128, 4)
ACCESS_LOADS(coalesced, 256, 8)
ACCESS_LOADS(coalesced, 512, 16)
ACCESS_LOADS(scattered, 32, 32)
ACCESS_LOADS(scattered, 64, 64)
ACCESS_LOADS(scattered, 128, 128)
ACCESS_LOADS(scattered, 256, 256)

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
//   wide     16 bytes a lane, 128 contiguous bytes a row and load, and the products on the tensor cores: see below.
//            wide_short keeps 2 chunks a warp in flight, for few rows, and wide_long 5, for many; both take k % 256 == 0
//            up to 23296, and wide_any every k. What was tried, and what it measured, is in docs/kernels.md.

#include <cstdint>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#else
#include "emulated.h"  // the same machine on a CPU, lane by lane: tests/kernels
#endif

namespace {

constexpr unsigned int kAllLanes = 0xffffffffu;

// ---- The machine's own instructions ---------------------------------------------------------------------------------

#ifdef __CUDACC__
// 16 bytes that are read once: they pass by L1, which holds scales and zero points instead.
__device__ __forceinline__ uint4 load_once(const uint8_t* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

// (word & mask) | bits in one instruction.
template <unsigned int kMask, unsigned int kBits>
__device__ __forceinline__ unsigned int take(unsigned int word) {
    unsigned int out;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(word), "n"(kMask), "n"(kBits));
    return out;
}

// d += A (16 x 16) * B (16 x 8): fp16 factors, exact products, float32 sums. Lane 4g + t holds A[g, 2t..] in a0,
// A[g + 8, 2t..] in a1, A[g, 2t + 8..] in a2, A[g + 8, 2t + 8..] in a3, B[2t.., g] in b0, B[2t + 8.., g] in b1, and
// d[g, 2t..] in d[0..1], d[g + 8, 2t..] in d[2..3] (PTX ISA, mma.m16n8k16).
__device__ __forceinline__ void multiply_add(float (&d)[4], unsigned int a0, unsigned int a1, unsigned int a2,
                                             unsigned int a3, unsigned int b0, unsigned int b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Lets the kernel after this one in a graph start its blocks as soon as this one's leave room (PTX ISA, griddepcontrol).
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernels before this one are done and what they wrote can be read.
__device__ __forceinline__ void await_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Waits for `threads` threads that name the same `barrier`.
__device__ __forceinline__ void meet(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Two fp16 differences at once.
__device__ __forceinline__ unsigned int subtract_pairs(unsigned int a, unsigned int b) {
    const __half2 d = __hsub2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const unsigned int&>(d);
}
#endif

__device__ __forceinline__ float low_half(unsigned int pair) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xffffu)));
}

__device__ __forceinline__ float high_half(unsigned int pair) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
}

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

// ---- wide -----------------------------------------------------------------------------------------------------------
//
// A row is cut into pieces of 16 bytes (32 codes), 8 pieces to a chunk of 128 bytes. A warp works on a tile of 8 rows, a
// chunk at a time: with one 16-byte load, lane 8r + p takes piece p of row r (rows 0-3), with a second the same of rows
// 4-7. Every load is 4 runs of 128 bytes, which is what a link carries in one request.
//
// The layout is read as it lies, and the tensor cores take it so: row 2r of the matrix A is the first four pieces of
// row r, row 2r + 1 the last four, so that a lane's own codes are the very elements of A it must hold. In B, column j
// holds the activations of piece j and zeros elsewhere, so column j of the product is piece j's dot product: even rows
// of it are valid in columns 0-3, odd ones in columns 4-7, and the rest is never used. One product of 16 x 16 x 8 takes
// 256 codes; eight of them finish the chunk, with a scale still to apply to each dot product.
//
// Codes become fp16 two at a time: nibbles j and j + 4 of a word are masked under the exponent of 1024 (low nibbles) or
// 64 (high nibbles, which lie four bits higher), giving 1024 + code or 64 + code exactly; taking off 1024 + zero or
// 64 + zero leaves code - zero exactly. So the activations, not the weights, are permuted to the order 0 4 1 5 2 6 3 7,
// once, on their way into shared memory. Products of fp16 are exact in float32 and are summed there: activations of
// 60000 cannot overflow, and small ones beside them keep what float32 keeps.
//
// Lanes of B that hold zeros read them from a zeroed corner of shared memory; it lies 32 bytes off the rows so that
// no two lanes of a quarter warp meet in a bank.
//
// blockDim (32, split, tiles at once): `split` warps share a tile, each on its own run of chunks; their sums meet in
// shared memory and are added in the order of the warps. Blocks walk over the tiles, and each warp loads kDepth chunks
// ahead, over the end of a tile too.

constexpr int kTileRows = 8;
constexpr int kChunkBytes = 128;
constexpr int kChunkCodes = 256;
constexpr int kXChunkBytes = kChunkCodes * 2;    // activations of a chunk
constexpr int kMostSharedX = 91 * kXChunkBytes;  // more activations than 23296 are read from device memory
constexpr int kCornerBytes = 128;                // 32 to shift the banks, 64 zeros, 32 to the next line

// What one lane holds of one chunk: rows r and r + 4.
template <int kBlock>
struct Chunk {
    uint4 codes[2];
    unsigned int scales[2][kBlock == 16 ? 2 : 1];  // fp16 pairs: of pieces 2t and 2t + 1
    unsigned int zeros[2];                         // the byte with this piece's zero points
};

// kDepth chunks in flight a warp. kAny: rows of any length, so every load is checked; rows of whole chunks otherwise.
template <int kBlock, bool kZeros, int kDepth, bool kAny>
struct Wide {
    const uint8_t* __restrict__ packed;
    const __half* __restrict__ scales;
    const uint8_t* __restrict__ zero_points;
    const __half* __restrict__ x;
    __half* __restrict__ y;
    int n, k;

    int lane, warp, group, blocks, first, count;
    const uint8_t* at_codes[2];  // of rows r and r + 4: where the next loads of this lane start
    const uint8_t* at_scales[2];
    const uint8_t* at_zeros[2];
    const uint8_t* at_x;
    int x_stride;

    static constexpr int kScaleBytes = kChunkCodes / kBlock * 2;  // a chunk
    static constexpr int kZeroBytes = kChunkCodes / kBlock / 2;
    static constexpr int kEarly = kAny ? 1 : 3;  // 16-byte loads of activations that a thread asks for before the weights

    __device__ __forceinline__ long long row_codes() const { return static_cast<long long>(blocks) * (kBlock / 2); }
    __device__ __forceinline__ long long row_scales() const { return static_cast<long long>(blocks) * 2; }
    __device__ __forceinline__ long long row_zeros() const { return (blocks + 1) / 2; }

    // Points this lane at the first chunk of this warp's run in `tile`.
    __device__ __forceinline__ void aim(int tile) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const long long row = static_cast<long long>(tile) * kTileRows + h * 4 + (lane >> 3);
            at_codes[h] = packed + row * row_codes() + first * kChunkBytes + (lane & 7) * 16;
            at_scales[h] = reinterpret_cast<const uint8_t*>(scales) + row * row_scales() + first * kScaleBytes;
            if (!kAny) at_scales[h] += (lane & 3) * (kScaleBytes / 4) & ~(kBlock >= 64 ? 1 : 3);
            if (!kZeros) continue;
            at_zeros[h] = zero_points + row * row_zeros() + first * kZeroBytes;
            if (!kAny) at_zeros[h] += (lane & 7) * kZeroBytes / 8;
        }
    }

    // Moves on from chunk c of a run: by kDepth chunks, or to the start of the run `tiles` tiles further.
    __device__ __forceinline__ void advance(bool to_next_tile, int c, int tiles) {
        const long long rows = static_cast<long long>(tiles) * kTileRows;
        const int back = kAny ? 0 : c;  // scales and zero points of kAny are found from the start of the run
        const int on = kAny ? 0 : kDepth;
        const long long codes = to_next_tile ? rows * row_codes() - c * kChunkBytes : kDepth * kChunkBytes;
        const long long scale = to_next_tile ? rows * row_scales() - back * kScaleBytes : on * kScaleBytes;
        const long long zeros = to_next_tile ? rows * row_zeros() - back * kZeroBytes : on * kZeroBytes;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            at_codes[h] += codes;
            at_scales[h] += scale;
            if (kZeros) at_zeros[h] += zeros;
        }
    }

    __device__ __forceinline__ unsigned int scale(int h, int b) const {  // bits of scale b of this run, clamped to the row
        b = min(b, blocks - 1 - first * (kChunkCodes / kBlock));
        return __half_as_ushort(__ldg(reinterpret_cast<const __half*>(at_scales[h]) + b));
    }

    // Loads chunk d from where the pointers stand; `done` chunks of the run lie before them. Rows past the end are not
    // read: what their lanes hold goes into rows of the product that nobody stores.
    __device__ __forceinline__ void load(Chunk<kBlock>& c, int d, int done, const int (&left_of)[2]) const {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if (d >= left_of[h]) continue;
            if constexpr (!kAny) {
                c.codes[h] = load_once(at_codes[h] + d * kChunkBytes);
                const uint8_t* s = at_scales[h] + d * kScaleBytes;
                if (kBlock == 16) {
                    const uint2 v = __ldg(reinterpret_cast<const uint2*>(s));
                    c.scales[h][0] = v.x;
                    c.scales[h][kBlock == 16 ? 1 : 0] = v.y;
                } else if (kBlock == 32) {
                    c.scales[h][0] = __ldg(reinterpret_cast<const unsigned int*>(s));
                } else {
                    c.scales[h][0] = __ldg(reinterpret_cast<const unsigned short*>(s));
                }
                if (kZeros) c.zeros[h] = __ldg(at_zeros[h] + d * kZeroBytes);
            } else {
                const int piece = 8 * (done + d) + (lane & 7);     // of this run
                const int pair = 8 * (done + d) + 2 * (lane & 3);  // the piece of this lane's first scale
                const int left = blocks * (kBlock / 2) - first * kChunkBytes - piece * 16;  // bytes from here to the row's end
                const uint8_t* p = at_codes[h] + d * kChunkBytes;
                c.codes[h] = make_uint4(0, 0, 0, 0);
                if (kBlock == 16) {  // rows may start 8 bytes off
                    if (left >= 8) {
                        const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
                        c.codes[h].x = v.x, c.codes[h].y = v.y;
                    }
                    if (left >= 16) {
                        const uint2 v = __ldg(reinterpret_cast<const uint2*>(p + 8));
                        c.codes[h].z = v.x, c.codes[h].w = v.y;
                    }
                    c.scales[h][0] = scale(h, 2 * pair) | scale(h, 2 * pair + 1) << 16;
                    c.scales[h][kBlock == 16 ? 1 : 0] = scale(h, 2 * pair + 2) | scale(h, 2 * pair + 3) << 16;
                } else {
                    if (left >= 16) c.codes[h] = load_once(p);
                    c.scales[h][0] = scale(h, pair * 32 / kBlock);
                    if (kBlock == 32) c.scales[h][0] |= scale(h, pair + 1) << 16;
                }
                if (kZeros) {
                    const int byte = min(piece * 32 / kBlock / 2, (blocks + 1) / 2 - 1 - first * kZeroBytes);
                    c.zeros[h] = __ldg(at_zeros[h] + byte);
                }
            }
        }
    }

    // Activations of word q of this lane's column of B, for chunk c of the run: 8 values in the order 0 4 1 5 2 6 3 7.
    __device__ __forceinline__ uint4 activations(int c, int q) const {
        if (kAny && x_stride < 0) {  // too many for shared memory
            if (((lane >> 2) & 3) != (lane & 3)) return make_uint4(0, 0, 0, 0);
            return permuted<true>((first + c) * kChunkCodes + (lane >> 2) * 32 + q * 8);
        }
        return *reinterpret_cast<const uint4*>(at_x + c * x_stride + q * 16);
    }

    // x[at .. at + 8) in the order 0 4 1 5 2 6 3 7, zeros past k. kCached: through L1, which must not hold what stood
    // there before the last kernel wrote it, so not in a kernel that started before that one was done.
    template <bool kCached>
    __device__ __forceinline__ uint4 permuted(int at) const {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (!kAny || at + 8 <= k) {
            v = kCached ? __ldg(reinterpret_cast<const uint4*>(x + at)) : __ldcg(reinterpret_cast<const uint4*>(x + at));
        } else {
            unsigned int words[4] = {0, 0, 0, 0};
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (at + i < k) words[i / 2] |= static_cast<unsigned int>(__half_as_ushort(__ldcg(x + at + i))) << (i % 2 * 16);
            v = make_uint4(words[0], words[1], words[2], words[3]);
        }
        return permute(v);
    }

    static __device__ __forceinline__ uint4 permute(uint4 v) {
        return make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410),
                          __byte_perm(v.y, v.w, 0x7632));
    }

    // Adds chunk number `c` of the run to the sums of rows r and r + 4.
    __device__ __forceinline__ void consume(const Chunk<kBlock>& chunk, int c, float (&sum)[2]) const {
        unsigned int scale_pairs[2][2], zero_bits[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            scale_pairs[h][0] = chunk.scales[h][0];
            if (kBlock == 16) scale_pairs[h][1] = chunk.scales[h][kBlock == 16 ? 1 : 0];
            zero_bits[h] = chunk.zeros[h] >> (kBlock == 16 ? 0 : ((lane & 7) * 32 / kBlock & 1) * 4);
        }
        constexpr int kParts = kBlock == 16 ? 2 : 1;  // quantisation blocks in a piece
        float dot[kParts][4];
#pragma unroll
        for (int part = 0; part < kParts; ++part)
#pragma unroll
            for (int i = 0; i < 4; ++i) dot[part][i] = 0.0f;
        unsigned int low[2], high[2];  // 1024 + zero, 64 + zero, twice, for rows r and r + 4
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            if (q % (4 / kParts) == 0) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    unsigned int zero = 8;
                    if (kZeros) zero = zero_bits[h] >> (q / 2 * (kBlock == 16 ? 4 : 0)) & 15u;
                    low[h] = 0x64006400u + zero * 0x00010001u;
                    high[h] = 0x54005400u + zero * 0x00100010u;
                }
            }
            const uint4 b = activations(c, q);
            unsigned int a[2][4];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint4 v = chunk.codes[h];
                const unsigned int w = q == 0 ? v.x : q == 1 ? v.y : q == 2 ? v.z : v.w;
                a[h][0] = subtract_pairs(take<0x000f000fu, 0x64006400u>(w), low[h]);
                a[h][1] = subtract_pairs(take<0x00f000f0u, 0x54005400u>(w), high[h]);
                a[h][2] = subtract_pairs(take<0x000f000fu, 0x64006400u>(w >> 8), low[h]);
                a[h][3] = subtract_pairs(take<0x00f000f0u, 0x54005400u>(w >> 8), high[h]);
            }
            multiply_add(dot[q * kParts / 4], a[0][0], a[1][0], a[0][1], a[1][1], b.x, b.y);
            multiply_add(dot[q * kParts / 4], a[0][2], a[1][2], a[0][3], a[1][3], b.z, b.w);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const unsigned int s = scale_pairs[h][0];
            if (kBlock == 16) {
                const unsigned int s2 = scale_pairs[h][1];
                sum[h] += low_half(s) * dot[0][2 * h] + high_half(s) * dot[kParts - 1][2 * h];
                sum[h] += low_half(s2) * dot[0][2 * h + 1] + high_half(s2) * dot[kParts - 1][2 * h + 1];
            } else if (kBlock == 32) {
                sum[h] += low_half(s) * dot[0][2 * h];
                sum[h] += high_half(s) * dot[0][2 * h + 1];
            } else {
                sum[h] += low_half(s) * (dot[0][2 * h] + dot[0][2 * h + 1]);
            }
        }
    }

    // Adds up the lanes, then the warps of a tile, and stores its rows.
    __device__ __forceinline__ void finish(int tile, float (&sum)[2], float* partial) const {
        const bool valid = ((lane >> 1) & 1) == ((lane >> 2) & 1);  // pieces 0-3 in even rows of the product, 4-7 in odd
        const float mine = valid ? sum[lane & 1] : 0.0f, other = valid ? sum[~lane & 1] : 0.0f;
        float total = mine + __shfl_xor_sync(kAllLanes, other, 1);  // even lanes: row r, odd lanes: row r + 4
        total += __shfl_xor_sync(kAllLanes, total, 2);
        total += __shfl_xor_sync(kAllLanes, total, 4);
        const int mine_row = (lane & 1) * 4 + (lane >> 3);
        const int split = blockDim.y;
        if (split == 1) {
            const int row = tile * kTileRows + mine_row;
            if ((lane & 7) < 2 && row < n) y[row] = __float2half_rn(total);
            return;
        }
        if ((lane & 7) < 2) partial[warp * kTileRows + mine_row] = total;
        meet(1 + group, 32 * split);
        const int row = tile * kTileRows + lane;
        if (warp == 0 && lane < kTileRows && row < n) {
            float sum_of_warps = 0.0f;
            for (int w = 0; w < split; ++w) sum_of_warps += partial[w * kTileRows + lane];
            y[row] = __float2half_rn(sum_of_warps);
        }
    }

    __device__ __forceinline__ void run(uint8_t* shared) {
        lane = threadIdx.x, warp = threadIdx.y, group = threadIdx.z;
        const int split = blockDim.y;
        blocks = kAny ? (k + kBlock - 1) / kBlock : k / kBlock;
        const int chunks = kAny ? (blocks * (kBlock / 2) + kChunkBytes - 1) / kChunkBytes : k / kChunkCodes;
        const int share = (chunks + split - 1) / split;
        first = min(warp * share, chunks);
        count = min(share, chunks - first);
        const int tiles = (n + kTileRows - 1) / kTileRows;
        const int stride = gridDim.x * blockDim.z;
        const int thread = (group * split + warp) * 32 + lane;
        const int threads = 32 * split * blockDim.z;
        int tile = blockIdx.x * blockDim.z + group;
        const bool x_fits = !kAny || chunks * kXChunkBytes <= kMostSharedX;
        const int x_words = x_fits ? chunks * (kXChunkBytes / 16) : 0;
        const int x_bytes = x_words * 16;

        let_next_start();
        await_previous();  // the activations are what the kernel before wrote
        uint4 early[kEarly];  // they are asked for first: behind the weights they would wait for all of them
#pragma unroll
        for (int e = 0; e < kEarly; ++e)
            if (thread + e * threads < x_words) early[e] = permuted<false>((thread + e * threads) * 8);

        Chunk<kBlock> ring[kDepth] = {};
        const int row = lane >> 3;  // in the tile; the other is four further
        int left_of[2];             // chunks still to load for either row; none where it is past the end
        aim(tile);
#pragma unroll
        for (int h = 0; h < 2; ++h) left_of[h] = tile * kTileRows + row + h * 4 < n ? count : 0;
#pragma unroll
        for (int d = 0; d < kDepth; ++d) load(ring[d], d, 0, left_of);

        uint4* words = reinterpret_cast<uint4*>(shared);
#pragma unroll
        for (int e = 0; e < kEarly; ++e)
            if (thread + e * threads < x_words) words[thread + e * threads] = early[e];
        for (int i = thread + kEarly * threads; i < x_words; i += threads) words[i] = permuted<false>(i * 8);
        if (thread < kCornerBytes / 16) words[x_words + thread] = make_uint4(0, 0, 0, 0);
        const bool holds_x = ((lane >> 2) & 3) == (lane & 3);  // this lane's elements of B are not zeros
        at_x = holds_x ? shared + first * kXChunkBytes + (lane >> 2) * 64 : shared + x_bytes + 32;
        x_stride = !x_fits ? -1 : holds_x ? kXChunkBytes : 0;
        float* partial = reinterpret_cast<float*>(shared + x_bytes + kCornerBytes) + group * 2 * split * kTileRows;
        __syncthreads();

        int parity = 0;
        for (; tile < tiles; tile += stride) {
            float sum[2] = {0.0f, 0.0f};
            for (int c = 0; c < count; c += kDepth) {
                const bool ends = c + kDepth >= count;  // the run: the ring is filled from the next tile
                const int next = ends ? tile + stride : tile;
                const int done = ends ? 0 : c + kDepth;
                advance(ends, c, stride);
#pragma unroll
                for (int h = 0; h < 2; ++h)
                    left_of[h] = next < tiles && next * kTileRows + row + h * 4 < n ? count - done : 0;
#pragma unroll
                for (int d = 0; d < kDepth; ++d) {
                    if (c + d < count) consume(ring[d], c + d, sum);
                    load(ring[d], d, done, left_of);
                }
            }
            finish(tile, sum, partial + parity * split * kTileRows);
            parity ^= 1;
        }
    }
};

}  // namespace

#define GEMV(NAME, SUFFIX, LAUNCH_BOUNDS, ...)                                                                  \
    extern "C" __global__ void __launch_bounds__ LAUNCH_BOUNDS NAME##_##SUFFIX(                                       \
        const uint8_t* __restrict__ packed, const __half* __restrict__ scales,                                        \
        const uint8_t* __restrict__ zero_points, const __half* __restrict__ x, __half* __restrict__ y, int n, int k) { \
        __VA_ARGS__;                                                                                                  \
    }

#define NARROW(BLOCK, SUFFIX, ZEROS)                          \
    GEMV(gemv_int4_narrow_b##BLOCK, SUFFIX, (256),    \
         gemv_narrow<BLOCK, ZEROS>(packed, scales, zero_points, x, y, n, k))

#define WIDE_AS(NAME, BLOCK, SUFFIX, ZEROS, DEPTH, ANY, LAUNCH_BOUNDS)                                 \
    GEMV(NAME, SUFFIX, LAUNCH_BOUNDS, extern __shared__ uint4 shared[];                         \
         Wide<BLOCK, ZEROS, DEPTH, ANY> work{packed, scales, zero_points, x, y, n, k};                 \
         work.run(reinterpret_cast<uint8_t*>(shared)))

// Chunks in flight a warp, and the most threads of a block: together they decide how many registers are left.
#define WIDE(BLOCK, SUFFIX, ZEROS)                                                                       \
    WIDE_AS(gemv_int4_wide_short_b##BLOCK, BLOCK, SUFFIX, ZEROS, 2, false, (640, 1))                     \
    WIDE_AS(gemv_int4_wide_long_b##BLOCK, BLOCK, SUFFIX, ZEROS, (BLOCK == 16 ? 4 : 5), false, (512, 1))  \
    WIDE_AS(gemv_int4_wide_any_b##BLOCK, BLOCK, SUFFIX, ZEROS, 2, true, (512, 1))

#define BLOCKS(VERSION)      \
    VERSION(16, zp, true)    \
    VERSION(16, sym, false)  \
    VERSION(32, zp, true)    \
    VERSION(32, sym, false)  \
    VERSION(64, zp, true)    \
    VERSION(64, sym, false)  \
    VERSION(128, zp, true)   \
    VERSION(128, sym, false)

BLOCKS(NARROW)
BLOCKS(WIDE)

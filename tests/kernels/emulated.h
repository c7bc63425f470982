// One block of a GPU on a CPU: every thread is a fiber, and those that meet (shuffle, matrix product, barrier) wait for
// one another. Enough of CUDA for gemv_int4.cu, written from the definitions in the PTX manual and slow on purpose.

#pragma once

#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__

struct uint2 { unsigned int x, y; };
struct alignas(16) uint4 { unsigned int x, y, z, w; };
inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }
struct Dim { int x, y, z; };

struct __half { unsigned short bits; };
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline float __half2float(__half h) {
    _Float16 v;
    std::memcpy(&v, &h, 2);
    return static_cast<float>(v);
}
inline __half __float2half_rn(float f) {
    const _Float16 v = static_cast<_Float16>(f);
    __half h;
    std::memcpy(&h, &v, 2);
    return h;
}
template <typename T>
T __ldg(const T* p) {
    if (reinterpret_cast<uintptr_t>(p) % sizeof(T)) __builtin_trap();  // a GPU faults here
    return *p;
}
template <typename T>
T __ldcg(const T* p) { return __ldg(p); }
template <typename T>
T min(T a, T b) { return b < a ? b : a; }
inline unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int selector) {
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    unsigned int out = 0;
    for (int i = 0; i < 4; ++i) out |= static_cast<unsigned int>(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
    return out;
}

namespace emulator {

struct Meeting { int arrived = 0, generation = 0; };
struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(1 << 16);
    Dim thread;
    int number;
    bool done = false;
};

inline ucontext_t scheduler;
inline std::vector<std::unique_ptr<Fiber>> fibers;
inline Fiber* current;
inline std::map<int, Meeting> meetings;          // barriers by number; warps by -1 - warp
inline std::vector<unsigned int> board;          // 12 words a thread, for what a warp exchanges
inline std::function<void()> body;

inline void wait(int where, int threads) {
    Meeting& m = meetings[where];
    const int generation = m.generation;
    if (++m.arrived == threads) {
        m.arrived = 0;
        ++m.generation;
    }
    while (m.generation == generation) swapcontext(&current->context, &scheduler);
}
inline int lane() { return current->number % 32; }
inline void warp_meets() { wait(-1 - current->number / 32, 32); }
inline unsigned int* words_of(int lane) { return &board[(current->number / 32 * 32 + lane) * 12]; }
inline void enter() {
    body();
    current->done = true;
    for (;;) swapcontext(&current->context, &scheduler);
}

inline Dim block_index, block_size, grid_size;

// Runs one block to its end; false when threads wait for a meeting that never comes.
inline bool run_block(Dim block, const std::function<void()>& kernel) {
    body = kernel;
    meetings.clear();
    fibers.clear();
    const int threads = block.x * block.y * block.z;
    board.assign(threads * 12, 0);
    for (int i = 0; i < threads; ++i) {
        auto f = std::make_unique<Fiber>();
        f->thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
        f->number = i;
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack.data();
        f->context.uc_stack.ss_size = f->stack.size();
        f->context.uc_link = nullptr;
        makecontext(&f->context, enter, 0);
        fibers.push_back(std::move(f));
    }
    for (long round = 0; round < 10'000'000; ++round) {
        bool left = false;
        for (auto& f : fibers) {
            if (f->done) continue;
            left = true;
            current = f.get();
            swapcontext(&scheduler, &f->context);
        }
        if (!left) return true;
    }
    return false;
}

}  // namespace emulator

#define threadIdx (emulator::current->thread)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)

inline void __syncthreads() { emulator::wait(0, static_cast<int>(emulator::fibers.size())); }
inline void meet(int barrier, int threads) { emulator::wait(barrier, threads); }

inline float __shfl_xor_sync(unsigned int, float v, int step) {
    std::memcpy(emulator::words_of(emulator::lane()), &v, 4);
    emulator::warp_meets();
    std::memcpy(&v, emulator::words_of(emulator::lane() ^ step), 4);
    emulator::warp_meets();
    return v;
}

inline unsigned int __shfl_sync(unsigned int, unsigned int v, int from) {
    *emulator::words_of(emulator::lane()) = v;
    emulator::warp_meets();
    v = *emulator::words_of(from);
    emulator::warp_meets();
    return v;
}

inline void let_next_start() {}
inline void await_previous() {}

inline uint4 load_once(const uint8_t* p) { return __ldg(reinterpret_cast<const uint4*>(p)); }

template <unsigned int kMask, unsigned int kBits>
unsigned int take(unsigned int word) { return (word & kMask) | kBits; }

inline float element(unsigned int pair, int i) { return __half2float(__ushort_as_half(pair >> (16 * i) & 0xffff)); }

inline unsigned int subtract_pairs(unsigned int a, unsigned int b) {
    unsigned int out = 0;
    for (int i = 0; i < 2; ++i)
        out |= static_cast<unsigned int>(__float2half_rn(element(a, i) - element(b, i)).bits) << (16 * i);
    return out;
}

// mma.m16n8k16 from the definition of its fragments.
inline void multiply_add(float (&d)[4], unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3,
                         unsigned int b0, unsigned int b1) {
    using emulator::words_of;
    const unsigned int mine[6] = {a0, a1, a2, a3, b0, b1};
    std::memcpy(words_of(emulator::lane()), mine, sizeof mine);
    emulator::warp_meets();
    const int g = emulator::lane() / 4, t = emulator::lane() % 4;
    for (int i = 0; i < 4; ++i) {
        const int row = g + i / 2 * 8, column = 2 * t + i % 2;
        for (int k = 0; k < 16; ++k) {
            const float a = element(words_of(row % 8 * 4 + k % 8 / 2)[k / 8 * 2 + row / 8], k % 2);
            const float b = element(words_of(column * 4 + k % 8 / 2)[4 + k / 8], k % 2);
            d[i] += a * b;
        }
    }
    emulator::warp_meets();
}

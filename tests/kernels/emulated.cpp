// gemv_int4.cu compiled for a CPU: run(name, grid, block, arguments) for every kernel in it.

#include <string>

#include "emulated.h"

uint4 shared[3072];  // 48 KiB: what a launch may ask for

#include "gemv_int4.cu"

using Kernel = void (*)(const uint8_t*, const __half*, const uint8_t*, const __half*, __half*, int, int);

#define ENTRY(NAME) {#NAME, NAME},
#define BOTH(NAME) ENTRY(NAME##_zp) ENTRY(NAME##_sym)
#define EACH(NAME) BOTH(NAME##_b16) BOTH(NAME##_b32) BOTH(NAME##_b64) BOTH(NAME##_b128)

static const std::map<std::string, Kernel> kernels = {
    EACH(gemv_int4_narrow) EACH(gemv_int4_wide_short) EACH(gemv_int4_wide_long) EACH(gemv_int4_wide_any)};

// 0 done, 1 no such kernel, 2 threads that wait for ever, 3 too much shared memory.
extern "C" int run(const char* name, const int* grid, const int* block, int shared_bytes, const uint8_t* packed,
                   const uint16_t* scales, const uint8_t* zero_points, const uint16_t* x, uint16_t* y, int n, int k) {
    const auto found = kernels.find(name);
    if (found == kernels.end()) return 1;
    if (shared_bytes > static_cast<int>(sizeof shared)) return 3;
    emulator::grid_size = {grid[0], grid[1], grid[2]};
    emulator::block_size = {block[0], block[1], block[2]};
    for (int b = 0; b < grid[0]; ++b) {
        emulator::block_index = {b, 0, 0};
        std::memset(shared, 0xff, sizeof shared);  // NaN wherever a kernel reads what it did not write
        const bool ended = emulator::run_block(emulator::block_size, [&] {
            found->second(packed, reinterpret_cast<const __half*>(scales), zero_points, reinterpret_cast<const __half*>(x),
                          reinterpret_cast<__half*>(y), n, k);
        });
        if (!ended) return 2;
    }
    return 0;
}

/*
 * y = W x for int4 weights in ONNX Runtime's MatMulNBits layout, M = 1, on the CPU. The weights are read as they lie.
 *
 * Layout, with blocks = ceil(k / block):
 *   packed       uint8   [n, blocks, block/2]    two codes a byte, low nibble first
 *   scales       float32 [n, blocks]
 *   zero_points  uint8   [n, ceil(blocks/2)]     low nibble = even block; NULL means 8 everywhere
 *   y[row] = sum over i of x[i] * scales[row, i/block] * (code[row, i] - zero[row, i/block])
 *
 * Every variant computes in the same order, so that one picture serves all:
 *   group  32 weights (16 when block is 16): blocks of 64 and 128 are 2 and 4 groups that share a scale
 *   chunk  16 groups: one lane of a 16-lane vector for each group's scale, zero point and sum
 *   span   128 weights, 64 packed bytes: one 512-bit load
 * The activation is put into the order in which codes come out of a span once a call, instead of the codes of every
 * row into the order of the activation. A row whose groups do not fill the last chunk has that chunk copied into a
 * zeroed buffer; activations beyond k are zero, so padding codes never count.
 *
 * Versions, each kept because it was faster than the one before it in one run, or needed by a processor that lacks it:
 *   portable    vector types of the compiler, four lanes (SSE2, NEON); on aarch64 with fused and widening NEON products
 *   avx2        codes to float by shift and convert; int8 by maddubs, whose 16-bit sums cannot overflow here
 *   avx512      a nibble to a float by one permute of a 16-entry table, no mask and no conversion
 *   avx512vnni  int8 only: four products and their sum in one instruction
 * What they share: rows one after another, a run a thread, since each restart of a stream costs (turns of 64 KiB at one
 * run read a third slower); codes prefetched (float32 from memory: plus two fifths); codes held in a register, because
 * the int8 loop is bound by loads (plus 9 %); the activation prepared with SIMD (2 us against 15). Tried and dropped:
 * two and four rows sharing a load of the activation, which gained nothing in cache and lost a third from memory;
 * prefetching scales and zero points, which cost a fifth in int8 mode.
 *
 * hk_gemv_f32, float32 activations: the zero point is hoisted, s * (sum x (c - 8) + (8 - z) sum x), the first sum in 16
 *   running lanes, fused multiply-adds.
 * hk_gemv_i8, activations rounded to int8 per block, a = max|x| / 127, q = round(x / a) (as ONNX Runtime does at
 *   accuracy level 4): the dot product of a group is an exact integer, then sum float(dot) * (s * a) in 16 lanes, not
 *   fused. All variants give the same bits. Error against exact arithmetic, besides float32 rounding of the sum:
 *   |error of y[row]| <= sum over blocks of max|x| / 254 * |scale| * sum |code - zero|, because no activation moves by
 *   more than half a step. (A block whose max|x| is under 1e-35 is taken as zero.)
 *
 * The bits of y do not depend on the number of threads or on where the weights lie: a row is one thread's, and the
 * order inside a row is fixed. In float32 mode avx2, avx512 and the NEON code of portable give the same bits too;
 * portable on x86-64 does not fuse and is within rounding of them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* sched_getcpu and thread affinity */
#endif
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HK_X86 1
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum {
    HK_OK = 0, HK_SHAPE = -1, HK_BLOCK = -2, HK_THREADS = -3, HK_UNKNOWN = -4, HK_UNUSABLE = -5, HK_MEMORY = -6,
    HK_SHARE = -7
};
enum { MODE_F32 = 0, MODE_I8 = 1, MODES = 2 };
enum { AUTO = 0, PORTABLE, AVX2, AVX512, AVX512VNNI, VARIANTS };
enum { LANES = 16, SPAN = 128, MAX_THREADS = 256 };

/* ---- Threads: a pool that is made at the first call, grows, and sleeps between calls ---------------------- */

typedef void (*work_fn)(void *context, int64_t first, int64_t last);

static struct {
    pthread_mutex_t calls;   /* one job at a time: held by the caller for the length of its call */
    pthread_mutex_t lock;    /* guards what follows, but for the atomics */
    pthread_cond_t wake;     /* a job was opened, or soon will be */
    pthread_cond_t idle;     /* the last helper left */
    atomic_uint ticket;      /* counts jobs, so that a waiting helper sees a new one without the lock */
    atomic_int inside;       /* helpers at work */
    atomic_int sleeping;     /* helpers that wait on `wake` */
    int workers;             /* helpers that exist */
    int open, seats, all;    /* a job takes helpers; how many more; seats in all, the caller's (0) included */
    int cpu;                 /* processor the caller was on when it opened the job */
    pthread_t caller;
    work_fn work;
    void *context;
    int64_t units, grain;
    struct {
        _Alignas(64) _Atomic uint64_t left; /* grains not yet taken of a seat's own run: first << 32 | end */
    } range[MAX_THREADS];
} pool = {.calls = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;

/* How long a thread spins before it sleeps: longer than the gap between passes, too short to burn a core. */
enum { SPIN_NS = 100000 };

INLINE int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

INLINE void relax(void) {
#if defined(HK_X86)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Spins while `condition` holds, for SPIN_NS at most by the clock: a pause is 40 cycles here, a microsecond there. */
#define SPIN_WHILE(condition)                                                                         \
    do {                                                                                              \
        const int64_t until = now_ns() + SPIN_NS;                                                     \
        while ((condition) && now_ns() < until)                                                       \
            for (int turn = 0; turn < 16 && (condition); turn++) relax();                             \
    } while (0)

INLINE int current_cpu(void) {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

/* Moves this helper off the caller's processor. On a busy machine the scheduler wakes a helper where the caller runs,
 * and the two then take turns instead of sharing the work, for as long as it sees no imbalance. */
static void step_aside(int cpu, pthread_t caller) {
#if defined(__linux__)
    cpu_set_t allowed;
    if (pthread_getaffinity_np(caller, sizeof allowed, &allowed) != 0 || !CPU_ISSET(cpu, &allowed)) return;
    CPU_CLR(cpu, &allowed);
    if (CPU_COUNT(&allowed) > 0) pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
#else
    (void)cpu, (void)caller;
#endif
}

struct job {
    work_fn work;
    void *context;
    int64_t units, grain;
    int seat, seats;
};

/* Every seat has a run of its own to read from front to back, which memory rewards: threads that took turns at one
 * run, 64 KiB each, read a third slower. Who is done takes the back half of what another has left, so a helper that is
 * disturbed, or never comes, holds nobody up. */
static void take_units(const struct job *job) {
    int seat = job->seat;
    _Atomic uint64_t *own = &pool.range[job->seat].left;
    for (int tried = 0; tried < job->seats;) {
        _Atomic uint64_t *from = &pool.range[seat].left;
        uint64_t left = atomic_load(from);
        const uint32_t first = (uint32_t)(left >> 32), end = (uint32_t)left;
        if (first >= end) { /* empty: look at the next seat's */
            seat = seat + 1 < job->seats ? seat + 1 : 0;
            tried++;
        } else if (from == own) {
            if (!atomic_compare_exchange_weak(from, &left, (uint64_t)(first + 1) << 32 | end)) continue;
            const int64_t row = first * job->grain, stop = row + job->grain;
            job->work(job->context, row, stop < job->units ? stop : job->units);
        } else {
            const uint32_t middle = first + (end - first) / 2;
            if (!atomic_compare_exchange_weak(from, &left, (uint64_t)first << 32 | middle)) continue;
            atomic_store(own, (uint64_t)middle << 32 | end);
            seat = job->seat;
            tried = 0;
        }
    }
}

static void *helper(void *unused) {
    (void)unused;
    unsigned seen = 0; /* a job that was opened before this thread came is still worth a look */
    for (;;) {
        SPIN_WHILE(atomic_load_explicit(&pool.ticket, memory_order_acquire) == seen);
        pthread_mutex_lock(&pool.lock);
        if (atomic_load_explicit(&pool.ticket, memory_order_relaxed) == seen) {
            pool.sleeping++;
            pthread_cond_wait(&pool.wake, &pool.lock);
            pool.sleeping--;
            pthread_mutex_unlock(&pool.lock);
            continue;
        }
        seen = atomic_load_explicit(&pool.ticket, memory_order_relaxed);
        if (pool.open && pool.seats > 0) {
            pool.seats--;
            pool.inside++;
            const struct job job = {pool.work, pool.context, pool.units, pool.grain, pool.seats + 1, pool.all};
            const int cpu = pool.cpu;
            const pthread_t caller = pool.caller; /* waits for this helper, so it lives */
            pthread_mutex_unlock(&pool.lock);
            if (cpu >= 0 && cpu == current_cpu()) step_aside(cpu, caller);
            take_units(&job);
            pthread_mutex_lock(&pool.lock);
            if (--pool.inside == 0) pthread_cond_signal(&pool.idle);
        }
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

/* The child of a fork has only the thread that forked: it starts over with an empty pool. */
static void pool_after_fork(void) {
    pthread_mutex_init(&pool.calls, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.idle, NULL);
    pool.workers = pool.open = pool.seats = 0;
    pool.sleeping = pool.inside = 0;
}

static void pool_prepare(void) { pthread_atfork(NULL, NULL, pool_after_fork); }

/* Wakes sleeping helpers a little before there is work for them. */
static void rouse(int threads) {
    if (threads > 1 && pool.sleeping > 0) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
}

/* work(context, first, last) over all units on up to `threads` threads, the caller's included. If the system refuses
 * another thread the job is done with those there are: fewer threads change the time, never the result. */
static void run_parallel(work_fn work, void *context, int64_t units, int64_t grain, int threads) {
    if (threads <= 1 || units <= grain) {
        work(context, 0, units);
        return;
    }
    pthread_once(&pool_once, pool_prepare);
    pthread_mutex_lock(&pool.calls);
    pthread_mutex_lock(&pool.lock);
    while (pool.workers < threads - 1) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, helper, NULL) != 0) break;
        pthread_detach(thread);
        pool.workers++;
    }
    pool.work = work;
    pool.context = context;
    pool.units = units;
    pool.grain = grain;
    pool.cpu = current_cpu();
    pool.caller = pthread_self();
    const int64_t grains = (units + grain - 1) / grain;
    for (int seat = 0; seat < threads; seat++)
        atomic_store(&pool.range[seat].left,
                     (uint64_t)(grains * seat / threads) << 32 | (uint64_t)(grains * (seat + 1) / threads));
    pool.open = 1;
    pool.all = threads;
    pool.seats = threads - 1;
    atomic_fetch_add_explicit(&pool.ticket, 1, memory_order_release);
    if (pool.sleeping > 0) pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);

    take_units(&(struct job){work, context, units, grain, 0, threads});

    pthread_mutex_lock(&pool.lock);
    pool.open = 0; /* who has not come by now need not */
    if (pool.inside > 0) {
        pthread_mutex_unlock(&pool.lock);
        SPIN_WHILE(pool.inside > 0);
        pthread_mutex_lock(&pool.lock);
        while (pool.inside > 0) pthread_cond_wait(&pool.idle, &pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.calls);
}

/* ---- A call: shape, prepared activation ------------------------------------------------------------------- */

struct gemv {
    const uint8_t *packed, *zeros;
    const float *scales;
    float *y;
    int64_t n, k;
    int block, group, share;             /* share: groups to a block */
    int64_t blocks, groups, chunks;      /* of a row; the last chunk may be part filled */
    int64_t row_bytes, row_zeros;
    float *x;                            /* f32: [span][8 nibbles][16 lanes], lane l nibble j = x[128 span + 8 l + j] */
    float *xsum;                         /* f32: [groups] sum of x */
    int8_t *q;                           /* i8: [span][2][64], even elements, then odd */
    int32_t *qsum;                       /* i8: [groups] sum of q */
    float *step;                         /* i8: [groups] scale of q */
    double repeat;
};

typedef void (*rows_fn)(const struct gemv *g, int64_t first, int64_t last);

/* What one row brings to one chunk. */
struct piece {
    const uint8_t *packed, *zeros;
    const float *scales;
};

struct tail {
    uint8_t packed[LANES * 16], zeros[8];
    float scales[LANES];
};

/* Chunk `chunk` of row `row`; a part-filled one is copied to `tail` with zeros behind it. */
INLINE struct piece piece_of(const struct gemv *g, int64_t row, int64_t chunk, const int group, const int share,
                             struct tail *tail) {
    const int64_t first = chunk * LANES, block = first / share, left = g->groups - first;
    struct piece p = {g->packed + row * g->row_bytes + first * (group / 2),
                      g->zeros ? g->zeros + row * g->row_zeros + block / 2 : NULL, g->scales + row * g->blocks + block};
    if (left >= LANES) return p;
    memset(tail, 0, sizeof *tail);
    memcpy(tail->packed, p.packed, (size_t)(left * (group / 2)));
    memcpy(tail->scales, p.scales, (size_t)(left / share) * sizeof(float));
    if (p.zeros) {
        memcpy(tail->zeros, p.zeros, (size_t)((left / share + 1) / 2));
        p.zeros = tail->zeros;
    }
    p.packed = tail->packed;
    p.scales = tail->scales;
    return p;
}

/* Sum of 16 lanes: halves onto each other, 8 then 4, 2, 1. Every variant adds in this order. */
INLINE float sum_lanes(const float *lane) {
    float s[8];
    for (int i = 0; i < 8; i++) s[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* Both prepare whole groups: `x` is padded with zeros up to the last group's end. */
INLINE void prepare_f32(struct gemv *g, const float *x) {
    const int64_t end = g->groups * g->group;
    for (int64_t span = 0; span < end; span += SPAN)
        for (int j = 0; j < 8; j++)
            for (int l = 0; l < LANES; l++) g->x[span + j * LANES + l] = x[span + l * 8 + j];
    for (int64_t group = 0; group < g->groups; group++) {
        float part[8] = {0};
        for (int i = 0; i < g->group; i += 8)
            for (int l = 0; l < 8; l++) part[l] += x[group * g->group + i + l];
        for (int l = 0; l < 4; l++) part[l] += part[l + 4];
        g->xsum[group] = (part[0] + part[2]) + (part[1] + part[3]);
    }
}

/* How a block of activations is rounded: to multiples of `size`. */
struct step {
    float size, inverse;
    int finite;
};

/* From the largest |x| of the block as integer bits, which order like the numbers, with infinity and NaN on top. */
INLINE struct step step_of(int32_t largest_bits) {
    float largest;
    memcpy(&largest, &largest_bits, sizeof largest);
    if (largest_bits >= 0x7F800000) return (struct step){NAN, 0, 0};
    if (largest < 1e-35f) return (struct step){0, 0, 1};
    return (struct step){largest / 127, 127 / largest, 1};
}

static void prepare_i8_portable(struct gemv *g, const float *x) {
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it leaves no fraction bits, rounding half to even */
    for (int64_t first = 0; first < g->groups * g->group; first += g->block) {
        int32_t largest = 0;
        for (int i = 0; i < g->block; i++) {
            int32_t bits;
            memcpy(&bits, x + first + i, sizeof bits);
            bits &= 0x7FFFFFFF;
            largest = bits > largest ? bits : largest;
        }
        const struct step step = step_of(largest);
        for (int64_t part = first; part < first + g->block; part += 16) {
            int8_t *even = g->q + (part & ~(int64_t)(SPAN - 1)) + (part & (SPAN - 1)) / 2;
            for (int i = 0; i < 16; i++) {
                const float scaled = step.finite ? x[part + i] * step.inverse : 0;
                const int32_t q = (int32_t)((scaled + to_integer) - to_integer);
                even[i / 2 + i % 2 * 64] = (int8_t)q;
                g->qsum[part / g->group] += q;
            }
            g->step[part / g->group] = step.size;
        }
    }
}

static void prepare_f32_portable(struct gemv *g, const float *x) { prepare_f32(g, x); }

/* ---- Portable --------------------------------------------------------------------------------------------- */

INLINE int zero_of(const uint8_t *zeros, int block) { return zeros ? (zeros[block / 2] >> 4 * (block & 1)) & 15 : 8; }

/* Four lanes at a time, in the vector types that GCC and clang have for every processor: left to themselves they unroll
 * these loops and then find nothing to vectorise. */
typedef float float4 __attribute__((vector_size(16)));
typedef int32_t int4 __attribute__((vector_size(16)));

INLINE float4 madd(float4 a, float4 b, float4 c) {
#if defined(__aarch64__)
    return (float4)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); /* the bits of the x86 variants */
#else
    return a * b + c;
#endif
}

INLINE float4 load4(const float *p) {
    float4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void rows_f32_portable(const struct gemv *call, int64_t first, int64_t last, const int group, const int share) {
    const struct gemv copy = *call, *const g = &copy; /* a store to y could change *call, never this */
    const int spans = group * LANES / SPAN, lanes_a_group = LANES * group / SPAN;
    struct tail tail;
    for (int64_t row = first; row < last; row++) {
        float4 acc[4] = {{0}}, zero[4] = {{0}};
        for (int64_t c = 0; c < g->chunks; c++) {
            const struct piece p = piece_of(g, row, c, group, share, &tail);
            for (int s = 0; s < spans; s++) {
                const float *x = g->x + (c * spans + s) * SPAN;
                for (int four = 0; four < 4; four++) {
                    int4 codes; /* eight nibbles a lane, lowest first: little-endian */
                    memcpy(&codes, p.packed + s * 64 + four * 16, sizeof codes);
                    float4 sum = __builtin_convertvector((codes & 15) - 8, float4) * load4(x + four * 4);
                    for (int j = 1; j < 8; j++) {
                        const float4 w = __builtin_convertvector((codes >> 4 * j & 15) - 8, float4);
                        sum = madd(w, load4(x + j * LANES + four * 4), sum);
                    }
                    const float *scale = p.scales; /* of each lane's group */
                    const int at = s * (LANES / lanes_a_group) + four * 4 / lanes_a_group;
                    const int next = at + (lanes_a_group == 2);
                    const float a = scale[at / share], b = scale[next / share];
                    acc[four] = madd(sum, (float4){a, a, b, b}, acc[four]);
                }
            }
            if (p.zeros)
                for (int l = 0; l < LANES; l += 4) {
                    float4 shift, scales;
                    for (int i = 0; i < 4; i++) {
                        shift[i] = (float)(8 - zero_of(p.zeros, (l + i) / share));
                        scales[i] = p.scales[(l + i) / share];
                    }
                    zero[l / 4] = madd(shift * load4(g->xsum + c * LANES + l), scales, zero[l / 4]);
                }
        }
        float lanes[LANES];
        for (int four = 0; four < 4; four++) acc[four] += zero[four];
        memcpy(lanes, acc, sizeof lanes);
        g->y[row] = sum_lanes(lanes);
    }
}

/* Sum of low nibble x even + high nibble x odd over `bytes` (8 or 16) codes. 2 x 15 x 127 fits 16 bits. */
INLINE int32_t dot_bytes(const uint8_t *code, const int8_t *even, const int8_t *odd, const int bytes) {
#if defined(__aarch64__)
    int32x4_t sum = vdupq_n_s32(0);
    for (int i = 0; i < bytes; i += 8) {
        const uint8x8_t c = vld1_u8(code + i);
        const int16x8_t low = vmull_s8(vreinterpret_s8_u8(vand_u8(c, vdup_n_u8(15))), vld1_s8(even + i));
        sum = vpadalq_s16(sum, vmlal_s8(low, vreinterpret_s8_u8(vshr_n_u8(c, 4)), vld1_s8(odd + i)));
    }
    return vaddvq_s32(sum);
#else
    int32_t sum = 0;
    for (int i = 0; i < bytes; i++) sum += (code[i] & 15) * even[i] + (code[i] >> 4) * odd[i];
    return sum;
#endif
}

INLINE void rows_i8_portable(const struct gemv *call, int64_t first, int64_t last, const int group, const int share) {
    const struct gemv copy = *call, *const g = &copy; /* a store to y could change *call, never this */
    struct tail tail;
    for (int64_t row = first; row < last; row++) {
        float acc[LANES] = {0};
        for (int64_t c = 0; c < g->chunks; c++) {
            const struct piece p = piece_of(g, row, c, group, share, &tail);
            for (int l = 0; l < LANES; l++) {
                const int byte = l * group / 2;
                const uint8_t *code = p.packed + byte;
                const int8_t *q = g->q + c * LANES * group + byte / 64 * SPAN + byte % 64;
                int32_t dot = dot_bytes(code, q, q + 64, group / 2);
                dot -= zero_of(p.zeros, l / share) * g->qsum[c * LANES + l];
                acc[l] += (float)dot * (p.scales[l / share] * g->step[c * LANES + l]);
            }
        }
        g->y[row] = sum_lanes(acc);
    }
}

/* One compiled body for each kind of block, so that shifts and trip counts are constants. */
#define FOR_EACH_BLOCK(name, attribute)                                                      \
    attribute static void name##_any(const struct gemv *g, int64_t first, int64_t last) {    \
        switch (g->block) {                                                                  \
        case 16: name(g, first, last, 16, 1); break;                                         \
        case 32: name(g, first, last, 32, 1); break;                                         \
        case 64: name(g, first, last, 32, 2); break;                                         \
        default: name(g, first, last, 32, 4); break;                                         \
        }                                                                                    \
    }

FOR_EACH_BLOCK(rows_f32_portable, )
FOR_EACH_BLOCK(rows_i8_portable, )

/* ---- x86-64: bodies compiled for wider processors than the rest of the file ------------------------------- */

#if defined(HK_X86)
#define T_AVX2 __attribute__((target("avx2,fma")))
#define T_AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define T_VNNI __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define UNROLL _Pragma("GCC unroll 16")

/* Codes are asked for this many bytes ahead, past the end too, where it does nothing. The processor's own prefetching
 * loses its lead in a loop with this much arithmetic to the byte: with it float32 reads gain
 * two fifths, int8 7 %. */
enum { AHEAD_F32 = 2048, AHEAD_I8 = 4096 };
#define PREFETCH(p, ahead) __builtin_prefetch((const void *)((uintptr_t)(p) + (ahead)), 0, 3)

/* Holds a loaded vector in a register: compilers fold the load into every instruction that uses it otherwise. */
#define KEEP(v) __asm__("" : "+v"(v))

/* The zero points of a chunk as one integer, group 0 in the lowest bits: 16 / share nibbles. */
INLINE uint64_t zero_bits(const uint8_t *zeros, const int share) {
    uint64_t bits = 0;
    memcpy(&bits, zeros, (size_t)(8 / share));
    return bits;
}

/* AVX2: sum_lanes of two registers, in its order. */
T_AVX2 INLINE float sum_256(__m256 low, __m256 high) {
    const __m256 s8 = _mm256_add_ps(low, high);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    s4 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s4, _mm_movehdup_ps(s4)));
}

/* Zero points of the 8 groups in half h of a chunk, one a lane. */
T_AVX2 INLINE __m256i zeros_256(const uint8_t *zeros, const int share, const int h) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i shift = _mm256_slli_epi32(_mm256_srli_epi32(lane, share / 2), 2); /* share / 2 = log2(share) */
    const __m256i bits = _mm256_set1_epi32((int)(zero_bits(zeros, share) >> (32 / share * h)));
    return _mm256_and_si256(_mm256_srlv_epi32(bits, shift), _mm256_set1_epi32(15));
}

/* Scales of the 8 groups in half h of a chunk, one a lane. */
T_AVX2 INLINE __m256 scales_256(const float *scales, const int share, const int h) {
    if (share == 1) return _mm256_loadu_ps(scales + 8 * h);
    const __m128 four = _mm_loadu_ps(share == 2 ? scales + 4 * h : scales);
    const __m256i pick = share == 2 ? _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)
                         : h == 0   ? _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)
                                    : _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(four), pick);
}

T_AVX2 INLINE void rows_f32_avx2(const struct gemv *call, int64_t first, int64_t last, const int group,
                               const int share) {
    const struct gemv copy = *call, *const g = &copy; /* a store to y could change *call, never this */
    const int spans = group * LANES / SPAN;
    const __m256i signs = _mm256_set1_epi32((int)0x88888888); /* flips a code into the two's complement of code - 8 */
    const __m256i pairs = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    struct tail tail;
    for (int64_t row = first; row < last; row++) {
        __m256 acc[2], zero[2];
        UNROLL for (int h = 0; h < 2; h++) acc[h] = zero[h] = _mm256_setzero_ps();
        for (int64_t c = 0; c < g->chunks; c++) {
            const struct piece p = piece_of(g, row, c, group, share, &tail);
            const float *x = g->x + c * spans * SPAN;
            UNROLL for (int half = 0; half < 2 * spans; half++) {
                const int h = half & 1;
                const float *xs = x + half / 2 * SPAN + 8 * h;
                __m256i v = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(p.packed + half * 32)), signs);
                if (h) PREFETCH(p.packed + half * 32, AHEAD_F32);
                __m256 sum = _mm256_setzero_ps();
                UNROLL for (int j = 0; j < 8; j++) {
                    const __m256 w = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v, 28 - 4 * j), 28));
                    const __m256 xj = _mm256_load_ps(xs + j * LANES);
                    sum = j ? _mm256_fmadd_ps(w, xj, sum) : _mm256_mul_ps(w, xj);
                }
                __m256 scale;
                if (group == 16) {
                    scale = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p.scales + 4 * half)), pairs);
                } else {
                    const int a = half * 2 / share, b = (half * 2 + 1) / share;
                    scale = _mm256_set1_ps(p.scales[a]);
                    if (a != b) scale = _mm256_blend_ps(scale, _mm256_set1_ps(p.scales[b]), 0xF0);
                }
                acc[h] = _mm256_fmadd_ps(sum, scale, acc[h]);
            }
            if (p.zeros) UNROLL for (int h = 0; h < 2; h++) {
                const __m256i z = _mm256_sub_epi32(_mm256_set1_epi32(8), zeros_256(p.zeros, share, h));
                const __m256 shift = _mm256_mul_ps(_mm256_cvtepi32_ps(z), _mm256_load_ps(g->xsum + c * LANES + 8 * h));
                zero[h] = _mm256_fmadd_ps(shift, scales_256(p.scales, share, h), zero[h]);
            }
        }
        g->y[row] = sum_256(_mm256_add_ps(acc[0], zero[0]), _mm256_add_ps(acc[1], zero[1]));
    }
}

T_AVX2 INLINE void rows_i8_avx2(const struct gemv *call, int64_t first, int64_t last, const int group,
                               const int share) {
    const struct gemv copy = *call, *const g = &copy; /* a store to y could change *call, never this */
    const int parts = group * LANES / 64; /* of 32 bytes */
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    struct tail tail;
    for (int64_t row = first; row < last; row++) {
        __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int64_t c = 0; c < g->chunks; c++) {
            const struct piece p = piece_of(g, row, c, group, share, &tail);
            const int8_t *q = g->q + c * parts * 64;
            __m256i part[8];
            UNROLL for (int i = 0; i < parts; i++) {
                const __m256i v = _mm256_loadu_si256((const __m256i *)(p.packed + i * 32));
                if (i & 1) PREFETCH(p.packed + i * 32, AHEAD_I8);
                const __m256i *even = (const __m256i *)(q + i / 2 * SPAN + i % 2 * 32);
                const __m256i a = _mm256_maddubs_epi16(_mm256_and_si256(v, low), even[0]);
                const __m256i b = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(v, 4), low), even[2]);
                part[i] = _mm256_madd_epi16(_mm256_add_epi16(a, b), ones); /* 4 x 15 x 127 fits 16 bits */
            }
            UNROLL for (int h = 0; h < 2; h++) {
                __m256i dot; /* of groups 8 h to 8 h + 7 */
                if (group == 32) {
                    dot = _mm256_hadd_epi32(_mm256_hadd_epi32(part[4 * h], part[4 * h + 1]),
                                            _mm256_hadd_epi32(part[4 * h + 2], part[4 * h + 3]));
                    dot = _mm256_permutevar8x32_epi32(dot, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
                } else {
                    dot = _mm256_permute4x64_epi64(_mm256_hadd_epi32(part[2 * h], part[2 * h + 1]), 0xD8);
                }
                const __m256i z = p.zeros ? zeros_256(p.zeros, share, h) : _mm256_set1_epi32(8);
                const __m256i qsum = _mm256_load_si256((const __m256i *)(g->qsum + c * LANES + 8 * h));
                dot = _mm256_sub_epi32(dot, _mm256_madd_epi16(z, qsum)); /* |qsum| <= 32 x 127 fits 16 bits */
                const __m256 step = _mm256_load_ps(g->step + c * LANES + 8 * h);
                const __m256 scale = _mm256_mul_ps(scales_256(p.scales, share, h), step);
                acc[h] = _mm256_add_ps(acc[h], _mm256_mul_ps(_mm256_cvtepi32_ps(dot), scale));
            }
        }
        g->y[row] = sum_256(acc[0], acc[1]);
    }
}

T_AVX512 INLINE float sum_512(__m512 v) { return sum_256(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }

/* Lane l is l / every + from, every a power of two: which group a lane belongs to. */
T_AVX512 INLINE __m512i lanes_512(const int every, const int from) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(_mm512_srli_epi32(lane, (unsigned)__builtin_ctz((unsigned)every)), _mm512_set1_epi32(from));
}

T_AVX512 INLINE __m512i zeros_512(const uint8_t *zeros, const int share) {
    const __m512i bits = _mm512_set1_epi64((long long)zero_bits(zeros, share));
    const __m512i nibble = lanes_512(share, 0); /* a lane's own: 0 to 7 in the low half of bits */
    const __m512i word = _mm512_permutexvar_epi32(_mm512_srli_epi32(nibble, 3), bits);
    const __m512i shift = _mm512_slli_epi32(_mm512_and_si512(nibble, _mm512_set1_epi32(7)), 2);
    return _mm512_and_si512(_mm512_srlv_epi32(word, shift), _mm512_set1_epi32(15));
}

/* The 16 / share scales of a chunk in the lowest lanes. */
T_AVX512 INLINE __m512 scales_512(const float *scales, const int share) {
    if (share == 1) return _mm512_loadu_ps(scales);
    if (share == 2) return _mm512_castps256_ps512(_mm256_loadu_ps(scales));
    return _mm512_castps128_ps512(_mm_loadu_ps(scales));
}

T_AVX512 INLINE __m512 one_a_group_512(__m512 scales, const int share) {
    return share == 1 ? scales : _mm512_permutexvar_ps(lanes_512(share, 0), scales);
}

/* A nibble becomes a float by one permute, the low four bits of each lane choosing among 16: no mask, no conversion. */
T_AVX512 INLINE void rows_f32_avx512(const struct gemv *call, int64_t first, int64_t last, const int group,
                                     const int share) {
    const struct gemv copy = *call, *const g = &copy; /* a store to y could change *call, never this */
    const int spans = group * LANES / SPAN, lanes_a_group = LANES * group / SPAN;
    const __m512 codes = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    struct tail tail;
    for (int64_t row = first; row < last; row++) {
        __m512 acc = _mm512_setzero_ps(), zero = _mm512_setzero_ps();
        for (int64_t c = 0; c < g->chunks; c++) {
            const struct piece p = piece_of(g, row, c, group, share, &tail);
            const __m512 scales = scales_512(p.scales, share);
            const float *x = g->x + c * spans * SPAN;
            UNROLL for (int s = 0; s < spans; s++) {
                __m512i v = _mm512_loadu_si512(p.packed + s * 64);
                PREFETCH(p.packed + s * 64, AHEAD_F32);
                KEEP(v);
                __m512 sum = _mm512_setzero_ps();
                UNROLL for (int j = 0; j < 8; j++) {
                    const __m512 w = _mm512_permutexvar_ps(_mm512_srli_epi32(v, 4 * j), codes);
                    const __m512 xj = _mm512_load_ps(x + s * SPAN + j * LANES);
                    sum = j ? _mm512_fmadd_ps(w, xj, sum) : _mm512_mul_ps(w, xj);
                }
                /* The group of lane l in this span, over share: its scale. */
                const __m512i pick = lanes_512(lanes_a_group * share, s * (LANES / lanes_a_group) / share);
                acc = _mm512_fmadd_ps(sum, _mm512_permutexvar_ps(pick, scales), acc);
            }
            if (p.zeros) {
                const __m512i z = _mm512_sub_epi32(_mm512_set1_epi32(8), zeros_512(p.zeros, share));
                const __m512 shift = _mm512_mul_ps(_mm512_cvtepi32_ps(z), _mm512_load_ps(g->xsum + c * LANES));
                zero = _mm512_fmadd_ps(shift, one_a_group_512(scales, share), zero);
            }
        }
        g->y[row] = sum_512(_mm512_add_ps(acc, zero));
    }
}

/* Products of 4 codes and 4 activations a lane, added: one instruction with VNNI. */
T_AVX512 INLINE __m512i dot_avx512(__m512i sum, __m512i codes, __m512i q) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, q), _mm512_set1_epi16(1)));
}
T_VNNI INLINE __m512i dot_avx512vnni(__m512i sum, __m512i codes, __m512i q) {
    return _mm512_dpbusd_epi32(sum, codes, q);
}

/* Sums of each 4 lanes (2 when group is 16) of the vectors of a chunk, in the order of the groups. */
T_AVX512 INLINE __m512i groups_512(const __m512i *v, const int group) {
    if (group == 32) {
        const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
        const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
        const __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), c);
    }
    const __m512 a = _mm512_castsi512_ps(v[0]), b = _mm512_castsi512_ps(v[1]);
    const __m512i c = _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                                       _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD)));
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15), c);
}

#define ROWS_I8(name, target, dot)                                                                                     \
    target INLINE void name(const struct gemv *call, int64_t first, int64_t last, const int group, const int share) {  \
        const struct gemv copy = *call, *const g = &copy;                                                              \
        const int spans = group * LANES / SPAN;                                                                        \
        const __m512i low = _mm512_set1_epi8(15);                                                                      \
        struct tail tail;                                                                                              \
        for (int64_t row = first; row < last; row++) {                                                                 \
            __m512 acc = _mm512_setzero_ps();                                                                          \
            for (int64_t c = 0; c < g->chunks; c++) {                                                                  \
                const struct piece p = piece_of(g, row, c, group, share, &tail);                                       \
                const __m512i *q = (const __m512i *)(g->q + c * spans * SPAN);                                         \
                __m512i part[4];                                                                                       \
                UNROLL for (int s = 0; s < spans; s++) {                                                               \
                    __m512i v = _mm512_loadu_si512(p.packed + s * 64);                                                 \
                    KEEP(v);                                                                                           \
                    PREFETCH(p.packed + s * 64, AHEAD_I8);                                                             \
                    part[s] = dot(_mm512_setzero_si512(), _mm512_and_si512(v, low), q[2 * s]);                         \
                    part[s] = dot(part[s], _mm512_and_si512(_mm512_srli_epi16(v, 4), low), q[2 * s + 1]);              \
                }                                                                                                      \
                const __m512i z = p.zeros ? zeros_512(p.zeros, share) : _mm512_set1_epi32(8);                          \
                const __m512i qsum = _mm512_load_si512(g->qsum + c * LANES); /* |qsum| <= 32 x 127 fits 16 bits */     \
                const __m512i sum = _mm512_sub_epi32(groups_512(part, group), _mm512_madd_epi16(z, qsum));             \
                const __m512 scale = one_a_group_512(scales_512(p.scales, share), share);                              \
                const __m512 both = _mm512_mul_ps(scale, _mm512_load_ps(g->step + c * LANES));                         \
                acc = _mm512_add_ps(acc, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), both));                                \
            }                                                                                                          \
            g->y[row] = sum_512(acc);                                                                                  \
        }                                                                                                              \
    }

ROWS_I8(rows_i8_avx512, T_AVX512, dot_avx512)
ROWS_I8(rows_i8_avx512vnni, T_VNNI, dot_avx512vnni)

/* prepare_f32 compiled for wider vectors: no fused arithmetic in it, so no other bits. */
T_AVX2 static void prepare_f32_avx2(struct gemv *g, const float *x) { prepare_f32(g, x); }

/* prepare_i8 by hand, same bits: compilers make scalar code of the deinterleaving. */
T_AVX2 static void prepare_i8_avx2(struct gemv *g, const float *x) {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF), ones = _mm256_set1_epi16(1);
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    for (int64_t first = 0; first < g->groups * g->group; first += g->block) {
        __m256i most = _mm256_setzero_si256();
        for (int i = 0; i < g->block; i += 8) {
            const __m256i bits = _mm256_loadu_si256((const __m256i *)(x + first + i));
            most = _mm256_max_epi32(most, _mm256_and_si256(magnitude, bits));
        }
        __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
        m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
        m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
        const struct step step = step_of(_mm_cvtsi128_si32(m));
        const __m256 inverse = _mm256_set1_ps(step.inverse);
        for (int64_t part = first; part < first + g->block; part += 16) {
            const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + part), inverse));
            const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + part + 8), inverse));
            __m256i q = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8); /* 16 bits each, in order */
            if (!step.finite) q = _mm256_setzero_si256();
            const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
            const __m128i halves = _mm_shuffle_epi8(bytes, even_odd);
            int8_t *even = g->q + (part & ~(int64_t)(SPAN - 1)) + (part & (SPAN - 1)) / 2;
            _mm_storel_epi64((__m128i *)even, halves);
            _mm_storel_epi64((__m128i *)(even + 64), _mm_unpackhi_epi64(halves, halves));
            const __m256i pairs = _mm256_madd_epi16(q, ones);
            __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
            sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
            sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
            g->qsum[part / g->group] += _mm_cvtsi128_si32(sum);
            g->step[part / g->group] = step.size;
        }
    }
}

FOR_EACH_BLOCK(rows_f32_avx2, T_AVX2)
FOR_EACH_BLOCK(rows_i8_avx2, T_AVX2)
FOR_EACH_BLOCK(rows_f32_avx512, T_AVX512)
FOR_EACH_BLOCK(rows_i8_avx512, T_AVX512)
FOR_EACH_BLOCK(rows_i8_avx512vnni, T_VNNI)
#endif

/* ---- Choice of variant ------------------------------------------------------------------------------------ */

static const char *const names[VARIANTS] = {"auto", "portable", "avx2", "avx512", "avx512vnni"};

static rows_fn implementation(int variant, int mode) {
    static const rows_fn table[VARIANTS][MODES] = {
        [PORTABLE] = {rows_f32_portable_any, rows_i8_portable_any},
#if defined(HK_X86)
        [AVX2] = {rows_f32_avx2_any, rows_i8_avx2_any},
        [AVX512] = {rows_f32_avx512_any, rows_i8_avx512_any},
        [AVX512VNNI] = {NULL, rows_i8_avx512vnni_any},
#endif
    };
    return table[variant][mode];
}

/* 1 when this processor, and the operating system, run the instructions of a variant. */
static int supported(int variant) {
    if (variant == PORTABLE) return 1;
#if defined(HK_X86)
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (variant == AVX2) return avx2;
    if (variant == AVX512) return avx512;
    if (variant == AVX512VNNI) return avx512 && __builtin_cpu_supports("avx512vnni");
#endif
    return 0;
}

static void (*preparation(int mode))(struct gemv *g, const float *x) {
#if defined(HK_X86)
    if (supported(AVX2)) return mode == MODE_F32 ? prepare_f32_avx2 : prepare_i8_avx2;
#endif
    return mode == MODE_F32 ? prepare_f32_portable : prepare_i8_portable;
}

int hk_variants(void) { return VARIANTS; }

const char *hk_variant_name(int variant) { return variant >= 0 && variant < VARIANTS ? names[variant] : NULL; }

int hk_variant_usable(int variant, int mode) {
    if (variant <= AUTO || variant >= VARIANTS || mode < 0 || mode >= MODES) return 0;
    return implementation(variant, mode) != NULL && supported(variant);
}

static int fastest(int mode) {
    int variant = VARIANTS - 1;
    while (!hk_variant_usable(variant, mode)) variant--; /* portable is always usable */
    return variant;
}

const char *hk_variant_auto(int mode) { return mode < 0 || mode >= MODES ? NULL : names[fastest(mode)]; }

/* ---- Entry points ----------------------------------------------------------------------------------------- */

struct rows {
    const struct gemv *g;
    rows_fn body;
};

static void work_rows(void *context, int64_t first, int64_t last) {
    const struct rows *rows = context;
    rows->body(rows->g, first, last);
    if (rows->g->repeat > 0) {
        /* The repeated rows of [0, n) are those where floor(row * share) steps, spread evenly over all threads. */
        for (int64_t row = first; row < last; row++)
            if ((int64_t)((double)(row + 1) * rows->g->repeat) > (int64_t)((double)row * rows->g->repeat))
                rows->body(rows->g, row, row + 1);
    }
}

static int gemv(const uint8_t *packed, const float *scales, const uint8_t *zero_points, const float *x, float *y,
                int64_t n, int64_t k, int block, int threads, int variant, int mode, double repeat) {
    if (!packed || !scales || !x || !y || n < 1 || k < 1) return HK_SHAPE;
    if (block != 16 && block != 32 && block != 64 && block != 128) return HK_BLOCK;
    if (threads < 1 || threads > MAX_THREADS) return HK_THREADS;
    if (variant < AUTO || variant >= VARIANTS) return HK_UNKNOWN;
    if (variant == AUTO) variant = fastest(mode);
    if (!hk_variant_usable(variant, mode)) return HK_UNUSABLE;

    struct gemv g = {.packed = packed, .zeros = zero_points, .scales = scales, .y = y, .n = n, .k = k, .block = block,
                     .repeat = repeat};
    g.group = block == 16 ? 16 : 32;
    g.share = block / g.group;
    g.blocks = (k + block - 1) / block;
    g.groups = g.blocks * g.share;
    g.chunks = (g.groups + LANES - 1) / LANES;
    g.row_bytes = g.blocks * block / 2;
    g.row_zeros = (g.blocks + 1) / 2;

    rouse(threads);
    const size_t slots = (size_t)g.chunks * LANES, elements = slots * (size_t)g.group;
    const size_t prepared =
        mode == MODE_F32 ? (elements + slots) * sizeof(float) : elements + 2 * slots * sizeof(float);
    char *memory;
    if (posix_memalign((void **)&memory, 64, prepared + elements * sizeof(float)) != 0) return HK_MEMORY;
    memset(memory, 0, prepared);
    float *padded = (float *)(memory + prepared);
    memcpy(padded, x, (size_t)k * sizeof(float));
    memset(padded + k, 0, (elements - (size_t)k) * sizeof(float));
    if (mode == MODE_F32) {
        g.x = (float *)memory;
        g.xsum = g.x + elements;
    } else {
        g.q = (int8_t *)memory;
        g.qsum = (int32_t *)(memory + elements);
        g.step = (float *)(g.qsum + slots);
    }
    preparation(mode)(&g, padded);
    struct rows rows = {&g, implementation(variant, mode)};
    int64_t grain = (64 << 10) / g.row_bytes; /* about 64 KiB */
    grain = grain < 4 ? 4 : grain & ~(int64_t)3;
    run_parallel(work_rows, &rows, n, grain, threads);
    free(memory);
    return HK_OK;
}

int hk_gemv_f32(const uint8_t *packed, const float *scales, const uint8_t *zero_points, const float *x, float *y,
                int64_t n, int64_t k, int block, int threads, int variant) {
    return gemv(packed, scales, zero_points, x, y, n, k, block, threads, variant, MODE_F32, 0);
}

int hk_gemv_i8(const uint8_t *packed, const float *scales, const uint8_t *zero_points, const float *x, float *y,
               int64_t n, int64_t k, int block, int threads, int variant) {
    return gemv(packed, scales, zero_points, x, y, n, k, block, threads, variant, MODE_I8, 0);
}

/* The same result, with the work done again on `share` (0 to 1) of the rows: a slowdown of known size. */
int hk_gemv_f32_repeat(const uint8_t *packed, const float *scales, const uint8_t *zero_points, const float *x, float *y,
                       int64_t n, int64_t k, int block, int threads, int variant, double share) {
    if (!(share >= 0 && share <= 1)) return HK_SHARE;
    return gemv(packed, scales, zero_points, x, y, n, k, block, threads, variant, MODE_F32, share);
}

/* ---- Streaming read and copy: what the memory can do ------------------------------------------------------ */

struct stream {
    const uint8_t *src;
    uint8_t *dst;
    int64_t bytes, piece;
    uint64_t (*add)(const uint8_t *p, int64_t bytes);
    _Atomic uint64_t sum;
};

static uint64_t sum_words(const uint8_t *p, int64_t bytes) {
    uint64_t lane[8] = {0};
    int64_t i = 0;
    for (; i + 64 <= bytes; i += 64) {
        uint64_t word[8];
        memcpy(word, p + i, 64);
        for (int l = 0; l < 8; l++) lane[l] += word[l];
    }
    for (; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, p + i, (size_t)(bytes - i < 8 ? bytes - i : 8));
        lane[0] += word;
    }
    for (int l = 1; l < 8; l++) lane[0] += lane[l];
    return lane[0];
}

#if defined(HK_X86)
/* The same sum with wide loads: the readings it bounds use them too. */
T_AVX2 static uint64_t sum_words_avx2(const uint8_t *p, int64_t bytes) {
    __m256i lane[4];
    uint64_t word[4];
    UNROLL for (int l = 0; l < 4; l++) lane[l] = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 128 <= bytes; i += 128)
        UNROLL for (int l = 0; l < 4; l++) {
            if (l & 1) PREFETCH(p + i + 32 * l, AHEAD_I8);
            lane[l] = _mm256_add_epi64(lane[l], _mm256_loadu_si256((const __m256i *)(p + i + 32 * l)));
        }
    lane[0] = _mm256_add_epi64(_mm256_add_epi64(lane[0], lane[1]), _mm256_add_epi64(lane[2], lane[3]));
    _mm256_storeu_si256((__m256i *)word, lane[0]);
    return word[0] + word[1] + word[2] + word[3] + sum_words(p + i, bytes - i);
}

T_AVX512 static uint64_t sum_words_avx512(const uint8_t *p, int64_t bytes) {
    __m512i lane[4];
    UNROLL for (int l = 0; l < 4; l++) lane[l] = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + 256 <= bytes; i += 256)
        UNROLL for (int l = 0; l < 4; l++) {
            PREFETCH(p + i + 64 * l, AHEAD_I8);
            lane[l] = _mm512_add_epi64(lane[l], _mm512_loadu_si512(p + i + 64 * l));
        }
    const __m512i sum = _mm512_add_epi64(_mm512_add_epi64(lane[0], lane[1]), _mm512_add_epi64(lane[2], lane[3]));
    return (uint64_t)_mm512_reduce_add_epi64(sum) + sum_words(p + i, bytes - i);
}
#endif

static uint64_t (*sum_function(void))(const uint8_t *, int64_t) {
#if defined(HK_X86)
    if (supported(AVX512)) return sum_words_avx512;
    if (supported(AVX2)) return sum_words_avx2;
#endif
    return sum_words;
}

static void work_stream(void *context, int64_t first, int64_t last) {
    struct stream *s = context;
    const int64_t from = first * s->piece, to = last * s->piece < s->bytes ? last * s->piece : s->bytes;
    atomic_fetch_add_explicit(&s->sum, s->add(s->src + from, to - from), memory_order_relaxed);
}

static void work_copy(void *context, int64_t first, int64_t last) {
    struct stream *s = context;
    const int64_t from = first * s->piece, to = last * s->piece < s->bytes ? last * s->piece : s->bytes;
    memcpy(s->dst + from, s->src + from, (size_t)(to - from));
}

/* Reads every byte once and adds up the little-endian 64-bit words, modulo 2^64, the last one padded with zeros. */
int hk_stream_read(const uint8_t *p, int64_t bytes, int threads, uint64_t *sum) {
    if (!p || !sum || bytes < 1) return HK_SHAPE;
    if (threads < 1 || threads > MAX_THREADS) return HK_THREADS;
    struct stream s = {.src = p, .bytes = bytes, .piece = 64 << 10, .add = sum_function()};
    run_parallel(work_stream, &s, (bytes + s.piece - 1) / s.piece, 1, threads);
    *sum = atomic_load(&s.sum);
    return HK_OK;
}

/* memcpy, one run of bytes a thread. */
int hk_copy(uint8_t *dst, const uint8_t *src, int64_t bytes, int threads) {
    if (!dst || !src || bytes < 1) return HK_SHAPE;
    if (threads < 1 || threads > MAX_THREADS) return HK_THREADS;
    struct stream s = {.src = src, .dst = dst, .bytes = bytes};
    s.piece = ((bytes + threads - 1) / threads + 63) & ~(int64_t)63;
    run_parallel(work_copy, &s, (bytes + s.piece - 1) / s.piece, 1, threads);
    return HK_OK;
}

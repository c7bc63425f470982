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
 * hk_gemv_f32, float32 activations: the zero point is hoisted, s * (sum x (c - 8) + (8 - z) sum x), the first sum in 16
 *   running lanes, fused multiply-adds.
 * hk_gemv_i8, activations rounded to int8 per block, a = max|x| / 127, q = round(x / a) (as ONNX Runtime does at
 *   accuracy level 4): the dot product of a group is an exact integer, then sum float(dot) * (s * a) in 16 lanes without
 *   fusing. All variants give the same bits. Error against exact arithmetic, besides float32 rounding of the sum:
 *   |error of y[row]| <= sum over blocks of max|x| / 254 * |scale| * sum |code - zero|, because no activation moves by
 *   more than half a step. (A block whose max|x| is under 1e-35 is taken as zero.)
 *
 * The bits of y do not depend on the number of threads or on where the weights lie: a row is one thread's, and the order
 * inside a row is fixed. Threads take rows from a shared counter, so that a disturbed one takes fewer.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HK_X86 1
#endif

#define INLINE static inline __attribute__((always_inline))

enum { HK_OK = 0, HK_SHAPE = -1, HK_BLOCK = -2, HK_THREADS = -3, HK_UNKNOWN = -4, HK_UNUSABLE = -5, HK_MEMORY = -6, HK_SHARE = -7 };
enum { MODE_F32 = 0, MODE_I8 = 1, MODES = 2 };
enum { AUTO = 0, PORTABLE, AVX2, AVX512, AVX512VNNI, VARIANTS };
enum { LANES = 16, SPAN = 128, MAX_THREADS = 256 };

/* ---- Threads: a pool that is made at the first call, grows, and sleeps between calls ---------------------------- */

typedef void (*work_fn)(void *context, int64_t first, int64_t last);

static struct {
    pthread_mutex_t calls;   /* one job at a time: held by the caller for the length of its call */
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t wake;     /* a job was opened */
    pthread_cond_t idle;     /* the last helper left */
    atomic_uint ticket;      /* counts jobs, so that a waiting helper sees a new one without the lock */
    int workers, sleeping;   /* threads that exist; those of them that wait on `wake` */
    int open, seats, inside; /* a job takes helpers; how many more; how many are at work */
    work_fn work;
    void *context;
    int64_t units, grain;
    _Atomic int64_t next; /* first unit nobody has taken */
} pool = {.calls = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;

enum { SPINS = 4000 }; /* about 50-100 us of `pause`: longer than the gap between passes, too short to burn a core */

INLINE void relax(void) {
#if defined(HK_X86)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static void take_units(work_fn work, void *context, int64_t units, int64_t grain) {
    for (;;) {
        int64_t first = atomic_fetch_add_explicit(&pool.next, grain, memory_order_relaxed);
        if (first >= units) return;
        work(context, first, first + grain < units ? first + grain : units);
    }
}

static void *helper(void *unused) {
    (void)unused;
    unsigned seen = 0; /* a job that was opened before this thread came is still worth a look */
    for (;;) {
        for (int i = 0; i < SPINS && atomic_load_explicit(&pool.ticket, memory_order_acquire) == seen; i++) relax();
        pthread_mutex_lock(&pool.lock);
        while (atomic_load_explicit(&pool.ticket, memory_order_relaxed) == seen) {
            pool.sleeping++;
            pthread_cond_wait(&pool.wake, &pool.lock);
            pool.sleeping--;
        }
        seen = atomic_load_explicit(&pool.ticket, memory_order_relaxed);
        if (pool.open && pool.seats > 0) {
            pool.seats--;
            pool.inside++;
            work_fn work = pool.work;
            void *context = pool.context;
            int64_t units = pool.units, grain = pool.grain;
            pthread_mutex_unlock(&pool.lock);
            take_units(work, context, units, grain);
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
    pool.workers = pool.sleeping = pool.open = pool.seats = pool.inside = 0;
}

static void pool_prepare(void) { pthread_atfork(NULL, NULL, pool_after_fork); }

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
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    pool.open = 1;
    pool.seats = threads - 1;
    atomic_fetch_add_explicit(&pool.ticket, 1, memory_order_release);
    if (pool.sleeping > 0) pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);

    take_units(work, context, units, grain);

    pthread_mutex_lock(&pool.lock);
    pool.open = 0; /* who has not come by now need not */
    while (pool.inside > 0) pthread_cond_wait(&pool.idle, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.calls);
}

/* ---- A call: shape, prepared activation --------------------------------------------------------------------------- */

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
INLINE struct piece piece_of(const struct gemv *g, int64_t row, int64_t chunk, int group, int share, struct tail *tail) {
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

static void prepare_f32(struct gemv *g, const float *x) {
    for (int64_t i = 0; i < g->k; i++) g->x[(i & ~127) + (i & 7) * LANES + ((i & 127) >> 3)] = x[i];
    for (int64_t first = 0, group = 0; first < g->k; first += g->group, group++) {
        const int64_t last = first + g->group < g->k ? first + g->group : g->k;
        float sum = 0;
        for (int64_t i = first; i < last; i++) sum += x[i];
        g->xsum[group] = sum;
    }
}

static void prepare_i8(struct gemv *g, const float *x) {
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it leaves no fraction bits, rounding half to even */
    for (int64_t first = 0; first < g->k; first += g->block) {
        const int64_t last = first + g->block < g->k ? first + g->block : g->k;
        float largest = 0;
        int finite = 1;
        for (int64_t i = first; i < last; i++) {
            const float size = fabsf(x[i]);
            finite &= size <= 3.4028234e38f;
            largest = size > largest ? size : largest;
        }
        const float step = !finite ? NAN : largest < 1e-35f ? 0 : largest / 127;
        const float inverse = step > 0 ? 127 / largest : 0;
        for (int64_t part = first; part < first + g->block; part += g->group) {
            const int64_t end = part + g->group < last ? part + g->group : last;
            int32_t sum = 0;
            for (int64_t i = part; i < end; i++) {
                const float scaled = step > 0 ? x[i] * inverse : 0;
                const int32_t q = (int32_t)((scaled + to_integer) - to_integer);
                g->q[(i & ~127) + (i & 1) * 64 + ((i & 127) >> 1)] = (int8_t)q;
                sum += q;
            }
            g->qsum[part / g->group] = sum;
            g->step[part / g->group] = step;
        }
    }
}

/* ---- Portable ------------------------------------------------------------------------------------------------------ */

INLINE int zero_of(const uint8_t *zeros, int block) { return zeros ? (zeros[block / 2] >> 4 * (block & 1)) & 15 : 8; }

#if defined(__FP_FAST_FMAF)
#define MADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MADD(a, b, c) ((a) * (b) + (c))
#endif

INLINE void rows_f32_portable(const struct gemv *g, int64_t first, int64_t last, const int group, const int share) {
    const int spans = group * LANES / SPAN, lanes_a_group = LANES * group / SPAN;
    struct tail tail;
    for (int64_t row = first; row < last; row++) {
        float acc[LANES] = {0}, zero[LANES] = {0};
        for (int64_t c = 0; c < g->chunks; c++) {
            const struct piece p = piece_of(g, row, c, group, share, &tail);
            const float *xsum = g->xsum + c * LANES;
            for (int s = 0; s < spans; s++) {
                const float *x = g->x + (c * spans + s) * SPAN;
                uint32_t codes[LANES]; /* eight nibbles a lane, lowest first: little-endian */
                float sum[LANES];
                memcpy(codes, p.packed + s * 64, 64);
                for (int l = 0; l < LANES; l++) sum[l] = (float)((int)(codes[l] & 15) - 8) * x[l];
                for (int j = 1; j < 8; j++)
                    for (int l = 0; l < LANES; l++)
                        sum[l] = MADD((float)((int)(codes[l] >> 4 * j & 15) - 8), x[j * LANES + l], sum[l]);
                for (int l = 0; l < LANES; l++) {
                    const int in_chunk = s * (LANES / lanes_a_group) + l / lanes_a_group;
                    acc[l] = MADD(sum[l], p.scales[in_chunk / share], acc[l]);
                }
            }
            if (p.zeros)
                for (int l = 0; l < LANES; l++)
                    zero[l] = MADD((float)(8 - zero_of(p.zeros, l / share)) * xsum[l], p.scales[l / share], zero[l]);
        }
        for (int l = 0; l < LANES; l++) acc[l] += zero[l];
        g->y[row] = sum_lanes(acc);
    }
}

INLINE void rows_i8_portable(const struct gemv *g, int64_t first, int64_t last, const int group, const int share) {
    struct tail tail;
    for (int64_t row = first; row < last; row++) {
        float acc[LANES] = {0};
        for (int64_t c = 0; c < g->chunks; c++) {
            const struct piece p = piece_of(g, row, c, group, share, &tail);
            for (int l = 0; l < LANES; l++) {
                const int byte = l * group / 2;
                const uint8_t *code = p.packed + byte;
                const int8_t *q = g->q + c * LANES * group + byte / 64 * SPAN + byte % 64;
                int32_t dot = 0;
                for (int i = 0; i < group / 2; i++) dot += (code[i] & 15) * q[i] + (code[i] >> 4) * q[64 + i];
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

/* ---- Choice of variant --------------------------------------------------------------------------------------------- */

static const char *const names[VARIANTS] = {"auto", "portable", "avx2", "avx512", "avx512vnni"};

static rows_fn implementation(int variant, int mode) {
    static const rows_fn table[VARIANTS][MODES] = {
        [PORTABLE] = {rows_f32_portable_any, rows_i8_portable_any},
    };
    return table[variant][mode];
}

int hk_variants(void) { return VARIANTS; }

const char *hk_variant_name(int variant) { return variant >= 0 && variant < VARIANTS ? names[variant] : NULL; }

int hk_variant_usable(int variant, int mode) {
    if (variant <= AUTO || variant >= VARIANTS || mode < 0 || mode >= MODES) return 0;
    return implementation(variant, mode) != NULL;
}

static int fastest(int mode) {
    int variant = VARIANTS - 1;
    while (!hk_variant_usable(variant, mode)) variant--; /* portable is always usable */
    return variant;
}

const char *hk_variant_auto(int mode) { return mode < 0 || mode >= MODES ? NULL : names[fastest(mode)]; }

/* ---- Entry points -------------------------------------------------------------------------------------------------- */

struct job {
    const struct gemv *g;
    rows_fn rows;
};

static void work_rows(void *context, int64_t first, int64_t last) {
    const struct job *job = context;
    job->rows(job->g, first, last);
    if (job->g->repeat > 0) {
        /* The repeated rows of [0, n) are those where floor(row * share) steps, spread evenly over all threads. */
        for (int64_t row = first; row < last; row++)
            if ((int64_t)((double)(row + 1) * job->g->repeat) > (int64_t)((double)row * job->g->repeat))
                job->rows(job->g, row, row + 1);
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

    struct gemv g = {.packed = packed, .zeros = zero_points, .scales = scales, .y = y, .n = n, .k = k, .block = block, .repeat = repeat};
    g.group = block == 16 ? 16 : 32;
    g.share = block / g.group;
    g.blocks = (k + block - 1) / block;
    g.groups = g.blocks * g.share;
    g.chunks = (g.groups + LANES - 1) / LANES;
    g.row_bytes = g.blocks * block / 2;
    g.row_zeros = (g.blocks + 1) / 2;

    const size_t slots = (size_t)g.chunks * LANES, elements = slots * (size_t)g.group;
    const size_t bytes = mode == MODE_F32 ? (elements + slots) * sizeof(float) : elements + slots * 2 * sizeof(float);
    char *memory;
    if (posix_memalign((void **)&memory, 64, bytes) != 0) return HK_MEMORY;
    memset(memory, 0, bytes);
    if (mode == MODE_F32) {
        g.x = (float *)memory;
        g.xsum = g.x + elements;
        prepare_f32(&g, x);
    } else {
        g.q = (int8_t *)memory;
        g.qsum = (int32_t *)(memory + elements);
        g.step = (float *)(g.qsum + slots);
        prepare_i8(&g, x);
    }
    struct job job = {&g, implementation(variant, mode)};
    int64_t grain = (64 << 10) / g.row_bytes; /* about 64 KiB a helping: small against a pass, large against the counter */
    grain = grain < 4 ? 4 : grain & ~(int64_t)3;
    run_parallel(work_rows, &job, n, grain, threads);
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

/* ---- Streaming read and copy: what the memory can do ----------------------------------------------------------------- */

struct stream {
    const uint8_t *src;
    uint8_t *dst;
    int64_t bytes, piece;
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

static void work_stream(void *context, int64_t first, int64_t last) {
    struct stream *s = context;
    const int64_t from = first * s->piece, to = last * s->piece < s->bytes ? last * s->piece : s->bytes;
    atomic_fetch_add_explicit(&s->sum, sum_words(s->src + from, to - from), memory_order_relaxed);
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
    struct stream s = {.src = p, .bytes = bytes, .piece = 64 << 10};
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

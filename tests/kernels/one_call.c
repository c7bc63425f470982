/* One call of the kernel for a test: arguments on the command line, arrays on standard input, y on standard output.
 * Compiled by other compilers and for other processors than the package was. */
#include "gemv_int4.c"
#include <stdio.h>

static void *take(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory || fread(memory, 1, bytes, stdin) != bytes) exit(100);
    return memory;
}

int main(int count, char **argument) {
    if (count != 6) return 101;
    const int mode = atoi(argument[1]), n = atoi(argument[2]), k = atoi(argument[3]), block = atoi(argument[4]);
    const int zeros = atoi(argument[5]), blocks = (k + block - 1) / block;
    const uint8_t *packed = take((size_t)n * blocks * block / 2);
    const float *scales = take((size_t)n * blocks * sizeof(float));
    const uint8_t *zero_points = zeros ? take((size_t)n * ((blocks + 1) / 2)) : NULL;
    const float *x = take((size_t)k * sizeof(float));
    float *y = malloc((size_t)n * sizeof(float));
    const int code = (mode ? hk_gemv_i8 : hk_gemv_f32)(packed, scales, zero_points, x, y, n, k, block, 3, 0);
    if (code != 0 || fwrite(y, sizeof(float), (size_t)n, stdout) != (size_t)n) return 102;
    return 0;
}

// What a measurement needs beside the kernels that it times.

// Holds its stream until the host has written `ticket` or more to `open`, so that a whole batch can be enqueued before
// it starts, and no gap between its launches is the host's. Gives up after `limit` nanoseconds: a dead host must not
// leave the device spinning. Launched with one thread.
extern "C" __global__ void start_gate(const volatile unsigned* open, unsigned ticket, unsigned long long limit) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (*open < ticket && now - begin < limit);
}

// Whole numbers 0, 1 and 2, a byte each: digits in base 3 of random words, four of each word, so that one is as likely as
// another to a part in fifty millions.
#include "philox.cuh"

// Element (row, column) of a matrix comes of the words at (row, column / 16): the same however it is cut into blocks.
// A thread makes sixteen, and writes eight at once where they lie as they should.
extern "C" __global__ void draw_counts(
    long long top, long long bottom, long long left, long long right, long long seed, unsigned char *counts)
{
    const long long group = left / 16 + (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (16 * group >= right)
        return;
    for (long long row = top + blockIdx.y; row < bottom; row += gridDim.y) {
        const Words words = words_at(row, group, seed, COUNTS);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned long long eight = 0;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                unsigned int rest = words.w[2 * half + i];
#pragma unroll
                for (int digit = 0; digit < 4; ++digit) {
                    const unsigned long long product = 3ull * rest;
                    eight |= (product >> 32) << (32 * i + 8 * digit);
                    rest = (unsigned int)product;
                }
            }
            const long long column = 16 * group + 8 * half, at = (row - top) * (right - left) + column - left;
            if (column >= left && column + 8 <= right && (unsigned long long)(counts + at) % 8 == 0) {
                *(unsigned long long *)(counts + at) = eight;
                continue;
            }
#pragma unroll 1
            for (int i = 0; i < 8; ++i)
                if (column + i >= left && column + i < right)
                    counts[at + i] = (unsigned char)(eight >> 8 * i);
        }
    }
}

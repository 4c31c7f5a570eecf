// Sum of (x + 1)[::2, ::2] of normal random numbers x that are made in registers and are never stored.
#include "philox.cuh"

// Standard normal numbers by Box and Muller (1958): the radius from a number in (0, 1], the angle, in half turns, from
// one in [0, 2). As many come of one call of Philox as its four words have the precision for.

__host__ __device__ inline void pair(double uniform, double half_turns, double *z)
{
    const double radius = sqrt(-2 * log(uniform));
    double sine, cosine;
    sincospi(half_turns, &sine, &cosine);
    z[0] = radius * cosine;
    z[1] = radius * sine;
}

__host__ __device__ inline void pair(float uniform, float half_turns, float *z)
{
    const float radius = sqrtf(-2 * logf(uniform));
    float sine, cosine;
    sincospif(half_turns, &sine, &cosine);
    z[0] = radius * cosine;
    z[1] = radius * sine;
}

// 53 bits each: the first never 0, the second never 2.
__host__ __device__ inline void normals(const Words &words, double (&z)[2])
{
    const long long first = ((unsigned long long)words.w[0] << 32 | words.w[1]) >> 11;
    const long long second = ((unsigned long long)words.w[2] << 32 | words.w[3]) >> 11;
    pair((first + 1) * 0x1p-53, second * 0x1p-52, z);
}

// 32 bits, of which float32 keeps the upper 24 and near 0 those that count.
__host__ __device__ inline void normals(const Words &words, float (&z)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i += 2)
        pair(words.w[i] * 0x1p-32f + 0x1p-33f, words.w[i + 1] * 0x1p-31f, z + i);
}

// Element (row, column) of x is number column % N of the words at (row, column / N): the same however x is cut into
// blocks. A thread adds up its own part of a block, and writes two sums: that of every other row and column, and that
// of all others, which keeps the compiler from leaving out to make them.
template <typename T, int N, Use USE>
__host__ __device__ inline void add_up(
    long long top, long long bottom, long long left, long long right, double mean, double deviation, long long seed,
    double *sums)
{
    const long long width = (long long)blockDim.x * gridDim.x, x = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    double chosen = 0, others = 0;
    for (long long row = top + blockIdx.y; row < bottom; row += gridDim.y) {
        // Few enough numbers for a sum in their own precision: a row's share of one thread.
        T even = 0, odd = 0;
        for (long long group = left / N + x; group * N < right; group += width) {
            T z[N];
            normals(words_at(row, group, seed, USE), z);
            const bool whole = group * N >= left && (group + 1) * N <= right;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const T value = ((T)mean + (T)deviation * z[i]) + (T)1;
                const bool inside = whole || (group * N + i >= left && group * N + i < right);
                (i % 2 ? odd : even) += inside ? value : (T)0;
            }
        }
        (row % 2 ? others : chosen) += even;
        others += odd;
    }
    const long long thread = blockIdx.y * width + x;
    sums[2 * thread] = chosen;
    sums[2 * thread + 1] = others;
}

extern "C" __global__ void sum_float64(
    long long top, long long bottom, long long left, long long right, double mean, double deviation, long long seed,
    double *sums)
{
    add_up<double, 2, NORMAL_FLOAT64>(top, bottom, left, right, mean, deviation, seed, sums);
}

extern "C" __global__ void sum_float32(
    long long top, long long bottom, long long left, long long right, double mean, double deviation, long long seed,
    double *sums)
{
    add_up<float, 4, NORMAL_FLOAT32>(top, bottom, left, right, mean, deviation, seed, sums);
}

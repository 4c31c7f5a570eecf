// Packed genotypes: four samples in a byte, the first in its lowest two bits; 0, 1, 2 copies, or 3 where none is known.
#include "philox.cuh"

// Sum over the threads of a warp, right in the one that speaks for it.
__host__ __device__ inline int of_warp(int each)
{
#ifdef __CUDA_ARCH__
    for (int apart = 16; apart; apart /= 2)
        each += __shfl_down_sync(0xFFFFFFFFu, each, apart);
#endif
    return each;
}

__host__ __device__ inline bool speaks_for_warp()
{
#ifdef __CUDA_ARCH__
    return threadIdx.x % 32 == 0;
#else
    return true;  // on a processor, one after the other, each speaks for itself
#endif
}

// What a thread writes in one piece.
template <typename T> struct alignas(16) Four {
    T each[4];
};

// Rows of numbers as a product needs them: 0, 1, 2, or the row's mean where none is known; behind the last byte's
// samples the mean, by which products centre, and then zeros up to a row's length, which is `groups` times four.
template <typename T>
__host__ __device__ inline void decode(
    const unsigned char *packed, long long n_bytes, long long height, const T *means, Four<T> *decoded, long long groups)
{
    const long long group = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (group >= groups)
        return;
    for (long long row = blockIdx.y; row < height; row += gridDim.y) {
        const T mean = means[row];
        Four<T> four = {{group == n_bytes ? mean : (T)0}};
        if (group < n_bytes) {
            const int byte = packed[row * n_bytes + group];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int code = byte >> 2 * k & 3;
                four.each[k] = code == 3 ? mean : (T)code;
            }
        }
        decoded[row * groups + group] = four;
    }
}

extern "C" __global__ void decode_float32(
    const unsigned char *packed, long long n_bytes, long long height, const float *means, float *decoded,
    long long groups)
{
    decode(packed, n_bytes, height, means, (Four<float> *)decoded, groups);
}

extern "C" __global__ void decode_float64(
    const unsigned char *packed, long long n_bytes, long long height, const double *means, double *decoded,
    long long groups)
{
    decode(packed, n_bytes, height, means, (Four<double> *)decoded, groups);
}

// Samples with one copy, with two and with none known, of each row; a warp for a row. `last` are the bits of a row's
// last byte that belong to samples. `found` begins as zeros.
extern "C" __global__ void count(
    const unsigned char *packed, long long n_bytes, long long height, long long last, int *found)
{
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= height)
        return;
    int one = 0, two = 0, both = 0;
    for (long long i = threadIdx.x; i < n_bytes; i += blockDim.x) {
        const int byte = packed[row * n_bytes + i] & (i + 1 < n_bytes ? 0xFF : (int)last);
        const int low = byte & 0x55, high = byte >> 1 & 0x55;
        one += __popc(low & ~high);
        two += __popc(high & ~low);
        both += __popc(low & high);
    }
    one = of_warp(one);
    two = of_warp(two);
    both = of_warp(both);
    if (speaks_for_warp()) {
        found[3 * row] += one;
        found[3 * row + 1] += two;
        found[3 * row + 2] += both;
    }
}

// Packed genotypes drawn at random: sample j of a row has one copy from levels[0] of its population on, two from
// levels[1], none known from levels[2], of draws from 0 to 2^31 - 1. Each depends on row, sample and seed alone.
extern "C" __global__ void draw(
    long long first_row, long long height, long long n_samples, const unsigned int *levels, const int *population,
    long long n_populations, long long seed, unsigned char *packed, long long n_bytes)
{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_bytes)
        return;
    for (long long row = blockIdx.y; row < height; row += gridDim.y) {
        const Words words = words_at(first_row + row, i, seed, GENOTYPES);
        unsigned int byte = 0;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (4 * i + k < n_samples) {
                const unsigned int *level = levels + 3 * (row * n_populations + population[4 * i + k]);
                const unsigned int drawn = words.w[k] >> 1;
                byte |= ((drawn >= level[0]) + (drawn >= level[1]) + (drawn >= level[2])) << 2 * k;
            }
        }
        packed[row * n_bytes + i] = (unsigned char)byte;
    }
}

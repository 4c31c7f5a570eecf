// What CUDA C has and C++ has not, so that kernels which need no thread but their own run on a processor.
#include <cmath>

#define __global__
#define __host__
#define __device__

struct Place {
    unsigned int x, y, z;
};

// Blocks and threads of a launch come one after the other, but several threads of Python may launch at once.
static thread_local Place threadIdx, blockIdx, blockDim, gridDim;

template <typename Kernel> void launch(const unsigned int *grid, const unsigned int *block, Kernel kernel)
{
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x)
                for (threadIdx.z = 0; threadIdx.z < block[2]; ++threadIdx.z)
                    for (threadIdx.y = 0; threadIdx.y < block[1]; ++threadIdx.y)
                        for (threadIdx.x = 0; threadIdx.x < block[0]; ++threadIdx.x)
                            kernel();
}

static inline int __popc(unsigned int x) { return __builtin_popcount(x); }

static inline void sincospi(double x, double *sine, double *cosine)
{
    const long quarters = std::lround(2 * x);
    const double rest = (x - 0.5 * quarters) * 3.14159265358979323846, s = std::sin(rest), c = std::cos(rest);
    *sine = quarters % 2 ? c : s;
    *cosine = quarters % 2 ? s : c;
    if (quarters & 2)
        *sine = -*sine;
    if ((quarters + 1) & 2)
        *cosine = -*cosine;
}

static inline void sincospif(float x, float *sine, float *cosine)
{
    double s, c;
    sincospi(x, &s, &c);
    *sine = (float)s;
    *cosine = (float)c;
}

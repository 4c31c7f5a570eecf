// Random numbers from a counter: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (2011). Nothing is kept between two calls, so every number has a place of its own, in any thread.

struct Words {
    unsigned int w[4];
};

// What a key's second word is for, so that two uses of one seed never meet.
enum Use { NORMAL_FLOAT64 = 1, NORMAL_FLOAT32 = 2, GENOTYPES = 3, COUNTS = 4 };

__host__ __device__ inline Words philox(Words counter, unsigned int key0, unsigned int key1)
{
    unsigned int a = counter.w[0], b = counter.w[1], c = counter.w[2], d = counter.w[3];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned long long p = 0xD2511F53ull * a, q = 0xCD9E8D57ull * c;
        a = (unsigned int)(q >> 32) ^ b ^ key0;
        b = (unsigned int)q;
        c = (unsigned int)(p >> 32) ^ d ^ key1;
        d = (unsigned int)p;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return Words{{a, b, c, d}};
}

// The four words of a place in a matrix.
__host__ __device__ inline Words words_at(long long row, long long place, long long seed, Use use)
{
    const Words counter = {{(unsigned int)place, (unsigned int)(place >> 32), (unsigned int)row, (unsigned int)(row >> 32)}};
    return philox(counter, (unsigned int)seed, use);
}

/* A simulated CUDA driver: it says that it can compute on one device, and can nothing else. */

int cuInit(unsigned flags) { return flags != 0; }

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

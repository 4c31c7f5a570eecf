/* A simulated NVML: as many GPUs as the environment asks for, on a machine that has none.

   SIMULATED_NVML_GPUS       number of devices (1)
   SIMULATED_NVML_PRESET     "dgx1": eight V100 with its links and CPUs; "nvswitch": links that all end at switches
   SIMULATED_NVML_MEMORY     bytes of memory of each device (80 GiB); "none": as on chips with unified memory
   SIMULATED_NVML_USED       bytes that are taken while idle, one for all or one per device: "0,1073741824"
   SIMULATED_NVML_MIG        slices per device: "0:3,2:7"
   SIMULATED_NVML_ERRORS     codes per function: "nvmlInitWithFlags=9;nvmlDeviceGetName=3;nvmlDeviceGetUUID@2=15"
   SIMULATED_NVML_LOAD       "idle", "busy", "wave", or percents that follow one another each second: "0,50,100"
   SIMULATED_NVML_LOST       devices that fall off the bus: "3@5" after 5 s, "3@/a/file" once that file is there
   SIMULATED_NVML_START      when the clock of load and loss starts, seconds since the epoch (the first call)
   SIMULATED_NVML_PROCESSES  who holds memory: "device:pid:bytes,..."; the pid "self" is that of who asks
   SIMULATED_NVML_THROTTLE   bits of what holds the clocks back while there is load: 4 is the power cap
   SIMULATED_NVML_COST       microseconds that each call keeps the processor busy, as a driver does (0)

   Signatures and structures: the public NVML API reference. What isn't here answers FUNCTION_NOT_FOUND. */

#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE,
       GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { MAX_GPUS = 64, MAX_SLICES = 7, LINKS = 6, SWITCH_LINKS = 18 };

typedef unsigned long long u64;
typedef struct { int gpu, slice; } device;  /* slice -1: the whole GPU */
typedef struct { char legacy_id[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { u64 total, free, used; } memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } process;
typedef struct { unsigned field, scope; long long time, latency; unsigned type, result; u64 value; } field;

static device devices[MAX_GPUS][MAX_SLICES + 1];
static int initialized;
static double started;

/* Links between each pair of a DGX-1; nought where the way leads across the sockets. */
static const int dgx1_links[8][8] = {
    {0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
    {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1}, {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
static const unsigned dgx1_buses[8] = {0x06, 0x07, 0x0a, 0x0b, 0x85, 0x86, 0x89, 0x8a};

static const char *setting(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text && *text ? text : otherwise;
}
static int preset(const char *name) { return !strcmp(setting("SIMULATED_NVML_PRESET", ""), name); }
static int gpus(void) {
    int count = preset("dgx1") ? 8 : atoi(setting("SIMULATED_NVML_GPUS", "1"));
    return count < 0 ? 0 : count > MAX_GPUS ? MAX_GPUS : count;
}
static unsigned bus_of(int gpu) { return preset("dgx1") ? dgx1_buses[gpu] : 0x20u + gpu; }
static int socket_of(int gpu) { return gpus() > 1 && gpu >= (gpus() + 1) / 2; }

/* The n-th of a list that commas separate; its last where it is shorter. */
static const char *item(const char *list, int n) {
    for (const char *next; n-- > 0 && (next = strchr(list, ',')); ) list = next + 1;
    return list;
}
static int items(const char *list) {
    int count = 1;
    for (; *list; list++) count += *list == ',';
    return count;
}
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}
static double running(void) {
    if (!started) started = atof(setting("SIMULATED_NVML_START", "0"));
    if (!started) started = now();
    return now() - started;
}
static int slices(int gpu) {
    for (const char *at = getenv("SIMULATED_NVML_MIG"); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "") {
        int which, count;
        if (sscanf(at, "%d:%d", &which, &count) == 2 && which == gpu) return count > MAX_SLICES ? MAX_SLICES : count;
    }
    return 0;
}
static int lost(int gpu) {
    for (const char *at = getenv("SIMULATED_NVML_LOST"); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "") {
        char when[512];
        int which;
        if (sscanf(at, "%d@%511[^,]", &which, when) != 2 || which != gpu) continue;
        if (*when == '/' ? !access(when, F_OK) : running() >= atof(when)) return 1;
    }
    return 0;
}
static int ordered_error(const char *function, int gpu) {
    const char *at = getenv("SIMULATED_NVML_ERRORS");
    size_t length = strlen(function);
    for (; at && *at; at = strchr(at, ';') ? strchr(at, ';') + 1 : "") {
        if (strncmp(at, function, length)) continue;
        const char *rest = at + length;
        if (*rest == '@' && (int)strtol(rest + 1, (char **)&rest, 10) != gpu) continue;
        if (*rest == '=') return atoi(rest + 1);
    }
    return SUCCESS;
}
static double load(int gpu) {
    const char *curve = setting("SIMULATED_NVML_LOAD", "idle");
    if (!strcmp(curve, "idle")) return 0;
    if (!strcmp(curve, "busy")) return 0.97;
    if (!strcmp(curve, "wave")) return 0.5 + 0.48 * sin(running() / 3 + gpu);
    return atof(item(curve, (int)running() % items(curve))) / 100;
}
static u64 total(const device *of) {
    u64 whole = strtoull(setting("SIMULATED_NVML_MEMORY", "85899345920"), NULL, 10);
    return of->slice < 0 ? whole : whole / 8;
}
/* Whether an entry of SIMULATED_NVML_PROCESSES is of this device. */
static int holds(const char *at, int gpu, unsigned *pid, u64 *bytes) {
    int which;
    *pid = getpid();
    if (sscanf(at, "%d:self:%llu", &which, bytes) != 2 && sscanf(at, "%d:%u:%llu", &which, pid, bytes) != 3) return 0;
    return which == gpu;
}
static u64 used(const device *of) {
    u64 idle = strtoull(item(setting("SIMULATED_NVML_USED", "0"), of->gpu), NULL, 10), all = total(of);
    if (of->slice >= 0) return 0;
    for (const char *at = getenv("SIMULATED_NVML_PROCESSES"); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "") {
        unsigned pid; u64 bytes;
        if (holds(at, of->gpu, &pid, &bytes)) idle += bytes;
    }
    idle += (u64)(load(of->gpu) * 0.45 * all);
    return idle > all ? all : idle;
}

/* Stops before it writes past the end, as NVML does. */
static int say(char *to, unsigned size, const char *text) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}
static int check(const char *function, const device *of) {
    if (!initialized) return UNINITIALIZED;
    for (double end = now() + atof(setting("SIMULATED_NVML_COST", "0")) * 1e-6; now() < end; ) continue;
    if (of && of->gpu >= gpus()) return INVALID_ARGUMENT;
    if (of && lost(of->gpu)) return GPU_IS_LOST;
    return ordered_error(function, of ? of->gpu : -1);
}
#define CHECK(of) do { int error = check(__func__, of); if (error) return error; } while (0)
#define WHOLE(of) do { CHECK(of); if ((of)->slice >= 0) return NOT_SUPPORTED; } while (0)

const char *nvmlErrorString(int code) {
    switch (code) {
    case 0: return "Success"; case 1: return "Uninitialized"; case 2: return "Invalid Argument";
    case 3: return "Not Supported"; case 4: return "Insufficient Permissions"; case 6: return "Not Found";
    case 7: return "Insufficient Size"; case 9: return "Driver Not Loaded"; case 10: return "Timeout";
    case 12: return "NVML Shared Library Not Found"; case 13: return "Function Not Found";
    case 15: return "GPU is lost"; case 16: return "GPU requires restart";
    case 17: return "The operating system has blocked the request.";
    case 18: return "RM has detected an NVML/RM version mismatch."; case 20: return "Insufficient Memory";
    case 999: return "Unknown Error"; default: return "Error";
    }
}

/* The library. */
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int error = ordered_error(__func__, -1);
    if (error) return error;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        for (int slice = -1; slice < MAX_SLICES; slice++) devices[gpu][slice + 1] = (device){gpu, slice};
    running();
    initialized++;
    return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!initialized) return UNINITIALIZED;
    initialized--;
    return SUCCESS;
}
/* A symbol that no driver has: by it our readers know that these devices are simulated. */
const int workbench_simulated_nvml = 1;

int nvmlSystemGetDriverVersion(char *to, unsigned size) { CHECK(NULL); return say(to, size, "580.00 SIMULATED"); }
int nvmlSystemGetNVMLVersion(char *to, unsigned size) { CHECK(NULL); return say(to, size, "13.580.00"); }
int nvmlSystemGetCudaDriverVersion(int *version) { CHECK(NULL); *version = 13000; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { CHECK(NULL); *version = 13000; return SUCCESS; }

/* Devices and their names. */
int nvmlDeviceGetCount_v2(unsigned *count) { CHECK(NULL); *count = gpus(); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **to) {
    if (!initialized) return UNINITIALIZED;
    if (index >= (unsigned)gpus()) return INVALID_ARGUMENT;
    CHECK(&devices[index][0]);
    *to = &devices[index][0];
    return SUCCESS;
}
static void name_uuid(const device *of, char *to) {
    if (of->slice < 0) sprintf(to, "GPU-00000000-0000-0000-0000-%012d", of->gpu);
    else sprintf(to, "MIG-00000000-0000-0000-%04d-%012d", of->gpu, of->slice);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device **to) {
    CHECK(NULL);
    for (int gpu = 0; gpu < gpus(); gpu++)
        for (int slice = -1; slice < slices(gpu); slice++) {
            char name[64];
            name_uuid(&devices[gpu][slice + 1], name);
            if (strcmp(name, uuid)) continue;
            CHECK(&devices[gpu][slice + 1]);
            *to = &devices[gpu][slice + 1];
            return SUCCESS;
        }
    return NOT_FOUND;
}
int nvmlDeviceGetName(device *of, char *to, unsigned size) {
    char name[64];
    CHECK(of);
    if (of->slice < 0) sprintf(name, "SIMULATED GPU %d", of->gpu);
    else sprintf(name, "SIMULATED GPU %d MIG 1g.10gb", of->gpu);
    return say(to, size, name);
}
int nvmlDeviceGetUUID(device *of, char *to, unsigned size) {
    char uuid[64];
    CHECK(of);
    name_uuid(of, uuid);
    return say(to, size, uuid);
}
int nvmlDeviceGetIndex(device *of, unsigned *index) { WHOLE(of); *index = of->gpu; return SUCCESS; }
int nvmlDeviceGetMinorNumber(device *of, unsigned *minor) { WHOLE(of); *minor = of->gpu; return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(device *of, int *major, int *minor) {
    CHECK(of);
    *major = preset("dgx1") ? 7 : 9;
    *minor = 0;
    return SUCCESS;
}
static void fill_pci(pci_info *to, unsigned bus) {
    memset(to, 0, sizeof *to);
    to->bus = bus;
    sprintf(to->legacy_id, "0000:%02X:00.0", bus);
    sprintf(to->bus_id, "00000000:%02X:00.0", bus);
}
int nvmlDeviceGetPciInfo_v3(device *of, pci_info *to) { CHECK(of); fill_pci(to, bus_of(of->gpu)); return SUCCESS; }

/* Memory and who holds it. */
static int has_memory(void) { return strcmp(setting("SIMULATED_NVML_MEMORY", ""), "none"); }
int nvmlDeviceGetMemoryInfo(device *of, memory *to) {
    CHECK(of);
    if (!has_memory()) return NOT_SUPPORTED;
    *to = (memory){total(of), total(of) - used(of), used(of)};
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(device *of, memory_v2 *to) {
    CHECK(of);
    if (!has_memory()) return NOT_SUPPORTED;
    *to = (memory_v2){to->version, total(of), 0, total(of) - used(of), used(of)};
    return SUCCESS;
}
int nvmlDeviceGetBAR1MemoryInfo(device *of, memory *to) {
    CHECK(of);
    *to = (memory){256ull << 20, 255ull << 20, 1ull << 20};
    return SUCCESS;
}
static int fill_processes(const device *of, unsigned *count, process *to) {
    unsigned found = 0, room = to ? *count : 0;
    for (const char *at = getenv("SIMULATED_NVML_PROCESSES"); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "") {
        unsigned pid; u64 bytes;
        if (!holds(at, of->gpu, &pid, &bytes)) continue;
        if (found < room) to[found] = (process){pid, bytes, -1u, -1u};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v2(device *of, unsigned *count, process *to) {
    CHECK(of);
    return fill_processes(of, count, to);
}
int nvmlDeviceGetComputeRunningProcesses_v3(device *of, unsigned *count, process *to) {
    CHECK(of);
    return fill_processes(of, count, to);
}

/* MIG. */
int nvmlDeviceGetMigMode(device *of, unsigned *current, unsigned *pending) {
    WHOLE(of);
    if (!getenv("SIMULATED_NVML_MIG")) return NOT_SUPPORTED;
    *current = *pending = slices(of->gpu) > 0;
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(device *of, unsigned *count) { CHECK(of); *count = MAX_SLICES; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *of, unsigned index, device **to) {
    CHECK(of);
    if (index >= (unsigned)slices(of->gpu)) return NOT_FOUND;
    *to = &devices[of->gpu][index + 1];
    return SUCCESS;
}
int nvmlDeviceIsMigDeviceHandle(device *of, unsigned *is) { CHECK(of); *is = of->slice >= 0; return SUCCESS; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device *of, device **to) {
    CHECK(of);
    *to = &devices[of->gpu][0];
    return SUCCESS;
}

/* Where a device sits: CPUs, NUMA nodes, the way to its peers. */
int nvmlDeviceGetCpuAffinity(device *of, unsigned words, unsigned long *mask) {
    CHECK(of);
    memset(mask, 0, words * sizeof *mask);
    for (unsigned cpu = 0; cpu < words * 64; cpu++) {
        /* A DGX-1 has two sockets of 20 cores of two threads; elsewhere each device is near each of the first 64. */
        int near = preset("dgx1") ? cpu < 80 && (int)(cpu / 20 % 2) == socket_of(of->gpu) : cpu < 64;
        if (near) mask[cpu / 64] |= 1ul << cpu % 64;
    }
    return SUCCESS;
}
int nvmlDeviceGetMemoryAffinity(device *of, unsigned words, unsigned long *mask, int scope) {
    (void)scope;
    CHECK(of);
    memset(mask, 0, words * sizeof *mask);
    if (words) mask[0] = 1ul << (preset("dgx1") ? socket_of(of->gpu) : 0);
    return SUCCESS;
}
int nvmlDeviceGetNumaNodeId(device *of, unsigned *node) { (void)node; CHECK(of); return NOT_SUPPORTED; }
int nvmlDeviceGetTopologyCommonAncestor(device *one, device *other, int *level) {
    CHECK(one);
    CHECK(other);
    int a = one->gpu, b = other->gpu;
    if (preset("nvswitch")) *level = a == b ? 0 : socket_of(a) == socket_of(b) ? 40 : 50;
    else *level = a == b ? 0 : a / 2 == b / 2 ? 10 : socket_of(a) == socket_of(b) ? 30 : 50;
    return SUCCESS;
}
/* GPU at the other end of a link, -1 for a switch, -2 where there is no such link. */
static int peer(int gpu, unsigned link) {
    if (preset("nvswitch") && link < SWITCH_LINKS) return -1;
    for (int other = 0; preset("dgx1") && link < LINKS && other < 8; other++) {
        if (link < (unsigned)dgx1_links[gpu][other]) return other;
        link -= dgx1_links[gpu][other];
    }
    return -2;
}
static int linked(void) { return preset("dgx1") || preset("nvswitch"); }
int nvmlDeviceGetNvLinkState(device *of, unsigned link, unsigned *active) {
    WHOLE(of);
    if (!linked()) return NOT_SUPPORTED;
    if (peer(of->gpu, link) == -2) return INVALID_ARGUMENT;
    *active = 1;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device *of, unsigned link, pci_info *to) {
    WHOLE(of);
    int other = peer(of->gpu, link);
    if (other == -2) return linked() ? INVALID_ARGUMENT : NOT_SUPPORTED;
    fill_pci(to, other < 0 ? 0xc0 + link % 6 : bus_of(other));
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(device *of, unsigned link, int *type) {
    WHOLE(of);
    int other = peer(of->gpu, link);
    if (other == -2) return linked() ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *type = other < 0 ? 2 : 0;
    return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkGeneration(device *of, unsigned *to) { WHOLE(of); *to = load(of->gpu) > 0 ? 3 : 1; return SUCCESS; }
int nvmlDeviceGetMaxPcieLinkGeneration(device *of, unsigned *to) { WHOLE(of); *to = preset("dgx1") ? 3 : 5; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkWidth(device *of, unsigned *to) { WHOLE(of); *to = 16; return SUCCESS; }
int nvmlDeviceGetMaxPcieLinkWidth(device *of, unsigned *to) { WHOLE(of); *to = 16; return SUCCESS; }

/* What changes with the load. */
int nvmlDeviceGetUtilizationRates(device *of, utilization *to) {
    WHOLE(of);
    *to = (utilization){(unsigned)(100 * load(of->gpu)), (unsigned)(60 * load(of->gpu))};
    return SUCCESS;
}
static unsigned watts(const device *of) { return 40 + (unsigned)(250 * load(of->gpu)); }
int nvmlDeviceGetPowerUsage(device *of, unsigned *milliwatts) { WHOLE(of); *milliwatts = 1000 * watts(of); return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(device *of, unsigned *milliwatts) { WHOLE(of); *milliwatts = 300000; return SUCCESS; }
int nvmlDeviceGetTotalEnergyConsumption(device *of, u64 *millijoules) {
    /* At the power of this moment since the start: it grows, and that is all a test may ask of it. */
    WHOLE(of);
    *millijoules = (u64)(40000 * running());
    return SUCCESS;
}
int nvmlDeviceGetTemperature(device *of, int sensor, unsigned *celsius) {
    (void)sensor;
    WHOLE(of);
    *celsius = 30 + (unsigned)(45 * load(of->gpu));
    return SUCCESS;
}
int nvmlDeviceGetClockInfo(device *of, int type, unsigned *mhz) {
    WHOLE(of);
    *mhz = type == 2 ? 877 : 135 + (unsigned)(1395 * load(of->gpu));
    return SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(device *of, int type, unsigned *mhz) { WHOLE(of); *mhz = type == 2 ? 877 : 1530; return SUCCESS; }
int nvmlDeviceGetCurrentClocksEventReasons(device *of, u64 *reasons) {
    WHOLE(of);
    *reasons = load(of->gpu) > 0 ? strtoull(setting("SIMULATED_NVML_THROTTLE", "0"), NULL, 0) : 1;  /* 1: idle */
    return SUCCESS;
}
int nvmlDeviceGetPcieThroughput(device *of, int counter, unsigned *kilobytes) {
    WHOLE(of);
    usleep(20000);  /* what a call takes on a real device */
    *kilobytes = (unsigned)((counter ? 4e6 : 2e6) * load(of->gpu));
    return SUCCESS;
}
int nvmlDeviceGetFieldValues(device *of, int count, field *fields) {
    WHOLE(of);
    for (int i = 0; i < count; i++) {
        int nvlink_data = fields[i].field == 138 || fields[i].field == 139;
        fields[i].result = nvlink_data && linked() ? SUCCESS : NOT_SUPPORTED;
        fields[i].type = 3;  /* unsigned long long */
        fields[i].value = (u64)(1e6 * running());
    }
    return SUCCESS;
}

/* A fake libnvidia-ml for clock locks, whose state lives in a file: several processes see the same
 * device, so a test can watch what a guardian does after the locking process has died.
 *
 *   cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_clocks.c
 *
 * FAKE_CLOCKS names a directory:
 *   state    written: "sm LOW HIGH\nmem LOW HIGH\npersistence N\n", zeros when unlocked
 *   calls    appended: one line for each call that sets something, "pid FUNCTION [LOW HIGH]"
 *   script   read at every call: lines "FUNCTION=CODE" make it fail, "sm=", "reasons=", "pid=" set
 *            values, "slow_ms=" makes every set and reset take that long
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, TOO_SMALL = 7, BAD_CLOCK = 24 };

static const char *uuid = "GPU-00000000-1111-2222-3333-444444444444";
static int device, slice, loaded;
static long sm_low, sm_high, mem_low, mem_high, persistence = 1;

static FILE *in_directory(const char *name, const char *mode) {
    char path[4096];
    const char *directory = getenv("FAKE_CLOCKS");
    if (!directory) return NULL;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return fopen(path, mode);
}

static long scripted(const char *key, long otherwise) {
    FILE *f = in_directory("script", "r");
    if (!f) return otherwise;
    char line[256];
    size_t length = strlen(key);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, length) && line[length] == '=') otherwise = strtol(line + length + 1, NULL, 0);
    fclose(f);
    return otherwise;
}

static void load_state(void) {
    FILE *f = in_directory("state", "r");
    if (!f) return;
    if (fscanf(f, "sm %ld %ld mem %ld %ld persistence %ld", &sm_low, &sm_high, &mem_low, &mem_high, &persistence) != 5)
        abort();
    fclose(f);
}

static void save_state(void) {
    FILE *f = in_directory("state", "w");
    if (!f) abort();
    fprintf(f, "sm %ld %ld\nmem %ld %ld\npersistence %ld\n", sm_low, sm_high, mem_low, mem_high, persistence);
    fclose(f);
}

static int setting(const char *function, long low, long high) {
    FILE *f = in_directory("calls", "a");
    if (f) {
        fprintf(f, "%d %s", (int)getpid(), function);
        if (low) fprintf(f, " %ld %ld", low, high);
        fputc('\n', f);
        fclose(f);
    }
    long ms = scripted("slow_ms", 0);
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    int code = loaded ? (int)scripted(function, OK) : UNINITIALIZED;
    if (code == OK) load_state();
    return code;
}

#define GETTER do { if (!loaded) return UNINITIALIZED; long c = scripted(__func__, OK); if (c) return (int)c; } while (0)

const char *nvmlErrorString(int code) {
    static const struct { int code; const char *text; } known[] = {
        {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"}, {4, "Insufficient Permissions"},
        {6, "Not Found"}, {9, "Driver Not Loaded"}, {10, "Timeout"}, {15, "GPU is lost"}, {19, "In use by another client"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code) return known[i].text;
    return "Unknown Error";
}
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = (int)scripted("nvmlInitWithFlags", OK);
    loaded += code == OK;
    return code;
}
int nvmlShutdown(void) { if (!loaded) return UNINITIALIZED; loaded--; return OK; }

static int copy(const char *text, char *out, unsigned size) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(out, text);
    return OK;
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return loaded ? copy("570.86.10", out, size) : UNINITIALIZED; }
int nvmlDeviceGetCount_v2(unsigned *n) { GETTER; *n = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { GETTER; if (i) return 4; *h = &device; return OK; }
int nvmlDeviceGetHandleByUUID(const char *u, void **h) {
    GETTER;
    if (strcmp(u, uuid) && strncmp(u, "MIG-", 4)) return NOT_FOUND;
    *h = strncmp(u, "MIG-", 4) ? (void *)&device : (void *)&slice;
    return OK;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *h, void **parent) {
    GETTER;
    if (h != &slice) return INVALID_ARGUMENT;
    *parent = &device;
    return OK;
}
int nvmlDeviceGetUUID(void *h, char *out, unsigned size) { (void)h; GETTER; return copy(uuid, out, size); }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *next) { (void)h; GETTER; *now = *next = (unsigned)scripted("mig", 0); return OK; }
int nvmlDeviceGetName(void *h, char *out, unsigned size) { (void)h; GETTER; return copy("NVIDIA Fake 100", out, size); }
int nvmlDeviceGetClockInfo(void *h, unsigned type, unsigned *mhz) {
    (void)h;
    GETTER;
    load_state();
    *mhz = (unsigned)(type == 2 ? 2619 : sm_low ? sm_low : scripted("sm", 345));
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *bits) { (void)h; GETTER; *bits = (unsigned long long)scripted("reasons", 1); return OK; }

static int list(const unsigned *values, unsigned n, unsigned *count, unsigned *out) {
    unsigned room = *count;
    *count = n;
    if (!out || room < n) return TOO_SMALL;
    memcpy(out, values, n * sizeof *values);
    return OK;
}
int nvmlDeviceGetSupportedMemoryClocks(void *h, unsigned *count, unsigned *out) {
    static const unsigned mhz[] = {2619, 1593};
    (void)h;
    GETTER;
    return list(mhz, 2, count, out);
}
int nvmlDeviceGetSupportedGraphicsClocks(void *h, unsigned mem, unsigned *count, unsigned *out) {
    unsigned mhz[110], n = 0;
    (void)h;
    GETTER;
    if (mem != 2619 && mem != 1593) return NOT_FOUND;
    for (unsigned m = 1980; m >= 345; m -= 15) mhz[n++] = m;
    return list(mhz, n, count, out);
}

/* nvmlProcessInfo_t of version 2 and 3: pid, used memory, two instance ids. */
struct process { unsigned pid; unsigned long long memory; unsigned instance, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, struct process *out) {
    (void)h;
    GETTER;
    unsigned pid = (unsigned)scripted("pid", 0), room = *count;
    *count = pid ? 1 : 0;
    if (!pid) return OK;
    if (!out || room < 1) return TOO_SMALL;
    out[0] = (struct process){pid, 1 << 20, ~0u, ~0u};
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *count, struct process *out) { return nvmlDeviceGetComputeRunningProcesses_v3(h, count, out); }

int nvmlDeviceSetGpuLockedClocks(void *h, unsigned low, unsigned high) {
    if (h != &device) return NOT_FOUND;
    int code = setting(__func__, low, high);
    if (code) return code;
    if (low > high || high > 1980) return INVALID_ARGUMENT;
    if ((high - 345) % 15) return BAD_CLOCK;
    sm_low = low, sm_high = high;
    save_state();
    if (scripted("die_in_lock", 0)) raise(9);
    return OK;
}
int nvmlDeviceResetGpuLockedClocks(void *h) {
    (void)h;
    int code = setting(__func__, 0, 0);
    if (!code) sm_low = sm_high = 0, save_state();
    return code;
}
int nvmlDeviceSetMemoryLockedClocks(void *h, unsigned low, unsigned high) {
    (void)h;
    int code = setting(__func__, low, high);
    if (!code) mem_low = low, mem_high = high, save_state();
    return code;
}
int nvmlDeviceResetMemoryLockedClocks(void *h) {
    (void)h;
    int code = setting(__func__, 0, 0);
    if (!code) mem_low = mem_high = 0, save_state();
    return code;
}
int nvmlDeviceSetPersistenceMode(void *h, int mode) {
    (void)h;
    int code = setting(__func__, 0, 0);
    if (!code) persistence = mode, save_state();
    return code;
}

/* A fake libnvidia-ml with scripted behaviour, built once a test session:
 *
 *   cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml.c
 *
 * Two GPUs. Scripted through fake_nvml_control("...") or, at load, the variable FAKE_NVML; the
 * script is a comma-separated list of:
 *
 *   FUNCTION=CODE     return CODE from now on          FUNCTION=CODE@N   after N more calls
 *   FUNCTION=CODE*N   for the next N calls             FUNCTION~MS       take MS milliseconds
 *   field.ID=CODE     that entry of FieldValues fails  type.ID=T         its value type
 *   G.QUANTITY=VALUE  a value of GPU G (see `struct gpu`)
 *   stamps=0          FieldValues without time stamps  clock_us=T        the fake's own clock
 *   step_us=T         clock_us moves by T at each FieldValues call
 *   reset             forget everything
 *
 * Locks and persistence are written to the file named by FAKE_NVML_STATE, one line for each GPU.
 * A symbol is made absent at link time: -Wl,--version-script with `local: NAME;`.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

struct gpu {
    const char *name, *uuid, *bus;
    unsigned domain, pci_bus;
    long long sm, mem, temp, memtemp, power, energy, pstate, reasons, util, fan, fans, limit;
    long long major, minor, total, max, policy_power, policy_thermal, sw_thermal, hw_thermal, brake;
    long long ecc, xid, remap, pids, pid, pidmem, mig, locked_lo, locked_hi, mem_lo, mem_hi, persistence, supported;
};

static const struct gpu initial[2] = {
    {.name = "NVIDIA H100 PCIe", .uuid = "GPU-11111111-2222-3333-4444-555555555555",
     .bus = "00000000:17:00.0", .pci_bus = 0x17, .sm = 1410, .mem = 1593, .temp = 61, .memtemp = 70,
     .power = 305123, .energy = 5000000, .pstate = 0, .reasons = 0, .util = 97, .fan = 0, .fans = 0,
     .limit = 350000, .major = 9, .minor = 0, .total = 85520809984, .max = 1755,
     .supported = 0x1ff, .persistence = 1},
    {.name = "NVIDIA A10", .uuid = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
     .bus = "00000000:65:00.0", .pci_bus = 0x65, .sm = 885, .mem = 6251, .temp = 44, .memtemp = 0,
     .power = 61000, .energy = 700000, .pstate = 8, .reasons = 1, .util = 3, .fan = 31, .fans = 1,
     .limit = 150000, .major = 8, .minor = 6, .total = 24146608128, .max = 1695,
     .supported = 0x1ff, .persistence = 0},
};

static struct gpu gpus[2];
static int loaded, init_count;
static long long stamps = 1, clock_us, step_us;

struct script { char key[64]; long long code, count, skip, slow_ms, calls; int is_set, is_limited; };
static struct script scripts[256];
static int script_count;

static struct script *script_for(const char *key) {
    for (int i = 0; i < script_count; i++)
        if (!strcmp(scripts[i].key, key)) return &scripts[i];
    if (script_count == 256) abort();
    struct script *s = &scripts[script_count++];
    memset(s, 0, sizeof *s);
    snprintf(s->key, sizeof s->key, "%s", key);
    return s;
}

static long long *quantity(struct gpu *g, const char *name) {
#define Q(field) if (!strcmp(name, #field)) return &g->field;
    Q(sm) Q(mem) Q(temp) Q(memtemp) Q(power) Q(energy) Q(pstate) Q(reasons) Q(util) Q(fan) Q(fans)
    Q(limit) Q(major) Q(minor) Q(total) Q(max) Q(policy_power) Q(policy_thermal) Q(sw_thermal)
    Q(hw_thermal) Q(brake) Q(ecc) Q(xid) Q(remap) Q(pids) Q(pid) Q(pidmem) Q(mig) Q(supported) Q(persistence)
#undef Q
    fprintf(stderr, "fake nvml: no quantity %s\n", name);
    abort();
}

static void set_rule(const char *key, char *value) {
    struct script *s = script_for(key);
    char *mark = strpbrk(value, "@*");
    s->code = strtoll(value, NULL, 0);
    s->is_set = 1;
    s->is_limited = mark && *mark == '*';
    s->count = s->is_limited ? strtoll(mark + 1, NULL, 0) : 0;
    s->skip = mark && *mark == '@' ? strtoll(mark + 1, NULL, 0) : 0;
}

static void forget(void) {
    memcpy(gpus, initial, sizeof gpus);
    script_count = 0;
    stamps = 1;
    clock_us = step_us = 0;
    init_count = 0;
}

void fake_nvml_control(const char *text) {
    char *copy = strdup(text), *rest = copy, *item;
    loaded = 1;
    while ((item = strsep(&rest, ","))) {
        char *value = strpbrk(item, "=~");
        if (!strcmp(item, "reset")) { forget(); continue; }
        if (!value) continue;
        char kind = *value;
        *value++ = 0;
        if (kind == '~') script_for(item)->slow_ms = strtoll(value, NULL, 0);
        else if (!strcmp(item, "stamps")) stamps = strtoll(value, NULL, 0);
        else if (!strcmp(item, "clock_us")) clock_us = strtoll(value, NULL, 0);
        else if (!strcmp(item, "step_us")) step_us = strtoll(value, NULL, 0);
        else if ((item[0] == '0' || item[0] == '1') && item[1] == '.')
            *quantity(&gpus[item[0] - '0'], item + 2) = strtoll(value, NULL, 0);
        else set_rule(item, value);
    }
    free(copy);
}

long long fake_nvml_calls(const char *function) { return script_for(function)->calls; }
long long fake_nvml_inits(void) { return init_count; }

__attribute__((constructor)) static void load(void) {
    forget();
    const char *text = getenv("FAKE_NVML");
    if (text) fake_nvml_control(text);
}

/* Counts the call, sleeps, and returns the scripted code. */
static int enter(const char *function) {
    struct script *s = script_for(function);
    s->calls++;
    if (s->slow_ms) {
        struct timespec t = {s->slow_ms / 1000, s->slow_ms % 1000 * 1000000};
        while (nanosleep(&t, &t)) {}
    }
    if (s->skip) { s->skip--; return OK; }
    if (s->is_limited) {
        if (!s->count) return OK;
        s->count--;
    }
    return (int)s->code;
}

static int enter_running(const char *function) {
    int code = enter(function);
    return code ? code : init_count > 0 ? OK : UNINITIALIZED;
}

static struct gpu *at(void *handle) { return handle; }

#define GUARD do { int code_ = enter_running(__func__); if (code_) return code_; } while (0)
#define GETTER(function, type, expression) \
    int function(void *h, type *out) { GUARD; struct gpu *g = at(h); (void)g; *out = (type)(expression); return OK; }

/* --- library */

int nvmlInitWithFlags(unsigned flags) { (void)flags; int c = enter(__func__); if (!c) init_count++; return c; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    int c = enter(__func__);
    if (c) return c;
    if (init_count < 1) return UNINITIALIZED;
    init_count--;
    return OK;
}
/* Another component's shutdown: everything answers UNINITIALIZED until the next init. */
void fake_nvml_foreign_shutdown(void) { init_count = 0; }

const char *nvmlErrorString(int code) {
    static char text[40];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { GUARD; snprintf(out, size, "550.163.01"); return OK; }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { int c = enter(__func__); if (c) return c; snprintf(out, size, "12.550.163.01"); return OK; }

/* --- devices */

int nvmlDeviceGetCount_v2(unsigned *out) { GUARD; *out = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out) {
    GUARD;
    char key[64];
    snprintf(key, sizeof key, "index.%u", i);
    int code = enter(key);
    if (code) return code;
    if (i > 1) return INVALID_ARGUMENT;
    *out = &gpus[i];
    return OK;
}
/* A MIG instance of the board: a handle, a name and a UUID of its own. */
static struct gpu slices[2];
static char slice_names[2][96], slice_uuids[2][96];
static struct gpu *slice_of(int i) {
    slices[i] = gpus[i];
    slices[i].mig = 2;
    slices[i].total = gpus[i].total / 8;
    snprintf(slice_names[i], sizeof slice_names[i], "%s MIG 1g.10gb", gpus[i].name);
    snprintf(slice_uuids[i], sizeof slice_uuids[i], "MIG-%s", gpus[i].uuid + 4);
    slices[i].name = slice_names[i];
    slices[i].uuid = slice_uuids[i];
    return &slices[i];
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    GUARD;
    for (int i = 0; i < 2; i++) {
        char mig[96];
        snprintf(mig, sizeof mig, "MIG-%s", gpus[i].uuid + 4);
        if (!strcmp(uuid, gpus[i].uuid)) { *out = &gpus[i]; return OK; }
        if (gpus[i].mig && !strcmp(uuid, mig)) { *out = slice_of(i); return OK; }
    }
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) {
    GUARD;
    for (int i = 0; i < 2; i++)
        if (!strcasecmp(bus, gpus[i].bus)) { *out = &gpus[i]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(void *h, char *out, unsigned size) { GUARD; snprintf(out, size, "%s", at(h)->uuid); return OK; }
int nvmlDeviceGetName(void *h, char *out, unsigned size) { GUARD; snprintf(out, size, "%s", at(h)->name); return OK; }
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *h, struct pci *out) {
    GUARD;
    memset(out, 0, sizeof *out);
    out->bus = at(h)->pci_bus;
    snprintf(out->bus_id, sizeof out->bus_id, "%s", at(h)->bus);
    return OK;
}
GETTER(nvmlDeviceGetIndex, unsigned, g - gpus)
GETTER(nvmlDeviceIsMigDeviceHandle, unsigned, g->mig == 2)
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *h, void **out) { GUARD; *out = &gpus[at(h) - slices]; return OK; }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *next) { GUARD; *now = *next = at(h)->mig != 0; return OK; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) { GUARD; *major = (int)at(h)->major; *minor = (int)at(h)->minor; return OK; }
GETTER(nvmlDeviceGetVirtualizationMode, unsigned, 0)

/* --- readings */

int nvmlDeviceGetClockInfo(void *h, int kind, unsigned *out) {
    GUARD;
    struct gpu *g = at(h);
    long long sm = g->locked_hi && g->sm > g->locked_hi ? g->locked_hi : g->sm;
    *out = (unsigned)(kind == 2 ? g->mem : sm);
    return OK;
}
int nvmlDeviceGetMaxClockInfo(void *h, int kind, unsigned *out) { GUARD; *out = (unsigned)(kind == 2 ? at(h)->mem : at(h)->max); return OK; }
GETTER(nvmlDeviceGetPerformanceState, int, g->pstate)
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *out) { (void)sensor; GUARD; *out = (unsigned)at(h)->temp; return OK; }
struct temperature { unsigned version; int sensor, temp; };
int nvmlDeviceGetTemperatureV(void *h, struct temperature *out) { GUARD; out->temp = (int)at(h)->temp; return OK; }
int nvmlDeviceGetTemperatureThreshold(void *h, int which, unsigned *out) {
    (void)h;
    GUARD;
    static const unsigned limits[4] = {95, 92, 95, 87};
    if (which < 0 || which > 3) return INVALID_ARGUMENT;
    *out = limits[which];
    return OK;
}
GETTER(nvmlDeviceGetPowerUsage, unsigned, g->power)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, g->limit)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, g->limit)
GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, g->energy)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, g->reasons)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, g->reasons)
GETTER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, g->supported)
GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, g->supported)
struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *h, struct utilization *out) { GUARD; out->gpu = (unsigned)at(h)->util; out->memory = 40; return OK; }
GETTER(nvmlDeviceGetNumFans, unsigned, g->fans)
int nvmlDeviceGetFanSpeed_v2(void *h, unsigned fan, unsigned *out) { (void)fan; GUARD; if (!at(h)->fans) return NOT_SUPPORTED; *out = (unsigned)at(h)->fan; return OK; }
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *h, struct memory *out) { GUARD; out->total = (unsigned long long)at(h)->total; out->used = out->total / 4; out->free = out->total - out->used; return OK; }
struct violation { unsigned long long reference_us, violation_ns; };
int nvmlDeviceGetViolationStatus(void *h, int policy, struct violation *out) {
    GUARD;
    out->reference_us = 1000;
    out->violation_ns = (unsigned long long)(policy == 0 ? at(h)->policy_power : at(h)->policy_thermal);
    return OK;
}
int nvmlDeviceGetSupportedMemoryClocks(void *h, unsigned *count, unsigned *out) {
    GUARD;
    if (!out || *count < 1) { *count = 1; return TOO_SMALL; }
    *count = 1;
    out[0] = (unsigned)at(h)->mem;
    return OK;
}
int nvmlDeviceGetSupportedGraphicsClocks(void *h, unsigned mem, unsigned *count, unsigned *out) {
    GUARD;
    struct gpu *g = at(h);
    if (mem != (unsigned)g->mem) return NOT_FOUND;
    unsigned n = (unsigned)(g->max - 210) / 15 + 1;
    if (!out || *count < n) { *count = n; return TOO_SMALL; }
    *count = n;
    for (unsigned i = 0; i < n; i++) out[i] = (unsigned)g->max - 15 * i;
    return OK;
}

/* --- processes */

struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
static int rows(struct gpu *g, unsigned *count, struct process *out) {
    if (!out) {
        *count = (unsigned)g->pids;
        return g->pids ? TOO_SMALL : OK;
    }
    int race = enter("race");
    if (race) return race;
    if (*count < g->pids) return TOO_SMALL;
    *count = (unsigned)g->pids;
    for (unsigned i = 0; i < *count; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].pid = (unsigned)g->pid + i;
        out[i].used = (unsigned long long)g->pidmem;
    }
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, struct process *out) { GUARD; return rows(at(h), count, out); }
/* Before driver 510 the same rows, under the older name. */
int nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *count, struct process *out) { GUARD; return rows(at(h), count, out); }

/* --- field values */

struct field {
    unsigned id, scope;
    int64_t timestamp, latency;
    int type, code;
    union { double d; unsigned u; unsigned long long ull; long long sll; int i; unsigned short us; } value;
};

static int64_t now_us(void) {
    if (clock_us) return clock_us;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int field_value(struct gpu *g, unsigned id, long long *out) {
    switch (id) {
    case 82: *out = g->memtemp; return OK;
    case 83: *out = g->energy; return OK;
    case 185: case 186: *out = g->power; return OK;
    case 190: *out = g->limit; return OK;
    case 74: *out = g->policy_power; return OK;
    case 75: *out = g->policy_thermal; return OK;
    case 269: *out = g->sw_thermal; return OK;
    case 270: *out = g->hw_thermal; return OK;
    case 271: *out = g->brake; return OK;
    case 193: *out = -8; return OK;
    case 194: *out = -2; return OK;
    case 196: *out = 0; return OK;
    default: return NOT_SUPPORTED;
    }
}

int nvmlDeviceGetFieldValues(void *h, int count, struct field *fields) {
    GUARD;
    if (clock_us) clock_us += step_us;
    int any = NOT_SUPPORTED;
    for (int i = 0; i < count; i++) {
        char key[64];
        long long value = 0;
        struct field *f = &fields[i];
        f->code = field_value(at(h), f->id, &value);
        snprintf(key, sizeof key, "field.%u", f->id);
        int scripted = enter(key);
        if (scripted) f->code = scripted;
        if (f->code) continue;
        any = OK;
        int64_t now = now_us();
        f->timestamp = stamps ? now - now % 100000 : 0;
        f->latency = 12;
        snprintf(key, sizeof key, "type.%u", f->id);
        f->type = (int)(script_for(key)->is_set ? script_for(key)->code : f->id >= 193 && f->id <= 196 ? 5 : 3);
        switch (f->type) {
        case 0: f->value.d = (double)value; break;
        case 1: f->value.u = (unsigned)value; break;
        case 2: case 3: f->value.ull = (unsigned long long)value; break;
        case 4: f->value.sll = value; break;
        case 5: f->value.i = (int)value; break;
        case 6: f->value.us = (unsigned short)value; break;
        }
    }
    return any;
}

/* --- errors: the counter of uncorrected ones, and one event of an Xid when it is not 0 */

int nvmlDeviceGetTotalEccErrors(void *h, int type, int counter, unsigned long long *out) { (void)counter; GUARD; if (type != 1) return INVALID_ARGUMENT; *out = (unsigned long long)at(h)->ecc; return OK; }
GETTER(nvmlDeviceGetRetiredPagesPendingStatus, unsigned, 0)
int nvmlDeviceGetRemappedRows(void *h, unsigned *corr, unsigned *unc, unsigned *pending, unsigned *failed) { GUARD; *corr = *unc = *failed = 0; *pending = at(h)->remap != 0; return OK; }
int nvmlEventSetCreate(void **set) { GUARD; *set = &gpus; return OK; }
int nvmlEventSetFree(void *set) { (void)set; GUARD; return OK; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *set) { (void)h; (void)types; (void)set; GUARD; return OK; }
struct event { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
int nvmlEventSetWait_v2(void *set, struct event *out, unsigned timeout) {
    (void)set; (void)timeout;
    GUARD;
    for (int i = 0; i < 2; i++)
        if (gpus[i].xid) {
            memset(out, 0, sizeof *out);
            out->device = &gpus[i];
            out->type = 8;
            out->data = (unsigned long long)gpus[i].xid;
            gpus[i].xid = 0;
            return OK;
        }
    return 10;
}

/* --- clock control: the state is a file, so that a test sees it after any way of dying */

static void save(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    for (int i = 0; i < 2; i++)
        fprintf(file, "%s core %lld-%lld memory %lld-%lld persistence %lld\n", gpus[i].uuid,
                gpus[i].locked_lo, gpus[i].locked_hi, gpus[i].mem_lo, gpus[i].mem_hi, gpus[i].persistence);
    fclose(file);
}
int nvmlDeviceSetGpuLockedClocks(void *h, unsigned lo, unsigned hi) { GUARD; at(h)->locked_lo = lo; at(h)->locked_hi = hi; save(); return OK; }
int nvmlDeviceResetGpuLockedClocks(void *h) { GUARD; at(h)->locked_lo = at(h)->locked_hi = 0; save(); return OK; }
int nvmlDeviceSetMemoryLockedClocks(void *h, unsigned lo, unsigned hi) { GUARD; at(h)->mem_lo = lo; at(h)->mem_hi = hi; save(); return OK; }
int nvmlDeviceResetMemoryLockedClocks(void *h) { GUARD; at(h)->mem_lo = at(h)->mem_hi = 0; save(); return OK; }
int nvmlDeviceSetPersistenceMode(void *h, int on) { GUARD; at(h)->persistence = on; save(); return OK; }
GETTER(nvmlDeviceGetPersistenceMode, unsigned, g->persistence)

/* A libcuda and a libcublas without a GPU: host memory, captures that count, kernels that are logged and not
 * run.
 *
 * With it the CUDA engine's host code runs in tests on any machine: argument marshalling, capture, release.
 * Parameter sizes come from the real cubin (EIATTR_KPARAM_INFO of its .nv.info sections). Every allocation,
 * launch and release is one line of $FAKE_CUDA_LOG. Build: cc -shared -fPIC fake_cuda.c -o libcuda.so.1
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };
enum { MAX_PARAMS = 32 };

struct kernel {
  char symbol[256];
  int n_params;
  uint16_t offset[MAX_PARAMS], size[MAX_PARAMS];
  unsigned shared_limit;
};
enum { KERNEL_NODE = 0, GRAPH_NODE = 4, MAX_NODES = 8192 };
struct node {
  int kind; /* CUgraphNodeType */
  struct graph* child;
};
struct graph {
  int nodes;
  struct node node[MAX_NODES];
};

static struct graph* capturing;

static void record(const char* format, ...) {
  static FILE* log;
  if (!log) log = fopen(getenv("FAKE_CUDA_LOG"), "a");
  va_list args;
  va_start(args, format);
  vfprintf(log, format, args);
  va_end(args);
  fflush(log);
}

static void add_node(int kind, struct graph* child) {
  if (!capturing || capturing->nodes == MAX_NODES) return;
  capturing->node[capturing->nodes++] = (struct node){kind, child};
}

#define API(name) __attribute__((visibility("default"))) Result fake_##name

API(cuInit)(unsigned flags) {
  return flags ? INVALID_VALUE : SUCCESS;
}
__attribute__((visibility("default"))) Result cuInit(unsigned flags) {
  return fake_cuInit(flags);
}
/* NVRTC asks for it where it finds cuInit. */
__attribute__((visibility("default"))) Result cuGetExportTable(const void** table, const void* id) {
  return (void)table, (void)id, INVALID_VALUE;
}
API(cuDriverGetVersion)(int* version) {
  return *version = 13000, SUCCESS;
}
API(cuGetErrorName)(Result error, const char** name) {
  return *name = error == OUT_OF_MEMORY ? "OOM" : "ERROR", SUCCESS;
}
API(cuGetErrorString)(Result error, const char** text) {
  return (void)error, *text = "a fake error", SUCCESS;
}
API(cuDeviceGetCount)(int* count) {
  return *count = 1, SUCCESS;
}
API(cuDeviceGet)(int* device, int ordinal) {
  return *device = ordinal, SUCCESS;
}
API(cuDeviceGetName)(char* name, int n, int device) {
  return (void)device, snprintf(name, n, "Fake GPU"), SUCCESS;
}
API(cuDeviceGetUuid)(char* uuid, int device) {
  return memset(uuid, 7 + device, 16), SUCCESS;
}
API(cuDeviceTotalMem)(size_t* n, int device) {
  return (void)device, *n = 1ull << 34, SUCCESS;
}
API(cuDeviceGetAttribute)(int* value, int attribute, int device) {
  (void)device;
  const char* major = getenv("FAKE_CUDA_MAJOR");
  *value = attribute == 75 ? (major ? atoi(major) : 9) : attribute == 76 ? 0 : attribute == 16 ? 132 : 1;
  return SUCCESS;
}
API(cuDevicePrimaryCtxRetain)(void** context, int device) {
  return (void)device, *context = (void*)1, SUCCESS;
}
API(cuDevicePrimaryCtxRelease)(int device) {
  return record("release context %d\n", device), SUCCESS;
}
API(cuCtxSetCurrent)(void* context) {
  return context ? SUCCESS : INVALID_VALUE;
}
API(cuMemGetInfo)(size_t* free_bytes, size_t* total) {
  return *free_bytes = 1ull << 33, *total = 1ull << 34, SUCCESS;
}

API(cuMemAlloc)(uint64_t* address, size_t n) {
  if (n > 1ull << 33) return OUT_OF_MEMORY;
  *address = (uint64_t)aligned_alloc(256, (n + 255) / 256 * 256);
  record("alloc %llu %zu\n", (unsigned long long)*address, n);
  return SUCCESS;
}
API(cuMemFree)(uint64_t address) {
  return record("free %llu\n", (unsigned long long)address), free((void*)address), SUCCESS;
}
struct ipc_handle {
  char reserved[64];
};
API(cuIpcGetMemHandle)(struct ipc_handle* handle, uint64_t address) {
  memset(handle, 0, sizeof *handle);
  return memcpy(handle, &address, 8), SUCCESS;
}
API(cuMemHostAlloc)(void** p, size_t n, unsigned flags) {
  return (void)flags, *p = malloc(n), SUCCESS;
}
API(cuMemFreeHost)(void* p) {
  return free(p), SUCCESS;
}
API(cuMemHostRegister)(void* p, size_t n, unsigned flags) {
  return (void)p, n && flags == 3 ? SUCCESS : INVALID_VALUE;
}
API(cuMemHostUnregister)(void* p) {
  return record("unregister %llu\n", (unsigned long long)(uintptr_t)p), SUCCESS;
}
API(cuMemHostGetDevicePointer)(uint64_t* address, void* p, unsigned flags) {
  return (void)flags, *address = (uint64_t)p, SUCCESS;
}
API(cuMemcpyHtoDAsync)(uint64_t to, const void* from, size_t n, void* stream) {
  return (void)stream, memcpy((void*)to, from, n), SUCCESS;
}
API(cuMemcpyDtoHAsync)(void* to, uint64_t from, size_t n, void* stream) {
  return (void)stream, memcpy(to, (void*)from, n), SUCCESS;
}
API(cuMemsetD8Async)(uint64_t to, unsigned char value, size_t n, void* stream) {
  return (void)stream, memset((void*)to, value, n), SUCCESS;
}

API(cuStreamCreate)(void** stream, unsigned flags) {
  return *stream = malloc(1), flags == 1 ? SUCCESS : INVALID_VALUE;
}
API(cuStreamSynchronize)(void* stream) {
  return stream ? SUCCESS : INVALID_VALUE;
}
API(cuStreamQuery)(void* stream) {
  return stream ? SUCCESS : INVALID_VALUE;
}
API(cuStreamDestroy)(void* stream) {
  return record("destroy stream\n"), free(stream), SUCCESS;
}

static void read_params(struct kernel* kernel, const uint8_t* info, size_t n) {
  for (size_t at = 0; at + 4 <= n;) {
    const uint8_t format = info[at], attribute = info[at + 1];
    const uint16_t size = *(const uint16_t*)(info + at + 2); /* of the payload, where the format has one */
    if (format == 4 && attribute == 0x17) {
      const uint16_t ordinal = *(const uint16_t*)(info + at + 8);
      kernel->offset[ordinal] = *(const uint16_t*)(info + at + 10);
      kernel->size[ordinal] = *(const uint32_t*)(info + at + 12) >> 18;
      if (ordinal + 1 > kernel->n_params) kernel->n_params = ordinal + 1;
    }
    at += 4 + (format == 4 ? size : 0);
  }
}

/* Bytes of an image, as far as its headers and sections go. */
static size_t image_size(const Elf64_Ehdr* elf) {
  const Elf64_Shdr* sections = (const Elf64_Shdr*)((const char*)elf + elf->e_shoff);
  size_t end = elf->e_shoff + (size_t)elf->e_shnum * sizeof *sections;
  for (int i = 0; i < elf->e_shnum; ++i) {
    const size_t size = sections[i].sh_type == SHT_NOBITS ? 0 : sections[i].sh_size;
    if (sections[i].sh_offset + size > end) end = sections[i].sh_offset + size;
  }
  return end;
}
/* A copy, as the driver's: the caller may drop its image. */
API(cuModuleLoadData)(void** module, const void* image) {
  if (memcmp(image, ELFMAG, SELFMAG)) return INVALID_VALUE;
  const size_t n = image_size(image);
  return *module = memcpy(malloc(n), image, n), SUCCESS;
}
API(cuModuleUnload)(void* module) {
  return record("unload\n"), free(module), SUCCESS;
}
API(cuModuleGetFunction)(void** function, void* module, const char* symbol) {
  const Elf64_Ehdr* elf = module;
  const Elf64_Shdr* sections = (const Elf64_Shdr*)((const char*)module + elf->e_shoff);
  const char* names = (const char*)module + sections[elf->e_shstrndx].sh_offset;
  for (int i = 0; i < elf->e_shnum; ++i) {
    const char* name = names + sections[i].sh_name;
    if (strncmp(name, ".nv.info.", 9) || strcmp(name + 9, symbol)) continue;
    struct kernel* kernel = calloc(1, sizeof *kernel);
    snprintf(kernel->symbol, sizeof kernel->symbol, "%s", symbol);
    kernel->shared_limit = 48 << 10;
    read_params(kernel, (const uint8_t*)module + sections[i].sh_offset, sections[i].sh_size);
    return *function = kernel, SUCCESS;
  }
  return NOT_FOUND;
}
API(cuFuncGetParamInfo)(void* function, size_t index, size_t* offset, size_t* size) {
  const struct kernel* kernel = function;
  if (index >= (size_t)kernel->n_params) return INVALID_VALUE;
  return *offset = kernel->offset[index], *size = kernel->size[index], SUCCESS;
}
/* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, up to an H200's 227 KiB; and PREFERRED_SHARED_MEMORY_CARVEOUT. */
API(cuFuncSetAttribute)(void* function, int attribute, int value) {
  if (attribute == 9 && value >= -1 && value <= 100) {
    record("carveout %s %d\n", ((struct kernel*)function)->symbol, value);
    return SUCCESS;
  }
  if (attribute != 8 || value > 227 << 10) return INVALID_VALUE;
  return ((struct kernel*)function)->shared_limit = value, SUCCESS;
}
/* Of 2-byte elements or fp32, with the limits of the driver's documentation; a swizzled box has rows of as many bytes
 * as the swizzling spans. The map is not opaque here. The log has dimensions, boxes, and the bytes from the first
 * element's to the last one's. */
API(cuTensorMapEncodeTiled)(uint64_t* map, int type, unsigned rank, uint64_t address, const uint64_t* dims,
                            const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                            int swizzle, int promotion, int fill) {
  (void)promotion;
  const unsigned size = type == 7 ? 4 : 2; /* CU_TENSOR_MAP_DATA_TYPE_FLOAT32, or UINT16 */
  if ((type != 1 && type != 7) || rank < 2 || rank > 5 || address % 16 || interleave || swizzle < 0 || swizzle > 3 ||
      fill)
    return INVALID_VALUE;
  uint64_t bytes = size * dims[0];
  for (unsigned i = 0; i < rank; ++i) {
    if (!dims[i] || !box[i] || box[i] > 256 || steps[i] != 1) return INVALID_VALUE;
    if (i && (strides[i - 1] % 16 || !strides[i - 1])) return INVALID_VALUE;
    if (i) bytes += (dims[i] - 1) * strides[i - 1];
  }
  if (box[0] * size % 16 || (swizzle && box[0] * size != 16u << swizzle)) return INVALID_VALUE;
  record("%s %llu", swizzle ? "swizzled-map" : "map", (unsigned long long)address);
  for (unsigned i = 0; i < rank; ++i) record(" %llu", (unsigned long long)dims[i]);
  for (unsigned i = 0; i < rank; ++i) record(" %u", box[i]);
  record(" %llu\n", (unsigned long long)bytes);
  memset(map, 0, 128);
  return map[0] = address, SUCCESS;
}
struct attribute {
  int id;
  char pad[4];
  uint8_t value[64];
};
struct launch {
  unsigned gx, gy, gz, bx, by, bz, shared;
  void* stream;
  struct attribute* attributes;
  unsigned n_attributes;
};
/* In the log, "cluster N" after the parameters, and "overlap": the launch has the attributes cluster dimension, of (N,
 * 1, 1), and programmatic stream serialization. */
API(cuLaunchKernelEx)(const struct launch* at, void* function, void** params, void** extra) {
  const struct kernel* kernel = function;
  if (!at->stream || extra || !at->gx || !at->gy || !at->gz || at->gy > 65535 || at->gz > 65535 ||
      at->bx * at->by * at->bz - 1 > 1023 || at->n_attributes > 2 || at->shared > kernel->shared_limit)
    return INVALID_VALUE;
  int overlap = 0;
  uint32_t cluster = 0, yz[2] = {1, 1};
  for (unsigned i = 0; i < at->n_attributes; ++i) {
    const struct attribute* attribute = at->attributes + i;
    overlap |= attribute->id == 6 && attribute->value[0] == 1;
    if (attribute->id != 4) continue;
    memcpy(&cluster, attribute->value, 4);
    memcpy(yz, attribute->value + 4, 8);
  }
  const unsigned known = (overlap != 0) + (cluster != 0);
  if (at->n_attributes != known || yz[0] != 1 || yz[1] != 1) return INVALID_VALUE;
  if (cluster && (cluster > 8 || at->gx % cluster)) return INVALID_VALUE;
  record("launch %s %u %u %u %u %u", kernel->symbol, at->gx, at->gy, at->gz, at->bx * at->by * at->bz, at->shared);
  for (int i = 0; i < kernel->n_params; ++i) {
    const uint8_t* bytes = params[i];
    record(" ");
    for (int b = 0; b < kernel->size[i]; ++b) record("%02x", bytes[b]);
  }
  if (cluster) record(" cluster %u", cluster);
  record(overlap ? " overlap\n" : "\n");
  add_node(KERNEL_NODE, NULL);
  return SUCCESS;
}

API(cuStreamBeginCapture)(void* stream, int mode) {
  (void)mode;
  if (!stream || capturing) return INVALID_VALUE;
  return capturing = calloc(1, sizeof *capturing), record("begin capture\n"), SUCCESS;
}
API(cuStreamEndCapture)(void* stream, void** graph) {
  (void)stream;
  if (!capturing) return INVALID_VALUE;
  return *graph = capturing, record("end capture %d\n", capturing->nodes), capturing = NULL, SUCCESS;
}
struct instantiate_params {
  uint64_t flags;
  void *stream, *error_node;
  int result;
};
static int launchable(const struct graph* graph) {
  for (int i = 0; i < graph->nodes; ++i) {
    const struct node* node = graph->node + i;
    if (node->kind < 0 || node->kind == 3 || node->kind > GRAPH_NODE || (node->child && !launchable(node->child)))
      return 0;
  }
  return graph->nodes;
}
API(cuGraphInstantiateWithParams)(void** exec, void* graph, struct instantiate_params* params) {
  if (params->flags != 4 || !launchable(graph)) return INVALID_VALUE; /* DEVICE_LAUNCH alone */
  return *exec = malloc(1), SUCCESS;
}
API(cuGraphGetNodes)(struct graph* graph, struct node** nodes, size_t* n) {
  for (size_t i = 0; nodes && i < *n && i < (size_t)graph->nodes; ++i) nodes[i] = graph->node + i;
  if (!nodes || *n > (size_t)graph->nodes) *n = graph->nodes;
  return SUCCESS;
}
API(cuGraphNodeGetType)(const struct node* node, int* kind) {
  return *kind = node->kind, SUCCESS;
}
API(cuGraphChildGraphNodeGetGraph)(const struct node* node, struct graph** child) {
  return *child = node->child, node->kind == GRAPH_NODE ? SUCCESS : INVALID_VALUE;
}
API(cuGraphUpload)(void* exec, void* stream) {
  return exec && stream ? SUCCESS : INVALID_VALUE;
}
API(cuGraphLaunch)(void* exec, void* stream) {
  return record("launch graph\n"), exec && stream ? SUCCESS : INVALID_VALUE;
}
API(cuGraphExecDestroy)(void* exec) {
  return record("destroy exec\n"), free(exec), SUCCESS;
}
API(cuGraphDestroy)(void* graph) {
  return record("destroy graph\n"), free(graph), SUCCESS;
}

/* What cuda-bindings look up; a name that is not faked fails where it is used. */
__attribute__((visibility("default"))) Result cuGetProcAddress_v2(const char* name, void** function, int version,
                                                                  uint64_t flags, int* status) {
  char symbol[128];
  (void)version, (void)flags;
  snprintf(symbol, sizeof symbol, "fake_%s", name);
  *function = dlsym(RTLD_DEFAULT, symbol);
  if (!*function) {
    Dl_info self;
    dladdr((void*)cuGetProcAddress_v2, &self);
    void* library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = dlsym(library, symbol);
  }
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}

/* For a fake of TensorRT (fake_tensorrt.py): one line of the log, and nodes of the kinds that it names, of which
 * those behind a GRAPH_NODE are its child's. */
__attribute__((visibility("default"))) void fake_enqueue(const char* line, const int* kinds, int n) {
  record("%s\n", line);
  for (int i = 0; i < n; ++i) {
    struct graph* const parent = capturing;
    if (!parent || kinds[i] != GRAPH_NODE) {
      add_node(kinds[i], NULL);
      continue;
    }
    struct graph* const child = calloc(1, sizeof *child);
    add_node(GRAPH_NODE, child);
    for (capturing = child; ++i < n;) add_node(kinds[i], NULL);
    capturing = parent;
  }
}

/* libcublas.so.13 and libcublasLt.so.13 */
#define CUBLAS(name) __attribute__((visibility("default"))) int name
CUBLAS(cublasCreate_v2)(void** handle) {
  return *handle = malloc(1), 0;
}
static int n_described; /* descriptors, layouts and preferences that exist */
CUBLAS(cublasDestroy_v2)(void* handle) {
  if (n_described) record("left %d\n", n_described);
  return record("destroy cublas\n"), free(handle), 0;
}
CUBLAS(cublasSetStream_v2)(void* handle, void* stream) {
  return !handle || !stream;
}
CUBLAS(cublasSetWorkspace_v2)(void* handle, void* workspace, size_t n) {
  return !handle || !workspace || n != 32 << 20 || getenv("FAKE_CUBLAS_NO_WORKSPACE");
}
CUBLAS(cublasSetSmCountTarget)(void* handle, int target) {
  return record("multiprocessors %d\n", target), !handle;
}
CUBLAS(cublasGemmEx)(void* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const void* a,
                     int a_type, int lda, const void* b, int b_type, int ldb, const float* beta, void* c, int c_type,
                     int ldc, int compute, int algorithm) {
  record("gemm %d %d %d %d %d %g %g %llu %d %d %llu %d %d %llu %d %d %d %d\n", op_a, op_b, m, n, k, *alpha, *beta,
         (unsigned long long)a, a_type, lda, (unsigned long long)b, b_type, ldb, (unsigned long long)c, c_type, ldc,
         compute, algorithm);
  add_node(KERNEL_NODE, NULL);
  return !handle;
}

/* Of every product there are $FAKE_CUBLAS_ALGORITHMS algorithms, called 'a', 'b' and so on, the last of them not valid
 * with $FAKE_CUBLAS_LAST_STATE. $FAKE_CUBLAS_FAILS names one that fails, and $FAKE_CUBLAS_STATUS is what asking for
 * them ends with. What is created for a product and not destroyed is logged when the handle is destroyed. */
struct heuristic {
  char algorithm[64];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
struct layout {
  int type;
  uint64_t rows, columns;
};
__attribute__((visibility("default"))) size_t cublasLtGetVersion(void) {
  return 130200;
}
CUBLAS(cublasLtMatmulDescCreate)(void** desc, int compute, int scale) {
  return ++n_described, *desc = calloc(32, sizeof(int)), !(compute == 68 && scale == 0);
}
CUBLAS(cublasLtMatmulDescDestroy)(void* desc) {
  return --n_described, free(desc), 0;
}
CUBLAS(cublasLtMatmulDescSetAttribute)(void* desc, int attribute, const int* value, size_t size) {
  return ((int*)desc)[attribute] = *value, size != 4;
}
CUBLAS(cublasLtMatrixLayoutCreate)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  struct layout* at = *layout = malloc(sizeof *at);
  ++n_described;
  return at->type = type, at->rows = rows, at->columns = columns, rows != (uint64_t)leading;
}
CUBLAS(cublasLtMatrixLayoutDestroy)(void* layout) {
  return --n_described, free(layout), 0;
}
CUBLAS(cublasLtMatmulPreferenceCreate)(void** preference) {
  return ++n_described, *preference = malloc(1), 0;
}
CUBLAS(cublasLtMatmulPreferenceDestroy)(void* preference) {
  return --n_described, free(preference), 0;
}
CUBLAS(cublasLtMatmulPreferenceSetAttribute)(void* preference, int attribute, const void* value, size_t size) {
  return !preference || !(attribute == 1 ? size == 8 && *(const uint64_t*)value == 32 << 20
                                         : attribute == 3 && size == 4 && *(const uint32_t*)value == 0);
}
static int agree(const int* desc, const struct layout* w, const struct layout* x, const struct layout* out) {
  return desc[3] == 1 && desc[4] == 0 && desc[15] == 131 && w->type == x->type && w->rows == x->rows &&
         w->columns == out->rows && x->columns == out->columns;
}
CUBLAS(cublasLtMatmulAlgoGetHeuristic)(void* handle, void* desc, void* w, void* x, void* c, void* d, void* preference,
                                       int most, struct heuristic* results, int* count) {
  const char* algorithms = getenv("FAKE_CUBLAS_ALGORITHMS");
  const int n = algorithms ? atoi(algorithms) : 0;
  *count = n < most ? n : most;
  memset(results, 0, *count * sizeof *results);
  for (int i = 0; i < *count; ++i) results[i].algorithm[0] = (char)('a' + i);
  if (*count) results[*count - 1].state = getenv("FAKE_CUBLAS_LAST_STATE") ? 15 : 0;
  if (!handle || !preference || c != d || !agree(desc, w, x, d)) return 1;
  const char* status = getenv("FAKE_CUBLAS_STATUS");
  return status ? atoi(status) : 0;
}
CUBLAS(cublasLtMatmulAlgoCheck)(void* handle, void* desc, void* w, void* x, void* c, void* d, const char* algorithm,
                                struct heuristic* result) {
  memset(result, 0, sizeof *result);
  return !handle || c != d || !agree(desc, w, x, d) || *algorithm < 'a';
}
CUBLAS(cublasLtMatmul)(void* handle, void* desc, const float* alpha, const void* w, const struct layout* w_layout,
                       const void* x, const struct layout* x_layout, const float* beta, const void* c, void* c_layout,
                       void* d, const struct layout* layout, const char* algorithm, void* workspace, size_t n,
                       void* stream) {
  if (!agree(desc, w_layout, x_layout, layout) || c != d || c_layout != layout || !workspace || n != 32 << 20) return 1;
  const char* fails = getenv("FAKE_CUBLAS_FAILS");
  if (fails && *fails == *algorithm) return 14;
  record("gemm_lt %c %d %d %d %g %g %llu %llu %llu %d\n", *algorithm, (int)layout->rows, (int)layout->columns,
         (int)x_layout->rows, *alpha, *beta, (unsigned long long)w, (unsigned long long)x, (unsigned long long)d,
         layout->type);
  add_node(KERNEL_NODE, NULL);
  return !handle || !stream;
}

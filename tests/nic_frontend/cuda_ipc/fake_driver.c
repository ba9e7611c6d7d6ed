/* A libcuda for the cuda_ipc link: GPU memory is a file that the "IPC handle" names, and streams are queues that a
 * thread works off later, as a GPU does: copies read their source when they are done, not when they are asked for.
 *
 * A test in the same process steers it through the fake_ functions below. Build: cc -shared -fPIC -pthread
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int Result;
enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_READY = 600, LAUNCH_FAILED = 719 };
enum { WRITE_32 = 2, WRITE_64 = 5, TO_DEVICE = 100, TO_HOST = 101, MAX_QUEUE = 1 << 14, MAX_STREAMS = 64 };
#define API __attribute__((visibility("default")))

struct op {
  uint32_t kind;
  uint64_t device, value;
  void* host;
  size_t bytes;
};
struct stream {
  struct op ops[MAX_QUEUE];
  size_t head, tail; /* tail - head are waiting */
};
struct write_value { /* CUstreamBatchMemOpParams */
  uint32_t operation, pad0;
  uint64_t address, value;
  uint32_t flags, pad1;
  uint64_t alias, pad2;
};

struct ipc_handle {
  char path[64];
};
struct mapping {
  uint64_t base;
  size_t bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t worker;
static struct stream* streams[MAX_STREAMS];
static int n_open, hung, held;
static Result broken;
static struct mapping mappings[8];
static __thread int current;
static char text[1 << 16];
static size_t text_at;
static unsigned rounds;

API unsigned fake_misuses; /* calls that a real driver would punish: see each use */

static void note(const char* what, uint64_t offset, uint64_t n) {
  if (text_at + 64 < sizeof text)
    text_at +=
        (size_t)snprintf(text + text_at, 64, "%s %llu %llu\n", what, (unsigned long long)offset, (unsigned long long)n);
}

/* The offset in its mapping, or -1 when the range is not in one. */
static int64_t inside(uint64_t device, size_t n) {
  for (int i = 0; i < 8; ++i)
    if (mappings[i].base && device >= mappings[i].base && device + n <= mappings[i].base + mappings[i].bytes)
      return (int64_t)(device - mappings[i].base);
  return ++fake_misuses, -1;
}

static void write_value(const struct op* op) {
  if (op->kind == WRITE_32)
    __atomic_store_n((uint32_t*)op->device, (uint32_t)op->value, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint64_t*)op->device, op->value, __ATOMIC_RELEASE);
}

static void work_off(struct stream* s) {
  while (s->head != s->tail) {
    const struct op* op = &s->ops[s->head++ % MAX_QUEUE];
    if (op->kind == TO_DEVICE)
      memcpy((void*)op->device, op->host, op->bytes);
    else if (op->kind == TO_HOST)
      for (size_t i = 0; i < op->bytes / 8; ++i) /* whole words, as the copy engine reads them */
        ((uint64_t*)op->host)[i] = __atomic_load_n((uint64_t*)op->device + i, __ATOMIC_ACQUIRE);
    else
      write_value(op);
  }
}

static void* work(void* unused) {
  (void)unused;
  for (;;) {
    pthread_mutex_lock(&mutex);
    const int ended = n_open == 0;
    if (!held && !hung)
      for (int i = 0; i < MAX_STREAMS; ++i)
        if (streams[i]) work_off(streams[i]);
    ++rounds;
    pthread_mutex_unlock(&mutex);
    if (ended) return NULL;
    usleep(5);
  }
}

static Result put(struct stream* s, struct op op) {
  if (broken) return broken;
  fake_misuses += !current; /* no context on this thread */
  if (s->tail - s->head == MAX_QUEUE) return INVALID_VALUE;
  s->ops[s->tail++ % MAX_QUEUE] = op;
  return SUCCESS;
}

/* ---- what the test calls */

API const char* fake_log(void) {
  return text;
}
API void fake_clear(void) {
  text_at = 0, text[0] = 0, fake_misuses = 0;
}
API void fake_hold(int on) { /* queues grow, nothing is done */
  pthread_mutex_lock(&mutex), held = on, pthread_mutex_unlock(&mutex);
}
API void fake_hang(int on) { /* as hold, and for a test's end: the link has given up on it */
  pthread_mutex_lock(&mutex), hung = on, pthread_mutex_unlock(&mutex);
}
API void fake_break(int on) { /* every call fails from now on, as after an error of the GPU */
  pthread_mutex_lock(&mutex), broken = on ? LAUNCH_FAILED : 0, pthread_mutex_unlock(&mutex);
}
API int fake_open(void) { /* memory handles that are open */
  return n_open;
}
API unsigned fake_rounds(void) { /* how often the thread has looked at the queues */
  pthread_mutex_lock(&mutex);
  const unsigned found = rounds;
  return pthread_mutex_unlock(&mutex), found;
}

API void fake_end(void) { /* what links that gave up have left */
  pthread_mutex_lock(&mutex);
  const int running = n_open > 0;
  n_open = held = hung = broken = 0;
  memset(streams, 0, sizeof streams);
  for (int i = 0; i < 8; ++i)
    if (mappings[i].base) munmap((void*)mappings[i].base, mappings[i].bytes), mappings[i].base = 0;
  pthread_mutex_unlock(&mutex);
  if (running) pthread_join(worker, NULL);
}

/* ---- what the link calls */

API Result cuInit(unsigned flags) {
  return flags ? INVALID_VALUE : SUCCESS;
}
API Result cuGetErrorString(Result error, const char** found) {
  return *found = error == LAUNCH_FAILED ? "unspecified launch failure" : "some error", SUCCESS;
}
API Result cuDeviceGetCount(int* n) {
  return *n = 2, SUCCESS;
}
API Result cuDeviceGet(int* device, int ordinal) {
  return *device = ordinal, SUCCESS;
}
API Result cuDeviceGetUuid_v2(char* uuid, int device) {
  return memset(uuid, device + 1, 16), SUCCESS;
}
API Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  return *value = attribute == 122 && device == 1, SUCCESS;
}
API Result cuDevicePrimaryCtxRetain(void** context, int device) {
  return *context = (void*)(uintptr_t)(device + 1), SUCCESS;
}
API Result cuDevicePrimaryCtxRelease_v2(int device) {
  return (void)device, SUCCESS;
}
API Result cuCtxSetCurrent(void* context) {
  return current = context != NULL, broken;
}
API Result cuStreamCreate(struct stream** stream, unsigned flags) {
  if (flags != 1) return INVALID_VALUE;
  pthread_mutex_lock(&mutex);
  struct stream** free_one = streams;
  while (*free_one) ++free_one;
  *stream = *free_one = calloc(1, sizeof(struct stream));
  pthread_mutex_unlock(&mutex);
  return SUCCESS;
}
API Result cuStreamDestroy_v2(struct stream* stream) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MAX_STREAMS; ++i)
    if (streams[i] == stream) streams[i] = NULL;
  pthread_mutex_unlock(&mutex);
  return free(stream), SUCCESS;
}
API Result cuStreamQuery(struct stream* stream) {
  pthread_mutex_lock(&mutex);
  const Result result = broken ? broken : stream->head == stream->tail ? SUCCESS : NOT_READY;
  pthread_mutex_unlock(&mutex);
  return result;
}
API Result cuMemHostAlloc(void** p, size_t n, unsigned flags) {
  return (void)flags, *p = calloc(1, n), SUCCESS;
}
API Result cuMemFreeHost(void* p) {
  return free(p), SUCCESS;
}
API Result cuIpcOpenMemHandle_v2(uint64_t* address, struct ipc_handle handle, unsigned flags) {
  struct stat status;
  const int file = open(handle.path, O_RDWR);
  if (flags != 1 || file < 0 || fstat(file, &status)) return INVALID_VALUE;
  pthread_mutex_lock(&mutex);
  struct mapping* free_one = mappings;
  while (free_one->base) ++free_one;
  free_one->bytes = (size_t)status.st_size;
  free_one->base = *address = (uint64_t)mmap(NULL, free_one->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (n_open++ == 0) pthread_create(&worker, NULL, work, NULL);
  pthread_mutex_unlock(&mutex);
  return close(file), SUCCESS;
}
API Result cuIpcCloseMemHandle(uint64_t address) {
  pthread_mutex_lock(&mutex);
  const int last = --n_open == 0;
  for (int i = 0; i < 8; ++i)
    if (mappings[i].base == address) munmap((void*)address, mappings[i].bytes), mappings[i].base = 0;
  pthread_mutex_unlock(&mutex);
  if (last) pthread_join(worker, NULL);
  return SUCCESS;
}
API Result cuMemcpyHtoDAsync_v2(uint64_t to, void* from, size_t n, struct stream* stream) {
  pthread_mutex_lock(&mutex);
  fake_misuses += n < 32768; /* would wait for the scheduler's time slice */
  note("copy", (uint64_t)inside(to, n), n);
  const Result result = inside(to, n) >= 0 ? put(stream, (struct op){TO_DEVICE, to, 0, from, n}) : INVALID_VALUE;
  pthread_mutex_unlock(&mutex);
  return result;
}
API Result cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t n, struct stream* stream) {
  pthread_mutex_lock(&mutex);
  const Result result = inside(from, n) >= 0 ? put(stream, (struct op){TO_HOST, from, 0, to, n}) : INVALID_VALUE;
  pthread_mutex_unlock(&mutex);
  return result;
}
API Result cuStreamBatchMemOp_v2(struct stream* stream, unsigned n, struct write_value* ops, unsigned flags) {
  if (n == 0 || n > 255 || flags) return INVALID_VALUE;
  pthread_mutex_lock(&mutex);
  note("batch", (uint64_t)inside(ops[n - 1].address, 4), n);
  Result result = SUCCESS;
  for (unsigned i = 0; i < n && !result; ++i) {
    const size_t size = ops[i].operation == WRITE_32 ? 4 : 8;
    if ((ops[i].operation != WRITE_32 && ops[i].operation != WRITE_64) || ops[i].flags || ops[i].address % size ||
        inside(ops[i].address, size) < 0)
      result = INVALID_VALUE;
    else
      result = put(stream, (struct op){ops[i].operation, ops[i].address, ops[i].value, 0, 0});
  }
  pthread_mutex_unlock(&mutex);
  return result;
}

/* libcublas.so.13 and libcublasLt.so.13 of the fake: what is multiplied is logged. */
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

#define CUBLAS(name) EXPORT int name
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
EXPORT size_t cublasLtGetVersion(void) {
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

/* Graphs of the fake driver: a capture counts its nodes. */
#include <stdlib.h>

#include "fake_cuda.h"

enum { MAX_NODES = 8192 };
struct node {
  int kind; /* CUgraphNodeType, or one of the header's own */
  struct graph* child;
};
struct graph {
  int nodes;
  struct node node[MAX_NODES];
};

static struct graph* capturing;

void add_node(int kind, struct graph* child) {
  if (!capturing || capturing->nodes == MAX_NODES) return;
  capturing->node[capturing->nodes++] = (struct node){kind, child};
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
    if (node->kind == COOPERATIVE_KERNEL_NODE) continue;
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
  return *kind = node->kind == COOPERATIVE_KERNEL_NODE ? KERNEL_NODE : node->kind, SUCCESS;
}
API(cuGraphKernelNodeGetAttribute)(const struct node* node, int attribute, int* value) {
  if (node->kind != KERNEL_NODE && node->kind != COOPERATIVE_KERNEL_NODE) return INVALID_VALUE;
  if (attribute != 2) return INVALID_VALUE; /* CU_LAUNCH_ATTRIBUTE_COOPERATIVE */
  return *value = node->kind == COOPERATIVE_KERNEL_NODE, SUCCESS;
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

/* For a fake of TensorRT (fake_tensorrt.py): one line of the log, and nodes of the kinds that it names, of which
 * those behind a GRAPH_NODE are its child's. */
EXPORT void fake_enqueue(const char* line, const int* kinds, int n) {
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

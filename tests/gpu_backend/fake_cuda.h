/* What the parts of the fake share: its log, and the graph that is being captured. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int Result;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_SUPPORTED = 801 };
enum { SYNC_MEMOPS = 6 }; /* CUpointer_attribute */
enum { DMA_BUF_FD = 1 };  /* CUmemRangeHandleType */

#define EXPORT __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))
#define API(name) EXPORT Result fake_##name

enum { KERNEL_NODE = 0, GRAPH_NODE = 4 }; /* CUgraphNodeType */
enum { COOPERATIVE_KERNEL_NODE = 1000 };  /* to the driver's callers, a kernel node with an attribute */
struct graph;

/* A line of $FAKE_CUDA_LOG, or a part of one. */
HIDDEN void record(const char* format, ...);
/* Into the graph that is being captured, if there is one. */
HIDDEN void add_node(int kind, struct graph* child);

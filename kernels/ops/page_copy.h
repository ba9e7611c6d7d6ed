/* Page copy: the whole of a copy step but its gate. KV pages go from the device to host memory, or come back: all
 * layers' keys and values of each (step.h says which pages).
 *
 * A page has 2 * layers parts: of each layer the keys, then the values. On the device the pages of a part lie one after
 * the other, which is the KV cache as attention reads it; in host memory the parts of a page do.
 *
 * E25. A copy step reads no page that it writes, and writes none twice, so its blocks need not wait for each other.
 * That steps take effect in order (E2) is all that protects a page: a step before has written what is copied, and
 * only a step behind overwrites it.
 */
#ifndef BLINK_OPS_PAGE_COPY_H
#define BLINK_OPS_PAGE_COPY_H

#include "kernels/primitives/common.h"

namespace blink {

/* Bytes from the beginning of the KV cache to a part of page `page`, or from that of the host's pages. */
BLINK_HD uint64_t page_part_offset(uint32_t page, uint32_t part, uint32_t total_pages, uint32_t parts,
                                   uint64_t part_bytes) {
  return page < total_pages ? (uint64_t(part) * total_pages + page) * part_bytes
                            : (uint64_t(page - total_pages) * parts + part) * part_bytes;
}

#ifndef __CUDACC__

inline void copy_page(unsigned char* cache, unsigned char* host, uint32_t from, uint32_t to, uint32_t total_pages,
                      uint32_t parts, uint64_t part_bytes) {
  for (uint32_t part = 0; part < parts; ++part) {
    const unsigned char* source =
        (from < total_pages ? cache : host) + page_part_offset(from, part, total_pages, parts, part_bytes);
    unsigned char* target =
        (to < total_pages ? cache : host) + page_part_offset(to, part, total_pages, parts, part_bytes);
    for (uint64_t i = 0; i < part_bytes; ++i) target[i] = source[i];
  }
}

#else

/* Host memory answers a read within microseconds. Together the blocks have a megabyte on its way, which is more than
 * PCIe carries in that time. */
constexpr uint32_t kCopyBlocks = 64;
constexpr uint32_t kCopyThreads = 256;
constexpr uint32_t kCopyAhead = 4; /* accesses of 16 bytes, a thread */

/* grid (kCopyBlocks), block (kCopyThreads). `part_bytes` is a multiple of 16. The last block publishes the step (E1).
 */
template <typename = void>
__global__ void __launch_bounds__(kCopyThreads)
    copy_pages_kernel(struct blink_step_set set, struct blink_tables tables, unsigned char* cache, unsigned char* host,
                      uint32_t total_pages, uint32_t parts, uint64_t part_bytes) {
  struct blink_step_head* head = set.head;
  const uint32_t n = head->n_tokens * parts, pieces = uint32_t(part_bytes / sizeof(uint4));
  for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
    const uint32_t from = set.token_sequence[i / parts], to = set.token_position[i / parts], part = i % parts;
    const uint4* source = reinterpret_cast<const uint4*>((from < total_pages ? cache : host) +
                                                         page_part_offset(from, part, total_pages, parts, part_bytes));
    uint4* target = reinterpret_cast<uint4*>((to < total_pages ? cache : host) +
                                             page_part_offset(to, part, total_pages, parts, part_bytes));
    for (uint32_t first = threadIdx.x; first < pieces; first += kCopyAhead * kCopyThreads) {
      uint4 piece[kCopyAhead];
#pragma unroll
      for (uint32_t k = 0; k < kCopyAhead; ++k)
        if (first + k * kCopyThreads < pieces) piece[k] = source[first + k * kCopyThreads];
#pragma unroll
      for (uint32_t k = 0; k < kCopyAhead; ++k)
        if (first + k * kCopyThreads < pieces) target[first + k * kCopyThreads] = piece[k];
    }
  }
  __syncthreads();
  if (threadIdx.x != 0 || arrive(&head->slots_done) != gridDim.x - 1) return;
  head->slots_done = 0;
  head->sample_ns = head->done_ns = global_ns();
  store_release(tables.completed, head->id);
}

#endif

}  // namespace blink

#endif /* BLINK_OPS_PAGE_COPY_H */

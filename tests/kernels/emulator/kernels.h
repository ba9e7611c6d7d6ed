/* What the files of this folder share, one a family of kernels. Each puts the CUDA kernels of its family behind the C
 * interface of the CPU references (kernels/reference/reference_ops.cpp) as `emulate_NAME`, and launches them on the
 * emulator as kernels/README.md says. Arrays of halves are bfloat16.
 */
#ifndef BLINK_EMULATOR_KERNELS_H
#define BLINK_EMULATOR_KERNELS_H

#define BLINK_PTX "emulated_ptx.h"
#include "cuda.h"

#include "cuda_bf16.h"

#include "kernels/ops/attention/kv_element.h"

using Half = __nv_bfloat16;
using blink_set = struct blink_step_set;
using emulator::after;

constexpr uint64_t kHalf = sizeof(Half), kFloat = sizeof(float);

/* Calls body(constant) with the template argument that `value` names. */
template <int First, int... Rest, typename Body>
void with_constant(uint32_t value, const Body& body) {
  if (value == First) {
    body(std::integral_constant<int, First>());
  } else if constexpr (sizeof...(Rest) > 0) {
    with_constant<Rest...>(value, body);
  } else {
    emulator::fail("no such instance");
  }
}

/* Calls body(element) with a value of the type of a cache's elements: a cache of fp8 has a scale. */
template <typename Body>
void with_cache(float scale, const Body& body) {
  if (scale == 0.0f)
    body(Half());
  else
    body(blink::Fp8());
}

template <typename Body>
void with_head_dim(uint32_t head_dim, const Body& body) {
  with_constant<16, 48, 64, 80, 96, 128, 192, 256>(head_dim, body);
}

#endif /* BLINK_EMULATOR_KERNELS_H */

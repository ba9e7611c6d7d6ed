/* When a kernel may start, and when it must wait. Included by ptx.h. */
#ifndef BLINK_PRIMITIVES_PDL_SM90_H
#define BLINK_PRIMITIVES_PDL_SM90_H

namespace blink {

/* Programmatic dependent launch (PTX manual, griddepcontrol). A kernel may start while its predecessor runs:
 * it may load weights, which nothing writes, and must wait_for_predecessor() in every block before its first
 * access to anything else. The wait ends when the predecessor has ended and its writes are visible; since the
 * predecessor has waited likewise, so have all kernels before it (E7). GPUs before Hopper have no such launch: there a
 * kernel starts when its predecessor has ended. */
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The successor may start once every block has said so or ended. */
__device__ __forceinline__ void allow_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace blink

#endif /* BLINK_PRIMITIVES_PDL_SM90_H */

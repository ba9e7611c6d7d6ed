/* Modules of the fake driver: kernels with the parameters of their cubin, and what they are launched with. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

enum { MAX_PARAMS = 32 };

struct kernel {
  char symbol[256];
  int n_params;
  uint16_t offset[MAX_PARAMS], size[MAX_PARAMS];
  unsigned shared_limit;
};

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
  return *module = memcpy(malloc(n), image, n), record("load\n"), SUCCESS;
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
/* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, up to an H200's 227 KiB. */
API(cuFuncSetAttribute)(void* function, int attribute, int value) {
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
/* In the log, "carveout" before the launch, if it has the attribute preferred shared memory carveout; and after the
 * parameters "cluster N" and "overlap": it has the attributes cluster dimension, of (N, 1, 1), and programmatic stream
 * serialization. */
API(cuLaunchKernelEx)(const struct launch* at, void* function, void** params, void** extra) {
  const struct kernel* kernel = function;
  if (!at->stream || extra || !at->gx || !at->gy || !at->gz || at->gy > 65535 || at->gz > 65535 ||
      at->bx * at->by * at->bz - 1 > 1023 || at->n_attributes > 3 || at->shared > kernel->shared_limit)
    return INVALID_VALUE;
  int overlap = 0, carveout = -1;
  uint32_t cluster = 0, yz[2] = {1, 1};
  for (unsigned i = 0; i < at->n_attributes; ++i) {
    const struct attribute* attribute = at->attributes + i;
    overlap |= attribute->id == 6 && attribute->value[0] == 1;
    if (attribute->id == 14) memcpy(&carveout, attribute->value, 4);
    if (attribute->id != 4) continue;
    memcpy(&cluster, attribute->value, 4);
    memcpy(yz, attribute->value + 4, 8);
  }
  const unsigned known = (overlap != 0) + (cluster != 0) + (carveout != -1);
  if (at->n_attributes != known || yz[0] != 1 || yz[1] != 1) return INVALID_VALUE;
  if (cluster && (cluster > 8 || at->gx % cluster)) return INVALID_VALUE;
  if (carveout < -1 || carveout > 100) return INVALID_VALUE;
  if (carveout != -1) record("carveout %s %d\n", kernel->symbol, carveout);
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

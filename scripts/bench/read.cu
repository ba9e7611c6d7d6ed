/* Reads n 16-byte words as fast as the memory gives them; the sum goes to `out` so that nothing is left out.
 */
__global__ void __launch_bounds__(512) read_kernel(const uint4* data, unsigned long long n, unsigned* out) {
  const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
  unsigned sum = 0;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 8 * stride) {
    uint4 word[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) word[k] = i + k * stride < n ? __ldcs(data + i + k * stride) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum ^= word[k].x ^ word[k].y ^ word[k].z ^ word[k].w;
  }
  if (sum == 12345u) *out = sum;
}

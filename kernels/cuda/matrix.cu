// Muon's matrices: products whose elements are chains of fma over ascending inner index, so that
// they have the host's bits, and the five Newton-Schulz steps made of them.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/cuda_launchers.h"
#include "kernels/cuda/device_root.h"
#include "kernels/cuda/launch.h"

namespace zero::cuda {

constexpr int kTile = 64; // of the result, a block's
constexpr int kInner = 16; // of the inner index, a turn's
constexpr int kOwn = 4; // by 4 elements are a thread's
constexpr int kAcross = kTile / kOwn; // threads across a tile
static_assert(kAcross * kAcross == kThreads);

template <bool right_transposed>
__global__ void __launch_bounds__(kThreads, 4) product_kernel(ProductArguments a) {
  CU_SHARED(float, left, [kInner][kTile + kOwn]);
  CU_SHARED(float, right, [kInner][kTile + kOwn]);
  const uint64_t tiles_across = (a.cols + kTile - 1) / kTile;
  const uint64_t tile_row = blockIdx.x / tiles_across, tile_col = blockIdx.x % tiles_across;
  if (a.symmetric && tile_row > tile_col) return; // written by its mirror image
  const uint64_t first_row = tile_row * kTile, first_col = tile_col * kTile;
  const uint32_t row = threadIdx.x / kAcross * kOwn, col = threadIdx.x % kAcross * kOwn;
  float sum[kOwn][kOwn] = {};
  for (uint64_t begin = 0; begin < a.inner; begin += kInner) {
    for (uint32_t e = threadIdx.x; e < kTile * kInner; e += kThreads) {
      const uint32_t l = e % kInner, i = e / kInner;
      const bool inside = first_row + i < a.rows && begin + l < a.inner;
      left[l][i] = inside ? a.left[(first_row + i) * a.inner + begin + l] : 0.0f;
    }
    for (uint32_t e = threadIdx.x; e < kTile * kInner; e += kThreads) {
      const uint32_t l = right_transposed ? e % kInner : e / kTile;
      const uint32_t j = right_transposed ? e / kInner : e % kTile;
      const bool inside = first_col + j < a.cols && begin + l < a.inner;
      const uint64_t from = right_transposed ? (first_col + j) * a.inner + begin + l
                                             : (begin + l) * a.cols + first_col + j;
      right[l][j] = inside ? a.right[from] : 0.0f;
    }
    __syncthreads();
    // Not to the end of the turn: a padding of zeros would make +0 of a sum that is -0.
    const int end = a.inner - begin < kInner ? static_cast<int>(a.inner - begin) : kInner;
    for (int l = 0; l < end; l++) {
      float x[kOwn], y[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; i++) x[i] = left[l][row + i];
#pragma unroll
      for (int j = 0; j < kOwn; j++) y[j] = right[l][col + j];
#pragma unroll
      for (int i = 0; i < kOwn; i++) {
#pragma unroll
        for (int j = 0; j < kOwn; j++) sum[i][j] = __fmaf_rn(x[i], y[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOwn; i++) {
    const uint64_t r = first_row + row + i;
#pragma unroll
    for (int j = 0; j < kOwn; j++) {
      const uint64_t c = first_col + col + j;
      if (r >= a.rows || c >= a.cols) continue;
      float value = sum[i][j];
      if (a.base != nullptr) {
        value = __fmaf_rn(a.beta, a.base[r * a.cols + c], __fmul_rn(a.alpha, value));
      }
      a.out[r * a.cols + c] = value;
      if (a.symmetric && tile_row != tile_col) a.out[c * a.cols + r] = value;
    }
  }
}

// to = from / (norm + 1e-7), or all NaN where a value is not finite.
__global__ void __launch_bounds__(kThreads, 4)
    divide_kernel(float* to, const float* from, uint64_t count, const ExactSum* norm,
                  const uint64_t* first_bad) {
  CU_SHARED(float, divisor, [1]);
  if (threadIdx.x == 0) divisor[0] = __double2float_rn(__dadd_rn(exact_root(norm), 1e-7));
  __syncthreads();
  const bool bad = *first_bad != kNone;
  const uint64_t turn = static_cast<uint64_t>(gridDim.x) * kThreads;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += turn) {
    to[i] = bad ? __uint_as_float(0x7fc00000u) : __fdiv_rn(from[i], divisor[0]);
  }
}

constexpr int kSide = 32; // of a transposed tile

__global__ void __launch_bounds__(kThreads, 4)
    transpose_kernel(const float* from, uint64_t rows, uint64_t cols, float* to) {
  CU_SHARED(float, tile, [kSide][kSide + 1]);
  const uint64_t tiles_across = (cols + kSide - 1) / kSide;
  const uint64_t first_row = blockIdx.x / tiles_across * kSide;
  const uint64_t first_col = blockIdx.x % tiles_across * kSide;
  const uint32_t x = threadIdx.x % kSide;
  for (uint32_t y = threadIdx.x / kSide; y < kSide; y += kThreads / kSide) {
    if (first_row + y < rows && first_col + x < cols) {
      tile[y][x] = from[(first_row + y) * cols + first_col + x];
    }
  }
  __syncthreads();
  for (uint32_t y = threadIdx.x / kSide; y < kSide; y += kThreads / kSide) {
    if (first_col + y < cols && first_row + x < rows) {
      to[(first_col + y) * rows + first_row + x] = tile[x][y];
    }
  }
}

namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f; // Jordan et al. 2024
constexpr int kSteps = 5;
static_assert(kSteps % 2 == 1); // an odd number of moves between the two places ends in x

uint64_t tiles_of(uint64_t rows, uint64_t cols, uint64_t side) {
  return ((rows + side - 1) / side) * ((cols + side - 1) / side);
}

int32_t transpose(const float* from, uint64_t rows, uint64_t cols, float* to, void* stream) {
  return launch(&transpose_kernel, tiles_of(rows, cols, kSide), stream, from, rows, cols, to);
}

} // namespace

int32_t product(const ProductArguments* product, void* stream) {
  const uint64_t tiles = tiles_of(product->rows, product->cols, kTile);
  if (product->right_transposed) return launch(&product_kernel<true>, tiles, stream, *product);
  return launch(&product_kernel<false>, tiles, stream, *product);
}

int32_t orthogonalise(const CudaOrthogonalise* o, void* stream) {
  const uint64_t n = std::min(o->rows, o->cols), k = std::max(o->rows, o->cols);
  const uint64_t count = o->rows * o->cols;
  if (count == 0) return 0;
  int32_t status = norm_clear(o->norm, o->first_bad, 1, stream);
  CudaNorm sum;
  sum.values = o->x;
  sum.count = count;
  sum.norm = o->norm;
  sum.first_bad = o->first_bad;
  if (status == 0) status = norm(&sum, stream);
  float* from = o->workspace;
  float* to = o->x;
  float* const gram = o->workspace + count;
  float* const polynomial = gram + n * n;
  const bool tall = o->rows > o->cols;
  if (status == 0) {
    status = launch(&divide_kernel, blocks_for(count, 0), stream, tall ? o->x : from,
                    static_cast<const float*>(o->x), count, static_cast<const ExactSum*>(o->norm),
                    static_cast<const uint64_t*>(o->first_bad));
  }
  if (status == 0 && tall) status = transpose(o->x, o->rows, o->cols, from, stream);
  for (int step = 0; step < kSteps && status == 0; step++) {
    // A = X X^T.  It is symmetric to the bit, as products commute, and so is what follows of it.
    ProductArguments a;
    a.left = a.right = from;
    a.right_transposed = true;
    a.rows = a.cols = n;
    a.inner = k;
    a.symmetric = true;
    a.out = gram;
    status = product(&a, stream);
    // B = b A + c A A
    a.left = a.right = a.base = gram;
    a.right_transposed = false;
    a.inner = n;
    a.alpha = kC;
    a.beta = kB;
    a.out = polynomial;
    if (status == 0) status = product(&a, stream);
    // X = a X + B X
    a.left = polynomial;
    a.right = a.base = from;
    a.cols = k;
    a.alpha = 1;
    a.beta = kA;
    a.symmetric = false;
    a.out = to;
    if (status == 0) status = product(&a, stream);
    std::swap(from, to);
  }
  if (status != 0 || !tall) return status;
  status = transpose(o->x, o->cols, o->rows, o->workspace, stream);
  if (status != 0) return status;
  return static_cast<int32_t>(cudaMemcpyAsync(o->x, o->workspace, count * sizeof(float),
                                              cudaMemcpyDeviceToDevice,
                                              static_cast<cudaStream_t>(stream)));
}

} // namespace zero::cuda

// Matrix products in fp32 whose every element is one chain of fma over ascending k: tiles of rows
// by two vectors of columns are held in registers, the columns' part of the right matrix packed
// before. SPDX-License-Identifier: BSD-3-Clause
#if defined(LIBZERO_VECTOR_PRODUCT) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBZERO_VECTOR_PRODUCT
#undef LIBZERO_VECTOR_PRODUCT
#else
#define LIBZERO_VECTOR_PRODUCT
#endif

#include <algorithm>

#include "kernels/host/vector_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

constexpr uint64_t kTileRows =
    kLanes == 16 ? 12 : 6; // two sums a row, and there are 32 or 16 registers
constexpr uint64_t kTileCols = 2 * kLanes;
constexpr uint64_t kDepth = 192; // rows of a packed panel, which stays in the first cache

// A part of the right matrix, `depth` rows of kTileCols columns, zeros behind the last column.
struct Panel {
  alignas(64) float values[kDepth * kTileCols];

  HWY_NOINLINE void pack(const ProductArguments& a, uint64_t row, uint64_t depth, uint64_t col,
                         uint64_t width) {
    const uint64_t row_step = a.right_transposed ? 1 : a.cols;
    const uint64_t col_step = a.right_transposed ? a.inner : 1;
    const float* const from = a.right + row * row_step + col * col_step;
    if (width < kTileCols) std::fill(values, values + depth * kTileCols, 0.0f);
    if (a.right_transposed) {
      for (uint64_t j = 0; j < width; j++) {
        for (uint64_t l = 0; l < depth; l++) values[l * kTileCols + j] = from[j * col_step + l];
      }
      return;
    }
    for (uint64_t l = 0; l < depth; l++) {
      for (uint64_t j = 0; j < width; j++) values[l * kTileCols + j] = from[l * row_step + j];
    }
  }
};

struct Tile {
  uint64_t row, rows, col, width; // what of it lies in the result
};

// Continues (or begins) the tile's chains over the panel's depth.
HWY_NOINLINE void multiply_tile(const ProductArguments& a, const Tile& tile, const Panel& panel,
                                uint64_t inner, uint64_t depth) {
  const float* left[kTileRows]; // rows that are not there repeat the last
  float* out[kTileRows];
  for (uint64_t r = 0; r < kTileRows; r++) {
    const uint64_t row = tile.row + std::min(r, tile.rows - 1);
    left[r] = a.left + row * a.inner + inner;
    out[r] = a.out + row * a.cols + tile.col;
  }
  const bool whole = tile.width == kTileCols;
  alignas(64) float edge[kTileCols] = {};
  Vector sums[kTileRows][2];
  for (uint64_t r = 0; r < kTileRows; r++) {
    const float* from = out[r];
    if (inner == 0) {
      sums[r][0] = sums[r][1] = hn::Zero(kFloats);
      continue;
    }
    if (!whole) {
      std::copy(from, from + tile.width, edge);
      from = edge;
    }
    sums[r][0] = Fp32::load(from);
    sums[r][1] = Fp32::load(from + kLanes);
  }
  const float* right = panel.values;
  for (uint64_t l = 0; l < depth; l++, right += kTileCols) {
    const Vector right0 = Fp32::load(right);
    const Vector right1 = Fp32::load(right + kLanes);
    for (uint64_t r = 0; r < kTileRows; r++) {
      const Vector factor = hn::Set(kFloats, left[r][l]);
      sums[r][0] = hn::MulAdd(factor, right0, sums[r][0]);
      sums[r][1] = hn::MulAdd(factor, right1, sums[r][1]);
    }
  }
  const bool ends = inner + depth == a.inner && a.base != nullptr;
  const Vector alpha = hn::Set(kFloats, a.alpha), beta = hn::Set(kFloats, a.beta);
  for (uint64_t r = 0; r < kTileRows; r++) {
    if (r >= tile.rows) break;
    if (ends) {
      const float* base = a.base + (out[r] - a.out);
      if (!whole) {
        std::copy(base, base + tile.width, edge);
        base = edge;
      }
      sums[r][0] = hn::MulAdd(beta, Fp32::load(base), hn::Mul(alpha, sums[r][0]));
      sums[r][1] = hn::MulAdd(beta, Fp32::load(base + kLanes), hn::Mul(alpha, sums[r][1]));
    }
    if (whole) {
      Fp32::store(sums[r][0], out[r]);
      Fp32::store(sums[r][1], out[r] + kLanes);
    } else {
      Fp32::store(sums[r][0], edge);
      Fp32::store(sums[r][1], edge + kLanes);
      std::copy(edge, edge + tile.width, out[r]);
    }
  }
}

HWY_NOINLINE void product(const ProductArguments& a) {
  Panel panel;
  for (uint64_t col = 0; col < a.cols; col += kTileCols) {
    const uint64_t width = std::min(a.cols - col, kTileCols);
    // Of a symmetric result the tiles that lie wholly below the diagonal are left out.
    const uint64_t rows = a.symmetric ? std::min(col + width, a.rows) : a.rows;
    for (uint64_t inner = 0; inner < a.inner; inner += kDepth) {
      const uint64_t depth = std::min(a.inner - inner, kDepth);
      panel.pack(a, inner, depth, col, width);
      for (uint64_t row = 0; row < rows; row += kTileRows) {
        const uint64_t height = std::min(a.rows - row, kTileRows);
        multiply_tile(a, {row, height, col, width}, panel, inner, depth);
      }
    }
  }
  if (!a.symmetric) return;
  for (uint64_t i = 1; i < a.rows; i++) {
    for (uint64_t j = 0; j < i; j++) a.out[i * a.cols + j] = a.out[j * a.cols + i];
  }
}

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

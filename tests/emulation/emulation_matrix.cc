// LAMB's and Muon's parts: directions, matrix products and orthogonalised matrices, bit by bit as
// the host's.
// SPDX-License-Identifier: BSD-3-Clause
#include "cuda_cases.h"

namespace {

using namespace cuda_cases;

constexpr int kParams = 3; // the last one is not active

std::vector<CudaConstants> direction_constants(bool lamb) {
  std::vector<CudaConstants> constants(kParams);
  for (int p = 0; p < kParams; p++) {
    CudaConstants& c = constants[static_cast<size_t>(p)];
    const float value = static_cast<float>(p);
    c.active = p + 1 < kParams ? 1 : 0;
    if (lamb) {
      c.lamb = {0.5f, 0.9f, 0.1f, 0.999f, 0.001f, 1e-6f, 0.01f * value, p == 1};
    } else {
      c.muon = {0.5f + value, 0.95f, 0.05f};
    }
  }
  return constants;
}

// The direction beside the gradient, or in its place where that is fp32.
void compare_direction(bool lamb, zero_dtype grad_dtype, uint64_t count, uint64_t offset,
                       bool in_place, Numbers numbers, uint64_t seed) {
  Array master = random_array(ZERO_DTYPE_FP32, count, numbers, seed);
  Array grad = random_array(grad_dtype, count, numbers, seed + 1);
  Array first = random_array(ZERO_DTYPE_FP32, count, numbers, seed + 2);
  Array second = random_array(ZERO_DTYPE_FP32, count, numbers, seed + 3);
  Array direction = random_array(ZERO_DTYPE_FP32, count, numbers, seed + 4);
  const DeviceArray device_master(master, offset), device_grad(grad, offset);
  const DeviceArray device_first(first, offset), device_second(second, offset);
  const DeviceArray device_direction(direction, offset);
  const std::vector<CudaConstants> constants = direction_constants(lamb);
  const std::vector<CudaTile> tiles = cut(count, 96, kParams);
  const DeviceValues<CudaConstants> device_constants(constants);
  const DeviceValues<CudaTile> device_tiles(tiles);
  CudaUpdate u;
  u.rule = lamb ? kCudaLamb : kCudaMuon;
  u.tiles = device_tiles.data();
  u.tile_count = static_cast<uint32_t>(tiles.size());
  u.constants = device_constants.data();
  if (lamb) u.master = device_master.data();
  u.grad = device_grad.data();
  u.grad_dtype = grad_dtype;
  u.state[0] = device_first.data();
  if (lamb) u.state[1] = device_second.data();
  u.direction = in_place ? device_grad.floats() : device_direction.floats();
  succeeded(table().update(&u, nullptr));

  for (const CudaTile& tile : tiles) {
    const CudaConstants& c = constants[static_cast<size_t>(tile.param)];
    if (c.active == 0) continue;
    UpdateStreams s;
    s.master = master.floats() + tile.at;
    s.grad = static_cast<const char*>(grad.data()) + tile.at * size_of(grad_dtype);
    s.grad_dtype = grad_dtype;
    s.state[0] = first.floats() + tile.at;
    s.state[1] = second.floats() + tile.at;
    s.count = tile.count;
    float* const to = (in_place ? grad.floats() : direction.floats()) + tile.at;
    if (lamb) {
      scalar_kernels().lamb(s, c.lamb, to);
    } else {
      scalar_kernels().muon(s, c.muon, to);
    }
  }
  const std::string what =
      std::string(lamb ? "lamb" : "muon") + ", grad " + std::to_string(grad_dtype);
  device_direction.assert_is(what + ", direction", direction);
  device_grad.assert_is(what + ", grad", grad, in_place ? Nan::kAny : Nan::kSameBits);
  device_first.assert_is(what + ", first state", first);
  device_second.assert_is(what + ", second state", second);
  device_master.assert_is(what + ", master", master, Nan::kSameBits);
}

void directions_of_lamb_and_muon_are_the_hosts(void**) {
  uint64_t seed = 1;
  for (const bool lamb : {false, true}) {
    for (const zero_dtype grad : kDtypes) {
      for (const Numbers numbers : {Numbers::kFinite, Numbers::kAwkward}) {
        for (const uint64_t count : {1, 96, 300}) {
          compare_direction(lamb, grad, count, 0, false, numbers, seed);
          compare_direction(lamb, grad, count, 3, false, numbers, seed + 5);
          if (grad == ZERO_DTYPE_FP32) {
            compare_direction(lamb, grad, count, 0, true, numbers, seed + 9);
          }
          seed += 20;
        }
      }
    }
  }
}

struct Shape {
  uint64_t rows, inner, cols;
};

// symmetric: right is left, so that the product is.
void compare_product(Shape shape, bool transposed, bool has_base, bool symmetric, Numbers numbers,
                     uint64_t seed) {
  const Array left = random_array(ZERO_DTYPE_FP32, shape.rows * shape.inner, numbers, seed);
  const Array right =
      symmetric ? left : random_array(ZERO_DTYPE_FP32, shape.inner * shape.cols, numbers, seed + 1);
  const Array base = random_array(ZERO_DTYPE_FP32, shape.rows * shape.cols, numbers, seed + 2);
  Array out = random_array(ZERO_DTYPE_FP32, shape.rows * shape.cols, Numbers::kFinite, seed + 3);
  const DeviceArray device_left(left), device_right(right), device_base(base), device_out(out);
  ProductArguments a;
  a.right_transposed = transposed;
  a.rows = shape.rows;
  a.inner = shape.inner;
  a.cols = shape.cols;
  a.alpha = 1.25f;
  a.beta = -0.75f;
  a.symmetric = symmetric;
  ProductArguments device = a;
  a.left = static_cast<const float*>(left.data());
  a.right = static_cast<const float*>(right.data());
  if (has_base) a.base = static_cast<const float*>(base.data());
  a.out = out.floats();
  scalar_kernels().product(a);
  device.left = device_left.floats();
  device.right = device_right.floats();
  if (has_base) device.base = device_base.floats();
  device.out = device_out.floats();
  succeeded(table().product(&device, nullptr));
  device_out.assert_is("product of " + std::to_string(shape.rows) + " by " +
                           std::to_string(shape.inner) + " by " + std::to_string(shape.cols),
                       out);
}

void products_are_the_hosts(void**) {
  uint64_t seed = 1;
  for (const Shape shape :
       {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{64, 16, 64}, Shape{65, 33, 70}, Shape{130, 40, 20}}) {
    if (kFewCases && shape.rows > 64) continue;
    for (int bits = 0; bits < 8; bits++) {
      compare_product(shape, (bits & 1) != 0, (bits & 2) != 0, false,
                      (bits & 4) != 0 ? Numbers::kAwkward : Numbers::kFinite, seed++);
    }
  }
}

void half_of_a_symmetric_product_is_copied(void**) {
  for (const Numbers numbers : {Numbers::kFinite, Numbers::kAwkward}) {
    compare_product({130, 21, 130}, true, false, true, numbers, 50);
    compare_product({20, 3, 20}, true, false, true, numbers, 51);
  }
}

// A sum that is -0 stays so: padding it with products of zeros would not.
void a_negative_zero_survives_the_end_of_a_product(void**) {
  Array left(ZERO_DTYPE_FP32, 1), right(ZERO_DTYPE_FP32, 1), out(ZERO_DTYPE_FP32, 1);
  left.set(0, -0x1p-100f);
  right.set(0, 0x1p-100f);
  out.set(0, 1);
  const DeviceArray device_left(left), device_right(right), device_out(out);
  ProductArguments a;
  a.left = device_left.floats();
  a.right = device_right.floats();
  a.rows = a.inner = a.cols = 1;
  a.out = device_out.floats();
  succeeded(table().product(&a, nullptr));
  assert_int_equal(device_out.back().bits(0), 0x80000000u);
}

void orthogonalise(uint64_t rows, uint64_t cols, bool with_nan) {
  Array x = random_array(ZERO_DTYPE_FP32, rows * cols, Numbers::kFinite, rows * 31 + cols);
  for (uint64_t i = 0; i < x.count(); i++) x.set(i, std::fmod(x.at(i), 3.0f));
  if (with_nan) x.set(x.count() / 2, NAN);
  const Array scratch(ZERO_DTYPE_FP32, newton_schulz_workspace(rows, cols));
  const DeviceArray device(x), workspace(scratch);
  const DeviceValues<ExactSum> norm(ExactSum{});
  const DeviceValues<uint64_t> first_bad(kNone);
  CudaOrthogonalise o;
  o.x = device.floats();
  o.rows = rows;
  o.cols = cols;
  o.workspace = workspace.floats();
  o.norm = norm.data();
  o.first_bad = first_bad.data();
  succeeded(table().orthogonalise(&o, nullptr));
  std::vector<float> host_workspace(newton_schulz_workspace(rows, cols));
  newton_schulz_by(scalar_kernels(), x.floats(), rows, cols, host_workspace.data());
  device.assert_is("matrix of " + std::to_string(rows) + " by " + std::to_string(cols), x);
}

void orthogonalised_matrices_are_the_hosts(void**) {
  for (const Shape shape : {Shape{1, 0, 1}, Shape{2, 0, 9}, Shape{40, 0, 12}, Shape{33, 0, 33},
                            Shape{70, 0, 65}, Shape{12, 0, 100}}) {
    if (kFewCases && shape.rows * shape.cols > 500) continue;
    orthogonalise(shape.rows, shape.cols, false);
  }
  orthogonalise(5, 40, true);
  orthogonalise(40, 5, true);
}

} // namespace

int main() {
  if (!belongs_to_the_tier()) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(directions_of_lamb_and_muon_are_the_hosts),
      cmocka_unit_test(products_are_the_hosts),
      cmocka_unit_test(half_of_a_symmetric_product_is_copied),
      cmocka_unit_test(a_negative_zero_survives_the_end_of_a_product),
      cmocka_unit_test(orthogonalised_matrices_are_the_hosts),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

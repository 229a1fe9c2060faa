// The vector kernels, compiled once per Highway target.  Targets without a fused multiply-add (SSE)
// are left out - their MulAdd rounds twice - as are those with vectors of unknown length; such
// machines run the scalar kernels.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/host/vector_kernels.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_AVX3 | HWY_NEON | HWY_EMU128 | HWY_SCALAR))

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/vector_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/host/float_environment.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "kernels/host/vector_convert-inl.h"
#include "kernels/host/vector_direction-inl.h"
#include "kernels/host/vector_product-inl.h"
#include "kernels/host/vector_reduce-inl.h"
#include "kernels/host/vector_update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
constexpr const char* kName = "avx3";
#elif HWY_TARGET == HWY_AVX2
constexpr const char* kName = "avx2";
#else
constexpr const char* kName = "neon";
#endif

struct VectorTarget {
  static constexpr int64_t kTarget = HWY_TARGET;
  static constexpr KernelTable kTable = {
      kName,
      Guarded<reduce>::run,
      Guarded<norm>::run,
      Guarded<adam>::run,
      Guarded<sgd>::run,
      Guarded<cast>::run,
      Guarded<add>::run,
      Guarded<scale>::run,
      Guarded<adagrad>::run,
      Guarded<lion>::run,
      Guarded<lamb>::run,
      Guarded<muon>::run,
      Guarded<apply>::run,
      Guarded<product>::run,
  };
};

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace zero::kernels {

namespace {

struct CompiledTarget {
  int64_t target;
  const KernelTable* table;
};

// Best first.
constexpr CompiledTarget kCompiled[] = {
#if HWY_TARGETS & HWY_AVX3
    {N_AVX3::VectorTarget::kTarget, &N_AVX3::VectorTarget::kTable},
#endif
#if HWY_TARGETS & HWY_AVX2
    {N_AVX2::VectorTarget::kTarget, &N_AVX2::VectorTarget::kTable},
#endif
#if HWY_TARGETS & HWY_NEON
    {N_NEON::VectorTarget::kTarget, &N_NEON::VectorTarget::kTable},
#endif
    {0, nullptr},
};

} // namespace

const KernelTable* vector_kernels(int32_t index) {
  for (const CompiledTarget& compiled : kCompiled) {
    if ((compiled.target & hwy::SupportedTargets()) == 0) continue;
    if (index-- == 0) return compiled.table;
  }
  return nullptr;
}

} // namespace zero::kernels
#endif

// The CUDA kernels behind one table of C functions: the same set, the same formulas and the same
// bits as kernels/kernels.h.  Every pointer in an argument is device memory (or host memory that
// the device can read) unless it says otherwise; a launcher enqueues on the stream, a cudaStream_t
// as void*, and returns a cudaError_t, 0 for success.  Nothing waits, nothing allocates, nothing
// throws, so whatever a step needs can be captured into a graph.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace zero::kernels {

constexpr uint32_t kCudaKernelsVersion = 2;

// A piece of one parameter within the range that a launch works on.  The host cuts them once, from
// the plan; one block works on each.
struct CudaTile {
  uint64_t at = 0; // elements from the streams' first, a multiple of 32
  uint32_t count = 0;
  int32_t param = 0; // row of the constants and of the norms
  // Where given: the tile's first element in the host program's own memory, in place of model (of
  // master where there is no model).
  void* value = nullptr;
};
// Elements of a tile that keep a block busy; any number is right.
constexpr uint32_t kCudaTileElements = 8192;

// What changes from step to step, one record in device memory.  The host fills it once, and writes
// `average` when the number of micro-batches changes; verdict moves it on.
struct CudaStep {
  double average = 1; // turns the sum of gradients into the mean
  double loss_scale = 1;
  int64_t credits = 1, iteration = 0, last_overflow = -1; // as optim::LossScale
  int64_t updates = 0; // made so far, the one at hand included; the skipped are not
  int64_t skipped = 0;
  // Of the step at hand:
  int64_t row = 0; // updates made before it: the row of the table of rates
  double norm = 0, clip_scale = 1, factor = 1; // as optim::GradientScale
  int32_t found = 0; // a value that is not finite, on any rank
  int32_t skip = 0; // fused passes leave everything as it is
  int32_t fatal = 0; // an overflow at the smallest scale: nothing moves until the host clears it
};

// The constants of one parameter at the update at hand.
struct CudaConstants {
  int32_t active = 0; // 0: the parameter is not stepped
  union {
    AdamConstants adam;
    SgdConstants sgd;
    AdagradConstants adagrad;
    LionConstants lion;
    LambConstants lamb;
    MuonConstants muon;
  };
  ApplyConstants apply; // of rules with a direction
};

enum CudaRule : int32_t {
  kCudaAdam = 0,
  kCudaSgd = 1,
  kCudaAdagrad = 2,
  kCudaLion = 3,
  kCudaApply = 4, // direction: the gradient stream, fp32
  kCudaLamb = 5, // writes its direction
  kCudaMuon = 6,
};

// The streams of one launch, as UpdateStreams and WideStreams (kernels/host/blocked_update.h).
struct CudaUpdate {
  const CudaTile* tiles = nullptr;
  uint32_t tile_count = 0;
  int32_t rule = kCudaAdam;
  const CudaConstants* constants = nullptr; // by CudaTile::param
  const CudaStep* step = nullptr; // null: never skipped
  void* master = nullptr; // null where remainder is given, or every tile has its value
  int32_t master_dtype = ZERO_DTYPE_FP32;
  int32_t model_dtype = ZERO_DTYPE_FP32;
  uint16_t* remainder = nullptr;
  uint32_t* ties = nullptr;
  void* model = nullptr;
  // Whether there is a model beside the master: `model`, or each tile's value.
  int32_t has_model = 0;
  int32_t grad_dtype = ZERO_DTYPE_FP32;
  const void* grad = nullptr;
  void* state[2] = {nullptr, nullptr};
  int32_t state_dtype = ZERO_DTYPE_FP32;
  float* direction = nullptr; // written by kCudaLamb and kCudaMuon; may be the fp32 gradient
};

// As ReduceArguments; contributions is an array of pointers in device memory.
struct CudaReduce {
  const void* const* contributions = nullptr;
  int32_t ranks = 0;
  int32_t contribution_dtype = ZERO_DTYPE_FP32;
  void* accumulate = nullptr;
  int32_t accumulate_dtype = ZERO_DTYPE_FP32;
  float scale = 1;
  int32_t add = 0;
  uint32_t most_blocks = 0; // 0: as many as fill a device
  uint64_t count = 0;
  ExactSum* norm = nullptr;
  uint64_t* first_bad = nullptr; // with norm: made smaller, so kNone before the first
};

struct CudaNorm {
  const void* values = nullptr;
  int32_t dtype = ZERO_DTYPE_FP32;
  uint32_t most_blocks = 0;
  uint64_t count = 0;
  // With tiles, count is theirs: values of each are added to norm[tile.param].
  const CudaTile* tiles = nullptr;
  uint32_t tile_count = 0;
  ExactSum* norm = nullptr;
  uint64_t* first_bad = nullptr; // may be null with tiles; there it is an array too
};

struct CudaConvert {
  const void* src = nullptr;
  void* dst = nullptr;
  int32_t src_dtype = ZERO_DTYPE_FP32;
  int32_t dst_dtype = ZERO_DTYPE_FP32;
  uint64_t count = 0;
  float factor = 1; // scale alone
  const CudaStep* step = nullptr; // scale: where given, its factor in place of `factor`
};

struct CudaMaster {
  float* master = nullptr;
  uint16_t* model = nullptr;
  uint16_t* remainder = nullptr;
  uint32_t* ties = nullptr;
  uint64_t count = 0;
};

// The verdict: exact norm, clipping, skip, loss scale; counters and row moved on.
struct CudaVerdict {
  CudaStep* step = nullptr;
  const ExactSum* sum = nullptr; // added over ranks
  // found where any of the words is not 0
  const int64_t* non_finite = nullptr;
  uint64_t non_finite_count = 0, non_finite_stride = 1;
  double clipping = 0;
  int32_t checks_overflow = 1;
  // as optim::LossScaleRules
  int32_t dynamic = 0, consecutive_hysteresis = 0;
  double minimum = 1;
  int64_t window = 1000, hysteresis = 1;
  float* loss_scale = nullptr; // where given, the scale as it then stands
};

// The rates of one group at one update, tabulated by the host for the coming updates.
struct CudaRates {
  double lr, beta1, beta2, epsilon, weight_decay, momentum;
};

// The constants of every parameter for the update at hand, after verdict.
struct CudaPrepare {
  const CudaStep* step = nullptr;
  const CudaRates* rates = nullptr; // row (update % rows) by group
  int64_t rows = 1;
  int32_t groups = 1;
  int32_t params = 0;
  const int32_t* group_of = nullptr; // by parameter; < 0: never stepped
  const int64_t* came = nullptr; // 16 bits a parameter, four a word; null: all came
  int64_t* param_steps = nullptr; // by parameter: updates of it; moved on
  int32_t rule = kCudaAdam; // kCudaAdam, Sgd, Adagrad, Lion, Lamb or Muon
  int32_t bias_correction = 1, decoupled = 1, nesterov = 0, epsilon_inside_sqrt = 0;
  double dampening = 0;
  // Muon: by parameter, sqrt(max(1, rows / cols)) of a hidden matrix, 0 of what AdamW steps; the
  // schedule moves the rates of both as it moves base_lr.
  const double* muon_factor = nullptr;
  double base_lr = 0, muon_lr = 0, muon_adam_lr = 0;
  CudaConstants* constants = nullptr;
};

// LAMB's step sizes from the exact sums of squares of directions and of values, after prepare.
struct CudaTrustRatio {
  CudaPrepare prepare;
  const ExactSum* direction = nullptr; // by parameter
  const ExactSum* value = nullptr;
  double smallest = 0, largest = 0;
};

struct CudaOrthogonalise {
  float* x = nullptr; // row-major, in place
  uint64_t rows = 0, cols = 0;
  float* workspace = nullptr; // newton_schulz_workspace floats
  ExactSum* norm = nullptr; // scratch
  uint64_t* first_bad = nullptr; // scratch
};

// One parameter within a bucket, as CudaNote looks it up.
struct CudaMember {
  uint64_t offset = 0, count = 0; // elements of the bucket
  int64_t order = 0; // its place in backward order
  int64_t param = 0;
};
// The first value that is not finite: order + 1 (0: all are finite), parameter, element, and the
// rank that brought it, -1 where that is not known.
constexpr uint32_t kCudaFoundWords = 4;

// After reduce or norm: where their first_bad found something, looks at that chunk again and makes
// `found` say which value it was, unless it says an earlier one already; first_bad becomes kNone.
struct CudaNote {
  uint64_t* first_bad = nullptr;
  int64_t* found = nullptr;
  const void* values = nullptr; // what was stored, or looked at
  int32_t dtype = ZERO_DTYPE_FP32;
  int32_t member_count = 0;
  const CudaMember* members = nullptr; // of the bucket, by offset
  uint64_t start = 0; // elements of the bucket before `values`
  uint64_t count = 0;
  // As CudaReduce's; behind the pointers lie as many numbers, the ranks they are of.
  const void* const* contributions = nullptr;
  int32_t ranks = 0;
  int32_t contribution_dtype = ZERO_DTYPE_FP32;
  int32_t overwritten = -1; // this rank's own contribution is the sum by now: suspected last
  int32_t ranks_in_all = 1; // alone, a rank is known without looking
};

// The step record, of which the ranks' sum is made (engine/step_record.h).
struct CudaRecord {
  int64_t* record = nullptr;
  const ExactSum* sum = nullptr; // of this rank's shards; leaves normalised
  const int64_t* found = nullptr; // kCudaFoundWords
  int64_t hash = 0;
  const int64_t* came = nullptr;
  const ExactSum* param_sums = nullptr;
  uint64_t came_words = 0;
  uint64_t param_count = 0; // of param_sums
  int32_t rank = 0, ranks = 1;
};
constexpr uint32_t kCudaRecordWords = 5; // of a rank: found, hash

struct CudaKernelTable {
  uint32_t version;
  uint32_t size; // of this struct
  int32_t (*update)(const CudaUpdate* update, void* stream);
  int32_t (*reduce)(const CudaReduce* reduce, void* stream);
  int32_t (*norm)(const CudaNorm* norm, void* stream);
  int32_t (*norm_clear)(ExactSum* norms, uint64_t* first_bad, uint64_t count, void* stream);
  int32_t (*cast)(const CudaConvert* convert, void* stream);
  int32_t (*add)(const CudaConvert* convert, void* stream);
  int32_t (*scale)(const CudaConvert* convert, void* stream);
  int32_t (*split_master)(const CudaMaster* master, void* stream);
  int32_t (*join_master)(const CudaMaster* master, void* stream);
  int32_t (*product)(const ProductArguments* product, void* stream);
  int32_t (*orthogonalise)(const CudaOrthogonalise* orthogonalise, void* stream);
  int32_t (*verdict)(const CudaVerdict* verdict, void* stream);
  int32_t (*prepare)(const CudaPrepare* prepare, void* stream);
  int32_t (*trust_ratio)(const CudaTrustRatio* trust_ratio, void* stream);
  int32_t (*note)(const CudaNote* note, void* stream);
  int32_t (*record)(const CudaRecord* record, void* stream);
};

} // namespace zero::kernels

// Null where this build's version is another.
extern "C" const zero::kernels::CudaKernelTable* zero_cuda_kernels(uint32_t version);

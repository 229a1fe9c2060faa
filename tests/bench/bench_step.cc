// Reduction and step of GPT-2's 124 M parameters at two rank processes, for every stage and
// storage, beside the sum of its parts - plain loops over the same bytes in the same processes -
// interleaved, medians:
//   bench_step [repeats] [stages] [library|caller|both] [model.tsv]
// Timed is what a program adds to its forward and backward passes: zero_grad_ready of all, when
// every gradient lies in its buffer, zero_micro_end and zero_step.  One JSON object a line; ratio
// is the speed in units of the baseline's (above 1: faster). SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zero.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "plain_loops.h"

namespace {

constexpr int32_t kRanks = 2;
constexpr double kTableBytes[] = {16, 12, 10, 8}; // a parameter at two ranks, fp32 Adam

struct Shape {
  std::string name;
  std::vector<int64_t> dimensions;
  int32_t unit = 0;
  uint64_t elements() const {
    uint64_t product = 1;
    for (const int64_t d : dimensions) product *= static_cast<uint64_t>(d);
    return product;
  }
};

void must(zero_status status) {
  if (status == ZERO_OK) return;
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  std::fprintf(stderr, "bench_step: %s: %s\n", zero_status_name(status), info.message);
  _exit(1);
}

std::vector<Shape> gpt2_124m() {
  constexpr int64_t kWidth = 768;
  std::vector<Shape> shapes = {{"wte", {50257, kWidth}, 0}, {"wpe", {1024, kWidth}, 0}};
  for (int32_t layer = 0; layer < 12; ++layer) {
    const auto add = [&](const char* name, std::vector<int64_t> dimensions) {
      shapes.push_back({std::string("h").append(std::to_string(layer)).append(".").append(name),
                        std::move(dimensions), layer + 1});
    };
    add("ln_1.weight", {kWidth});
    add("ln_1.bias", {kWidth});
    add("attn.c_attn.weight", {kWidth, 3 * kWidth});
    add("attn.c_attn.bias", {3 * kWidth});
    add("attn.c_proj.weight", {kWidth, kWidth});
    add("attn.c_proj.bias", {kWidth});
    add("ln_2.weight", {kWidth});
    add("ln_2.bias", {kWidth});
    add("mlp.c_fc.weight", {kWidth, 4 * kWidth});
    add("mlp.c_fc.bias", {4 * kWidth});
    add("mlp.c_proj.weight", {4 * kWidth, kWidth});
    add("mlp.c_proj.bias", {kWidth});
  }
  shapes.push_back({"ln_f.weight", {kWidth}, 13});
  shapes.push_back({"ln_f.bias", {kWidth}, 13});
  return shapes;
}

// Name and shape of the trained, untied rows of a list as in the corpus.
std::vector<Shape> read_list(const char* path) {
  std::ifstream file(path);
  std::vector<Shape> shapes;
  std::string line;
  for (std::getline(file, line); std::getline(file, line);) {
    std::vector<std::string> cells;
    std::stringstream row(line);
    for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
    if (cells.size() < 5 || cells[4] != "1" || (cells.size() > 5 && !cells[5].empty())) continue;
    Shape shape{cells[0], {}, static_cast<int32_t>(shapes.size() / 12)};
    std::stringstream dimensions(cells[1]);
    for (std::string d; std::getline(dimensions, d, 'x');) {
      shape.dimensions.push_back(std::atoll(d.c_str()));
    }
    shapes.push_back(shape);
  }
  if (shapes.empty()) {
    std::fprintf(stderr, "bench_step: no trained parameter in %s\n", path);
    std::exit(2);
  }
  return shapes;
}

float* private_memory(uint64_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("bench_step: mmap");
    _exit(1);
  }
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  return static_cast<float*>(memory);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Proportional set size: a page shared by two ranks counts half in each.
double pss_mb() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Pss:", 0) == 0) return std::atof(line.c_str() + 4) * 1024 / 1e6;
  }
  return 0;
}

void print(const std::string& name, double value, const char* unit, double baseline, double ratio) {
  std::printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":%.4g,\"ratio\":%.3f}\n",
              name.c_str(), value, unit, baseline, ratio);
  std::fflush(stdout);
}

// The same bytes as a rank's part of a step, moved by plain loops.
struct PlainParts {
  explicit PlainParts(uint64_t elements)
      : count(elements),
        a(private_memory(4 * elements)),
        b(private_memory(4 * elements)),
        c(private_memory(4 * elements)),
        d(private_memory(4 * elements)) {}
  void reduce() { plain_reduce(a, b, c, count); }
  void update() { plain_update(a, b, c, d, count); }
  void gather() { std::memcpy(d, b, 4 * count); }

  uint64_t count; // of a shard
  float *a, *b, *c, *d;
};

// What one pass over the parameters took.
struct Passes {
  std::vector<double> step, parts, ratio, reduce, update, gather, own_reduce, own_update,
      own_gather;
};

class Trainer {
 public:
  Trainer(zero_comm* comm, const std::vector<Shape>& shapes, int stage, bool caller,
          const char* open_buckets, double bare_mb)
      : shapes_(shapes), stage_(stage), bare_mb_(bare_mb) {
    uint64_t elements = 0;
    for (const Shape& shape : shapes) elements += shape.elements();
    if (caller) {
      values_ = private_memory(4 * elements);
      values_bytes_ = 4 * elements;
    }
    const std::string text =
        "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 1.0, \"optimizer\": "
        "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4, \"weight_decay\": 0.01}}, "
        "\"zero_optimization\": {\"stage\": " +
        std::to_string(stage) + "}, \"libzero\": {\"open_buckets\": " + open_buckets + "}}";
    zero_config* config = nullptr;
    must(zero_config_load_text(text.c_str(), text.size(), &config));
    zero_init_options options;
    zero_init_options_init(&options, sizeof options);
    options.comm = comm;
    must(zero_init(config, &options, &runtime_));
    zero_config_destroy(config);
    zero_model* model = nullptr;
    must(zero_model_create(&model));
    uint64_t at = 0;
    for (const Shape& shape : shapes) {
      zero_param_options param;
      zero_param_options_init(&param, sizeof param);
      param.dtype = ZERO_DTYPE_FP32;
      if (stage == 3) param.unit = shape.unit;
      if (caller) {
        param.storage = ZERO_STORAGE_CALLER;
        param.data = values_ + at;
      }
      at += shape.elements();
      zero_param_id id = -1;
      must(zero_param_add(model, shape.name.c_str(), shape.dimensions.data(),
                          static_cast<int32_t>(shape.dimensions.size()), &param, &id));
    }
    must(zero_shard_params(runtime_, model));
    zero_model_destroy(model);
  }

  ~Trainer() {
    must(zero_runtime_close(runtime_));
    zero_runtime_destroy(runtime_);
    if (values_ != nullptr) munmap(values_, values_bytes_);
  }

  void meet() { must(zero_comm_barrier(zero_runtime_comm(runtime_))); }

  // The backward pass: asks for a buffer and writes it.
  void write_gradient(zero_param_id param) {
    zero_buffer buffer;
    int32_t add = 0;
    must(zero_grad_buffer(runtime_, param, nullptr, &buffer, &add));
    std::fill_n(static_cast<float*>(buffer.data), buffer.count, 1e-3f);
  }

  zero_param_id last() const { return static_cast<zero_param_id>(shapes_.size()) - 1; }

  double timed_step(zero_step_info* info) {
    must(zero_micro_begin(runtime_, 1));
    for (zero_param_id p = last(); p >= 0; --p) write_gradient(p);
    zero_step_info_init(info, sizeof *info);
    meet();
    const double start = now();
    for (zero_param_id p = last(); p >= 0; --p) must(zero_grad_ready(runtime_, &p, 1, nullptr));
    must(zero_micro_end(runtime_, nullptr));
    must(zero_step(runtime_, nullptr, nullptr, info));
    meet();
    return now() - start;
  }

  // With as few gradients at once as the stage allows.
  double pss_after_a_step() {
    must(zero_micro_begin(runtime_, 1));
    for (zero_param_id p = last(); p >= 0; --p) {
      zero_buffer loan;
      must(zero_params_acquire(runtime_, &p, 1, nullptr, &loan));
      write_gradient(p);
      must(zero_grad_ready(runtime_, &p, 1, nullptr));
      must(zero_params_release(runtime_, &p, 1, 0, nullptr));
    }
    must(zero_micro_end(runtime_, nullptr));
    must(zero_step(runtime_, nullptr, nullptr, nullptr));
    meet();
    double mb = pss_mb() - bare_mb_; // of all ranks: a page counts for whoever has looked at it
    must(zero_comm_all_reduce(zero_runtime_comm(runtime_), &mb, 1, ZERO_REDUCE_SUM));
    return mb / kRanks;
  }

  template <typename Loop>
  double timed(Loop&& loop) {
    meet();
    const double start = now();
    loop();
    meet();
    return now() - start;
  }

  // Gathering through staging copies twice; stage 0 gathers gradients, stage 3 nothing, and stage
  // 0 updates every parameter on every rank.
  void repeat(PlainParts& plain, Passes* passes) {
    const double reduce = timed([&] { plain.reduce(); });
    const double update = timed([&] {
      for (int i = 0; i < (stage_ == 0 ? kRanks : 1); ++i) plain.update();
    });
    const int copies = stage_ == 3 ? 0 : values_ != nullptr && stage_ > 0 ? 2 : 1;
    const double gather = timed([&] {
      for (int i = 0; i < copies; ++i) plain.gather();
    });
    zero_step_info info;
    const double step = timed_step(&info);
    if (passes == nullptr) return;
    passes->step.push_back(step);
    passes->parts.push_back(reduce + update + gather);
    passes->ratio.push_back((reduce + update + gather) / step);
    passes->reduce.push_back(reduce);
    passes->update.push_back(update);
    passes->gather.push_back(gather);
    passes->own_reduce.push_back(static_cast<double>(info.reduce_ns) * 1e-9);
    passes->own_update.push_back(static_cast<double>(info.update_ns) * 1e-9);
    passes->own_gather.push_back(static_cast<double>(info.gather_ns) * 1e-9);
  }

 private:
  const std::vector<Shape>& shapes_;
  int stage_;
  double bare_mb_;
  zero_runtime* runtime_ = nullptr;
  float* values_ = nullptr;
  uint64_t values_bytes_ = 0;
};

void print_part(const std::string& name, const std::vector<double>& own,
                const std::vector<double>& plain) {
  const double value = median(own), baseline = median(plain);
  if (baseline > 1e-4) print(name, value, "s", baseline, value > 0 ? baseline / value : 0);
}

void run(int32_t rank, const std::string& group, const std::vector<Shape>& shapes, int repeats,
         const std::string& stages, const std::string& storages) {
  zero_comm* comm = nullptr;
  must(zero_comm_create_local(group.c_str(), rank, kRanks, 0, &comm));
  uint64_t elements = 0;
  for (const Shape& shape : shapes) elements += shape.elements();
  PlainParts plain((elements + kRanks - 1) / kRanks);
  const double bare_mb = pss_mb();
  for (const char digit : stages) {
    const int stage = digit - '0';
    for (const bool caller : {false, true}) {
      const char* const storage = caller ? "caller" : "library";
      if (storages != "both" && storages != storage) continue;
      if (caller && stage == 3) continue;
      const std::string name =
          std::string("step_stage").append(1, digit).append("_").append(storage);
      Passes passes;
      {
        // All gradients at once, at every stage: that is where the clock starts.
        Trainer trainer(comm, shapes, stage, caller, "\"all\"", bare_mb);
        for (int i = -2; i < repeats; ++i) trainer.repeat(plain, i < 0 ? nullptr : &passes);
      }
      if (rank == 0) {
        print(name, median(passes.step), "s", median(passes.parts), median(passes.ratio));
        print_part(name + "_reduce", passes.own_reduce, passes.reduce);
        print_part(name + "_update", passes.own_update, passes.update);
        print_part(name + "_gather", passes.own_gather, passes.gather);
      }
      Trainer trainer(comm, shapes, stage, caller, "4", bare_mb);
      const double mb = trainer.pss_after_a_step();
      const double table_mb = kTableBytes[stage] * static_cast<double>(elements) / 1e6;
      if (rank == 0) print(name + "_pss", mb, "MB", table_mb, table_mb / mb);
    }
  }
  zero_comm_destroy(comm);
}

// Ratios hold on a busy machine better than figures do; the first line says how busy it was.
void print_machine() {
  std::string cpu = "unknown";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) cpu = line.substr(line.find(':') + 2);
  }
  double load[3] = {0, 0, 0};
  getloadavg(load, 3);
  const auto cores = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  print("machine: " + cpu + "; load average against cores", load[0], "processes", cores,
        load[0] / cores);
}

} // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const std::string stages = argc > 2 ? argv[2] : "0123";
  const std::string storages = argc > 3 ? argv[3] : "both";
  const std::vector<Shape> shapes = argc > 4 ? read_list(argv[4]) : gpt2_124m();
  const bool known_storage = storages == "library" || storages == "caller" || storages == "both";
  if (!known_storage || stages.empty() || stages.find_first_not_of("0123") != std::string::npos) {
    std::fprintf(stderr,
                 "usage: bench_step [repeats] [stages] [library|caller|both] [model.tsv]\n");
    return 2;
  }
  print_machine();
  const std::string group = "bench-step-" + std::to_string(getpid());
  const pid_t peer = fork();
  if (peer < 0) {
    std::perror("bench_step: fork");
    return 1;
  }
  run(peer == 0 ? 1 : 0, group, shapes, repeats, stages, storages);
  if (peer == 0) _exit(0);
  int status = 0;
  waitpid(peer, &status, 0);
  return status == 0 ? 0 : 1;
}

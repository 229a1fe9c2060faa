// Saving and loading a checkpoint of some 2 GB beside the same disk's raw figure, interleaved:
//   bench_checkpoint [MiB (2048)] [rounds (5)] [folder (the temporary one)] [parts (all)]
// parts: some of save,load,stall,reshard.  The raw figure is what plain O_DIRECT transfers of 4 MiB
// by as many processes as there are ranks reach, written bytes synced.  What load reads is not in
// the page cache; `load` is into a run that has not stepped, as after a restart, `load_again` over
// the state of one that has.  A save in the background is measured by how long it holds up the
// caller, beside a plain copy of the same bytes between memories that are there, by all ranks at
// once.  One JSON object a line; ratio is the speed in units of the baseline's (above 1: faster),
// each of the same round, medians.  Then the goals, a line each.
// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zero.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kTransfer = uint64_t{4} << 20;
constexpr uint64_t kBytesEach = 12; // of a parameter: fp32 master and two moments
constexpr int32_t kLayers = 24;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void must(zero_status status) {
  if (status == ZERO_OK) return;
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  std::fprintf(stderr, "bench_checkpoint: %s: %s\n", zero_status_name(status), info.message);
  _exit(1);
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  _exit(1);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

char* memory_of(uint64_t bytes) {
  constexpr uint64_t kHugePage = uint64_t{2} << 20; // where it begins: a transfer is in few pieces
  void* const all =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(all != MAP_FAILED, "mmap");
  const auto address = reinterpret_cast<uintptr_t>(all);
  char* const memory = static_cast<char*>(all) + (kHugePage - address % kHugePage) % kHugePage;
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 7, bytes);
  return memory;
}

// What the processes of one run share: their seconds, and where they meet.
struct Shared {
  double seconds[8];
  pthread_barrier_t barrier;
};
Shared* g_shared = nullptr;

void meet() {
  pthread_barrier_wait(&g_shared->barrier);
}

// Processes that run body(rank); the longest time that one of them told.
double at_processes(int32_t count, const std::function<double(int32_t rank)>& body) {
  auto* const shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, static_cast<unsigned>(count));
  g_shared = shared;
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int32_t rank = 0; rank < count; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      shared->seconds[rank] = body(rank);
      _exit(0);
    }
    pids.push_back(pid);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) std::exit(1);
  }
  const double longest = *std::max_element(shared->seconds, shared->seconds + count);
  munmap(shared, sizeof(Shared));
  return longest;
}

// ---- the disk ---------------------------------------------------------------------------------

double raw(const std::string& folder, int32_t ranks, uint64_t bytes_each, bool writes) {
  return at_processes(ranks, [&](int32_t rank) {
    char* const buffer = memory_of(kTransfer);
    const std::string path = folder + "/raw-" + std::to_string(rank);
    const double begun = now();
    const int flags = writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    const int fd = open(path.c_str(), flags | O_DIRECT, 0666);
    check(fd >= 0, "open with O_DIRECT");
    for (uint64_t at = 0; at < bytes_each; at += kTransfer) {
      const auto offset = static_cast<off_t>(at);
      const ssize_t moved =
          writes ? pwrite(fd, buffer, kTransfer, offset) : pread(fd, buffer, kTransfer, offset);
      check(moved == static_cast<ssize_t>(kTransfer), writes ? "pwrite" : "pread");
    }
    if (writes) check(fsync(fd) == 0, "fsync");
    close(fd);
    return now() - begun;
  });
}

// The same bytes from memory to memory, both there already, by each process at the same time.
double plain_copy(int32_t ranks, uint64_t bytes_each) {
  return at_processes(ranks, [&](int32_t) {
    char* const from = memory_of(bytes_each);
    char* const to = memory_of(bytes_each);
    double best = 1e9;
    for (int round = 0; round < 3; ++round) {
      meet();
      const double begun = now();
      std::memcpy(to, from, bytes_each);
      best = std::min(best, now() - begun);
    }
    return best;
  });
}

// What is read next comes from the disk.
void drop_cached(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int fd = open(entry.path().c_str(), O_RDONLY);
    check(fd >= 0, "open");
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

// ---- the ranks --------------------------------------------------------------------------------

class Rank {
 public:
  Rank(int32_t rank, int32_t ranks, const std::string& group, uint64_t parameters,
       bool background) {
    const std::string text =
        std::string(R"({"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"},
            "libzero": {"checkpoint_background": )") +
        (background ? "true}}" : "false}}");
    must(zero_config_load_text(text.data(), text.size(), &config_));
    if (ranks > 1) {
      must(zero_comm_create_local(group.c_str(), rank, ranks, INT64_C(60000000000), &comm_));
    } else {
      must(zero_comm_create_self(&comm_));
    }
    zero_init_options init;
    zero_init_options_init(&init, sizeof init);
    init.comm = comm_;
    must(zero_init(config_, &init, &runtime));
    zero_model* model = nullptr;
    must(zero_model_create(&model));
    const auto width = static_cast<int64_t>(parameters / kLayers);
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      zero_param_options options;
      zero_param_options_init(&options, sizeof options);
      zero_param_id id = -1;
      must(zero_param_add(model, ("layer." + std::to_string(layer)).c_str(), &width, 1, &options,
                          &id));
    }
    must(zero_shard_params(runtime, model));
    zero_model_destroy(model);
    fill(ZERO_PART_MASTER, 0, parameters / kLayers);
  }
  // As after some steps: nothing is zero.
  void train(uint64_t parameters) {
    for (const int32_t index : {0, 1}) fill(ZERO_PART_STATE, index, parameters / kLayers);
  }
  double save(const std::string& path, bool background) {
    zero_save_options options;
    zero_save_options_init(&options, sizeof options);
    options.in_background = background ? 1 : 0;
    must(zero_comm_barrier(comm_));
    const double begun = now();
    must(zero_checkpoint_save(runtime, path.c_str(), &options));
    return now() - begun;
  }
  double load(const std::string& path) {
    must(zero_comm_barrier(comm_));
    const double begun = now();
    zero_checkpoint* checkpoint = nullptr;
    must(zero_checkpoint_open(path.c_str(), &checkpoint));
    must(zero_checkpoint_load(runtime, checkpoint, nullptr));
    const double seconds = now() - begun;
    zero_checkpoint_destroy(checkpoint);
    return seconds;
  }
  double end(double seconds) {
    must(zero_runtime_close(runtime));
    return seconds;
  }
  zero_runtime* runtime = nullptr;

 private:
  void fill(zero_part part, int32_t index, uint64_t count) {
    std::vector<float> values(count);
    uint32_t bits = 1u + static_cast<uint32_t>(part + index);
    for (float& value : values) {
      bits = bits * 1664525u + 1013904223u;
      value = 1 + static_cast<float>(bits >> 9) / 8388608;
    }
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      must(zero_param_set(runtime, layer, part, index, values.data(), count * sizeof(float)));
    }
  }
  zero_config* config_ = nullptr;
  zero_comm* comm_ = nullptr;
};

std::string fresh_group() {
  static int count = 0;
  return "bench-checkpoint-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

double at_ranks(int32_t ranks, uint64_t parameters, bool background,
                const std::function<double(Rank&)>& body) {
  const std::string group = fresh_group();
  return at_processes(ranks, [&](int32_t rank) {
    Rank self(rank, ranks, group, parameters, background);
    return self.end(body(self));
  });
}

// ---- the lines --------------------------------------------------------------------------------

struct Line {
  std::vector<double> seconds, baseline;
};

struct Verdict {
  std::string what;
  double ratio, goal;
};
std::vector<Verdict> g_verdicts;

// goal: what the ratio should reach.
void print(const std::string& name, const std::string& what, const Line& line, double bytes,
           double goal) {
  if (line.seconds.empty()) return;
  std::vector<double> ratios;
  for (size_t i = 0; i < line.seconds.size(); ++i) {
    ratios.push_back(line.baseline[i] / line.seconds[i]);
  }
  const double ratio = median(ratios);
  std::printf(
      "{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"GB/s\",\"baseline\":%.4g,\"ratio\":%.3f,"
      "\"goal\":%.3f}\n",
      name.c_str(), bytes / median(line.seconds) / 1e9, bytes / median(line.baseline) / 1e9, ratio,
      goal);
  std::fflush(stdout);
  g_verdicts.push_back({what, ratio, goal});
}

void print_verdicts() {
  double load[3] = {};
  getloadavg(load, 3);
  std::printf("\n%-58s %8s %6s\n", "", "measured", "goal");
  for (const Verdict& verdict : g_verdicts) {
    std::printf("%-58s %8.3f %6.3f  %s\n", verdict.what.c_str(), verdict.ratio, verdict.goal,
                verdict.ratio >= verdict.goal ? "met" : "NOT MET");
  }
  std::printf("load average at the end %.1f, 5 minutes %.1f, on %ld cores\n", load[0], load[1],
              sysconf(_SC_NPROCESSORS_ONLN));
}

struct Job {
  std::string folder;
  uint64_t parameters;
  int rounds;
  double bytes;
};

void save_and_load(const Job& job, int32_t ranks, bool saves, bool loads) {
  const uint64_t each =
      (job.parameters * kBytesEach / static_cast<uint64_t>(ranks)) / kTransfer * kTransfer;
  const double scale = job.bytes / static_cast<double>(each * static_cast<uint64_t>(ranks));
  const std::string path = job.folder + "/ckpt";
  Line save, load, again;
  for (int round = 0; round < job.rounds; ++round) {
    std::filesystem::remove_all(path);
    save.baseline.push_back(raw(job.folder, ranks, each, true) * scale);
    save.seconds.push_back(at_ranks(ranks, job.parameters, false, [&](Rank& self) {
      self.train(job.parameters);
      return self.save(path, false);
    }));
    if (!loads) continue;
    double second[2] = {};
    load.baseline.push_back(raw(job.folder, ranks, each, false) * scale);
    for (const int which : {0, 1}) {
      second[which] = at_ranks(ranks, job.parameters, false, [&](Rank& self) {
        if (which == 1) self.train(job.parameters);
        drop_cached(path);
        return self.load(path);
      });
    }
    load.seconds.push_back(second[0]);
    again.baseline.push_back(load.baseline.back());
    again.seconds.push_back(second[1]);
  }
  std::filesystem::remove_all(path);
  const std::string suffix = "_ranks" + std::to_string(ranks);
  const std::string at = ", " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  if (saves) print("save" + suffix, "save / raw write" + at, save, job.bytes, 0.9);
  print("load" + suffix, "load into a new run / raw read" + at, load, job.bytes, 0.9);
  print("load_again" + suffix, "load over a trained run / raw read" + at, again, job.bytes, 0.9);
}

void stall(const Job& job, int32_t ranks) {
  const uint64_t each = job.parameters * kBytesEach / static_cast<uint64_t>(ranks);
  Line line;
  for (int round = 0; round < job.rounds; ++round) {
    line.baseline.push_back(plain_copy(ranks, each));
    line.seconds.push_back(at_ranks(ranks, job.parameters, true, [&](Rank& self) {
      self.train(job.parameters);
      double seconds = 1e9;
      for (int i = 0; i < 3; ++i) {
        const std::string path = job.folder + "/background-" + std::to_string(i);
        seconds = std::min(seconds, self.save(path, true));
        must(zero_checkpoint_wait(self.runtime));
      }
      return seconds;
    }));
    for (int i = 0; i < 3; ++i) {
      std::filesystem::remove_all(job.folder + "/background-" + std::to_string(i));
    }
  }
  const std::string suffix = "_ranks" + std::to_string(ranks);
  print("stall_of_a_background_save" + suffix,
        "copy / stall of a background save, " + std::to_string(ranks) +
            (ranks == 1 ? " rank" : " ranks"),
        line, job.bytes, 1 / 1.05);
}

// Three ranks read what three wrote, and what two wrote.
void reshard(const Job& job) {
  const auto by = [&](int32_t writers) { return job.folder + "/by-" + std::to_string(writers); };
  Line line;
  for (const int32_t writers : {2, 3}) {
    at_ranks(writers, job.parameters, false, [&](Rank& self) {
      self.train(job.parameters);
      return self.save(by(writers), false);
    });
  }
  for (int round = 0; round < job.rounds; ++round) {
    for (const int32_t writers : {3, 2}) {
      const double seconds = at_ranks(3, job.parameters, false, [&](Rank& self) {
        drop_cached(by(writers));
        return self.load(by(writers));
      });
      (writers == 3 ? line.baseline : line.seconds).push_back(seconds);
    }
  }
  print("load_2_to_3_against_3_to_3", "load 3 to 3 / load 2 to 3", line, job.bytes, 1 / 1.1);
}

} // namespace

int main(int argc, char** argv) {
  const uint64_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2048;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const std::string above = argc > 3 ? argv[3] : std::filesystem::temp_directory_path().string();
  const std::string parts = argc > 4 ? argv[4] : "save,load,stall,reshard";
  const auto wants = [&](const char* part) { return parts.find(part) != std::string::npos; };
  const std::string folder = above + "/libzero-bench-checkpoint-" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const uint64_t parameters = (mib << 20) / kBytesEach / kLayers / 1024 * kLayers * 1024;
  const Job job{folder, parameters, rounds, static_cast<double>(parameters * kBytesEach)};
  for (const int32_t ranks : {1, 2}) {
    if (wants("save") || wants("load")) save_and_load(job, ranks, wants("save"), wants("load"));
    if (wants("stall")) stall(job, ranks);
  }
  if (wants("reshard")) reshard(job);
  print_verdicts();
  std::filesystem::remove_all(folder);
  return 0;
}

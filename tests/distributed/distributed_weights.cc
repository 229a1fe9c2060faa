// Weights out and in: the same file from every stage and number of ranks, and from it the same
// weights again; what does not fit is listed, and nothing has changed then.
// SPDX-License-Identifier: BSD-3-Clause
#include <dirent.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "training.h"
#include "weights_rank.h"

using namespace weights;

namespace {

const std::vector<Param>& model() {
  static const std::vector<Param> params = {
      {"wte", {37, 8}, ZERO_PARAM_TRAINED, -1, 0},
      {"block.w", {13, 40}, ZERO_PARAM_TRAINED, -1, 0},
      {"block.norm", {13}, ZERO_PARAM_TRAINED, -1, ZERO_DTYPE_FP32},
      {"scalar", {}, ZERO_PARAM_TRAINED, -1, 0},
      {"one", {1}, ZERO_PARAM_TRAINED, -1, 0},
      {"empty", {0, 8}, ZERO_PARAM_TRAINED, -1, 0},
      {"frozen", {5, 7}, ZERO_PARAM_FROZEN, -1, 0},
      {"mean", {6}, ZERO_PARAM_BUFFER, -1, ZERO_DTYPE_FP32},
      {"num_batches_tracked", {}, ZERO_PARAM_BUFFER, -1, ZERO_DTYPE_INT64},
      {"flags", {3}, ZERO_PARAM_BUFFER, -1, ZERO_DTYPE_UINT8},
      {"lm_head", {37, 8}, ZERO_PARAM_TRAINED, 0, 0},
  };
  return params;
}

constexpr zero_dtype kDtypes[] = {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_FP16};

// Three steps on gradients that every rank shares, so that masters are no 16-bit numbers.
void train(Rank& self) {
  for (int step = 0; step < 3; ++step) self.step(0.37f * static_cast<float>(step + 1));
}

// What one export wrote, by an fp32 run alone where spec says nothing else.
std::string exported(const Spec& spec, const std::string& path, zero_dtype dtype) {
  run(spec, [&](Rank& self) {
    self.add_all(model(), true);
    self.shard();
    train(self);
    OK(zero_weights_export(self.runtime, path.c_str(), dtype, 0));
    self.close();
  });
  return read(path);
}

void every_stage_and_number_of_ranks_writes_the_same_file(void**) {
  const Folder folder;
  for (const zero_dtype dtype : kDtypes) {
    Spec spec;
    spec.dtype = dtype;
    for (const zero_dtype as : {zero_dtype{0}, zero_dtype{ZERO_DTYPE_FP32},
                                zero_dtype{ZERO_DTYPE_BF16}, zero_dtype{ZERO_DTYPE_FP16}}) {
      spec.stage = 0;
      spec.ranks = 1;
      const std::string expected = exported(spec, folder.path("alone.safetensors"), as);
      assert_true(expected.size() > 1000);
      for (spec.stage = 0; spec.stage <= 3; ++spec.stage) {
        // Other numbers of ranks round their averages otherwise but for powers of two.
        for (spec.ranks = 2; spec.ranks <= 4; spec.ranks += 2) {
          if (!ranks::full_tier() && (spec.stage + spec.ranks / 2 + as) % 2 != 0) continue;
          const std::string got = exported(spec, folder.path("w.safetensors"), as);
          assert_int_equal(got.size(), expected.size());
          assert_memory_equal(got.data(), expected.data(), got.size());
        }
      }
    }
  }
}

// A trained parameter in another type than its own is its master, rounded; in fp32 the master.
void what_is_in_the_file_are_masters_and_values(void**) {
  const Folder folder;
  Spec spec;
  spec.dtype = ZERO_DTYPE_BF16;
  for (spec.stage = 0; spec.stage <= 3; ++spec.stage) {
    spec.ranks = 2;
    run(spec, [&](Rank& self) {
      self.add_all(model(), true);
      self.shard();
      train(self);
      OK(zero_weights_export(self.runtime, folder.path("own").c_str(), 0, 0));
      OK(zero_weights_export(self.runtime, folder.path("fp32").c_str(), ZERO_DTYPE_FP32, 0));
      const Floats master = self.floats("block.w", ZERO_PART_MASTER);
      const std::vector<uint16_t> value = self.halves("block.w");
      if (self.rank == 0) {
        const File own(folder.path("own")), fp32(folder.path("fp32"));
        EXPECT(own.dtype("block.w") == "BF16" && fp32.dtype("block.w") == "F32");
        EXPECT(own.dtype("block.norm") == "F32" && own.dtype("num_batches_tracked") == "I64");
        EXPECT(own.bytes("block.w") ==
               std::string(reinterpret_cast<const char*>(value.data()), value.size() * 2));
        EXPECT(fp32.bytes("block.w") ==
               std::string(reinterpret_cast<const char*>(master.data()), master.size() * 4));
        const int64_t counter = (int64_t{1} << 53) + 1;
        EXPECT(own.bytes("num_batches_tracked") ==
               std::string(reinterpret_cast<const char*>(&counter), 8));
        EXPECT(fp32.bytes("num_batches_tracked") == own.bytes("num_batches_tracked"));
        // A tied name is there once, and named; an empty one keeps its shape.
        EXPECT(!own.has("lm_head") &&
               own.header().find("\"lm_head\":\"wte\"") != std::string::npos);
        EXPECT(own.shape("empty") == "[0,8]" && own.bytes("empty").empty());
        EXPECT(own.shape("scalar") == "[]" && own.shape("one") == "[1]");
      }
      self.close();
    });
  }
}

// Whatever wrote it, whatever reads it; the state of the optimizer starts anew.
void weights_come_back_at_any_stage_ranks_and_dtype(void**) {
  const Folder folder;
  int32_t turn = 0;
  for (const zero_dtype from : kDtypes) {
    Spec spec;
    spec.dtype = from;
    spec.stage = 2;
    spec.ranks = 2;
    const std::string path = folder.path("masters.safetensors");
    ranks::SharedArray<float> master(13 * 40);
    run(spec, [&](Rank& self) {
      self.add_all(model(), true);
      self.shard();
      train(self);
      OK(zero_weights_export(self.runtime, path.c_str(), ZERO_DTYPE_FP32, 0));
      const Floats values = self.floats("block.w", ZERO_PART_MASTER);
      if (self.rank == 0) std::copy(values.begin(), values.end(), master.data());
      self.close();
    });
    for (const zero_dtype to : kDtypes) {
      for (int32_t stage = 0; stage <= 3; ++stage) {
        for (int32_t size = 1; size <= 3; ++size) {
          if (!ranks::full_tier() && ++turn % 4 != 0) continue;
          Spec other;
          other.dtype = to;
          other.stage = stage;
          other.ranks = size;
          run(other, [&](Rank& self) {
            self.add_all(model(), false); // no values of its own
            self.shard();
            self.step(0.5f); // so that there is a state to forget
            OK(zero_weights_import(self.runtime, path.c_str(), nullptr));
            const Floats got = self.floats("block.w", ZERO_PART_MASTER);
            EXPECT(std::memcmp(got.data(), master.data(), got.size() * 4) == 0);
            for (int32_t state = 0; state < 2; ++state) {
              for (const float value : self.floats("block.w", ZERO_PART_STATE, state)) {
                EXPECT(value == 0);
              }
            }
            EXPECT(self.integer("num_batches_tracked") == (int64_t{1} << 53) + 1);
            EXPECT(self.same_values("lm_head", "wte"));
            EXPECT(self.floats("mean", ZERO_PART_VALUE)[5] == initial(7, 5));
            // The values are the masters rounded, so writing them again gives the same masters.
            const std::string again = folder.path("again");
            OK(zero_weights_export(self.runtime, again.c_str(), ZERO_DTYPE_FP32, 0));
            if (self.rank == 0) {
              EXPECT(File(again).bytes("block.w") == File(path).bytes("block.w"));
              EXPECT(File(again).bytes("wte") == File(path).bytes("wte"));
            }
            OK(zero_comm_barrier(zero_runtime_comm(self.runtime)));
            self.close();
          });
        }
      }
    }
  }
}

// R093: the first step after loading weights alone must not bring the old ones back.
void the_first_step_after_weights_alone_starts_from_them(void**) {
  const Folder folder;
  const std::string path = folder.path("w.safetensors");
  Spec spec;
  spec.dtype = ZERO_DTYPE_BF16;
  exported(spec, path, 0);
  for (const char* optimizer : {R"({"type": "SGD", "params": {"lr": 0}})",
                                R"({"type": "Adam", "params": {"lr": 0.1, "weight_decay": 0}})"}) {
    for (spec.stage = 1; spec.stage <= 3; ++spec.stage) {
      spec.ranks = 2;
      spec.optimizer = optimizer;
      run(spec, [&](Rank& self) {
        self.add_all(model(), true);
        self.shard();
        OK(zero_weights_import(self.runtime, path.c_str(), nullptr));
        const std::vector<uint16_t> before = self.halves("block.w");
        self.step(0);
        EXPECT(self.halves("block.w") == before);
        if (self.rank == 0) {
          EXPECT(File(path).bytes("block.w") ==
                 std::string(reinterpret_cast<const char*>(before.data()), before.size() * 2));
        }
        self.close();
      });
    }
  }
}

void files_of_a_bounded_size_come_with_an_index(void**) {
  const Folder folder;
  Spec spec;
  spec.stage = 3;
  spec.ranks = 2;
  const std::string path = folder.path("sharded model \xc3\xbc");
  ranks::SharedArray<float> masters(13 * 40);
  run(spec, [&](Rank& self) {
    self.add_all(model(), true);
    self.shard();
    train(self);
    OK(zero_weights_export(self.runtime, path.c_str(), 0, 3700));
    // An existing folder is not touched.
    EXPECT(zero_weights_export(self.runtime, path.c_str(), 0, 3700) == ZERO_ERR_INVALID_ARGUMENT);
    EXPECT(ranks::last_error().find("exists") != std::string::npos);
    const Floats values = self.floats("block.w", ZERO_PART_MASTER);
    if (self.rank == 0) std::copy(values.begin(), values.end(), masters.data());
    self.close();
  });
  assert_true(exists(path + "/model-00001-of-00002.safetensors"));
  assert_true(exists(path + "/model-00002-of-00002.safetensors"));
  const std::string index = read(path + "/model.safetensors.index.json");
  // 4 x (37x8 + 13x40 + 13 + 1 + 1 + 5x7 + 6) + 8 + 3: what is tied counts once.
  assert_true(index.find("\"total_size\" : 3499") != std::string::npos);
  assert_true(index.find("\"weight_map\"") != std::string::npos);
  assert_true(read(path + "/model-00001-of-00002.safetensors").size() <= 3700);
  assert_true(read(path + "/model-00002-of-00002.safetensors").size() <= 3700);
  assert_int_equal(folder.entries(), 1); // nothing else beside it
  for (const char* name : {"", "/model.safetensors.index.json"}) {
    spec.stage = 1;
    spec.ranks = 3;
    run(spec, [&](Rank& self) {
      self.add_all(model(), false);
      self.shard();
      OK(zero_weights_import(self.runtime, (path + name).c_str(), nullptr));
      const Floats got = self.floats("block.w", ZERO_PART_MASTER);
      EXPECT(std::memcmp(got.data(), masters.data(), got.size() * 4) == 0);
      EXPECT(self.same_values("lm_head", "wte"));
      self.close();
    });
  }
}

void what_does_not_fit_is_listed_and_changes_nothing(void**) {
  const Folder folder;
  const std::string path = folder.path("w.safetensors");
  Spec spec;
  exported(spec, path, 0);
  for (spec.stage = 0; spec.stage <= 3; ++spec.stage) {
    spec.ranks = 2;
    run(spec, [&](Rank& self) {
      std::vector<Param> other = model();
      other[1].shape = {40, 13}; // reshaped
      other[2].name = "block.renamed";
      other[7].dtype = ZERO_DTYPE_INT32; // the file has a float
      self.add_all(other, true);
      self.shard();
      const Floats before = self.floats("wte", ZERO_PART_MASTER);
      EXPECT(zero_weights_import(self.runtime, path.c_str(), nullptr) == ZERO_ERR_FILE_MISMATCH);
      const std::string said = ranks::last_error();
      EXPECT(said.find("1 missing in the file: block.renamed") != std::string::npos);
      EXPECT(said.find("1 not in the model: block.norm") != std::string::npos);
      EXPECT(said.find("block.w ([13, 40] in the file, [40, 13] in the model)") !=
             std::string::npos);
      EXPECT(said.find("mean (fp32 in the file, int32 in the model)") != std::string::npos);
      zero_load_options options;
      zero_load_options_init(&options, sizeof(options));
      options.allow_missing = options.allow_extra = 1; // shapes and types are errors all the same
      EXPECT(zero_weights_import(self.runtime, path.c_str(), &options) == ZERO_ERR_FILE_MISMATCH);
      EXPECT(ranks::last_error().find("missing") == std::string::npos);
      EXPECT(self.floats("wte", ZERO_PART_MASTER) == before);
      OK(zero_runtime_status(self.runtime));
      self.close();
    });
  }
}

void allowed_subsets_keep_what_the_file_lacks(void**) {
  const Folder folder;
  const std::string path = folder.path("w.safetensors");
  Spec spec;
  exported(spec, path, 0);
  for (spec.stage = 0; spec.stage <= 3; ++spec.stage) {
    spec.ranks = 2;
    run(spec, [&](Rank& self) {
      std::vector<Param> other = model();
      other[2].name = "block.renamed";
      self.add_all(other, true);
      self.shard();
      self.step(1);
      zero_load_options options;
      zero_load_options_init(&options, sizeof(options));
      options.allow_missing = 1;
      EXPECT(zero_weights_import(self.runtime, path.c_str(), &options) == ZERO_ERR_FILE_MISMATCH);
      options.allow_extra = 1;
      const Floats kept = self.floats("block.renamed", ZERO_PART_MASTER);
      const Floats state = self.floats("block.renamed", ZERO_PART_STATE, 0);
      OK(zero_weights_import(self.runtime, path.c_str(), &options));
      EXPECT(self.floats("block.renamed", ZERO_PART_MASTER) == kept);
      EXPECT(self.floats("block.renamed", ZERO_PART_STATE, 0) == state && state[3] != 0);
      if (self.rank == 0) {
        const Floats wte = self.stored("wte");
        EXPECT(File(path).bytes("wte") ==
               std::string(reinterpret_cast<const char*>(wte.data()), wte.size() * 4));
      } else {
        self.stored("wte");
      }
      self.close();
    });
  }
}

// One rank writes; all of them say so when it cannot.
void a_failure_on_one_rank_is_the_same_error_on_all(void**) {
  const Folder folder;
  Spec spec;
  spec.stage = 3;
  spec.ranks = 3;
  mkdir(folder.path("folder").c_str(), 0700);
  std::ofstream(folder.path("file")) << "x";
  run(spec, [&](Rank& self) {
    self.add_all(model(), true);
    self.shard();
    // A file where a folder is wanted; a folder where a file is.
    EXPECT(zero_weights_export(self.runtime, folder.path("file/w").c_str(), 0, 0) != ZERO_OK);
    EXPECT(ranks::last_error().find("file") != std::string::npos);
    EXPECT(zero_weights_export(self.runtime, folder.path("folder").c_str(), 0, 0) ==
           ZERO_ERR_INVALID_ARGUMENT);
    EXPECT(zero_weights_export(self.runtime, folder.path("w").c_str(), ZERO_DTYPE_INT64, 0) ==
           ZERO_ERR_INVALID_ARGUMENT);
    EXPECT(zero_weights_import(self.runtime, folder.path("nothing").c_str(), nullptr) ==
           ZERO_ERR_NOT_FOUND);
    EXPECT(zero_weights_import(self.runtime, folder.path("file").c_str(), nullptr) ==
           ZERO_ERR_FILE_FORMAT);
    OK(zero_weights_export(self.runtime, folder.path("w").c_str(), 0, 0));
    self.close();
  });
  assert_int_equal(folder.entries(), 3);
}

// Ranks that do not see one file system may find another file under one name.
void ranks_that_see_different_files_are_told(void**) {
  const Folder folder;
  Spec spec;
  exported(spec, folder.path("fp32"), 0);
  exported(spec, folder.path("bf16"), ZERO_DTYPE_BF16);
  for (spec.stage = 0; spec.stage <= 3; ++spec.stage) {
    spec.ranks = 2;
    run(spec, [&](Rank& self) {
      self.add_all(model(), true);
      self.shard();
      EXPECT(zero_weights_import(self.runtime,
                                 folder.path(self.rank == 0 ? "fp32" : "bf16").c_str(),
                                 nullptr) == ZERO_ERR_COMM_MISMATCH);
      EXPECT(ranks::last_error().find("files of weights") != std::string::npos);
    });
  }
}

void parameters_on_loan_are_neither_written_nor_read(void**) {
  const Folder folder;
  Spec spec;
  spec.stage = 3;
  spec.ranks = 2;
  run(spec, [&](Rank& self) {
    self.add_all(model(), true);
    self.shard();
    zero_buffer buffer;
    const zero_param_id wte = self.find("wte");
    OK(zero_params_acquire(self.runtime, &wte, 1, nullptr, &buffer));
    EXPECT(zero_weights_export(self.runtime, folder.path("w").c_str(), 0, 0) ==
           ZERO_ERR_INVALID_STATE);
    EXPECT(ranks::last_error().find("wte") != std::string::npos);
    EXPECT(zero_weights_import(self.runtime, folder.path("w").c_str(), nullptr) ==
           ZERO_ERR_INVALID_STATE);
    OK(zero_params_release(self.runtime, &wte, 1, 0, nullptr));
    OK(zero_weights_export(self.runtime, folder.path("w").c_str(), 0, 0));
    // Gradients of the old weights wait for their step.
    OK(zero_micro_end(self.runtime, nullptr));
    EXPECT(zero_weights_import(self.runtime, folder.path("w").c_str(), nullptr) ==
           ZERO_ERR_INVALID_STATE);
    OK(zero_grads_clear(self.runtime, nullptr));
    OK(zero_weights_import(self.runtime, folder.path("w").c_str(), nullptr));
    self.close();
  });
}

// ---- models of the corpus, every dimension divided

std::filesystem::path corpus_model(const std::string& name) {
  std::filesystem::path shared;
  if (const char* named = std::getenv("LIBZERO_SHARED")) shared = named;
  for (std::filesystem::path at = std::filesystem::current_path();
       shared.empty() && at != at.parent_path(); at = at.parent_path()) {
    if (exists(at / "shared" / "corpus" / "models")) shared = at / "shared";
  }
  const std::filesystem::path found = shared / "corpus" / "models" / name;
  if (!exists(found)) {
    print_message("no ../shared/corpus beside the tree; LIBZERO_SHARED can name it\n");
    skip();
  }
  return found;
}

// Columns: name, shape ("768x3072" or "scalar"), dtype, numel, trainable, tied_to, kind.
std::vector<Param> scaled_model(const std::string& file, int64_t divisor) {
  std::ifstream in(corpus_model(file));
  std::vector<Param> params;
  std::string line;
  std::getline(in, line); // the columns' names
  while (std::getline(in, line)) {
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == '\t') {
        fields.emplace_back();
      } else if (c != '\r') {
        fields.back() += c;
      }
    }
    if (fields.size() < 7) continue;
    Param param;
    param.name = fields[0];
    for (size_t at = 0; fields[1] != "scalar" && at < fields[1].size();) {
      const int64_t extent = std::strtoll(fields[1].c_str() + at, nullptr, 10);
      param.shape.push_back(extent == 0 ? 0 : std::max<int64_t>(1, extent / divisor));
      const size_t cross = fields[1].find('x', at);
      at = cross == std::string::npos ? fields[1].size() : cross + 1;
    }
    if (fields[6] == "buffer") param.role = ZERO_PARAM_BUFFER;
    if (fields[2] == "int64") param.dtype = ZERO_DTYPE_INT64;
    for (size_t p = 0; p < params.size(); ++p) {
      if (params[p].name == fields[5]) param.tied_to = static_cast<int32_t>(p);
    }
    params.push_back(param);
  }
  return params;
}

// R101: no name is lost, and both come back to one memory.
void a_tied_head_is_in_the_file_under_both_names(void**) {
  const std::vector<Param> params = scaled_model("gpt2-124m.tsv", 64);
  const Folder folder;
  const std::string path = folder.path("gpt2.safetensors");
  std::string tied;
  for (const Param& param : params) {
    if (param.tied_to >= 0) tied = param.name;
  }
  assert_true(!tied.empty());
  Spec spec;
  spec.stage = 3;
  spec.ranks = 2;
  run(spec, [&](Rank& self) {
    self.add_all(params, true);
    self.shard();
    OK(zero_weights_export(self.runtime, path.c_str(), 0, 0));
    if (self.rank == 0) {
      const File file(path);
      for (const Param& param : params) {
        const bool named = file.header().find("\"" + param.name + "\":") != std::string::npos;
        EXPECT(named && file.has(param.name) == (param.tied_to < 0));
      }
    }
    self.close();
  });
  // A model from the file itself has the tie.
  run(spec, [&](Rank& self) {
    OK(zero_model_load(path.c_str(), &self.loaded));
    OK(zero_shard_params(self.runtime, self.loaded));
    OK(zero_weights_import(self.runtime, path.c_str(), nullptr));
    zero_param_info info;
    zero_param_info_init(&info, sizeof(info));
    OK(zero_param_describe(self.runtime, self.find(tied), &info));
    EXPECT(info.tied_to >= 0);
    EXPECT(zero_param_count(self.runtime) == static_cast<int32_t>(params.size()));
    self.close();
  });
}

// R106: counters stay integers, exactly.
void integer_buffers_stay_integers(void**) {
  const std::vector<Param> params = scaled_model("resnet50-bn-buffers.tsv", 32);
  const Folder folder;
  const std::string path = folder.path("resnet.safetensors");
  const int64_t counter = (int64_t{1} << 53) + 1;
  Spec spec;
  spec.stage = 2;
  spec.ranks = 2;
  run(spec, [&](Rank& self) {
    self.add_all(params, true);
    self.shard();
    self.step(1); // buffers are neither averaged nor decayed
    OK(zero_weights_export(self.runtime, path.c_str(), ZERO_DTYPE_BF16, 0));
    self.close();
  });
  size_t counters = 0;
  const File file(path);
  for (const Param& param : params) {
    if (param.dtype != ZERO_DTYPE_INT64) continue;
    ++counters;
    assert_string_equal(file.dtype(param.name).c_str(), "I64");
    assert_true(file.bytes(param.name) == std::string(reinterpret_cast<const char*>(&counter), 8));
  }
  assert_true(counters >= 50);
  spec.stage = 3;
  spec.ranks = 3;
  run(spec, [&](Rank& self) {
    self.add_all(params, false);
    self.shard();
    OK(zero_weights_import(self.runtime, path.c_str(), nullptr));
    for (const Param& param : params) {
      if (param.dtype == ZERO_DTYPE_INT64) EXPECT(self.integer(param.name) == counter);
    }
    self.close();
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_stage_and_number_of_ranks_writes_the_same_file),
      cmocka_unit_test(what_is_in_the_file_are_masters_and_values),
      cmocka_unit_test(weights_come_back_at_any_stage_ranks_and_dtype),
      cmocka_unit_test(the_first_step_after_weights_alone_starts_from_them),
      cmocka_unit_test(files_of_a_bounded_size_come_with_an_index),
      cmocka_unit_test(what_does_not_fit_is_listed_and_changes_nothing),
      cmocka_unit_test(allowed_subsets_keep_what_the_file_lacks),
      cmocka_unit_test(a_failure_on_one_rank_is_the_same_error_on_all),
      cmocka_unit_test(ranks_that_see_different_files_are_told),
      cmocka_unit_test(parameters_on_loan_are_neither_written_nor_read),
      cmocka_unit_test(a_tied_head_is_in_the_file_under_both_names),
      cmocka_unit_test(integer_buffers_stay_integers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

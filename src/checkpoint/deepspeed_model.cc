// What the model file of rank 0 says: parameters and their roles, ties, counters, client state.
// SPDX-License-Identifier: BSD-3-Clause
#include <set>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/deepspeed_build.h"

namespace zero::checkpoint {
namespace {

// What DeepSpeed itself writes; everything else is the client's.
const std::vector<std::string>& own_keys() {
  static const std::vector<std::string> keys = {"module",
                                                "buffer_names",
                                                "optimizer",
                                                "param_shapes",
                                                "frozen_param_shapes",
                                                "shared_params",
                                                "frozen_param_fragments",
                                                "lr_scheduler",
                                                "data_sampler",
                                                "random_ltd",
                                                "sparse_tensor_module_names",
                                                "skipped_steps",
                                                "global_steps",
                                                "global_samples",
                                                "dp_world_size",
                                                "mp_world_size",
                                                "checkpoint_parallel_dimensions",
                                                "ds_config",
                                                "ds_version"};
  return keys;
}

class ModelReader {
 public:
  explicit ModelReader(DeepSpeedBuild* build)
      : build_(*build),
        state_(build->state),
        archive_(build->model(0)),
        document_(archive_.document()) {}

  void read() {
    module_ = document_.find(archive_.root(), "module");
    if (!document_.is(module_, PickleKind::kDict)) {
      fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": expected \"module\", a dict of tensors",
           archive_.path().c_str());
    }
    read_roles();
    read_parameters();
    read_members();
    read_counters();
  }

 private:
  std::string key(PickleRef node, const char* what) const {
    if (!document_.is(node, PickleKind::kText)) {
      fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": expected texts as keys of \"%s\"",
           archive_.path().c_str(), what);
    }
    return document_.text(node);
  }
  // name -> shape
  void read_shapes(PickleRef dict, zero_param_role role, int32_t group, const char* what) {
    if (!document_.is(dict, PickleKind::kDict)) {
      fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": expected \"%s\" to hold dicts of shapes",
           archive_.path().c_str(), what);
    }
    const std::vector<PickleRef>& items = document_.items(dict);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      Known known;
      known.role = role;
      known.group = group;
      if (!document_.is(items[i + 1], PickleKind::kTuple)) {
        fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": expected shapes in \"%s\"",
             archive_.path().c_str(), what);
      }
      for (const PickleRef extent : document_.items(items[i + 1])) {
        known.shape.push_back(document_.integer(extent)); // a torch.Size: checked
      }
      const std::string name = key(items[i], what);
      if (!known_.emplace(name, known).second) {
        fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": param \"%s\" has two shapes",
             archive_.path().c_str(), name.c_str());
      }
      order_.push_back(name);
    }
  }

  void read_roles() {
    const PickleRef buffers = document_.find(archive_.root(), "buffer_names");
    if (document_.is(buffers, PickleKind::kList)) {
      for (const PickleRef name : document_.items(buffers)) {
        buffers_.insert(key(name, "buffer_names"));
      }
    }
    const PickleRef shapes = document_.find(archive_.root(), "param_shapes");
    if (document_.is(shapes, PickleKind::kList)) {
      int32_t group = 0;
      for (const PickleRef dict : document_.items(shapes)) {
        read_shapes(dict, ZERO_PARAM_TRAINED, group++, "param_shapes");
      }
    } else if (document_.is(shapes, PickleKind::kDict)) { // one group, older versions
      read_shapes(shapes, ZERO_PARAM_TRAINED, 0, "param_shapes");
    }
    const PickleRef frozen = document_.find(archive_.root(), "frozen_param_shapes");
    if (document_.is(frozen, PickleKind::kDict)) {
      read_shapes(frozen, ZERO_PARAM_FROZEN, 0, "frozen_param_shapes");
    }
    const PickleRef shared = document_.find(archive_.root(), "shared_params");
    if (document_.is(shared, PickleKind::kDict)) {
      const std::vector<PickleRef>& items = document_.items(shared);
      for (size_t i = 0; i + 1 < items.size(); i += 2) {
        owners_[key(items[i], "shared_params")] = key(items[i + 1], "shared_params");
      }
    }
  }

  // In the module's order; aliases follow what they are tied to.
  void read_parameters() {
    const std::vector<PickleRef>& items = document_.items(module_);
    std::vector<std::pair<std::string, PickleRef>> aliases;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string name = key(items[i], "module");
      if (build_.by_name.count(name) != 0) continue;
      if (!add(name, items[i + 1])) aliases.emplace_back(name, items[i + 1]);
    }
    for (const std::string& name : order_) { // what the module's dict leaves out
      if (build_.by_name.count(name) == 0 && owners_.count(name) == 0) add_missing(name);
    }
    for (const auto& [name, tensor] : aliases) add_alias(name);
    for (const auto& [name, owner] : owners_) {
      if (build_.by_name.count(name) == 0) add_alias(name);
    }
  }

  // False for an alias.
  bool add(const std::string& name, PickleRef node) {
    if (owners_.count(name) != 0) return false;
    if (!document_.is(node, PickleKind::kTensor)) {
      // Extra state of a module: nothing that is trained.
      fail(ZERO_ERR_UNSUPPORTED, "file \"%s\": \"%s\" in the module is no tensor",
           archive_.path().c_str(), name.c_str());
    }
    const TorchTensor& tensor = document_.tensor(node);
    const bool is_buffer = buffers_.count(name) != 0;
    const auto known = known_.find(name);
    // Two names of the same bytes, where nobody says who shares what (stage 0, older versions).
    if (!is_buffer && (known == known_.end()) && tensor.elements() > 0) {
      const std::string place = document_.storage(tensor).key + "+" + std::to_string(tensor.offset);
      const auto [first, is_new] = storages_.emplace(place, name);
      const auto owner = build_.by_name.find(first->second);
      if (!is_new && owner != build_.by_name.end() &&
          state_.parameters[static_cast<size_t>(owner->second)].shape == tensor.shape) {
        owners_[name] = first->second;
        return false;
      }
    } else if (!is_buffer && tensor.elements() > 0) {
      storages_.emplace(document_.storage(tensor).key + "+" + std::to_string(tensor.offset), name);
    }
    DeepSpeedParameter parameter;
    parameter.name = name;
    parameter.dtype = document_.storage(tensor).dtype;
    parameter.shape = tensor.shape;
    if (is_buffer) {
      parameter.role = ZERO_PARAM_BUFFER;
    } else if (known != known_.end()) {
      parameter.role = known->second.role;
      parameter.group = known->second.group;
      parameter.shape = known->second.shape;
    } else if (state_.stage == 3) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\": param \"%s\" is in the module, but neither trained, frozen, shared nor a "
           "buffer",
           archive_.path().c_str(), name.c_str());
    } else {
      // Stage 1 does not list what is frozen; at stage 0 the optimizer says what is trained.
      parameter.role = ZERO_PARAM_FROZEN;
    }
    count_elements(&parameter);
    const bool placeholder = state_.stage == 3 && parameter.role != ZERO_PARAM_BUFFER;
    if (!placeholder) {
      if (tensor.shape != parameter.shape) {
        fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": param \"%s\" has two shapes",
             archive_.path().c_str(), name.c_str());
      }
      parameter.value.push_back(deepspeed_piece(build_, 0, node, name, 0, 0, parameter.elements));
    }
    insert(std::move(parameter));
    return true;
  }

  void add_missing(const std::string& name) {
    const Known& known = known_.at(name);
    DeepSpeedParameter parameter;
    parameter.name = name;
    parameter.shape = known.shape;
    parameter.role = known.role;
    parameter.group = known.group;
    parameter.dtype = state_.compute_dtype;
    count_elements(&parameter);
    insert(std::move(parameter));
  }

  void add_alias(const std::string& name) {
    std::string owner = owners_.at(name);
    for (size_t hops = 0; owners_.count(owner) != 0 && hops <= owners_.size(); ++hops) {
      owner = owners_.at(owner);
    }
    const auto found = build_.by_name.find(owner);
    if (found == build_.by_name.end()) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\": param \"%s\" is shared with \"%s\", which is not there",
           archive_.path().c_str(), name.c_str(), owner.c_str());
    }
    DeepSpeedParameter parameter = state_.parameters[static_cast<size_t>(found->second)];
    parameter.name = name;
    parameter.tied_to = found->second;
    parameter.value.clear();
    insert(std::move(parameter));
  }

  void count_elements(DeepSpeedParameter* parameter) const {
    parameter->elements = 1;
    bool empty = false;
    for (const int64_t extent : parameter->shape) empty = empty || extent == 0;
    for (const int64_t extent : parameter->shape) {
      if (empty) parameter->elements = 0;
      if (__builtin_mul_overflow(parameter->elements, static_cast<uint64_t>(extent),
                                 &parameter->elements) ||
          parameter->elements > (uint64_t{1} << 56)) {
        fail(ZERO_ERR_FILE_FORMAT,
             "file \"%s\": param \"%s\" has more elements than can be counted",
             archive_.path().c_str(), parameter->name.c_str());
      }
    }
    if (dtype_bytes(parameter->dtype) == 0) {
      fail(ZERO_ERR_UNSUPPORTED,
           "file \"%s\": param \"%s\" is of an element type that libzero does not have, expected "
           "fp32, fp16, bf16, fp64, int64, int32 or uint8",
           archive_.path().c_str(), parameter->name.c_str());
    }
  }

  void insert(DeepSpeedParameter parameter) {
    build_.by_name.emplace(parameter.name, static_cast<int32_t>(state_.parameters.size()));
    state_.parameters.push_back(std::move(parameter));
  }

  void read_members() {
    for (const std::string& name : order_) {
      const auto found = build_.by_name.find(name);
      const Known& known = known_.at(name);
      if (found == build_.by_name.end() || known.role != ZERO_PARAM_TRAINED) continue;
      const auto group = static_cast<size_t>(known.group);
      if (build_.members.size() <= group) build_.members.resize(group + 1);
      build_.members[group].push_back(found->second);
    }
    const PickleRef shapes = document_.find(archive_.root(), "param_shapes");
    if (document_.is(shapes, PickleKind::kList)) { // groups may be empty
      build_.members.resize(document_.items(shapes).size());
    }
  }

  int64_t counter(const char* name, int64_t otherwise) const {
    const PickleRef node = document_.find(archive_.root(), name);
    return document_.is(node, PickleKind::kInteger) ? document_.integer(node) : otherwise;
  }

  void read_counters() {
    state_.global_steps = counter("global_steps", 0);
    state_.skipped_steps = counter("skipped_steps", 0);
    state_.global_samples = counter("global_samples", 0);
    const PickleRef scheduler = document_.find(archive_.root(), "lr_scheduler");
    const PickleRef iteration = document_.find(scheduler, "last_batch_iteration");
    if (document_.is(iteration, PickleKind::kInteger)) {
      state_.scheduler_iteration = document_.integer(iteration);
    }
    const PickleRef version = document_.find(archive_.root(), "ds_version");
    if (document_.is(version, PickleKind::kText)) state_.version = document_.text(version);
    state_.client_state = deepspeed_json(archive_, archive_.root(), own_keys());
    state_.config = deepspeed_json(archive_, document_.find(archive_.root(), "ds_config"), {});
  }

  struct Known {
    zero_param_role role = ZERO_PARAM_TRAINED;
    int32_t group = 0;
    std::vector<int64_t> shape;
  };
  DeepSpeedBuild& build_;
  DeepSpeedState& state_;
  const DeepSpeedArchive& archive_;
  const PickleDocument& document_;
  PickleRef module_ = kNoPickle;
  std::set<std::string> buffers_;
  std::unordered_map<std::string, Known> known_;
  std::vector<std::string> order_;
  std::unordered_map<std::string, std::string> owners_;
  std::unordered_map<std::string, std::string> storages_; // who was first at a place
};

} // namespace

void build_deepspeed_model(DeepSpeedBuild* build) {
  ModelReader(build).read();
}

} // namespace zero::checkpoint

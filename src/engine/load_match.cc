// SPDX-License-Identifier: BSD-3-Clause
#include "engine/load_match.h"

#include <algorithm>

#include "base/dtype.h"
#include "engine/stored_state.h"

namespace zero::engine {
namespace {

using checkpoint::Manifest;
using checkpoint::StoredParameter;

constexpr size_t kListed = 8; // of each kind of difference

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

bool is_float(zero_dtype dtype) {
  return dtype == ZERO_DTYPE_FP32 || is_16_bit_float(dtype);
}

class Matcher {
 public:
  Matcher(const checkpoint::CheckpointReader& reader, const Context& context, Stepper& stepper,
          const LoadOptions& options)
      : reader_(reader),
        manifest_(reader.manifest()),
        context_(context),
        stepper_(stepper),
        options_(options),
        used_(manifest_.parameters.size(), false) {}

  std::vector<MatchedParameter> match() {
    const auto count = static_cast<zero_param_id>(context_.plan->places.size());
    for (zero_param_id p = 0; p < count; ++p) match_parameter(p);
    std::vector<int32_t> extra;
    for (size_t row = 0; row < used_.size(); ++row) {
      if (!used_[row]) extra.push_back(static_cast<int32_t>(row));
    }
    if (!options_.allow_missing) list_missing(extra);
    if (!options_.allow_extra) list_extra(extra);
    list("of another shape", reshaped_);
    list("of another kind", other_kind_);
    list("tied otherwise", retied_);
    if (!options_.weights_only) check_run();
    if (sentence_.empty()) return std::move(matched_);
    fail(ZERO_ERR_FILE_MISMATCH, "checkpoint \"%s\" does not fit this model: %s",
         reader_.folder().c_str(), sentence_.c_str());
  }

 private:
  void add(const std::string& text) { sentence_ += (sentence_.empty() ? "" : "; ") + text; }

  void list(const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    std::string text = format("%zu %s: ", names.size(), what);
    for (size_t i = 0; i < std::min(names.size(), kListed); ++i) {
      text += (i == 0 ? "" : ", ") + names[i];
    }
    if (names.size() > kListed) text += format(" and %zu more", names.size() - kListed);
    add(text);
  }

  void match_parameter(zero_param_id id) {
    const plan::Parameter& mine = context_.parameter(id);
    const int32_t row = reader_.names().find(mine.name);
    if (row < 0) {
      missing_.push_back(id);
      return;
    }
    used_[static_cast<size_t>(row)] = true;
    const StoredParameter& theirs = manifest_.parameters[static_cast<size_t>(row)];
    const std::string quoted = "\"" + mine.name + "\"";
    if (theirs.shape != mine.shape) {
      reshaped_.push_back(quoted + " is " + shape_text(theirs.shape) + " there, " +
                          shape_text(mine.shape) + " here");
      return;
    }
    const bool alias = mine.root != id;
    if (alias) {
      const std::string& root = context_.parameter(mine.root).name;
      const int32_t their_root = reader_.names().find(root);
      if (their_root < 0 || manifest_.root_of(row) != manifest_.root_of(their_root)) {
        retied_.push_back(quoted + " is \"" + root + "\" here, and itself there");
      }
      return;
    }
    if (theirs.tied_to >= 0 && !options_.weights_only) {
      const StoredParameter& target =
          manifest_.parameters[static_cast<size_t>(manifest_.root_of(row))];
      // Another one of the tied names may be the first here.
      const zero_param_id first = context_.plan->model.find(target.name);
      if (first < 0 || context_.parameter(first).root != id) {
        retied_.push_back(quoted + " is \"" + target.name + "\" there, and itself here");
        return;
      }
    }
    match_root(id, row, quoted);
  }

  void match_root(zero_param_id id, int32_t row, const std::string& quoted) {
    const plan::Parameter& mine = context_.parameter(id);
    const StoredParameter& theirs =
        manifest_.parameters[static_cast<size_t>(manifest_.root_of(row))];
    const bool convertible = is_float(mine.dtype) && is_float(theirs.dtype);
    if (mine.dtype != theirs.dtype && !convertible) {
      other_kind_.push_back(quoted + " is " + dtype_name(theirs.dtype) + " there, " +
                            dtype_name(mine.dtype) + " here");
      return;
    }
    if ((mine.role == ZERO_PARAM_BUFFER) != (theirs.role == ZERO_PARAM_BUFFER)) {
      other_kind_.push_back(quoted + (mine.role == ZERO_PARAM_BUFFER ? " is a buffer here only"
                                                                     : " is a buffer there only"));
      return;
    }
    const bool with_state = !options_.weights_only && mine.role == ZERO_PARAM_TRAINED;
    if (with_state && !manifest_.weights_only && theirs.role != ZERO_PARAM_TRAINED) {
      other_kind_.push_back(quoted + " is frozen there and has no optimizer state");
      return;
    }
    if (with_state && theirs.group != mine.group) {
      other_kind_.push_back(quoted +
                            format(" is in group %d there, %d here", theirs.group, mine.group));
      return;
    }
    matched_.push_back({id, row, with_state});
  }

  // A missing and an extra one of the same shape may be one, renamed.
  void list_missing(const std::vector<int32_t>& extra) {
    std::vector<std::string> names;
    for (const zero_param_id id : missing_) {
      const plan::Parameter& mine = context_.parameter(id);
      std::string text = "\"" + mine.name + "\"";
      int32_t alike = 0, last = -1;
      for (const int32_t row : extra) {
        if (alike < 2 && manifest_.parameters[static_cast<size_t>(row)].shape == mine.shape) {
          ++alike;
          last = row;
        }
      }
      if (alike == 1) {
        text += " (renamed? \"" + manifest_.parameters[static_cast<size_t>(last)].name +
                "\" there has its shape)";
      }
      names.push_back(std::move(text));
      if (names.size() > kListed) names.resize(kListed + 1);
    }
    if (names.empty()) return;
    names.resize(std::min(names.size(), kListed));
    std::string text = format("%zu missing in it: ", missing_.size());
    for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : ", ") + names[i];
    if (missing_.size() > names.size()) {
      text += format(" and %zu more", missing_.size() - names.size());
    }
    add(text);
  }

  void list_extra(const std::vector<int32_t>& extra) {
    std::vector<std::string> names;
    for (const int32_t row : extra) {
      names.push_back("\"" + manifest_.parameters[static_cast<size_t>(row)].name + "\"");
    }
    list("not in the model", names);
  }

  // Optimizer, states and groups carry on only where they are the same ones.
  void check_run() {
    if (manifest_.weights_only) {
      add("it holds weights alone, expected options.weights_only 1");
      return;
    }
    const std::string family = optimizer_family(context_.settings);
    const std::vector<std::string> states =
        state_names(context_.settings, context_.plan->settings.optimizer_states);
    const bool any = std::any_of(matched_.begin(), matched_.end(),
                                 [](const MatchedParameter& m) { return m.with_state; });
    if (any && (manifest_.optimizer != family || manifest_.state_names != states)) {
      add(format("its optimizer is \"%s\" with %zu states, here it is \"%s\" with %zu",
                 manifest_.optimizer.c_str(), manifest_.state_names.size(), family.c_str(),
                 states.size()));
    }
    const std::vector<plan::Group>& groups = stepper_.groups().groups();
    if (groups.size() != manifest_.groups.size()) {
      add(format("it has %zu parameter groups, the model %zu", manifest_.groups.size(),
                 groups.size()));
      return;
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].values.frozen == manifest_.groups[g].frozen) continue;
      add(format("group %zu (\"%s\") is %s there only", g, groups[g].name.c_str(),
                 manifest_.groups[g].frozen ? "frozen" : "trained"));
    }
  }

  const checkpoint::CheckpointReader& reader_;
  const Manifest& manifest_;
  const Context& context_;
  Stepper& stepper_;
  const LoadOptions& options_;
  std::vector<bool> used_; // by row
  std::vector<MatchedParameter> matched_;
  std::vector<zero_param_id> missing_;
  std::vector<std::string> reshaped_, other_kind_, retied_;
  std::string sentence_;
};

} // namespace

std::vector<MatchedParameter> match_parameters(const checkpoint::CheckpointReader& reader,
                                               const Context& context, Stepper& stepper,
                                               const LoadOptions& options) {
  return Matcher(reader, context, stepper, options).match();
}

} // namespace zero::engine

// Which old checkpoints go, and how they go: renamed out of sight in one step, then deleted.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"

namespace zero::checkpoint {
namespace {

constexpr const char* kDeleting = ".deleting-";

bool is_leftover(const std::string& name) {
  return name.front() == '.' && name.find(kDeleting) != std::string::npos;
}

} // namespace

std::vector<std::string> superseded(std::vector<Kept> all, int32_t keep_last, int32_t keep_every,
                                    const std::string& newest, const std::string& latest) {
  std::vector<std::string> gone;
  if (keep_last <= 0) return gone;
  std::sort(all.begin(), all.end(), [&](const Kept& a, const Kept& b) {
    if ((a.name == newest) != (b.name == newest)) return a.name == newest;
    if (a.step != b.step) return a.step > b.step;
    if (a.saved_ns != b.saved_ns) return a.saved_ns > b.saved_ns;
    return a.name > b.name;
  });
  for (size_t i = static_cast<size_t>(keep_last); i < all.size(); ++i) {
    const bool milestone = keep_every > 0 && all[i].step % keep_every == 0;
    if (!milestone && all[i].name != latest) gone.push_back(all[i].name);
  }
  return gone;
}

void apply_retention(const std::string& path, uint64_t run, int32_t keep_last, int32_t keep_every,
                     const std::string& latest) {
  if (keep_last <= 0) return;
  const std::string parent = parent_folder(path);
  const std::string newest = base_name(path);
  std::vector<Kept> all;
  for (const std::string& name : list_folder(parent)) {
    const std::string folder = join_path(parent, name);
    if (is_leftover(name)) {
      remove_tree(folder);
      continue;
    }
    if (name.front() == '.') continue;
    const PathInfo info = path_info(join_path(folder, kManifestName));
    if (info.kind != PathKind::kFile) continue;
    try {
      const Manifest manifest = read_manifest(folder);
      if (manifest.run == run) all.push_back({name, manifest.step, info.modified_ns});
    } catch (const Error&) {
      // Not whole: it is neither counted nor touched.
    }
  }
  std::string pointed;
  const std::string pointer = join_path(parent, latest.empty() ? "latest" : latest);
  if (path_info(pointer).kind == PathKind::kFile) {
    pointed = read_file(pointer, 4096);
    while (!pointed.empty() && pointed.back() == '\n') pointed.pop_back();
  }
  for (const std::string& name : superseded(all, keep_last, keep_every, newest, pointed)) {
    const std::string hidden =
        join_path(parent, "." + name + kDeleting +
                              format("%016llx", static_cast<unsigned long long>(random_id())));
    if (!rename_to_new(join_path(parent, name), hidden)) continue;
    sync_folder(parent);
    remove_tree(hidden);
  }
}

} // namespace zero::checkpoint

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_folder.h"

#include <cerrno>
#include <random>

#include "base/error.h"
#include "base/file.h"

namespace zero::checkpoint {
namespace {

constexpr uint64_t kLargestManifest = uint64_t{1} << 31;
constexpr uint64_t kLargestPointer = 4096;
constexpr const char* kToken = "token";
constexpr const char* kNew = "new";

// Names beside path that belong to it: ".NAME.saving-ID", ".NAME.replaced-ID".
std::string beside_prefix(const std::string& path, const char* what) {
  return "." + base_name(path) + "." + what + "-";
}
std::string id_text(uint64_t id) {
  return format("%016llx", static_cast<unsigned long long>(id));
}
bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

bool holds_manifest(const std::string& folder) {
  return path_info(join_path(folder, kManifestName)).kind == PathKind::kFile;
}

std::string token_text(uint64_t id, uint64_t run) {
  return "libzero checkpoint " + id_text(id) + " of run " + id_text(run) + "\n";
}

std::string follow_pointer(const std::string& pointer) {
  std::string name = read_file(pointer, kLargestPointer);
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) name.pop_back();
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == ".." ||
      name.find('\0') != std::string::npos) {
    fail(ZERO_ERR_FILE_FORMAT,
         "\"%s\" says \"%s\", expected the name of a checkpoint's folder beside it",
         pointer.c_str(), name.substr(0, 200).c_str());
  }
  const std::string folder = join_path(parent_folder(pointer), name);
  if (!holds_manifest(folder)) {
    fail(ZERO_ERR_NOT_FOUND, "\"%s\" says \"%s\", but there is no \"%s\"", pointer.c_str(),
         name.c_str(), join_path(folder, kManifestName).c_str());
  }
  return folder;
}

// What a crash between the two renames of a replacement left; "" where nothing is.
std::string half_replaced(const std::string& path) {
  const std::string parent = parent_folder(path);
  if (path_info(parent).kind != PathKind::kFolder) return {};
  const std::string prefix = beside_prefix(path, "replaced");
  for (const std::string& name : list_folder(parent)) {
    const std::string folder = join_path(parent, name);
    if (starts_with(name, prefix) && holds_manifest(folder)) return folder;
  }
  return {};
}

// What a save of `run` left.  Out of its name first: should that save live after all (a job that
// was started twice), it cannot become path when half of it is gone.
void remove_if_of_run(const std::string& left, uint64_t run, const std::string& gone) {
  try {
    const std::string text = read_file(join_path(left, kToken), kLargestPointer);
    if (text.find(" of run " + id_text(run)) == std::string::npos) return;
    rename_path(left, gone);
    // It may hold what that save took the place of: not before the disk has both names as they are.
    sync_folder(parent_folder(left));
    remove_tree(gone);
  } catch (const Error& error) {
    if (error.native_code() != ENOENT) throw; // it has no token, or another one removes it too
  }
}

} // namespace

std::string resolve_checkpoint(const std::string& path) {
  const PathKind kind = path_info(path).kind;
  if (kind == PathKind::kFile) return follow_pointer(path);
  if (kind == PathKind::kFolder) {
    if (holds_manifest(path)) return path;
    const std::string latest = join_path(path, "latest");
    if (path_info(latest).kind == PathKind::kFile) return follow_pointer(latest);
    fail(ZERO_ERR_NOT_FOUND,
         "\"%s\" is no checkpoint: it holds neither \"%s\" nor a file \"latest\"", path.c_str(),
         kManifestName);
  }
  const std::string replaced = kind == PathKind::kAbsent ? half_replaced(path) : std::string();
  if (!replaced.empty()) return replaced;
  fail(ZERO_ERR_NOT_FOUND, "there is no checkpoint \"%s\"", path.c_str());
}

Manifest read_manifest(const std::string& folder, uint64_t* bytes) {
  const std::string file = join_path(folder, kManifestName);
  const std::string text = read_file(file, kLargestManifest);
  Manifest manifest = decode_manifest(text, file);
  uint64_t total = text.size();
  for (size_t i = 0; i < manifest.pieces.size(); ++i) {
    const StoredPiece& piece = manifest.pieces[i];
    const std::string path = join_path(folder, piece.file);
    const PathInfo info = path_info(path);
    if (info.kind != PathKind::kFile) {
      fail(ZERO_ERR_FILE_INCOMPLETE, "\"%s\", the piece of rank %zu, is missing", path.c_str(), i);
    }
    if (info.bytes != piece.bytes) {
      fail(info.bytes < piece.bytes ? ZERO_ERR_FILE_INCOMPLETE : ZERO_ERR_FILE_CORRUPT,
           "\"%s\", the piece of rank %zu, has %llu bytes, expected %llu", path.c_str(), i,
           static_cast<unsigned long long>(info.bytes),
           static_cast<unsigned long long>(piece.bytes));
    }
    total += piece.bytes;
  }
  if (bytes != nullptr) *bytes = total;
  return manifest;
}

Staging::Staging(const std::string& path, uint64_t id)
    : path_(join_path(parent_folder(path), base_name(path))),
      folder_(join_path(parent_folder(path), beside_prefix(path, "saving") + id_text(id))),
      id_(id) {
  const std::string name = base_name(path);
  if (name.empty() || name == "." || name == ".." || name == "/") {
    fail(ZERO_ERR_INVALID_ARGUMENT, "path is \"%s\", expected the name of a folder to make",
         path.c_str());
  }
}

void Staging::create(bool replace, uint64_t run) const {
  const std::string parent = parent_folder(path_);
  make_folders(parent);
  const PathKind kind = path_info(path_).kind;
  if (kind != PathKind::kAbsent && !replace) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "\"%s\" exists already, expected a new name, or options.replace 1", path_.c_str());
  }
  if (kind != PathKind::kAbsent && !holds_manifest(path_)) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "\"%s\" exists and is no checkpoint, expected one to replace, or a new name",
         path_.c_str());
  }
  // Of this run and this path there is one save at a time: another one has died.
  const std::string prefix = beside_prefix(path_, "saving");
  const std::string gone = join_path(parent, beside_prefix(path_, "deleting") + id_text(id_));
  for (const std::string& name : list_folder(parent)) {
    if (starts_with(name, prefix)) remove_if_of_run(join_path(parent, name), run, gone);
  }
  make_folder(folder_);
  write_file(join_path(folder_, kToken), token_text(id_, run));
  make_folder(join_path(folder_, kNew));
  sync_folder(folder_);
}

void Staging::check_token(int32_t rank) const {
  const std::string token = join_path(folder_, kToken);
  std::string text;
  if (path_info(token).kind == PathKind::kFile) text = read_file(token, kLargestPointer);
  if (starts_with(text, "libzero checkpoint " + id_text(id_))) return;
  throw Error(ZERO_ERR_IO,
              format("rank %d does not see \"%s\", which rank 0 wrote: a checkpoint needs one file "
                     "system that all ranks share",
                     rank, token.c_str()),
              rank);
}

std::string Staging::piece(int32_t number) const {
  return join_path(join_path(folder_, kNew), piece_name(number));
}

void Staging::commit(const Manifest& manifest, bool replace) const {
  const std::string made = join_path(folder_, kNew);
  const std::string parent = parent_folder(path_);
  write_file(join_path(made, kManifestName), encode_manifest(manifest));
  sync_folder(made);
  const bool exists = path_info(path_).kind != PathKind::kAbsent;
  if (exists && replace) {
    if (!exchange_paths(made, path_)) {
      // Two renames; between them the old one is found by resolve_checkpoint.
      const std::string old = join_path(parent, beside_prefix(path_, "replaced") + id_text(id_));
      rename_path(path_, old);
      sync_folder(parent);
      rename_path(made, path_);
    }
  } else if (!rename_to_new(made, path_)) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "\"%s\" has come to exist meanwhile: another one saves to the same place", path_.c_str());
  }
  *unsure_ = true;
  sync_folder(parent);
  *unsure_ = false;
}

bool Staging::is_whole() const {
  return holds_manifest(path_) && read_manifest(path_).id == id_;
}

void Staging::remove() const noexcept {
  if (*unsure_) return; // the disk may still have the old one here, or the new one
  try {
    remove_tree(folder_);
    const std::string parent = parent_folder(path_);
    const std::string prefix = beside_prefix(path_, "replaced");
    if (!holds_manifest(path_)) return;
    for (const std::string& name : list_folder(parent)) {
      if (starts_with(name, prefix)) remove_tree(join_path(parent, name));
    }
  } catch (...) {
    // What stays is removed by the next save.
  }
}

void point_latest(const std::string& path, const std::string& name) {
  replace_file(join_path(parent_folder(path), name), base_name(path) + "\n");
}

uint64_t random_id() {
  std::random_device source;
  const uint64_t id = static_cast<uint64_t>(source()) << 32 | source();
  return id == 0 ? 1 : id;
}

} // namespace zero::checkpoint

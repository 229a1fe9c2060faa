// SPDX-License-Identifier: BSD-3-Clause
#include "disk_model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

namespace faults {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

} // namespace

DiskModel::DiskModel(const std::string& root) : root_path_(root) {
  const std::function<NodePointer(const fs::path&)> load = [&](const fs::path& path) {
    auto node = std::make_shared<Node>();
    node->folder = fs::is_directory(path);
    if (!node->folder) {
      node->synced = bytes_of(path);
      return node;
    }
    for (const auto& entry : fs::directory_iterator(path)) {
      node->now[entry.path().filename().string()] = load(entry.path());
    }
    node->kept = node->now;
    return node;
  };
  root_ = load(root);
}

bool DiskModel::below_root(const std::string& path, std::vector<std::string>* parts) const {
  parts->clear();
  if (path.compare(0, root_path_.size(), root_path_) != 0) return false;
  const std::string rest = path.substr(root_path_.size());
  if (!rest.empty() && rest[0] != '/') return false;
  for (size_t at = 0; at < rest.size();) {
    const size_t slash = std::min(rest.find('/', at), rest.size());
    const std::string part = rest.substr(at, slash - at);
    if (!part.empty() && part != ".") parts->push_back(part);
    at = slash + 1;
  }
  return true;
}

DiskModel::NodePointer DiskModel::find(const std::vector<std::string>& parts, size_t count) const {
  NodePointer node = root_;
  for (size_t i = 0; i < count && node != nullptr; ++i) {
    const auto found = node->now.find(parts[i]);
    node = found == node->now.end() ? nullptr : found->second;
  }
  return node;
}

void DiskModel::set_names(std::vector<NameChange::One> names) {
  for (const NameChange::One& one : names) {
    if (one.node == nullptr) {
      one.folder->now.erase(one.name);
    } else {
      one.folder->now[one.name] = one.node;
    }
  }
  name_changes_.push_back({std::move(names), false});
}

void DiskModel::apply(const Call& call) {
  std::vector<std::string> parts;
  if (call.result < 0 || !changes_disk(call.kind) || !below_root(call.path, &parts)) return;
  ++changes_;
  const NodePointer node = find(parts, parts.size());
  if (call.kind == Kind::kSync) {
    if (node == nullptr) throw std::runtime_error("sync of an unknown file " + call.path);
    for (const ByteChange& change : node->pending) apply_bytes(&node->synced, change);
    node->pending.clear();
    for (NameChange& change : name_changes_) {
      for (const NameChange::One& one : change.names) change.synced |= one.folder == node;
    }
    return;
  }
  if (call.kind == Kind::kWrite || call.kind == Kind::kTruncate) {
    if (node == nullptr) throw std::runtime_error("write to an unknown file " + call.path);
    node->pending.push_back({call.offset, call.data, call.kind == Kind::kTruncate});
    return;
  }
  if (parts.empty()) throw std::runtime_error("the root itself changes: " + call.path);
  const NodePointer folder = find(parts, parts.size() - 1);
  if (folder == nullptr) throw std::runtime_error("no folder of " + call.path);
  const std::string& name = parts.back();
  if (call.kind == Kind::kRename || call.kind == Kind::kExchange) {
    std::vector<std::string> to;
    if (!below_root(call.to, &to) || to.empty()) throw std::runtime_error("out of " + call.to);
    const NodePointer other = find(to, to.size());
    set_names({{folder, name, call.kind == Kind::kExchange ? other : nullptr},
               {find(to, to.size() - 1), to.back(), node}});
  } else if (call.kind == Kind::kCreate || call.kind == Kind::kMakeFolder) {
    const auto made = std::make_shared<Node>();
    made->folder = call.kind == Kind::kMakeFolder;
    set_names({{folder, name, made}});
  } else { // removals
    set_names({{folder, name, nullptr}});
  }
}

void DiskModel::apply_bytes(std::string* bytes, const ByteChange& change) {
  if (change.is_resize) {
    bytes->resize(change.offset, '\0');
    return;
  }
  bytes->resize(std::max<size_t>(bytes->size(), change.offset + change.data.size()), '\0');
  bytes->replace(change.offset, change.data.size(), change.data);
}

void DiskModel::write_what_is_left(const std::string& folder, Left left, uint64_t seed) const {
  std::mt19937_64 random(seed);
  const uint64_t odds = 1 + random() % 9; // of ten unsynced things so many are there
  const auto is_kept = [&] { return random() % 10 < odds; };

  std::map<Node*, std::map<std::string, NodePointer>> names;
  const auto names_of = [&](Node* node) -> std::map<std::string, NodePointer>& {
    return names.try_emplace(node, node->kept).first->second;
  };
  for (const NameChange& change : name_changes_) {
    const bool some = left == Left::kSome && is_kept();
    const bool removal = change.names.size() == 1 && change.names[0].node == nullptr;
    const bool all = left == Left::kEverything || left == Left::kNamesOnly ||
                     left == Left::kSizesOnly || (left == Left::kRemovalsOnly && removal);
    if (!change.synced && !some && !all) continue;
    for (const NameChange::One& one : change.names) {
      if (one.node == nullptr) {
        names_of(one.folder.get()).erase(one.name);
      } else {
        names_of(one.folder.get())[one.name] = one.node;
      }
    }
  }

  const auto bytes_left = [&](const Node& node) {
    std::string bytes = node.synced;
    std::string whole = node.synced;
    for (const ByteChange& change : node.pending) apply_bytes(&whole, change);
    if (left == Left::kEverything || left == Left::kBytesOnly) return whole;
    if (left == Left::kSizesOnly) bytes.resize(whole.size(), '\0');
    if (left != Left::kSome || bytes == whole) return bytes;
    if (is_kept()) bytes.resize(whole.size(), '\0');
    for (uint64_t at = 0; at < whole.size(); at += kPage) {
      if (!is_kept()) continue;
      const uint64_t end = std::min<uint64_t>(at + kPage, whole.size());
      if (bytes.size() < end) bytes.resize(end, '\0');
      bytes.replace(at, end - at, whole, at, end - at);
    }
    return bytes;
  };
  std::set<Node*> above; // an impossible loop of folders ends here
  const std::function<void(const NodePointer&, const fs::path&)> store =
      [&](const NodePointer& node, const fs::path& path) {
        if (!node->folder) return write_bytes(path, bytes_left(*node));
        fs::create_directories(path);
        if (!above.insert(node.get()).second) return;
        for (const auto& [name, child] : names_of(node.get())) store(child, path / name);
        above.erase(node.get());
      };
  store(root_, folder);
}

std::map<std::string, std::string> read_tree(const std::string& folder) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    if (entry.is_directory()) {
      tree[name + "/"];
    } else {
      tree[name] = bytes_of(entry.path());
    }
  }
  return tree;
}

void remove_tree_of(const std::string& folder) {
  fs::remove_all(folder);
}

} // namespace faults

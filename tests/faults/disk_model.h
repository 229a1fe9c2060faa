// A disk as a power cut sees it: what was synced is there; of everything else any part may be.
// Fed with the calls that a WatchedFiles notes, it writes what may be left into a fresh folder.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "watched_files.h"

namespace faults {

// What of the unsynced is left.
enum class Left {
  kNothing,
  kEverything,
  kSizesOnly, // all names and sizes, but zeros instead of unsynced bytes
  kNamesOnly, // all names, and files as they were synced
  kBytesOnly, // all bytes of files, but no unsynced name
  kRemovalsOnly, // names removed are gone, names made or renamed are not
  kSome, // any part, by the seed: names one by one, bytes page by page
};

inline constexpr Left kLefts[] = {Left::kNothing,   Left::kEverything, Left::kSizesOnly,
                                  Left::kNamesOnly, Left::kBytesOnly,  Left::kRemovalsOnly,
                                  Left::kSome};

class DiskModel {
 public:
  // What lies below root now counts as synced.  Calls outside it are ignored.
  explicit DiskModel(const std::string& root);
  void apply(const Call& call);
  // Into a folder that is empty or absent.
  void write_what_is_left(const std::string& folder, Left left, uint64_t seed) const;
  // Equal numbers: the next power cut leaves the same as the last one.
  uint64_t changes() const { return changes_; }

 private:
  static constexpr uint64_t kPage = 512; // what a disk writes whole
  struct Node;
  using NodePointer = std::shared_ptr<Node>;
  // Names set in one go: a creation, a removal, a rename.  An absent node: the name is gone.
  struct NameChange {
    struct One {
      NodePointer folder;
      std::string name;
      NodePointer node;
    };
    std::vector<One> names;
    bool synced = false;
  };
  struct ByteChange {
    uint64_t offset = 0;
    std::string data;
    bool is_resize = false; // to offset
  };
  struct Node {
    bool folder = false;
    std::string synced; // a file's bytes
    std::vector<ByteChange> pending;
    std::map<std::string, NodePointer> now; // a folder's names, as the program sees them
    std::map<std::string, NodePointer> kept; // ... as they were at the start
  };

  bool below_root(const std::string& path, std::vector<std::string>* parts) const;
  NodePointer find(const std::vector<std::string>& parts, size_t count) const;
  void set_names(std::vector<NameChange::One> names);
  static void apply_bytes(std::string* bytes, const ByteChange& change);

  std::string root_path_;
  NodePointer root_;
  std::vector<NameChange> name_changes_;
  uint64_t changes_ = 0;
};

// Reads and writes trees of small files.
std::map<std::string, std::string> read_tree(
    const std::string& folder); // a folder's name ends in /
void remove_tree_of(const std::string& folder);

} // namespace faults

// The stack machine of the pickle format (protocols 2 to 5), as far as plain data, torch and
// DeepSpeed need it.  Values are numbers of nodes, so that a list that contains itself, or a
// thousand times the same list, costs nothing.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "checkpoint/pickle_classes.h"
#include "checkpoint/pickle_document.h"

namespace zero::checkpoint {

constexpr size_t kMostNodes = size_t{1} << 23;
constexpr uint64_t kMostCopied = uint64_t{1} << 28;

class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  PickleDocument read() {
    while (step()) {
    }
    if (stack_.size() != 1 || !marks_.empty()) refuse("it ends with more than one value");
    document_.root = stack_.back();
    return std::move(document_);
  }

 private:
  using Node = PickleDocument::Node;

  [[noreturn]] void refuse(const std::string& what) const {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\", pickle offset %zu: %s", file_.c_str(), op_at_,
         what.c_str());
  }
  [[noreturn]] void refuse_class(const std::string& name) const {
    fail(ZERO_ERR_UNSUPPORTED,
         "file \"%s\", pickle offset %zu: it asks for \"%s\", which is not one of the few classes "
         "that are read; nothing of it was executed",
         file_.c_str(), op_at_, name.c_str());
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) refuse("the pickle ends in the middle of a value");
    const std::string_view piece = bytes_.substr(at_, count);
    at_ += count;
    return piece;
  }
  uint64_t take_unsigned(int width) {
    const std::string_view piece = take(static_cast<uint64_t>(width));
    uint64_t value = 0;
    for (size_t i = piece.size(); i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(piece[i]);
    }
    return value;
  }
  std::string_view take_line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) refuse("the pickle ends in the middle of a name");
    const std::string_view line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  // What an opcode copies, so that few bytes cannot ask for many.
  void charge(uint64_t bytes) {
    copied_ += bytes;
    if (copied_ > kMostCopied) {
      refuse(format("it copies more than %llu bytes of its own values",
                    static_cast<unsigned long long>(kMostCopied)));
    }
  }
  PickleRef add(PickleKind kind, uint32_t index = 0) {
    if (document_.nodes_.size() >= kMostNodes) {
      refuse(format("it holds more than %zu values", kMostNodes));
    }
    Node node{};
    node.kind = kind;
    node.index = index;
    document_.nodes_.push_back(node);
    return static_cast<PickleRef>(document_.nodes_.size() - 1);
  }
  PickleRef add_integer(int64_t value, PickleKind kind = PickleKind::kInteger) {
    const PickleRef node = add(kind);
    document_.nodes_[node].integer = value;
    return node;
  }
  PickleRef add_text(std::string_view text, PickleKind kind) {
    const PickleRef node = add(kind, static_cast<uint32_t>(document_.texts_.size()));
    document_.texts_.emplace_back(text);
    return node;
  }
  PickleRef add_sequence(PickleKind kind, std::vector<PickleRef> items) {
    const PickleRef node = add(kind, static_cast<uint32_t>(document_.sequences_.size()));
    document_.sequences_.push_back(std::move(items));
    return node;
  }

  void push(PickleRef node) { stack_.push_back(node); }
  PickleRef pop() {
    if (stack_.size() <= floor()) refuse("a value is taken from an empty stack");
    const PickleRef node = stack_.back();
    stack_.pop_back();
    return node;
  }
  PickleRef top() const {
    if (stack_.size() <= floor()) refuse("a value is taken from an empty stack");
    return stack_.back();
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  // Everything above the last mark.
  std::vector<PickleRef> pop_to_mark() {
    if (marks_.empty()) refuse("a mark is missing");
    std::vector<PickleRef> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()),
                                 stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void put(uint64_t index) {
    if (index >= bytes_.size()) {
      refuse(format("memo %llu is beyond what a pickle of %zu bytes can have",
                    static_cast<unsigned long long>(index), bytes_.size()));
    }
    if (index >= memo_.size()) memo_.resize(index + 1, kNoPickle);
    memo_[index] = top();
  }
  void get(uint64_t index) {
    if (index >= memo_.size() || memo_[index] == kNoPickle) {
      refuse(format("memo %llu was never put", static_cast<unsigned long long>(index)));
    }
    push(memo_[index]);
  }

  const std::vector<PickleRef>& tuple(PickleRef node, size_t least, const char* what) const {
    if (!document_.is(node, PickleKind::kTuple) || document_.items(node).size() < least) {
      refuse(format("expected a tuple of at least %zu values for %s", least, what));
    }
    return document_.items(node);
  }
  std::vector<PickleRef>& sequence(PickleRef node, PickleKind kind, const char* what) {
    if (!document_.is(node, kind)) refuse(format("expected %s", what));
    return document_.sequences_[document_.nodes_[node].index];
  }
  std::vector<int64_t> sizes(PickleRef node, const char* what) const {
    std::vector<int64_t> list;
    for (const PickleRef item : tuple(node, 0, what)) {
      if (!document_.is(item, PickleKind::kInteger) || document_.integer(item) < 0) {
        refuse(format("expected whole numbers from 0 in %s", what));
      }
      list.push_back(document_.integer(item));
    }
    return list;
  }

  void append(PickleRef list, const std::vector<PickleRef>& items) {
    std::vector<PickleRef>& to = sequence(list, PickleKind::kList, "a list to append to");
    to.insert(to.end(), items.begin(), items.end());
  }
  void set_items(PickleRef dict, const std::vector<PickleRef>& items) {
    if (items.size() % 2 != 0) refuse("a dict has a key without a value");
    std::vector<PickleRef>& to = sequence(dict, PickleKind::kDict, "a dict to set items of");
    to.insert(to.end(), items.begin(), items.end());
  }
  // Two's complement, little end first.  Beyond 64 bits it is kept as text.
  void take_long(uint64_t width) {
    std::string_view piece = take(width);
    const bool negative = !piece.empty() && (piece.back() & 0x80) != 0;
    const char sign = negative ? '\xff' : '\0';
    while (piece.size() > 8 && piece.back() == sign) piece.remove_suffix(1);
    uint64_t value = negative ? UINT64_MAX : 0;
    for (size_t i = std::min<size_t>(piece.size(), 8); i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(piece[i]);
    }
    if (piece.size() <= 8 && (value >> 63 != 0) == negative) {
      push(add_integer(static_cast<int64_t>(value)));
    } else if (piece.size() <= 8 && !negative) {
      push(add_text(std::to_string(value), PickleKind::kBigInteger));
    } else {
      refuse("an integer has more than 64 bits");
    }
  }
  void take_double() {
    const std::string_view piece = take(8);
    uint64_t bits = 0;
    for (const char c : piece) bits = bits << 8 | static_cast<unsigned char>(c);
    const PickleRef node = add(PickleKind::kNumber);
    std::memcpy(&document_.nodes_[node].number, &bits, sizeof(bits));
    push(node);
  }

  void push_class(const std::string& name) {
    if (pickle_class(name) == PickleClass::kUnknown) refuse_class(name);
    push(add_text(name, PickleKind::kClass));
  }
  std::string class_name(PickleRef node) const {
    if (!document_.is(node, PickleKind::kClass)) refuse("expected the name of a class");
    return document_.text(node);
  }

  void persistent();
  PickleRef rebuild_tensor(PickleRef arguments);
  PickleRef call(PickleRef callee, PickleRef arguments);
  void make_object();
  void build();
  bool step();
  bool step_container(unsigned char op);

  std::string_view bytes_;
  const std::string& file_;
  size_t at_ = 0;
  size_t op_at_ = 0;
  PickleDocument document_;
  std::vector<PickleRef> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleRef> memo_;
  uint64_t copied_ = 0;
};

} // namespace zero::checkpoint

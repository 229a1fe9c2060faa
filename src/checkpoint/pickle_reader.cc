// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/pickle_reader.h"

#include "checkpoint/pickle_machine.h"

namespace zero::checkpoint {

// False at the end.
bool PickleReader::step() {
  op_at_ = at_;
  if (at_ >= bytes_.size()) refuse("the pickle ends without its STOP");
  const auto op = static_cast<unsigned char>(bytes_[at_++]);
  switch (op) {
    case 0x80: { // PROTO
      const uint64_t protocol = take_unsigned(1);
      if (protocol < 2 || protocol > 5) {
        refuse(format("its protocol is %llu, expected 2 to 5",
                      static_cast<unsigned long long>(protocol)));
      }
      return true;
    }
    case 0x95: // FRAME
      take_unsigned(8);
      return true;
    case '.':
      return false;
    case 'N':
      push(add(PickleKind::kNone));
      return true;
    case 0x88:
    case 0x89:
      push(add_integer(op == 0x88 ? 1 : 0, PickleKind::kBool));
      return true;
    case 'K':
      push(add_integer(static_cast<int64_t>(take_unsigned(1))));
      return true;
    case 'M':
      push(add_integer(static_cast<int64_t>(take_unsigned(2))));
      return true;
    case 'J':
      push(add_integer(static_cast<int32_t>(take_unsigned(4))));
      return true;
    case 0x8a: // LONG1
      take_long(take_unsigned(1));
      return true;
    case 0x8b: // LONG4
      take_long(take_unsigned(4));
      return true;
    case 'G':
      take_double();
      return true;
    case 0x8c: // SHORT_BINUNICODE
      push(add_text(take(take_unsigned(1)), PickleKind::kText));
      return true;
    case 'X':
      push(add_text(take(take_unsigned(4)), PickleKind::kText));
      return true;
    case 0x8d: // BINUNICODE8
      push(add_text(take(take_unsigned(8)), PickleKind::kText));
      return true;
    case 'C':
      push(add_text(take(take_unsigned(1)), PickleKind::kBytes));
      return true;
    case 'B':
      push(add_text(take(take_unsigned(4)), PickleKind::kBytes));
      return true;
    case 0x8e: // BINBYTES8
      push(add_text(take(take_unsigned(8)), PickleKind::kBytes));
      return true;
    case 'c': { // GLOBAL
      const std::string module(take_line());
      push_class(module + "." + std::string(take_line()));
      return true;
    }
    case 0x93: { // STACK_GLOBAL
      const PickleRef name = pop();
      const PickleRef module = pop();
      if (!document_.is(name, PickleKind::kText) || !document_.is(module, PickleKind::kText)) {
        refuse("expected texts for the name of a class");
      }
      push_class(document_.text(module) + "." + document_.text(name));
      return true;
    }
    case 'Q':
      persistent();
      return true;
    case 'R': {
      const PickleRef arguments = pop();
      const PickleRef callee = pop();
      push(call(callee, arguments));
      return true;
    }
    case 0x81:
      make_object();
      return true;
    case 'b':
      build();
      return true;
    case 'q':
      put(take_unsigned(1));
      return true;
    case 'r':
      put(take_unsigned(4));
      return true;
    case 0x94: // MEMOIZE
      put(memo_.size());
      return true;
    case 'h':
      get(take_unsigned(1));
      return true;
    case 'j':
      get(take_unsigned(4));
      return true;
    default:
      return step_container(op);
  }
}

// Containers and the stack itself.
bool PickleReader::step_container(unsigned char op) {
  switch (op) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case '0':
      if (stack_.size() > floor()) {
        pop();
      } else {
        pop_to_mark();
      }
      return true;
    case '1':
      pop_to_mark();
      return true;
    case '2':
      push(top());
      return true;
    case ']':
      push(add_sequence(PickleKind::kList, {}));
      return true;
    case 'l':
      push(add_sequence(PickleKind::kList, pop_to_mark()));
      return true;
    case 'a': {
      const PickleRef item = pop();
      append(top(), {item});
      return true;
    }
    case 'e': {
      const std::vector<PickleRef> items = pop_to_mark();
      append(top(), items);
      return true;
    }
    case ')':
      push(add_sequence(PickleKind::kTuple, {}));
      return true;
    case 't':
      push(add_sequence(PickleKind::kTuple, pop_to_mark()));
      return true;
    case 0x85:
    case 0x86:
    case 0x87: {
      std::vector<PickleRef> items(static_cast<size_t>(op - 0x84));
      for (size_t i = items.size(); i-- > 0;) items[i] = pop();
      push(add_sequence(PickleKind::kTuple, std::move(items)));
      return true;
    }
    case '}':
      push(add_sequence(PickleKind::kDict, {}));
      return true;
    case 'd': {
      const std::vector<PickleRef> items = pop_to_mark();
      push(add_sequence(PickleKind::kDict, {}));
      set_items(top(), items);
      return true;
    }
    case 's': {
      const PickleRef value = pop();
      const PickleRef key = pop();
      set_items(top(), {key, value});
      return true;
    }
    case 'u': {
      const std::vector<PickleRef> items = pop_to_mark();
      set_items(top(), items);
      return true;
    }
    case 0x8f: // EMPTY_SET
      push(add_sequence(PickleKind::kSet, {}));
      return true;
    case 0x90: { // ADDITEMS
      const std::vector<PickleRef> items = pop_to_mark();
      std::vector<PickleRef>& to = sequence(top(), PickleKind::kSet, "a set to add to");
      to.insert(to.end(), items.begin(), items.end());
      return true;
    }
    case 0x91: // FROZENSET
      push(add_sequence(PickleKind::kSet, pop_to_mark()));
      return true;
    default:
      fail(ZERO_ERR_UNSUPPORTED,
           "file \"%s\", pickle offset %zu: opcode 0x%02x is not one of those that plain data and "
           "torch need",
           file_.c_str(), op_at_, op);
  }
}

PickleDocument read_pickle(std::string_view bytes, const std::string& file) {
  if (bytes.size() > kLargestPickle) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": its pickle has %zu bytes, expected at most %llu",
         file.c_str(), bytes.size(), static_cast<unsigned long long>(kLargestPickle));
  }
  return PickleReader(bytes, file).read();
}

} // namespace zero::checkpoint

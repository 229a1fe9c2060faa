// What the names in a pickle become: storages, tensors, containers, objects of known classes.
// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/pickle_machine.h"

namespace zero::checkpoint {

// ("storage", torch.FloatStorage, "0", "cpu", 296)
void PickleReader::persistent() {
  const std::vector<PickleRef>& id = tuple(pop(), 5, "a storage");
  if (!document_.is(id[0], PickleKind::kText) || document_.text(id[0]) != "storage" ||
      !document_.is(id[2], PickleKind::kText) || !document_.is(id[4], PickleKind::kInteger) ||
      document_.integer(id[4]) < 0) {
    refuse("expected (\"storage\", class, key, place, elements)");
  }
  TorchStorage storage;
  storage.type = class_name(id[1]);
  if (pickle_class(storage.type) != PickleClass::kStorage) {
    refuse(format("\"%s\" is no class of storages", storage.type.c_str()));
  }
  storage.dtype = storage_dtype(storage.type);
  charge(sizeof(storage) + document_.text(id[2]).size());
  storage.key = document_.text(id[2]);
  storage.elements = static_cast<uint64_t>(document_.integer(id[4]));
  push(add(PickleKind::kStorage, static_cast<uint32_t>(document_.storages_.size())));
  document_.storages_.push_back(std::move(storage));
}

// (storage, offset, shape, stride, ...)
PickleRef PickleReader::rebuild_tensor(PickleRef arguments) {
  const std::vector<PickleRef>& list = tuple(arguments, 4, "a tensor");
  if (!document_.is(list[0], PickleKind::kStorage) ||
      !document_.is(list[1], PickleKind::kInteger) || document_.integer(list[1]) < 0) {
    refuse("expected a tensor's storage and its offset in it");
  }
  TorchTensor tensor;
  tensor.storage = document_.nodes_[list[0]].index;
  tensor.offset = static_cast<uint64_t>(document_.integer(list[1]));
  charge(sizeof(tensor) + 2 * sizeof(int64_t) * tuple(list[2], 0, "a tensor's shape").size());
  tensor.shape = sizes(list[2], "a tensor's shape");
  tensor.stride = sizes(list[3], "a tensor's strides");
  if (tensor.shape.size() != tensor.stride.size()) refuse("a tensor's shape and strides differ");
  // The last element it can reach must lie in its storage.
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  uint64_t end = tensor.offset;
  uint64_t count = 1;
  bool fits = true;
  for (size_t i = 0; i < tensor.shape.size() && !empty; ++i) {
    uint64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(count, static_cast<uint64_t>(tensor.shape[i]), &count) &&
           !__builtin_mul_overflow(static_cast<uint64_t>(tensor.shape[i] - 1),
                                   static_cast<uint64_t>(tensor.stride[i]), &reach) &&
           !__builtin_add_overflow(end, reach, &end);
  }
  const TorchStorage& storage = document_.storages_[tensor.storage];
  if (!fits || end > storage.elements || (!empty && end == storage.elements)) {
    refuse(format("a tensor lies outside its storage \"%s\" of %llu elements", storage.key.c_str(),
                  static_cast<unsigned long long>(storage.elements)));
  }
  const PickleRef node = add(PickleKind::kTensor, static_cast<uint32_t>(document_.tensors_.size()));
  document_.tensors_.push_back(std::move(tensor));
  return node;
}

PickleRef PickleReader::call(PickleRef callee, PickleRef arguments) {
  const std::string name = class_name(callee);
  switch (pickle_class(name)) {
    case PickleClass::kOrderedDict: {
      const PickleRef dict = add_sequence(PickleKind::kDict, {});
      if (tuple(arguments, 0, "an OrderedDict").empty()) return dict;
      const std::vector<PickleRef> pairs =
          sequence(document_.items(arguments)[0], PickleKind::kList, "a list of pairs");
      charge(pairs.size() * 3 * sizeof(PickleRef));
      for (const PickleRef pair : pairs) {
        const bool is_pair =
            (document_.is(pair, PickleKind::kTuple) || document_.is(pair, PickleKind::kList)) &&
            document_.items(pair).size() == 2;
        if (!is_pair) refuse("expected pairs in an OrderedDict");
        set_items(dict, document_.items(pair));
      }
      return dict;
    }
    case PickleClass::kSet: {
      const std::vector<PickleRef>& list = tuple(arguments, 1, "a set");
      charge(sequence(list[0], PickleKind::kList, "a list for a set").size() * sizeof(PickleRef));
      return add_sequence(PickleKind::kSet,
                          sequence(list[0], PickleKind::kList, "a list for a set"));
    }
    case PickleClass::kSize:
      sizes(tuple(arguments, 1, "a torch.Size")[0], "a torch.Size");
      return document_.items(arguments)[0];
    case PickleClass::kRebuildTensor:
      return rebuild_tensor(arguments);
    case PickleClass::kRebuildParameter: {
      const PickleRef tensor = tuple(arguments, 1, "a Parameter")[0];
      if (!document_.is(tensor, PickleKind::kTensor)) refuse("expected a Parameter's tensor");
      return tensor;
    }
    case PickleClass::kRebuildFromType: { // (function, type, arguments, attributes)
      const std::vector<PickleRef>& list = tuple(arguments, 3, "a tensor with attributes");
      const PickleClass function = pickle_class(class_name(list[0]));
      const bool makes_tensor =
          function == PickleClass::kRebuildTensor || function == PickleClass::kRebuildParameter;
      if (!makes_tensor || pickle_class(class_name(list[1])) != PickleClass::kTensorType) {
        refuse_class(class_name(list[makes_tensor ? 1 : 0]));
      }
      return call(list[0], list[2]);
    }
    case PickleClass::kDevice: {
      const PickleRef text = tuple(arguments, 1, "a torch.device")[0];
      if (!document_.is(text, PickleKind::kText)) refuse("expected a torch.device's name");
      return text;
    }
    case PickleClass::kIntegerEnum: {
      const PickleRef value = tuple(arguments, 1, name.c_str())[0];
      if (!document_.is(value, PickleKind::kInteger)) refuse("expected an enum's number");
      return value;
    }
    case PickleClass::kEncode: { // (text, "latin1"): each character is a byte
      const std::vector<PickleRef>& list = tuple(arguments, 2, "bytes");
      if (!document_.is(list[0], PickleKind::kText) || !document_.is(list[1], PickleKind::kText) ||
          document_.text(list[1]) != "latin1") {
        refuse("expected a text and \"latin1\"");
      }
      const std::string& text = document_.text(list[0]);
      charge(text.size());
      std::string bytes;
      for (size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c < 0x80) {
          bytes += text[i];
        } else if ((c == 0xc2 || c == 0xc3) && i + 1 < text.size()) {
          bytes += static_cast<char>((c & 3) << 6 | (static_cast<unsigned char>(text[++i]) & 63));
        } else {
          refuse("a text for bytes has a character above 255");
        }
      }
      return add_text(bytes, PickleKind::kBytes);
    }
    default:
      refuse_class(name);
  }
}

// NEWOBJ: an object of a known class, without attributes yet.
void PickleReader::make_object() {
  tuple(pop(), 0, "a new object");
  const PickleRef callee = pop();
  const std::string name = class_name(callee);
  if (pickle_class(name) == PickleClass::kOrderedDict) {
    push(add_sequence(PickleKind::kDict, {}));
    return;
  }
  if (pickle_class(name) != PickleClass::kObject) refuse_class(name);
  push(add(PickleKind::kObject, static_cast<uint32_t>(document_.objects_.size())));
  document_.objects_.push_back({document_.nodes_[callee].index, kNoPickle});
}

// Attributes of a dict (state_dict()._metadata) say nothing that is needed here.
void PickleReader::build() {
  const PickleRef state = pop();
  const PickleRef object = top();
  if (document_.is(object, PickleKind::kDict)) return;
  if (!document_.is(object, PickleKind::kObject) || !document_.is(state, PickleKind::kDict)) {
    refuse("expected an object and a dict of its attributes");
  }
  document_.objects_[document_.nodes_[object].index].attributes = state;
}

} // namespace zero::checkpoint

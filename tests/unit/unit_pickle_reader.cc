// Pickles and zip archives that nobody vouches for: nothing is executed, everything is bounded, and
// what is refused is named.
// SPDX-License-Identifier: BSD-3-Clause
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"
#include "checkpoint/pickle_reader.h"
#include "checkpoint/zip_reader.h"

extern "C" {
#include <cmocka.h>
}
#undef fail // cmocka's macro would hide zero::fail

using namespace zero::checkpoint;

namespace {

std::string little(uint64_t value, size_t width) {
  std::string bytes;
  for (size_t i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string text(const std::string& value) {
  return "X" + little(value.size(), 4) + value;
}

const std::string kStart = std::string("\x80\x02", 2);

PickleDocument read(const std::string& body) {
  return read_pickle(kStart + body + ".", "test.pt");
}

// The sentence of the error, or "".
std::string refusal(const std::string& bytes, zero_status status) {
  try {
    read_pickle(bytes, "test.pt");
  } catch (const zero::Error& error) {
    if (error.status() != status) print_error("%s\n", error.what());
    assert_int_equal(error.status(), status);
    return error.message();
  }
  return "";
}

void expect_refused(const std::string& body, zero_status status, const char* words) {
  const std::string sentence = refusal(kStart + body + ".", status);
  if (sentence.find(words) == std::string::npos) print_error("\"%s\"\n", sentence.c_str());
  assert_true(sentence.find(words) != std::string::npos);
  assert_true(sentence.find("test.pt") != std::string::npos);
}

void plain_data_comes_out_as_it_went_in(void**) {
  // {"a": [1, -2, 300, None, True, 2**40, 0.5, b"\xff"], "t": (), "s": (1, 2)}
  const std::string number = std::string("G\x3f\xe0\0\0\0\0\0\0", 9);
  const PickleDocument d =
      read("}(" + text("a") + "](K\1J" + little(static_cast<uint32_t>(-2), 4) + "M" +
           little(300, 2) + "N\x88\x8a\6" + little(uint64_t{1} << 40, 6) + number + "C\1\xff" +
           "e" + text("t") + ")" + text("s") + "K\1K\2\x86u");
  const PickleRef list = d.find(d.root, "a");
  assert_true(d.is(list, PickleKind::kList));
  const std::vector<PickleRef>& items = d.items(list);
  assert_int_equal(items.size(), 8);
  assert_int_equal(d.integer(items[0]), 1);
  assert_int_equal(d.integer(items[1]), -2);
  assert_int_equal(d.integer(items[2]), 300);
  assert_true(d.is(items[3], PickleKind::kNone));
  assert_true(d.is(items[4], PickleKind::kBool) && d.integer(items[4]) == 1);
  assert_true(d.integer(items[5]) == int64_t{1} << 40);
  assert_true(d.number(items[6]) == 0.5);
  assert_true(d.is(items[7], PickleKind::kBytes) && d.text(items[7]) == "\xff");
  assert_int_equal(d.items(d.find(d.root, "t")).size(), 0);
  assert_int_equal(d.integer(d.items(d.find(d.root, "s"))[1]), 2);
  assert_int_equal(d.find(d.root, "none"), kNoPickle);
}

void integers_beyond_64_bits_are_kept_or_refused(void**) {
  const PickleDocument d = read(std::string("\x8a\x09") + little(UINT64_MAX, 8) + '\0');
  assert_true(d.is(d.root, PickleKind::kBigInteger));
  assert_string_equal(d.text(d.root).c_str(), "18446744073709551615");
  const PickleDocument least = read(std::string("\x8a\x08") + little(uint64_t{1} << 63, 8));
  assert_true(d.is(d.root, PickleKind::kBigInteger) && least.integer(least.root) == INT64_MIN);
  expect_refused(std::string("\x8a\x0a") + std::string(9, '\0') + "\1", ZERO_ERR_FILE_FORMAT,
                 "more than 64 bits");
}

void bytes_of_protocol_2_come_back_as_bytes(void**) {
  const PickleDocument d =
      read("c_codecs\nencode\n" + text("a\xc3\xbf\xc2\x80") + text("latin1") + "\x86R");
  assert_true(d.is(d.root, PickleKind::kBytes));
  assert_string_equal(d.text(d.root).c_str(), "a\xff\x80");
}

void a_class_that_is_not_known_is_named_and_nothing_is_called(void**) {
  expect_refused("cos\nsystem\n" + text("touch /tmp/owned") + "\x85R", ZERO_ERR_UNSUPPORTED,
                 "\"os.system\"");
  expect_refused("cposix\nsystem\n" + text("true") + "\x85R", ZERO_ERR_UNSUPPORTED,
                 "\"posix.system\"");
  expect_refused("cbuiltins\neval\n" + text("1") + "\x85R", ZERO_ERR_UNSUPPORTED,
                 "\"builtins.eval\"");
  // The same from the stack, in a nested call, and as a new object.
  expect_refused(text("subprocess") + text("Popen") + "\x93", ZERO_ERR_UNSUPPORTED,
                 "\"subprocess.Popen\"");
  expect_refused("ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nctorch\nTensor\n)}tR",
                 ZERO_ERR_UNSUPPORTED, "\"os.system\"");
  expect_refused("cargparse\nNamespace\n)\x81", ZERO_ERR_UNSUPPORTED, "\"argparse.Namespace\"");
  // A name that is known may still not be used as what it is not.
  expect_refused("ctorch\nfloat16\n)R", ZERO_ERR_UNSUPPORTED, "\"torch.float16\"");
  expect_refused(
      "ctorch._tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\nctorch\nTensor\n)}tR",
      ZERO_ERR_UNSUPPORTED, "\"collections.OrderedDict\"");
  // Old ways to make objects.
  expect_refused("(ios\nsystem\n", ZERO_ERR_UNSUPPORTED, "opcode 0x69");
  expect_refused("(cos\n", ZERO_ERR_FILE_FORMAT, "middle of a name");
  expect_refused("\x82\1", ZERO_ERR_UNSUPPORTED, "opcode 0x82");
}

void every_cut_of_a_pickle_is_an_error(void**) {
  const std::string whole = kStart + std::string("}q\0(", 4) + text("a") + "q\1](K\1K\2e" +
                            text("d") + "ccollections\nOrderedDict\n)RX" + little(1, 4) + "kK\3u.";
  assert_string_equal(refusal(whole, ZERO_OK).c_str(), "");
  for (size_t size = 0; size < whole.size(); ++size) {
    assert_true(refusal(whole.substr(0, size), ZERO_ERR_FILE_FORMAT) != "");
  }
}

void deep_nesting_costs_no_stack(void**) {
  const size_t depth = 2000000;
  const PickleDocument d = read(std::string(depth, ']') + std::string(depth - 1, 'a'));
  PickleRef at = d.root;
  size_t levels = 1;
  while (!d.items(at).empty()) {
    at = d.items(at)[0];
    ++levels;
  }
  assert_int_equal(levels, depth);
}

void lists_of_the_same_lists_take_no_more_than_their_pickle(void**) {
  // 60 lists, each ten times the one before: 10^60 values for whoever would copy them.
  std::string body = "]q";
  body += '\0';
  for (int level = 1; level < 60; ++level) {
    body += "](";
    for (int i = 0; i < 10; ++i) body += std::string("h") + static_cast<char>(level - 1);
    body += std::string("eq") + static_cast<char>(level);
  }
  // The stack holds all of them; a tuple takes them.
  const PickleDocument d = read("(" + body + "t");
  assert_int_equal(d.items(d.root).size(), 60);
  assert_int_equal(d.items(d.items(d.root)[59]).size(), 10);
  // A list inside itself is data like any other.
  const PickleDocument self = read(std::string("]q\0h\0a", 6));
  assert_int_equal(self.items(self.root)[0], self.root);
}

void few_bytes_cannot_ask_for_many(void**) {
  // 1 MiB of text, turned into bytes again and again.
  std::string body = text(std::string(1 << 20, 'a')) + std::string("q\0", 2) + text("latin1") +
                     "q\1c_codecs\nencode\nq\2";
  for (int i = 0; i < 1000; ++i) body += std::string("h\2h\0h\1\x86R", 8) + "0";
  expect_refused(body, ZERO_ERR_FILE_FORMAT, "copies more than");
  // A memo far away; values without end.
  expect_refused(std::string("Nr") + little(0x7fffffff, 4), ZERO_ERR_FILE_FORMAT,
                 "memo 2147483647");
  expect_refused(std::string((size_t{1} << 23) + 1, 'N'), ZERO_ERR_FILE_FORMAT,
                 "holds more than 8388608 values");
  expect_refused(std::string("X") + little(0xffffffff, 4), ZERO_ERR_FILE_FORMAT,
                 "middle of a value");
  expect_refused("\x8d" + little(UINT64_MAX, 8), ZERO_ERR_FILE_FORMAT, "middle of a value");
  expect_refused("\x8b" + little(0x80000000, 4), ZERO_ERR_FILE_FORMAT, "middle of a value");
}

void a_broken_stack_is_an_error(void**) {
  expect_refused("a", ZERO_ERR_FILE_FORMAT, "empty stack");
  expect_refused("(e", ZERO_ERR_FILE_FORMAT, "empty stack");
  expect_refused("N(", ZERO_ERR_FILE_FORMAT, "more than one value");
  expect_refused("NN", ZERO_ERR_FILE_FORMAT, "more than one value");
  expect_refused("t", ZERO_ERR_FILE_FORMAT, "mark is missing");
  expect_refused("}(K\1u", ZERO_ERR_FILE_FORMAT, "without a value");
  expect_refused("NNa", ZERO_ERR_FILE_FORMAT, "expected a list");
  expect_refused("NNNs", ZERO_ERR_FILE_FORMAT, "expected a dict");
  expect_refused("h\5", ZERO_ERR_FILE_FORMAT, "memo 5 was never put");
  expect_refused("N}b", ZERO_ERR_FILE_FORMAT, "expected an object");
}

std::string tensor(uint64_t elements, uint64_t offset, const std::string& shape,
                   const std::string& stride) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" +
         text("0") + text("cpu") + "J" + little(elements, 4) + "tQJ" + little(offset, 4) + shape +
         stride + "\x89)tR";
}

void a_tensor_lies_inside_its_storage(void**) {
  const PickleDocument d = read(tensor(6, 0, "K\2K\3\x86", "K\3K\1\x86"));
  assert_true(d.is(d.root, PickleKind::kTensor));
  assert_int_equal(d.tensor(d.root).elements(), 6);
  assert_true(d.tensor(d.root).is_contiguous());
  assert_int_equal(d.storage(d.tensor(d.root)).dtype, ZERO_DTYPE_FP32);
  const PickleDocument turned = read(tensor(6, 0, "K\2K\3\x86", "K\1K\2\x86"));
  assert_false(turned.tensor(turned.root).is_contiguous());
  const PickleDocument empty = read(tensor(0, 0, std::string("K\0K\3\x86", 5), "K\3K\1\x86"));
  assert_int_equal(empty.tensor(empty.root).elements(), 0);
  expect_refused(tensor(5, 0, "K\2K\3\x86", "K\3K\1\x86"), ZERO_ERR_FILE_FORMAT,
                 "outside its storage \"0\" of 5 elements");
  expect_refused(tensor(6, 1, "K\2K\3\x86", "K\3K\1\x86"), ZERO_ERR_FILE_FORMAT, "outside");
  const std::string huge = "\x8a\x08" + little(uint64_t{1} << 62, 8);
  expect_refused(tensor(6, 0, huge + huge + "\x86", "K\1K\1\x86"), ZERO_ERR_FILE_FORMAT, "outside");
  expect_refused(tensor(6, 0, "K\2\x85", "K\3K\1\x86"), ZERO_ERR_FILE_FORMAT, "differ");
}

// ---- zip

std::string local_header(const std::string& name, const std::string& data) {
  return "PK\3\4" + little(0, 2) + little(0, 2) + little(0, 2) + little(0, 4) +
         little(crc32(0, data.data(), data.size()), 4) + little(data.size(), 4) +
         little(data.size(), 4) + little(name.size(), 2) + little(0, 2) + name;
}

std::string central_header(const std::string& name, const std::string& data, uint64_t offset,
                           uint64_t method) {
  return "PK\1\2" + little(0, 4) + little(0, 2) + little(method, 2) + little(0, 4) +
         little(crc32(0, data.data(), data.size()), 4) + little(data.size(), 4) +
         little(data.size(), 4) + little(name.size(), 2) + little(0, 2) + little(0, 2) +
         little(0, 8) + little(offset, 4) + name;
}

std::string archive(const std::string& data, uint64_t method = 0) {
  const std::string local = local_header("a", data) + data;
  const std::string central = central_header("a", data, 0, method);
  return local + central + "PK\5\6" + little(0, 4) + little(1, 2) + little(1, 2) +
         little(central.size(), 4) + little(local.size(), 4) + little(0, 2);
}

std::string read_zip(const std::string& bytes) {
  const ZipReader zip(std::make_unique<MemorySource>(bytes, "test.pt"));
  const ZipEntry* entry = zip.find("a");
  return entry == nullptr ? "" : zip.read_all(*entry, 1 << 20);
}

void a_stored_entry_is_read_and_its_crc_compared(void**) {
  assert_true(crc32(0, "123456789", 9) == 0xcbf43926u); // the check value of the CRC's definition
  const std::string data = "what is stored, longer than eight bytes";
  const std::string bytes = archive(data);
  assert_string_equal(read_zip(bytes).c_str(), data.c_str());
  for (size_t i = 0; i < data.size(); ++i) {
    std::string damaged = bytes;
    damaged[31 + i] = static_cast<char>(damaged[31 + i] ^ 1);
    try {
      read_zip(damaged);
      assert_true(false);
    } catch (const zero::Error& error) {
      assert_int_equal(error.status(), ZERO_ERR_FILE_CORRUPT);
    }
  }
}

void every_cut_and_every_flip_of_an_archive_is_an_error_or_harmless(void**) {
  const std::string data = "0123456789";
  const std::string bytes = archive(data);
  int refused = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    try {
      read_zip(bytes.substr(0, size));
    } catch (const zero::Error&) {
      ++refused;
    }
  }
  assert_int_equal(refused, bytes.size());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      try {
        const std::string got = read_zip(damaged);
        assert_true(got.empty() || got == data); // another name, or a field without meaning here
      } catch (const zero::Error&) {
      }
    }
  }
}

void what_is_compressed_is_refused(void**) {
  try {
    read_zip(archive("data", 8));
    assert_true(false);
  } catch (const zero::Error& error) {
    assert_int_equal(error.status(), ZERO_ERR_UNSUPPORTED);
    assert_true(error.message().find("\"a\" is compressed") != std::string::npos);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(plain_data_comes_out_as_it_went_in),
      cmocka_unit_test(integers_beyond_64_bits_are_kept_or_refused),
      cmocka_unit_test(bytes_of_protocol_2_come_back_as_bytes),
      cmocka_unit_test(a_class_that_is_not_known_is_named_and_nothing_is_called),
      cmocka_unit_test(every_cut_of_a_pickle_is_an_error),
      cmocka_unit_test(deep_nesting_costs_no_stack),
      cmocka_unit_test(lists_of_the_same_lists_take_no_more_than_their_pickle),
      cmocka_unit_test(few_bytes_cannot_ask_for_many),
      cmocka_unit_test(a_broken_stack_is_an_error),
      cmocka_unit_test(a_tensor_lies_inside_its_storage),
      cmocka_unit_test(a_stored_entry_is_read_and_its_crc_compared),
      cmocka_unit_test(every_cut_and_every_flip_of_an_archive_is_an_error_or_harmless),
      cmocka_unit_test(what_is_compressed_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

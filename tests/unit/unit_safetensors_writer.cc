// Files of weights before a byte of them is written: names, limits, offsets; and whole or absent.
// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "checkpoint/element_cast.h"
#include "checkpoint/safetensors_writer.h"
#include "plan/safetensors_files.h"

extern "C" {
#include <cmocka.h>
}
#undef fail // cmocka's macro would hide zero::fail

using namespace zero::checkpoint;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "libzero-writer-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path(const std::string& name) const { return (fs::path(path_) / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(path_)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::string path_;
};

SafetensorsTensor tensor(const std::string& name, zero_dtype dtype, std::vector<int64_t> shape,
                         uint64_t bytes) {
  return {name, dtype, std::move(shape), bytes};
}

// R057
void offsets_beyond_32_bits_are_right(void**) {
  const SafetensorsLayout layout =
      lay_out_safetensors({tensor("a", ZERO_DTYPE_FP32, {3218569051}, 12874276204),
                           tensor("b", ZERO_DTYPE_FP32, {1}, 4)},
                          {}, 0);
  const std::string& header = layout.files[0].header;
  assert_true(header.find("\"shape\":[3218569051],\"data_offsets\":[0,12874276204]") !=
              std::string::npos);
  assert_true(header.find("\"data_offsets\":[12874276204,12874276208]") != std::string::npos);
  assert_true(header.find('-') == std::string::npos);
  assert_true(layout.files[0].data_bytes == 12874276208);
  // Our reader agrees, without such a file.
  const zero::plan::SafetensorsHeader read = zero::plan::parse_safetensors_header(
      std::string_view(header).substr(8), header.size() + 12874276208, "test");
  assert_true(read.tensors[0].end == 12874276204);
}

void every_tensor_starts_at_a_multiple_of_its_element(void**) {
  const SafetensorsLayout layout = lay_out_safetensors(
      {tensor("flags", ZERO_DTYPE_UINT8, {3}, 3), tensor("half", ZERO_DTYPE_BF16, {3}, 6),
       tensor("float", ZERO_DTYPE_FP32, {3}, 12), tensor("long", ZERO_DTYPE_INT64, {3}, 24)},
      {}, 0);
  const SafetensorsFile& file = layout.files[0];
  assert_int_equal(file.header.size() % 8, 0);
  const zero::plan::SafetensorsHeader read = zero::plan::parse_safetensors_header(
      std::string_view(file.header).substr(8), file.header.size() + 45, "test");
  const uint64_t sizes[] = {8, 4, 2, 1};
  for (size_t i = 0; i < 4; ++i) assert_int_equal(read.tensors[i].begin % sizes[i], 0);
}

void no_file_is_larger_than_the_limit_but_for_one_tensor(void**) {
  std::vector<SafetensorsTensor> tensors;
  for (int i = 0; i < 100000; ++i) {
    tensors.push_back(tensor("parameter." + std::to_string(i), ZERO_DTYPE_FP32, {i % 50},
                             static_cast<uint64_t>(i % 50) * 4));
  }
  tensors[500] = tensor("large", ZERO_DTYPE_FP32, {1000000}, 4000000);
  const SafetensorsLayout layout = lay_out_safetensors(tensors, {}, 1000000);
  assert_true(layout.files.size() > 10);
  size_t seen = 0;
  for (const SafetensorsFile& file : layout.files) {
    seen += file.tensors.size();
    const bool is_large = file.tensors.size() == 1 && file.tensors[0] == 500;
    assert_true(is_large || file.header.size() + file.data_bytes <= 1000000);
  }
  assert_int_equal(seen, tensors.size());
  const std::string last = safetensors_name(layout.files.size(), layout.files.size());
  assert_string_equal(layout.files.back().name.c_str(), last.c_str());
  assert_true(layout.index.find("\"parameter.99999\" : \"" + last + "\"") != std::string::npos);
}

void a_name_that_no_header_can_hold_is_refused(void**) {
  for (const char* name : {"__metadata__", "\xff", "a\xc3", "\xed\xa0\x80"}) {
    try {
      lay_out_safetensors({tensor(name, ZERO_DTYPE_FP32, {}, 4)}, {}, 0);
      assert_true(false);
    } catch (const zero::Error& error) {
      assert_int_equal(error.status(), ZERO_ERR_INVALID_ARGUMENT);
    }
  }
  const SafetensorsLayout layout = lay_out_safetensors(
      {tensor("quote\" back\\ line\n b\xc3\xbcro", ZERO_DTYPE_FP32, {}, 4)}, {}, 0);
  const std::string& header = layout.files[0].header;
  const zero::plan::SafetensorsHeader read = zero::plan::parse_safetensors_header(
      std::string_view(header).substr(8), header.size() + 4, "test");
  assert_string_equal(read.tensors[0].name.c_str(), "quote\" back\\ line\n b\xc3\xbcro");
}

void what_is_not_finished_leaves_the_old_file_and_nothing_else(void**) {
  const Folder folder;
  const std::string path = folder.path("w.safetensors");
  std::ofstream(path) << "old";
  const SafetensorsLayout layout =
      lay_out_safetensors({tensor("a", ZERO_DTYPE_FP32, {2}, 8)}, {}, 0);
  {
    SafetensorsWriter writer(path, layout, false);
    writer.append("0123", 4);
  }
  assert_true(folder.names() == std::vector<std::string>{"w.safetensors"});
  std::ifstream in(path);
  assert_true(std::string(std::istreambuf_iterator<char>(in), {}) == "old");
  SafetensorsWriter writer(path, layout, false);
  writer.append("0123", 4);
  writer.append("4567", 4);
  writer.finish();
  assert_true(folder.names() == std::vector<std::string>{"w.safetensors"});
  const zero::plan::SafetensorsFiles files = zero::plan::read_safetensors_files(path);
  assert_int_equal(files.files[0].tensors.size(), 1);
}

void aliases_are_read_back(void**) {
  const Folder folder;
  const std::string path = folder.path("w");
  const SafetensorsLayout layout = lay_out_safetensors({tensor("a", ZERO_DTYPE_FP32, {2}, 8)},
                                                       {{"b", "a"}, {"d", "nothing"}}, 0);
  SafetensorsWriter writer(path, layout, false);
  writer.append("01234567", 8);
  writer.finish();
  const auto aliases = zero::plan::read_safetensors_files(path).aliases;
  // An alias of no tensor of this file is not in its header.
  const std::vector<std::pair<std::string, std::string>> expected = {{"b", "a"}};
  assert_true(aliases == expected);
}

void casts_round_to_nearest_even(void**) {
  const struct {
    float from;
    uint16_t fp16, bf16;
  } cases[] = {
      {1.0f, 0x3c00, 0x3f80},       {-2.0f, 0xc000, 0xc000},
      {65504.0f, 0x7bff, 0x4780},   {65519.99f, 0x7bff, 0x4780},
      {65520.0f, 0x7c00, 0x4780},   {0x1p-24f, 0x0001, 0x3380},
      {0x1p-25f, 0x0000, 0x3300},   {0x1.8p-25f, 0x0001, 0x3340},
      {0x1.004p0f, 0x3c01, 0x3f80}, {0x1.002p0f, 0x3c00, 0x3f80},
      {0x1.006p0f, 0x3c02, 0x3f80}, {0x1.01p0f, 0x3c04, 0x3f80},
      {0x1.03p0f, 0x3c0c, 0x3f82},  {0x1.ffep-15f, 0x03ff + 1, 0x3880},
      {0.0f, 0x0000, 0x0000},       {-0.0f, 0x8000, 0x8000},
  };
  for (const auto& one : cases) {
    uint16_t got = 0;
    assert_true(cast_elements(&one.from, ZERO_DTYPE_FP32, &got, ZERO_DTYPE_FP16, 1));
    if (got != one.fp16) print_error("%a: %04x, expected %04x\n", one.from, got, one.fp16);
    assert_int_equal(got, one.fp16);
    assert_true(cast_elements(&one.from, ZERO_DTYPE_FP32, &got, ZERO_DTYPE_BF16, 1));
    if (got != one.bf16) print_error("%a: %04x, expected %04x\n", one.from, got, one.bf16);
    assert_int_equal(got, one.bf16);
  }
  // Every fp16 goes to fp32 and back as it was, NaNs but for their quiet bit.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    float wide = 0;
    uint16_t back = 0;
    cast_elements(&half, ZERO_DTYPE_FP16, &wide, ZERO_DTYPE_FP32, 1);
    cast_elements(&wide, ZERO_DTYPE_FP32, &back, ZERO_DTYPE_FP16, 1);
    const bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0;
    assert_int_equal(back, nan ? bits | 0x200 : bits);
  }
  int64_t integer = 1;
  assert_false(cast_elements(&integer, ZERO_DTYPE_INT64, &integer, ZERO_DTYPE_FP32, 1));
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(offsets_beyond_32_bits_are_right),
      cmocka_unit_test(every_tensor_starts_at_a_multiple_of_its_element),
      cmocka_unit_test(no_file_is_larger_than_the_limit_but_for_one_tensor),
      cmocka_unit_test(a_name_that_no_header_can_hold_is_refused),
      cmocka_unit_test(what_is_not_finished_leaves_the_old_file_and_nothing_else),
      cmocka_unit_test(aliases_are_read_back),
      cmocka_unit_test(casts_round_to_nearest_even),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

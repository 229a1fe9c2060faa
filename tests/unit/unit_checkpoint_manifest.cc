// The manifest as bytes and back, and what an unsound one is told.
// SPDX-License-Identifier: BSD-3-Clause
#include <zero.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "checkpoint/piece_layout.h"
#include "checkpoint/reshard.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}
#undef fail // a name that C++ headers use

using namespace zero::checkpoint;

namespace {

StoredParameter parameter_of(const char* name, std::vector<int64_t> shape, zero_dtype dtype,
                             int32_t states) {
  StoredParameter p;
  p.name = name;
  p.shape = std::move(shape);
  for (const int64_t size : p.shape) p.elements *= static_cast<uint64_t>(size);
  p.dtype = dtype;
  p.parts.push_back({ZERO_PART_MASTER, 0, ZERO_DTYPE_FP32, {}});
  for (int32_t i = 0; i < states; ++i) {
    p.parts.push_back({ZERO_PART_STATE, i, ZERO_DTYPE_FP32, {}});
  }
  return p;
}

Manifest small() {
  Manifest m;
  m.id = 7;
  m.run = 9;
  m.writer = "test";
  m.step = 5;
  m.skipped_total = 2;
  m.stage = 3;
  m.optimizer = "Adam";
  m.state_names = {"exp_avg", "exp_avg_sq"};
  m.has_loss_scale = true;
  m.loss_scale = {256, 2, 40, 3};
  m.config = "{}";
  m.groups.push_back({"default"});
  m.groups[0].lr = std::nan("");
  m.groups.push_back({"empty", false, 0.5, 2, 0.1, 0.9, 0.99, 1e-8, 0.25});
  m.parameters.push_back(parameter_of("a", {5, 7}, ZERO_DTYPE_BF16, 2));
  m.parameters.push_back(parameter_of("scalar", {}, ZERO_DTYPE_FP32, 2));
  m.parameters.push_back(parameter_of("none", {0, 8}, ZERO_DTYPE_FP32, 2));
  StoredParameter alias;
  alias.name = "alias";
  alias.shape = {5, 7};
  alias.elements = 35;
  alias.dtype = ZERO_DTYPE_BF16;
  alias.tied_to = 0;
  m.parameters.push_back(alias);
  StoredParameter buffer;
  buffer.name = "counter";
  buffer.dtype = ZERO_DTYPE_INT64;
  buffer.role = ZERO_PARAM_BUFFER;
  buffer.parts.push_back({ZERO_PART_VALUE, 0, ZERO_DTYPE_INT64, {}});
  m.parameters.push_back(buffer);
  m.parameters[0].steps = 6;
  m.parameters[1].steps = 5;
  m.blobs.push_back({"loader", 1, 0, 0, 100});
  m.blobs.push_back({"nothing", 0, 0, 0, 0});
  lay_out_for(&m, 3);
  return m;
}

zero_status status_of(const std::string& bytes) {
  try {
    decode_manifest(bytes, "m");
    return ZERO_OK;
  } catch (const zero::Error& error) {
    return error.status();
  }
}

// What an encoder that checks nothing made of a changed manifest.
template <typename Change>
void refused(Change change, const char* word) {
  Manifest m = small();
  change(m);
  try {
    decode_manifest(encode_manifest(m), "m");
  } catch (const zero::Error& error) {
    if (std::strstr(error.what(), word) == nullptr) print_error("%s\n", error.what());
    assert_non_null(std::strstr(error.what(), word));
    assert_non_null(std::strstr(error.what(), "\"m\""));
    return;
  }
  print_error("not refused: %s\n", word);
  assert_true(false);
}

} // namespace

static void a_manifest_comes_back_as_it_was(void**) {
  const Manifest m = small();
  const Manifest back = decode_manifest(encode_manifest(m), "m");
  assert_int_equal(back.id, 7);
  assert_int_equal(back.run, 9);
  assert_string_equal(back.writer.c_str(), "test");
  assert_int_equal(back.step, 5);
  assert_int_equal(back.skipped_total, 2);
  assert_int_equal(back.world_size, 3);
  assert_int_equal(back.stage, 3);
  assert_string_equal(back.optimizer.c_str(), "Adam");
  assert_int_equal(back.state_names.size(), 2);
  assert_true(back.has_loss_scale);
  assert_true(back.loss_scale.scale == 256 && back.loss_scale.credits == 2);
  assert_true(back.loss_scale.iteration == 40 && back.loss_scale.last_overflow == 3);
  assert_true(std::isnan(back.groups[0].lr));
  assert_true(back.groups[1].momentum == 0.25 && back.groups[1].lr_scale == 2);
  assert_int_equal(back.parameters.size(), 5);
  for (size_t p = 0; p < m.parameters.size(); ++p) {
    const StoredParameter& a = m.parameters[p];
    const StoredParameter& b = back.parameters[p];
    assert_string_equal(a.name.c_str(), b.name.c_str());
    assert_true(a.shape == b.shape && a.elements == b.elements && a.dtype == b.dtype);
    assert_true(a.role == b.role && a.tied_to == b.tied_to && a.steps == b.steps);
    assert_int_equal(a.parts.size(), b.parts.size());
    for (size_t i = 0; i < a.parts.size(); ++i) {
      assert_int_equal(a.parts[i].ranges.size(), b.parts[i].ranges.size());
      for (size_t r = 0; r < a.parts[i].ranges.size(); ++r) {
        assert_int_equal(a.parts[i].ranges[r].position, b.parts[i].ranges[r].position);
        assert_int_equal(a.parts[i].ranges[r].piece, b.parts[i].ranges[r].piece);
      }
    }
  }
  assert_int_equal(back.root_of(3), 0);
  assert_int_equal(back.find_part(3, ZERO_PART_STATE, 1), 2);
  assert_int_equal(back.find_part(0, ZERO_PART_VALUE, 0), -1);
  assert_int_equal(NameIndex(back).find("counter"), 4);
  assert_int_equal(NameIndex(back).find("count"), -1);
  assert_int_equal(back.blobs[0].bytes, 100);
}

static void every_flipped_bit_and_every_truncation_of_a_manifest_is_an_error(void**) {
  const std::string bytes = encode_manifest(small());
  assert_int_equal(status_of(bytes), ZERO_OK);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    assert_int_not_equal(status_of(damaged), ZERO_OK);
  }
  for (size_t length = 0; length < bytes.size(); ++length) {
    assert_int_not_equal(status_of(bytes.substr(0, length)), ZERO_OK);
  }
  assert_int_not_equal(status_of(bytes + '\0'), ZERO_OK);
}

static void a_newer_format_is_said_to_be_one(void**) {
  Manifest m = small();
  m.format_version = 2;
  assert_int_equal(status_of(encode_manifest(m)), ZERO_ERR_FILE_VERSION);
}

static void an_unsound_manifest_is_refused_with_what_is_wrong(void**) {
  refused([](Manifest& m) { m.pieces.pop_back(); }, "world_size");
  refused([](Manifest& m) { m.section_bytes = 100; }, "section_bytes");
  refused([](Manifest& m) { m.step = -1; }, "step");
  refused([](Manifest& m) { m.pieces[1].file = "../../etc/passwd"; }, "../../etc/passwd");
  refused([](Manifest& m) { std::swap(m.pieces[0].file, m.pieces[1].file); }, "piece 0");
  refused([](Manifest& m) { m.pieces[0].bytes += 4096; }, "piece 0");
  refused([](Manifest& m) { m.groups.clear(); }, "group");
  refused([](Manifest& m) { m.parameters[1].name = "a"; }, "\"a\" is there twice");
  refused([](Manifest& m) { m.parameters[1].name = ""; }, "no name");
  refused([](Manifest& m) { m.parameters[0].dtype = 99; }, "dtype");
  refused([](Manifest& m) { m.parameters[0].role = 3; }, "role");
  refused([](Manifest& m) { m.parameters[0].group = 2; }, "group");
  refused([](Manifest& m) { m.parameters[0].steps = -1; }, "steps");
  refused([](Manifest& m) { m.parameters[0].shape = {-5, 7}; }, "-5");
  refused([](Manifest& m) { m.parameters[0].shape = {INT64_MAX, INT64_MAX}; }, "dimension");
  refused([](Manifest& m) { m.parameters[3].tied_to = 4; }, "tied");
  refused([](Manifest& m) { m.parameters[3].tied_to = 1; }, "another shape");
  refused([](Manifest& m) { m.parameters[3].parts = m.parameters[0].parts; }, "alias");
  refused([](Manifest& m) { m.parameters[0].parts.pop_back(); }, "parts");
  refused([](Manifest& m) { std::swap(m.parameters[0].parts[0], m.parameters[0].parts[1]); },
          "part 0");
  refused([](Manifest& m) { m.parameters[0].parts[0].dtype = ZERO_DTYPE_INT64; }, "dtype");
  refused([](Manifest& m) { m.parameters[0].parts[0].ranges.pop_back(); }, "hold");
  refused([](Manifest& m) { m.parameters[0].parts[0].ranges[0].offset = 1; }, "go on at 0");
  refused([](Manifest& m) { m.parameters[0].parts[0].ranges[0].count = UINT64_MAX; }, "go on");
  refused([](Manifest& m) { m.parameters[0].parts[0].ranges[0].position += 4; }, "lies at byte");
  refused([](Manifest& m) { m.parameters[0].parts[0].ranges[0].position = 0; }, "lies at byte 0");
  refused([](Manifest& m) { m.parameters[0].parts[0].ranges[0].piece = 3; }, "piece 3");
  refused([](Manifest& m) { m.parameters[0].parts[0].ranges[0].piece = -1; }, "piece");
  refused(
      [](Manifest& m) {
        m.parameters[0].parts[1].ranges[0].position = m.parameters[0].parts[0].ranges[0].position;
      },
      "share byte");
  refused([](Manifest& m) { m.blobs[1] = m.blobs[0]; }, "twice");
  refused([](Manifest& m) { m.blobs[0].bytes = UINT64_MAX; }, "loader");
  refused([](Manifest& m) { m.blobs[0].rank = -1; }, "rank");
}

// Every element is in exactly one piece, whatever the number of ranks.
static void a_layout_covers_everything_once_for_any_number_of_ranks(void**) {
  for (int32_t ranks = 1; ranks <= 70; ++ranks) {
    Manifest m = small();
    m.parameters.push_back(parameter_of("big", {1000, 13}, ZERO_DTYPE_FP32, 2));
    lay_out_for(&m, ranks);
    decode_manifest(encode_manifest(m), "m"); // checks covering and overlaps
    uint64_t bytes = 0;
    for (int32_t piece = 0; piece < ranks; ++piece) {
      for (const PieceItem& item : piece_items(m, piece)) bytes += item.bytes;
    }
    assert_int_equal(bytes, (35 + 1 + 13000) * 4 * 3 + 8 + 100);
  }
}

// R057: one parameter of 3,218,569,051 elements at 7 ranks; nothing wraps.
static void a_parameter_beyond_two_to_the_31_elements_is_laid_out(void**) {
  Manifest m;
  m.groups.push_back({"default"});
  m.state_names = {};
  m.parameters.push_back(parameter_of("huge", {3218569051}, ZERO_DTYPE_FP32, 0));
  lay_out_for(&m, 7);
  const Manifest back = decode_manifest(encode_manifest(m), "m");
  uint64_t elements = 0, largest = 0;
  for (const Range& range : back.parameters[0].parts[0].ranges) {
    elements += range.count;
    largest = std::max(largest, range.count);
  }
  assert_int_equal(elements, UINT64_C(3218569051));
  assert_true(largest >= 459795579 && largest < 459795579 + 32);
  uint64_t bytes = 0;
  for (const StoredPiece& piece : back.pieces) bytes += piece.table_position - kPieceHeaderBytes;
  assert_true(bytes >= UINT64_C(12874276204) && bytes < UINT64_C(12874276204) + 7 * 4096);
}

static void ten_thousand_ranks_are_counted_by_number(void**) {
  Manifest m = small();
  lay_out_for(&m, 10001);
  const Manifest back = decode_manifest(encode_manifest(m), "m");
  assert_string_equal(back.pieces[2].file.c_str(), "piece-00002.zero");
  assert_string_equal(back.pieces[10000].file.c_str(), "piece-10000.zero");
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_manifest_comes_back_as_it_was),
      cmocka_unit_test(every_flipped_bit_and_every_truncation_of_a_manifest_is_an_error),
      cmocka_unit_test(a_newer_format_is_said_to_be_one),
      cmocka_unit_test(an_unsound_manifest_is_refused_with_what_is_wrong),
      cmocka_unit_test(a_layout_covers_everything_once_for_any_number_of_ranks),
      cmocka_unit_test(a_parameter_beyond_two_to_the_31_elements_is_laid_out),
      cmocka_unit_test(ten_thousand_ranks_are_counted_by_number),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

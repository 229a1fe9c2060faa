// Models from files: lists, safetensors, indexes, folders; and what is said about broken ones.
// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <fstream>

#include "plan/model_list.h"
#include "plan/safetensors_header.h"
#include "plan_cases.h"

using namespace plan_cases;

namespace {

namespace fs = std::filesystem;

// A folder of this test's own, gone at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "libzero-model-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path(const std::string& name = "") const { return (fs::path(path_) / name).string(); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

std::string header_length(uint64_t length) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

std::string safetensors(const std::string& json, uint64_t data_bytes) {
  return header_length(json.size()) + json + std::string(data_bytes, 'x');
}

// ---- lists
// ---------------------------------------------------------------------------------------

constexpr const char* kColumns = "name\tshape\tdtype\tnumel\ttrainable\ttied_to\tkind\n";

ParameterTable list(const std::string& rows) {
  return parse_model_list(kColumns + rows, "list");
}

void a_list_gives_names_shapes_roles_and_ties(void**) {
  const ParameterTable model = list(
      "conv\t64x3x7x7\tfp32\t9408\t1\t\tparam\n"
      "scale\tscalar\tbf16\t1\t0\t\tparam\r\n"
      "\n"
      "empty\t0x8\tfp16\t0\t1\t\tparam\n"
      "head\t64x3x7x7\tfp32\t9408\t1\tconv\tparam\n"
      "mask\t3\tbool\t3\t0\t\tbuffer");
  EXPECT_EQUAL(model.parameters().size(), 5u);
  EXPECT(model.parameters()[0].shape == (std::vector<int64_t>{64, 3, 7, 7}));
  EXPECT(model.parameters()[1].shape.empty());
  EXPECT_EQUAL(model.parameters()[1].role, ZERO_PARAM_FROZEN);
  EXPECT_EQUAL(model.parameters()[1].dtype, ZERO_DTYPE_BF16);
  EXPECT(model.parameters()[2].shape == (std::vector<int64_t>{0, 8}));
  EXPECT_EQUAL(model.parameters()[3].tied_to, 0);
  EXPECT_EQUAL(model.parameters()[4].role, ZERO_PARAM_BUFFER);
  EXPECT_EQUAL(model.parameters()[4].dtype, ZERO_DTYPE_UINT8);
}

void columns_may_be_few_and_in_any_order(void**) {
  const ParameterTable model =
      parse_model_list("unit\tdtype\tname\tshape\n2\tfp32\ta\t3\n\tfp32\tb\t4\n", "list");
  EXPECT(model.parameters()[0].unit == 2 && model.parameters()[1].unit == -1);
  EXPECT_EQUAL(model.parameters()[1].elements, 4u);
}

void a_broken_list_is_refused_with_file_and_line(void**) {
  const auto refuse = [](const std::string& text, const std::vector<std::string>& words) {
    std::vector<std::string> all = words;
    all.push_back("\"list\"");
    expect_error(ZERO_ERR_FILE_FORMAT, all, [&] { parse_model_list(text, "list"); });
  };
  const std::string c = kColumns;
  refuse("", {"empty"});
  refuse("\n\n", {"empty"});
  refuse("name\tshape\n", {"line 1", "\"dtype\" is missing"});
  refuse("name\tshape\tdtype\tsize\n", {"line 1", "\"size\" is unknown"});
  refuse("name\tshape\tdtype\tname\n", {"line 1", "twice"});
  refuse(c + "a\t3\tfp32\n", {"line 2", "3 fields, expected 7"});
  refuse(c + "\na\t3\tfloat\t3\t1\t\tparam\n", {"line 3", "dtype is \"float\""});
  refuse(c + "a\t3x\tfp32\t3\t1\t\tparam\n", {"line 2", "size in shape is \"\""});
  refuse(c + "a\t-3\tfp32\t3\t1\t\tparam\n", {"line 2", "\"-3\""});
  refuse(c + "a\t3.0\tfp32\t3\t1\t\tparam\n", {"line 2", "\"3.0\""});
  refuse(c + "a\t99999999999999999999\tfp32\t3\t1\t\tparam\n",
         {"line 2", "0 to 9223372036854775807"});
  refuse(c + "a\t3\tfp32\t4\t1\t\tparam\n", {"line 2", "numel is 4", "3 elements"});
  refuse(c + "a\t3\tfp32\t3\tyes\t\tparam\n", {"line 2", "trainable is \"yes\""});
  refuse(c + "a\t3\tfp32\t3\t1\t\tweight\n", {"line 2", "kind is \"weight\""});
  refuse(c + "a\t3\tfp32\t3\t1\tb\tparam\n", {"line 2", "tied_to is \"b\""});
  refuse(c + "a\t3\tfp64\t3\t1\t\tparam\n", {"line 2", "\"a\"", "fp64"});
  refuse(c + "\t3\tfp32\t3\t1\t\tparam\n", {"line 2", "name is empty"});
  refuse(c + "a\t3\tfp32\t3\t1\t\tparam\na\t3\tfp32\t3\t1\t\tparam\n", {"line 3", "taken"});
  refuse(c + "a\t4294967296x4294967296\tfp32\t\t1\t\tparam\n", {"line 2", "64 bits"});
}

// ---- safetensors
// -----------------------------------------------------------------------------------

SafetensorsHeader parse(const std::string& json, uint64_t data_bytes) {
  return parse_safetensors_header(json, 8 + json.size() + data_bytes, "file");
}

void a_safetensors_file_gives_a_model_in_the_order_of_its_data(void**) {
  const Folder folder;
  folder.write("m.safetensors",
               safetensors(R"({"__metadata__":{"format":"pt"},)"
                           R"("z":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
                           R"("none":{"dtype":"F16","shape":[0,4],"data_offsets":[26,26]},)"
                           R"("n":{"dtype":"I64","shape":[1],"data_offsets":[26,34]},)"
                           R"("m":{"dtype":"BOOL","shape":[3],"data_offsets":[34,37]},)"
                           R"("d":{"dtype":"F64","shape":[1],"data_offsets":[37,45]}}  )",
                           45));
  const ParameterTable model = load_parameter_table(folder.path("m.safetensors"));
  const std::vector<std::string> names = {"z", "a", "none", "n", "m", "d"};
  EXPECT_EQUAL(model.parameters().size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT(model.parameters()[i].name == names[i]);
    EXPECT_EQUAL(model.parameters()[i].role, i < 3 ? ZERO_PARAM_TRAINED : ZERO_PARAM_BUFFER);
  }
  EXPECT(model.parameters()[2].shape == (std::vector<int64_t>{0, 4}));
  EXPECT_EQUAL(model.parameters()[4].dtype, ZERO_DTYPE_UINT8);
}

void every_bound_of_a_header_is_checked(void**) {
  const auto refuse = [](const std::string& entry, uint64_t data, const std::string& word) {
    expect_error(ZERO_ERR_FILE_FORMAT, {"\"file\"", "\"w\"", word},
                 [&] { parse("{\"w\":" + entry + "}", data); });
  };
  refuse("[]", 0, "expected an object");
  refuse(R"({"shape":[1],"data_offsets":[0,4]})", 4, "expected a dtype");
  refuse(R"({"dtype":"F32","data_offsets":[0,4]})", 4, "expected a shape");
  refuse(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4, "shape[0]");
  refuse(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", 4, "shape[0]");
  refuse(R"({"dtype":"F32","shape":[1,99999999999999999999],"data_offsets":[0,4]})", 4, "shape[1]");
  refuse(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})", 4, "64 bits");
  refuse(R"({"dtype":"F32","shape":[1]})", 4, "data_offsets");
  refuse(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", 4, "two integers");
  refuse(R"({"dtype":"F32","shape":[1],"data_offsets":[0,-4]})", 4, "two integers");
  refuse(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4, "begin <= end <= 4");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 4, "begin <= end <= 4");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4, "need 8");
  refuse(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8, "hole");
  expect_error(ZERO_ERR_UNSUPPORTED, {"\"w\"", "\"F8_E4M3\"", "expected F32"},
               [] { parse(R"({"w":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1); });
}

void data_that_overlaps_or_belongs_to_nothing_is_refused(void**) {
  expect_error(ZERO_ERR_FILE_FORMAT, {"\"b\"", "overlaps", "begins at 4, expected 8"}, [] {
    parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
          R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          12);
  });
  expect_error(ZERO_ERR_FILE_FORMAT, {"2 bytes belong to no tensor"},
               [] { parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 10); });
}

void the_length_of_a_header_is_checked_against_the_file(void**) {
  expect_error(ZERO_ERR_FILE_FORMAT, {"\"f\"", "3 bytes"},
               [] { safetensors_header_bytes("abc", 3, "f"); });
  expect_error(ZERO_ERR_FILE_FORMAT, {"offset 0", "length is 93", "at most 92"},
               [] { safetensors_header_bytes(header_length(93), 100, "f"); });
  expect_error(ZERO_ERR_FILE_FORMAT, {"length is 18446744073709551615"},
               [] { safetensors_header_bytes(header_length(UINT64_MAX), UINT64_MAX, "f"); });
  EXPECT_EQUAL(safetensors_header_bytes(header_length(92), 100, "f"), 92u);
}

void what_is_no_json_is_refused_without_recursion(void**) {
  const auto refuse = [](const std::string& json, const std::string& word) {
    expect_error(ZERO_ERR_FILE_FORMAT, {"\"file\"", word}, [&] { parse(json, 0); });
  };
  refuse("", "not valid JSON");
  refuse("{", "not valid JSON");
  refuse("{\"a\":1,\"a\":2}", "Duplicate key");
  refuse("{} x", "not valid JSON");
  refuse("{'a':1}", "not valid JSON");
  refuse("// comment\n{}", "not valid JSON");
  refuse("[1]", "no JSON object");
  refuse(std::string(1000000, '['), "at offset 24 the JSON is nested deeper");
  refuse("{\"a\":\"" + std::string(100, '[') + "\"}", "expected an object"); // inside a text
}

// ---- indexes and folders
// ------------------------------------------------------------------------------

std::string one_tensor(const std::string& name) {
  return safetensors("{\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
}

void an_index_or_a_folder_joins_several_files(void**) {
  const Folder folder;
  folder.write("part-1.safetensors", one_tensor("x"));
  folder.write("part-2.safetensors", one_tensor("y"));
  folder.write("README.md", "not a model");
  ParameterTable model = load_parameter_table(folder.path());
  EXPECT(model.parameters().size() == 2 && model.parameters()[1].name == "y");
  folder.write("model.safetensors.index.json",
               R"({"metadata":{"total_size":8},"weight_map":{"y":"part-2.safetensors"}})");
  model = load_parameter_table(folder.path()); // the index decides
  EXPECT(model.parameters().size() == 1 && model.parameters()[0].name == "y");
  model = load_parameter_table(folder.path("model.safetensors.index.json"));
  EXPECT_EQUAL(model.parameters().size(), 1u);
}

void a_broken_index_is_refused(void**) {
  const Folder folder;
  folder.write("part.safetensors", one_tensor("x"));
  const auto refuse = [&](zero_status status, const std::string& json, const std::string& word) {
    folder.write("model.safetensors.index.json", json);
    expect_error(status, {word}, [&] { load_parameter_table(folder.path()); });
  };
  refuse(ZERO_ERR_FILE_FORMAT, "[]", "weight_map");
  refuse(ZERO_ERR_FILE_FORMAT, R"({"weight_map":{"x":3}})", "weight_map of \"x\"");
  refuse(ZERO_ERR_FILE_FORMAT, R"({"weight_map":{"x":"../part.safetensors"}})", "same folder");
  refuse(ZERO_ERR_FILE_FORMAT, R"({"weight_map":{"x":".."}})", "same folder");
  refuse(ZERO_ERR_FILE_FORMAT, R"({"weight_map":{"z":"part.safetensors"}})", "but it is not");
  refuse(ZERO_ERR_IO, R"({"weight_map":{"x":"other.safetensors"}})", "other.safetensors");
}

void a_name_in_two_files_is_refused(void**) {
  const Folder folder;
  folder.write("a.safetensors", one_tensor("x"));
  folder.write("b.safetensors", one_tensor("x"));
  expect_error(ZERO_ERR_FILE_FORMAT, {"b.safetensors", "\"x\"", "taken"},
               [&] { load_parameter_table(folder.path()); });
}

void what_is_not_there_is_named(void**) {
  const Folder folder;
  expect_error(ZERO_ERR_NOT_FOUND, {"nothing.tsv"},
               [&] { load_parameter_table(folder.path("nothing.tsv")); });
  expect_error(ZERO_ERR_NOT_FOUND, {folder.path(), ".safetensors"},
               [&] { load_parameter_table(folder.path()); });
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"/dev/null", "expected a file or a folder"},
               [] { load_parameter_table("/dev/null"); });
  folder.write("m.tsv", "name\tshape\n");
  expect_error(ZERO_ERR_FILE_FORMAT, {"m.tsv", "line 1"},
               [&] { load_parameter_table(folder.path("m.tsv")); });
}

// Bytes changed at random: a model or a refusal, never anything else.
void damaged_files_are_read_or_refused(void**) {
  const std::string json = R"({"z":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";
  const std::string rows = std::string(kColumns) + "a\t2x3\tfp32\t6\t1\t\tparam\n";
  Random random(7);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string header = json, text = rows;
    for (uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
      header[random.below(header.size())] = static_cast<char>(random.next());
      text[random.below(text.size())] = static_cast<char>(random.next());
    }
    try {
      parse(header, 26);
    } catch (const Error&) {
      ++refused;
    }
    try {
      parse_model_list(text, "list");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT(refused > 20000); // most changes are seen
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_list_gives_names_shapes_roles_and_ties),
      cmocka_unit_test(columns_may_be_few_and_in_any_order),
      cmocka_unit_test(a_broken_list_is_refused_with_file_and_line),
      cmocka_unit_test(a_safetensors_file_gives_a_model_in_the_order_of_its_data),
      cmocka_unit_test(every_bound_of_a_header_is_checked),
      cmocka_unit_test(data_that_overlaps_or_belongs_to_nothing_is_refused),
      cmocka_unit_test(the_length_of_a_header_is_checked_against_the_file),
      cmocka_unit_test(what_is_no_json_is_refused_without_recursion),
      cmocka_unit_test(an_index_or_a_folder_joins_several_files),
      cmocka_unit_test(a_broken_index_is_refused),
      cmocka_unit_test(a_name_in_two_files_is_refused),
      cmocka_unit_test(what_is_not_there_is_named),
      cmocka_unit_test(damaged_files_are_read_or_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

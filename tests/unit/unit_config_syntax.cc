// What the reader takes and what it refuses, each with line and column.
// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "config_help.h"

namespace {

using config_help::assert_has;
using config_help::caught;
using config_help::Caught;
using config_help::config_of;
using config_help::find;
using zero::config::Config;

Caught refused(const std::string& text) {
  return caught([&] { Config::load_text(text); });
}

void assert_refused_at(const std::string& text, int line, int column, const std::string& words) {
  const Caught error = refused(text);
  assert_int_equal(error.status, ZERO_ERR_CONFIG_SYNTAX);
  assert_has(error.message, words);
  assert_has(error.message, "line " + std::to_string(line) + ", column " + std::to_string(column));
}

std::string stage_of(const std::string& text) {
  return Config::load_text(text).value("zero_optimization.stage");
}

void comments_of_all_three_kinds_are_read(void**) {
  assert_string_equal(stage_of("# one\n{ // two\n \"zero_optimization\": /* three\n lines */ "
                               "{\"stage\": 2 # end\n}}")
                          .c_str(),
                      "2");
}
void comment_signs_in_strings_are_text(void**) {
  const Config config = config_of("\"libzero\": {\"group\": \"a#b//c/*d*/\"}");
  assert_string_equal(config.value("libzero.group").c_str(), "\"a#b//c/*d*/\"");
}
void a_comment_at_the_very_end_needs_no_newline(void**) {
  assert_string_equal(stage_of("{} # x").c_str(), "0");
  assert_string_equal(stage_of("{} //").c_str(), "0");
}
// R125: non-ASCII text in comments.
void r125_comments_hold_any_utf8(void**) {
  assert_string_equal(stage_of("{# \xe8\xaf\xb7 \"\n\"zero_optimization\":{\"stage\":1}}").c_str(),
                      "1");
}
void r125_trailing_commas_are_read_with_a_warning(void**) {
  Config config = Config::load_text("{\"zero_optimization\": {\"stage\": 1,},\n}");
  config.check();
  const auto* found = find(config, false, "trailing-comma");
  assert_non_null(found);
  assert_int_equal(found->line, 1);
  assert_int_equal(found->column, 34);
  assert_int_equal(config_help::count(config, false), 2);
  assert_string_equal(config.value("zero_optimization.stage").c_str(), "1");
}
void r125_pythons_words_are_read_with_a_warning(void**) {
  Config config = config_of(
      "\"fp16\": {\"enabled\": True, \"auto_cast\": False},\n"
      "\"steps_per_print\": None");
  config.check();
  assert_string_equal(config.value("fp16.enabled").c_str(), "true");
  assert_string_equal(config.value("steps_per_print").c_str(), "null");
  assert_non_null(find(config, false, "True"));
  assert_non_null(find(config, false, "False"));
  assert_int_equal(find(config, false, "None")->line, 2);
  assert_int_equal(config_help::count(config, true), 0);
}
void only_one_trailing_comma_is_allowed(void**) {
  assert_int_equal(refused("{\"a\": [1,,]}").status, ZERO_ERR_CONFIG_SYNTAX);
  assert_int_equal(refused("{,}").status, ZERO_ERR_CONFIG_SYNTAX);
}
void bare_words_are_refused_with_line_and_column(void**) {
  assert_refused_at("{\n  \"train_batch_size\": CONFIG_BATCH\n}", 2, 23, "CONFIG_BATCH");
  assert_refused_at("{stage: 1}", 1, 2, "stage");
  assert_refused_at("{\"a\": TRUE}", 1, 7, "TRUE");
  assert_refused_at("{'a': 1}", 1, 2, "double quotes");
}
void templates_are_refused_with_line_and_column(void**) {
  assert_refused_at("{\n\"train_batch_size\":\n   ${GBS}}", 3, 4, "${GBS}");
  assert_refused_at("{\"a\": <ZERO_STAGE>}", 1, 7, "template");
}
void a_duplicate_key_is_refused_with_line_and_column(void**) {
  assert_refused_at("{\n \"fp16\": {},\n \"fp16\": {}\n}", 3, 2, "Duplicate key");
  assert_refused_at("{\"zero_optimization\": {\"stage\": 1, \"stage\": 2}}", 1, 36, "stage");
}
void a_key_spelled_with_escapes_is_still_a_duplicate(void**) {
  assert_int_equal(refused("{\"fp16\": {}, \"fp\\u00316\": {}}").status, ZERO_ERR_CONFIG_SYNTAX);
}
void structure_is_checked(void**) {
  assert_refused_at("{\"a\": 1\n\"b\": 2}", 2, 1, "','");
  for (const char* text : {"{\"a\" 1}", "{\"a\":}", "{\"a\": 1", "{\"a\": [1, 2}", "{} {}", "{}]",
                           "]", "{\"a\": 1}}", "{\"a\"}", ":", "{\"a\": 1 2}"}) {
    assert_int_equal(refused(text).status, ZERO_ERR_CONFIG_SYNTAX);
  }
}
void malformed_numbers_are_refused_with_line_and_column(void**) {
  for (const char* number : {"01", "1.", ".5", "+1", "1e", "1e+", "--1", "0x10", "1_000", "-",
                             "1.e5", "5e8x", "1e400", "-1e999"}) {
    assert_refused_at("{\"gradient_clipping\":\n " + std::string(number) + "}", 2, 2, number);
  }
}
void well_formed_numbers_are_read(void**) {
  for (const char* number : {"0", "0.5", "1e0", "1E+2", "2.5e-3", "1e30"}) {
    const Config config = config_of("\"gradient_clipping\": " + std::string(number));
    assert_string_equal(config.value("gradient_clipping").c_str(), number);
  }
}
void unended_strings_and_comments_name_where_they_begin(void**) {
  assert_refused_at("{\n \"abc: 1}\n", 2, 2, "string");
  assert_refused_at("{} /* abc", 1, 4, "comment");
  assert_refused_at("{\"a\": \"b\\\"}", 1, 7, "string");
}
void control_characters_in_strings_are_refused(void**) {
  assert_refused_at("{\"a\": \"b\tc\"}", 1, 9, "0x09");
  assert_refused_at(std::string("{\"a\": \"b\0c\"}", 12), 1, 9, "0x00");
}
void invalid_utf8_is_refused_with_line_and_column(void**) {
  // A stray continuation, an overlong form, a surrogate, a cut sequence, beyond the last code
  // point.
  for (const char* bytes : {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82", "\xf5\x80\x80\x80"}) {
    assert_refused_at("{\n\"a\": \"" + std::string(bytes) + "\"}", 2, 7, "UTF-8");
  }
}
void escapes_may_not_spell_what_no_text_holds(void**) {
  for (const char* escape : {"\\u0000", "\\ud800", "\\udc00", "\\uZZZZ", "\\x"}) {
    assert_int_equal(refused("{\"a\": \"" + std::string(escape) + "\"}").status,
                     ZERO_ERR_CONFIG_SYNTAX);
  }
}
void a_byte_order_mark_is_skipped(void**) {
  assert_string_equal(stage_of("\xef\xbb\xbf{}").c_str(), "0");
}
void ten_megabytes_of_brackets_are_one_error(void**) {
  for (const char* open : {"[", "{\"a\":", "{\"a\":[", "[1,["}) {
    std::string text = "{\"x\": ";
    while (text.size() < 10u << 20) text += open;
    const Caught error = refused(text);
    assert_int_equal(error.status, ZERO_ERR_CONFIG_SYNTAX);
    assert_has(error.message, "nesting");
    assert_true(error.message.size() < 200);
  }
}
void ten_megabytes_of_closing_brackets_are_one_error(void**) {
  const Caught error = refused("{}" + std::string(10u << 20, ']'));
  assert_int_equal(error.status, ZERO_ERR_CONFIG_SYNTAX);
  assert_true(error.message.size() < 200);
}
void ten_megabytes_of_values_are_one_error(void**) {
  for (const char* value : {"1,", "\"a\": 1,"}) {
    std::string text = value[0] == '1' ? "{\"x\": [" : "{";
    while (text.size() < 10u << 20) text += value;
    const Caught error = refused(text);
    assert_int_equal(error.status, ZERO_ERR_CONFIG_SYNTAX);
    assert_has(error.message, "values");
    assert_true(error.message.size() < 200);
  }
}
void an_empty_text_says_so(void**) {
  for (const char* text : {"", " \n\t", "# nothing\n"}) {
    const Caught error = refused(text);
    assert_int_equal(error.status, ZERO_ERR_CONFIG_SYNTAX);
    assert_has(error.message, "empty");
  }
}
void a_text_that_is_no_object_says_so(void**) {
  for (const char* text : {"[]", "1", "\"a\"", "true", "null"}) {
    assert_refused_at(text, 1, 1, "object");
  }
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/zero_config_XXXXXX";
    assert_non_null(mkdtemp(name));
    path_ = name;
  }
  ~Folder() {
    for (const std::string& file : files_) ::unlink(file.c_str());
    ::rmdir(path_.c_str());
  }
  std::string file(const std::string& name, const std::string& text) {
    files_.push_back(path_ + "/" + name);
    std::ofstream(files_.back()) << text;
    return files_.back();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

void assert_file_refused(const std::string& path, zero_status status, const std::string& words) {
  const Caught error = caught([&] { Config::load_file(path); });
  assert_int_equal(error.status, status);
  assert_has(error.message, path);
  assert_has(error.message, words);
}

void a_file_that_cannot_be_read_is_one_clear_error(void**) {
  Folder folder;
  assert_file_refused(folder.path(), ZERO_ERR_IO, "directory");
  assert_file_refused(folder.path() + "/absent.json", ZERO_ERR_NOT_FOUND, "does not exist");
  assert_file_refused(folder.file("empty.json", ""), ZERO_ERR_CONFIG_SYNTAX, "empty");
  assert_file_refused(folder.file("bad.json", "{\n x}"), ZERO_ERR_CONFIG_SYNTAX, "line 2");
}

void a_file_without_rights_is_one_clear_error(void**) {
  if (::geteuid() == 0) {
    // Root reads everything: become somebody else for this one call.
    Folder folder;
    const std::string path = folder.file("closed.json", "{}");
    assert_int_equal(::chmod(path.c_str(), 0), 0);
    assert_int_equal(::chmod(folder.path().c_str(), 0755), 0);
    assert_int_equal(::seteuid(65534), 0);
    const Caught error = caught([&] { Config::load_file(path); });
    assert_int_equal(::seteuid(0), 0);
    assert_int_equal(error.status, ZERO_ERR_IO);
    assert_has(error.message, path);
    assert_has(error.message, "ermission");
    return;
  }
  Folder folder;
  const std::string path = folder.file("closed.json", "{}");
  assert_int_equal(::chmod(path.c_str(), 0), 0);
  assert_file_refused(path, ZERO_ERR_IO, "ermission");
}

void a_file_is_read(void**) {
  Folder folder;
  const std::string path = folder.file("good.json", "{\"zero_optimization\": {\"stage\": 3}}");
  assert_string_equal(Config::load_file(path).value("zero_optimization.stage").c_str(), "3");
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(comments_of_all_three_kinds_are_read),
      cmocka_unit_test(comment_signs_in_strings_are_text),
      cmocka_unit_test(a_comment_at_the_very_end_needs_no_newline),
      cmocka_unit_test(r125_comments_hold_any_utf8),
      cmocka_unit_test(r125_trailing_commas_are_read_with_a_warning),
      cmocka_unit_test(r125_pythons_words_are_read_with_a_warning),
      cmocka_unit_test(only_one_trailing_comma_is_allowed),
      cmocka_unit_test(bare_words_are_refused_with_line_and_column),
      cmocka_unit_test(templates_are_refused_with_line_and_column),
      cmocka_unit_test(a_duplicate_key_is_refused_with_line_and_column),
      cmocka_unit_test(a_key_spelled_with_escapes_is_still_a_duplicate),
      cmocka_unit_test(structure_is_checked),
      cmocka_unit_test(malformed_numbers_are_refused_with_line_and_column),
      cmocka_unit_test(well_formed_numbers_are_read),
      cmocka_unit_test(unended_strings_and_comments_name_where_they_begin),
      cmocka_unit_test(control_characters_in_strings_are_refused),
      cmocka_unit_test(invalid_utf8_is_refused_with_line_and_column),
      cmocka_unit_test(escapes_may_not_spell_what_no_text_holds),
      cmocka_unit_test(a_byte_order_mark_is_skipped),
      cmocka_unit_test(ten_megabytes_of_brackets_are_one_error),
      cmocka_unit_test(ten_megabytes_of_closing_brackets_are_one_error),
      cmocka_unit_test(ten_megabytes_of_values_are_one_error),
      cmocka_unit_test(an_empty_text_says_so),
      cmocka_unit_test(a_text_that_is_no_object_says_so),
      cmocka_unit_test(a_file_that_cannot_be_read_is_one_clear_error),
      cmocka_unit_test(a_file_without_rights_is_one_clear_error),
      cmocka_unit_test(a_file_is_read),
  };
  return cmocka_run_group_tests_name("config_syntax", tests, nullptr, nullptr);
}

// Rank and size from the environments of torchrun, Open MPI, PMI and SLURM.
// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "local_ranks.h"

using namespace local_ranks;
using Variables = std::vector<std::pair<const char*, const char*>>;

namespace {

// Every variable that is read.
constexpr const char* kKnown[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_NTASKS_PER_NODE",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "SLURM_TASKS_PER_NODE",
                                  "SLURM_NODEID",
                                  "LIBZERO_JOB",
                                  "TORCHELASTIC_RUN_ID",
                                  "MASTER_PORT",
                                  "OMPI_MCA_ess_base_jobid",
                                  "PMIX_NAMESPACE",
                                  "PMI_JOBID",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID"};

zero::comm::RankEnvironment read_with(const Variables& variables) {
  for (const char* const name : kKnown) unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  return zero::comm::read_rank_environment();
}

void check_ranks(const Variables& variables, int32_t rank, int32_t size, int32_t local_rank,
                 int32_t local_size, const char* source) {
  const auto environment = read_with(variables);
  assert_int_equal(environment.rank, rank);
  assert_int_equal(environment.size, size);
  assert_int_equal(environment.local_rank, local_rank);
  assert_int_equal(environment.local_size, local_size);
  assert_string_equal(environment.source.c_str(), source);
}

void an_empty_environment_is_one_rank(void**) {
  check_ranks({}, 0, 1, 0, 1, "");
  assert_string_equal(read_with({}).job.c_str(), "");
  check_ranks({{"RANK", ""}, {"WORLD_SIZE", ""}}, 0, 1, 0, 1, "");
}

void torchrun_is_understood(void**) {
  check_ranks({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}},
              5, 8, 1, 4, "RANK/WORLD_SIZE");
  check_ranks({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, 1, 2, 1, 2, "RANK/WORLD_SIZE");
}

void open_mpi_is_understood(void**) {
  check_ranks({{"OMPI_COMM_WORLD_RANK", "3"},
               {"OMPI_COMM_WORLD_SIZE", "6"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}},
              3, 6, 0, 3, "OMPI_COMM_WORLD_*");
}

void pmi_is_understood(void**) {
  check_ranks(
      {{"PMI_RANK", "7"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "3"}, {"MPI_LOCALNRANKS", "4"}}, 7,
      8, 3, 4, "PMI_*");
  check_ranks({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, 1, 2, 1, 2, "PMI_*");
}

void slurm_is_understood(void**) {
  check_ranks({{"SLURM_PROCID", "2"},
               {"SLURM_NTASKS", "4"},
               {"SLURM_LOCALID", "0"},
               {"SLURM_NTASKS_PER_NODE", "2"}},
              2, 4, 0, 2, "SLURM_*");
}

// SLURM says how many tasks each node has only in its own notation: "2(x3),1".
void slurms_tasks_of_each_node_are_understood(void**) {
  const Variables base = {{"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "7"}, {"SLURM_LOCALID", "0"}};
  Variables last = base, second = base, plain = base;
  last.insert(last.end(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}, {"SLURM_NODEID", "3"}});
  check_ranks(last, 6, 7, 0, 1, "SLURM_*");
  second.insert(second.end(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}, {"SLURM_NODEID", "1"}});
  check_ranks(second, 6, 7, 0, 2, "SLURM_*");
  plain.insert(plain.end(), {{"SLURM_TASKS_PER_NODE", "7"}, {"SLURM_NODEID", "0"}});
  check_ranks(plain, 6, 7, 0, 7, "SLURM_*");
  // What was asked of sbatch for each node is a most, not what there is.
  check_ranks({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_NTASKS_PER_NODE", "8"}}, 0, 2,
              0, 2, "SLURM_*");
}

void the_order_of_launchers_is_torchrun_open_mpi_pmi_slurm(void**) {
  Variables all = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "10"}};
  check_ranks(all, 0, 10, 0, 10, "SLURM_*");
  all.insert(all.end(), {{"PMI_RANK", "1"}, {"PMI_SIZE", "11"}});
  check_ranks(all, 1, 11, 1, 11, "PMI_*");
  all.insert(all.end(), {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "12"}});
  check_ranks(all, 2, 12, 2, 12, "OMPI_COMM_WORLD_*");
  all.insert(all.end(), {{"RANK", "3"}, {"WORLD_SIZE", "13"}});
  check_ranks(all, 3, 13, 3, 13, "RANK/WORLD_SIZE");
}

void bad_values_are_errors_that_name_variable_and_value(void**) {
  struct Case {
    Variables variables;
    const char* words;
  };
  const Case cases[] = {
      {{{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK is \"one\", expected an integer >= 0"},
      {{{"RANK", "1x"}, {"WORLD_SIZE", "2"}}, "RANK is \"1x\""},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is \"-1\""},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE is \"0\", expected an integer >= 1"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}, "WORLD_SIZE is \"99999999999\""},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}},
       "RANK is 2, expected less than WORLD_SIZE, which is 2"},
      {{{"RANK", "2"}}, "RANK is set but WORLD_SIZE is not"},
      {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set but RANK is not"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "2"}},
       "LOCAL_RANK is 3, expected less than 2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "4"}},
       "LOCAL_WORLD_SIZE is 4, expected at most WORLD_SIZE, which is 2"},
      {{{"OMPI_COMM_WORLD_RANK", "9"}, {"OMPI_COMM_WORLD_SIZE", "3"}}, "OMPI_COMM_WORLD_RANK is 9"},
      {{{"PMI_RANK", "?"}, {"PMI_SIZE", "3"}}, "PMI_RANK is \"?\""},
      {{{"SLURM_PROCID", "4"}, {"SLURM_NTASKS", "4"}}, "SLURM_PROCID is 4"},
      {{{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_NODEID", "0"},
        {"SLURM_STEP_TASKS_PER_NODE", "2(x"}},
       "SLURM_STEP_TASKS_PER_NODE is \"2(x\""},
  };
  for (const Case& one : cases) {
    const Outcome outcome = outcome_of([&] { read_with(one.variables); });
    if (outcome.status != ZERO_ERR_INVALID_ARGUMENT) print_error("%s\n", one.words);
    assert_int_equal(outcome.status, ZERO_ERR_INVALID_ARGUMENT);
    assert_contains(outcome.text.c_str(), one.words);
  }
}

void a_job_has_the_name_that_its_launcher_gave_it(void**) {
  const std::string torch = read_with({{"TORCHELASTIC_RUN_ID", "none"}, {"MASTER_PORT", "1"}}).job;
  const std::string other = read_with({{"TORCHELASTIC_RUN_ID", "none"}, {"MASTER_PORT", "2"}}).job;
  assert_true(torch != other && contains(torch, "none"));
  const std::string first = read_with({{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}}).job;
  const std::string second = read_with({{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "1"}}).job;
  assert_true(first != second && contains(first, "77"));
  assert_true(contains(read_with({{"OMPI_MCA_ess_base_jobid", "123"}}).job, "123"));
  assert_true(contains(read_with({{"PMI_JOBID", "kvs_9"}}).job, "kvs_9"));
  const std::string own = read_with({{"LIBZERO_JOB", "mine"}, {"SLURM_JOB_ID", "77"}}).job;
  assert_true(contains(own, "mine") && !contains(own, "77"));
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_environment_is_one_rank),
      cmocka_unit_test(torchrun_is_understood),
      cmocka_unit_test(open_mpi_is_understood),
      cmocka_unit_test(pmi_is_understood),
      cmocka_unit_test(slurm_is_understood),
      cmocka_unit_test(slurms_tasks_of_each_node_are_understood),
      cmocka_unit_test(the_order_of_launchers_is_torchrun_open_mpi_pmi_slurm),
      cmocka_unit_test(bad_values_are_errors_that_name_variable_and_value),
      cmocka_unit_test(a_job_has_the_name_that_its_launcher_gave_it),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

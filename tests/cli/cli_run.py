#!/usr/bin/env python3
"""`zero run` from outside: output, environment, exit codes, signals, and what is left behind."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import expect, run_tests  # noqa: E402

ZERO = os.environ["LIBZERO_PROGRAM"]
PATIENCE = 60  # seconds; only a hang reaches it


def zero_run(options, script, **more):
    """The finished run of a shell script as every rank."""
    return subprocess.run([ZERO, "run", *options, "--", "sh", "-c", script], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
                          **{"stdin": subprocess.DEVNULL, **more})


def start(options, script):
    return subprocess.Popen([ZERO, "run", *options, "--", "sh", "-c", script], text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def wait_for_files(folder, count):
    deadline = time.monotonic() + PATIENCE
    while len(os.listdir(folder)) < count:
        expect(time.monotonic() < deadline, "the ranks did not come up")
        time.sleep(0.01)


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def expect_gone(pids):
    deadline = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in pids):
        expect(time.monotonic() < deadline, "still running: %s" % [p for p in pids if alive(p)])
        time.sleep(0.01)


def test_each_line_begins_with_its_rank():
    run = zero_run(["-n", "3"], 'echo one; echo "two $RANK"; printf "no end"; echo bad >&2')
    expect(run.returncode == 0, run)
    expect(sorted(run.stdout.splitlines()) == sorted(
        "[%d] %s" % (rank, text) for rank in range(3) for text in ("one", "two %d" % rank, "no end")
    ), run.stdout)
    expect(sorted(run.stderr.splitlines()) == ["[0] bad", "[1] bad", "[2] bad"], run.stderr)


def test_lines_of_one_rank_keep_their_order_and_lines_of_two_do_not_mix():
    run = zero_run(["-n", "2"], "seq -f '%05g aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' 20000")
    lines = run.stdout.splitlines()
    expect(len(lines) == 40000, len(lines))
    for rank in ("[0] ", "[1] "):
        own = [line[4:] for line in lines if line.startswith(rank)]
        expect(own == ["%05d %s" % (i + 1, "a" * 39) for i in range(20000)], rank)


def test_a_rank_sees_its_rank_and_the_size_and_one_job_name():
    run = zero_run(["-n", "2"], "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $LIBZERO_JOB",
                   env={**os.environ, "RANK": "9", "LIBZERO_JOB": "outer"})
    rows = sorted(line.split() for line in run.stdout.splitlines())
    expect([row[:5] for row in rows] == [["[0]", "0", "2", "0", "2"], ["[1]", "1", "2", "1", "2"]],
           run.stdout)
    expect(rows[0][5] == rows[1][5] != "outer", run.stdout)


def test_two_runs_have_two_job_names():
    names = {zero_run(["-n", "1"], "echo $LIBZERO_JOB").stdout for _ in range(2)}
    expect(len(names) == 2, names)


def test_a_job_name_can_be_given():
    run = zero_run(["-n", "1", "--job", "mine"], "echo $LIBZERO_JOB")
    expect(run.stdout == "[0] mine\n", run.stdout)


def test_omp_threads_are_shared_out_unless_they_are_set():
    bare = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    cores = len(os.sched_getaffinity(0))
    run = zero_run(["-n", "2"], "echo $OMP_NUM_THREADS", env=bare)
    expect(run.stdout.split() == ["[0]", str(max(1, cores // 2)), "[1]", str(max(1, cores // 2))]
           or sorted(run.stdout.splitlines()) == ["[0] %d" % max(1, cores // 2),
                                                  "[1] %d" % max(1, cores // 2)], run.stdout)
    run = zero_run(["-n", "1"], "echo $OMP_NUM_THREADS", env={**bare, "OMP_NUM_THREADS": "7"})
    expect(run.stdout == "[0] 7\n", run.stdout)


def test_arguments_reach_the_command_as_they_are():
    run = subprocess.run([ZERO, "run", "-n", "1", "--", "printf", "%s|", "-n", "--", "a b", ""],
                         text=True, stdout=subprocess.PIPE, timeout=PATIENCE)
    expect(run.stdout == "[0] -n|--|a b||\n", run.stdout)


def waits_for(name, file):
    """A command that makes the file, waits for the signal and says so.  Not by a shell's trap: dash
    loses a signal that comes while it waits for vfork."""
    return ("%s -c 'import signal, sys; wanted = [signal.SIG%s]; "
            "signal.pthread_sigmask(signal.SIG_BLOCK, wanted); open(sys.argv[1], \"w\").close(); "
            "signal.sigwait(wanted); print(\"got %s\")' %s" % (sys.executable, name, name, file))


def test_the_first_failing_code_is_the_exit_code_and_its_last_lines_are_shown():
    run = zero_run(["-n", "3", "--tail", "2"],
                   'if [ $RANK = 1 ]; then echo one; echo two; echo three; exit 7; fi; '
                   'exec sleep 600')
    expect(run.returncode == 7, run)
    expect("rank 1 exited with code 7" in run.stderr, run.stderr)
    expect(run.stderr.splitlines()[-2:] == ["  two", "  three"], run.stderr)


def test_a_rank_ended_by_a_signal_gives_128_and_the_signal():
    run = zero_run(["-n", "2"], "[ $RANK = 0 ] && kill -9 $$; exec sleep 600")
    expect(run.returncode == 128 + 9, run)
    expect("rank 0 was ended by signal 9" in run.stderr, run.stderr)


def test_when_one_fails_the_others_get_sigterm_first():
    with tempfile.TemporaryDirectory() as folder:
        run = zero_run(["-n", "2"],
                       'if [ $RANK = 0 ]; then while [ ! -e %s/up ]; do sleep 0.01; done; exit 3; fi; '
                       "exec %s" % (folder, waits_for("TERM", folder + "/up")))
    expect(run.returncode == 3, run)
    expect("[1] got TERM\n" in run.stdout, run.stdout)


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace_time():
    with tempfile.TemporaryDirectory() as folder:
        run = zero_run(["-n", "2", "--grace", "0.2"],
                       'if [ $RANK = 0 ]; then while [ ! -e %s/up ]; do sleep 0.01; done; exit 3; fi; '
                       'trap "" TERM; touch %s/up; while :; do sleep 0.01; done' % (folder, folder))
    expect(run.returncode == 3, run)


def test_signals_go_on_to_every_rank():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        with tempfile.TemporaryDirectory() as folder:
            name = signal.Signals(number).name[3:]
            run = start(["-n", "2"], "exec " + waits_for(name, folder + "/$RANK"))
            wait_for_files(folder, 2)
            run.send_signal(number)
            output, errors = run.communicate(timeout=PATIENCE)
        expect(run.returncode == 0, run.returncode, output, errors)
        expect(sorted(output.splitlines()) == ["[0] got " + name, "[1] got " + name], output)


def test_nothing_is_left_running_after_a_failure():
    with tempfile.TemporaryDirectory() as folder:
        run = zero_run(["-n", "2"], "sleep 600 & echo $! > %s/$RANK.part; mv %s/$RANK.part %s/$RANK; "
                       "while [ ! -e %s/0 ] || [ ! -e %s/1 ]; do sleep 0.01; done; "
                       "[ $RANK = 1 ] && exit 5; wait" % ((folder,) * 5))
        pids = [int(pathlib.Path(folder, str(rank)).read_text()) for rank in range(2)]
    expect(run.returncode == 5, run)
    expect_gone(pids)


def test_ranks_do_not_outlive_a_killed_launcher():
    with tempfile.TemporaryDirectory() as folder:
        run = start(["-n", "2"], "echo $$ > %s/$RANK.part; mv %s/$RANK.part %s/up$RANK; "
                    "while :; do sleep 0.01; done" % ((folder,) * 3))
        deadline = time.monotonic() + PATIENCE
        while not all(os.path.exists("%s/up%d" % (folder, rank)) for rank in range(2)):
            expect(time.monotonic() < deadline, "the ranks did not come up")
            time.sleep(0.01)
        pids = [int(pathlib.Path(folder, "up%d" % rank).read_text()) for rank in range(2)]
        run.kill()
        run.communicate(timeout=PATIENCE)
    expect_gone(pids)


def test_the_time_limit_ends_the_run_with_124():
    run = zero_run(["-n", "2", "--timeout", "0.3"], "exec sleep 600")
    expect(run.returncode == 124, run)
    expect("0.3 s is up" in run.stderr, run.stderr)


def test_a_command_that_is_not_there_is_named():
    run = subprocess.run([ZERO, "run", "-n", "2", "--", "/no/such/trainer"], text=True,
                         stderr=subprocess.PIPE, timeout=PATIENCE)
    expect(run.returncode == 127 and "/no/such/trainer: No such file" in run.stderr, run)
    run = subprocess.run([ZERO, "run", "-n", "2", "--", "/etc/passwd"], text=True,
                         stderr=subprocess.PIPE, timeout=PATIENCE)
    expect(run.returncode == 126 and "Permission denied" in run.stderr, run)


def test_rank_0_reads_the_standard_input():
    run = subprocess.run([ZERO, "run", "-n", "2", "--", "cat"], text=True, input="words\n",
                         stdout=subprocess.PIPE, timeout=PATIENCE)
    expect(run.returncode == 0 and run.stdout == "[0] words\n", run)


def test_a_closed_output_ends_the_ranks():
    run = start(["-n", "2"], "while :; do echo line; done")
    run.stdout.readline()
    run.stdout.close()
    errors = run.stderr.read()
    expect(run.wait(timeout=PATIENCE) == 128 + signal.SIGPIPE, run.returncode, errors)


def test_a_wrong_command_line_is_refused_with_2():
    for line in (["run"], ["run", "-n", "2"], ["run", "-n", "0", "--", "true"], ["nosuch"], [],
                 ["run", "-n", "2", "--nosuch", "--", "true"], ["run", "-n", "2x", "--", "true"],
                 ["run", "--", "true"], ["run", "-n", "2", "--grace", "-1", "--", "true"],
                 ["run", "-n"]):
        run = subprocess.run([ZERO, *line], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=PATIENCE)
        expect(run.returncode == 2, line, run)
        expect(run.stderr, line)


def test_version_and_help_are_printed():
    run = subprocess.run([ZERO, "--version"], text=True, stdout=subprocess.PIPE, timeout=PATIENCE)
    expect(run.returncode == 0 and run.stdout.startswith("zero " + os.environ["LIBZERO_VERSION"]),
           run)
    for line in (["--help"], ["run", "--help"]):
        run = subprocess.run([ZERO, *line], text=True, stdout=subprocess.PIPE, timeout=PATIENCE)
        expect(run.returncode == 0 and "run" in run.stdout, run)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules["__main__"]))

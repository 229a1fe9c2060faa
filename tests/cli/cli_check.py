#!/usr/bin/env python3
"""`zero check` from outside: the corpus, the JSON object, exit codes, the pages, the picture."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness import Skip, expect, run_tests  # noqa: E402

PROGRAM = os.environ.get("LIBZERO_PROGRAM", "zero")
SHARED = pathlib.Path(os.environ.get("LIBZERO_SHARED", ROOT.parent / "shared"))
EXAMPLES = ROOT / "examples" / "configs"

GOOD = {"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
FACTS = {"world_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
         "gradient_clipping": 1.0, "bf16": True, "fp16": False, "learning_rate": 2e-5,
         "betas": [0.9, 0.999], "epsilon": 1e-8, "weight_decay": 0.01, "warmup_steps": 100,
         "total_steps": 1000, "hidden_size": 1024}


def zero_check(*words):
    return subprocess.run([PROGRAM, "check", *map(str, words)], text=True, capture_output=True,
                          timeout=30)


class Files:
    """A folder of files for one test."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *unused):
        self.folder.cleanup()

    def path(self, name):
        return pathlib.Path(self.folder.name, name)

    def write(self, content, name="config.json"):
        text = content if isinstance(content, str) else json.dumps(content)
        self.path(name).write_text(text)
        return self.path(name)


def checked(content, *words):
    """Exit code and JSON object for a config."""
    with Files() as files:
        done = zero_check(files.write(content), "--json", *words)
    return done.returncode, json.loads(done.stdout)


def corpus_lines():
    if not (SHARED / "corpus" / "expected.jsonl").exists():
        raise Skip("no ../shared/corpus beside the tree; LIBZERO_SHARED can name it")
    return [json.loads(line) for line in open(SHARED / "corpus" / "expected.jsonl")]


def judge_corpus(situation, *words):
    lines = corpus_lines()
    expect(len(lines) == 48, len(lines))
    for line in lines:
        expected = line[situation]
        done = zero_check(SHARED / "corpus" / "configs" / line["file"], "--world", 8, "--json",
                          *words)
        got = json.loads(done.stdout)
        expect(got["verdict"] == expected["verdict"], line["file"], got)
        expect(done.returncode == (2 if expected["verdict"] == "REJECT" else 0), line["file"])
        expect(got["world_size"] == 8, got)
        for level, phrases in (("error", expected["reject"]), ("warning", expected["warn"])):
            findings = [one["key"] + " " + one["message"] for one in got["diagnostics"]
                        if one["level"] == level]
            for phrase in phrases:
                head = phrase.split(":")[0]
                expect(any(head in finding for finding in findings), line["file"], head, findings)
        for path in line["auto_paths"] if situation == "host" else []:
            expect(path in got["values"] and got["values"][path]["value"] != "auto", path)


def test_the_corpus_alone_is_judged_as_expected():
    judge_corpus("alone")


def test_the_corpus_with_a_hosts_facts_is_judged_as_expected():
    corpus_lines()
    judge_corpus("host", "--facts", SHARED / "corpus" / "host.json")


def test_exit_codes_tell_accepted_warned_and_rejected():
    warned = {**GOOD, "wandb": {"enabled": True}}
    rejected = {**GOOD, "zero_optimization": {"stage": 4}}
    for content, plain, strict, verdict in ((GOOD, 0, 0, "ACCEPT"), (warned, 0, 1, "WARN"),
                                            (rejected, 2, 2, "REJECT")):
        code, got = checked(content)
        expect((code, got["verdict"]) == (plain, verdict), code, got)
        code, got = checked(content, "--strict")
        expect((code, got["verdict"]) == (strict, verdict), code, got)


def test_a_wrong_command_line_is_told_from_a_rejected_file():
    with Files() as files:
        good = files.write(GOOD)
        unknown_fact = files.write({"sheep": 3}, "facts.json")
        wrong_fact = files.write({"hidden_size": "big"}, "wrong.json")
        no_json = files.write("{", "broken.json")
        for words in ((), (good, good), ("--nonsense", good), (good, "--world", "many"),
                      (good, "--world", "0"), (good, "--facts", unknown_fact),
                      (good, "--facts", wrong_fact), (good, "--facts", no_json),
                      (good, "--facts", files.path("absent"))):
            done = zero_check(*words)
            expect(done.returncode == 64 and done.stderr and not done.stdout, words, done)


def test_a_finding_has_key_line_column_message_and_suggestion():
    text = '{\n  "train_batch_size": 8,\n  "zero_optimization": {\n    "stagge": 2\n  }\n}\n'
    code, got = checked(text)
    expect(code == 2, got)
    found = got["diagnostics"][0]
    expect(found["level"] == "error" and found["key"] == "zero_optimization.stagge", found)
    expect((found["line"], found["column"]) == (4, 5), found)
    expect(found["suggestion"] == "zero_optimization.stage" and found["message"], found)


def test_a_file_that_cannot_be_read_is_one_finding_about_the_whole_file():
    for text, line, column in (('{\n "a": BARE }', 2, 7), ("", 0, 0), ("[" * 1000000, 1, 101)):
        code, got = checked(text)
        expect(code == 2 and got["verdict"] == "REJECT" and got["values"] == {}, got)
        expect(len(got["diagnostics"]) == 1, got)
        found = got["diagnostics"][0]
        expect(found["key"] == "" and (found["line"], found["column"]) == (line, column), found)
    with Files() as files:
        for path in (files.path("absent.json"), files.folder.name):
            done = zero_check(path, "--json")
            got = json.loads(done.stdout)
            expect(done.returncode == 2 and len(got["diagnostics"]) == 1, got)


def test_values_say_where_they_come_from():
    content = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": "auto",
               "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}
    with Files() as files:
        done = zero_check(files.write(content), "--json", "--facts",
                          files.write({"gradient_clipping": 0.5}, "facts.json"), "--world", 2)
    values = json.loads(done.stdout)["values"]
    for key, value, origin in (("train_batch_size", 8, "derived"),
                               ("train_micro_batch_size_per_gpu", 4, "file"),
                               ("gradient_clipping", 0.5, "facts"),
                               ("zero_optimization.reduce_bucket_size", 500000000, "file"),
                               ("zero_optimization.overlap_comm", None, "default"),
                               ("optimizer.params.betas", [0.9, 0.999], "default")):
        expect(values[key] == {"value": value, "from": origin}, key, values[key])


def test_a_valid_file_is_told_from_one_that_this_build_runs():
    content = {**GOOD, "zero_optimization": {
        "stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/n"}}}
    code, got = checked(content)
    expect(code == 0 and got["verdict"] == "ACCEPT", got)
    expect(any("offload_optimizer.device" in one for one in got["not_in_this_build"]), got)
    expect(checked(GOOD)[1]["not_in_this_build"] == [], "a plain file")


def test_the_page_for_people_shows_findings_values_and_origins():
    with Files() as files:
        content = {**GOOD, "gradient_clipp1ng": 1, "steps_per_print": 10}
        done = zero_check(files.write(content), "--world", 2)
        everything = zero_check(files.write(content), "--all")
    for part in ("WARN, for 2 ranks", "gradient_clipp1ng", "nearest known one is gradient_clipping",
                 "train_batch_size = 8", "(file)", "(default)", "without effect here",
                 "steps_per_print: no effect here"):
        expect(part in done.stdout, part, done.stdout)
    expect(everything.stdout.count("(default)") > done.stdout.count("(default)") + 100, "--all")


def test_the_files_of_the_article_are_accepted_with_facts_and_name_their_holes_without():
    for name, stage, bucket in (("zero2_config_accelerate.json", 2, 200000000),
                                ("zero3_offload_config_accelerate.json", 3, 1048576)):
        with Files() as files:
            facts = files.write({**FACTS, "bf16": False, "fp16": True}, "facts.json")
            done = zero_check(EXAMPLES / name, "--facts", facts, "--json")
        got = json.loads(done.stdout)
        expect(done.returncode == 0 and got["verdict"] == "ACCEPT", got["diagnostics"])
        values = got["values"]
        for key, value in (("zero_optimization.stage", stage), ("fp16.enabled", True),
                           ("zero_optimization.reduce_bucket_size", bucket),
                           ("train_batch_size", 32), ("optimizer.params.lr", 2e-5),
                           ("scheduler.params.warmup_max_lr", 2e-5),
                           ("scheduler.params.total_num_steps", 1000)):
            expect(values[key]["value"] == value, key, values[key])
        alone = json.loads(zero_check(EXAMPLES / name, "--json", "--world", 8).stdout)
        expect(alone["verdict"] == "REJECT", alone)
        holes = [one for one in alone["diagnostics"] if "unresolved" in one["message"]]
        expect(len(holes) == 1, holes)
        for key in ("optimizer.params.lr", "optimizer.params.weight_decay", "gradient_clipping",
                    "scheduler.params.warmup_min_lr", "scheduler.params.total_num_steps"):
            expect(key in holes[0]["message"], key)


def test_the_options_page_has_every_option_once():
    page = zero_check("--options")
    expect(page.returncode == 0, page)
    rows = [line.split("`")[1] for line in page.stdout.splitlines() if line.startswith("| `")]
    values = checked(GOOD)[1]["values"]
    expect(sorted(rows) == sorted(values), set(rows) ^ set(values))
    for line in page.stdout.splitlines():
        expect(not line.startswith("| `") or line.count("|") == 6, line)


SCHEDULE = {**GOOD, "scheduler": {"type": "WarmupDecayLR", "params": {
    "total_num_steps": 10, "warmup_num_steps": 4, "warmup_max_lr": 1e-3}}}


def test_the_schedule_is_printed_in_the_terminal():
    with Files() as files:
        done = zero_check(files.write(SCHEDULE), "--plot-lr", "--updates", 13)
    expect(done.returncode == 0, done)
    # DeepSpeed's own numbers, update by update.
    rates = [0, 0, 5e-4, 7.9248125e-4, 1e-3, 1e-3, 8.33333333e-4, 6.66666667e-4, 5e-4,
             3.33333333e-4, 1.66666667e-4, 0, 0]
    rows = done.stdout.split("learning rate by update\n")[1].splitlines()
    expect(len(rows) == len(rates), rows)
    for row, update, rate in zip(rows, range(1, 14), rates):
        words = row.split()
        expect(int(words[0]) == update and abs(float(words[1]) - rate) <= 1e-5 * rate, row, rate)


def test_the_schedule_is_drawn_into_a_file():
    with Files() as files:
        picture = files.path("lr.svg")
        done = zero_check(files.write(SCHEDULE), "--plot-lr", picture)
        expect(done.returncode == 0 and "#" not in done.stdout, done)
        line = xml.dom.minidom.parse(str(picture)).getElementsByTagName("polyline")[0]
        points = [tuple(map(float, one.split(","))) for one in
                  line.getAttribute("points").split()]
        expect(len(points) == 12, points)
        heights = [y for _, y in points]
        # Down is more: the peak is at updates 5 and 6, the ends lie on the floor.
        expect(min(heights) == heights[4] == heights[5], heights)
        expect(max(heights) == heights[0] == heights[-1], heights)
        nowhere = zero_check(files.write(SCHEDULE), "--plot-lr", files.path("no/where.svg"))
        expect(nowhere.returncode == 64 and "cannot write" in nowhere.stderr, nowhere)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

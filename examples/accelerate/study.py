#!/usr/bin/env python3
"""The article in small: one Accelerate script under plain DDP, DeepSpeed and libzero, 2 CPU ranks.

    study.py --json FILE [--svg FILE] [--task classify|answer] [--modes plain,ds2,lz2,lz3] [--seeds 3]
             [--parts largest,speed,quality] [--minutes M] [--into FILE.md]
             [--book FILE] [--python PROGRAM] [--program zero] [words for the script after --]

The largest batch a rank under one memory limit (PSS above the script's own imports and data, sampled from
outside), samples a second there, then whole trainings with three seeds. What FILE already
holds is not measured again, so a study may be made in parts: modes, seeds and rounds one after the other, or as far
as M minutes reach. --into writes the table between the lines <!-- study TASK --> and <!-- end of study --> of FILE.md.
"""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import study_chart

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 2
BYTES_A_PARAMETER = 24e9 / 884593152  # deberta-v2-xlarge on the article's cards
NAMES = study_chart.NAMES
LARGEST = 4096


def descendants(pid):
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), encoding="ascii") as file:
                for child in map(int, file.read().split()):
                    found += [child] + descendants(child)
    except OSError:
        pass  # it has ended
    return found


def rank_of(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            words = dict(line.split(b"=", 1) for line in file.read().split(b"\0") if b"=" in line)
        return int(words[b"RANK"])
    except (OSError, KeyError, ValueError):
        return None


def held_by(pid):
    """Proportional set size without what is mapped from files: the libraries' pages are everybody's."""
    held = 0
    try:
        with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as file:
            for line in file:
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    held += 1024 * int(line.split()[1])
    except OSError:
        pass
    return held


class Watch(threading.Thread):
    """The largest PSS of the ranks under a launcher; ends the launcher when it passes the limit."""

    def __init__(self, launcher, limit):
        super().__init__(daemon=True)
        self.launcher, self.limit = launcher, limit
        self.peak, self.over, self.done = 0, False, threading.Event()
        self.start()

    def run(self):
        ranks, looked = {}, 0.0
        while not self.done.wait(0.01):
            if time.monotonic() - looked > 0.3:
                ranks = {pid: rank_of(pid) for pid in descendants(self.launcher.pid)}
                looked = time.monotonic()
            # The mean of the ranks: what they share counts once, also while one of them is ending.
            held = sum(held_by(pid) for pid, rank in ranks.items() if rank is not None)
            self.peak = max(self.peak, held // RANKS)
            if self.limit and self.peak > self.limit and not self.over:
                self.over = True
                self.launcher.send_signal(signal.SIGTERM)


class Enough(Exception):
    """The minutes that were given are over."""


class Study:
    def __init__(self, arguments, folder):
        self.end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
        self.arguments, self.folder = arguments, pathlib.Path(folder)
        self.result = {"task": arguments.task, "modes": {}}
        if arguments.json.exists():
            self.result = json.loads(arguments.json.read_text(encoding="utf-8"))

    def keep(self):
        self.arguments.json.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")

    def command(self, mode, script, words):
        """The command line and environment of one run: all that differs between the modes."""
        python = str(self.arguments.python)
        line = [str(HERE / script), *words, *self.arguments.words]
        if self.arguments.book:
            line += ["--book", str(self.arguments.book)]
        # glibc gives freed memory back at once: without it holes of the heap hide what a mode holds.
        more = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "DS_ACCELERATOR": "cpu",
                "MALLOC_TRIM_THRESHOLD_": "131072"}
        if mode != "plain":
            more["ACCELERATE_USE_DEEPSPEED"] = "true"
            more["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = str(HERE / ("zero%s.json" % mode[2]))
        if mode.startswith("lz"):
            return [str(self.arguments.program), "run", "-n", str(RANKS), "--as-deepspeed", "--", python, *line], more
        return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=%d" % RANKS, *line], more

    def run(self, mode, script, words, limit=None, watch=True):
        """(what the script wrote, peak PSS of a rank), or (None, peak) where it passed the limit."""
        if self.end and time.monotonic() > self.end:
            raise Enough
        out = self.folder / "out.json"
        out.unlink(missing_ok=True)
        command, more = self.command(mode, script, words + ([] if script == "bare.py" else ["--json", str(out)]))
        with open(self.folder / "said", "wb") as said:
            launcher = subprocess.Popen(command, env=dict(os.environ, **more), stdin=subprocess.DEVNULL, stdout=said,
                                        stderr=subprocess.STDOUT)
        watching = Watch(launcher, limit) if watch else None
        code = launcher.wait()
        peak = 0
        if watching:
            watching.done.set()
            watching.join()
            peak = watching.peak
            if watching.over:
                return None, peak
        if code != 0:
            sys.exit("%s: exit code %d of %s\n%s" % (mode, code, " ".join(command),
                                                     (self.folder / "said").read_text(errors="replace")[-4000:]))
        return (json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}), peak

    def script(self):
        return self.arguments.task + ".py"

    def bare(self, mode):
        return self.run(mode, "bare.py", [self.script()])[1]

    def largest(self, mode, row):
        """Doubles until a run passes the limit, then halves the gap; three steps each."""
        limit = row["bare"] + self.result["budget"]
        tried = row.setdefault("tried", {})

        def fits(batch):
            known = tried.get(str(batch))
            if known and (known[0] or known[1] > limit - row["bare"]):
                return known[1] <= limit - row["bare"]
            done, peak = self.run(mode, self.script(), ["--batch", str(batch), "--steps", "3"], limit)
            tried[str(batch)] = [done is not None, peak - row["bare"]]
            print("%-20s batch %4d: %6.1f MB%s" % (NAMES[mode], batch, (peak - row["bare"]) / 1e6,
                                                   "" if done else ", too much"), flush=True)
            return done is not None

        good, bad = 0, 8
        while bad <= LARGEST and fits(bad):
            good, bad = bad, 2 * bad
        while bad - good > max(1, good // 32):
            middle = (good + bad) // 2
            if fits(middle):
                good = middle
            else:
                bad = middle
        return good

    def measure(self, mode):
        row = self.result["modes"].setdefault(mode, {})
        if "bare" not in row:
            row["bare"] = self.bare(mode)
            self.keep()
        if "largest" not in row:
            row["largest"] = self.largest(mode, row)
            row["peak"] = row["tried"][str(row["largest"])][1] if row["largest"] else None
            self.keep()
        if mode != "plain" and "largest" not in self.result["modes"].get("plain", {}):
            self.measure("plain")
        common = self.result["modes"]["plain"]["largest"]
        row["used"] = row["largest"] or common  # where not even one sample fits: what the others can hold
        if "common_peak" not in row:
            row["common_peak"] = self.run(mode, self.script(), ["--batch", str(common), "--steps", "3"])[1] - row["bare"]
            self.keep()

    def speeds(self, modes):
        """Samples a second at each mode's largest batch and at plain DDP's; rounds in turn, since machines drift."""
        rates = self.result.setdefault("rates", [])
        common = self.result["modes"]["plain"]["largest"]
        for number in range(self.arguments.rounds):
            if number == len(rates):
                rates.append({"load": os.getloadavg()[0]})
            seen = rates[number]
            for mode in modes:
                for key, batch in (("largest", self.result["modes"][mode]["used"]), ("common", common)):
                    if key in seen.get(mode, {}):
                        continue
                    words = ["--batch", str(batch), "--steps", str(2 + max(4, 200 // batch))]
                    done, _ = self.run(mode, self.script(), words, watch=False)
                    seen.setdefault(mode, {})[key] = RANKS * batch / statistics.median(done["step_seconds"][2:])
                    self.keep()
            print("samples a second: %s" % seen, flush=True)

    def qualities(self, modes):
        for seed in range(1, self.arguments.seeds + 1):
            for mode in modes:
                row = self.result["modes"][mode]
                runs = row.setdefault("runs", [])
                if len(runs) >= seed:
                    continue
                done, _ = self.run(mode, self.script(), ["--batch", str(row["used"]), "--seed", str(seed)], watch=False)
                runs.append(done)
                print("%-20s batch %4d, seed %d: %.4f" % (NAMES[mode], row["used"], seed, quality_of(done)), flush=True)
                self.keep()


def quality_of(run):
    return run["accuracy"] if "accuracy" in run else run["held_out_loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--task", choices=("classify", "answer"), default="classify")
    parser.add_argument("--modes", default="plain,ds2,lz2,lz3")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="of timed runs")
    parser.add_argument("--parts", default="largest,speed,quality")
    parser.add_argument("--minutes", type=float, help="no run begins after them")
    parser.add_argument("--into", type=pathlib.Path, help="a Markdown file that holds the table")
    parser.add_argument("--book", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--program", default="zero")
    parser.add_argument("words", nargs="*", help="for the script, after --")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    if set(parts) - {"largest", "speed", "quality"}:
        parser.error("--parts is %s: expected some of largest,speed,quality" % arguments.parts)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(arguments, folder)
        try:
            make(study, parts)
        except Enough:
            print("%g minutes are over; the same command goes on from here" % arguments.minutes, flush=True)
    if "budget" in study.result:
        show(study.result, arguments)


def make(study, parts):
    arguments = study.arguments
    if "budget" not in study.result:
        done, _ = study.run("plain", study.script(), ["--steps", "1"])
        study.result["parameters"] = done["parameters"]
        study.result["budget"] = int(BYTES_A_PARAMETER * done["parameters"])
        study.keep()
    words = arguments.words
    study.result["samples"] = int(words[words.index("--train") + 1]) if "--train" in words else 4000
    print("%d parameters, %.1f MB a rank" % (study.result["parameters"], study.result["budget"] / 1e6), flush=True)
    modes = arguments.modes.split(",")
    for mode in modes:  # the other parts need them too
        study.measure(mode)
    if "speed" in parts:
        study.speeds(modes)
    if "quality" in parts:
        study.qualities(modes)


def show(result, arguments):
    made = study_chart.table(result)
    print(made)
    if arguments.svg:
        arguments.svg.write_text(study_chart.svg(result), encoding="utf-8")
    if arguments.into:
        whole = arguments.into.read_text(encoding="utf-8")
        begin, end = "<!-- study %s -->\n" % result["task"], "<!-- end of study -->"
        if begin not in whole or end not in whole.split(begin)[1]:
            sys.exit("%s has no lines %s and %s" % (arguments.into, begin.strip(), end))
        before, rest = whole.split(begin, 1)
        arguments.into.write_text(before + begin + "\n" + made + "\n\n" + end + rest.split(end, 1)[1], encoding="utf-8")


if __name__ == "__main__":
    main()

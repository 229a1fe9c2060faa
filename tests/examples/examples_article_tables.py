#!/usr/bin/env python3
"""The article's tables: the command prints what docs/memory.md shows, from numbers worked out here
a second time; the assumptions were there first."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from harness import Skip, expect, run_tests  # noqa: E402
from trainer import PROGRAM, SOURCE, run  # noqa: E402

ASSUMED = json.loads((SOURCE / "docs/article-assumptions.json").read_text(encoding="utf-8"))


def tables(*options):
    code, text, said = run([sys.executable, SOURCE / "examples/article_tables.py", "--program",
                            PROGRAM, *options])
    expect(code == 0 and not said, said)
    return text


def test_it_prints_what_the_page_shows():
    page = (SOURCE / "docs/memory.md").read_text(encoding="utf-8")
    shown = page.split("<!-- article tables: begin -->\n")[1].split("<!-- article tables: end")[0]
    expect(tables() == shown, tables(), shown)


def test_every_published_batch_is_in_its_band_or_explained():
    page = (SOURCE / "docs/memory.md").read_text(encoding="utf-8")
    outside = []
    for table in json.loads(tables("--json")):
        for side in ("plain", "zero"):
            low, high = (table["ends"][end][side]["batch"] for end in ("heavy", "light"))
            expect(low <= high, table)
            if not low <= table["published"][side] <= high:
                outside.append((table["model"], side))
    # The page has a sentence for each of them, and for no other.
    expect(outside == [("gpt2-xl-1.5b", "zero")], outside)
    expect("**GPT-XL's 16 is below the band.**" in page)


def test_plain_data_parallelism_is_the_assumed_bytes():
    for table in json.loads(tables("--json")):
        name = table["model"]
        lines = (SOURCE / "examples/models" / (name + ".tsv")).read_text().splitlines()
        rows = [dict(zip(lines[0].split("\t"), line.split("\t"))) for line in lines[1:]]
        own = [row for row in rows if not row["tied_to"] and row["kind"] == "param"]
        trained = sum(int(row["numel"]) for row in own)
        cast = sum(int(row["numel"]) for row in own if "x" in row["shape"] and not any(
            word in row["name"] for word in ASSUMED["models"][name]["embeddings"]))
        largest = max(int(row["numel"]) for row in own)
        for end, stepping in (("light", 8 * largest), ("heavy", 4 * trained)):
            plain = table["ends"][end]["plain"]
            expect(plain["states"] == 20 * trained + 2 * cast, name, end, plain)
            expect(plain["step"] == 20 * trained + stepping, name, end, plain)
            room = (ASSUMED["gpu_bytes"][end] * (1 - ASSUMED["fragmentation"][end])
                    - ASSUMED["context_bytes"][end])
            fits = plain["step"] <= room and plain["states"] <= room
            batch = int((room - plain["states"]) / plain["sample"]) if fits else 0
            expect(plain["batch"] == batch, name, end, plain, room)


def test_the_assumptions_were_committed_before_the_results():
    def first(path):
        done = subprocess.run(["git", "-C", SOURCE, "log", "--diff-filter=A", "--format=%at", "--",
                               path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.stdout.split()

    assumed, results = first("docs/article-assumptions.json"), first("docs/memory.md")
    command = first("examples/article_tables.py")
    if not (assumed and results and command) or assumed[-1] == results[-1]:
        raise Skip("no history here, or a shallow one")
    expect(int(assumed[-1]) < min(int(command[-1]), int(results[-1])), assumed, command, results)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

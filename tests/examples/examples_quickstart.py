#!/usr/bin/env python3
"""README's first command, shortened: fewer steps, a text of the tree, this build."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from harness import expect, run_tests  # noqa: E402
from trainer import BUILD, SOURCE, TEXT, run  # noqa: E402

SCRIPT = SOURCE / "examples/quickstart.sh"
FOLDER = tempfile.TemporaryDirectory()
JSON = pathlib.Path(FOLDER.name, "rows.json")
TABLE = SOURCE / "examples/quickstart_table.py"
_done = []


def quickstart():
    """Output and rows of one run, made once for all tests."""
    if not _done:
        code, text, said = run([SCRIPT, "--build", BUILD, "--data", TEXT, "--steps", 3, "--sample",
                                4, "--json", JSON], seconds=160)
        expect(code == 0, code, text, said)
        _done.append((text, json.loads(JSON.read_text(encoding="utf-8"))))
    return _done[0]


def test_all_stages_print_one_weights_hash():
    text, rows = quickstart()
    hashes = re.findall(r"^(?:\[0\] )?weights ([0-9a-f]{16})$", text, re.M)
    expect(len(hashes) == 4 and len(set(hashes)) == 1, text)
    expect({row["weights"] for row in rows} == set(hashes), rows, hashes)
    expect("The weights have the same bits at every stage." in text, text)


def test_the_table_has_four_rows_and_less_memory_at_each_stage():
    text, rows = quickstart()
    table = text[text.index("MB a rank"):].splitlines()
    planned = [line.split() for line in table if re.match(r" +[0-3]   planned", line)]
    measured = [line.split() for line in table if re.match(r" +measured", line)]
    expect([line[0] for line in planned] == ["0", "1", "2", "3"] and len(measured) == 4, text)
    for bytes_a_rank in ([row["planned_bytes"] for row in rows],
                         [row["measured_bytes"] for row in rows],
                         [float(line[7]) for line in planned],
                         [float(line[6]) for line in measured]):
        expect(bytes_a_rank == sorted(bytes_a_rank, reverse=True) and len(set(bytes_a_rank)) == 4,
               bytes_a_rank)


def test_the_json_file_has_what_the_table_shows():
    text, rows = quickstart()
    expect([row["stage"] for row in rows] == [0, 1, 2, 3], rows)
    for row in rows:
        for key in ("planned_bytes", "measured_bytes", "step_seconds", "loss", "weights"):
            expect(key in row, key, row)
        expect(row["step_seconds"] > 0 and row["planned_bytes"] >= row["measured_bytes"] > 0, row)
        for cell in ("%.2f" % (row["planned_bytes"] / 1e6), "%.2f" % (row["measured_bytes"] / 1e6),
                     "%.3f" % row["step_seconds"], "%.4f" % row["loss"], row["weights"]):
            expect(cell in text, cell, text)


def test_weights_that_differ_are_said_and_fail():
    _, rows = quickstart()
    files = []
    for row in rows:
        files.append(pathlib.Path(FOLDER.name, "stage%d.json" % row["stage"]))
        if row["stage"] == 2:
            row = dict(row, weights="0123456789abcdef")
        files[-1].write_text(json.dumps(row), encoding="utf-8")
    code, text, _ = run([TABLE] + files)
    expect(code == 1 and "DIFFER" in text, code, text)


def test_an_unknown_option_gets_the_usage():
    code, _, said = run([SCRIPT, "--nonsense", "1"])
    expect(code == 2 and "--json FILE" in said, code, said)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

#!/usr/bin/env python3
"""The name deepspeed, answered by libzero: every row of the reference page's tables 1.1 and 2.3, and who may ask."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import re
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "torch"))
from torch_help import PROGRAM, SOURCE, WORK, Skip, environment, expect, finish, has_deepspeed, languages, package  # noqa: E402

from harness import run_tests  # noqa: E402

PAGE = SOURCE / "../shared/reference/deepspeed-python-surface.md"
ROWS = {"1.1": 31, "2.3": 38}  # as the page has them
REFUSED_WHOLE = {"1.1": 3, "2.3": 2}  # rows of which nothing works: tp_model_init, pipelines, MoE and its like; ...


def run(*words, count=2, check=True, seconds=280, **more):
    python, kept = environment()
    return finish([PROGRAM, "run", "-n", str(count), "--as-deepspeed", "--", python, *words], dict(kept, **more), seconds, check)


def table(section):
    """The first column of the page's table of this section."""
    if not PAGE.exists():
        raise Skip("%s is not here" % PAGE.name)
    text = PAGE.read_text(encoding="utf-8")
    lines = re.split(r"\n###? ", text.split("### %s " % section)[1])[0].splitlines()
    rows = [line.split(" | ")[0].lstrip("| ") for line in lines if line.startswith("|")]
    return rows[2:]  # without the head and its line


@languages.once
def said():
    """table -> row -> (how it ended, names that work, names refused), as rank 0 told it."""
    folder = tempfile.mkdtemp(dir=WORK)
    try:
        text = run(HERE / "names_cases.py", folder, check=False, PYTHONUNBUFFERED="1")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = {"1.1": {}, "2.3": {}}
    for line in text.splitlines():
        if "ROW\t" in line:
            _, section, row, how, works, refused = line.split("\t")
            found[section].setdefault(row, []).append((how, int(works), int(refused)))
    return found, text


def walk(section):
    rows = table(section)
    expect(len(rows) == ROWS[section], "the page has %d rows, the test knows %d" % (len(rows), ROWS[section]))
    found, text = said()
    missing = [row for row in rows if row not in found[section]]
    failed = [row for row in rows if any(how != "OK" for how, _, _ in found[section].get(row, []))]
    expect(not missing and not failed, "missing: %s\nfailed: %s" % (missing, failed), text)
    counted = [found[section][row][0] for row in rows]
    whole = sum(1 for _, works, _ in counted if works == 0)
    expect(whole == REFUSED_WHOLE[section], "%d rows work in nothing" % whole)
    print("table %s: %d rows; of %d names %d work, %d are refused by name"
          % (section, len(rows), sum(w + r for _, w, r in counted), sum(w for _, w, _ in counted), sum(r for _, _, r in counted)))


def test_every_name_of_table_1_1_works_or_is_refused_by_name():
    walk("1.1")


def test_every_attribute_of_table_2_3_works_or_is_refused_by_name():
    walk("2.3")


# The names that 27 of the page's 49 programs are content with ("How far one import line reaches").
ENOUGH_FOR_27 = ["initialize", "init_distributed", "add_config_arguments", "comm", "get_accelerator", "DeepSpeedConfig", "__version__",
                 "zero", "utils.logger", "utils.safe_get_full_fp32_param", "utils.set_z3_leaf_modules", "DeepSpeedEngine",
                 "ZeroParamStatus"]


def test_27_of_49_programs_find_all_the_names_they_need():
    if PAGE.exists():
        expect("27 when `zero.*`" in PAGE.read_text(encoding="utf-8"))
    found, _ = said()
    rows = {row: ends[0] for row, ends in found["1.1"].items()}
    for name in ENOUGH_FOR_27:
        last = name.rsplit(".", 1)[-1].split("_full_")[0]
        having = [ends for row, ends in rows.items() if last in row]
        expect(having and all(how == "OK" and works > 0 for how, works, _ in having), name, having)


# ---- the name itself -----------------------------------------------------------------------------------------------

ONE_STEP = """
import torch, deepspeed
model = torch.nn.Linear(4, 2)
engine = deepspeed.initialize(model=model, config={"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW"}, "libzero": {"comm_timeout_seconds": 20}})[0]
"""


def test_it_says_once_who_answers():
    text = run("-c", "import deepspeed; import deepspeed.comm; print('version', deepspeed.__version__)")
    expect(len(re.findall("libzero", text)) >= 1, text)
    lines = [line for line in text.splitlines() if "libzero" in line and "version" not in line.split()[-2:]]
    expect(len(lines) == 1, lines)


def test_nobody_answers_unasked():
    python, kept = environment()
    text = finish([python, "-c", "import importlib.util as u, sys, libzero.torch; s = u.find_spec('deepspeed'); "
                   "print('ORIGIN', s and s.origin)"], kept, 60)
    origin = next(line for line in text.splitlines() if line.startswith("ORIGIN"))
    expect("as_deepspeed" not in origin, origin)


def test_the_module_form_answers_as_well():
    python, kept = environment()
    text = finish([python, "-m", "libzero.as_deepspeed", "-c", "import deepspeed; print('FROM', deepspeed.zero.Init.__module__)"], kept, 60)
    expect("FROM libzero." in text, text)


def test_accelerates_version_gates_are_passed():
    text = run("-c", "import importlib.metadata as m, deepspeed; from packaging.version import parse; "
                     "v = m.version('deepspeed'); print('GATE', parse(v) >= parse('0.18.9'), v == deepspeed.__version__)", count=1)
    expect("GATE True True" in text, text)


def test_workers_of_a_data_loader_inherit_the_name():
    text = run("-c", "import torch, deepspeed\n"
                     "class D(torch.utils.data.Dataset):\n"
                     "    def __len__(self): return 4\n"
                     "    def __getitem__(self, i):\n"
                     "        import deepspeed.zero\n"
                     "        return deepspeed.zero.Init.__module__.startswith('libzero')\n"
                     + ONE_STEP +
                     "for batch in torch.utils.data.DataLoader(D(), num_workers=2, batch_size=2):\n"
                     "    assert batch.all()\n"
                     "    engine.backward(engine(torch.ones(1, 4)).sum()); engine.step()\n"
                     "print('STEPS', engine.global_steps)\n")
    expect(text.count("STEPS 2") == 2, text)


def test_two_engines_in_one_process_step_by_turns():
    text = run("-c", ONE_STEP + "first = engine\n" + ONE_STEP +
               "for k in range(3):\n"
               "    for e in (first, engine):\n"
               "        e.backward(e(torch.ones(1, 4)).sum()); e.step()\n"
               "print('STEPS', first.global_steps, engine.global_steps)\n")
    expect(text.count("STEPS 3 3") == 2, text)


def test_a_script_that_raises_in_the_middle_of_a_step_ends_on_every_rank():
    text = run("-c", ONE_STEP + "import os\n"
               "for k in range(3):\n"
               "    loss = engine(torch.ones(1, 4)).sum()\n"
               "    if k == 1 and os.environ['RANK'] == '1': raise RuntimeError('a mistake of the script')\n"
               "    engine.backward(loss); engine.step()\n", check=False, seconds=60)
    expect("a mistake of the script" in text, text)


def test_the_real_deepspeed_imported_first_is_told():
    if not has_deepspeed():
        raise Skip("DeepSpeed: skipped, this Python has none")
    python, kept = environment()
    text = finish([python, "-c", "import deepspeed\nimport libzero.as_deepspeed as a\n"
                   "try:\n    a.activate()\nexcept Exception as e:\n    print('TOLD', type(e).__name__, e)\n"], kept, 120, check=False)
    expect(re.search(r"TOLD RuntimeError deepspeed \S+ is imported already", text), text)


def test_without_torch_the_sentence_names_it():
    folder = pathlib.Path(tempfile.mkdtemp(dir=WORK))
    (folder / "torch.py").write_text("raise ImportError('No module named torch', name='torch')\n", encoding="utf-8")
    python, kept = environment()
    kept["PYTHONPATH"] = "%s:%s" % (folder, kept["PYTHONPATH"])
    text = finish([python, "-m", "libzero.as_deepspeed", "-c", "import deepspeed"], kept, 60, check=False)
    shutil.rmtree(folder)
    expect("torch" in text and "libzero" in text, text)


if __name__ == "__main__":
    try:
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    os.makedirs(WORK, exist_ok=True)
    sys.exit(run_tests(sys.modules[__name__]))

"""The table and the chart of study.py.

    study_chart.py RESULT.json OUT.svg
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import pathlib
import statistics
import sys

NAMES = {"plain": "plain DDP", "ds2": "DeepSpeed, stage 2", "lz2": "libzero, stage 2", "lz3": "libzero, stage 3"}
COLOURS = {"plain": "#888888", "ds2": "#ccaa33", "lz2": "#ee6677", "lz3": "#228833"}
ARTICLE = {"plain": (8, 103.57), "ds2": (40, 28.98)}  # largest batch, seconds an epoch: two 24 GB cards
WIDTH, HEIGHT, TOP, BOTTOM, PANEL = 860, 330, 64, 250, 190
STYLE = ("<style>text{fill:#222}.page{fill:#fff}.axis{stroke:#222;fill:none}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.page{fill:#16181c}.axis{stroke:#ddd}}</style>")


def rate(result, mode, key):
    found = [seen[mode][key] for seen in result.get("rates", []) if mode in seen]
    return statistics.median(found) if found else None


def quality(row):
    return [run.get("accuracy", run.get("held_out_loss")) for run in row.get("runs", [])]


def in_order(result):
    return {mode: result["modes"][mode] for mode in NAMES if mode in result["modes"]}


def samples(result):
    return result.get("samples", 2000)


def columns(result):
    """[(title, format, {mode: value})] of all that was measured."""
    modes = in_order(result)
    rates = {mode: rate(result, mode, "largest") for mode in modes}
    made = [("largest batch", "%d", {m: row.get("largest") for m, row in modes.items()}),
            ("MB a rank at plain DDP's batch", "%.0f", {m: row["common_peak"] / 1e6 for m, row in modes.items()
                                                        if "common_peak" in row}),
            ("samples/s at the largest", "%.1f", rates),
            ("s an epoch", "%.1f", {m: samples(result) / value if value else None for m, value in rates.items()}),
            ("samples/s at plain DDP's batch", "%.1f", {m: rate(result, m, "common") for m in modes})]
    name = "accuracy" if result["task"] == "classify" else "held-out loss"
    if any(quality(row) for row in modes.values()):
        made.append((name + ", median of the seeds", "%.3f",
                     {m: statistics.median(quality(row)) if quality(row) else None for m, row in modes.items()}))
    return made


def shown(form, value):
    return "" if value is None else form % value


def table(result):
    made = columns(result)
    lines = ["| | " + " | ".join(title for title, _, _ in made) + " | article: batch, s an epoch |",
             "|---" * (len(made) + 2) + "|"]
    for mode in in_order(result):
        lines.append("| %s | %s | %s |" % (
            NAMES[mode], " | ".join(shown(form, values.get(mode)) for _, form, values in made),
            "%d, %.2f" % ARTICLE[mode] if mode in ARTICLE else ""))
    return "\n".join(lines)


def text(x, y, words, anchor="middle", size=12):
    return '<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>\n' % (x, y, anchor, size, words)


def panel(left, title, form, values):
    out = text(left + PANEL / 2, TOP - 14, title)
    known = {mode: value for mode, value in values.items() if value is not None}
    highest = max(known.values(), default=0) or 1
    width = PANEL / max(len(known), 1)
    for number, (mode, value) in enumerate(known.items()):
        height = (BOTTOM - TOP - 16) * value / highest
        out += '<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>\n' % (
            left + number * width + 4, BOTTOM - height, width - 8, height, COLOURS[mode])
        out += text(left + (number + 0.5) * width, BOTTOM - height - 4, form % value, size=11)
    return out + '<path class="axis" d="M%d %dh%d"/>\n' % (left, BOTTOM, PANEL)


def svg(result):
    out = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif">\n' % (WIDTH, HEIGHT) + STYLE
    out += '<rect class="page" width="100%" height="100%"/>\n'
    out += text(WIDTH / 2, 22, "One Accelerate script, %.1f M parameters, 2 ranks, %.0f MB a rank" % (
        result["parameters"] / 1e6, result["budget"] / 1e6), size=15)
    for number, (title, form, values) in enumerate(columns(result)[:4]):
        out += panel(20 + number * (PANEL + 20), title, form, values)
    x = 40
    for mode in in_order(result):
        out += '<rect x="%d" y="272" width="12" height="12" fill="%s"/>\n' % (x, COLOURS[mode])
        out += text(x + 16, 283, NAMES[mode], "start")
        x += 190
    return out + text(40, 310, "article: largest batch 8 (DDP) and 40 (ZeRO-2), 103.57 and 28.98 s an epoch, equal F1",
                      "start") + "</svg>\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[2].strip())
    found = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(table(found))
    pathlib.Path(sys.argv[2]).write_text(svg(found), encoding="utf-8")

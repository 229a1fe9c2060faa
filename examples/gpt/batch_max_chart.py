"""The chart of batch_max.py: largest batches and samples a second against plain data parallelism.

    batch_max_chart.py RESULT.json OUT.svg
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import math
import pathlib
import sys

WIDTH, HEIGHT = 860, 380
PANELS = ((70, 330), (500, 330))  # left edge and width
TOP, BOTTOM = 64, 318
COLOURS = {"0": "#888888", "1": "#4477aa", "2": "#ee6677", "3": "#228833"}
DEBERTA = (0.0607, 0.0981)  # docs/article-assumptions.md: light and heavy, of 4 bytes a parameter
PUBLISHED = ((0.0607, 40 / 8, 3.57), (0.0639, 200 / 100, 1.44))  # at the light end
STYLE = ("<style>text{fill:#222}.page{fill:#fff}.grid{stroke:#ccc}.axis{stroke:#222;fill:none}"
         ".band{fill:#4477aa;opacity:.12}.mark{stroke:#222;fill:none}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.page{fill:#16181c}.grid{stroke:#444}"
         ".axis,.mark{stroke:#ddd}.band{opacity:.3}}</style>")


def text(x, y, words, anchor="middle", more=""):
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>\n' % (x, y, anchor, more, words)


class Panel:
    def __init__(self, left, width, ratios, highest, title):
        self.left, self.width, self.highest = left, width, highest
        self.low = math.log(min(ratios) * 0.8)
        self.high = math.log(max(ratios) * 1.25)
        self.out = text(left + width / 2, TOP - 14, title, more=' font-size="14"')

    def x(self, ratio):
        return self.left + self.width * (math.log(ratio) - self.low) / (self.high - self.low)

    def y(self, value):
        return BOTTOM - (BOTTOM - TOP) * min(value, self.highest) / self.highest

    def axes(self, ratios, step):
        self.out += '<rect class="band" x="%.1f" y="%d" width="%.1f" height="%d"/>\n' % (
            self.x(DEBERTA[0]), TOP, self.x(DEBERTA[1]) - self.x(DEBERTA[0]), BOTTOM - TOP)
        value = 0.0
        while value <= self.highest + 1e-9:
            self.out += '<path class="grid" d="M%d %.1fh%d"/>\n' % (self.left, self.y(value),
                                                                    self.width)
            self.out += text(self.left - 6, self.y(value) + 4, "%gx" % value, "end")
            value += step
        for ratio in ratios:
            self.out += text(self.x(ratio), BOTTOM + 18, "%.3f" % ratio)
        self.out += '<path class="axis" d="M%d %dV%dh%d"/>\n' % (self.left, TOP, BOTTOM, self.width)

    def line(self, stage, points):
        path = " ".join("%.1f,%.1f" % (self.x(ratio), self.y(value)) for ratio, value in points)
        self.out += '<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>\n' % (
            COLOURS[stage], path)
        for ratio, value in points:
            self.out += '<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>stage %s: %.2f' \
                '</title></circle>\n' % (self.x(ratio), self.y(value), COLOURS[stage], stage, value)

    def mark(self, ratio, value, words):
        x, y = self.x(ratio), self.y(value)
        self.out += '<path class="mark" d="M%.1f %.1fl6 6l-6 6l-6 -6z"/>\n' % (x, y - 6)
        self.out += text(x + 10, y + 4, words, "start", ' font-size="11"')


def points_of(study, stage, key):
    points = []
    for sweep in study["sweeps"]:
        modes = {mode["mode"]: mode for mode in sweep["modes"]}
        base, value = modes["plain"][key], modes[stage][key]
        if base and value:
            points.append((sweep["ratio"], value / base))
    return points


def svg(study):
    ratios = [sweep["ratio"] for sweep in study["sweeps"]]
    out = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" '
           'font-size="12">\n' % (WIDTH, HEIGHT)) + STYLE
    out += '<rect class="page" width="100%" height="100%"/>\n'
    out += text(WIDTH / 2, 22, "%.1f M parameters, 2 ranks, %.0f MB a rank: against plain data "
                "parallelism" % (study["parameters"] / 1e6, study["budget"] / 1e6),
                more=' font-size="15"')
    titles = (("largest", "largest batch", 1), ("samples_per_second", "samples a second there", 2))
    for (left, width), (key, title, published) in zip(PANELS, titles):
        lines = {stage: points_of(study, stage, key) for stage in COLOURS}
        highest = max([value for points in lines.values() for _, value in points]
                      + [row[published] for row in PUBLISHED])
        panel = Panel(left, width, ratios + list(DEBERTA), math.ceil(highest), title)
        panel.axes(ratios, 1 if highest > 2 else 0.5)
        for stage, points in lines.items():
            panel.line(stage, points)
        for row, words in zip(PUBLISHED, ("article: DeBERTa", "article: Blenderbot")):
            panel.mark(row[0], row[published], words)
        out += panel.out
    x = 70
    for stage, colour in COLOURS.items():
        out += '<rect x="%d" y="350" width="12" height="12" fill="%s"/>\n' % (x, colour)
        out += text(x + 16, 361, "stage " + stage, "start")
        x += 80
    out += text(x + 10, 361, "bytes of activations a sample / bytes of the fp32 model; shaded: "
                "DeBERTa's", "start")
    return out + "</svg>\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[2].strip())
    pathlib.Path(sys.argv[2]).write_text(
        svg(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))), encoding="utf-8")

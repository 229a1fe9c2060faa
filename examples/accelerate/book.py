"""The text both examples learn from: the verses of the King James Bible, and words as tokens."""
# SPDX-License-Identifier: BSD-3-Clause
import collections
import re
import subprocess

PARTS = ("law and history", "poetry", "prophets", "gospels and acts", "letters and revelation")
FIRST = {"Ge": 0, "Job": 1, "Isa": 2, "Mat": 3, "Rom": 4}  # the first book of each part
PAD, START, END, OTHER = range(4)


def read_verses(path=None):
    """[(part, chapter's number in the book, text)] in the book's order, from a file or the program `bible`."""
    if path:
        with open(path, encoding="utf-8") as file:
            lines = file.read()
    else:
        lines = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                               text=True).stdout
    verses, part, chapters = [], 0, {}
    for line in lines.splitlines():
        found = re.match(r"([1-3]?[A-Za-z]+)(\d+):\d+ (.+)", line)
        if found:
            part = FIRST.get(found[1], part)
            chapter = chapters.setdefault((found[1], found[2]), len(chapters))
            verses.append((part, chapter, found[3]))
    return verses


def is_held_out(chapter):
    """Whole chapters are kept for validation: neighbouring verses say the same things."""
    return chapter % 10 == 9


def words_of(text):
    return re.findall(r"[a-z]+|[.,;:?!]", text.lower())


class Words:
    """The most frequent words as numbers."""

    def __init__(self, texts, size):
        counts = collections.Counter(word for text in texts for word in words_of(text))
        kept = sorted(counts, key=lambda word: (-counts[word], word))[:size - 4]
        self.numbers = {word: number + 4 for number, word in enumerate(kept)}

    def row(self, text, length):
        """length numbers: START, words, END, PAD."""
        numbers = [self.numbers.get(word, OTHER) for word in words_of(text)][:length - 2]
        return [START] + numbers + [END] + [PAD] * (length - 2 - len(numbers))

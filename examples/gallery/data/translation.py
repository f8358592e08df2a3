"""English and German sentences: the messages that Django ships in both languages, as tokens of a learned vocabulary.

`pip install 'bayes_planet[examples]'` brings Django and so them, under a BSD licence, as gettext catalogues
(django/**/locale/de/LC_MESSAGES/*.mo).
"""

import collections
import gettext
import importlib.util
import itertools
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

PADDING, START, END = 0, 1, 2


class Pairs(NamedTuple):
    """Tokens int32 [N, length] of sentences, padded with 0; German ones begin with START and end in END."""

    english: np.ndarray
    german: np.ndarray


def sentences() -> list[tuple[str, str]]:
    """(English, German), each pair once, in the order of the catalogues.

    Raises:
        ImportError: Django is not installed.
    """
    found = importlib.util.find_spec("django")
    if found is None or not found.origin:
        raise ImportError("This example's sentences come with Django: pip install 'bayes_planet[examples]'.")
    pairs = {}
    for path in sorted(Path(found.origin).parent.glob("**/locale/de/LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            for key, german in gettext.GNUTranslations(file)._catalog.items():  # type: ignore[attr-defined]
                english = (key[0] if isinstance(key, tuple) else key).split("\x04")[-1]  # without plural and context
                if english and german and english != german:
                    pairs[english, german] = None
    return list(pairs)


class Vocabulary:
    """Byte-pair encoding: characters, and the `merges` most frequent joins of two tokens within a word.

    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units".
    """

    def __init__(self, texts: list[str], merges: int) -> None:
        counts = collections.Counter(word for text in texts for word in _words(text))
        words = {word: tuple(word) for word in counts}
        characters = sorted({character for word in words for character in word})
        self.merges: dict[tuple[str, str], int] = {}
        for rank in range(merges):
            pairs: collections.Counter = collections.Counter()
            for word, parts in words.items():
                for pair in itertools.pairwise(parts):
                    pairs[pair] += counts[word]
            if not pairs:
                break
            best = max(pairs, key=lambda pair: (pairs[pair], pair))
            self.merges[best] = rank
            words = {word: _join(parts, best) if len(parts) > 1 else parts for word, parts in words.items()}
        self.tokens = ["", "<", ">", "?", *characters, *("".join(pair) for pair in self.merges)]
        self.index = {token: number for number, token in reversed(list(enumerate(self.tokens))) if number > 3}

    def encode(self, text: str) -> list[int]:
        """Numbers of the tokens; 3 for characters that the texts do not have."""
        numbers = []
        for word in _words(text):
            parts = tuple(word)
            while len(parts) > 1:
                pair = min(itertools.pairwise(parts), key=lambda pair: self.merges.get(pair, len(self.merges)))
                if pair not in self.merges:
                    break
                parts = _join(parts, pair)
            numbers += [self.index.get(part, 3) for part in parts]
        return numbers

    def decode(self, numbers: np.ndarray) -> str:
        """The text of tokens, without START, END and what is after it."""
        kept = itertools.takewhile(lambda number: number not in (PADDING, END), (n for n in numbers if n != START))
        return "".join(self.tokens[number] for number in kept)


def load(train: int, length: int = 32, merges: int = 400, seed: int = 0) -> tuple[Pairs, Pairs, Vocabulary]:
    """`train` pairs for training and all others for the test, of at most `length` tokens, and their vocabulary."""
    pairs = sentences()
    order = np.random.default_rng(seed).permutation(len(pairs))
    shuffled = [pairs[index] for index in order]
    vocabulary = Vocabulary([text for pair in shuffled[:train] for text in pair], merges)
    parts = []
    for part in (shuffled[:train], shuffled[train:]):
        encoded = [(vocabulary.encode(english), [START, *vocabulary.encode(german), END]) for english, german in part]
        encoded = [pair for pair in encoded if max(map(len, pair)) <= length]
        parts.append(Pairs(*(_padded([pair[side] for pair in encoded], length) for side in (0, 1))))
    return parts[0], parts[1], vocabulary


def _words(text: str) -> list[str]:
    return re.findall(r" ?\w+|[^\w]", text)


def _join(parts: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    joined: list[str] = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


def _padded(rows: list[list[int]], length: int) -> np.ndarray:
    return np.array([row + [PADDING] * (length - len(row)) for row in rows], np.int32)

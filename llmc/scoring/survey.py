"""A whole job looked at before anything is evaluated: tokens, batches, room needed, and what cannot be scored."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from llmc.benchmarks.item import Item
from llmc.scoring import planning
from llmc.scoring.evaluate import branches
from llmc.scoring.items import chosen_items
from llmc.scoring.job import Job
from llmc.scoring.planning import Batch
from llmc.scoring.tokens import CannotScore, DoesNotFit, Tokenized, Tokenizer, tokenize
from llmc.scoring.tree import Limits

# Tokenized and planned at a time: bounds the memory, whatever the file.
CHUNK_ITEMS = 4096
CHUNK_CHARS = 1 << 25  # of all options with their contexts: about 8 million tokens
NAMED = 20  # ids in a message


class Refused(Exception):
    """The job cannot be done, or not to its end: ``slug`` names the finding, ``what`` says why."""

    def __init__(self, slug: str, what: str) -> None:
        super().__init__(what)
        self.slug, self.what = slug, what


@dataclass(frozen=True)
class Chunk:
    """Consecutive items of the job, tokenized, with the batches that evaluate them."""

    items: list[Item]
    tokenized: list[Tokenized]
    batches: list[Batch]


@dataclass
class Survey:
    """What a job takes. ``first`` is the place in the job of the first item that is not ``done`` batch by batch,
    ``tokens`` all that have to be decoded, ``cells`` and ``sequences`` what the cache must hold at once.
    """

    done: int = 0
    first: int = 0
    items: int = 0
    batches: int = 0
    tokens: int = 0
    cells: int = 1
    sequences: int = 1
    truncated: int = 0
    longest: int = 0
    too_long: list[str] = field(default_factory=list)
    impossible: dict[str, str] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        self.batches += len(chunk.batches)
        self.tokens += planning.decoded_tokens(chunk.batches)
        self.cells = max(self.cells, *(batch.cells for batch in chunk.batches))
        self.sequences = max(self.sequences, *(batch.sequences for batch in chunk.batches))
        self.truncated += sum(any(each.dropped for each in item.sequences()) for item in chunk.tokenized)
        for batch in chunk.batches:
            self.items += batch.items
            if self.items <= self.done:
                self.first = self.items

    def note(self, item: Item, why: DoesNotFit | CannotScore) -> None:
        """Take in an item that cannot be scored."""
        if isinstance(why, DoesNotFit):
            self.too_long.append(item.id)
            self.longest = max(self.longest, why.tokens)
        else:
            self.impossible[item.id] = str(why)


def chunked(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Cut items into runs that fit into memory when tokenized."""
    part: list[Item] = []
    chars = 0
    for item in items:
        part.append(item)
        chars += sum(len(item.context) + len(text) for text in item.continuations)
        if len(part) == CHUNK_ITEMS or chars >= CHUNK_CHARS:
            yield part
            part, chars = [], 0
    if part:
        yield part


class Chunks:
    """The chunks of a job; a job of a single one is read and tokenized once, a longer one a second time to score it.

    ``context`` is the most tokens that a sequence may have, ``threads`` how many tokenize.
    """

    def __init__(self, job: Job, vocabulary: Tokenizer, limits: Limits, context: int, threads: int) -> None:
        self.job, self.vocabulary, self.limits, self.context, self.threads = job, vocabulary, limits, context, threads
        self._only: Chunk | None = None

    def survey(self) -> Survey:
        """Look at everything; raises Refused for items that cannot be scored, by name."""
        survey = Survey(self.job.done)
        chunks = 0
        for chunk in self._read(survey):
            survey.add(chunk)
            chunks += 1
            self._only = chunk if chunks == 1 else None
        self._refuse(survey)
        if not chunks:
            raise Refused("cannot-score", f"{self.job.items} holds no items")
        return survey

    def __iter__(self) -> Iterator[Chunk]:
        return iter((self._only,)) if self._only is not None else self._read(Survey())

    def _read(self, survey: Survey) -> Iterator[Chunk]:
        # libllama's tokenizer only reads the vocabulary, and ctypes lets go of the interpreter meanwhile.
        with ThreadPoolExecutor(self.threads) as pool:
            for part in chunked(chosen_items(self.job.items, self.job.indices)):
                tokenized = []
                for item, found in zip(part, pool.map(self._tokenize, part), strict=True):
                    if isinstance(found, Tokenized):
                        tokenized.append(found)
                    else:
                        survey.note(item, found)
                if len(tokenized) == len(part):
                    yield Chunk(part, tokenized, planning.plan([branches(each) for each in tokenized], self.limits))

    def _tokenize(self, item: Item) -> Tokenized | DoesNotFit | CannotScore:
        try:
            return tokenize(item, self.job.settings, self.vocabulary, self.context)
        except (DoesNotFit, CannotScore) as error:
            return error

    def _refuse(self, survey: Survey) -> None:
        if survey.impossible:
            names = list(survey.impossible)
            raise Refused("cannot-score", f"{named(names)}: {survey.impossible[names[0]]}")
        if survey.too_long:
            what = f"up to {survey.longest} tokens, {self.context} fit"
            raise Refused("context-too-small", f"{named(survey.too_long)}: {what}")


def named(ids: list[str]) -> str:
    """Return "item a" or "items a, b and 7 more"."""
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return f"item{'s' * (len(ids) != 1)} {', '.join(ids[:NAMED])}{more}"

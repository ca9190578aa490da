"""Text as numbers, by the second edition's names.

>>> from d2lmini.compat.books.second.text import Vocab, bleu, tokenize
>>> tokens = tokenize(["the time machine", "the end"])
>>> vocab = Vocab(tokens, reserved_tokens=["<pad>"])
>>> vocab[["the", "moon"]], vocab.to_tokens([2, 5]), vocab.token_freqs[0]
([4, 1], ['end', 'time'], ('the', 2))
>>> bleu("the time machine", "the time machine", k=2)
1.0

The texts of the book are read from local files (`../files.py`). A subclass that defines `_download`
reads another text:

    class Letters(TimeMachine):
        def _download(self):
            return Path("letters.txt").read_text()
"""

from __future__ import annotations

import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from d2lmini import np
from d2lmini.compat.books.characters import data_iter_consecutive, data_iter_random
from d2lmini.compat.books.files import DATA_URL, download
from d2lmini.compat.books.second.oop import DataModule

#: Files of these classes: (address, SHA-1).
_TIME_MACHINE = (DATA_URL + "timemachine.txt", "090b5e7e70c295757f55df93cb0a180b9691891a")
_FRA_ENG = (DATA_URL + "fra-eng.zip", "94646ad1522d915e7b0f9296181140edcf86a4f5")


def tokenize(lines: Sequence[str], token: str = "word") -> list[list[str]]:
    """Each line as a list of words or ("char") of characters; ValueError for another `token`."""
    if token not in ("word", "char"):
        raise ValueError(f"tokenize: expected token 'word' or 'char', got {token!r}")
    return [line.split() if token == "word" else list(line) for line in lines]


class Vocab:
    """The tokens of a text and their indices, in alphabetical order.

    tokens: a list of tokens or of lists of tokens. min_freq: rarer tokens are left out.
    reserved_tokens: tokens that are added, such as "<pad>". Unknown tokens have the index of
    "<unk>". `token_freqs` is a list of (token, number), most frequent first.
    """

    def __init__(
        self, tokens: Sequence[Any] = (), min_freq: int = 0, reserved_tokens: Sequence[str] = ()
    ):
        if len(tokens) and isinstance(tokens[0], (list, tuple)):
            tokens = [token for line in tokens for token in line]
        self.token_freqs = Counter(tokens).most_common()
        frequent = [token for token, freq in self.token_freqs if freq >= min_freq]
        self.idx_to_token: list[str] = sorted({"<unk>", *reserved_tokens, *frequent})
        self.token_to_idx = {token: i for i, token in enumerate(self.idx_to_token)}

    def __len__(self) -> int:
        return len(self.idx_to_token)

    def __getitem__(self, tokens: Any) -> Any:
        """The index of a token; a list of indices for a list or tuple of tokens."""
        if isinstance(tokens, (list, tuple)):
            return [self[token] for token in tokens]
        return self.token_to_idx.get(tokens, self.unk)

    def to_tokens(self, indices: Any) -> Any:
        """The token of an index; a list of tokens for several indices."""
        indices = numpy.asarray(indices.asnumpy() if hasattr(indices, "asnumpy") else indices)
        if indices.size > 1:
            return [self.idx_to_token[int(i)] for i in indices]
        return self.idx_to_token[int(indices.item())]

    @property
    def unk(self) -> int:
        """The index of the unknown token."""
        return self.token_to_idx["<unk>"]


class TimeMachine(DataModule):
    """Characters of H. G. Wells' novel: X and Y, (batch_size, num_steps) indices, Y one character
    later. FileNotFoundError with the address if timemachine.txt is not on this machine."""

    def __init__(
        self, batch_size: int, num_steps: int, num_train: int = 10000, num_val: int = 5000
    ):
        super().__init__()
        self.save_hyperparameters()
        corpus, self.vocab = self.build(self._download())
        indices = numpy.array(corpus, "float32")
        if len(indices) <= num_steps:
            raise ValueError(
                f"TimeMachine: the text has {len(indices)} characters, "
                f"expected more than num_steps={num_steps}"
            )
        # A row for each place of the text where num_steps + 1 characters begin.
        rows = numpy.lib.stride_tricks.sliding_window_view(indices, num_steps + 1)
        self.X, self.Y = np.array(rows[:, :-1]), np.array(rows[:, 1:])

    def _download(self) -> str:
        address, sha1 = _TIME_MACHINE
        return Path(download(address, self.root, sha1)).read_text("utf-8")

    def _preprocess(self, text: str) -> str:
        """Lower-case letters; one space for anything else."""
        return re.sub("[^A-Za-z]+", " ", text).lower()

    def _tokenize(self, text: str) -> list[str]:
        return list(text)

    def build(self, raw_text: str, vocab: Vocab | None = None) -> tuple[list[int], Vocab]:
        """A text as (indices of its characters, their vocabulary)."""
        tokens = self._tokenize(self._preprocess(raw_text))
        if vocab is None:
            vocab = Vocab(tokens)
        return vocab[tokens], vocab

    def get_dataloader(self, train: bool) -> Any:
        """Batches from the first `num_train` places of the text, or from the next `num_val`."""
        return self._part([self.X, self.Y], train)


class _Sequences:
    """Batches of a text, each time from its beginning."""

    def __init__(self, corpus: list[int], batch_size: int, num_steps: int, at_random: bool):
        self.corpus, self.batch_size, self.num_steps = corpus, batch_size, num_steps
        self.batches = data_iter_random if at_random else data_iter_consecutive

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for X, Y in self.batches(self.corpus, self.batch_size, self.num_steps):
            yield X.as_np_ndarray(), Y.as_np_ndarray()


def load_data_time_machine(
    batch_size: int, num_steps: int, use_random_iter: bool = False, max_tokens: int = 10000
) -> tuple[Any, Vocab]:
    """Batches (X, Y) of the first `max_tokens` characters of the novel (all if not positive), and
    their vocabulary. A batch continues the one before unless `use_random_iter`."""
    data = TimeMachine(batch_size, num_steps)
    corpus, vocab = data.build(data._download())
    corpus = corpus[:max_tokens] if max_tokens > 0 else corpus
    return _Sequences(corpus, batch_size, num_steps, use_random_iter), vocab


class MTFraEng(DataModule):
    """Sentences in English and French: (source, target with <bos>, length of the source, target
    with <eos>), indices of shape (batch_size, num_steps); the length has shape (batch_size,).

    FileNotFoundError with the address if fra-eng.zip is not on this machine.
    """

    def __init__(
        self, batch_size: int, num_steps: int = 9, num_train: int = 512, num_val: int = 128
    ):
        super().__init__()
        self.save_hyperparameters()
        self.arrays, self.src_vocab, self.tgt_vocab = self._build_arrays(self._download())

    def _download(self) -> str:
        address, sha1 = _FRA_ENG
        path = download(address, self.root, sha1)
        with zipfile.ZipFile(path) as archive:
            return archive.read("fra-eng/fra.txt").decode("utf-8")

    def _preprocess(self, text: str) -> str:
        """Lower case, plain spaces, and a space before each mark."""
        text = re.sub("[\u202f\xa0]", " ", text).lower()
        return re.sub(r"(?<=[^ ])([,.!?])", r" \1", text)

    def _tokenize(
        self, text: str, max_examples: int | None = None
    ) -> tuple[list[list[str]], list[list[str]]]:
        """The words of both sides, each with <eos> at its end; lines without a tab are left out."""
        pairs = [line.split("\t") for line in text.split("\n")[:max_examples]]
        src = [[*pair[0].split(), "<eos>"] for pair in pairs if len(pair) == 2]
        tgt = [[*pair[1].split(), "<eos>"] for pair in pairs if len(pair) == 2]
        return src, tgt

    def _build_arrays(
        self, raw_text: str, src_vocab: Vocab | None = None, tgt_vocab: Vocab | None = None
    ) -> tuple[tuple[Any, ...], Vocab, Vocab]:
        num_examples = self.num_train + self.num_val
        src, tgt = self._tokenize(self._preprocess(raw_text), num_examples)
        num_steps = self.num_steps
        src = [truncate_pad(sentence, num_steps, "<pad>") for sentence in src]
        tgt = [["<bos>", *truncate_pad(sentence, num_steps, "<pad>")] for sentence in tgt]
        marks = ["<eos>", "<pad>"]
        src_vocab = src_vocab or Vocab(src, 2, marks)
        tgt_vocab = tgt_vocab or Vocab(tgt, 2, ["<bos>", *marks])
        src_array = np.array([src_vocab[sentence] for sentence in src])
        tgt_array = np.array([tgt_vocab[sentence] for sentence in tgt])
        valid_len = (src_array != src_vocab["<pad>"]).astype(np.int32).sum(1)
        arrays = (src_array, tgt_array[:, :-1], valid_len, tgt_array[:, 1:])
        return arrays, src_vocab, tgt_vocab

    def build(self, src_sentences: Sequence[str], tgt_sentences: Sequence[str]) -> tuple[Any, ...]:
        """The four arrays of other sentences, by the vocabularies of this data."""
        lines = [f"{src}\t{tgt}" for src, tgt in zip(src_sentences, tgt_sentences)]
        return self._build_arrays("\n".join(lines), self.src_vocab, self.tgt_vocab)[0]

    def get_dataloader(self, train: bool) -> Any:
        """Batches of the first `num_train` sentences, or of the next `num_val`."""
        return self._part(self.arrays, train)


def truncate_pad(line: Sequence[Any], num_steps: int, padding_token: Any) -> list[Any]:
    """The first `num_steps` elements, followed by `padding_token` where there are fewer."""
    return [*line[:num_steps], *[padding_token] * (num_steps - len(line))]


def bleu(pred_seq: str, label_seq: str, k: int) -> float:
    """How well a translation agrees with the right one, between 0 and 1; both are words and
    spaces.

    exp(min(0, 1 - label words / predicted words)) times, for n = 1 to k, the share of the predicted
    n-grams that are in the label, to the power of 1 / 2**n. After Papineni et al., "BLEU" (2002).
    """
    predicted, label = pred_seq.split(), label_seq.split()
    if not predicted:
        return 0.0
    score = math.exp(min(0, 1 - len(label) / len(predicted)))
    for n in range(1, min(k, len(predicted)) + 1):
        found = _ngrams(predicted, n) & _ngrams(label, n)
        score *= (found.total() / (len(predicted) - n + 1)) ** 0.5**n
    return score


def _ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each sequence of n words occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

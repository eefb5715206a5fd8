"""A model whose every log-probability is known by hand, and the scores that llama.cpp must give with it.

Llama architecture, one layer, attention and feed-forward weights zero, all embeddings equal: the hidden state is
the same after every context, so the next-token distribution is the softmax of one fixed vector of logits. The
vocabulary is byte-level SentencePiece: three control tokens, 256 byte tokens, the space piece and one piece for
a space followed by each capital letter. A file has about 100 kB and scores a question in well under a
millisecond, with the real engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SPACE = "\u2581"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CONTROL = ("<unk>", "<s>", "</s>")
_BYTES_AT = len(_CONTROL)
_SPACE_AT = _BYTES_AT + 256
BOS = 1
NORM_EPSILON = 1e-6
WIDTH = 32  # embedding length: the smallest that every backend's kernels accept


@dataclass(frozen=True)
class KnownAnswerModel:
    """The logits of the pieces; unset ones have the default spread. ``padding`` adds unused vocabulary.

    ``add_bos`` is stored in the file; ``nan`` writes NaN into the last norm, a model whose every logit is NaN.
    """

    letter_logits: tuple[float, ...] = tuple(6.0 - 0.5 * i for i in range(26))
    add_bos: bool = True
    padding: int = 0
    nan: bool = False
    context_length: int = 131072

    @cached_property
    def pieces(self) -> list[str]:
        bytes_ = [f"<0x{i:02X}>" for i in range(256)]
        words = [SPACE] + [SPACE + letter for letter in LETTERS]
        return [*_CONTROL, *bytes_, *words, *(f"<pad{i}>" for i in range(self.padding))]

    @cached_property
    def logits(self) -> list[float]:
        """One logit per piece. Byte logits are spread over -2..2 so that texts differ clearly in score."""
        control = [-4.0] * len(_CONTROL)
        bytes_ = [(i * 37 % 101) / 25 - 2 for i in range(256)]
        return [*control, *bytes_, 0.0, *self.letter_logits, *([-8.0] * self.padding)]

    @cached_property
    def logprobs(self) -> list[float]:
        top = max(self.logits)
        norm = top + math.log(sum(math.exp(x - top) for x in self.logits))
        return [x - norm for x in self.logits]

    def tokenize(self, text: str) -> list[int]:
        """Token ids as llama.cpp's SentencePiece tokenizer gives them for this vocabulary."""
        ids = [BOS] if self.add_bos else []
        i = 0
        while i < len(text):
            if text[i] == " " and i + 1 < len(text) and text[i + 1] in LETTERS:
                ids.append(_SPACE_AT + 1 + LETTERS.index(text[i + 1]))
                i += 2
            elif text[i] == " ":
                ids.append(_SPACE_AT)
                i += 1
            else:
                ids += [_BYTES_AT + byte for byte in text[i].encode("utf-8")]
                i += 1
        return ids

    def option_scores(self, question: str, options: Sequence[str], *, capped: bool = False) -> list[float]:
        """Mean log-probability of each option past the tokens that all options share (llama.cpp's rule).

        ``capped`` ends the shared tokens one before the end of the shortest option, so that none is left empty;
        without it such an option is a ValueError, as llama.cpp's score for it is undefined.
        """
        sequences = [self.tokenize(f"{question} {option}") for option in options]
        shared = 0
        while shared < min(map(len, sequences)) and len({s[shared] for s in sequences}) == 1:
            shared += 1
        if capped:
            shared = min(shared, min(map(len, sequences)) - 1)
        scores = []
        for sequence in sequences:
            rest = sequence[shared:]
            if not rest:
                raise ValueError("an option lies inside the common prefix: llama.cpp's score for it is undefined")
            scores.append(sum(self.logprobs[token] for token in rest) / len(rest))
        return scores

    def choice(self, question: str, options: Sequence[str]) -> int:
        """Index of the option llama.cpp picks: the first of the highest scores."""
        scores = self.option_scores(question, options)
        return scores.index(max(scores))

    def write(self, path: Path) -> Path:
        """Write the GGUF file and return its path."""
        import gguf
        import numpy as np

        vocab = len(self.pieces)
        writer = gguf.GGUFWriter(str(path), "llama")
        writer.add_name("known-answer")
        writer.add_context_length(self.context_length)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(1)
        writer.add_feed_forward_length(WIDTH)
        writer.add_head_count(1)
        writer.add_head_count_kv(1)
        writer.add_layer_norm_rms_eps(NORM_EPSILON)
        writer.add_rope_dimension_count(WIDTH)
        writer.add_vocab_size(vocab)
        writer.add_file_type(0)
        writer.add_tokenizer_model("llama")
        writer.add_token_list([piece.encode("utf-8") for piece in self.pieces])
        writer.add_token_scores([-2.0 if len(p) == 2 and p[0] == SPACE else -1.0 for p in self.pieces])
        kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
        kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (1 + len(LETTERS))
        kinds += [gguf.TokenType.UNUSED] * self.padding
        writer.add_token_types(kinds)
        writer.add_bos_token_id(BOS)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(self.add_bos)
        writer.add_add_space_prefix(False)

        def zeros(*shape: int) -> np.ndarray:
            return np.zeros(shape, np.float32)

        # The norm turns the unit vector e0 into e0 / sqrt(1 / WIDTH + epsilon); the output row undoes it.
        embedding, output = zeros(vocab, WIDTH), zeros(vocab, WIDTH)
        embedding[:, 0] = 1.0
        output[:, 0] = np.array(self.logits, np.float32) * math.sqrt(1 / WIDTH + NORM_EPSILON)
        ones = np.ones(WIDTH, np.float32)
        writer.add_tensor("token_embd.weight", embedding)
        writer.add_tensor("output_norm.weight", ones * np.nan if self.nan else ones)
        writer.add_tensor("output.weight", output)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.0.{name}.weight", ones)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            writer.add_tensor(f"blk.0.{name}.weight", zeros(WIDTH, WIDTH))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

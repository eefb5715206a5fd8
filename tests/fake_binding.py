"""A stand-in for the llama-cpp-python binding: the few calls that tokenize, in Python."""

from __future__ import annotations

import textwrap
from pathlib import Path

from llmc.engine.binding import Binding

# One token a word with its leading space, one a lone byte; BOS first unless the model's name has "nobos".
FAKE_BINDING = """
    import re, types

    def llama_log_callback(function): return function
    def llama_log_set(callback, data): pass
    def llama_backend_init(): pass
    def llama_model_default_params(): return types.SimpleNamespace(vocab_only=False, n_gpu_layers=-1)
    def llama_model_load_from_file(path, params):
        assert params.vocab_only and params.n_gpu_layers == 0
        return path
    def llama_model_get_vocab(model): return model
    def llama_vocab_n_tokens(vocab): return 1000
    def llama_vocab_get_add_bos(vocab): return b"nobos" not in vocab
    def llama_vocab_get_add_eos(vocab): return False

    def llama_tokenize(vocab, text, length, out, room, add_special, parse_special):
        assert len(text) == length and add_special is True and parse_special is False
        ids = [1] if llama_vocab_get_add_bos(vocab) else []
        ids += [2 + hash(piece) % 2**30 for piece in re.findall(rb" ?[A-Za-z]+|.", text, re.S)]
        if len(ids) > room: return -len(ids)
        out[:len(ids)] = ids
        return len(ids)
"""


def make_binding(folder: Path, more: str = "") -> Binding:
    binding = Binding(folder / "site", folder / "lib")
    package = binding.site / "llama_cpp"
    package.mkdir(parents=True)
    binding.lib.mkdir()
    (binding.lib / "libllama.so").write_bytes(b"library")
    (binding.site / "llama_cpp_python-0.3.36.dist-info").mkdir()
    (package / "__init__.py").touch()
    (package / "llama_cpp.py").write_text(textwrap.dedent(FAKE_BINDING) + textwrap.dedent(more))
    return binding

"""llmc: score GGUF models with llama.cpp, and refuse numbers that cannot be trusted."""

__version__ = "0.1.0"

"""Per-option log-probabilities from libllama, in a worker subprocess, and the metrics on top of them."""

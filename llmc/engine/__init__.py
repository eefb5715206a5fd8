"""llama.cpp on this machine: found, installed, probed, planned for, run, read and audited."""

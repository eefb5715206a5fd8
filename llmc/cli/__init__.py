"""Command groups, one file each: parse, call, print."""

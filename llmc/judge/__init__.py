"""From records to conclusions: paired statistics, comparison, and the gate."""

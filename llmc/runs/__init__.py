"""One cell, a model on a benchmark: from the plan to the record in the store."""

"""Questions: where they come from, how they are rendered, and the files built from them."""

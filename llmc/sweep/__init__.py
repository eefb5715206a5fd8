"""Many runs: the configuration, its cells, where they run, and how an interrupted sweep goes on."""

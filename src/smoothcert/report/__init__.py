"""One self-contained HTML page about runs: what was certified, how, and how well. Needs no torch and no network."""

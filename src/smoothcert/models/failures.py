"""What can come out of a model's own code."""

from __future__ import annotations

MODEL_FAILURES = (Exception, SystemExit, GeneratorExit)
"""Whatever it raises, except what a person does with Ctrl-C. A model that calls sys.exit(0) must not end a run as if
all were done.
"""

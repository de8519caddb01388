"""`python -m smoothcert`: the command line, where the console script is not on the path."""

from smoothcert.cli.main import run

run()

"""A script of somebody who had no test for `__main__`."""

import sys

sys.exit(0)

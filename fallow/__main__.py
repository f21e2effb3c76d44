"""Lets `python -m fallow` be the same command as `fallow`."""

import sys

from fallow.cli import main

sys.exit(main())

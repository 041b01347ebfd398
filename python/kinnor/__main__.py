"""`python -m kinnor`: the program `kinnor`."""

import sys

from kinnor_cli import main

sys.exit(main())

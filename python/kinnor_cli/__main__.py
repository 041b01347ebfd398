"""`python -m kinnor_cli`: the program `kinnor` where its script is not installed."""

import sys

from . import main

sys.exit(main())

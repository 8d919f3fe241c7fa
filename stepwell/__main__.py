"""`python -m stepwell` is the command `stepwell`."""

import sys

from stepwell.cli import main

sys.exit(main())

"""`python -m prestage` is the command `prestage`."""

import sys

from prestage.cli import main

sys.exit(main())

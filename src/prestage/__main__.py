"""`python -m prestage` is the command `prestage`."""

import sys

from prestage.target.cli import main

sys.exit(main())

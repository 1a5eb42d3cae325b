"""`python -m prestage.target.prestager SETTINGS`: started by the target, not by people."""

import sys

from prestage.target.prestager.process import main

sys.exit(main(sys.argv[1:]))

"""`perdure` with the test language: the same command line, to which `drill` was handed in."""

import sys
from pathlib import Path

from perdure.cli.main import main
from perdure.testing.drill import Drill
from perdure.wiring import add_language

if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as with `python -m perdure`
    add_language(Drill)
    sys.exit(main())

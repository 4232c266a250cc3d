"""The measured process: `python -m bench.measured MODULE FUNCTION SUBJECT FOLDER SIZES VARIANT LIFE HOME`."""

import importlib
import os
import sys
from pathlib import Path

from bench.scene import Scene, told
from bench.sizes import Sizes


def main() -> None:
    module, function, subject, folder, sizes, variant, life, home = sys.argv[1:]
    scene = Scene(subject, Path(folder), Sizes.load(sizes), variant, int(life), Path(home))
    figures = getattr(importlib.import_module(module), function)(scene)
    if figures is not None:
        told(figures)
    os._exit(0)  # threads that a peer leaves behind do not keep us


if __name__ == "__main__":
    main()

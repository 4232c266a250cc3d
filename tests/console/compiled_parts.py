"""Pure parts of the console, compiled by its own compiler and asked in Node, without a browser."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tools import build_console


def ask_part(folder: Path, module: str, program: str, asked: Any) -> Any:
    """What the program prints, as JSON; it reads `asked` from its input and may require the module."""
    node = str(shutil.which("node"))
    try:
        build_console.install()
    except build_console.PackagesMissing as missing:
        pytest.skip(f"the console cannot be built here: {missing}")
    packages = build_console.SOURCE / "node_modules"
    source = build_console.SOURCE / "src" / module
    options = ["--outDir", str(folder), "--module", "commonjs", "--target", "es2022", "--skipLibCheck", "--strict"]
    root = ["--rootDir", str(build_console.SOURCE / "src"), "--ignoreConfig"]
    compiler = str(packages / "typescript" / "lib" / "tsc.js")
    subprocess.run([node, compiler, str(source), *options, *root], check=True, capture_output=True)
    script = folder / "asked.js"
    script.write_text(program, "utf-8")
    environment = {**os.environ, "NODE_PATH": str(packages)}
    done = subprocess.run(
        [node, str(script)], input=json.dumps(asked), check=True, capture_output=True, text=True, env=environment
    )
    return json.loads(done.stdout)

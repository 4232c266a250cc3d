"""Draw the picture of a terminal in the README: `python -m tools.terminal_picture`.

The commands run in a new folder with the Perdure of this environment; what they print is drawn as it is.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "docs" / "terminal.svg"
COMMANDS = (
    "perdure init flow shop",
    "cd shop",
    "perdure test . --crash=all",
    """perdure run workflow.json --load ./tasks.py --input '{"item": "pen"}'""",
    "perdure show @latest",
)
COLUMNS = 88
FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
  <style>
    .{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
      line-height: {line_height}px; font-variant-east-asian: full-width; }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
    {styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">{matrix}</g>
  </g>
</svg>
"""


def main() -> None:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold"))
            if command.startswith("cd "):
                where /= command.removeprefix("cd ")
                continue
            console.print(Text.from_ansi(_printed(command, where)))
    PICTURE.write_text(
        console.export_svg(title="perdure", theme=MONOKAI, code_format=FRAME, unique_id="terminal"), encoding="utf-8"
    )


def _printed(command: str, folder: Path) -> str:
    """What a command prints on a terminal, without lines that it has written over."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    process = subprocess.Popen(
        command, shell=True, cwd=folder, env=environment, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    pieces = []
    while True:
        try:
            pieces.append(os.read(leader, 65536))
        except OSError:  # the other side is closed
            break
    process.wait()
    lines = b"".join(pieces).decode().replace("\r\n", "\n").split("\n")
    return "\n".join(re.sub(r"\x1b\[\d*[KJA]", "", line.rpartition("\r")[2]) for line in lines).rstrip("\n")


if __name__ == "__main__":
    main()

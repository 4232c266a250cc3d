"""What follows a failed run of the suite: `python -m tests.unstable`.

Hundreds of tests kill real servers and wait for what comes after. On a crowded machine one of them may fail for want of
processor time. So up to three failed tests run once more, one after the other, with nothing beside them and the same
samples. A test that fails again fails the run. One that passes is *unstable*: the run counts, and its last lines name
the test, because an unstable test is a defect of the test or of the product, and is to be repaired.
"""

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 3


def main() -> int:
    names = failed_tests(FAILED)
    if not names:
        print("no failed test is known: the run itself was broken", file=sys.stderr)
        return 1
    if len(names) > MOST:
        print(f"{len(names)} tests failed; only up to {MOST} are tried again", file=sys.stderr)
        return 1
    print(f"\ntrying {len(names)} failed tests again, alone: {', '.join(names)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *names], check=False).returncode
    if code == 0:
        print("UNSTABLE, failed in the full run and passed alone:", *names, sep="\n  ")
    return code


def failed_tests(cache: Path) -> list[str]:
    """Names of tests; none if something else than a test failed, such as the import of a module."""
    names = list(json.loads(cache.read_text())) if cache.exists() else []
    return names if all("::" in name for name in names) else []


if __name__ == "__main__":
    sys.exit(main())

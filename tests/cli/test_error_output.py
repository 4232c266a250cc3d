"""What goes wrong is told in one line and a hint; a traceback only to who asks for it."""

import re

import pytest
from tests.cli.commandline import CommandLine

from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit, exit_of_error, exit_of_status
from perdure.kernel.errors import Conflict, EngineStopped, InvalidDocument, RunNotFound
from perdure.kernel.outcomes import Status
from perdure.stores.errors import StoreFull, StoreMissing
from perdure.views.errors import ContextNotFound, ProviderNotFound


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.SUCCEEDED, 0), (Status.FAILED, 3), (Status.CANCELLED, 4), (Status.TIMED_OUT, 5)],
)
def test_a_final_status_has_its_exit_code(status: Status, code: int) -> None:
    assert exit_of_status(status) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineStopped("x"), 1),
        (StoreFull("x"), 1),
        (ValueError("x"), 1),
        (BadUsage("x"), 2),
        (InvalidDocument("x"), 7),
        (RunNotFound("x"), 8),
        (StoreMissing("x"), 8),
        (ProviderNotFound("x"), 8),
        (ContextNotFound("x"), 8),
        (FileNotFoundError(), 8),
        (Conflict("x"), 9),
        (FileExistsError(), 9),
        (PermissionError(), 10),
    ],
)
def test_an_error_has_the_exit_code_of_its_family(error: Exception, code: int) -> None:
    assert exit_of_error(error) is Exit(code)


def test_a_fault_is_one_line_and_a_traceback_on_demand(perdure: CommandLine) -> None:
    (perdure.folder / "fault.py").write_text(
        "from perdure.engine.client import Client\n\nasync def start(*_, **__):\n    raise TypeError('ouch')\n\n"
        "Client.start = start\n"
    )
    file = perdure.drill({"return": 1})
    done = perdure("run", file, "--load", "fault.py", "--json", code=1)

    assert done.err.startswith("perdure: unexpected TypeError: ouch\nhint: ")
    assert "PERDURE_DEBUG=1" in done.error["hint"]
    asked = perdure.start("run", file, "--load", "fault.py", PERDURE_DEBUG="1").end()
    assert 'raise TypeError("ouch")' in asked.err or "raise TypeError('ouch')" in asked.err


def test_a_stuck_run_is_shown_and_goes_on_after_the_repair(perdure: CommandLine) -> None:
    (perdure.folder / "faulty.py").write_text(
        "from perdure.testing.drill import Drill\n\nsound = Drill.__init__\n\ndef init(self):\n    sound(self)\n"
        "    self.trips['here'] = RuntimeError('a fault in the language')\n\nDrill.__init__ = init\n"
    )
    file = perdure.drill({"sleep": "1ms"}, {"trip": "here"}, {"return": "repaired"})
    done = perdure("run", file, "--load", "faulty.py", "--json", code=1)
    run = done.error["run"]

    assert done.error["code"] == "RUN-STUCK"
    assert "RuntimeError: a fault in the language" in done.error["message"]
    assert "a fault in the language" in perdure.row(run)["stuck"]
    assert "stuck: RuntimeError" in perdure.here("ps").out
    assert "a fault in the language" in perdure.here("show", run).out
    assert perdure("resume", run).out == "repaired\n"
    assert perdure.row(run)["stuck"] is None


def test_the_log_is_shown_as_plain_lines_as_far_as_asked_for(perdure: CommandLine) -> None:
    (perdure.folder / "tasks.py").write_text(
        "import perdure\n\n@perdure.provider('chat')\nasync def chat(context: perdure.TaskContext) -> int:\n"
        "    context.log('just saying')\n    context.log('mind this', 'warning')\n    return 1\n"
    )
    file = perdure.drill({"call": "chat"})
    usual = perdure("run", file, "--load", "tasks.py").err
    more = perdure("run", file, "--load", "tasks.py", "-v").err

    assert ": mind this\n" in usual and "just saying" not in usual
    assert re.search(r"^info: \S+ 0:/0: just saying$", more, re.MULTILINE)


def test_an_address_of_a_store_whose_kind_is_misspelt_does_not_show_its_password(perdure: CommandLine) -> None:
    for verb in (("ps",), ("db", "status")):
        done = perdure(*verb, "--db", "postgress://user:planted@localhost/x", code=None)

        assert "'postgress'" in done.err and "planted" not in done.err + done.out

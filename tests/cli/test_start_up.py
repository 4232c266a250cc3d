"""What every call pays, and what is found without knowing anything."""

import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine

from perdure.cli.main import main
from perdure.cli.verbs import VERBS

HEAVY = ("asyncio", "msgspec", "apsw", "httpx", "perdure.wiring", "perdure.engine", "perdure.kernel.events", "logging")


def _modules_after(code: str) -> set[str]:
    text = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nprint(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nonsense"]])
def test_help_and_version_import_nothing_heavy(words: list[str]) -> None:
    text = f"from perdure.cli.main import main; main({words!r})"
    loaded = _modules_after(text)

    assert set() == loaded & set(HEAVY)


def test_importing_the_package_imports_nothing_heavy_and_its_names_are_all_there() -> None:
    """SRV-004: nothing of the extra `server` either."""
    assert set() == _modules_after("import perdure") & {*HEAVY, "starlette", "uvicorn", "httptools", "anyio"}

    import perdure

    for name in perdure.__all__:
        assert getattr(perdure, name) is not None
    assert set(perdure.__all__) <= set(dir(perdure))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        perdure.nonsense  # noqa: B018


def test_help_costs_a_few_times_a_bare_interpreter() -> None:
    """A ratio of processor times, because machines differ and are shared; about 4."""

    def processor_time() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def cost(*words: str) -> float:
        rounds = []
        for _ in range(5):
            before = processor_time()
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            rounds.append(processor_time() - before)
        return min(rounds)

    assert cost("-m", "perdure", "--help") < 8 * cost("-c", "pass")


FIRST_RESULT = """
import asyncio, sys
from importlib import import_module
import perdure

@perdure.provider("step")
def step(input=None, value=None):
    return value if input is None else input

@perdure.engram("step")
def engram(inputs):
    return {"value": inputs["value"]}

async def main(name, folder):
    language = import_module(f"bench.languages.{name}").LANGUAGE
    async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
        await (await engine.start(language.sequence(1, "step"), language.given({"i": 1}))).result()

asyncio.run(main(*sys.argv[1:]))
print(*sorted(sys.modules))
"""

SELDOM = {"yaml", "zoneinfo", "difflib", "jsonschema_rs", "httpx", "importlib.resources", "perdure.expressions.regex"}
"""What the first result of a plain JSON document must not wait for."""


@pytest.mark.parametrize(
    ("language", "unneeded", "most"),
    [
        ("drill", {"jinja2", "perdure.expressions.cel", "perdure.expressions.gotemplate"}, 177),
        ("flow", {"jinja2", "perdure.expressions.gotemplate", "perdure.dialects.story.state.body"}, 288),
        ("playbook", {"perdure.expressions.cel", "perdure.expressions.gotemplate"}, 282),
        ("story", {"jinja2", "perdure.expressions.cel", "perdure.dialects.playbook.state.body"}, 337),
    ],
)
def test_a_first_result_waits_for_nothing_that_its_document_does_not_need(
    tmp_path: Path, language: str, unneeded: set[str], most: int
) -> None:
    """W6, counted in modules of ours: time would move with the machine."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_RESULT, language, str(tmp_path)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    loaded = set(done.stdout.split())

    assert set() == loaded & (SELDOM | unneeded)
    assert sum(name.startswith("perdure.") for name in loaded) <= most


def test_the_version_is_that_of_the_distribution(perdure: CommandLine) -> None:
    assert f"perdure {version('perdure')}\n" == perdure("--version").out


def test_help_names_every_verb_and_every_exit_code(perdure: CommandLine) -> None:
    text = perdure("--help").out

    for verb, (_, line) in VERBS.items():
        assert verb in text and line in text
    for number in range(11):
        assert f"{number} " in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_examples_and_exit_codes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    text = capsys.readouterr().out

    assert ended.value.code == 0
    assert f"usage: perdure {verb}" in text
    assert f"perdure {verb}" in text.partition("examples:")[2]
    assert "--json" in text and "--db" in text and "exit codes:" in text


def test_an_unknown_verb_is_a_usage_error_of_the_process(perdure: CommandLine) -> None:
    assert "there is no verb 'rnu'; did you mean 'run'?" in perdure("rnu", code=2).err
    assert "usage: perdure" in perdure(code=2).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--db", "x", "ps"), "options come after the verb"),
        (("run",), "the following arguments are required: FILE"),
        (("ps", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("run", "x.json", "--input", "{"), "--input: this is not JSON: line 1, column 2"),
        (("run", "x.json", "--input", "@nowhere.json"), "nowhere.json: No such file"),
        (("run", "x.json", "--set", "novalue"), "'novalue' is not of the form name=value"),
        (("run", "x.json", "--wait-timeout", "soon"), "'soon' is not a duration"),
        (("ps", "--since", "yore"), "'yore' is neither a time"),
        (("ps", "--status", "odd"), "invalid choice: 'odd'"),
        (("run", "x.json", "--wait", "--detach"), "not allowed with argument"),
    ],
)
def test_wrong_words_are_a_usage_error(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    captured = capsys.readouterr()

    assert ended.value.code == 2
    assert message in captured.err
    assert captured.out == ""

# ruff: noqa: T201 -- printing is what some of these are for
"""Functions that tests call by name, and isolated providers, which a subprocess must be able to import."""

import asyncio
import ctypes
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from perdure.providers.context import BlockingContext, TaskContext
from perdure.providers.registry import provider


def add(a: int, b: int = 2) -> int:
    return a + b


def everything(input: Any, context: BlockingContext, /, first: str, *more: str, **rest: Any) -> list[Any]:
    return [input, context.path, first, list(more), rest]


async def add_slowly(a: int, context: TaskContext) -> list[Any]:
    await asyncio.sleep(0)
    return [a, context.idempotency_key]


def leave_behind() -> dict[str, Any]:
    """What an earlier call has left in this process, before this one leaves the same."""
    result = {
        "module": "left_behind" in sys.modules,
        "environment": "LEFT_BEHIND" in os.environ,
        "folder": Path.cwd() == Path("/"),
    }
    sys.modules["left_behind"] = sys
    os.environ["LEFT_BEHIND"] = "1"
    os.chdir("/")
    return {"found": result, "pid": os.getpid()}


def raise_value_error() -> None:
    raise ValueError("no such colour")


def announce_and_sleep(name: str) -> None:
    with open(name, "w") as pipe:  # noqa: PTH123
        pipe.write("asleep")
    time.sleep(20)


not_a_function = 3


@provider("sample.add", isolated=True)
def isolated_add(a: int, b: int = 2) -> int:
    return a + b


@provider("sample.pid", isolated=True)
def process_id() -> int:
    return os.getpid()


@provider("sample.context", isolated=True)
def use_context(context: BlockingContext, input: Any) -> list[Any]:
    context.heartbeat({"at": 1})
    context.log("working", color="red", odd=object())
    context.emit_signal("ready", [1])
    once = context.effect_once("mail", lambda: "sent")
    recorded = context.record_effect("receipt", 7)
    return [context.run, context.attempt, once, recorded, input]


@provider("sample.coroutine", isolated=True)
async def use_context_in_coroutine(context: TaskContext) -> str:
    await asyncio.sleep(0)
    return await context.effect_once("mail", lambda: "sent")


def count_in(name: str) -> int:
    """One line more in a file; how many there are now."""
    with Path(name).open("a+") as file:
        file.write("performed\n")
        file.seek(0)
        return len(file.readlines())


@provider("sample.crowd", isolated=True)
def perform_in_threads(context: BlockingContext, name: str, callers: int) -> list[int]:
    together = threading.Barrier(callers)

    def call() -> int:
        together.wait()
        return context.effect_once("mail", lambda: count_in(name))

    with ThreadPoolExecutor(callers) as threads:
        return [item.result() for item in [threads.submit(call) for _ in range(callers)]]


@provider("sample.crowd-of-coroutines", isolated=True)
async def perform_in_coroutines(context: TaskContext, name: str, callers: int) -> list[int]:
    waiting = asyncio.Event()

    async def effect() -> int:
        await waiting.wait()
        return count_in(name)

    async def call(number: int) -> int:
        if number == callers - 1:
            waiting.set()
        return await context.effect_once("mail", effect)

    return await asyncio.gather(*(call(number) for number in range(callers)))


@provider("sample.unfit", isolated=True)
def perform_unfit(context: BlockingContext, name: str) -> Any:
    return context.effect_once("mail", lambda: object() if count_in(name) else None)


@provider("sample.stopped-effect", isolated=True)
async def perform_for_ever(context: TaskContext) -> None:
    async def effect() -> None:
        context.log("in flight")
        await asyncio.Event().wait()

    await context.effect_once("mail", effect)


@provider("sample.secret", isolated=True)
def tell_secret(context: BlockingContext) -> None:
    print(f"the token is {context.secrets['TOKEN']}")
    raise ValueError(f"refused {context.secrets['TOKEN']}")


@provider("sample.print", isolated=True)
def print_everywhere() -> str:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    sys.stdout.buffer.write(b"as bytes\n")
    os.write(1, b"past python\n")
    os.system("echo from a grandchild")
    return "printed"


@provider("sample.flood", isolated=True)
def print_too_much() -> None:
    for _ in range(3000):
        print("x" * 999)


@provider("sample.exit", isolated=True)
def leave() -> None:
    os._exit(3)


@provider("sample.segfault", isolated=True)
def crash() -> None:
    ctypes.string_at(0)


@provider("sample.system-exit", isolated=True)
def exit_politely() -> None:
    sys.exit(4)


@provider("sample.spin", isolated=True)
def spin() -> None:
    os.write(2, b"spinning\n")
    while True:
        pass


@provider("sample.deaf", isolated=True)
def ignore_cancel(context: BlockingContext) -> None:
    context.log("running")
    while True:
        time.sleep(0.01)


@provider("sample.listen", isolated=True)
def stop_when_cancelled(context: BlockingContext) -> None:
    context.log("running")
    while not context.cancelled:
        time.sleep(0.001)
    context.log("tidied up")


@provider("sample.await", isolated=True)
async def wait_in_coroutine(context: TaskContext) -> None:
    context.log("running")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await context.wait_cancelled()
        context.log("tidied up")


@provider("sample.eat", isolated=True)
def eat_memory() -> int:
    eaten = []
    while True:
        eaten.append(bytearray(16 << 20))


@provider("sample.abort", isolated=True)
def close_protocol() -> None:
    os.closerange(3, 50)


@provider("sample.nan", isolated=True)
def not_a_number() -> float:
    return float("nan")


@provider("sample.large", isolated=True)
def large(size: int) -> str:
    return "x" * size


@provider("sample.wait", isolated=True)
def print_and_wait() -> None:
    print(os.getpid())
    print("waiting")
    time.sleep(60)

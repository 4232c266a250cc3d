"""What the runs of the chaos workload do: `perdure serve --load` brings it. Everything is told to the receiver.

Tasks are the same for the three languages: providers for Flows and Playbooks, Engrams for Stories.
"""

import http.client
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import perdure

RECEIVER = "CHAOS_RECEIVER"


class NotToday(Exception):
    """The receiver refuses; the same call may succeed another time."""


def tell(path: str, /, **fields: Any) -> Any:
    """Somebody outside, reached over a real connection."""
    address = urlsplit(os.environ[RECEIVER])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        connection.request("POST", path, json.dumps({"process": os.getpid(), **fields}))
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise NotToday(f"{path}: {answer.status}")
    return json.loads(text)


def labour(what: str, context: Any, seconds: float = 0.0) -> Any:
    begin(what, context)
    time.sleep(seconds)
    return {"done": what}


def flaky(what: str, context: Any) -> Any:
    """Fails the first times it is asked for the same thing."""
    begin(what, context)
    tell("/flaky", what=what)
    return {"at last": what}


def charge(what: str, context: Any) -> Any:
    """An effect: once per key, whatever happens around it."""
    begin(what, context)

    def once() -> Any:
        fields = {"what": what, "key": context.idempotency_key, "delivery": context.delivery}
        return tell("/charge", run=run_of(context), path=path_of(context), **fields)["receipt"]

    return {"receipt": context.effect_once("charge", once)}


def begin(what: str, context: Any) -> None:
    answer = tell(
        "/began",
        what=what,
        run=run_of(context),
        path=path_of(context),
        attempt=context.attempt,
        delivery=context.delivery,
    )
    if answer.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)


def run_of(context: Any) -> str:
    return str(getattr(context, "_inner", context).run)


def path_of(context: Any) -> str:
    return str(getattr(context, "_inner", context).path)


def register(function: Callable[..., Any]) -> None:
    name = function.__name__
    perdure.provider(name)(function)

    def engram(inputs: dict[str, Any], context: perdure.EngramContext) -> Any:
        try:
            return function(context=context, **inputs)
        except NotToday as error:
            raise perdure.EngramError(str(error), exit_class="retry") from error

    perdure.engram(name, version="1.0.0")(engram)


for function in (labour, flaky, charge):
    register(function)

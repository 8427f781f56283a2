"""Reads recorded connections into the Python SDK's models, and tells what they say against them.

usage: python models.py < recordings > complaints   (runs in an environment that has the SDK)

Each line of the input is a recording, a JSON array of ``["agent" or "client", line]`` in order; each line of the output
is the JSON array of complaints about it. The models repair what they can, so a value must also come out as it went in.
They drop fields that are newer than they are; the published schema, which is newer, judges those.
"""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from acp.experimental.v2._methods import AGENT_NOTIFICATIONS, AGENT_REQUESTS, CLIENT_NOTIFICATIONS, CLIENT_REQUESTS
from acp.experimental.v2.schema import CancelRequestNotification, Error
from pydantic import TypeAdapter, ValidationError

ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
"""For methods that the SDK does not know."""
REQUESTS = {
    side: {spec.method: (spec.request, spec.response) for spec in specs}
    for side, specs in (("agent", AGENT_REQUESTS), ("client", CLIENT_REQUESTS))
}
NOTIFICATIONS = {
    "agent": {spec.method: spec.params for spec in AGENT_NOTIFICATIONS},
    "client": {spec.method: spec.params for spec in CLIENT_NOTIFICATIONS},
}
CANCEL = TypeAdapter(CancelRequestNotification)
ERROR = TypeAdapter(Error)


def against(adapter: TypeAdapter[Any], value: Any) -> list[str]:
    try:
        model = adapter.validate_python(value)
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)]
    except TypeError as error:
        return [f"the models fail: {error}"]
    back = adapter.dump_python(model, mode="json", by_alias=True, exclude_unset=True)
    return list(differences(value, back, ""))


def _request(side: str, method: str) -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    return REQUESTS[side].get(method, (ANYTHING, ANYTHING))


def differences(sent: Any, back: Any, path: str) -> Iterator[str]:
    """Where what came out is not what went in."""
    match sent, back:
        case dict(), dict():
            for name in sent.keys() & back.keys():
                yield from differences(sent[name], back[name], f"{path}.{name}")
        case list(), list() if len(sent) == len(back):
            for one, other in zip(sent, back, strict=True):
                yield from differences(one, other, f"{path}.*")
        case str(), str() if path.endswith("At") and datetime.fromisoformat(sent) == datetime.fromisoformat(back):
            pass
        case _ if sent == back:
            pass
        case _:
            yield f"{path}: became another value"


def check(recording: list[tuple[str, Any]]) -> Iterator[str]:
    asked: dict[tuple[str, Any], str] = {}
    for side, line in recording:
        server = "client" if side == "agent" else "agent"
        if "method" not in line:
            method = asked.pop((side, line["id"]), "")
            if "error" in line:
                found = against(ERROR, line["error"])
            else:
                found = against(_request(side, method)[1], line["result"])
            name = f"{side} answers {method}"
        else:
            method = name = line["method"]
            if "id" in line:
                asked[server, line["id"]] = method
                adapter = _request(server, method)[0]
            else:
                adapter = CANCEL if method == "$/cancel_request" else NOTIFICATIONS[server].get(method, ANYTHING)
            found = against(adapter, line.get("params"))
            if method == "session/update":
                name = f"{method} {line['params']['update'].get('sessionUpdate')}"
        yield from (f"{name}: {complaint}" for complaint in found)


for recording in sys.stdin:
    print(json.dumps(sorted(set(check(json.loads(recording))))), flush=True)

"""What Codex says of a configuration names what is wrong, and no value: those may be tokens."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.errors import RuntimeFault
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.responses_api import ResponsesService
from sayagain_codex.runtime import CodexRuntime
from sayagain_codex.values import without_values
from support_codex import codex_environment

PLACE = "/home/u/.codex/config.toml:5:16: "


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('invalid type: string "Bearer sk-1", expected a map', 'invalid type: string "…", expected a map'),
        ('invalid type: string "/sk-1", expected a map', 'invalid type: string "…", expected a map'),
        ('invalid type: string "a \\"sk-1\\" b", expected a map', 'invalid type: string "…", expected a map'),
        ("invalid type: integer `41`, expected a string", 'invalid type: integer "…", expected a string'),
        ("invalid type: floating point `4.1`, expected a map", 'invalid type: floating point "…", expected a map'),
        ("invalid type: map, expected a string", "invalid type: map, expected a string"),
        ("unknown variant `sk-1`, expected one of `a`, `b`", "unknown variant `…`, expected one of `a`, `b`"),
        ("unknown variant `sk\n`-\"1`, expected `a` or `b`", "unknown variant `…`, expected `a` or `b`"),
        ("unknown variant `sk-1", "unknown variant `…`"),
        ("unknown field `evn`, expected `env`", "unknown field `evn`, expected `env`"),
        ("missing field `command`", "missing field `command`"),
        ('legacy `profile = "sk-1"` is no longer supported', 'legacy `profile = "…"` is no longer supported'),
        ('invalid basic string, expected `"`', 'invalid basic string, expected `"`'),
        ('it begins with "sk-1', 'it begins with "…"'),
        ('\n5 | env = sk-1\n  |       ^^^^\nnot "sk-1"', '\n5 | …\n  |       ^^^^\nnot "…"'),
        ("request for url (http://u:sk-1@h:9/sk-1?k=sk-1)", "request for url (http://h:9/…)"),
        ("request for url (https://h)", "request for url (https://h/…)"),
        ('HOME points to "/nowhere", which is not there', 'HOME points to "/nowhere", which is not there'),
        ('Os { code: 2, message: "No such file" }', 'Os { code: 2, message: "No such file" }'),
        ('Custom { error: "invalid type: string \\"sk-1\\", expected a map" }',
         'Custom { error: "invalid type: string \\"…\\", expected a map" }'),
        ("key with no value, expected `=`", "key with no value, expected `=`"),
    ],
)  # fmt: skip
def test_values_are_cut_and_what_helps_stays(said: str, told: str) -> None:
    assert without_values(PLACE + said) == PLACE + told
    assert without_values(PLACE + told) == PLACE + told


@given(st.text(min_size=1))
def test_no_text_in_rusts_notation_gets_through(value: str) -> None:
    quoted = "".join(f"\\{sign}" if sign in '"\\' else sign for sign in value)
    told = without_values(f'invalid type: string "{quoted}", expected a map')
    assert told == 'invalid type: string "…", expected a map'


@pytest.mark.real
@pytest.mark.parametrize("auth", [True, False])
@pytest.mark.parametrize("line", ['approval_policy = "sk-1"', 'notify = "sk-1"', "project_doc_max_bytes = 'sk-1 \"'"])
async def test_what_codex_says_of_a_broken_configuration_is_understood(
    folder: Path, service: ResponsesService, cwd: str, caplog: pytest.LogCaptureFixture, auth: bool, line: str
) -> None:
    caplog.set_level(logging.DEBUG)
    env = codex_environment(folder, service, auth=auth)
    config = Path(env["CODEX_HOME"], "config.toml")
    config.write_text(f"{line}\n{config.read_text(encoding='utf-8')}", encoding="utf-8")
    with anyio.fail_after(60):
        async with CodexRuntime(env) as runtime:
            await runtime.warm_up()
            with pytest.raises(RuntimeFault) as refused:
                await runtime.new(SessionSetup(cwd))
    assert f"{config}:1:" in str(refused.value)
    assert "…" in str(refused.value)
    assert "sk-1" not in str(refused.value)
    assert "sk-1" not in caplog.text

"""How long a hung runtime is waited for is the environment's to say."""

from __future__ import annotations

import pytest

from sayagain.errors import RuntimeFault
from sayagain.processes.patience import BasePatience
from sayagain_claude.patience import Patience as ClaudePatience
from sayagain_codex.patience import Patience as CodexPatience

RUNTIMES = [ClaudePatience, CodexPatience]


@pytest.mark.parametrize("patience", RUNTIMES)
@pytest.mark.parametrize(
    ("env", "answer"), [({}, 30.0), ({"SAYAGAIN_PATIENCE": ""}, 30.0), ({"SAYAGAIN_PATIENCE": "1.5"}, 1.5)]
)
def test_patience_comes_from_the_environment(patience: type[BasePatience], env: dict[str, str], answer: float) -> None:
    assert patience.from_env(env) == patience(answer=answer, finish=2.0)


def test_what_takes_longer_follows() -> None:
    env = {"SAYAGAIN_PATIENCE": "1.5"}
    assert ClaudePatience.from_env(env).start == 3.0
    assert CodexPatience.from_env(env).long == 6.0


@pytest.mark.parametrize("patience", RUNTIMES)
@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan", "inf"])
def test_what_is_no_time_is_an_error(patience: type[BasePatience], given: str) -> None:
    with pytest.raises(RuntimeFault, match="SAYAGAIN_PATIENCE must be a number of seconds above 0"):
        patience.from_env({"SAYAGAIN_PATIENCE": given})

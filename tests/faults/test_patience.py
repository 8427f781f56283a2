"""How long a hung runtime is waited for is the environment's to say."""

from __future__ import annotations

import pytest

from sayagain.errors import RuntimeFault
from sayagain_claude.patience import Patience


@pytest.mark.parametrize(
    ("env", "answer"), [({}, 30.0), ({"SAYAGAIN_PATIENCE": ""}, 30.0), ({"SAYAGAIN_PATIENCE": "1.5"}, 1.5)]
)
def test_patience_comes_from_the_environment(env: dict[str, str], answer: float) -> None:
    patience = Patience.from_env(env)
    assert (patience.answer, patience.start, patience.finish) == (answer, 2 * answer, 2.0)


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan", "inf"])
def test_what_is_no_time_is_an_error(given: str) -> None:
    with pytest.raises(RuntimeFault, match="SAYAGAIN_PATIENCE must be a number of seconds above 0"):
        Patience.from_env({"SAYAGAIN_PATIENCE": given})

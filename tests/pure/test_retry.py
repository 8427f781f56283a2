"""The retry classes cover exactly the methods that exist, and agree with the spec of keyed prompts."""

from __future__ import annotations

import pytest

from sayagain.protocol.v2.methods import METHODS
from sayagain.retry import RETRY, RetryClass, RetryRule


def of_class(retry_class: RetryClass) -> set[str]:
    return {rule.method for rule in RETRY.values() if rule.retry_class is retry_class}


def test_every_method_has_a_rule_and_every_rule_a_method() -> None:
    assert set(RETRY) == {method.name for method in METHODS}


def test_no_method_is_in_two_classes() -> None:
    assert sum(len(of_class(retry_class)) for retry_class in RetryClass) == len(RETRY)
    assert all(name == rule.method for name, rule in RETRY.items())


def test_the_methods_that_the_spec_names() -> None:
    assert of_class(RetryClass.KEYED) == {"session/prompt"}
    assert of_class(RetryClass.DUPLICATING) == {"session/new", "session/fork"}
    assert {"session/close", "session/delete", "session/resume"} <= of_class(RetryClass.SAFE)


def test_only_requests_are_ever_resent() -> None:
    requests = {method.name for method in METHODS if method.kind == "request"}
    assert {name for name, rule in RETRY.items() if rule.retry_class is not RetryClass.DO_NOT_RESEND} <= requests


def test_what_asks_the_user_is_never_resent() -> None:
    assert {"session/request_permission", "elicitation/create", "auth/login"} <= of_class(RetryClass.DO_NOT_RESEND)


@pytest.mark.parametrize("rule", RETRY.values(), ids=lambda rule: rule.method)
def test_every_rule_gives_a_reason(rule: RetryRule) -> None:
    assert rule.reason.endswith(".")
    assert len(rule.reason) > 10


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        RETRY["session/prompt"] = RETRY["session/new"]  # type: ignore[index]

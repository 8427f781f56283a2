"""Message ids from keys, and which strings are keys (KEY-1, KEY-8, KEY-11, SUB-2)."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.errors import InvalidParams
from sayagain.identity import (
    KEY_LENGTH,
    child_session_id,
    derive_message_id,
    fresh_message_id,
    new_session_id,
    validate_key,
)

SESSION = "7d4bb5a2-0a10-4f9e-9c6c-0d7c7f2f6a11"


@pytest.mark.parametrize("key", ["k", "k" * 255, "\U0001f511" * 255, "\0", " ", "\n", "é", "ключ"])
def test_a_key(key: str) -> None:
    assert validate_key(key) == key


def test_null_is_no_key() -> None:
    assert validate_key(None) is None


@pytest.mark.parametrize("key", ["", "k" * 256, "\ud800", "a\udfffb", b"k", 1, 1.5, True, False, [], {}, ("k",)])
def test_anything_else_is_an_error_that_names_the_field_and_not_the_value(key: object) -> None:
    with pytest.raises(InvalidParams) as caught:
        validate_key(key)
    assert caught.value.field == "idempotencyKey"
    if isinstance(key, str) and len(key) > 1:
        assert key not in str(caught.value)


def test_the_id_is_the_one_of_the_spec() -> None:
    assert derive_message_id(SESSION, "key") == str(uuid.uuid5(uuid.UUID(SESSION), "key"))


def test_a_known_value_stays_what_it_is() -> None:
    """Stored messages of older versions are found by it."""
    assert derive_message_id(SESSION, "key-1") == "261a768b-a04b-5991-806b-36f4f6ef8537"
    assert derive_message_id("no-uuid", "key-1") == "aac83f86-7cb8-5136-8c0b-cb91ed25dad2"


@given(st.text(min_size=1, max_size=KEY_LENGTH), st.text(min_size=1, max_size=KEY_LENGTH), st.uuids(), st.uuids())
def test_ids_are_equal_for_equal_keys_of_one_session_alone(one: str, two: str, a: uuid.UUID, b: uuid.UUID) -> None:
    try:
        validate_key(one), validate_key(two)
    except InvalidParams:
        return
    assert derive_message_id(str(a), one) == derive_message_id(str(a), one)
    assert (derive_message_id(str(a), one) == derive_message_id(str(a), two)) == (one == two)
    assert (derive_message_id(str(a), one) == derive_message_id(str(b), one)) == (a == b)


@pytest.mark.parametrize("session_id", ["thread_1", "", "x" * 1000, "../x", f"{SESSION}.child"])
def test_a_session_id_that_is_no_uuid_has_a_namespace_of_its_own(session_id: str) -> None:
    made = derive_message_id(session_id, "key")
    assert uuid.UUID(made).version == 5
    assert made != derive_message_id(session_id + "x", "key")
    assert made != derive_message_id(SESSION, "key")


def test_fresh_ids_are_unique_and_sorted_by_time() -> None:
    ids = [fresh_message_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert ids == sorted(ids)
    assert {uuid.UUID(each).version for each in ids} == {7}


def test_session_ids() -> None:
    assert uuid.UUID(new_session_id()).version == 4
    assert new_session_id() != new_session_id()
    assert child_session_id(SESSION, "agent-1") == f"{SESSION}.agent-1"

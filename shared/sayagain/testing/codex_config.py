"""The configuration with which Codex knows no model service but a stand-in, and tells nobody that it runs."""

from __future__ import annotations

__all__ = ["stand_in_config"]


def stand_in_config(url: str, *, model: str = "stand-in", more: str = "", auth: bool = False, retries: int = 0) -> str:
    """The ``config.toml``: ``url`` is a :class:`~sayagain.testing.responses_api.ResponsesService`'s.

    ``more`` are lines of the configuration's own, ``auth`` has Codex ask for a key, and ``retries`` is how often it
    asks the service again.
    """
    return f"""\
model = "{model}"
model_provider = "stand-in"
{more}
[model_providers.stand-in]
name = "Stand-in"
base_url = "{url}/v1"
wire_api = "responses"
requires_openai_auth = {str(auth).lower()}
request_max_retries = {retries}
stream_max_retries = {retries}

[analytics]
enabled = false
"""

"""One ACP v2 agent over any runtime (design section 4)."""

from sayagain.agent.agent import Agent

__all__ = ["Agent"]

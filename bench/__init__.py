"""Measurements of sayagain's Claude Code agent, side by side with the existing npm adapter: ``python -m bench``."""

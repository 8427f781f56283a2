"""Measurements of sayagain's agents, side by side with the existing npm adapters: ``python -m bench``."""

"""Send it again: it lands once. Ask for the replay: it says when it is whole.

sayagain stands in front of coding-agent runtimes and speaks the Agent Client Protocol v2 for them. The packages
below are the house; ``docs/architecture.md`` is the map.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"

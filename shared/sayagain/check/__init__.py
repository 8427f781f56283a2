"""Conformance checks for any ACP v2 agent over stdio, ours or not.

``sayagain check -- CMD`` runs them; :func:`sayagain.check.runner.run_checks` does the same from a program. A check is
data (a rule, its source, how binding it is) and a function that tries it over the raw wire; see
:mod:`sayagain.check.model`.
"""

from __future__ import annotations

__all__: list[str] = []

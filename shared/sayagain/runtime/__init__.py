"""The seam between the agent core and a coding-agent runtime (design section 3).

``seam`` says what a runtime must offer, ``capabilities`` what it can do beyond that, ``events`` what it reports while
it works, ``history`` what its stored sessions yield. An adapter implements :class:`~sayagain.runtime.seam.Runtime` and
:class:`~sayagain.runtime.seam.RuntimeSession` and nothing else.

Each is imported from its own module: all of them together take a tenth of the time until ``initialize`` is answered.
"""

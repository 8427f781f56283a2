"""The ACP v2 wire, stable and unstable, as TypedDicts in wire form (camelCase keys).

One module per concept; ``methods`` is the table of all methods, ``validate`` checks a value against a type. Importing
this package imports none of them: what answers ``initialize`` must stay small.

Sources: the two specs (``idempotencyKey``, ``replay_complete``), then the published v2 schema. Conventions:

* ``NotRequired`` is a field that may be left out; ``| None`` one that may be ``null``. Both mean the same except in
  patches, where ``null`` clears (RPC-6, UPD-3). Readers may also meet ``null`` where the schema tells them to take it
  for an empty list or object; those fields say ``| None`` too.
* Unknown fields are legal everywhere and survive, as do unknown variants and unknown enum values (RPC-5): a tagged
  union ends in an ``Unknown...`` member, an open enum is a ``str`` with its known values noted.
* Every object may carry ``_meta``.
"""

__all__: list[str] = []

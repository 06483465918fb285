"""Payloads, shared by suites and figures."""

from __future__ import annotations

from typing import Any

from bench.tasks import TEXT

CALL: tuple[int, str] = (4711, TEXT)

HASH_INPUT = b"x" * 60  # what a hash of a call is measured against

# 11 dicts, 165 bytes as msgpack.
NESTED: dict[str, Any] = {
    "order": {"id": 4711, "paid": True},
    "user": {"name": "Adele", "tags": {"vip": 1}, "home": {"zip": "1000", "geo": {"lat": 52.5, "lon": 13.4}}},
    "items": [{"sku": "A-1", "n": 2}, {"sku": "B-2", "n": 1}, {"sku": "C-3", "n": 5}],
    "meta": {"v": 3, "flags": {"gift": False, "note": None}},
}

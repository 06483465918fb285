"""What about a server would hurt its jobs: told once, by whoever starts a worker."""

from __future__ import annotations

from typing import Any

import hiredis

from fastq.broker.requests import Request


def health() -> Request[list[str]]:
    """Ask for what is worth a warning. Reads: sentences that say what is wrong and what to do; nothing when all is well."""
    commands = ((b"INFO", b"memory"), (b"INFO", b"persistence"), (b"INFO", b"replication"), (b"CONFIG", b"GET", b"save"))
    return Request(_read, commands=commands, tolerant=True)


def _read(replies: list[Any]) -> list[str]:
    info: dict[str, str] = {}
    for reply in replies[:3]:
        if isinstance(reply, bytes):
            for line in reply.decode("utf-8", "replace").splitlines():
                name, _, value = line.partition(":")
                info[name] = value
    warnings = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        warnings.append(
            f"this Redis evicts keys when its memory is full (maxmemory-policy {policy}): jobs and locks can vanish;"
            " set maxmemory-policy noeviction"
        )
    save = replies[3]
    no_snapshots = isinstance(save, list) and len(save) == 2 and not save[1]
    if info.get("aof_enabled") == "0" and (no_snapshots or isinstance(save, hiredis.ReplyError)):
        warnings.append(
            "this Redis keeps nothing on disk: a restart loses every job; set appendonly yes (appendfsync everysec loses a second"
            " at the most)"
        )
    if info.get("role") == "slave":
        warnings.append("this Redis is a replica: it refuses writes; give the URL of its primary, or of a Sentinel")
    return warnings

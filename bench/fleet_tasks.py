"""The app that fleets are measured with. Its server is $FASTQ_URL."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from fastq import FastQ

ROUNDS = int(os.environ.get("FASTQ_BENCH_ROUNDS", "500"))  # of a loop: so many take 20 us here, as `rounds_of` finds
LEDGER = os.environ.get("FASTQ_BENCH_LEDGER", "")
_RECORD = struct.Struct("<qd")

app = FastQ(namespace="bench-fleet")


@app.task
async def spin() -> None:
    """Some microseconds of Python, without a wait."""
    turn(ROUNDS)


@app.task
async def nap(seconds: float) -> None:
    """Wait, as a job does that talks to somebody."""
    await asyncio.sleep(seconds)


@app.task
async def sign(number: int, sent: float) -> None:
    """Put its number into the ledger, and how long it took from `sent`, by time.monotonic()."""
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND)
    os.write(ledger, _RECORD.pack(number, time.monotonic() - sent))
    os.close(ledger)


def signed(ledger: Path) -> Iterator[tuple[int, float]]:
    """What `sign` has put into a ledger: numbers and seconds."""
    yield from _RECORD.iter_unpack(ledger.read_bytes())


def turn(rounds: int) -> int:
    """A loop in plain Python."""
    total = 0
    for number in range(rounds):
        total += number
    return total


def rounds_of(seconds: float) -> int:
    """How many rounds of `turn` take so long on this machine, when nothing disturbs it."""
    fastest = float("inf")
    for _ in range(50):
        begun = time.perf_counter()
        turn(10_000)
        fastest = min(fastest, time.perf_counter() - begun)
    return round(10_000 * seconds / fastest)

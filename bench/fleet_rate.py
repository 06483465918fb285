"""How many jobs that wait a fleet runs: 8 processes, concurrency 50, jobs that sleep 100 ms; 4,000 a second at the most.

python bench/fleet_rate.py [redis://...]     # a private server by default
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fastq import FastQ

PROCESSES, CONCURRENCY, NAP, MEASURED = 8, 50, 0.1, 5.0

app = FastQ(namespace="bench-fleet")


@app.task
async def nap() -> None:
    """Wait, as a job does that talks to somebody."""
    await asyncio.sleep(NAP)


@contextlib.contextmanager
def _fleet(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "fastq.cli", "worker", "fleet_rate:app", "--log-level", "error", *options]
    with subprocess.Popen(command, cwd=Path(__file__).parent) as fleet:
        yield fleet
        fleet.send_signal(signal.SIGTERM)


def _succeeded() -> int:
    return app.queue().counts().totals.get("succeeded", 0)


def main() -> None:
    """Measure, and print the rate."""
    url = sys.argv[1] if len(sys.argv) > 1 else f"embedded://{tempfile.mkdtemp()}"
    os.environ["FASTQ_URL"] = url
    most = PROCESSES * CONCURRENCY / NAP
    nap.enqueue_many((() for _ in range(int(most * (MEASURED + 10)))), handles=False)
    with _fleet("--processes", str(PROCESSES), "--concurrency", str(CONCURRENCY)):
        while _succeeded() < 2 * most:  # all serve
            time.sleep(0.1)
        before, begun = _succeeded(), time.monotonic()
        time.sleep(MEASURED)
        rate = (_succeeded() - before) / (time.monotonic() - begun)
        print(f"{rate:,.0f} jobs/s, {rate / most:.0%} of what the slots can do; load {os.getloadavg()[0]:.1f}")
        app.queue().purge()


if __name__ == "__main__":
    main()

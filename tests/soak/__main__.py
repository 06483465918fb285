"""The soak: a mix of jobs under random faults, and a ledger that must be right at the end.

    python -m tests.soak --minutes 10 --seed 7

Exits with 1 if anything is not as it must be; the same seed makes the same choices (not the same timing).
"""

import argparse
import logging
import random
import secrets
import sys
import tempfile
import time
from pathlib import Path

from fastq import FastQ
from fastq.keys import QueueKeys
from tests.cases.laws import dead_jobs, drained, what_is_left
from tests.cases.site import Site
from tests.soak.chaos import Chaos
from tests.soak.mix import Calls, Producer
from tests.soak.pulse import Pulse
from tests.soak.verdict import Evidence, Verdict, judge
from tests.support.process import Child
from tests.support.proxy import Proxy
from tests.support.servers import KINDS, Server

DRAIN_TIMEOUT = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Random faults, and a ledger that must be right.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--lease", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--producers", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.03, metavar="SECONDS", help="mean time between the calls of a producer")
    parser.add_argument("--server", choices=KINDS)
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep what each worker says, by its pid")
    parser.add_argument("--appendfsync", choices=("always", "everysec"), default="always")
    args = parser.parse_args()
    if not sys.flags.safe_path:
        print("note: `python -P -m` would test the installed package", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="fastq-soak-") as folder, Server(args.server, aof=args.appendfsync) as server:
        print(f"seed {args.seed}, {server.binary}, appendfsync {args.appendfsync}, lease {args.lease:g} s", flush=True)
        with Proxy(server) as proxy:
            verdict = soak(args, server, proxy, Path(folder))
    for line in verdict.lines():
        print(line)
    if args.appendfsync == "everysec" and not verdict.good:
        print("with appendfsync everysec a restart of the server loses up to a second of acknowledged writes")
    return 0 if verdict.good else 1


def soak(args: argparse.Namespace, server: Server, proxy: Proxy, folder: Path) -> Verdict:
    """Run it, and judge."""
    logging.getLogger("fastq").setLevel(logging.ERROR)  # of locks that may end before their jobs: on purpose here
    chance = random.Random(args.seed)
    site = Site(server, "soak", folder, lease=args.lease, max_crashes=50)
    calls = Calls()

    def start_worker() -> Child:
        return site.start_worker(url=proxy.url, concurrency=20, grace=5, policies=True)

    workers = [start_worker() for _ in range(args.workers)]
    site.ready(*workers)
    producers = [
        Producer(FastQ(proxy.url, namespace="soak", **site.options), calls, f"p{n}", chance.getrandbits(32), args.pause)
        for n in range(args.producers)
    ]
    chaos = Chaos(server, proxy, workers, start_worker, lease=args.lease, seed=chance.getrandbits(32))
    try:
        begun = time.monotonic()
        with Pulse(server) as pulse:
            for producer in producers:
                producer.start()
            chaos.run(args.minutes * 60)
            for producer in producers:
                producer.stop()
        took = time.monotonic() - begun
        client = server.client()
        left: dict[str, object] = {}
        try:
            drained(client, "soak", DRAIN_TIMEOUT)
        except AssertionError:
            left = what_is_left(client, "soak")
        succeeded = int(client.hget(QueueKeys("soak", "default").stats, "succeeded") or 0)
        print(f"{len(calls.accepted)} jobs accepted, {calls.refused} refused, {len(calls.uncertain)} uncertain, in {took:.0f} s;",
              ", ".join(f"{kind} {count}" for kind, count in sorted(chaos.harm.events.items())), flush=True)  # fmt: skip
        return judge(
            Evidence(calls, chaos.harm, pulse, site.reading(), succeeded, dead_jobs(client, "soak"), left, args.lease)
        )
    finally:
        for producer in producers:
            producer._stop.set()
        for worker in site.workers:
            worker.close()
            if args.logs:
                args.logs.mkdir(parents=True, exist_ok=True)
                (args.logs / str(worker.pid)).write_text(worker.stderr)
        site.app.close()


if __name__ == "__main__":
    sys.exit(main())

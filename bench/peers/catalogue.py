"""The systems: what to install, how many jobs each is given, and what it was told to be fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class System:
    """One task queue, in one mode.

    `program`: the module of `systems` that drives it. `packages`: what its environment has, itself first; none is fastq as
    this Python has it. `python`: the least version that it takes. `jobs`: for each load that it has, how many jobs make a
    few seconds of it; a load that is missing is one that it cannot do. `whole`: its worker starts processes by itself,
    otherwise one is started for each. `variables`: of its programs' environment.
    """

    name: str
    program: str
    packages: tuple[str, ...]
    settings: str
    jobs: Mapping[str, int]
    python: tuple[int, int] = (3, 11)
    whole: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


FASTQ = System(
    name="fastq",
    program="fastq",
    packages=(),
    settings="enqueue; aenqueue under uvloop; one enqueue_many; worker(concurrency=100), no results; async tasks;"
    " Unique(ttl=86400): until the job has ended",
    jobs={
        "one": 20_000,
        "in_flight": 60_000,
        "bulk": 500_000,
        "unique_one": 20_000,
        "unique_in_flight": 40_000,
        "unique_bulk": 200_000,
        "drain_1": 500_000,
        "drain_2": 500_000,
        "lone": 50_000,
    },
)

PEERS = (
    System(
        name="ardiq",
        program="ardiq",
        packages=("ardiq", "uvloop"),
        settings="concurrency=100, prefetch=200, result_ttl_ms=0; enqueue_many of 1,000; its serve() under uvloop, which its own"
        " command does not use; async tasks; unique=True: until the job has ended",
        jobs={
            "one": 10_000,
            "in_flight": 20_000,
            "bulk": 60_000,
            "unique_one": 10_000,
            "unique_in_flight": 20_000,
            "unique_bulk": 60_000,
            "drain_1": 30_000,
            "drain_2": 30_000,
            "lone": 20_000,
        },
        python=(3, 13),
    ),
    System(
        name="mayu",
        program="mayu",
        packages=("mayu",),
        settings="worker --mode thread --threads 2 --prefetch-multiplier 500, no results; sync tasks; in flight: 8 threads; on a"
        " Python with a GIL (its makers advise a free-threaded one)",
        jobs={"one": 15_000, "in_flight": 40_000, "drain_1": 60_000, "drain_2": 60_000, "lone": 40_000},
        python=(3, 13),
    ),
    System(
        name="blitzq fast",
        program="blitzq",
        packages=("blitzq", "hiredis", "uvloop"),
        settings='mode="fast" (at most once: a job that a worker has taken is lost with it), store_results=False, concurrency and'
        " batch_size 1000, enqueue_many of 1,000; its Worker under uvloop, which its own command does not use; async tasks",
        jobs={"one": 10_000, "in_flight": 12_000, "bulk": 80_000, "drain_1": 120_000, "drain_2": 150_000, "lone": 30_000},
        python=(3, 13),
        variables={"BLITZQ_MODE": "fast", "BLITZQ_CONCURRENCY": "1000"},
    ),
    System(
        name="blitzq reliable",
        program="blitzq",
        packages=("blitzq", "hiredis", "uvloop"),
        settings='mode="reliable", store_results=False, concurrency and batch_size 200, enqueue_many of 1,000; its Worker under'
        " uvloop; async tasks",
        jobs={"one": 10_000, "in_flight": 12_000, "bulk": 80_000, "drain_1": 40_000, "drain_2": 60_000, "lone": 30_000},
        python=(3, 13),
        variables={"BLITZQ_MODE": "reliable", "BLITZQ_CONCURRENCY": "200"},
    ),
)

SYSTEMS = (FASTQ, *PEERS)

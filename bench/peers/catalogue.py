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

    @property
    def distributions(self) -> list[str]:
        """The packages without what they have in brackets, as in "saq[redis]"."""
        return [package.partition("[")[0] for package in self.packages]


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
    System(
        name="arq",
        program="arq",
        packages=("arq", "hiredis", "uvloop"),
        settings="max_jobs=100, poll_delay=0.02, keep_result=0, under uvloop; async tasks; unique: a _job_id, until the job has"
        " ended",
        jobs={
            "one": 4000,
            "in_flight": 6000,
            "unique_one": 4000,
            "unique_in_flight": 6000,
            "drain_1": 4000,
            "drain_2": 5000,
            "lone": 4000,
        },
    ),
    System(
        name="saq",
        program="saq",
        packages=("saq[redis]", "hiredis", "uvloop", "typing_extensions"),
        settings="concurrency=32, ttl=-1 (no result), under uvloop; async tasks; unique: a key, until the job has ended",
        jobs={
            "one": 5000,
            "in_flight": 8000,
            "unique_one": 5000,
            "unique_in_flight": 8000,
            "drain_1": 4000,
            "drain_2": 6000,
            "lone": 4000,
        },
    ),
    System(
        name="tarsk",
        program="tarsk",
        packages=("tarsk-redis",),
        settings="worker --children N --slots 100, no results; async tasks; in flight: 8 threads; unique=86400: for that long",
        jobs={
            "one": 20_000,
            "in_flight": 40_000,
            "unique_one": 12_000,
            "unique_in_flight": 20_000,
            "drain_1": 20_000,
            "drain_2": 24_000,
            "lone": 20_000,
        },
        whole=True,
    ),
    System(
        name="celery",
        program="celery",
        packages=("celery", "redis", "hiredis", "packaging"),
        settings="--pool solo (its fastest for jobs that do nothing), worker_prefetch_multiplier=128, no results, gossip, mingle"
        " or heartbeat; sync tasks; bulk: groups of 500",
        jobs={"one": 3000, "bulk": 3000, "drain_1": 3000, "drain_2": 5000, "lone": 3000},
    ),
    System(
        name="dramatiq",
        program="dramatiq",
        packages=("dramatiq", "redis", "hiredis"),
        settings="--processes N --threads 8, dramatiq_queue_prefetch=1000, no results; sync tasks",
        jobs={"one": 8000, "drain_1": 6000, "drain_2": 8000, "lone": 6000},
        whole=True,
        variables={"dramatiq_queue_prefetch": "1000"},
    ),
    System(
        name="taskiq",
        program="taskiq",
        packages=("taskiq-redis", "taskiq", "hiredis", "uvloop", "orjson"),
        settings="RedisStreamBroker, xread_count=100, ORJSONSerializer, no results; worker --workers N --max-async-tasks 100"
        " --max-prefetch 100 --no-parse; async tasks",
        jobs={"one": 4000, "in_flight": 6000, "drain_1": 6000, "drain_2": 10_000, "lone": 4000},
        whole=True,
    ),
    System(
        name="streaq",
        program="streaq",
        packages=("streaq", "uvloop"),
        settings="concurrency=16, prefetch=64, ttl=0 (no result), silent, under uvloop; enqueue_many of 1,000; async"
        " tasks (its unique ones are told apart when they run)",
        jobs={"one": 4000, "in_flight": 8000, "bulk": 12_000, "drain_1": 2500, "drain_2": 4000, "lone": 2500},
    ),
    System(
        name="rq",
        program="rq",
        packages=("rq", "hiredis"),
        settings="SimpleWorker (no fork for each job), result_ttl=0; enqueue_many of 1,000; sync tasks; unique: job_id and"
        " unique=True, until the job has ended",
        jobs={"one": 3000, "bulk": 10_000, "unique_one": 3000, "drain_1": 600, "drain_2": 1000, "lone": 600},
    ),
    System(
        name="huey",
        program="huey",
        packages=("huey", "redis", "hiredis"),
        settings="RedisHuey(results=False, blocking=True), a consumer with one thread a process (at most once); sync tasks",
        jobs={"one": 10_000, "drain_1": 6000, "drain_2": 8000, "lone": 6000},
    ),
    System(
        name="fastq-redis",
        program="fastq_redis",
        packages=("fastq-redis",),
        settings="Worker(threads=1) a process, JSON by the programs here, as it takes a text; sync handler",
        jobs={"one": 20_000, "drain_1": 12_000, "drain_2": 15_000, "lone": 12_000},
    ),
)

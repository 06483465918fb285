"""arq: asynchronous, in Python."""

from __future__ import annotations

from typing import Any

from arq import ArqRedis, create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from bench.peers.child import TEXT, URL, Producer, run_loop
from bench.peers.tally import count, delay

SERVER = RedisSettings.from_dsn(URL)
QUEUE = "peers"
_redis: ArqRedis


async def noop(context: dict[Any, Any], number: int, text: str) -> None:
    """Do nothing but count."""
    count()


async def lag(context: dict[Any, Any], number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


async def _open() -> None:
    global _redis
    _redis = await create_pool(SERVER, default_queue_name=QUEUE)


async def _close() -> None:
    await _redis.aclose()


async def _one(task: str, number: int) -> None:
    await _redis.enqueue_job(task, number, TEXT, _job_id=f"once:{number}" if task == "once" else None)


producer = Producer(_one, open=_open, close=_close)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""

    async def run() -> None:
        functions = [func(noop, name="noop"), func(noop, name="once"), func(lag, name="lag")]
        options = {"max_jobs": 100, "poll_delay": 0.02, "keep_result": 0, "log_results": False}
        await Worker(functions, queue_name=QUEUE, redis_settings=SERVER, **options).async_run()

    run_loop(run())

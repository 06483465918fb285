"""The distribution fastq-redis, in C, whose import name is that of ours: its environment has no other one.

It knows no tasks and no arguments: a job is a text that one handler gets.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import fastq
from bench.peers.child import TEXT, URL, Producer
from bench.peers.tally import count, delay

fastq.set_log_level(3)  # errors
_queue = fastq.Queue("peers", urlsplit(URL).hostname, urlsplit(URL).port)


def _one(task: str, number: int) -> None:
    _queue.push(json.dumps([task, number, TEXT]))


producer = Producer(_one)


def _handle(job: Any) -> int:
    task, number, _ = json.loads(job["payload"] if isinstance(job, dict) else job)
    if task == "lag":
        delay(number)
    else:
        count()
    return 0


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    fastq.Worker(_queue, _handle, threads=1).start()

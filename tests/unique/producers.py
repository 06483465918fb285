"""Many producers that enqueue the same unique calls at the same moment: processes with threads, singly and in bulk."""

import json
import multiprocessing
import random
import sys
import threading
from multiprocessing.synchronize import Barrier
from typing import Any

from fastq import DuplicateJobError, FastQ, Unique

PROCESSES, THREADS, CALLS = 8, 8, 1000


def enqueue_at_once(url: str, namespace: str, rounds: int) -> list[int]:
    """Let 64 producers enqueue the same 1,000 calls in each round, each in an order of its own; how many got in, by round."""
    context = multiprocessing.get_context("fork")
    go = context.Barrier(PROCESSES * THREADS)
    results: Any = context.SimpleQueue()
    app = FastQ(url, namespace=namespace)
    task: Any = app.task(name="t", unique=Unique(ttl=3600))(lambda round_, number: None)
    task.enqueue(-1, -1)  # connects: a child must not use what its parent has open
    children = [
        context.Process(target=_produce, args=(task, go, results, rounds, number), daemon=True) for number in range(PROCESSES)
    ]
    for child in children:
        child.start()
    got_in = [results.get() for _ in children]
    for child in children:
        child.join()
    return [sum(counts) for counts in zip(*got_in, strict=True)]


def _produce(task: Any, go: Barrier, results: Any, rounds: int, number: int) -> None:
    counts = [0] * rounds
    lock = threading.Lock()

    def produce(thread: int) -> None:
        order = list(range(CALLS))
        for round_ in range(rounds):
            random.shuffle(order)
            go.wait()
            # One thread in eight enqueues call by call, the others in bulk: they meet in all ways.
            if thread == number:
                entered = _singly(task, round_, order)
            else:
                entered = task.enqueue_many([(round_, i) for i in order]).enqueued
            with lock:
                counts[round_] += entered

    threads = [threading.Thread(target=produce, args=(thread,)) for thread in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    results.put(counts)


def _singly(task: Any, round_: int, order: list[int]) -> int:
    entered = 0
    for number in order:
        try:
            task.enqueue(round_, number)
        except DuplicateJobError:
            continue
        entered += 1
    return entered


if __name__ == "__main__":
    print(json.dumps(enqueue_at_once(sys.argv[1], sys.argv[2], int(sys.argv[3]))))

"""Calls of unique jobs that a type checker accepts, and, marked `# bad`, those that it has to refuse. It is read, never run."""

from datetime import timedelta

from fastq import DuplicateJobError, FastQ, Job, JobIDConflictError, LockInfo, Unique, current_job
from fastq.locks import LockCounts

app = FastQ()


def by_order(order_id: str, template: str = "receipt") -> str | None:
    return order_id or None


@app.task(unique=Unique(ttl=60, key="order_id", until="done"))
async def send_email(order_id: str, template: str = "receipt") -> None: ...


@app.task(unique=Unique(timedelta(minutes=5), ["order_id", "template"], "success", "rerun", renew=True))
def sync(order_id: str, template: str = "receipt") -> int:
    lock = current_job().lock
    return current_job().fence + (0 if lock is None else round(lock.expires_in) + len(lock.key))


@app.task(unique=Unique(ttl=1, key=by_order, on_conflict="replace", max_wait=timedelta(seconds=30)))
def debounced(order_id: str, template: str = "receipt") -> None: ...


@app.task(unique=Unique(ttl=3600.5, key=Unique.TASK, until="ttl", on_conflict="skip"))
def hourly() -> None: ...


async def accepted() -> None:
    job: Job = send_email.enqueue("order-123")
    job = await sync.using(unique=None, delay=60).aenqueue("o-1", template="x")
    job = debounced.using(unique=Unique(ttl=600), job_id="event:77", retention=3600).enqueue(order_id="o-1")
    outcome: str | None = job.conflict
    met: bool = job.duplicate
    try:
        hourly.enqueue()
    except (DuplicateJobError, JobIDConflictError) as error:
        known: tuple[str, str, float] = (error.job_uid, error.queue, error.expires_in)
        print(known)
    result = send_email.enqueue_many([("o-1",), {"order_id": "o-3"}, send_email.prepare("o-4")])
    places: list[tuple[int, str, float]] = [(item.index, item.job_uid, item.expires_in) for item in result.duplicates]
    lock: LockInfo | None = app.locks.get(send_email, "order-123")
    lock = await app.locks.aget("send_email", order_id="order-123")
    locks: list[LockInfo] = app.locks.list(send_email, limit=10) + await app.locks.alist("send_email")
    seen: list[tuple[str, str, str, str, float, float]] = [
        (one.task, one.key, one.job_uid, one.state, one.age, one.expires_in) for one in locks
    ]
    freed: bool = app.locks.release(send_email, "order-123") or await app.locks.arelease(send_email, "order-123")
    counts: LockCounts = app.locks.counts(send_email)
    numbers: int = counts.refused + counts.skipped + counts.replaced + counts.rerun + counts.lost
    print(outcome, met, places, lock, seen, freed, numbers)


async def refused() -> None:
    Unique(ttl="60")  # bad
    Unique(60, until="end")  # bad
    Unique(60, on_conflict="wait")  # bad
    Unique(60, key=5)  # bad
    Unique(60, renew="yes")  # bad
    Unique(60, max_wait="5s")  # bad
    Unique(60, for_=5)  # bad
    app.task(unique=60)  # bad
    app.task(unique=True)  # bad
    send_email.using(unique=60)  # bad
    send_email.using(job_id=77)  # bad
    send_email.enqueue(123)  # bad
    await sync.aenqueue()  # bad
    debounced.prepare("o-1", "x", 3)  # bad
    hourly.enqueue("now")  # bad
    app.locks.list(send_email, limit="all")  # bad
    app.locks.get(5)  # bad
    app.locks.counts()  # bad
    number: int = app.locks.get(send_email, "o-1")  # bad
    later: float = current_job().lock.expires_in  # bad
    print(number, later)

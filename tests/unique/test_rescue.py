"""What is left behind when a job was itself lost, by whatever fault: parked jobs and calls that it would have let in."""

from tests.unique.world import DAY, World

RENEW = ("done", "raise", True)
RERUN = ("done", "rerun", False)


def lose(world: World, uid: bytes) -> None:
    """Delete the entry of the only job in the stream, and what a worker knows of it."""
    world.client.xtrim(world.keys.stream, maxlen=0)
    for worker in world.workers.values():
        worker.jobs.pop(uid, None)
        worker.entries.clear()


def test_a_parked_job_whose_holder_was_lost_comes_in_when_the_lock_is_gone(world: World) -> None:
    world.enqueue("x", RENEW)
    first, other = world.join(), world.join()
    world.fetch(first)
    [lost] = first.jobs
    world.start(first, lost)
    world.evict("x")
    world.enqueue("x", RENEW)
    world.fetch(other)
    [parked] = other.jobs
    world.start(other, parked)
    assert world.look().jobs[parked][0] == "parked"
    lose(world, lost)
    world.kill(first, seen=True)
    world.client.delete(world.keys.unique(b"t:x"))

    world.tick(other, 5000)

    assert world.look().jobs[parked][0] == "front"
    assert world.look().locks["x"] == (parked, "W")
    assert not world.client.exists(world.keys.parking)


def test_a_call_that_was_left_to_a_lost_job_is_enqueued_a_day_later(world: World) -> None:
    world.enqueue("x", RERUN)
    call = world.enqueue("x", RERUN)
    worker = world.join()
    [(holder, _)] = world.look().locks.values()
    lose(world, holder)
    world.client.delete(world.keys.unique(b"t:x"))

    world.tick(worker, 5000)
    assert holder in world.look().pending, "its job may still run somewhere"
    world.tick(worker, DAY + 1)
    world.tick(worker, 2000)

    [uid] = world.look().jobs
    assert world.look().locks == {"x": (uid, "W")}
    assert not world.look().pending
    world.fetch(worker)
    world.start(worker, uid)
    world.end(worker, uid, "succeeded")
    assert world.runs[-1].number == call.number


def test_a_call_that_was_left_to_a_job_without_its_lock_goes_to_the_one_that_has_it(world: World) -> None:
    world.enqueue("x", RERUN)
    world.enqueue("x", RERUN)
    worker = world.join()
    [(first, _)] = world.look().locks.values()
    world.evict("x")
    world.enqueue("x", RERUN)
    [(owner, _)] = world.look().locks.values()

    world.tick(worker, 5000)

    assert list(world.look().pending) == [owner + b"+"]
    assert first != owner
    world.check()
    world.drain()

"""What a worker sets up once for all of its jobs."""

from dataclasses import dataclass

import pytest

from fastq import ConfigError, FastQ


@dataclass
class Pool:
    name: str
    open: bool = True


@dataclass
class Model:
    pool: Pool


@pytest.fixture
def app(url, namespace):
    with FastQ(url, namespace=namespace, lease=2) as app:
        yield app


def test_states_are_there_for_jobs_and_torn_down_in_the_opposite_order(app):
    order, seen = [], []

    @app.lifespan
    async def pool():
        order.append("pool up")
        made = Pool("main")
        yield made
        made.open = False
        order.append("pool down")

    @app.lifespan
    async def model():
        order.append("model up")
        yield Model(app.state(Pool))
        order.append("model down")

    @app.task
    async def on_the_loop():
        seen.append(app.state(Model).pool.open)

    @app.task
    def in_a_thread():
        seen.append(app.state(Pool).name)

    on_the_loop.enqueue()
    in_a_thread.enqueue()
    app.worker(burst=True).run()

    assert order == ["pool up", "model up", "model down", "pool down"]
    assert sorted(map(str, seen)) == ["True", "main"]


def test_a_state_that_nothing_has_yielded_is_a_clear_error(app):
    with pytest.raises(LookupError, match="no lifespan has yielded a Pool"):
        app.state(Pool)


def test_a_worker_whose_lifespan_fails_takes_no_job(app, redis):
    @app.lifespan
    async def broken():
        raise OSError("no database")
        yield

    @app.task(track=True)
    async def work():
        pass

    job = work.enqueue()
    with pytest.raises(OSError, match="no database"):
        app.worker(burst=True).run()

    assert job.status() == "waiting"


def test_what_is_no_lifespan_is_refused(app):
    with pytest.raises(ConfigError, match="is no lifespan"):
        app.lifespan(7)

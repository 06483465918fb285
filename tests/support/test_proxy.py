"""The proxy does what its faults say: the tests of lost replies stand on it."""

import threading
from collections.abc import Iterator

import pytest
import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.proxy import Action, Proxy
from tests.support.resp import frame_end
from tests.support.servers import Server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy) -> Iterator[redis_py.Redis]:
    """A client that goes through the proxy and repeats nothing."""
    client = redis_py.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0), socket_timeout=5)
    client.ping()
    yield client
    client.close()


@pytest.mark.parametrize(
    ("action", "times_executed"), [("lose_request", 0), ("lose_reply", 1), ("tear_reply", 1)], ids=str
)
def test_a_cut_hits_the_request_it_is_meant_for(
    proxy: Proxy, through: redis_py.Redis, redis: redis_py.Redis, namespace: str, action: Action, times_executed: int
) -> None:
    key = f"{namespace}:count"
    fault = proxy.on_request(b"INCR", action, nth=2)

    assert through.incr(key) == 1
    with pytest.raises(redis_py.ConnectionError):
        through.incr(key)

    assert fault.done.wait(5)
    assert redis.get(key) == b"%d" % (1 + times_executed)
    assert through.incr(key) == 2 + times_executed  # the fault is used up
    assert proxy.connections == 2


def test_a_lost_reply_in_a_pipeline_leaves_the_replies_before_it(
    proxy: Proxy, through: redis_py.Redis, redis: redis_py.Redis, namespace: str
) -> None:
    fault = proxy.on_request(b"second", "lose_reply")
    pipeline = through.pipeline(transaction=False)
    for name in ("first", "second", "third"):
        pipeline.set(f"{namespace}:{name}", 1)

    with pytest.raises(redis_py.ConnectionError):
        pipeline.execute()

    assert fault.done.wait(5)
    assert redis.exists(f"{namespace}:first", f"{namespace}:second") == 2


def test_a_black_hole_holds_everything_until_it_flows_again(
    proxy: Proxy, through: redis_py.Redis, redis: redis_py.Redis, namespace: str
) -> None:
    key = f"{namespace}:held"
    fault = proxy.on_request(b"SET", "black_hole")
    thread = threading.Thread(target=through.set, args=(key, 1))
    thread.start()
    assert fault.done.wait(5)
    assert not redis.exists(key)

    proxy.flow()

    thread.join(5)
    assert redis.get(key) == b"1"


def test_new_connections_are_refused_and_accepted_again_on_the_same_port(proxy: Proxy, through: redis_py.Redis) -> None:
    port = proxy.port
    proxy.refuse()
    assert through.ping()  # the open one stays
    assert proxy.cut() == 1
    with pytest.raises(redis_py.ConnectionError):
        through.ping()

    proxy.accept()

    assert through.ping()
    assert proxy.port == port


def test_a_hook_runs_before_the_request_goes_on(
    proxy: Proxy, through: redis_py.Redis, redis: redis_py.Redis, namespace: str
) -> None:
    key = f"{namespace}:seen"
    seen = []
    fault = proxy.on_request(b"SET", hook=lambda: seen.append(redis.exists(key)))

    through.set(key, 1)

    assert seen == [0]
    assert fault.seen == 1


@pytest.mark.parametrize(
    "frame",
    [
        b"+OK\r\n",
        b"PING\r\n",
        b"$5\r\nhe\r\no\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        b"%1\r\n+k\r\n*0\r\n",
        b"|1\r\n+k\r\n+v\r\n$1\r\nx\r\n",
        b">2\r\n+invalidate\r\n_\r\n",
    ],
)
def test_a_frame_ends_where_it_ends_and_no_part_of_it_is_complete(frame: bytes) -> None:
    assert frame_end(frame + b"+next\r\n") == len(frame)
    assert [frame_end(frame[:length]) for length in range(len(frame))] == [None] * len(frame)

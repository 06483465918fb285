"""Every form of URL leads to its server, and what is wrong with one is said in a sentence."""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastq.broker.broker import Broker
from fastq.broker.opening import check_version
from fastq.errors import BrokerError, ConfigError
from tests.broker.conftest import echo, info
from tests.support.proxy import Proxy
from tests.support.servers import Server, make_tls_files

Start = Callable[..., Server]
MakeBroker = Callable[..., Broker]


def answers(broker: Broker) -> bool:
    """Whether a call gets its answer on a blocking connection and on one of an event loop."""

    async def ask() -> str:
        try:
            return await broker.acall(echo("async"))
        finally:
            await broker.aclose()

    return (broker.call(echo("sync")), asyncio.run(ask())) == ("sync", "async")


def test_tcp(broker: Broker) -> None:
    assert answers(broker)


def test_a_unix_socket(start_server: Start, make_broker: MakeBroker) -> None:
    assert answers(make_broker(start_server(unix=True).url))


@pytest.mark.parametrize("password", ["secret", "p@ss:w/rd#?é"])
def test_a_password(start_server: Start, make_broker: MakeBroker, password: str) -> None:
    assert answers(make_broker(start_server(password=password).url))


def test_a_user_with_a_password(start_server: Start, make_broker: MakeBroker) -> None:
    server = start_server()
    server.client().acl_setuser("worker", enabled=True, passwords=["+pass"], keys="*", commands=["+@all"])

    broker = make_broker(server.url.replace("redis://", "redis://worker:pass@"))

    assert answers(broker)
    assert broker.call(info())["user"] == "worker"


def test_a_database(server: Server, make_broker: MakeBroker) -> None:
    assert make_broker(server.url.replace("/0", "/3")).call(info())["db"] == "3"


@pytest.fixture
def tls_server(start_server: Start, tmp_path: Path) -> Server:
    files = make_tls_files(tmp_path)
    if files is None:
        pytest.skip("no openssl command on this machine")
    try:
        return start_server(tls=files)
    except LookupError as reason:
        pytest.skip(str(reason))


def test_tls(tls_server: Server, make_broker: MakeBroker) -> None:
    assert tls_server.url.startswith("rediss://")
    broker = make_broker(tls_server.url)

    assert answers(broker)
    large = "x" * 300_000  # many TLS records
    assert broker.call(echo(large)) == large


def test_a_certificate_that_nobody_vouches_for_is_refused(tls_server: Server, make_broker: MakeBroker) -> None:
    broker = make_broker(tls_server.url.partition("?")[0])
    broker._sync._patience = 0.2  # it could be a proxy that restarts, so it is tried for a while

    with pytest.raises(BrokerError, match="certificate verify failed"):
        broker.call(echo("a"))


def test_the_client_says_who_it_is(broker: Broker) -> None:
    assert broker.call(info())["name"] == "fastq"


# --- what is wrong


def test_a_wrong_password_is_told_at_once_and_not_shown(start_server: Start, make_broker: MakeBroker) -> None:
    server = start_server(password="right")
    broker = make_broker(server.url.replace("right", "wrong"))
    began = time.monotonic()

    for ask in (lambda: broker.call(echo("a")), lambda: asyncio.run(broker.acall(echo("a")))):
        with pytest.raises(BrokerError, match="refused the connection") as error:
            ask()
        assert "wrong" not in str(error.value).replace("wrong number", "")
        assert f"redis://127.0.0.1:{server.port}/0" in str(error.value)

    assert time.monotonic() - began < 2


def test_a_missing_password_is_told(start_server: Start, make_broker: MakeBroker) -> None:
    server = start_server(password="secret")

    with pytest.raises(BrokerError, match=r"refused the connection: .*(NOAUTH|Authentication required)"):
        make_broker(f"redis://127.0.0.1:{server.port}/0").call(echo("a"))


def test_a_server_that_is_not_there_is_waited_for_and_then_named(start_server: Start, make_broker: MakeBroker) -> None:
    server = start_server()
    server.kill()
    broker = make_broker(server.url)
    began = time.monotonic()

    with pytest.raises(BrokerError, match=rf"no connection to redis://127.0.0.1:{server.port}/0 could be made") as error:
        broker.call(echo("a", repeatable=False))

    assert 3 < time.monotonic() - began < 8
    assert not error.value.maybe_enqueued


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_server_that_comes_back_in_time_is_no_error(server: Server, make_broker: MakeBroker, kind: str) -> None:
    with Proxy(server) as proxy:
        broker = make_broker(proxy.url)
        proxy.refuse()
        threading.Timer(0.5, proxy.accept).start()

        if kind == "sync":
            assert broker.call(echo("a")) == "a"
        else:
            assert answers_async(broker) == "a"


def answers_async(broker: Broker) -> str:
    async def ask() -> str:
        try:
            return await broker.acall(echo("a"))
        finally:
            await broker.aclose()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        (b"redis_version:7.0.15\r\n", None),
        (b"redis_version:8.2.0\r\n", None),
        (b"redis_version:6.2.14\r\n", "this server is Redis 6.2.14; fastq needs at least Redis 7.0 or Valkey 7.2"),
        (b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\n", None),
        (
            b"redis_version:7.2.4\r\nvalkey_version:7.1.0\r\n",
            "this server is Valkey 7.1.0; fastq needs at least Redis 7.0 or Valkey 7.2",
        ),
        (b"# Server\r\nnothing:here\r\n", None),
        (b"redis_version:unstable\r\n", None),
        (b"", None),
    ],
)
def test_a_server_that_is_too_old_is_told_apart(told: bytes, problem: str | None) -> None:
    assert check_version(told) == problem


@pytest.mark.parametrize(
    "options",
    [
        {"decode_responses": True},
        {"decode_responses": True, "encoding": "latin-1", "protocol": 3},
        {"health_check_interval": 1, "max_connections": 1, "retry_on_timeout": True},
    ],
)
def test_options_of_the_client_library_that_would_change_what_is_spoken_are_ours(
    url: str, make_broker: MakeBroker, options: dict[str, Any]
) -> None:
    """C54: a connection that decodes would break on the first byte that is not UTF-8."""
    assert answers(make_broker(url, redis_options=options))


def test_the_same_options_in_the_url_change_nothing_either(url: str, make_broker: MakeBroker) -> None:
    broker = make_broker(f"{url}?decode_responses=True&protocol=3&health_check_interval=1")

    assert answers(broker)
    assert broker.call(info())["resp"] == "2"


def test_other_options_go_to_the_client_library(url: str, make_broker: MakeBroker) -> None:
    assert make_broker(url, redis_options={"client_name": "mine"}).call(info())["name"] == "mine"


def test_an_option_that_the_client_library_does_not_know_is_told(url: str, make_broker: MakeBroker) -> None:
    with pytest.raises(ConfigError, match=r"redis_options: .*no_such_option"):
        make_broker(url, redis_options={"no_such_option": 1}).call(echo("a"))


def test_tls_settings_reach_the_socket(tls_server: Server, make_broker: MakeBroker) -> None:
    broker = make_broker(tls_server.url, redis_options={"ssl_min_version": ssl.TLSVersion.TLSv1_3})

    assert answers(broker)

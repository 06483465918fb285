"""A proxy between a client and a real server that breaks the connection where a test says, and tells when it has.

    with Proxy(server) as proxy:
        fault = proxy.on_request(b"EVALSHA", "lose_reply")
        ...                                  # a client on proxy.url
        assert fault.done.wait(5)

It follows the protocol in both directions, so that a fault hits one request and its reply, whatever the packets are.
"""

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from tests.support.resp import frame_end
from tests.support.servers import Server

Action = Literal["pass", "lose_request", "lose_reply", "tear_reply", "hold_reply", "black_hole"]
Match = bytes | Callable[[bytes], bool]


class Fault:
    """What happens to a request. `seen`: requests that matched so far; `done`: set when the action has been taken.

    `arrived` is set as soon as the request is read, before anything is done with it.
    """

    def __init__(self, match: Match, action: Action, nth: int, times: int, hook: Callable[[], object] | None) -> None:
        self._match = match
        self._first, self._last = nth, nth + times - 1
        self._lock = threading.Lock()
        self.hook = hook
        self.action = action
        self.seen = 0
        self.arrived = threading.Event()
        self.done = threading.Event()
        self.released = threading.Event()

    def takes(self, request: bytes) -> bool:
        """Count the request if it matches; whether it is one to act on."""
        matches = self._match(request) if callable(self._match) else self._match in request
        if not matches:
            return False
        with self._lock:
            self.seen += 1
            return self._first <= self.seen <= self._last


class Proxy:
    """Listens on 127.0.0.1 (`port`, `url`) and forwards to the server. All of it may be called from any thread.

    `delay`: seconds that each request is held before it goes on. `connections`: accepted so far.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.delay = 0.0
        self.connections = 0
        self._faults: list[Fault] = []
        self._links: list[_Link] = []
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self.port = 0
        self.accept()

    @property
    def url(self) -> str:
        if self._server.socket:
            return f"redis://127.0.0.1:{self.port}/0"
        return self._server.url.replace(f":{self._server.port}/", f":{self.port}/")

    def on_request(
        self,
        match: Match,
        action: Action = "pass",
        *,
        nth: int = 1,
        times: int = 1,
        hook: Callable[[], object] | None = None,
    ) -> Fault:
        """Act on the `nth` request from now on that contains `match` (or makes it true), and on `times - 1` after it.

        - "lose_request": close the connection instead of forwarding it
        - "lose_reply": forward it, wait until the server has answered, close without passing the answer on
        - "tear_reply": the same, but pass on the first half of the answer
        - "hold_reply": the answer, and what comes behind it on its connection, waits until `released` is set
        - "black_hole": forward nothing in either direction any more, this request included, until `flow()`
        - "pass": nothing; to wait for `done`, or for the `hook`

        `hook` is called first, before the request is forwarded: to stop the server at that point, for instance.
        """
        fault = Fault(match, action, nth, times, hook)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()
        self.delay = 0.0
        self.flow()

    def black_hole(self) -> None:
        """Connections stay open and new ones are accepted, but nothing is forwarded."""
        self._flowing.clear()

    def flow(self) -> None:
        """End the black hole: what was held back goes on, as after a network that comes back."""
        self._flowing.set()

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED), leave the others."""
        if not self._acceptor.is_alive():
            return
        self._accepting = False
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()  # wakes the thread in accept()
        self._acceptor.join()

    def accept(self) -> None:
        """Accept connections (again), on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=512)
        self.port = self._listener.getsockname()[1]
        self._accepting = True
        self._acceptor = threading.Thread(target=self._accept_loop, name="proxy", daemon=True)
        self._acceptor.start()

    def cut(self) -> int:
        """Close all connections at once; how many there were."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.close()
        return len(links)

    def close(self) -> None:
        self.refuse()
        self.flow()
        with self._lock:
            links = list(self._links)
        self.cut()
        for link in links:
            link.join()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _accept_loop(self) -> None:
        with self._listener as listener:
            while True:
                client, _ = listener.accept()
                if not self._accepting:
                    client.close()
                    return
                self._take(client)

    def _take(self, client: socket.socket) -> None:
        try:
            upstream = self._connect()
        except OSError:
            client.close()  # no server: the client sees a connection that ends at once
            return
        link = _Link(self, client, upstream)
        with self._lock:
            self.connections += 1
            self._links.append(link)
        link.start()

    def _connect(self) -> socket.socket:
        if not self._server.socket:
            return socket.create_connection(("127.0.0.1", self._server.port))
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(str(self._server.socket))
        return upstream

    def _fault_for(self, request: bytes) -> Fault | None:
        with self._lock:
            faults = list(self._faults)
        taken = [fault for fault in faults if fault.takes(request)]  # each of them counts every request
        return taken[0] if taken else None

    def _wait_until_flowing(self) -> None:
        self._flowing.wait()

    def _forget(self, link: "_Link") -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._links.remove(link)


class _Link:
    """One client connection and the one upstream that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket, upstream: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._upstream = upstream
        self._awaited: deque[Fault | None] = deque()  # one for each reply that is still to come
        self._last_out = threading.Lock()  # taken by the thread that ends first
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name="proxy link", daemon=True)
            for loop in (self._forward_requests, self._forward_replies)
        ]

    def start(self) -> None:
        for sock in (self._client, self._upstream):
            if sock.family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(5)

    def close(self) -> None:
        for sock in (self._client, self._upstream):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the other thread, which still uses the descriptor

    def _run(self, loop: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            loop()
        self.close()
        self._proxy._forget(self)
        if self._last_out.acquire(blocking=False):
            return
        for sock in (self._client, self._upstream):
            sock.close()

    def _forward_requests(self) -> None:
        data = bytearray()
        while received := self._client.recv(65536):
            data += received
            while (end := frame_end(data)) is not None:
                request = bytes(data[:end])
                del data[:end]
                if not self._forward_request(request):
                    return

    def _forward_request(self, request: bytes) -> bool:
        fault = self._proxy._fault_for(request)
        action = fault.action if fault else "pass"
        if fault:
            fault.arrived.set()
            if fault.hook:
                fault.hook()
        if fault and action == "lose_request":
            self.close()
            fault.done.set()
            return False
        if fault and action == "black_hole":
            self._proxy.black_hole()
            fault.done.set()
        if self._proxy.delay:
            time.sleep(self._proxy.delay)
        self._proxy._wait_until_flowing()
        loses = action in ("lose_reply", "tear_reply", "hold_reply")
        self._awaited.append(fault if loses else None)
        self._upstream.sendall(request)
        if fault and not loses:
            fault.done.set()
        return True

    def _forward_replies(self) -> None:
        data = bytearray()
        while received := self._upstream.recv(65536):
            data += received
            while (end := frame_end(data)) is not None:
                reply = bytes(data[:end])
                del data[:end]
                pushed = reply.startswith(b">")  # an answer to nothing
                fault = self._awaited.popleft() if self._awaited and not pushed else None
                self._proxy._wait_until_flowing()
                if fault and fault.action == "hold_reply":
                    fault.done.set()
                    fault.released.wait()
                elif fault:
                    if fault.action == "tear_reply":
                        self._client.sendall(reply[: len(reply) // 2])
                    self.close()
                    fault.done.set()
                    return
                self._client.sendall(reply)

"""The launcher: how children come to life, each by a program of its own, or forked off a template."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence

from fastq.fleet.child import Process
from fastq.fleet.template import Template, TemplateLost

_log = logging.getLogger("fastq.fleet")


class Launcher:
    """Starts children by `command`, to which `--child FD:TOKEN` is appended. `log` is a file for what they write."""

    def __init__(self, command: Sequence[str], *, preload: bool, env: Mapping[str, str] | None, log: int | None) -> None:
        self._command = list(command)
        self._preload = preload
        self._env = {**os.environ, **(env or {})}
        self._log = log
        self._templates: list[Template] = []  # the last one is in use, the others wait for their children's end
        self._under_way = 0

    @property
    def pids(self) -> list[int] | None:
        """The processes of ours beside the children; None while one is being started whose pid is not known yet."""
        return None if self._under_way else [template.pid for template in self._templates if template.pid is not None]

    async def launch(self, channel: socket.socket, token: str) -> Process:
        """Start a child that has this channel and token."""
        self._under_way += 1
        try:
            if self._preload:
                if not self._templates:
                    self._templates.append(Template(self._command, self._env, self._log))
                try:
                    return await self._templates[-1].launch(channel, token)
                except TemplateLost:
                    _log.error("the program could not be preloaded: this child imports it by itself")
            return await self._execute(channel, token)
        finally:
            self._under_way -= 1

    def renew(self) -> None:
        """Start what comes from here on with new code."""
        if self._templates:
            self._templates[-1].retire()
            self._templates = [template for template in self._templates if template.pid is not None]
            self._templates.append(Template(self._command, self._env, self._log))

    async def close(self) -> None:
        """End what is left."""
        for template in self._templates:
            await template.close()

    async def _execute(self, channel: socket.socket, token: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            *("--child", f"{channel.fileno()}:{token}"),
            pass_fds=(channel.fileno(),),
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            process_group=0,  # the terminal's signals are for the fleet alone, which passes them on
        )

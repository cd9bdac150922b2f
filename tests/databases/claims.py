"""What tests of both servers share: holders, waiters, listeners that are no database, and looks at what was said."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Runguard

SECRET_PART = 4
"""So many characters of a password in a row are a leak."""

NO_DRIVERS = "import sys; {}; from runguard.cli import main; sys.exit(main())"


class Holder:
    """A run that holds a lock until it is told to end."""

    def __init__(
        self, runguard: Runguard, url: str, name: str, *options: str, code: int = 0, environment: Any = None
    ) -> None:
        command = ("sh", "-c", f"echo held; read line; exit {code}")
        words = ("run", "-b", url, *options, name, "--", *command)
        self.process = runguard.start(*words, stdin=subprocess.PIPE, environment=environment)
        assert self.process.stdout
        assert self.process.stdout.readline() == b"held\n", self.process.communicate()

    def end(self) -> tuple[int, bytes]:
        """Let the command end by itself; return the exit code and what stands on standard error."""
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


def start_waiter(
    runguard: Runguard, url: str, name: str, wait: str, *options: str, environment: Any = None
) -> subprocess.Popen[bytes]:
    """Return a run of `echo ran` once it says that it waits for the holder."""
    words = ("run", "-v", "-b", url, "--wait", wait, *options, name, "--", "echo", "ran")
    process = runguard.start(*words, environment=environment)
    until_said(process, b"waiting")
    return process


def until_said(process: subprocess.Popen[bytes], word: bytes) -> None:
    """Return once a line with this word stands on standard error."""
    assert process.stderr
    said = []
    for line in process.stderr:
        said.append(line)
        if word in line:
            return
    pytest.fail(f"{word!r} was not said, but {said}")


def waited(refused: subprocess.CompletedProcess[bytes]) -> float:
    """Return how long a run with `--log-format json` waited in vain."""
    (event,) = [json.loads(line) for line in refused.stderr.splitlines()]
    assert event["event"] == "wait_expired", event
    return event["waited_seconds"]


def one_line(text: bytes) -> str:
    """Return what was said, which must be one line of ours and no traceback."""
    assert text.count(b"\n") == 1, text
    assert text.startswith(b"runguard: "), text
    return text.decode()


def assert_hidden(secret: str, *texts: str | bytes) -> None:
    """Fail if a part of the secret stands in one of the texts."""
    for text in texts:
        shown = text if isinstance(text, str) else text.decode(errors="replace")
        for start in range(len(secret) - SECRET_PART + 1):
            assert secret[start : start + SECRET_PART] not in shown, shown


def assert_refused(runguard: Runguard, url: str, name: str, *secrets: str, environment: Any = None) -> str:
    """Check that `run` and both forms of `test` say in one line that the lock cannot be had; return that line."""
    asked: tuple[tuple[int, tuple[str, ...]], ...] = (
        (69, ("run", "-b", url, name, "--", "echo", "ran")),
        (69, ("test", "-b", url, name)),
        (255, ("test", "--exec-condition", "-b", url, name)),
    )
    started = [(code, runguard.start(*words, environment=environment)) for code, words in asked]
    lines = set()
    for code, process in started:
        out, said = process.communicate(timeout=60)
        for secret in secrets:
            assert_hidden(secret, said)
        assert (process.returncode, out) == (code, b""), said
        lines.add(one_line(said).removeprefix("runguard: ").removeprefix(f"{name}: "))
    (line,) = lines
    return line


def key_lines(runguard: Runguard, url: str, name: str, key: str | None = None) -> list[str]:
    """Return the lines of SQL that `runguard key` prints, for the key of a job in the configuration file too."""
    file = Path(runguard.environment["HOME"]) / "config.toml"
    # What JSON quotes TOML reads.
    file.write_text("" if key is None else f'[job."{name}"]\nkey = {json.dumps(key)}\n')
    printed = runguard("key", "--config", str(file), "-b", url, name)
    assert printed.returncode == 0, printed
    return [line for line in printed.stdout.decode().splitlines() if line.startswith("SELECT")]


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """Give the port of a listener that never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Give the port of a listener that answers everybody the same."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer, contextlib.suppress(OSError):
                    peer.sendall(answer)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(4096):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


class Certificates:
    """An authority, another one, and a server's certificate for 127.0.0.1 that the first has signed."""

    def __init__(self, directory: Path) -> None:
        self._openssl = shutil.which("openssl")
        if not self._openssl:
            reason = "openssl is not installed; tests/run says how to get it"
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
        self.authority, self.wrong_authority = directory / "ca.pem", directory / "wrong.pem"
        self.certificate, self.key = directory / "server.pem", directory / "server.key"
        authority_key, request = directory / "ca.key", directory / "server.csr"
        extension = directory / "extension"
        extension.write_text("subjectAltName=IP:127.0.0.1\n")
        for pem, key in ((self.authority, authority_key), (self.wrong_authority, directory / "wrong.key")):
            self._make("req", "-x509", *_NEW_KEY, key, "-out", pem, "-days", "2", "-subj", "/CN=Test authority")
        self._make("req", *_NEW_KEY, self.key, "-out", request, "-subj", "/CN=127.0.0.1")
        signed_by = ("-CA", self.authority, "-CAkey", authority_key, "-CAcreateserial", "-extfile", extension)
        self._make("x509", "-req", "-in", request, "-out", self.certificate, "-days", "2", *signed_by)

    def _make(self, *words: str | Path) -> None:
        assert self._openssl
        subprocess.run([self._openssl, *map(str, words)], check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout")


@contextlib.contextmanager
def relay(host: str, port: int) -> Iterator[int]:
    """Give the port at which another address of this host hands on to 127.0.0.1."""
    with socket.create_server((host, 0)) as listener:

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while block := source.recv(65536):
                    sink.sendall(block)
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, socket.create_connection(("127.0.0.1", port)) as server:
                    back = threading.Thread(target=pump, args=(server, client))
                    back.start()
                    pump(client, server)
                    back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()

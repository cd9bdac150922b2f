"""A crontab line under Debian's own cron, whose clock runs sixty times as fast: a minute is a second."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from glob import glob
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 9
FAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"

# In namespaces of its own: only our table, a sendmail that keeps what cron would mail, a fresh /run.
BOX = """
set -e
mount -t proc proc /proc
mount -t overlay -o lowerdir="$BOX/sbin":/usr/sbin sbin /usr/sbin
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=1730 tabs /var/spool/cron/crontabs
mount --bind "$BOX/empty" /etc/cron.d
mount --bind "$BOX/crontab" /etc/crontab
install -m 600 "$BOX/table" /var/spool/cron/crontabs/root
env -i --default-signal=INT,QUIT PATH=/usr/sbin:/usr/bin:/sbin:/bin LD_PRELOAD="$FAKETIME" FAKETIME="+0 x60" \\
    FAKETIME_DONT_FAKE_MONOTONIC=1 cron -f </dev/null >/dev/null 2>&1 &
sleep "$SECONDS_UP"
kill $!
wait || true
"""

JOB = """#!/bin/sh
mkdir "$1/room" || echo overlap >>"$1/log"
echo enter >>"$1/log"
sleep 1.7
rmdir "$1/room"
echo leave >>"$1/log"
"""


def needed() -> str | None:
    """Return what is missing for this test, None if nothing is."""
    if os.geteuid() != 0:
        return "root"
    if not (shutil.which("cron") or os.path.exists("/usr/sbin/cron")) or not glob(FAKETIME):
        return "cron and faketime"
    words = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "probe", "/mnt"]
    return None if subprocess.run(words, capture_output=True, check=False).returncode == 0 else "namespaces"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """Return the directory that the namespaces are made from."""
    if missing := needed():
        message = f"needs {missing}"
        pytest.fail(message) if os.environ.get("CI") and missing != "namespaces" else pytest.skip(message)
    for part in ("sbin", "empty", "out"):
        (tmp_path / part).mkdir()
    (tmp_path / "crontab").touch()
    sendmail = tmp_path / "sbin" / "sendmail"
    sendmail.write_text(f"#!/bin/sh\ncat >>{tmp_path}/mail\n")
    sendmail.chmod(0o755)
    (tmp_path / "job").write_text(JOB)
    (tmp_path / "job").chmod(0o755)
    return tmp_path


def run_table(box: Path, *lines: str) -> None:
    """Let cron run a table for some seconds."""
    (box / "table").write_text("".join(f"* * * * * {line}\n" for line in lines))
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "BOX": str(box), "SECONDS_UP": str(SECONDS)}
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", "-c", BOX]
    subprocess.run(words, check=True, env=environment | {"FAKETIME": glob(FAKETIME)[0]}, timeout=60)


def test_a_job_longer_than_its_interval_never_overlaps_and_mails_nothing(box: Path) -> None:
    """A line of every minute whose job takes longer: one at a time, skips are 75 (or 0 with -E 0), no mail."""
    run = f"{sys.executable} -m runguard run"
    job = f"shop.refresh -- {box}/job {box}/out"
    run_table(
        box,
        f"{run} {job}; echo $? >>{box}/out/plain",
        f"{run} -E 0 {job}; echo $? >>{box}/out/zero",
    )
    log = (box / "out" / "log").read_text().split()
    assert "overlap" not in log
    assert log[:2] == ["enter", "leave"]
    assert log.count("enter") >= 3
    plain, zero = (box / "out" / "plain").read_text().split(), (box / "out" / "zero").read_text().split()
    assert set(plain) <= {"0", "75"}
    assert "75" in plain
    assert set(zero) == {"0"}
    assert not (box / "mail").exists()


@pytest.mark.parametrize("backend", ["file", "mariadb", "postgres"])
def test_what_the_job_prints_is_mailed(request: pytest.FixtureRequest, box: Path, backend: str) -> None:
    """A run adds nothing to a job's output and takes nothing away; a percent sign is escaped as cron wants it.

    The mail is sent when the command has ended, whoever kept its lock.
    """
    url = "file:" if backend == "file" else request.getfixturevalue(backend).url
    run = f"{sys.executable} -m runguard run -b {url}"
    run_table(box, f"{run} shop.report -- printf 'report \\%s\\n' done")
    assert "report done\n" in (box / "mail").read_text()

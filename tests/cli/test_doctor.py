"""doctor, on this machine and on machines with a fault that the test makes."""

# Doubles: a machine without faults has the reports and interpreters of a faulty one.

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiofabric import FabricAttr, Hints, Info
from aiofabric._ffi import constants
from aiofabric.cli.doctor import choice
from aiofabric.cli.doctor.choice_probe import collect_left_out
from aiofabric.cli.doctor.findings import Level
from aiofabric.cli.doctor.library import signals
from aiofabric.cli.doctor.probe import Report, ask
from aiofabric.errors import from_errno
from aiofabric.transport.opening.device_failures import leave_out
from tests.cli.programs import AIOFABRIC, Said, aiofabric, on_terminal, started

pytestmark = pytest.mark.timeout(90)
DOCTOR = (*AIOFABRIC, "doctor")

# A mount namespace of its own, in which faults can be made that affect no other process.
APART = ("unshare", "--map-root-user", "--mount")
needs_apart = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*APART, "true"], capture_output=True, check=False).returncode != 0,
    reason="this user may not make a mount namespace (unshare --map-root-user --mount)",
)
ONLY_TCP = {"FI_PROVIDER": "tcp"}  # the others' echoes take time


def findings(said: Said) -> dict[str, tuple[str, str]]:
    """Subject: (level, the rest of the line)."""
    found: dict[str, tuple[str, str]] = {}
    subject = ""
    body, _, _ = said.out.rpartition("\n\n")
    for line in body.splitlines():
        if opening := re.fullmatch(r"(ok|warn|FAIL) +(\S.*?)  +(\S.*)", line):
            level, subject, text = opening.groups()
            found[subject] = (level, text)
        else:
            found[subject] = (found[subject][0], f"{found[subject][1]} {line.strip()}")
    return found


def apart(preparation: str, **environment: str) -> dict[str, tuple[str, str]]:
    """The findings on a machine where a shell command came first."""
    command = f"{preparation} && exec {' '.join(DOCTOR)}"
    with started(*APART, "sh", "-ec", command, **environment) as program:
        said = program.end()
    assert said.err == ""
    return findings(said)


def test_this_machine() -> None:
    said = aiofabric("doctor")
    assert (said.err, said.status) == ("", 0)
    found = findings(said)
    assert re.match(r"libfabric \d+\.\d+ from /.*, built with the headers of \d+\.\d+", found["library"][1])
    assert found["signals"] == ("ok", "all left to Python")
    level, text = found["connect"]
    assert level == "ok"
    assert re.match(r"chooses tcp for .*\b127\.0\.0\.1\b.*: libfabric's first offer of connected endpoints$", text)
    assert re.fullmatch(r"waits on a descriptor; 64 B round trip [\d.]+ [um]s", found["tcp msg"][1])
    assert re.fullmatch(r"waits on a descriptor; 64 B round trip [\d.]+ [um]s", found["udp dgram"][1])
    assert found["shm rdm"][1].startswith("polled (has no descriptor); 64 B round trip ")
    assert "Round trips are between two endpoints of one process." in said.out
    assert re.search(r"\nno failures, \d+ warnings?\n$|\nno failures, no warnings\n$", said.out)


def test_shared_memory_leaves_signal_handlers_alone() -> None:
    level, text = findings(aiofabric("doctor", FI_PROVIDER="shm"))["shm rdm"]
    assert (level, "takes over" in text) == ("ok", False)


@pytest.mark.long
def test_shared_memory_takes_signals_over_without_the_workaround() -> None:
    said = aiofabric("doctor", FI_PROVIDER="shm", AIOFABRIC_WORKAROUNDS="no-signals")
    level, text = findings(said)["shm rdm"]
    assert level == "warn"
    # Debian's libfabric also loads a library that takes SIGILL and SIGABRT over.
    assert re.search(
        r"takes over SIGINT .*SIGBUS SIGSEGV SIGTERM cure: open the first endpoint of this provider bef", text
    )


@pytest.mark.long
def test_the_choice_for_another_host_is_shown() -> None:
    said = aiofabric("doctor", "localhost", **ONLY_TCP)
    assert said.status == 0
    assert re.search(
        r"\nok +connect +chooses tcp for localhost \(from (127\.0\.0\.1|::1)\): libfabric's first", said.out
    )


@pytest.mark.long
def test_a_host_that_does_not_resolve_is_a_warning() -> None:
    level, text = findings(aiofabric("doctor", "nosuch.invalid", **ONLY_TCP))["connect"]
    assert level == "warn"
    assert text.startswith("no connection for nosuch.invalid: getaddrinfo with nosuch.invalid")


CHOSEN = {"connected": True, "device": False, "domain": "lo", "source": None, "after": [], "left_out": {}}


@pytest.mark.once
@pytest.mark.parametrize(
    ("answer", "level", "text"),
    [
        (
            {"provider": "verbs", "device": True, "domain": "mlx5_0", "after": ["tcp", "sockets"]},
            Level.OK,
            "chooses verbs for 10.0.0.1: it belongs to the device mlx5_0, which libfabric offers before tcp, sockets",
        ),
        (
            {"provider": "tcp", "left_out": {"verbs": "fi_enable: Invalid argument [FI_EINVAL]"}},
            Level.WARNING,
            "chooses tcp for 10.0.0.1: libfabric's first offer of connected endpoints; "
            "verbs is left out: fi_enable: Invalid argument [FI_EINVAL]",
        ),
        (
            {"provider": "tcp", "left_out": {"net": ""}},
            Level.OK,
            "chooses tcp for 10.0.0.1: libfabric's first offer of connected endpoints; "
            "net is used only if a program names it",
        ),
        (
            {"provider": "efa", "connected": False},
            Level.OK,
            "chooses efa for 10.0.0.1: no provider has connected endpoints here, and this is the first with reliable "
            "datagrams",
        ),
        (
            {"provider": "verbs", "failure": "TimeoutError: "},
            Level.WARNING,
            "chooses verbs for 10.0.0.1: libfabric's first offer of connected endpoints; "
            "but no connection over it: TimeoutError: ",
        ),
    ],
)
def test_each_reason_for_a_choice_is_said(answer: dict[str, Any], level: Level, text: str) -> None:
    (finding,) = choice.found({"10.0.0.1": CHOSEN | answer})
    assert (finding.level, finding.text) == (level, text)


@pytest.mark.once
def test_addresses_with_the_same_answer_share_a_finding() -> None:
    answer = CHOSEN | {"provider": "tcp"}
    other = CHOSEN | {"provider": "shm", "connected": False}
    first, second = choice.found({"10.0.0.1": answer, "10.0.0.2": other, "10.0.0.3": answer})
    assert first.text.startswith("chooses tcp for 10.0.0.1, 10.0.0.3: ")
    assert second.text.startswith("chooses shm for 10.0.0.2: ")


@pytest.mark.once
def test_a_provider_that_is_left_out_is_in_the_answer() -> None:
    """The reason comes from the warning that aiofabric logs."""
    offer = Hints(fabric_attr=FabricAttr(prov_name="verbs, of the doctor")).to_native()
    with collect_left_out() as left_out:
        assert leave_out(Info(offer), from_errno(constants.FI_ENOSYS, "fi_cq_open"))
    assert list(left_out) == ["verbs, of the doctor"]
    assert left_out["verbs, of the doctor"].startswith("fi_cq_open: ")


def test_no_library_fails() -> None:
    said = aiofabric("doctor", AIOFABRIC_LIBFABRIC="/nowhere/libfabric.so.1")
    assert (said.err, said.status) == ("", 1)
    level, text = findings(said)["library"]
    assert level == "FAIL"
    assert "/nowhere/libfabric.so.1" in text
    assert "cure: " in text
    assert "tcp msg" not in findings(said)
    assert said.out.endswith("\n1 failure, no warnings\n")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_library_that_is_none_fails(tmp_path: Path) -> None:
    library = tmp_path / "libfabric.so.1"
    source = "unsigned fi_version(void) { return 1 << 16 | 4; }"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libfabric.so.1", "-x", "c", "-", "-o", library],
        input=source.encode(),
        check=True,
    )
    said = aiofabric("doctor", AIOFABRIC_LIBFABRIC=str(library))
    assert said.status == 1
    level, text = findings(said)["library"]
    assert level == "FAIL"
    assert "does not fit this build of aiofabric" in text


@pytest.mark.parametrize(
    ("asked", "cure"), [(None, "do not load that library"), (False, "switch the workaround signals")]
)
def test_signals_taken_have_a_cure(asked: bool | None, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = sys.modules[signals.__module__]  # the package has a function of that name
    monkeypatch.setattr(library, "asked_for", lambda _: asked)
    monkeypatch.setattr(library, "ask", lambda _: Report({"signals": {"SIGINT": "/lib/libinfinipath.so.4"}}))
    found = next(iter(signals()))
    assert found.text.startswith("SIGINT handled by libinfinipath.so.4")
    assert found.cure.startswith(cure)


def test_no_provider_fails() -> None:
    said = aiofabric("doctor", FI_PROVIDER="nosuch")
    assert (said.err, said.status) == ("", 1)
    found = findings(said)
    assert found["FI_PROVIDER"][0] == "warn"
    assert "cure: unset FI_PROVIDER" in found["FI_PROVIDER"][1]
    assert found["providers"][0] == "FAIL"
    assert "FI_PROVIDER=nosuch restricts the providers" in found["providers"][1]


@pytest.mark.once
def test_a_slip_in_a_variables_name_is_seen() -> None:
    level, text = findings(aiofabric("doctor", FI_TCP_IFCAE="lo", **ONLY_TCP))["FI_TCP_IFCAE"]
    assert (level, text) == (
        "warn",
        "set, but this libfabric does not read it cure: unset it, or did you mean FI_TCP_IFACE?",
    )


@pytest.mark.once
@pytest.mark.long
def test_few_open_files_and_a_provider_that_fails_for_want_of_them_are_seen() -> None:
    with started("prlimit", "--nofile=24", *DOCTOR, **ONLY_TCP) as program:
        said = program.end()
    assert (said.err, said.status) == ("", 1)
    found = findings(said)
    level, text = found["open files"]
    assert level == "warn"
    assert text.startswith("at most 24: ")
    assert "cure: ulimit -n 65536" in text
    failures = [text for level, text in found.values() if level == "FAIL"]
    assert any(
        re.match(r"no echo over loopback: .*Too many open files.* cure: choose another provider", text)
        for text in failures
    )


def fails_in_probes(folder: Path, statement: str) -> dict[str, str]:
    """An environment in which the doctor's probes, and only they, run a statement first."""
    (folder / "sitecustomize.py").write_text(f"""
import os, signal, sys
if "aiofabric.cli.doctor.probing" in sys.orig_argv:
    {statement}
""")
    return {"PYTHONPATH": str(folder)}


def test_a_library_that_crashes_a_fresh_process_is_seen(tmp_path: Path) -> None:
    crash = fails_in_probes(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)")
    said = aiofabric("doctor", **crash, **ONLY_TCP)
    assert (said.err, said.status) == ("", 1)
    found = findings(said)
    level, text = found["signals"]
    assert level == "FAIL"
    assert text.startswith("getinfo in a fresh process failed: it was ended by SIGSEGV cure: FI_LOG_LEVEL=")
    level, text = found["tcp msg"]
    assert level == "FAIL"
    assert text.startswith("no echo over loopback: it was ended by SIGSEGV cure: choose another provider; ")
    assert "fi_tcp(7)" in text


def test_an_odd_provider_that_fails_is_only_a_warning(tmp_path: Path) -> None:
    exits = fails_in_probes(tmp_path, "'sockets' in sys.argv and os._exit(3)")
    said = aiofabric("doctor", **exits, FI_PROVIDER="sockets")
    assert (said.err, said.status) == ("", 0)
    level, text = findings(said)["sockets msg"]
    assert level == "warn"
    assert text.startswith("no echo over loopback: exit status 3 cure: choose another provider; ")


def test_a_probe_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hangs))
    monkeypatch.setattr("aiofabric.cli.doctor.probe._TIMEOUT", 0.2)
    assert ask("signals").failure == "no answer in 0 s"


@pytest.mark.once
def test_signals_taken_by_another_library_are_seen() -> None:
    library = Path("/usr/lib/x86_64-linux-gnu/libinfinipath.so.4")
    if not library.exists():
        pytest.skip("libinfinipath, which takes signals over when it is loaded, is not installed")
    level, text = findings(aiofabric("doctor", LD_PRELOAD=str(library), **ONLY_TCP))["signals"]
    assert level == "warn"
    assert re.match(r".*SIGSEGV.* handled by libinfinipath\.so", text)
    assert "cure: do not load that library ahead of aiofabric" in text


@pytest.mark.once
@needs_apart
def test_little_shared_memory_is_seen() -> None:
    found = apart("mount -t tmpfs -o size=1m tmpfs /dev/shm", **ONLY_TCP)
    level, text = found["/dev/shm"]
    assert level == "warn"
    assert text.startswith("1 MiB free: ")
    assert "cure: mount -o remount,size=1g /dev/shm" in text


# /dev with nothing but the parts that a program needs.
BARE = (
    "mkdir {0} && mount -t tmpfs tmpfs {0} && for each in null zero urandom tty; do touch {0}/$each; "
    "mount --bind /dev/$each {0}/$each; done && mount --rbind {0} /dev"
)


@pytest.mark.once
@pytest.mark.long
@needs_apart
def test_no_shared_memory_is_seen(tmp_path: Path) -> None:
    level, text = apart(BARE.format(tmp_path / "dev"), **ONLY_TCP)["/dev/shm"]
    assert level == "warn"
    assert text.startswith("missing (No such file or directory): the shm provider cannot work cure: mount -t tmpfs ")


@pytest.mark.once
@needs_apart
def test_shared_memory_that_nobody_may_write_is_seen() -> None:
    level, text = apart("mount -t tmpfs -o ro tmpfs /dev/shm", **ONLY_TCP)["/dev/shm"]
    assert level == "warn"
    assert (
        text == "not writable: the shm provider cannot work cure: chmod 1777 /dev/shm, or mount -o remount,rw /dev/shm"
    )


@pytest.mark.once
@pytest.mark.long
@needs_apart
def test_rdma_devices_that_this_user_may_not_open_are_seen(tmp_path: Path) -> None:
    # Root may open anything but what is mounted read-only.
    ours, theirs = "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"
    device = f"mkdir /dev/infiniband && touch {ours} {theirs}"
    closed = f"mount --bind {theirs} {theirs} && mount -o remount,bind,ro {theirs}"
    level, text = apart(f"{BARE.format(tmp_path / 'dev')} && {device} && {closed}", **ONLY_TCP)["/dev/infiniband"]
    assert level == "warn"
    assert text.startswith("this user may not open uverbs1 cure: join the group that owns them")


@pytest.mark.once
@pytest.mark.long
@needs_apart
def test_rdma_devices_without_a_driver_or_memory_are_seen(tmp_path: Path) -> None:
    device = "mkdir /dev/infiniband && touch /dev/infiniband/uverbs0 && ulimit -l 64"
    found = apart(f"{BARE.format(tmp_path / 'dev')} && {device}", **ONLY_TCP)
    level, text = found["/dev/infiniband"]
    assert level == "warn"
    assert text.startswith("uverbs0, but no provider of this libfabric drives them cure: ")
    level, text = found["locked memory"]
    assert level == "warn"
    assert text.startswith("at most 64 KiB may be locked")
    assert "cure: ulimit -l unlimited" in text


@pytest.mark.once
def test_ctrl_c_is_clean() -> None:
    with started(*DOCTOR) as program:
        assert program.process.stdout is not None
        program.process.stdout.readline()
        program.process.send_signal(signal.SIGINT)
        said = program.end()
    assert (said.err, said.status) == ("", 130)


@pytest.mark.once
def test_a_terminal_gets_colours_and_lines_that_fit() -> None:
    lines = on_terminal("python -m aiofabric doctor", columns=72, **ONLY_TCP)
    assert lines[0].startswith("\033[32mok   \033[0m  library ")
    assert max(len(re.sub(r"\033\[\d+m", "", line)) for line in lines) <= 72

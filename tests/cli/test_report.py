"""doctor --report: the file, the self-test, and failures of providers, peers and files."""

import json
import os
import re
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from aiofabric.cli.doctor.selftest.operations import OPERATIONS
from aiofabric.cli.doctor.selftest.options import CHECKS
from aiofabric.cli.doctor.variable import LEFT_OUT, environment, remove, secrets
from tests.cli.programs import AIOFABRIC, Said, aiofabric, started
from tests.fixtures.ports import free_port

LONGEST = 150.0  # seconds: each of 18 checks starts two processes, which takes 2 s beside other tests on two cores
pytestmark = pytest.mark.timeout(LONGEST + 30)

QUICK = ("--idle", "0.05")
FACTS = {"versions", "environment", "limits", "devices", "interfaces", "offers"}
KINDS = {"tcp": {"connected"}, "shm": {"connected", "connectionless"}}
CONNECTED = {"messages", "remote data", "read", "write", "write with data", "connections", "idle", "interrupt"}
CONNECTIONLESS = (CONNECTED - {"connections"}) | {"tagged"}
SIZES = {"1", "300", "65536", "16777216"}


def report(folder: Path, *arguments: str, **environment: str) -> tuple[Said, dict[str, Any]]:
    """Run the command, and read the file."""
    path = folder / "report.json"
    with started(*AIOFABRIC, "doctor", "--report", str(path), *QUICK, *arguments, **environment) as program:
        said = program.end(LONGEST)
    return said, json.loads(path.read_text())


def outcomes(written: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(each["kind"], each["check"]): each["outcome"] for each in written["checks"]}


AUTHORIZED = {
    "SLINGSHOT_VNIS": "4711,4712",
    "SLINGSHOT_SVC_IDS": "99999",
    "SLURM_JWT": "ey.token.of.a.job",
    "OMPI_MCA_orte_precondition_transports": "0123456789abcdef-fedcba9876543210",
    "FI_PSM3_UUID": "1b2c3d4e-0000-1111-2222-333344445555",
    "PMI_AUTH_STRING": "hunter2hunter2",
    "FI_FAKE_api_key": "lowercase-secret",
    "AIOFABRIC_CREDENTIAL": "another-secret",
}


def test_a_report_has_every_section_and_no_authorization(tmp_path: Path) -> None:
    said, written = report(tmp_path, "--provider", "tcp", "--check", "messages", SLURM_JOB_ID="1234", **AUTHORIZED)
    assert (said.err, said.status) == ("", 0)
    assert set(written) == {"format", "created", "options", "host", "peer", "choices", "findings", "checks"}
    host = written["host"]
    assert set(host) == FACTS
    assert host["environment"]["FI_TCP_IFACE"] == "lo"
    assert host["environment"]["SLURM_JOB_ID"] == "1234"
    text = (tmp_path / "report.json").read_text() + said.out
    for name, value in AUTHORIZED.items():
        assert host["environment"][name] == LEFT_OUT
        assert value not in text
    assert {"aiofabric", "python", "libfabric", "library", "kernel", "uvloop", "trio"} <= set(host["versions"])
    assert {"memlock", "nofile", "dev_shm", "ptrace_scope", "HugePages_Total", "fork_safety"} <= set(host["limits"])
    assert {"nodes", "modules"} <= set(host["devices"])
    assert "127.0.0.1" in next(each for each in host["interfaces"] if each["name"] == "lo")["addresses"]
    assert {"tcp", "shm"} <= {offer["fabric_attr"]["prov_name"] for offer in host["offers"]}
    assert all(
        {"caps", "mode", "tx_attr", "rx_attr", "ep_attr", "domain_attr"} <= set(offer) for offer in host["offers"]
    )
    assert written["choices"]["127.0.0.1"]["provider"] == "tcp"
    assert {"library", "signals", "connect"} <= {finding["subject"] for finding in written["findings"]}
    assert set(next(c for c in written["checks"] if c["kind"] == "connected")["figures"]) == SIZES
    assert re.search(r"\nok +messages +1 B [\d.]+ [um]s, 300 B .*, 64 KiB .*, 16 MiB [\d.]+ ms\n", said.out)
    assert re.search(rf"{re.escape(str(tmp_path))}/report.json: \d checks, no failures\n$", said.out)


@pytest.mark.parametrize(
    ("provider", "checks"),
    [
        ("shm", ["tagged", "atomics", "write with data"]),
        pytest.param("tcp", [], marks=pytest.mark.long),
        pytest.param("shm", [], marks=pytest.mark.long),
        pytest.param("tcp;ofi_rxm", [], marks=pytest.mark.long),
    ],
)
def test_each_check_of_a_provider_has_a_result(provider: str, checks: list[str], tmp_path: Path) -> None:
    chosen = [word for name in checks for word in ("--check", name)]
    said, written = report(tmp_path, "--provider", provider, *chosen)
    assert (said.err, said.status) == ("", 0), said.out
    found = outcomes(written)
    assert set(found.values()) == {"ok"}
    wanted = {("connected", name) for name in CONNECTED}
    if provider != "tcp" or ("connectionless", "tagged") in found:
        wanted |= {("connectionless", name) for name in CONNECTIONLESS}
    wanted |= {("connectionless", "atomics")} if provider == "shm" else set()
    assert found.keys() >= {(kind, name) for kind, name in wanted if name in checks or not checks}


def test_fi_pingpong_is_measured_at_the_sizes_of_the_messages(tmp_path: Path) -> None:
    if shutil.which("fi_pingpong") is None:
        pytest.skip("fi_pingpong is not installed (Debian: libfabric-bin)")
    said, written = report(tmp_path, "--provider", "tcp", "--check", "messages", "--check", "fi_pingpong")
    assert (said.err, said.status) == ("", 0), said.out
    found = {(each["kind"], each["check"]): set(each["figures"]) for each in written["checks"]}
    assert found["connected", "messages"] == found["connected", "fi_pingpong"] == SIZES


@pytest.mark.once
@pytest.mark.long
def test_datagrams_are_checked_if_their_provider_is_named(tmp_path: Path) -> None:
    said, written = report(tmp_path, "--provider", "udp", "--check", "messages", "--check", "idle")
    assert (said.err, said.status) == ("", 0)
    messages, idle = written["checks"]
    assert (messages["kind"], set(messages["figures"])) == ("datagram", {"1", "300"})
    assert {"idle_s", "cpu_ms", "peer_cpu_ms", "first_us", "usual_us"} == set(idle["figures"])


@pytest.mark.once
def test_every_check_has_a_name_in_the_options() -> None:
    assert set(OPERATIONS) == set(CHECKS)


@pytest.mark.once
def test_authorization_is_removed_wherever_it_is_quoted() -> None:
    variables = {"SLINGSHOT_VNIS": "4711,4712", "FI_PROVIDER": "cxi", "HOME": "/root", "SLURM_KEY": "abc"}
    assert environment(variables) == {"FI_PROVIDER": "cxi", "SLINGSHOT_VNIS": LEFT_OUT, "SLURM_KEY": LEFT_OUT}
    found = {
        "text": ["VNIs are 4711,4712.", "no VNI 4712"],
        "domain_attr": {"auth_key": "a1b2", "name": "cxi0"},
        "ep_attr": {"auth_key": None},
    }
    assert remove(secrets(variables), found) == {
        "text": [f"VNIs are {LEFT_OUT}.", f"no VNI {LEFT_OUT}"],
        "domain_attr": {"auth_key": LEFT_OUT, "name": "cxi0"},
        "ep_attr": {"auth_key": None},
    }


def fails_in_sides(folder: Path, condition: str, statement: str) -> dict[str, str]:
    """An environment in which one side of a check runs a statement first."""
    (folder / "sitecustomize.py").write_text(f"""
import os, signal, sys, time
if "aiofabric.cli.doctor.selftest.side" in sys.orig_argv and {condition}:
    {statement}
""")
    return {"PYTHONPATH": str(folder)}


CRASH = "os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.mark.once
@pytest.mark.long
def test_a_crash_and_a_hang_are_results_and_the_other_checks_go_on(tmp_path: Path) -> None:
    crash = f"({CRASH} if 'read' in sys.orig_argv else time.sleep(60))"
    fails = fails_in_sides(tmp_path, "{'read', 'write'} & {*sys.orig_argv}", crash)
    three = ("--check", "read", "--check", "write", "--check", "interrupt")
    said, written = report(tmp_path, "--provider", "tcp", *three, "--limit", "5", **fails)
    assert (said.err, said.status) == ("", 1)
    found = {check: outcome for (kind, check), outcome in outcomes(written).items() if kind == "connected"}
    assert found == {"read": "crashed", "write": "timed out", "interrupt": "ok"}
    assert "\nFAIL   read                 crashed: it was ended by SIGSEGV\n" in said.out
    assert "\nFAIL   write                timed out: no answer in 5 s\n" in said.out


@pytest.mark.once
def test_a_crash_of_the_other_side_is_a_result(tmp_path: Path) -> None:
    crashes = fails_in_sides(tmp_path, "'follow' in sys.orig_argv", CRASH)
    said, written = report(tmp_path, "--provider", "tcp", "--check", "connections", **crashes)
    assert (said.err, said.status) == ("", 1)
    (check,) = written["checks"]
    assert (check["outcome"], check["text"]) == ("crashed", "the other side failed: ended by SIGSEGV")


@pytest.mark.once
def test_a_library_that_crashes_is_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, signal, sys
if "describe" in sys.orig_argv:
    {CRASH}
""")
    said, written = report(tmp_path, PYTHONPATH=str(tmp_path))
    assert (said.err, said.status) == ("", 1)
    assert written["host"]["failure"] == "it was ended by SIGSEGV"
    assert set(written["host"]) == FACTS | {"failure"}
    assert "\n" not in said.out.partition("FAIL   fi_getinfo           it was ended by SIGSEGV")[0]


@pytest.mark.long
def test_a_report_with_a_peer_has_both_hosts(tmp_path: Path) -> None:
    port = str(free_port())
    with started(*AIOFABRIC, "doctor", "--serve", "-P", port) as serving:
        serving.listens(port)
        checks = [word for name in ("read", "write", "connections", "interrupt") for word in ("--check", name)]
        said, written = report(tmp_path, "--peer", "127.0.0.1", "-P", port, "--provider", "tcp", *checks)
        assert (said.err, said.status) == ("", 0), said.out
        serving.process.send_signal(signal.SIGINT)
        served = serving.end()
    assert (served.out, served.err, served.status) == ("", "", 130)
    assert set(written["peer"]) == FACTS
    assert written["options"]["peer"] == "127.0.0.1"
    assert set(outcomes(written).values()) == {"ok"}
    assert {check for kind, check in outcomes(written) if kind == "connected"} == set(checks[1::2])
    assert written["choices"]["127.0.0.1"]["provider"] == "tcp"


@pytest.mark.once
def test_a_peer_that_does_not_serve_is_one_sentence(tmp_path: Path) -> None:
    port, path = str(free_port()), tmp_path / "report.json"
    said = aiofabric("doctor", "--report", str(path), "--peer", "127.0.0.1", "-P", port)
    assert (said.out, said.status) == ("", 1)
    assert said.err == (
        f"aiofabric doctor: no self-test is served at 127.0.0.1, port {port}: Connection refused; "
        f"run there: aiofabric doctor --serve -P {port}\n"
    )
    assert not path.exists()


@pytest.mark.once
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not one of a self-test; run there: aiofabric doctor --serve -P "),
        (b"", "is not one of a self-test; run there: aiofabric doctor --serve -P "),
        (b"[]\n", "is not one of a self-test; run there: aiofabric doctor --serve -P "),
        (b'{"failure": "ended by SIGSEGV"}\n', "cannot serve a self-test: ended by SIGSEGV"),
        (b'{"versions": {"aiofabric": "0.0.1"}, "offers": []}\n', "has aiofabric 0.0.1, and this host "),
    ],
    ids=["http", "silent", "list", "failure", "version"],
)
def test_another_server_at_the_port_is_one_sentence(words: bytes, reason: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        arguments = ("--report", str(tmp_path / "report.json"), "--peer", "127.0.0.1", "-P", port)
        with started(*AIOFABRIC, "doctor", *arguments) as calling:
            client, _ = other.accept()
            with client:
                client.recv(1000)
                client.sendall(words)
            said = calling.end()
    assert (said.out, said.status) == ("", 1)
    assert reason in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.once
def test_a_file_that_cannot_be_written_is_one_sentence_before_the_checks(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report.json"
    said = aiofabric("doctor", "--report", str(path))
    assert (said.out, said.status) == ("", 1)
    assert said.err == f"aiofabric doctor: cannot write the report to {path}: No such file or directory\n"


@pytest.mark.once
@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_one_sentence() -> None:
    said = aiofabric("doctor", "--report", "/dev/full", "--provider", "tcp", "--check", "connections")
    assert said.status == 1
    assert said.err == "aiofabric doctor: cannot write the report to /dev/full: No space left on device\n"


# An interrupt may come between the creation of a socket and its assignment: Python then warns of an unclosed socket.
INTERRUPTIBLE = (*AIOFABRIC[:3], "-W", "ignore:unclosed <socket.socket:ResourceWarning", *AIOFABRIC[3:])


@pytest.mark.once
def test_ctrl_c_leaves_a_file_with_the_results_until_then(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with started(
        *INTERRUPTIBLE, "doctor", "--report", str(path), "--provider", "tcp", "--check", "idle", "--idle", "50"
    ) as program:
        assert program.process.stdout is not None
        while program.process.stdout.readline() != "tcp, connected:\n":
            pass
        program.process.send_signal(signal.SIGINT)
        said = program.end()
    assert (said.err, said.status) == ("", 130)
    assert json.loads(path.read_text())["host"]["offers"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--peer", "host"], "--peer needs --report FILE"),
        (["--check", "read"], "--check needs --report FILE"),
        (["--serve", "host"], "--serve excludes --report and a host"),
        (["--serve", "--report", "FILE"], "--serve excludes --report and a host"),
        (["--report", "FILE", "host"], "--report takes no host; --peer HOST tests with another one"),
        (["--report", "FILE", "-P", "1"], "-P is the port of --serve or of --peer"),
        (["--report", "FILE", "--limit", "2"], "--limit 2 ends the test that is idle for 3 s; see --idle"),
        (["--report", "FILE", "--idle", "0"], "argument --idle: the time must be more than 0"),
        (["--report", "FILE", "--limit", "nan"], "argument --limit: the time must be more than 0"),
        (["--report", "FILE", "--check", "nosuch"], "argument --check: invalid choice: 'nosuch'"),
        (["--report", "FILE", "--provider", "nosuch"], "no provider 'nosuch'; there are "),
        (["--report"], "argument --report: expected one argument"),
        (["--serve", "-P", "65536"], "argument -P/--port: a port must be 0 to 65535"),
    ],
)
def test_wrong_options_are_status_2(
    arguments: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    said = aiofabric("doctor", *arguments)
    assert (said.out, said.status) == ("", 2)
    assert reason in said.err
    assert not (tmp_path / "FILE").exists()


@pytest.mark.once
def test_a_taken_port_is_one_sentence() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        said = aiofabric("doctor", "--serve", "-P", str(port))
    assert (said.out, said.status) == ("", 1)
    assert said.err == f"aiofabric doctor: cannot listen at port {port}: Address already in use; -P chooses another\n"


@pytest.mark.once
def test_no_library_is_one_sentence(tmp_path: Path) -> None:
    said = aiofabric("doctor", "--report", str(tmp_path / "file"), AIOFABRIC_LIBFABRIC="/nowhere/libfabric.so.1")
    assert (said.out, said.status) == ("", 1)
    assert said.err.startswith("aiofabric doctor: ")
    assert "/nowhere/libfabric.so.1" in said.err

"""info prints the offers that getinfo found: for people, for programs, and in the format of fi_info."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest

import aiofabric as fabric
from aiofabric.cli import COMMANDS
from tests.cli.programs import AIOFABRIC, LOOPBACK, SHELL, aiofabric, on_terminal, same_library, started

HEADING = ["PROVIDER", "TYPE", "DOMAIN", "PROTOCOL", "CAPABILITIES", "FABRICS"]


def table(*arguments: str) -> list[list[str]]:
    """Cells of a table, told apart by two spaces."""
    said = aiofabric("info", *arguments)
    assert (said.err, said.status) == ("", 0)
    heading, *lines = (re.split(r"\s{2,}", line) for line in said.out.splitlines())
    assert heading == HEADING
    return lines


def objects(*arguments: str) -> list[dict[str, object]]:
    said = aiofabric("info", "--json", *arguments)
    assert (said.err, said.status) == ("", 0)
    found: list[dict[str, object]] = json.loads(said.out)
    return found


def test_tells_what_there_is_without_anything_asked() -> None:
    assert ["tcp", "msg", "lo", "sock_tcp", "msg rma", "127.0.0.1/32 ::1/128"] in [
        [*row[:4], " ".join(row[4].split()[:2]), row[5]] for row in table()
    ]


@pytest.mark.parametrize("kind", ["rdm", "RDM", "ep_rdm", "FI_EP_RDM"])
def test_filters_by_endpoint_type(kind: str) -> None:
    assert {row[1] for row in table("-t", kind)} == {"rdm"}


@pytest.mark.parametrize("caps", ["tagged,atomic", "FI_TAGGED|FI_ATOMIC"])
def test_filters_by_capabilities(caps: str) -> None:
    rows = table("-c", caps)
    assert rows
    assert all({"tagged", "atomic"} <= set(row[4].split()) for row in rows)


def test_filters_by_provider_domain_and_fabric() -> None:
    (row,) = table("-p", "udp", "-d", "lo", "-f", "127.0.0.1/32", "-t", "dgram")
    assert row[:3] == ["udp", "dgram", "lo"]
    assert row[-1] == "127.0.0.1/32"


def test_filters_by_the_peer() -> None:
    (found, *_) = objects("-n", "127.0.0.1", "-P", "7471", "-p", "tcp", "-t", "msg")
    assert found["dest_addr"] == "fi_sockaddr_in://127.0.0.1:7471"


def test_filters_by_the_local_address() -> None:
    (found, *_) = objects("-s", "127.0.0.1", "-P", "7471", "-p", "tcp", "-t", "msg")
    assert found["src_addr"] == "fi_sockaddr_in://127.0.0.1:7471"
    assert found["dest_addr"] is None


def test_json_has_the_names_of_struct_fi_info() -> None:
    (found, *_) = objects("-p", "tcp", "-t", "msg", "-a", "sockaddr_in")
    assert list(found) == [
        *("caps", "mode", "addr_format", "src_addrlen", "dest_addrlen", "src_addr", "dest_addr"),
        *("tx_attr", "rx_attr", "ep_attr", "domain_attr", "fabric_attr", "nic"),
    ]
    assert {"FI_MSG", "FI_RMA"} <= set(found["caps"])  # type: ignore[call-overload]
    assert found["addr_format"] == "FI_SOCKADDR_IN"
    assert found["src_addrlen"] == 16
    assert found["fabric_attr"]["prov_name"] == "tcp"  # type: ignore[index]
    assert found["ep_attr"]["type"] == "FI_EP_MSG"  # type: ignore[index]
    assert found["ep_attr"]["max_msg_size"] == 2**64 - 1  # type: ignore[index]


@pytest.mark.skipif(shutil.which("fi_info") is None, reason="fi_info is not installed (Debian: libfabric-bin)")
def test_json_holds_every_provider_that_fi_info_knows() -> None:
    names = [info["fabric_attr"]["prov_name"] for info in objects()]  # type: ignore[index]
    with started("fi_info", **same_library()) as program:
        theirs = [line.split()[1] for line in program.end().out.splitlines() if line.startswith("provider:")]
    assert sorted(set(names)) == sorted(set(theirs))


def test_verbose_is_libfabrics_own_text() -> None:
    said = aiofabric("info", "-v", "-p", "tcp", "-t", "msg")
    first, *_ = said.out.removeprefix("---\n").split("---\n")
    assert first.startswith("fi_info:\n    caps: [ FI_MSG, ")
    assert "    fi_fabric_attr:\n" in first


def test_lists_providers() -> None:
    said = aiofabric("info", "--list")
    names = [line.split()[0] for line in said.out.splitlines()]
    assert names[0] == "PROVIDER"
    assert len(set(names)) == len(names)
    assert {"tcp", "udp", "shm"} <= set(names)
    assert {each["prov_name"] for each in objects("-l")} == set(names[1:])


def test_tells_the_variables_of_the_environment() -> None:
    said = aiofabric("info", "-e", FI_TCP_TX_SIZE="77")
    assert "\nFI_TCP_TX_SIZE=77\n    " in said.out
    known = {each["name"]: each["value"] for each in objects("-e")}
    assert known["FI_TCP_IFACE"] == LOOPBACK["FI_TCP_IFACE"]
    some = {each["name"] for each in objects("-g", "tcp_iface")}
    assert "FI_TCP_IFACE" in some < known.keys()


def test_a_provider_that_is_not_there_is_one_sentence_and_status_2() -> None:
    said = aiofabric("info", "-p", "nosuch")
    assert (said.out, said.status) == ("", 2)
    assert said.err.startswith("aiofabric info: no provider 'nosuch'; there are ")
    assert {"tcp", "shm"} <= set(said.err.rpartition("there are ")[2].rstrip().split(", "))
    assert len(said.err.splitlines()) == 1


@pytest.mark.once
def test_nothing_found_is_said_in_the_flags_that_were_typed() -> None:
    said = aiofabric("info", "-p", "udp", "-t", "FI_EP_MSG", "-d", "lo")
    assert (said.out, said.status) == ("", 1)
    assert said.err.startswith("aiofabric info: no provider has all of -p udp -d lo -t msg; it would match without -")
    assert "without -t msg" in said.err


@pytest.mark.once
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-n", "no.such.invalid"], "-n no.such.invalid: "),
        (["-s", "no.such.invalid"], "-s no.such.invalid: "),
        (["-P", "no-such-service"], "-P no-such-service: "),
        (["-P", "99999"], "a port must be 0 to 65535, not '99999'"),
        (["-g", "zzz"], "-g zzz: no variable's name contains this"),
        (["-l", "-e"], "-e/--env: not allowed with argument -l/--list"),
        (["-n", "localhost", "-s", "localhost"], "not allowed with argument"),
        (["-n", "\udcff\udcfe"], "b'\\xff\\xfe' is not valid text"),
    ],
    ids=lambda each: "".join(each[:1]) if isinstance(each, list) else "",
)
def test_wrong_usage_is_a_sentence_and_status_2(flags: list[str], words: str) -> None:
    said = aiofabric("info", *flags)
    assert (said.out, said.status) == ("", 2)
    assert words in said.err
    assert "Traceback" not in said.err


@pytest.mark.once
def test_the_command_alone_prints_its_help() -> None:
    said = aiofabric()
    assert (said.err, said.status) == ("", 0)
    assert said.out == aiofabric("--help").out
    assert all(name in said.out for name in COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        "info",
        "--help",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("info --list", "info -e", "--version", "info --help")
        ),
    ],
)
def test_output_that_cannot_be_written_is_no_traceback(arguments: str) -> None:
    for redirected, status in ((">/dev/full", 1), (">&-", 0), (">&- 2>&-", 0)):
        with started("sh", "-c", f"python -W error -m aiofabric {arguments} {redirected}", **SHELL) as program:
            said = program.end()
        assert said.status == status
        assert said.err.count("\n") == status
        assert not status or said.err.endswith(": cannot write the output: No space left on device\n")
        assert "Traceback" not in said.err


def test_versions_are_libfabrics_as_people_know_them() -> None:
    (line,) = (line for line in aiofabric("info", "--list").out.splitlines() if line.startswith("tcp "))
    assert line.split()[1].startswith(str(fabric.library_version()))


@pytest.mark.parametrize("library", ["/nowhere/libfabric.so.1", "/etc/hostname"])
def test_no_library_is_no_traceback(library: str) -> None:
    said = aiofabric("info", AIOFABRIC_LIBFABRIC=library)
    assert (said.out, said.status) == ("", 1)
    assert said.err.startswith(f"aiofabric info: AIOFABRIC_LIBFABRIC is set to '{library}'")
    assert "Traceback" not in said.err


@pytest.mark.once
@pytest.mark.parametrize(("flag", "word"), [("-t", "stream"), ("-c", "msg,loud"), ("-a", "postal"), ("-m", "dark")])
def test_an_unknown_word_is_status_2_and_the_known_ones_are_told(flag: str, word: str) -> None:
    said = aiofabric("info", flag, word)
    assert (said.out, said.status) == ("", 2)
    assert f"there is no {word.rpartition(',')[2]!r}; there are " in said.err


def test_a_reader_that_has_enough_is_no_error() -> None:
    with started("sh", "-c", "python -W error -m aiofabric info -v | head -1", **SHELL) as program:
        said = program.end()
    assert (said.out, said.err) == ("---\n", "")
    command = "for args in info --help; do python -m aiofabric $args || echo $? >&2; done | head -0"
    with started("sh", "-c", command, **SHELL) as program:
        assert program.end().err == "1\n1\n"


@pytest.mark.once
def test_version_names_both() -> None:
    said = aiofabric("--version")
    assert re.fullmatch(r"aiofabric \S+, libfabric \d+\.\d+ from /\S+\n", said.out)
    without = aiofabric("--version", AIOFABRIC_LIBFABRIC="/nowhere")
    assert re.fullmatch(r"aiofabric \S+, no libfabric\n", without.out)


def test_a_terminal_gets_lines_that_fit() -> None:
    heading, *lines = on_terminal("python -m aiofabric info", columns=80)
    assert heading.startswith("\033[1mPROVIDER")
    plain = [re.sub(r"\033\[\d+m", "", line) for line in lines]
    assert max(map(len, plain)) <= 80
    footer = "\n".join(plain).rpartition("\nlibfabric ")[2]  # as many lines as the library's path takes
    assert footer.startswith(f"{fabric.library_version()} from ")
    assert lines == on_terminal("NO_COLOR= python -m aiofabric info", columns=80)[1:]
    colourless = on_terminal("NO_COLOR=1 python -m aiofabric info", columns=80)
    assert colourless[1:] == plain


@pytest.mark.once
def test_a_terminal_that_is_too_narrow_wraps_the_lines_itself() -> None:
    lines = on_terminal("NO_COLOR=1 python -m aiofabric info -p tcp -t msg", columns=50)
    assert lines[0].split() == ["PROVIDER", "TYPE", "DOMAIN", "PROTOCOL", "CAPABILITIES", "FABRICS"]
    assert all(line.startswith("tcp ") for line in lines[1:] if "msg rma" in line)
    assert not [line for line in lines if line.startswith(" " * 30)]


@pytest.mark.once
def test_ctrl_c_while_it_is_being_imported_is_clean(tmp_path: Path) -> None:
    """A module that it imports tells so, and waits."""
    (tmp_path / "anyio.py").write_text("import sys, time\nprint(flush=True)\ntime.sleep(30)\n")
    with started(*AIOFABRIC, "info", PYTHONPATH=str(tmp_path)) as program:
        assert program.process.stdout is not None
        program.process.stdout.readline()
        program.process.send_signal(signal.SIGINT)
        said = program.end()
    assert (said.out, said.err, said.status) == ("", "", 130)

"""libfabric's constants as families: complete, with C's values, documented, and with an error for absent ones."""

# Privates: `_prefix` of a family of constants is compared with libfabric's header.

import ast
import pickle
import re
from pathlib import Path

import pytest

import aiofabric._ffi
from aiofabric import flags
from aiofabric._ffi import constants, lib
from aiofabric.flags import (
    Bind,
    Caps,
    Choice,
    EndpointType,
    Flags,
    Mode,
    MrMode,
    OpFlags,
    Order,
    Protocol,
    TrafficClass,
)

pytestmark = pytest.mark.once

FAMILIES = [
    family
    for family in vars(flags).values()
    if isinstance(family, type) and issubclass(family, Flags | Choice) and family not in (Flags, Choice)
]
SOURCES = [path for path in Path(flags.__file__).parent.glob("*.py") if path.name not in ("__init__.py", "family.py")]

# No member of a family: versions, special values, errors (errors.py), and second names of a bit.
IN_PYTHON = re.compile(
    r"AIOFABRIC_|FI_\w+_VERSION|FI_E[A-Z0-9]+$|FI_SUCCESS|FI_ADDR_UNSPEC|FI_ADDR_NOTAVAIL|FI_KEY_NOTAVAIL"
    r"|FI_SHARED_CONTEXT|FI_AV_AUTH_KEY|FI_OPT_ENDPOINT|FI_TC_DSCP|FI_TC_LABEL|FI_MR_UNSPEC"
)


def members() -> list[tuple[type[Flags | Choice], str, str]]:
    """(family, member, C name) for each line of the families' sources, of absent members too."""
    found = []
    for path in SOURCES:
        for block in re.split(r"^class ", path.read_text(), flags=re.MULTILINE)[1:]:
            family = getattr(flags, re.split(r"\W", block)[0])
            for member, name, absent in re.findall(
                r"^    (\w+) = (?:C\.(\w+)|optional\(\"(\w+)\"\))$", block, re.MULTILINE
            ):
                found.append((family, member, name or absent))
    return found


def test_every_constant_has_a_member() -> None:
    header = (Path(aiofabric._ffi.__file__).parent / "constants.cdef.h").read_text()
    wanted = {name for name in re.findall(r"#define (\w+) \.\.\.", header) if not IN_PYTHON.match(name)}
    assert wanted - {name for _, _, name in members()} == set()


def test_a_members_name_is_libfabrics_without_the_prefix() -> None:
    assert [each for each in members() if each[2] != f"{each[0]._prefix}{each[1]}"] == []


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_values_and_spelling_are_cs(family: type[Flags | Choice]) -> None:
    for member in family:
        assert getattr(constants, f"{family._prefix}{member.name}") == member
        assert str(member) == f"{member}" == f"{family._prefix}{member.name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_member_is_documented(path: Path) -> None:
    for family in ast.parse(path.read_text()).body:
        if not isinstance(family, ast.ClassDef):
            continue
        assert ast.get_docstring(family), family.name
        for this, following in zip(family.body, [*family.body[1:], None], strict=True):
            if isinstance(this, ast.Assign):
                documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                assert documented, f"{family.name}.{ast.unparse(this.targets[0])}"


def test_flags_combine_and_spell_out() -> None:
    assert str(Caps.MSG | Caps.RMA) == "FI_MSG | FI_RMA"
    assert str(Caps(0)) == "0"
    assert [repr(each) for each in (Caps.MSG | Caps.RMA, Caps(0))] == ["<Caps.MSG|RMA: 0x6>", "<Caps: 0>"]
    assert f"{Caps.MSG:#x}" == "0x2"


def test_unknown_bits_are_kept() -> None:
    odd = Caps(1 << 61 | Caps.MSG)
    assert int(odd) == 1 << 61 | Caps.MSG
    assert str(odd) == "FI_MSG | 0x2000000000000000"
    assert repr(odd) == "<Caps.MSG|0x2000000000000000: 0x2000000000000002>"
    assert repr(Caps(1 << 61)) == "<Caps: 0x2000000000000000>"


def test_an_unknown_choice_is_accepted() -> None:
    newer = Protocol(9999)
    assert newer == 9999
    assert str(newer) == "FI_PROTO_UNKNOWN_0x270f"
    assert pickle.loads(pickle.dumps(newer)) == newer
    with pytest.raises(ValueError, match="not a valid"):
        Protocol("tcp")  # type: ignore[arg-type]  # the point


def test_a_name_that_the_headers_lack_explains_itself() -> None:
    for family, member, name in members():
        if getattr(constants, name) == constants.AIOFABRIC_ABSENT:
            assert not hasattr(family, member)
            with pytest.raises(AttributeError, match=rf"{name} is not part of libfabric \d+\.\d+, with whose"):
                getattr(family, member)
        else:
            assert int(getattr(family, member)) == getattr(constants, name)


def test_a_name_that_nobody_has_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Caps has no TELEPATHY"):
        Caps.TELEPATHY  # noqa: B018


def test_strict_order_is_all_nine() -> None:
    nine = (first + "A" + second for first in "RWS" for second in "RWS")
    assert sum(Order[name] for name in nine) == Order.STRICT
    assert int(Order.NONE) == 0


def test_transmit_is_another_name_of_send() -> None:
    assert Bind["TRANSMIT"] is Bind["SEND"]
    assert constants.FI_TRANSMIT == constants.FI_SEND


def test_families_do_not_mix_their_meanings() -> None:
    """The same bit means different things in different families, so each has its own."""
    assert int(Mode.CONTEXT) == int(OpFlags.CLAIM) == int(Bind.SELECTIVE_COMPLETION)
    assert {str(Mode.CONTEXT), str(OpFlags.CLAIM)} == {"FI_CONTEXT", "FI_CLAIM"}
    assert MrMode.LOCAL.name == "LOCAL"
    assert EndpointType["RDM"] is EndpointType.RDM


@pytest.mark.parametrize("dscp", [0, 46, 63])
def test_a_dscp_is_a_traffic_class(dscp: int) -> None:
    found = TrafficClass.from_dscp(dscp)
    assert found == lib.fi_tc_dscp_set(dscp) != dscp
    assert found.dscp == lib.fi_tc_dscp_get(found) == dscp


def test_what_is_no_dscp_is_none() -> None:
    assert TrafficClass.LOW_LATENCY.dscp is None
    with pytest.raises(ValueError, match="0 to 63"):
        TrafficClass.from_dscp(64)

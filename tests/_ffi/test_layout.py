"""Structures that Python decodes have the layout that C writes."""

import struct

from aiofabric._ffi import constants, ffi


def test_completions_decode_as_one_struct() -> None:
    entries = ffi.new("struct fi_cq_tagged_entry[3]")
    for n, entry in enumerate(entries):
        entry.op_context = ffi.cast("void *", 100 + n)
        entry.flags, entry.len, entry.data, entry.tag = 1 << 63 | n, 2 * n, 3 * n, 2**64 - 1
        entry.buf = ffi.cast("void *", 200 + n)
    assert list(struct.iter_unpack("PQNPQQ", memoryview(ffi.buffer(entries)))) == [
        (100 + n, 1 << 63 | n, 2 * n, 200 + n, 3 * n, 2**64 - 1) for n in range(3)
    ]


def test_an_error_entry_has_room_for_what_1_20_appends() -> None:
    wide = ffi.new("struct aiofabric_cq_err_entry *")
    assert ffi.sizeof(wide[0]) == 88
    wide.src_addr = 7
    assert bytes(ffi.buffer(wide))[80:] == struct.pack("Q", 7)
    wide.entry.err = constants.FI_ETRUNC
    assert ffi.cast("struct fi_cq_err_entry *", wide).err == constants.FI_ETRUNC


def test_a_slot_holds_either_context() -> None:
    assert ffi.sizeof("struct fi_context") == 32
    assert ffi.sizeof("struct fi_context2") == 64
    assert ffi.sizeof("struct fi_triggered_context") == ffi.sizeof("struct fi_context")
    assert ffi.sizeof("struct fi_triggered_context2") == ffi.sizeof("struct fi_context2")


def test_a_flexible_tail_is_addressed_after_the_entry() -> None:
    assert ffi.offsetof("struct fi_eq_cm_entry", "data") == ffi.sizeof("struct fi_eq_cm_entry") == 16

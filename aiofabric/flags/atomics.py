"""Choices for atomics, collectives, and operations that start later."""

from .._ffi import constants as C
from .family import Choice, Flags, optional


class Datatype(Choice):
    """Types of atomic and collective operands (man page: fi_atomic)."""

    INT8 = C.FI_INT8
    """Signed, 1 byte."""
    UINT8 = C.FI_UINT8
    """Unsigned, 1 byte."""
    INT16 = C.FI_INT16
    """Signed, 2 bytes."""
    UINT16 = C.FI_UINT16
    """Unsigned, 2 bytes."""
    INT32 = C.FI_INT32
    """Signed, 4 bytes."""
    UINT32 = C.FI_UINT32
    """Unsigned, 4 bytes."""
    INT64 = C.FI_INT64
    """Signed, 8 bytes."""
    UINT64 = C.FI_UINT64
    """Unsigned, 8 bytes."""
    FLOAT = C.FI_FLOAT
    """4 bytes."""
    DOUBLE = C.FI_DOUBLE
    """8 bytes."""
    FLOAT_COMPLEX = C.FI_FLOAT_COMPLEX
    """Two floats."""
    DOUBLE_COMPLEX = C.FI_DOUBLE_COMPLEX
    """Two doubles."""
    LONG_DOUBLE = C.FI_LONG_DOUBLE
    """C's long double, 16 bytes here."""
    LONG_DOUBLE_COMPLEX = C.FI_LONG_DOUBLE_COMPLEX
    """Two of them."""
    INT128 = C.FI_INT128
    """Signed, 16 bytes."""
    UINT128 = C.FI_UINT128
    """Unsigned, 16 bytes."""
    FLOAT16 = optional("FI_FLOAT16")
    """2.0: 2 bytes, IEEE 754."""
    BFLOAT16 = optional("FI_BFLOAT16")
    """2.0: 2 bytes, the exponent of a float."""
    FLOAT8_E4M3 = optional("FI_FLOAT8_E4M3")
    """2.0: 1 byte, 4 bits of exponent."""
    FLOAT8_E5M2 = optional("FI_FLOAT8_E5M2")
    """2.0: 1 byte, 5 bits of exponent."""
    VOID = C.FI_VOID
    """Collectives: no operand, or plain bytes."""


class AtomicOp(Choice):
    """The new value of the target, from target and operand (man page: fi_atomic)."""

    MIN = C.FI_MIN
    """The smaller."""
    MAX = C.FI_MAX
    """The larger."""
    SUM = C.FI_SUM
    """The sum."""
    PROD = C.FI_PROD
    """The product."""
    LOR = C.FI_LOR
    """Logical or."""
    LAND = C.FI_LAND
    """Logical and."""
    BOR = C.FI_BOR
    """Bitwise or."""
    BAND = C.FI_BAND
    """Bitwise and."""
    LXOR = C.FI_LXOR
    """Logical exclusive or."""
    BXOR = C.FI_BXOR
    """Bitwise exclusive or."""
    ATOMIC_READ = C.FI_ATOMIC_READ
    """Fetch only: the target is not changed."""
    ATOMIC_WRITE = C.FI_ATOMIC_WRITE
    """The operand."""
    CSWAP = C.FI_CSWAP
    """Compare only: the operand if compare == target."""
    CSWAP_NE = C.FI_CSWAP_NE
    """Compare only: the operand if compare != target."""
    CSWAP_LE = C.FI_CSWAP_LE
    """Compare only: the operand if compare <= target."""
    CSWAP_LT = C.FI_CSWAP_LT
    """Compare only: the operand if compare < target."""
    CSWAP_GE = C.FI_CSWAP_GE
    """Compare only: the operand if compare >= target."""
    CSWAP_GT = C.FI_CSWAP_GT
    """Compare only: the operand if compare > target."""
    MSWAP = C.FI_MSWAP
    """Compare only: the operand's bits where compare has ones."""
    DIFF = optional("FI_DIFF")
    """2.0: the difference."""
    NOOP = C.FI_NOOP
    """Collectives: nothing."""


class AtomicForm(Flags):
    """The result of an atomic operation (man page: fi_atomic)."""

    BASE = 0
    """None: the operation only updates the target."""
    FETCH_ATOMIC = C.FI_FETCH_ATOMIC
    """The previous value of the target."""
    COMPARE_ATOMIC = C.FI_COMPARE_ATOMIC
    """The previous value of the target, which is updated only if the comparison is true."""


class CollectiveOp(Choice):
    """Operations over a group (man page: fi_collective)."""

    BARRIER = C.FI_BARRIER
    """Wait for all members."""
    BROADCAST = C.FI_BROADCAST
    """The root's data to all members."""
    ALLTOALL = C.FI_ALLTOALL
    """From each member to each member, a different part each."""
    ALLREDUCE = C.FI_ALLREDUCE
    """The data of all members combined, to all."""
    ALLGATHER = C.FI_ALLGATHER
    """The data of all members side by side, to all."""
    REDUCE_SCATTER = C.FI_REDUCE_SCATTER
    """The data of all members combined, a part to each."""
    REDUCE = C.FI_REDUCE
    """The data of all members combined, to the root."""
    SCATTER = C.FI_SCATTER
    """The root's data, a part to each member."""
    GATHER = C.FI_GATHER
    """The data of all members side by side, to the root."""


class TriggerEvent(Choice, prefix="FI_TRIGGER_"):
    """The event that starts a triggered operation (man page: fi_trigger)."""

    THRESHOLD = C.FI_TRIGGER_THRESHOLD
    """A counter reaches a value."""
    XPU = C.FI_TRIGGER_XPU
    """A device writes certain words."""


class DeferredOp(Choice, prefix="FI_OP_"):
    """Kinds of deferred work (man page: fi_trigger)."""

    RECV = C.FI_OP_RECV
    """A receive."""
    SEND = C.FI_OP_SEND
    """A send."""
    TRECV = C.FI_OP_TRECV
    """A tagged receive."""
    TSEND = C.FI_OP_TSEND
    """A tagged send."""
    READ = C.FI_OP_READ
    """A read."""
    WRITE = C.FI_OP_WRITE
    """A write."""
    ATOMIC = C.FI_OP_ATOMIC
    """An atomic update."""
    FETCH_ATOMIC = C.FI_OP_FETCH_ATOMIC
    """An atomic fetch."""
    COMPARE_ATOMIC = C.FI_OP_COMPARE_ATOMIC
    """An atomic compare."""
    CNTR_SET = C.FI_OP_CNTR_SET
    """Setting a counter."""
    CNTR_ADD = C.FI_OP_CNTR_ADD
    """Adding to a counter."""

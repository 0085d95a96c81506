"""RpcError: a call ended with a status other than OK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .protocol.status import MOST_CODE, StatusCode

if TYPE_CHECKING:
    from .protocol.metadata import Metadata

__all__ = ["RpcError"]


class RpcError(Exception):
    """A call ended with a status other than OK. A handler raises it to end its call with that status.

    Attributes:
        code: a `StatusCode`, or the number if it is none of gRPC's.
        details: the server's text.
        trailing_metadata: pairs of key and value.
        may_have_run: False if certainly no handler has seen the call, so that it can be repeated without harm.
    """

    def __init__(
        self,
        code: StatusCode | int,
        details: str = "",
        trailing_metadata: Metadata = (),
        *,
        may_have_run: bool = True,
    ) -> None:
        super().__init__(code, details, trailing_metadata)
        if not isinstance(details, str):
            raise TypeError(f"The details of a status must be a str, not {details!r}")
        if not isinstance(code, int):
            raise TypeError(f"The code of a status must be a StatusCode, or a number, not {code!r}")
        if not 0 <= code <= MOST_CODE:
            raise ValueError(f"The code of a status must be from 0 to {MOST_CODE}, not {code!r}")
        try:
            self.code: StatusCode | int = StatusCode(code)
        except ValueError:
            self.code = int(code)
        self.details = details
        self.trailing_metadata = trailing_metadata
        self.may_have_run = may_have_run

    @property
    def rich_status(self) -> bytes | None:
        """A serialised ``google.rpc.Status`` with more about the error, if the handler has sent one.

        It travels in the trailing metadata, as grpcio-status puts it there.
        """
        for key, value in self.trailing_metadata:
            if key == "grpc-status-details-bin" and isinstance(value, bytes):
                return value
        return None

    def __str__(self) -> str:
        name = self.code.name if isinstance(self.code, StatusCode) else f"status {self.code}"
        text = f"{name}: {self.details}" if self.details else name
        if self.code == StatusCode.UNAVAILABLE:
            text += " (the call may have run)" if self.may_have_run else " (the call has not run)"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        state = {"may_have_run": self.may_have_run}
        return type(self), (self.code, self.details, self.trailing_metadata), state

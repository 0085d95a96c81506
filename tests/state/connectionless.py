"""One pair of connectionless endpoints: plain and tagged messages with masks, remote memory, cancels and closes."""

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import rule

import aiofabric
from aiofabric import EndpointType, Quirk
from aiofabric.features import quirks
from tests.fixtures.peers import where
from tests.state.machine import ITERATIONS, OUTSTANDING, PICKS, ROOM, SIDES, SIZES, SPANS, Machine

TAGS = st.integers(1, 4)
MASKS = st.sampled_from((0, 1, 2, 3, 7))
PLAIN = 0  # in the books: a message without a tag


class Connectionless(Machine):
    """Two RDM endpoints that know each other."""

    rma: ClassVar[bool] = True

    async def open(self) -> None:
        kind, place = EndpointType.RDM, where(self.provider)
        self.ends = [
            await self.stack.enter_async_context(aiofabric.open_endpoint(kind, place, provider=self.provider))
            for _ in range(2)
        ]
        one, other = self.ends
        self.peers = [await one.add_peer(other.local_address), await other.add_peer(one.local_address)]

        self.masked = Quirk.IGNORE_FORGOTTEN not in quirks(one.info)  # else refused

    def to(self, side: int) -> dict[str, Any]:
        return {"to": self.peers[side]}

    @rule(side=SIDES, size=SIZES, tag=st.none() | TAGS)
    def send(self, side: int, size: int, tag: int | None) -> None:
        books, end, to = self.books[side], self.ends[side], self.to(side)
        if books.outstanding < OUTSTANDING:
            number, data = books.write(size, tag or PLAIN)
            send = (lambda: end.send(data, **to)) if tag is None else (lambda: end.send_tagged(data, tag, **to))
            self.start_send(side, number, send)

    @rule(side=SIDES)
    def receive(self, side: int) -> None:
        if len(self.receiving[side]) < OUTSTANDING:
            self.start_receive(side, None, lambda: self.ends[side].recv())

    @rule(side=SIDES, tag=TAGS, mask=MASKS, directed=st.booleans())
    def receive_tagged(self, side: int, tag: int, mask: int, directed: bool) -> None:
        if len(self.receiving[side]) < OUTSTANDING:
            end, source = self.ends[side], self.peers[side] if directed else None
            mask = mask if self.masked else 0
            receive = lambda: end.recv_tagged(tag, ignore=mask, source=source, max_bytes=ROOM)  # noqa: E731
            self.start_receive(side, (tag, mask), receive)

    @rule(side=SIDES, pick=PICKS)
    def cancel_send(self, side: int, pick: int) -> None:
        self.cancel(self.sending[side], pick)

    @rule(side=SIDES, pick=PICKS)
    def cancel_receive(self, side: int, pick: int) -> None:
        self.cancel(self.receiving[side], pick)

    @rule(side=SIDES, size=SIZES, tag=TAGS, iterations=ITERATIONS)
    def cancel_as_it_comes(self, side: int, size: int, tag: int, iterations: int) -> None:
        books, end, other, to = self.books[1 - side], self.ends[side], self.ends[1 - side], self.to(1 - side)
        if books.outstanding < OUTSTANDING and len(self.receiving[side]) < OUTSTANDING:
            number, data = books.write(size, tag)
            receive = lambda: end.recv_tagged(tag, max_bytes=ROOM)  # noqa: E731
            send = lambda: other.send_tagged(data, tag, **to)  # noqa: E731
            self.cancel_amid(side, (tag, 0), receive, number, send, iterations)

    @rule(side=SIDES, span=SPANS, cancel=st.booleans())
    def write_memory(self, side: int, span: slice, cancel: bool) -> None:
        if self.rma:
            self.write(side, span, cancel)

    @rule(side=SIDES, span=SPANS)
    def read_memory(self, side: int, span: slice) -> None:
        if self.rma:
            self.read(side, span)

    def received(self, side: int, what: Any, message: bytes) -> None:
        _, tag = self.books[1 - side].read(message)
        if what is None:
            assert tag == PLAIN, f"a plain receive got a message tagged {tag}"
        else:
            wanted, mask = what
            assert tag != PLAIN, "a tagged receive got a plain message"
            assert message.tag == tag, "the tag that was told is not the tag that was sent"  # type: ignore[attr-defined]
            assert not (tag ^ wanted) & ~mask, f"a receive for {wanted} but {mask:#b} got {tag}"

    @rule(side=SIDES)
    def drain(self, side: int) -> None:
        """Every message whose send has returned can be received, once no other receive can take it."""
        while self.receiving[side]:
            self.cancel(self.receiving[side], 0)
        self.run(self._take_all(side))

    async def _take_all(self, side: int) -> None:
        books, end = self.books[1 - side], self.ends[side]
        while books.owed:
            tag = books.tags[min(books.owed)]  # a cancelled send's message may have it, too
            if tag == PLAIN:
                self.received(side, None, await end.recv())
            else:
                self.received(side, (tag, 0), await end.recv_tagged(tag, max_bytes=ROOM))
            self.settle_sends(1 - side)

    @rule(first=SIDES)
    def close_and_open_again(self, first: int) -> None:
        self.close_both(first)
        self.run(self._begin())

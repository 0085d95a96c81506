# ruff: noqa: E501 - a table reads better with a row on a line
"""For each statement that holds: the edits that take its behaviour out of aiofabric, so that its test must fail.

An edit is a file below ``aiofabric/``, a text that is there once, and the text that replaces it. Where a provider does
all of it, the edit changes what aiofabric passes on. ``make mutate ARGS=--statements`` makes the edits, one statement
at a time.
"""

from typing import TypeAlias

Edits: TypeAlias = tuple[tuple[str, str, str], ...]

_CHILDREN_LAST: Edits = (
    ("resource.py", "            order.callback(self._leave)\n            for child in self.children:\n                order.callback(child.close)", "            for child in self.children:\n                order.callback(child.close)\n            order.callback(self._leave)"),
    ("resource.py", "if self.released or self.lingers or self.children:", "if self.released or self.lingers:"),
)  # fmt: skip

MUTATIONS: dict[str, Edits] = {
    "Without node, service and hints, all available interfaces are returned.": (
        ("info/discovery.py", '    offered = list(_unchained(found[0], None if hints is None else open_object("handle", hints.handle)))', '    offered = list(_unchained(found[0], None if hints is None else open_object("handle", hints.handle)))[:1]'),
    ),
    "Where nothing matches, the answer is FI_ENODATA and no list.": (
        ("info/discovery.py", "    if not found:\n        _check_name", "    if False:\n        _check_name"),
    ),
    "Each answer belongs to one domain, which is opened with it.": (
        ("domain.py", "lib.fi_domain(self.fabric._handle.fid, info.native, out", "lib.fi_domain(self.fabric._handle.fid, info.replace(addr_format=2, src_addr=None, dest_addr=None).native, out"),
    ),
    "More hints restrict the answer, fewer extend it.": (
        ("info/discovery.py", "ffi.NULL if hints is None else _of_version(hints, version).to_native(),", "ffi.NULL,"),
    ),
    "An older version may be asked for.": (
        ("info/discovery.py", "        version.native,\n", "        api_version().native,\n"),
    ),
    "The version determines what structures say: before 1.5, mr_mode is FI_MR_BASIC or FI_MR_SCALABLE.": (
        ("info/discovery.py", '    offered = list(_unchained(found[0], None if hints is None else open_object("handle", hints.handle)))', '    offered = list(_unchained(found[0], None if hints is None else open_object("handle", hints.handle)))\n    for each in offered:\n        each.native.domain_attr.mr_mode &= ~3'),
    ),
    "A node is resolved to a fabric address.": (
        ("info/discovery.py", "ffi.NULL if node is None else node.encode(),", "ffi.NULL,"),
    ),
    "A service is a port number.": (
        ("info/discovery.py", "ffi.NULL if service is None else service.encode(),", "ffi.NULL,"),
    ),
    "A service is a name of the system's table.": (
        ("info/discovery.py", "ffi.NULL if service is None else service.encode(),", "ffi.NULL if service is None or not service.isdecimal() else service.encode(),"),
    ),
    "A node may be an FI_ADDR_STR address.": (
        ("info/discovery.py", "if node is not None and (parts := split_uri(node)) is not None:", "if node is not None and False:"),
    ),
    "Beside an FI_ADDR_STR address the service is NULL.": (
        ("info/place.py", "    _check_port(service)\n    if node is None:", "    _check_port(service)\n    service = None\n    if node is None:"),
    ),
    "A value in hints that is not 0 is supported, or the answer is FI_ENODATA.": (
        ("info/matching.py", "        and all(_is_enough(path, wanted, attrgetter(path)(info)) for path, wanted in sizes)\n", ""),
    ),
    "A value of 0 in hints, other than a mode, is a wildcard.": (
        ("info/matching.py", "return all(not wanted or wanted == offered for", "return all(wanted == offered for"),
    ),
    "A mode bit that hints do not have is not supported by the application.": (
        ("info/hints.py", "        if self.ep_attr.type != EndpointType.DGRAM:\n            native.mode &= ~int(Mode.MSG_PREFIX)\n", "        native.mode = (1 << 64) - 1\n"),
    ),
    "fi_freeinfo releases what was returned.": (
        ("info/discovery.py", "yield Info(ffi.gc(native, lib.fi_freeinfo), opened if handle else None)", "yield Info(native, opened if handle else None)"),
    ),
    "A member of the list lives as long as it is used.": (
        ("info/discovery.py", "following, native.next = native.next, ffi.NULL", "following = native.next"),
    ),
    "fi_dupinfo copies one structure with all that is in it.": (
        ("info/discovery.py", "        return Info(ffi.gc(native, lib.fi_freeinfo), self._opened)", "        return Info(self.native, self._opened)"),
    ),
    "Several threads may call fi_getinfo at once.": (
        ("info/discovery.py", '    found = ffi.new("struct fi_info **")\n', '    found = _ask.__dict__.setdefault("found", ffi.new("struct fi_info **"))\n'),
    ),
    "addr_format chooses the form of addresses.": (
        ("info/hints.py", 'if each.name != "handle"}', 'if each.name not in ("handle", "addr_format")}'),
        ("info/matching.py", "        and _has_format(info, hints.addr_format)\n", ""),
    ),
    "src_addr in hints is the local address.": (
        ("info/hints.py", 'if each.name != "handle"}', 'if each.name not in ("handle", "src_addr")}'),
    ),
    "dest_addr in hints is used where there is no node and no service.": (
        ("info/hints.py", 'if each.name != "handle"}', 'if each.name not in ("handle", "dest_addr")}'),
    ),
    "A passive endpoint as handle in hints comes back in the answer.": (
        ("info/hints.py", '        native.handle = native_of(open_object("handle", self.handle))\n', ""),
    ),
    "Attributes of the answer are at least those of the hints.": (
        ("info/matching.py", "        and all(_is_enough(path, wanted, attrgetter(path)(info)) for path, wanted in sizes)\n", ""),
    ),
    "FI_MSG: messages are sent and received.": (
        ("transport/route.py", "        if remote_data is not None:\n            message.data = remote_data\n            flags |= _REMOTE_CQ_DATA\n        what, function", "        what, function"),
        ("transport/route.py", "args = (handle.fid, pins, size, descriptor, remote_data, *to)", "args = (handle.fid, pins, size, descriptor, 0, *to)"),
    ),
    "FI_TAGGED: a message goes to the receive with its tag.": (
        ("transport/tagged/tagged.py", "return (_UNSPEC if source is None else handle.receive_from(source), tag, ignore)", "return (_UNSPEC if source is None else handle.receive_from(source), tag, (1 << 64) - 1)"),
    ),
    "FI_RMA: an endpoint reads and writes a peer's memory, and is the target of both.": (
        ("transport/opening/selection.py", "connected, tagged = preferred(Caps.MSG | Caps.RMA), preferred(", "connected, tagged = preferred(Caps.MSG), preferred("),
    ),
    "FI_ATOMIC: an endpoint does atomic operations on a peer's memory.": (
        ("transport/rma/atomic.py", "given.datatype, op\n        more", "given.datatype, AtomicOp.SUM\n        more"),
    ),
    "FI_COLLECTIVE: the members of a group combine their values.": (
        ("transport/connectionless/collective.py", 'await self._run("fi_allreduce", parts, (given.datatype, op, 0)', 'await self._run("fi_allreduce", parts, (given.datatype, AtomicOp.MIN, 0)'),
    ),
    "FI_MULTICAST: a datagram that is sent to a group reaches an endpoint that has joined.": (
        ("transport/connectionless/multicast.py", "self.own_flags(flags) | constants.FI_MULTICAST)", "self.own_flags(flags))"),
    ),
    "FI_DIRECTED_RECV: a receive waits for the message of one peer.": (
        ("transport/connectionless/handle.py", "        self.vector.absent.check_receivable(peer.native)\n        return peer.native", "        self.vector.check(peer)\n        return (1 << 64) - 1"),
    ),
    "FI_MULTI_RECV: a buffer takes several messages.": (
        ("transport/messages/multi_pool.py", "lib.fi_recvmsg(handle.fid, slab.message, _MULTI_RECV)", "lib.fi_recvmsg(handle.fid, slab.message, 0)"),
    ),
    "FI_NAMED_RX_CTX: a sender names the receive context of its peer.": (
        ("address_vector.py", "native = lib.fi_rx_addr(self.native, index, bits)", "native = self.native"),
    ),
    "FI_RMA_EVENT: operations on memory are counted at their target.": (
        ("cq/counter.py", 'ffi.cast("struct fid *", handle.fid), flags), "fi_ep_bind")', 'ffi.cast("struct fid *", handle.fid), flags & ~constants.FI_REMOTE_WRITE | constants.FI_REMOTE_READ), "fi_ep_bind")'),
    ),
    "An operation on memory with remote data has a completion at its target.": (
        ("transport/route.py", "        if remote_data is None:\n            return self.submit(what, getattr(lib, what)", "        if True:\n            return self.submit(what, getattr(lib, what)"),
    ),
    "FI_SOURCE: a message names its sender, on connectionless endpoints.": (
        ("transport/connectionless/endpoint.py", "size=entries_of(info), source=named)", "size=entries_of(info), source=False)"),
    ),
    "FI_TRIGGER: an operation starts when a counter reaches a value.": (
        ("transport/rma/triggered.py", "        flags = route.own_flags(None) | _TRIGGER | constants.FI_COMPLETION\n        await route.outcome(route.post(", "        flags = route.own_flags(None) | constants.FI_COMPLETION\n        await route.outcome(route.post("),
    ),
    "FI_LOCAL_COMM and FI_REMOTE_COMM say which peers can be reached.": (
        ("info/hints.py", "native.handle = native_of", "native.caps &= ~int(Caps.REMOTE_COMM); native.handle = native_of"),
        ("info/matching.py", "        and not int(hints.caps) & ~int(info.caps)\n", ""),
    ),
    "FI_SEND and FI_RECV restrict messages to one direction.": (
        ("transport/exclusions.py", "return direction & ~caps if caps & said else Caps(0)", "return Caps(0)"),
    ),
    "FI_READ, FI_WRITE, FI_REMOTE_READ and FI_REMOTE_WRITE restrict operations on memory.": (
        ("transport/exclusions.py", "return direction & ~caps if caps & said else Caps(0)", "return Caps(0)"),
    ),
    "Operations that the capabilities exclude are not supported.": (
        ("transport/exclusions.py", "        return kind | direction\n", "        return Caps(0)\n"),
    ),
    "A requested secondary capability is granted, or nothing is offered.": (
        ("info/hints.py", "native.handle = native_of", "native.caps = 0; native.handle = native_of"),
        ("info/matching.py", "        and not int(hints.caps) & ~int(info.caps)\n", ""),
    ),
    "FI_SOCKADDR_IN and FI_SOCKADDR_IN6 are those of the system.": (
        ("address.py", 'big_endian = port.to_bytes(2, "big")', 'big_endian = port.to_bytes(2, "little")'),
    ),
    "FI_SOCKADDR contains its family.": (
        ("address.py", "_IP_KINDS.get((int.from_bytes(raw[:2], sys.byteorder), len(raw)), format)", "AddressFormat.SOCKADDR_IN"),
    ),
    "FI_ADDR_STR is text, of the form of a URI.": (
        ("address.py", "        if (parts := split_uri(text)) is not None:\n            host", "        if False:\n            host"),
    ),
    "An address of FI_FORMAT_UNSPEC is opaque.": (
        ("address.py", " if self.format in _SOCKET_FORMATS else 0", ""),
    ),
    "FI_NUMERICHOST: a node is a number, and no name is looked up.": (
        ("info/discovery.py", "    if GetInfoFlags.NUMERICHOST in flags and node is not None and not is_numeric(node):\n        return FI_ENODATA\n", ""),
    ),
    "FI_PROV_ATTR_ONLY: each provider answers once, usable or not.": (
        ("info/discovery.py", "        flags,\n        ffi.NULL if hints is None else _of", "        flags & ~GetInfoFlags.PROV_ATTR_ONLY,\n        ffi.NULL if hints is None else _of"),
    ),
    "FI_PROV_ATTR_ONLY with a provider's name gives that one.": (
        ("info/matching.py", 'if names == [""] or info.fabric_attr.prov_name in names]', "]"),
    ),
    "FI_SOURCE: node and service are the local address.": (
        ("info/discovery.py", "        flags,\n        ffi.NULL if hints is None else _of", "        flags & ~GetInfoFlags.SOURCE,\n        ffi.NULL if hints is None else _of"),
    ),
    "FI_SOURCE needs a node or a service.": (
        ("info/discovery.py", "        flags,\n        ffi.NULL if hints is None else _of", "        flags & ~GetInfoFlags.SOURCE,\n        ffi.NULL if hints is None else _of"),
    ),
    "FI_ENODATA: no provider supports what was asked for.": (
        ("info/discovery.py", "NoProviderError(FI_ENODATA,", "NoProviderError(FI_ENODATA + 1,"),
    ),
    "FI_ENOSYS: the version asked for is newer than the library.": (
        ("info/discovery.py", "        if found != FI_ENODATA:\n", "        if False:\n"),
    ),
    "A passive endpoint listens, or reserves an address for an active one.": (
        ("cm/passive.py", '            check(lib.fi_listen(self.fid), "fi_listen", local=info.src_addr)\n', ""),
    ),
    "An endpoint without the queues that it needs is not enabled: FI_ENOCQ.": (
        ("transport/connectionless/endpoint.py", '    check(rc, "fi_enable")\n', ""),
    ),
    "A connectionless endpoint without an address vector is not enabled.": (
        ("transport/connectionless/endpoint.py", '    check(rc, "fi_enable")\n', '    check(0 if rc in (-constants.FI_ENOAV, -constants.FI_EOPBADSTATE) else rc, "fi_enable")\n'),
    ),
    "An endpoint with manual progress moves when its queues are read.": (
        ("transport/opening/selection.py", "    hints = replace(hints, ep_attr=replace(hints.ep_attr, type=kind))\n", "    hints = replace(hints, ep_attr=replace(hints.ep_attr, type=kind), domain_attr=replace(hints.domain_attr, data_progress=1))\n"),
    ),
    "An endpoint has the properties of the fi_info that it is opened with.": (
        ("transport/opening/options.py", "domain._handle.fid, as_opened(info, self)", 'domain._handle.fid, as_opened(info, self).replace(tx_attr={"op_flags": OpFlags(0)})'),
    ),
    "The application can reset attributes, such as ordering bits, before it opens the endpoint.": (
        ("transport/opening/selection.py", "        return await _placed(info, node, service, passive=passive)\n    wanted = _complete(hints, kind, provider", '        return await _placed(info.replace(tx_attr={"msg_order": 15}), node, service, passive=passive)\n    wanted = _complete(hints, kind, provider'),
        ("transport/opening/selection.py", "return info if connectionless else await _placed(info,", 'return info if connectionless else await _placed(info.replace(tx_attr={"msg_order": 15}),'),
    ),
    "An endpoint that accepts is opened with the fi_info of its request.": (
        ("transport/opening/options.py", "opened.native.handle = request or info.native_handle()", "opened.native.handle = info.native_handle()"),
    ),
    "An active endpoint takes over the address of a passive one, which then is of no use.": (
        ("transport/connected/connect.py", "            info = info.replace(handle=reservation)\n", "            pass\n"),
    ),
    "Operations under way are discarded without a completion.": (
        ("cq/submission.py", "        for transfer in left:\n            self._finish(transfer, error())\n        self._wake_waiters()\n\n    def _finish", "        self._wake_waiters()\n\n    def _finish"),
    ),
    "A scalable endpoint with open contexts is FI_EBUSY.": _CHILDREN_LAST,
    "An object in use is not closed.": (
        ("resource.py", "        if rc == -constants.FI_EBUSY and not self.children:\n", "        if False:\n"),
    ),
    "A passive endpoint is bound to an event queue.": (
        ("cm/passive.py", '            check(lib.fi_pep_bind(self.fid, self.events.native, 0), "fi_pep_bind")\n', ""),
    ),
    "Shared contexts are bound before the endpoint is enabled.": (
        ("transport/connected/endpoint.py", '            options.apply(handle)\n            check(lib.fi_enable(ep), "fi_enable")\n', '            check(lib.fi_enable(ep), "fi_enable")\n            options.apply(handle)\n'),
    ),
    "FI_TRANSMIT and FI_RECV direct completions to a queue.": (
        ("transport/connectionless/scalable.py", "queue.native, constants.FI_TRANSMIT)", "queue.native, constants.FI_RECV)"),
    ),
    "FI_SELECTIVE_COMPLETION: an operation has a completion if it asks for one.": (
        ("transport/opening/options.py", "selective = constants.FI_SELECTIVE_COMPLETION if self.selective else 0", "selective = 0"),
    ),
    "An operation that fails has a completion in any case.": (
        ("cq/source/unmatched.py", "        self.errors += 1\n", "        if entry.errno:\n            return True\n        self.errors += 1\n"),
    ),
    "A counter counts operations of the kinds that it was bound for.": (
        ("cq/counter.py", 'ffi.cast("struct fid *", handle.fid), flags), "fi_ep_bind")', 'ffi.cast("struct fid *", handle.fid), constants.FI_SEND | constants.FI_RECV), "fi_ep_bind")'),
    ),
    "A counter bound for FI_REMOTE_WRITE counts the writes of peers.": (
        ("cq/counter.py", 'ffi.cast("struct fid *", handle.fid), flags), "fi_ep_bind")', 'ffi.cast("struct fid *", handle.fid), flags & ~constants.FI_REMOTE_WRITE | constants.FI_REMOTE_READ), "fi_ep_bind")'),
    ),
    "Counting the operations of peers needs FI_RMA_EVENT.": (
        ("transport/opening/bindings.py", "if (remote := counted & _REMOTE) and Caps.RMA_EVENT not in info.caps:", "if False:"),
    ),
    "A kind of operation has one counter.": (
        ("transport/opening/bindings.py", "        if twice := counted & flags:\n", "        if False:\n"),
    ),
    "An operation that fails adds to the errors of its counter.": (
        ("cq/counter.py", "return lib.fi_cntr_readerr(self._handle.fid)", "return 0"),
    ),
    "A bound object belongs to the endpoint's domain: FI_EDOMAIN.": (
        ("transport/opening/options.py", "            if each.domain is not domain:  # 1.17's tcp would crash", "            if False:"),
    ),
    "An operation that is still pending completes with FI_ECANCELED.": (
        ("transport/handle.py", "rc: int = lib.fi_cancel(self.native, context)", "rc = 0"),
    ),
    "An operation that completed first keeps its completion.": (
        ("cq/submission.py", "            if transfer.error is None and orphaned is not None:\n", "            if False:\n"),
    ),
    "A cancel concerns one operation, named by its context.": (
        ("transport/handle.py", "rc: int = lib.fi_cancel(self.native, context)", "rc = [lib.fi_cancel(self.native, each.slot.pointer) for each in list(self.rx.posted)][0]"),
    ),
    "An alias differs from its endpoint by its default flags only.": (
        ("transport/connectionless/alias.py", "direction | (given or 0))", "direction)"),
        ("transport/connectionless/alias.py", "own.tx_flags = parent.tx_flags if receiving or given is None else given", "own.tx_flags = parent.tx_flags"),
    ),
    "The endpoint is released after its aliases.": _CHILDREN_LAST,
    "An option that is set is read back.": (
        ("settings.py", '        settings._option("fi_setopt", self.name, lib.fi_setopt, native, ffi.sizeof(self.ctype))\n', "        pass\n"),
    ),
    "FI_OPT_MIN_MULTI_RECV is set before the endpoint is enabled.": (
        ("transport/opening/options.py", "            MultiPool.prepare(handle, self._message_size(handle))\n", "            pass\n"),
        ("transport/opening/options.py", "                handle.pool = MultiPool(handle, size, count, self.multi_recv)", "                MultiPool.prepare(handle, size); handle.pool = MultiPool(handle, size, count, self.multi_recv)"),
    ),
    "FI_OPT_CM_DATA_SIZE is the room for private data, and read only.": (
        ("cm/handshake.py", "    if len(data) > limit:\n", "    if False:\n"),
    ),
    "A DSCP becomes a traffic class, and a traffic class a DSCP.": (
        ("flags/attributes.py", "return cls(lib.fi_tc_dscp_set(dscp))", "return cls(dscp)"),
    ),
    "FI_EP_MSG: reliable, connected, boundaries are kept, with flow control.": (
        ("transport/opening/options.py", "size, count = self._message_size(handle), min(self.recv_count, most)", "size, count = self._message_size(handle), 20000"),
    ),
    "FI_EP_RDM: reliable, connectionless, boundaries are kept.": (
        ("_core/messages/receive_pool.c", "\tif (deliver(self))\n", "\tif (inbox->messages % 1000 ? deliver(self) : pool_recycle(self))\n"),
    ),
    "FI_EP_DGRAM: connectionless, boundaries are kept; reliability is not promised.": (
        ("_core/messages/receive_pool.c", "\tself->length = entry->len;\n", "\tself->length = entry->len > 1 ? entry->len - 1 : entry->len;\n"),
    ),
    "protocol and protocol_version say which endpoints can communicate.": (
        ("info/hints.py", "        said = {each", '        self = self.replace(ep_attr={"protocol": 0}); said = {each'),
    ),
    "max_msg_size bounds a transfer.": (
        ("transport/route.py", "        limit = self.handle.max_size\n        if size > limit:", "        limit = self.handle.max_size\n        if False:"),
    ),
    "mem_tag_format says which bits of a tag the provider compares.": (
        ("transport/tags.py", "        bits = pattern.bit_length()\n", "        bits = 64\n"),
    ),
    "mem_tag_format divides a tag into fields, which a mask covers whole.": (
        ("transport/tags.py", "        if (ignore ^ ignore >> 1) & self.joined:\n", "        if False:\n"),
    ),
    "tx_ctx_cnt and rx_ctx_cnt are the numbers of contexts.": (
        ("transport/connectionless/scalable.py", 'ep_attr={"tx_ctx_cnt": len(sends), "rx_ctx_cnt": len(receives)}', "ep_attr={}"),
    ),
    "FI_SHARED_CONTEXT as a count asks for a shared context.": (
        ("transport/opening/bindings.py", 'if getattr(options, f"shared_{side}") is None and count == SHARED_CONTEXT:', "if False:"),
    ),
    "caps are a subset of the endpoint's.": (
        ("info/discovery.py", "return Caps(self.native.caps)", "return Caps(self.native.caps & ~int(Caps.MSG))"),
    ),
    "op_flags are the default flags of operations.": (
        ("transport/handle.py", "self.tx_flags = int(info.tx_attr.op_flags)", "self.tx_flags = 0"),
    ),
    "FI_ORDER_SAS: messages to a peer are taken in their order.": (
        ("_core/messages/inbox.c", "\treturn fifo_append(self->inbox, item);\n", "\treturn fifo_insert(self->inbox, 0, item);\n"),
    ),
    "FI_ORDER_RAW: a read comes after the writes before it.": (
        ("transport/rma/rma.py", "        size = len(pins)\n        _check_remote(", '        await __import__("anyio").sleep(0.01 * (what == "fi_write"))\n        size = len(pins)\n        _check_remote('),
    ),
    "inject_size bounds the data that is copied, so that the buffer is the caller's at once.": (
        ("transport/handle.py", "self.inject_size = info.tx_attr.inject_size", "self.inject_size = 2 * info.tx_attr.inject_size"),
    ),
    "iov_limit bounds the buffers of an operation.": (
        ("transport/buffers.py", "    if len(pins) > limit:\n", "    if False:\n"),
    ),
    "tclass is the requested treatment by the network.": (
        ("transport/connected/endpoint.py", "            mark(sock, dscp)\n", "            pass\n"),
    ),
    "iov_limit bounds the buffers of a receive.": (
        ("transport/messages/receive.py", "most = self._handle.info.rx_attr.iov_limit\n", "most = 1000\n"),
    ),
    "Transmit and receive contexts share one address.": (
        ("transport/connectionless/scalable.py", "source=Caps.SOURCE in info.caps)", "source=False)"),
    ),
    "Each context has a completion queue of its own.": (
        ("transport/connectionless/scalable.py", "each = iter(queues if own_queues else queues * contexts)", "each = iter(queues[:1] * contexts)"),
    ),
    "Each context may have attributes of its own.": (
        ("transport/connectionless/scalable.py", '"fi_tx_context", lib.fi_tx_context, index, info.native.tx_attr)', '"fi_tx_context", lib.fi_tx_context, index, self.info.native.tx_attr)'),
        ("transport/connectionless/scalable.py", '"fi_rx_context", lib.fi_rx_context, index, info.native.rx_attr)', '"fi_rx_context", lib.fi_rx_context, index, self.info.native.rx_attr)'),
    ),
    "A sender reaches a context by fi_rx_addr.": (
        ("address_vector.py", "native = lib.fi_rx_addr(self.native, index, bits)", "native = self.native"),
    ),
    "The number of the contexts is the peer's.": (
        ("address_vector.py", "return min((info.domain_attr.max_ep_rx_ctx - 1).bit_length(), _CONTEXT_BITS_MOST)", "return (info.ep_attr.rx_ctx_cnt - 1).bit_length()"),
    ),
    "A shared receive context takes the messages of all its endpoints.": (
        ("transport/opening/options.py", "if context is self.shared_receive or shares_transmit(handle.info):", "if False:"),
    ),
    "Receives are posted to the context, not to an endpoint.": (
        ("transport/opening/shared_contexts.py", "    def _refuse(self, *_: Any) -> NoReturn:\n        raise", "    def _refuse(self, *_: Any) -> NoReturn:\n        return\n        raise"),
        ("transport/opening/shared_contexts.py", "self.ended = lambda: TypeError(RECEIVE_AT_SHARED)", "pass"),
    ),
    "Connectionless endpoints with a shared receive context share an address vector.": (
        ("transport/opening/shared_contexts.py", "        if self.vector is None or self.vector.closed:\n", "        if True:\n"),
    ),
    "A context is of its endpoints' domain.": (
        ("transport/opening/options.py", "            if each.domain is not domain:  # 1.17's tcp would crash", "            if False:"),
    ),
    "FI_COMPLETION: a completion although the endpoint is selective.": (
        ("transport/messages/batch.py", "remote_data, self.own_flags(flags) | _COMPLETION)", "remote_data, self.own_flags(flags))"),
    ),
    "FI_INJECT: the buffer is the caller's when the call returns.": (
        ("transport/route.py", "return flags & ~_INJECT if self.handle.known & _HURT_BY_INJECT else flags", "return flags & ~_INJECT"),
    ),
    "FI_DELIVERY_COMPLETE: an operation completes when its data has arrived.": (
        ("transport/route.py", '        flags = self.check_flags(self.own_flags(flags), size)\n        message = ffi.new("struct fi_msg *"', '        flags = self.check_flags(self.own_flags(flags), size) & ~_DELIVERY\n        message = ffi.new("struct fi_msg *"'),
    ),
    "FI_MULTI_RECV: a buffer takes messages until less than the minimum is left.": (
        ("transport/opening/options.py", "MultiPool.prepare(handle, self._message_size(handle))", "MultiPool.prepare(handle, 3 * self._message_size(handle))"),
    ),
    "FI_ENOCQ: a queue is missing.": (
        ("transport/connectionless/endpoint.py", '    check(rc, "fi_enable")\n', ""),
    ),
    "FI_EOPBADSTATE: the state does not permit the operation.": (
        ("transport/connectionless/endpoint.py", '    check(rc, "fi_enable")\n', '    check(0 if rc in (-constants.FI_ENOAV, -constants.FI_EOPBADSTATE) else rc, "fi_enable")\n'),
    ),
    "A fabric with an open domain is not closed: FI_EBUSY.": (
        ("resource.py", "        if rc == -constants.FI_EBUSY and not self.children:\n", "        if False:\n"),
    ),
    "All that was opened on a fabric is closed before it.": _CHILDREN_LAST,
    "fi_tostr turns attributes, capabilities and flags into text.": (
        ("info/tostr.py", "flags.Caps: TostrType.CAPS", "flags.Caps: TostrType.MODE"),
    ),
    "fi_tostr is not safe among threads, fi_tostr_r is.": (
        ("info/tostr.py", "ffi.string(lib.fi_tostr_r(room, _ROOM, pointer, kind))", "ffi.string(lib.fi_tostr(pointer, kind))"),
    ),
    "An open fabric in hints restricts the answer to it.": (
        ("info/matching.py", "    for opened in filter(None, (fabric, domain)):", "    for opened in ():"),
    ),
    "A utility provider over a core provider is named by both, with a semicolon.": (
        ("info/attributes.py", 'return ffi.string(value).decode(errors="replace") if value else ""', 'return ffi.string(value).decode(errors="replace").partition(";")[0] if value else ""'),
    ),
    "FI_PROVIDER restricts which providers are registered.": (
        ("_ffi/load.py", "from __future__ import annotations\n", 'from __future__ import annotations\n\nimport os as _os\n\n_os.environ.pop("FI_PROVIDER", None)\n'),
    ),
    "prov_version is the provider's, api_version the one that was asked for.": (
        ("info/attributes.py", "    value = getattr(native, name)\n    if type(default) is int", '    value = getattr(native, "api_version" if name == "prov_version" else name)\n    if type(default) is int'),
    ),
}  # fmt: skip

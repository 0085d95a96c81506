"""What carries the names that are no flag, written by hand; and why some names have no carrier or no test."""

# Fragments and other things that the pages' text makes look like a name.
ARTEFACTS = {
    **dict.fromkeys(
        ("FI_OR", "FI_SE", "FI_SELECTIVE_COM", "FI_ORDER_ATOM", "fi_end", "fi_tx_con", "fi_trig"),
        "half of a name: the page breaks the line there",
    ),
    **dict.fromkeys(("FI_INFO", "KFI_INFO"), "a heading of the page: the structure in capitals"),
    **dict.fromkeys(("FI_MAJOR", "FI_MINOR"), "half of FI_MAJOR_VERSION and FI_MINOR_VERSION"),
    **dict.fromkeys(("fi_sockaddr", "fi_sockaddr_in6"), "the beginning of an example of a textual address"),
}
STRUCTURES = (
    "fi_domain_attr fi_ep_attr fi_fabric_attr fi_info fi_rx_attr fi_tx_attr fi_nic fi_rx_ctx_attr fi_tx_ctx_attr "
    "fi_msg_atomic fi_msg_rma fi_context fi_context2 fi_trigger_var fi_trigger_xpu"
)
OTHER_PAGES = "fi_av fi_collective fi_cq fi_eq fi_errno fi_mr fi_msg fi_peer fi_rma fi_tagged fi_trigger"
CARRIERS = {
    "FI_VERSION": "aiofabric.Version.native",
    "FI_MAJOR_VERSION": "aiofabric.headers_version",
    "FI_MINOR_VERSION": "aiofabric.headers_version",
    "FI_SHARED_CONTEXT": "aiofabric.SHARED_CONTEXT",
    "fi_accept": "aiofabric.ConnectionRequest.accept",
    "fi_allocinfo": "aiofabric.Hints.to_native",
    "fi_atomic": "aiofabric.MessageEndpoint.atomic",
    "fi_cancel": "aiofabric.MessageEndpoint.recv",
    "fi_close": "aiofabric.MessageEndpoint.close",
    "fi_connect": "aiofabric.connect",
    "fi_control": "aiofabric.EndpointSettings.tx_flags",
    "fi_domain": "aiofabric.Domain",
    "fi_dupinfo": "aiofabric.Info.duplicate",
    "fi_enable": "aiofabric.open_endpoint",
    "fi_endpoint": "aiofabric.open_endpoint",
    "fi_ep_alias": "aiofabric.MessageEndpoint.alias",
    "fi_ep_bind": "aiofabric.open_endpoint",
    "fi_fabric": "aiofabric.Fabric",
    "fi_freeinfo": "aiofabric.Info",
    "fi_getinfo": "aiofabric.getinfo",
    "fi_getname": "aiofabric.Listener.address",
    "fi_getopt": "aiofabric.EndpointSettings",
    "fi_inject": "aiofabric.MessageEndpoint.send_nowait",
    "fi_passive_ep": "aiofabric.reserve",
    "fi_pep_bind": "aiofabric.listen",
    "fi_recv": "aiofabric.MessageEndpoint.recv",
    "fi_recvmsg": "aiofabric.MessageEndpoint.recv",
    "fi_reject": "aiofabric.ConnectionRequest.reject",
    "fi_rx_addr": "aiofabric.Peer.context",
    "fi_rx_context": "aiofabric.ReceiveContext",
    "fi_rx_size_left": "aiofabric.EndpointSettings.rx_size_left",
    "fi_scalable_ep": "aiofabric.open_scalable_endpoint",
    "fi_scalable_ep_bind": "aiofabric.open_scalable_endpoint",
    "fi_send": "aiofabric.MessageEndpoint.send",
    "fi_sendmsg": "aiofabric.MessageEndpoint.send",
    "fi_sendv": "aiofabric.MessageEndpoint.send",
    "fi_setopt": "aiofabric.EndpointSettings",
    "fi_srx_context": "aiofabric.SharedReceive",
    "fi_stx_context": "aiofabric.SharedTransmit",
    "fi_tc_dscp_get": "aiofabric.TrafficClass.dscp",
    "fi_tc_dscp_set": "aiofabric.TrafficClass.from_dscp",
    "fi_tostr_r": "aiofabric.tostr",
    "fi_tx_context": "aiofabric.TransmitContext",
    "fi_tx_size_left": "aiofabric.EndpointSettings.tx_size_left",
    "fi_version": "aiofabric.library_version",
}
REASONS = {
    "FI_SUCCESS": "0: what a call returns that raises nothing",
    "FI_OPT_ENDPOINT": "the only level of options there is; every option is asked for at it",
    "FI_PROVIDER": "an environment variable, which libfabric reads itself; in a program: provider=",
    "FI_HMEM_DISABLE_P2P": "an environment variable, which libfabric reads itself",
    "fi_tostr": "not thread-safe, it shares one buffer: aiofabric.tostr calls fi_tostr_r",
    "fi_ep_control": "another spelling of fi_control",
    "KFI_CANCEL": "the user-space library has no such bit: fi_cancel may always be called",
    **dict.fromkeys(STRUCTURES.split(), "a structure, read and written through attributes"),
    **dict.fromkeys(("fi_addr_t", "fi_ep_type"), "a type of C that Python has as a number or an enumeration"),
    **dict.fromkeys(
        ("fi_ops_atomic", "fi_ops_msg", "fi_ops_rma", "fi_ops_tagged"), "a table of C functions inside an endpoint"
    ),
    **dict.fromkeys(OTHER_PAGES.split(), "the title of another manual page"),
}
NOT_YET = "not yet: nothing in aiofabric carries it"
UNRECORDED = "no recorded test"
GAPS = (NOT_YET, UNRECORDED)
KFI_MACROS = {"KKFI_VERSION": "FI_VERSION"}

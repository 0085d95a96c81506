# ruff: noqa: E501 - a table reads better with a row on a line
"""The statements of the manual pages in our own words, with the test that shows whether each of them holds.

A test is named by its file below ``tests/`` and its function without ``test_``.
"""

from dataclasses import dataclass
from enum import StrEnum

GETINFO = "fi_getinfo(3)"
ENDPOINT = "fi_endpoint(3)"
FABRIC = "fi_fabric(3)"
KERNEL = "kfi_getinfo(3)"


class State(StrEnum):
    """The state of a statement here."""

    HOLDS = "holds"
    PROVIDER = "provider decides"
    REFUSED = "refused"
    UNSEEN = "not observable here"


HOLDS, PROVIDER, REFUSED, UNSEEN = State


@dataclass(frozen=True)
class Statement:
    """The behaviour that a page describes."""

    page: str
    section: str
    text: str
    state: State
    test: str = ""
    note: str = ""

    @property
    def node(self) -> str:
        """The test's identifier for pytest; empty without a test."""
        file, _, name = self.test.partition("::")
        return f"tests/{file}::test_{name}" if self.test else ""


def _page(
    page: str, sections: dict[str, list[tuple[str, State, str] | tuple[str, State, str, str]]]
) -> list[Statement]:
    return [Statement(page, section, *row) for section, rows in sections.items() for row in rows]


_INFO = "test_info.py::"
_T = "transport/"
_NO_DEVICE = "no device of this kind is here"

STATEMENTS = [
    *_page(
        GETINFO,
        {
            "Description": [
                ("Without node, service and hints, all available interfaces are returned.", HOLDS,
                 _INFO + "without_anything_everything_is_found"),
                ("Where nothing matches, the answer is FI_ENODATA and no list.", HOLDS,
                 _INFO + "the_hint_to_blame_is_named", "`NoProviderError`, which names the hint that excludes all"),
                ("Each answer describes one endpoint, of one domain.", HOLDS, _INFO + "every_field_is_readable"),
                ("More hints restrict the answer, fewer extend it.", HOLDS, _INFO + "several_may_be_to_blame_together"),
                ("The fastest endpoints come first.", PROVIDER, "", "the order of the answer is kept"),
                ("An older version may be asked for.", HOLDS,
                 "test_statements_of_getinfo.py::an_older_version_is_asked_for_and_reported"),
                ("The version determines the form of all structures.", HOLDS,
                 _INFO + "fields_that_later_versions_append_are_there_with_those_versions"),
                ("A node is resolved to a fabric address.", HOLDS, _INFO + "source_makes_it_the_local_address"),
                ("A service is a port number or a service name.", HOLDS, _INFO + "a_service_is_a_number_or_a_name"),
                ("A node may be an FI_ADDR_STR address.", HOLDS, _INFO + "a_node_may_be_a_whole_address"),
                ("Beside an FI_ADDR_STR address the service is NULL.", HOLDS,
                 _INFO + "a_whole_address_leaves_no_room_for_a_service"),
                ("A value in hints that is not 0 is supported, or the answer is FI_ENODATA.", HOLDS,
                 _INFO + "hints_reach_c_whole"),
                ("A value of 0 in hints, other than a mode, is a wildcard.", HOLDS,
                 _INFO + "what_was_found_can_be_asked_for"),
                ("A mode bit that hints do not have is not supported by the application.", HOLDS,
                 _INFO + "the_default_hints_ask_for_no_mode_that_changes_completions"),
                ("fi_freeinfo releases the list, and each member lives as long as it is used.", HOLDS,
                 _INFO + "each_of_a_list_outlives_the_others"),
                ("fi_dupinfo copies one structure with all that is in it.", HOLDS,
                 _INFO + "a_duplicate_is_equal_and_its_own"),
                ("Several threads may call fi_getinfo at once.", HOLDS, _T + "test_two_loops_in_two_threads.py::two_loops_talk"),
            ],
            "fi_info": [
                ("addr_format chooses the form of addresses.", HOLDS, _INFO + "addresses_in_hints_are_used_and_bring_their_format"),
                ("src_addr in hints is the local address.", HOLDS, _INFO + "addresses_in_hints_are_used_and_bring_their_format"),
                ("dest_addr in hints is used where there is no node and no service.", HOLDS,
                 _INFO + "addresses_in_hints_are_used_and_bring_their_format"),
                ("A passive endpoint as handle in hints comes back in the answer.", HOLDS,
                 _INFO + "a_handle_can_be_given_and_taken_back"),
                ("The handle is not copied by fi_dupinfo.", HOLDS, _INFO + "a_duplicate_is_equal_and_its_own"),
                ("Attributes of the answer are at least those of the hints.", HOLDS,
                 "test_statements_of_getinfo.py::no_offer_is_below_what_was_asked",
                 "providers return smaller ones; `getinfo` leaves these offers out"),
                ("nic describes the device, where there is one.", UNSEEN, _INFO + "a_devices_description_is_read",
                 "no device is here; a structure of our own is read"),
            ],
            "Capabilities": [
                ("Without capabilities in hints, the answer has all that the provider supports.", HOLDS,
                 "test_statements_of_getinfo.py::null_hints_give_the_capabilities_that_are_supported"),
                ("FI_MSG: messages are sent and received.", HOLDS, _T + "connected/test_connected_messages.py::remote_data_comes_along"),
                ("FI_TAGGED: a message goes to the receive with its tag.", HOLDS,
                 _T + "tagged/test_tagged.py::a_receive_takes_what_differs_only_in_ignored_bits"),
                ("FI_RMA: an endpoint reads and writes a peer's memory, and is the target of both.", HOLDS,
                 _T + "rma/test_connected_rma.py::write_and_read_back"),
                ("FI_ATOMIC: an endpoint does atomic operations on a peer's memory.", HOLDS,
                 _T + "rma/test_atomic.py::every_base_operation"),
                ("FI_COLLECTIVE: the operations of fi_collective(3).", HOLDS, _T + "connectionless/test_collective.py::allreduce"),
                ("FI_MULTICAST: a datagram reaches all members of a group.", HOLDS,
                 _T + "connectionless/test_datagrams.py::a_group_receives_what_its_members_send"),
                ("FI_DIRECTED_RECV: a receive waits for the message of one peer.", HOLDS,
                 _T + "tagged/test_tagged.py::a_directed_receive_waits_for_its_sender"),
                ("FI_FENCE: an operation starts after all earlier ones to its peer.", HOLDS,
                 _T + "rma/test_memory_modes.py::a_fenced_send_comes_after_what_was_written_before"),
                ("FI_MULTI_RECV: a buffer takes several messages.", HOLDS,
                 _T + "messages/test_multi_pool.py::many_messages_share_a_buffer"),
                ("FI_NAMED_RX_CTX: a sender names the receive context of its peer.", HOLDS,
                 _T + "connectionless/test_scalable.py::a_message_goes_to_the_context_that_is_named"),
                ("FI_RMA_EVENT: the target of an operation on memory gets an event.", HOLDS,
                 _T + "rma/test_remote_writes.py::each_write_with_data_is_reported"),
                ("FI_SOURCE: a message names its sender, on connectionless endpoints.", HOLDS,
                 _T + "connectionless/test_rdm.py::three_endpoints_know_who_is_who"),
                ("FI_SOURCE_ERR: a message of an unknown sender has its address.", HOLDS,
                 _T + "opening/test_mode_bits.py::an_unknown_peer_s_address_comes_along", "no provider here grants it; a double does"),
                ("FI_TRIGGER: an operation starts when a counter reaches a value.", HOLDS,
                 _T + "rma/test_triggered.py::a_message_leaves_when_the_counter_gets_there"),
                ("FI_LOCAL_COMM and FI_REMOTE_COMM say which peers can be reached.", HOLDS,
                 _T + "opening/test_open.py::capabilities_that_were_asked_for_are_there_or_nothing_is_opened"),
                ("FI_HMEM: transfers to and from the memory of a device.", UNSEEN,
                 "test_device_memory.py::a_provider_without_device_memory_refuses_it", _NO_DEVICE),
                ("FI_RMA_PMEM: transfers to and from persistent memory.", UNSEEN,
                 _T + "rma/test_memory_modes.py::a_persistent_write_where_the_provider_has_such_memory", _NO_DEVICE),
                ("FI_XPU: a device starts transfers.", UNSEEN, _T + "rma/test_triggered.py::what_a_device_triggers", _NO_DEVICE),
                ("FI_SHARED_AV: processes share an address vector.", PROVIDER, "", "no provider here grants it"),
                ("FI_VARIABLE_MSG: the length of a message is known to its receiver first.", REFUSED,
                 _INFO + "what_aiofabric_cannot_live_up_to_is_never_asked_for",
                 "a receive would learn its size first and be posted then; tags, or a pool of large receives, do that"),
                ("FI_SEND and FI_RECV restrict messages to one direction.", HOLDS,
                 _T + "opening/test_excluded_by_capabilities.py::one_sends_and_the_other_receives"),
                ("FI_READ, FI_WRITE, FI_REMOTE_READ and FI_REMOTE_WRITE restrict operations on memory.", HOLDS,
                 _T + "opening/test_excluded_by_capabilities.py::memory_in_one_direction"),
                ("Operations that the capabilities exclude are not supported.", HOLDS,
                 _T + "opening/test_excluded_by_capabilities.py::without_tags"),
                ("FI_AV_USER_ID: completions name a peer by the number that the program chose.", REFUSED, "",
                 "a message names its sender as a `Peer`, whose number is the address vector's; several providers accept "
                 "the capability and do nothing"),
                ("A requested secondary capability is granted, or nothing is offered.", HOLDS,
                 _T + "opening/test_open.py::capabilities_that_were_asked_for_are_there_or_nothing_is_opened"),
            ],
            "Mode": [
                ("A NULL hints structure returns the modes that the provider has.", HOLDS,
                 "test_statements_of_getinfo.py::no_hints_are_null"),
                ("FI_ASYNC_IOV: an array of buffers is left alone until its operation has completed.", HOLDS,
                 _T + "opening/test_mode_bits.py::arrays_of_buffers_stay_untouched_until_the_end"),
                ("FI_BUFFERED_RECV: the provider owns the memory of received messages.", REFUSED,
                 _INFO + "what_aiofabric_cannot_live_up_to_is_never_asked_for",
                 "messages would stay in the provider's buffers until they are claimed; pools do that better"),
                ("FI_CONTEXT and FI_CONTEXT2: the context of an operation is the provider's until it completes.", HOLDS,
                 _T + "opening/test_mode_bits.py::the_context_of_an_operation_is_the_provider_s"),
                ("FI_LOCAL_MR: local buffers are registered.", HOLDS,
                 _T + "rma/test_local_registration.py::everything_posted_is_registered"),
                ("FI_MSG_PREFIX: each message has room of the provider's in front.", HOLDS,
                 _T + "opening/test_mode_bits.py::messages_behind_a_prefix"),
                ("FI_RX_CQ_DATA: an operation with remote data takes a receive of its target.", HOLDS,
                 _T + "opening/test_mode_bits.py::a_peer_s_write_that_used_a_receive_up_has_it_posted_again"),
                ("FI_NOTIFY_FLAGS_ONLY: completions have the flags of a notification only.", REFUSED,
                 _INFO + "what_aiofabric_cannot_live_up_to_is_never_asked_for",
                 "completions would not name their operation"),
                ("FI_RESTRICTED_COMP: queues and counters are shared by endpoints of one kind only.", REFUSED,
                 _INFO + "what_aiofabric_cannot_live_up_to_is_never_asked_for",
                 "endpoints of different capabilities could not share a queue, but in aiofabric they do"),
            ],
            "Addressing formats": [
                ("FI_SOCKADDR_IN and FI_SOCKADDR_IN6 are those of the system.", HOLDS,
                 "test_address.py::the_bytes_are_the_systems"),
                ("FI_SOCKADDR contains its family.", HOLDS, "test_address.py::a_plain_sockaddr_tells_its_family_itself"),
                ("FI_ADDR_STR is text, of the form of a URI.", HOLDS, "test_address.py::the_manuals_texts_are_read"),
                ("An address of FI_FORMAT_UNSPEC is opaque.", HOLDS, "test_address.py::an_opaque_address_has_no_host_and_shows_its_bytes"),
            ],
            "Flags": [
                ("FI_NUMERICHOST: a node is a number, and no name is looked up.", HOLDS, _INFO + "a_name_is_no_number"),
                ("FI_PROV_ATTR_ONLY: each provider answers once, usable or not.", HOLDS,
                 _INFO + "prov_attr_only_lists_providers_usable_or_not"),
                ("FI_PROV_ATTR_ONLY with a provider's name gives that one.", HOLDS,
                 _INFO + "prov_attr_only_with_a_name_gives_that_one"),
                ("FI_SOURCE: node and service are the local address.", HOLDS, _INFO + "source_makes_it_the_local_address"),
                ("FI_SOURCE needs a node or a service.", HOLDS, _INFO + "source_needs_something_local"),
            ],
            "Errors": [
                ("FI_EBADFLAGS: a capability or a flag is not valid.", UNSEEN,
                 "test_errors.py::an_error_has_libfabric_s_words_and_its_name", "no provider here returns it"),
                ("FI_ENODATA: no provider supports what was asked for.", HOLDS, _INFO + "the_hint_to_blame_is_named"),
                ("FI_ENOMEM: there was not enough memory.", UNSEEN, "test_errors.py::an_error_has_libfabric_s_words_and_its_name"),
                ("FI_ENOSYS: the version asked for is newer than the library.", HOLDS,
                 "test_statements_of_getinfo.py::a_version_newer_than_the_library_is_refused"),
            ],
        },
    ),
    *_page(
        ENDPOINT,
        {
            "Description": [
                ("A passive endpoint listens, or reserves an address for an active one.", HOLDS,
                 "cm/test_reservation.py::a_connection_from_a_reserved_address"),
                ("An endpoint is enabled before it transfers data.", HOLDS,
                 "test_settings.py::prepare_sets_options_before_the_endpoint_is_enabled"),
                ("An endpoint without the queues that it needs is not enabled: FI_ENOCQ.", HOLDS,
                 "test_errors.py::an_endpoint_without_queues_is_not_enabled"),
                ("A connectionless endpoint has an address vector.", HOLDS, _T + "connectionless/test_rdm.py::messages_both_ways"),
                ("An endpoint with manual progress moves when its queues are read.", HOLDS,
                 _T + "virtual/test_virtual_idle_costs_nothing.py::remote_memory_access_wakes_its_target"),
                ("An operation is posted with a context, and an error without one has the endpoint's.", UNSEEN, "",
                 "each operation has a context of its own, so that no error here lacks one"),
                ("A critical error disables an endpoint; enabling it again is up to the provider.", PROVIDER, "",
                 "no provider here enables a disabled endpoint again: a connection that broke is closed and opened again"),
            ],
            "fi_endpoint, fi_passive_ep, fi_scalable_ep": [
                ("An endpoint has the properties of the fi_info that it is opened with.", HOLDS,
                 _T + "opening/test_opened_with_a_chosen_info.py::an_endpoint_is_opened_with_the_caller_s_info"),
                ("The application can reset attributes, such as ordering bits, before it opens the endpoint.", HOLDS,
                 _T + "opening/test_opened_with_a_chosen_info.py::both_ends_of_a_connection_are_opened_with_the_caller_s_info"),
                ("An endpoint that accepts is opened with the fi_info of its request.", HOLDS,
                 "cm/test_connections.py::private_data_goes_both_ways"),
                ("An active endpoint takes over the address of a passive one, which then is of no use.", HOLDS,
                 "cm/test_reservation.py::a_reservation_is_used_once"),
                ("fi_endpoint2 takes flags.", PROVIDER, _T + "opening/test_open.py::a_provider_without_flags_of_opening_says_so"),
            ],
            "fi_close": [
                ("Operations under way are discarded without a completion.", HOLDS,
                 _T + "connectionless/test_rdm.py::closing_ends_whatever_is_under_way", "each ends with `ClosedResourceError`"),
                ("A scalable endpoint with open contexts is FI_EBUSY.", HOLDS, _T + "connectionless/test_scalable.py::closing_closes_the_contexts",
                 "the contexts are closed first"),
                ("An object in use is not closed.", HOLDS, "test_errors.py::what_is_in_use_is_not_closed"),
            ],
            "fi_ep_bind": [
                ("A passive endpoint is bound to an event queue.", HOLDS, "cm/test_connections.py::private_data_goes_both_ways"),
                ("Shared contexts are bound before the endpoint is enabled.", HOLDS,
                 _T + "opening/test_bindings_that_do_not_fit.py::shared_context_that_is_asked_for_and_not_given"),
                ("Transmit and receive completions may go to different queues.", REFUSED, "",
                 "the event loop reads one queue for both; a second one would cost a second read of each pass, and one "
                 "thread gains nothing by it. Contexts of a scalable endpoint may have a queue each"),
                ("FI_TRANSMIT and FI_RECV direct completions to a queue.", HOLDS,
                 "test_errors.py::a_queue_is_not_bound_for_what_no_queue_reports"),
                ("FI_SELECTIVE_COMPLETION: an operation has a completion if it asks for one.", HOLDS,
                 _T + "messages/test_batch.py::selective_completion_reports_few"),
                ("FI_SELECTIVE_COMPLETION also applies to receives.", REFUSED, "",
                 "a receive without a completion would never reach the task that awaits it"),
                ("FI_SELECTIVE_COMPLETION applies to connectionless endpoints.", REFUSED,
                 _T + "opening/test_selective_without_a_connection.py::connectionless",
                 "completions come in any order there, so a completion does not cover earlier ones"),
                ("An operation that fails has a completion in any case.", HOLDS,
                 _T + "messages/test_batch.py::the_loss_of_the_peer_is_told"),
                ("A counter counts operations of the kinds that it was bound for.", HOLDS,
                 "cq/test_counter.py::counts_what_the_binding_says"),
                ("A counter bound for FI_REMOTE_WRITE counts the writes of peers.", HOLDS,
                 "cq/test_counter.py::the_target_counts_writes"),
                ("Counting the operations of peers needs FI_RMA_EVENT.", HOLDS,
                 _T + "opening/test_bindings_that_do_not_fit.py::remote_counter_without_rma_events"),
                ("A kind of operation has one counter.", HOLDS,
                 _T + "opening/test_bindings_that_do_not_fit.py::two_counters_for_one_kind_of_operation"),
                ("An operation that fails adds to the errors of its counter.", HOLDS, "cq/test_counter.py::a_failure_ends_the_wait"),
                ("A bound object belongs to the endpoint's domain: FI_EDOMAIN.", HOLDS,
                 _T + "opening/test_bindings_that_do_not_fit.py::counter_of_another_domain"),
            ],
            "fi_enable": [
                ("Connecting and accepting enable an endpoint.", HOLDS, "cm/test_connections.py::private_data_goes_both_ways"),
                ("Enabling again is for endpoints that a critical error disabled.", PROVIDER, "",
                 "no provider here can"),
            ],
            "fi_cancel": [
                ("An operation that is still pending completes with FI_ECANCELED.", HOLDS,
                 "cq/test_cancel.py::provider_answers_the_cancel"),
                ("An operation that completed first keeps its completion.", HOLDS,
                 "cq/test_cancel.py::completion_wins_the_race_against_the_cancel"),
                ("A cancel completes within a bounded time.", PROVIDER, "cq/test_cancel.py::silent_provider_and_close",
                 "several providers never answer: `cancel_grace=` bounds the wait, and the buffer stays exported"),
                ("A cancel concerns one operation, named by its context.", HOLDS, "cq/test_cancel.py::everybody_leaves_at_once"),
            ],
            "fi_ep_alias": [
                ("An alias differs from its endpoint by its default flags only.", HOLDS,
                 _T + "connectionless/test_alias.py::aliases_of_connectionless_endpoints"),
                ("The endpoint is released after its aliases.", HOLDS,
                 _T + "connectionless/test_alias.py::closing_the_endpoint_closes_its_aliases_first"),
            ],
            "fi_control": [
                ("FI_BACKLOG sets the backlog of a passive endpoint.", HOLDS, "test_settings.py::a_listener_has_settings_too"),
                ("FI_GETOPSFLAG and FI_SETOPSFLAG read and set the default flags of one direction.", PROVIDER,
                 "test_settings.py::operation_flags", "tcp has none to change"),
                ("FI_GETWAIT gives the descriptor of a socket endpoint.", PROVIDER,
                 _T + "opening/test_open.py::socket_endpoints_are_refused_by_the_providers", "no provider has socket endpoints"),
            ],
            "fi_getopt, fi_setopt": [
                ("An option is read and set, or the provider refuses it.", HOLDS,
                 "test_settings.py::an_option_is_there_or_the_provider_says_no"),
                ("FI_OPT_MIN_MULTI_RECV is set before the endpoint is enabled.", HOLDS,
                 _T + "messages/test_multi_pool.py::every_message_up_to_recv_size_fits"),
                ("FI_OPT_CM_DATA_SIZE bounds the private data of a connection, and is read only.", HOLDS,
                 "cm/test_connections.py::private_data_has_a_limit_that_is_checked_first"),
                ("FI_OPT_BUFFERED_LIMIT and FI_OPT_BUFFERED_MIN belong to FI_BUFFERED_RECV.", REFUSED,
                 _INFO + "what_aiofabric_cannot_live_up_to_is_never_asked_for", "the mode is refused"),
                ("FI_OPT_FI_HMEM_P2P chooses how device memory is transferred.", UNSEEN,
                 "test_settings.py::transfers_past_the_host_are_chosen_or_the_provider_says_no", _NO_DEVICE),
                ("FI_OPT_XPU_TRIGGER tells how many variables a device needs.", UNSEEN,
                 "test_settings.py::no_provider_here_is_triggered_by_a_device", _NO_DEVICE),
            ],
            "fi_tc_dscp_set, fi_tc_dscp_get": [
                ("A DSCP becomes a traffic class, and a traffic class a DSCP.", HOLDS, "test_flags.py::a_dscp_is_a_traffic_class"),
            ],
            "fi_rx_size_left, fi_tx_size_left": [
                ("They return how many operations may be posted at least.", PROVIDER, "test_settings.py::size_left"),
            ],
            "Endpoint attributes": [
                ("FI_EP_MSG: reliable, connected, boundaries are kept, with flow control.", HOLDS,
                 _T + "connected/test_connected_messages.py::reader_that_does_not_read_stops_the_sender"),
                ("FI_EP_RDM: reliable, connectionless, boundaries are kept.", HOLDS, _T + "connectionless/test_rdm.py::many_messages_arrive_in_order"),
                ("FI_EP_DGRAM: unreliable, connectionless, boundaries are kept.", HOLDS,
                 _T + "connectionless/test_datagrams.py::each_datagram_keeps_its_boundaries"),
                ("FI_EP_SOCK_STREAM and FI_EP_SOCK_DGRAM behave like sockets.", PROVIDER,
                 _T + "opening/test_open.py::socket_endpoints_are_refused_by_the_providers", "no provider has them"),
                ("protocol and protocol_version say which endpoints can communicate.", HOLDS, _INFO + "every_field_is_readable"),
                ("max_msg_size bounds a transfer.", HOLDS,
                 _T + "connectionless/test_datagrams.py::a_datagram_that_is_too_long_is_refused_before_the_provider_sees_it"),
                ("msg_prefix_size is 0 without FI_MSG_PREFIX, and else a multiple of 8.", HOLDS,
                 _T + "opening/test_mode_bits.py::messages_behind_a_prefix"),
                ("max_order_raw_size, _war_ and _waw_ say up to which size data is ordered.", PROVIDER, "",
                 "read from `info.ep_attr`; ordering across operations is the application's to use"),
                ("mem_tag_format says which bits of a tag the provider compares.", HOLDS,
                 _T + "tagged/test_tag_formats.py::tags_that_the_provider_would_not_understand"),
                ("mem_tag_format divides a tag into fields, which a mask covers whole.", HOLDS,
                 _T + "tagged/test_tag_formats.py::masks_have_whole_fields"),
                ("tx_ctx_cnt and rx_ctx_cnt are the numbers of contexts.", HOLDS, _T + "connectionless/test_scalable.py::every_transmit_context_sends"),
                ("FI_SHARED_CONTEXT as a count asks for a shared context.", HOLDS,
                 _T + "opening/test_bindings_that_do_not_fit.py::shared_context_that_is_asked_for_and_not_given"),
                ("auth_key lets only peers with the same key exchange messages.", PROVIDER,
                 "test_statements_of_getinfo.py::an_authorization_key_is_had_or_named_as_the_reason",
                 "no provider here has keys"),
            ],
            "Transmit context attributes": [
                ("caps are a subset of the endpoint's.", HOLDS, _INFO + "hints_reach_c_whole"),
                ("op_flags are the default flags of operations.", HOLDS,
                 _T + "messages/test_default_flags_of_small_messages.py::delivery_is_waited_for_whatever_the_size"),
                ("FI_ORDER_SAS: messages to a peer are taken in their order.", HOLDS,
                 _T + "connectionless/test_rdm.py::many_messages_arrive_in_order"),
                ("FI_ORDER_RAW and its like order operations on memory.", HOLDS,
                 _T + "rma/test_memory_modes.py::a_fenced_send_comes_after_what_was_written_before"),
                ("comp_order says in which order operations complete.", PROVIDER,
                 "cq/test_source.py::completions_out_of_order_reach_their_own_callers", "any order is served"),
                ("inject_size bounds the data that is copied, so that the buffer is the caller's at once.", HOLDS,
                 _T + "rma/test_memory_modes.py::what_the_provider_would_ignore_is_refused"),
                ("size is the number of operations that may be in flight; more are FI_EAGAIN.", HOLDS,
                 "cq/test_submission.py::above_the_limit_operations_park_and_leave_in_order", "further ones wait for their turn"),
                ("iov_limit bounds the buffers of an operation.", HOLDS,
                 _T + "messages/test_receive_in_pieces.py::too_long_a_message_and_too_many_buffers_are_refused"),
                ("rma_iov_limit bounds the remote ranges of an operation.", HOLDS,
                 _T + "rma/test_connected_rma.py::in_pieces"),
                ("tclass is the requested treatment by the network.", HOLDS, _T + "opening/test_open.py::the_provider_obeys_a_traffic_class"),
            ],
            "Receive context attributes": [
                ("total_buffered_recv is a hint that providers may ignore.", PROVIDER, "", "passed on as it is"),
                ("size is the number of receives that may be posted.", HOLDS,
                 _T + "messages/test_receives_fill_the_providers_queue.py::a_large_pool_and_a_thousand_tagged_receives"),
                ("iov_limit bounds the buffers of a receive.", HOLDS,
                 _T + "messages/test_receive_in_pieces.py::a_message_fills_the_buffers_in_turn"),
                ("comp_order FI_ORDER_DATA: the bytes of a message are written in order.", UNSEEN, "",
                 "a program sees a message when it is complete"),
            ],
            "Scalable endpoints": [
                ("Transmit and receive contexts share one address.", HOLDS, _T + "connectionless/test_scalable.py::every_transmit_context_sends"),
                ("Each context has a completion queue of its own.", HOLDS, _T + "connectionless/test_scalable.py::each_context_has_a_queue_of_its_own"),
                ("Each context may have attributes of its own.", HOLDS, _T + "connectionless/test_scalable.py::each_context_has_attributes_of_its_own"),
                ("A sender reaches a context by fi_rx_addr.", HOLDS, _T + "connectionless/test_scalable.py::contexts_are_named_within_their_number"),
                ("The number of the contexts is the peer's.", HOLDS, _T + "connectionless/test_scalable.py::the_number_of_the_peer_s_contexts_is_the_peer_s"),
                ("Support is up to the domain.", PROVIDER, _T + "connectionless/test_scalable.py::a_provider_without_them_says_so"),
            ],
            "Shared contexts": [
                ("A shared receive context takes the messages of all its endpoints.", HOLDS,
                 _T + "opening/test_shared_contexts.py::one_pool_takes_the_messages_of_all"),
                ("Receives are posted to the context, not to an endpoint.", HOLDS,
                 _T + "opening/test_shared_contexts.py::an_endpoint_itself_cannot_receive"),
                ("A shared transmit context is bound to endpoints, and operations are posted to these.", HOLDS,
                 _T + "opening/test_shared_contexts.py::a_shared_transmit_queue"),
                ("Connectionless endpoints with a shared receive context share an address vector.", HOLDS,
                 _T + "connectionless/test_shared_address_vector.py::endpoints_share_an_address_vector"),
                ("A context is of its endpoints' domain.", HOLDS, _T + "opening/test_bindings_that_do_not_fit.py::shared_context_of_another_domain"),
                ("Support is up to the domain.", PROVIDER, _T + "opening/test_shared_contexts.py::tcp_has_no_shared_transmit_queue"),
            ],
            "Socket endpoints": [
                ("Their transfers are synchronous, without completions.", PROVIDER,
                 _T + "opening/test_open.py::socket_endpoints_are_refused_by_the_providers", "no provider has them"),
            ],
            "Operation flags": [
                ("FI_COMPLETION: a completion although the endpoint is selective.", HOLDS,
                 _T + "messages/test_batch.py::rma_of_a_selective_endpoint_is_reported"),
                ("FI_INJECT: the buffer is the caller's when the call returns.", HOLDS,
                 _T + "messages/test_calls.py::hazard_buffer_is_the_callers_when_it_returns"),
                ("FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE and FI_DELIVERY_COMPLETE say when an operation completes.", HOLDS,
                 _T + "rma/test_memory_modes.py::completion_levels_of_each_call"),
                ("FI_COMMIT_COMPLETE: the data is persistent.", UNSEEN,
                 _T + "rma/test_memory_modes.py::a_persistent_write_where_the_provider_has_such_memory", _NO_DEVICE),
                ("FI_MULTICAST as a default: addresses are groups.", REFUSED,
                 _T + "connectionless/test_datagrams.py::sending_to_groups_by_default_would_read_a_peers_number_as_a_pointer",
                 "groups are joined with `join`, and named at each send"),
                ("FI_MULTI_RECV: a buffer takes messages until less than the minimum is left.", HOLDS,
                 _T + "messages/test_multi_pool.py::buffers_come_back", "refused where the provider writes past the buffer"),
                ("FI_MULTI_RECV as a default of receives.", REFUSED,
                 _T + "messages/test_multi_recv_as_a_default_flag.py::connectionless",
                 "each receive of the pool is for one message: `multi_recv=` gives buffers for many"),
            ],
            "Errors": [
                ("FI_ENOCQ: a queue is missing.", HOLDS, "test_errors.py::an_endpoint_without_queues_is_not_enabled"),
                ("FI_EOPBADSTATE: the state does not permit the operation.", HOLDS,
                 "test_settings.py::what_cannot_be_changed_now_is_no_lack"),
            ],
        },
    ),
    *_page(
        FABRIC,
        {
            "Description": [
                ("A fabric is opened before what belongs to it: domains, passive endpoints, event queues.", HOLDS,
                 "test_errors.py::what_is_in_use_is_not_closed"),
                ("All that was opened on a fabric is closed before it.", HOLDS,
                 _T + "rma/test_local_registration.py::closing_the_domain_first_closes_everything_in_order",
                 "closing a fabric closes what was opened on it, the newest first"),
                ("fi_tostr turns attributes, capabilities and flags into text.", HOLDS, _INFO + "tostr_agrees_with_libfabric"),
                ("fi_tostr is not safe among threads, fi_tostr_r is.", HOLDS, _INFO + "tostr_agrees_with_libfabric",
                 "the text is copied while the interpreter's lock is held, where the library has no fi_tostr_r"),
            ],
            "Fabric attributes": [
                ("An open fabric in hints restricts the answer to it.", HOLDS, _INFO + "open_objects_restrict_the_answer"),
                ("The answer names an open fabric of that name.", HOLDS, _INFO + "open_objects_restrict_the_answer"),
                ("A utility provider over a core provider is named by both, with a semicolon.", HOLDS,
                 _INFO + "names_of_fabric_and_domain_are_compared"),
                ("FI_PROVIDER restricts which providers are registered.", HOLDS,
                 _INFO + "a_restriction_by_the_environment_is_mentioned"),
                ("prov_version is the provider's, api_version the one that was asked for.", HOLDS,
                 _INFO + "the_version_asked_for_is_never_above_either"),
            ],
        },
    ),
    *_page(
        KERNEL,
        {
            "Description": [
                ("At least one of node, service and hints is given.", UNSEEN, "",
                 "a rule of the kernel's flavour: fi_getinfo lists everything without any"),
                ("Without node and service, hints have src_addr or dest_addr.", UNSEEN, "",
                 "a rule of the kernel's flavour"),
                ("A node or a service is resolved to an address.", HOLDS, _INFO + "source_makes_it_the_local_address"),
                ("A value in hints that is not 0 is supported, or the answer is KFI_ENODATA.", HOLDS,
                 _INFO + "hints_reach_c_whole"),
                ("Mode bits that are 0 are not supported by the application.", HOLDS,
                 _INFO + "the_default_hints_ask_for_no_mode_that_changes_completions"),
                ("kfi_freeinfo releases what kfi_getinfo returned.", HOLDS, _INFO + "each_of_a_list_outlives_the_others"),
            ],
            "Capabilities and flags": [
                ("KFI_CANCEL: operations can be cancelled.", UNSEEN, "",
                 "a bit of the kernel's alone; in user space fi_cancel may always be called"),
                ("KFI_SOURCE: node and service are the local address.", HOLDS, _INFO + "source_makes_it_the_local_address"),
                ("KFI_NUMERICHOST: a node is a number.", HOLDS, _INFO + "a_name_is_no_number"),
            ],
        },
    ),
]  # fmt: skip

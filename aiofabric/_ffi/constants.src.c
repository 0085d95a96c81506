/*
 * C code for the constants' declarations: the headers, and a value for names that some versions of them
 * lack.  Macros are tested one by one.  Enumerators cannot be tested, so the version that added them is
 * tested (read from the headers of the released versions).
 */
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

/* No libfabric constant has this value: bits 60 to 63 are the providers' own. */
#define AIOFABRIC_ABSENT (1ULL << 63)

#define AIOFABRIC_SINCE(major, minor) \
	(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION) >= FI_VERSION(major, minor))

/* FI_XPU is the manuals' name; headers until 1.20 call the bit FI_XPU_TRIGGER, those until 2.6 lack it. */
#ifndef FI_XPU
#ifdef FI_XPU_TRIGGER
#define FI_XPU FI_XPU_TRIGGER
#else
#define FI_XPU AIOFABRIC_ABSENT
#endif
#endif
#ifndef FI_PRIORITY
#define FI_PRIORITY AIOFABRIC_ABSENT
#endif
#ifndef FI_RESCAN
#define FI_RESCAN AIOFABRIC_ABSENT
#endif
#ifndef FI_FIREWALL_ADDR
#define FI_FIREWALL_ADDR AIOFABRIC_ABSENT
#endif
#ifndef FI_TAGGED_DIRECTED_RECV
#define FI_TAGGED_DIRECTED_RECV AIOFABRIC_ABSENT
#endif
#ifndef FI_TAGGED_MULTI_RECV
#define FI_TAGGED_MULTI_RECV AIOFABRIC_ABSENT
#endif
#ifndef FI_EXACT_DIRECTED_RECV
#define FI_EXACT_DIRECTED_RECV AIOFABRIC_ABSENT
#endif
#ifndef FI_AUTH_KEY
#define FI_AUTH_KEY AIOFABRIC_ABSENT
#endif
#ifndef FI_AV_AUTH_KEY
#define FI_AV_AUTH_KEY AIOFABRIC_ABSENT
#endif
#ifndef FI_MR_DMABUF
#define FI_MR_DMABUF AIOFABRIC_ABSENT
#endif
#ifndef FI_MR_SINGLE_USE
#define FI_MR_SINGLE_USE AIOFABRIC_ABSENT
#endif
#ifndef FI_BUFFERED_RECV
#define FI_BUFFERED_RECV AIOFABRIC_ABSENT
#endif

/* 1.21 keeps these names so that old programs compile, but they have no effect, so they count as absent. */
#if AIOFABRIC_SINCE(1, 21)
#undef FI_VARIABLE_MSG
#undef FI_NOTIFY_FLAGS_ONLY
#undef FI_RESTRICTED_COMP
#undef FI_EP_SOCK_STREAM
#define FI_VARIABLE_MSG AIOFABRIC_ABSENT
#define FI_NOTIFY_FLAGS_ONLY AIOFABRIC_ABSENT
#define FI_RESTRICTED_COMP AIOFABRIC_ABSENT
#define FI_EP_SOCK_STREAM AIOFABRIC_ABSENT
#define FI_EP_SOCK_DGRAM AIOFABRIC_ABSENT
#endif

#if !AIOFABRIC_SINCE(1, 18)
#define FI_ADDR_UCX AIOFABRIC_ABSENT
#define FI_PROTO_COLL AIOFABRIC_ABSENT
#define FI_PROTO_UCX AIOFABRIC_ABSENT
#define FI_OPT_CUDA_API_PERMITTED AIOFABRIC_ABSENT
#endif
#if !AIOFABRIC_SINCE(1, 19)
#define FI_PROTO_SM2 AIOFABRIC_ABSENT
#define FI_TYPE_AV_ATTR AIOFABRIC_ABSENT
#define FI_TYPE_CQ_ATTR AIOFABRIC_ABSENT
#define FI_TYPE_MR_ATTR AIOFABRIC_ABSENT
#define FI_TYPE_CNTR_ATTR AIOFABRIC_ABSENT
#endif
#if !AIOFABRIC_SINCE(1, 20)
#define FI_TYPE_CQ_ERR_ENTRY AIOFABRIC_ABSENT
#define FI_ENOMR AIOFABRIC_ABSENT
#endif
#if !AIOFABRIC_SINCE(1, 21)
#define FI_PROGRESS_CONTROL_UNIFIED AIOFABRIC_ABSENT
#define FI_PROTO_CXI_RNR AIOFABRIC_ABSENT
#define FI_OPT_SHARED_MEMORY_PERMITTED AIOFABRIC_ABSENT
#define FI_CNTR_EVENTS_BYTES AIOFABRIC_ABSENT
#endif
#if !AIOFABRIC_SINCE(1, 22)
#define FI_OPT_MAX_MSG_SIZE AIOFABRIC_ABSENT
#define FI_OPT_MAX_TAGGED_SIZE AIOFABRIC_ABSENT
#define FI_OPT_MAX_RMA_SIZE AIOFABRIC_ABSENT
#define FI_OPT_MAX_ATOMIC_SIZE AIOFABRIC_ABSENT
#define FI_OPT_INJECT_MSG_SIZE AIOFABRIC_ABSENT
#define FI_OPT_INJECT_TAGGED_SIZE AIOFABRIC_ABSENT
#define FI_OPT_INJECT_RMA_SIZE AIOFABRIC_ABSENT
#define FI_OPT_INJECT_ATOMIC_SIZE AIOFABRIC_ABSENT
#endif
#if !AIOFABRIC_SINCE(2, 0)
#define FI_PROTO_LPP AIOFABRIC_ABSENT
#define FI_PROTO_LNX AIOFABRIC_ABSENT
#define FI_FLOAT16 AIOFABRIC_ABSENT
#define FI_BFLOAT16 AIOFABRIC_ABSENT
#define FI_FLOAT8_E4M3 AIOFABRIC_ABSENT
#define FI_FLOAT8_E5M2 AIOFABRIC_ABSENT
#define FI_DIFF AIOFABRIC_ABSENT
#endif
#if !AIOFABRIC_SINCE(2, 2)
#define FI_GET_FD (FI_EXPORT_FID + 1) /* appended by 2.2: the library may have it although the headers lack it */
#define FI_OPT_FIREWALL_ADDR AIOFABRIC_ABSENT
#define FI_EFIREWALLADDR AIOFABRIC_ABSENT
#endif
#if !AIOFABRIC_SINCE(2, 3)
#define FI_SOCKADDR_IP AIOFABRIC_ABSENT
#endif

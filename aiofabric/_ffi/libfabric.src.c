/*
 * C code for the declarations: the headers, substitutes for calls that older headers lack, and the
 * layouts that Python decodes by hand.
 */
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

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

#include "robust_locks.h"
#include "written_bytes.h"

/* fi_poll, fi_av_bind and the size_left calls are deprecated in 2.x, and are wrapped on purpose. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define AIOFABRIC_SINCE(major, minor) \
	(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION) >= FI_VERSION(major, minor))

/* Calls that older headers lack fail like those of a provider without them; features.py has the error texts. */
#if !AIOFABRIC_SINCE(2, 0)
static inline int fi_fabric2(struct fi_info *info, struct fid_fabric **fabric, uint64_t flags, void *context)
{
	return flags ? -FI_ENOSYS : fi_fabric(info->fabric_attr, fabric, context);
}
#endif
#if !AIOFABRIC_SINCE(1, 20)
static inline int fi_av_insert_auth_key(struct fid_av *av, const void *auth_key, size_t auth_key_size,
					fi_addr_t *fi_addr, uint64_t flags)
{
	return -FI_ENOSYS;
}
static inline int fi_av_lookup_auth_key(struct fid_av *av, fi_addr_t addr, void *auth_key,
					size_t *auth_key_size)
{
	return -FI_ENOSYS;
}
static inline int fi_av_set_user_id(struct fid_av *av, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags)
{
	return -FI_ENOSYS;
}
#endif

/* fi_cq_readerr fills 80 bytes for a program of 1.17 and 88 for one of 1.20 (libfabric ofi_util.h). */
struct aiofabric_cq_err_entry {
	union {
		struct fi_cq_err_entry entry;
		struct {
			char until_1_20[80];
			fi_addr_t src_addr;
		};
	};
};
_Static_assert(sizeof(struct aiofabric_cq_err_entry) == 88, "an error entry of libfabric 1.20 is 88 bytes");
#if AIOFABRIC_SINCE(1, 20)
_Static_assert(offsetof(struct fi_cq_err_entry, src_addr) == 80, "src_addr is the appended field");
#else
_Static_assert(sizeof(struct fi_cq_err_entry) == 80, "src_addr is appended to what 1.17 knows");
#endif

/* 1.20, 2.0 and 2.5 (twice) appended a field each.  An old build's fi_dupinfo loses them (abi_1_0.c). */
struct aiofabric_domain_attr {
	union {
		struct fi_domain_attr attr;
		struct {
			char until_1_20[192];
			size_t max_ep_auth_key;
			uint32_t max_group_id;
			uint64_t max_cntr_value;
			uint64_t max_err_cntr_value;
		};
	};
};
#if !AIOFABRIC_SINCE(1, 20)
_Static_assert(sizeof(struct fi_domain_attr) == 192, "fields are appended to what 1.17 knows");
#endif
#if AIOFABRIC_SINCE(1, 20)
_Static_assert(offsetof(struct aiofabric_domain_attr, max_ep_auth_key) ==
	       offsetof(struct fi_domain_attr, max_ep_auth_key), "appended by 1.20");
#endif
#if AIOFABRIC_SINCE(2, 0)
_Static_assert(offsetof(struct aiofabric_domain_attr, max_group_id) ==
	       offsetof(struct fi_domain_attr, max_group_id), "appended by 2.0");
#endif
#if AIOFABRIC_SINCE(2, 5)
_Static_assert(offsetof(struct aiofabric_domain_attr, max_err_cntr_value) ==
	       offsetof(struct fi_domain_attr, max_err_cntr_value), "appended by 2.5");
#endif

_Static_assert(sizeof(struct fi_eq_entry) == 24, "an event is read into a buffer of bytes");
_Static_assert(offsetof(struct fi_eq_cm_entry, data) == 16, "private data follows fid and info");
_Static_assert(sizeof(struct fi_context2) == 64, "a slot is 64 bytes");
_Static_assert(sizeof(fi_addr_t) == 8, "addresses are read as an array of 64-bit integers");

/*
 * What the declarations need from C: the headers, stand-ins for calls that older headers lack, the
 * layouts that Python decodes by hand, and the one loop that is too fast for Python.
 */
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

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

/* fi_poll, fi_av_bind and the size_left calls are deprecated in 2.x, and are wrapped on purpose. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define AIOFABRIC_SINCE(major, minor) \
	(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION) >= FI_VERSION(major, minor))

/* What older headers lack refuses, as a provider would that lacks it; features.py has the sentences. */
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

/* Decoded with struct.iter_unpack("PQNPQQ"): 39 ns an entry where cffi's attributes take 210. */
_Static_assert(sizeof(struct fi_cq_tagged_entry) == 48, "PQNPQQ");
_Static_assert(offsetof(struct fi_cq_tagged_entry, flags) == 8, "PQNPQQ");
_Static_assert(offsetof(struct fi_cq_tagged_entry, len) == 16, "PQNPQQ");
_Static_assert(offsetof(struct fi_cq_tagged_entry, buf) == 24, "PQNPQQ");
_Static_assert(offsetof(struct fi_cq_tagged_entry, data) == 32, "PQNPQQ");
_Static_assert(offsetof(struct fi_cq_tagged_entry, tag) == 40, "PQNPQQ");
_Static_assert(sizeof(struct fi_eq_entry) == 24, "an event is read into a buffer of bytes");
_Static_assert(offsetof(struct fi_eq_cm_entry, data) == 16, "private data follows fid and info");
_Static_assert(sizeof(struct fi_context2) == 64, "a slot is 64 bytes");
_Static_assert(sizeof(fi_addr_t) == 8, "addresses are read as an array of 64-bit integers");

static inline uint64_t aiofabric_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

/* What a queue's looks tell: nanoseconds. */
struct aiofabric_pace {
	uint64_t gap;	/* the longest from one look to the next, of the last call */
	uint64_t vain;	/* of one that finds nothing, learned from all calls; only compared with */
};

#define AIOFABRIC_YIELD_NS 5000
#define AIOFABRIC_MOVED_NS 4000
#define AIOFABRIC_PIECE_NS 50000
#define AIOFABRIC_MOVING_NS 200000

/* Whether this thread lost its core to somebody else since it was asked last. */
static inline int aiofabric_displaced(void)
{
	static __thread long known = -1;
	struct rusage usage;
	int displaced;

	getrusage(RUSAGE_THREAD, &usage);
	displaced = known >= 0 && usage.ru_nivcsw != known;
	known = usage.ru_nivcsw;
	return displaced;
}

/*
 * Look at the queue until it answers anything but -FI_EAGAIN, or for window_ns; always at least once.
 * The interpreter lock is free meanwhile.  pace->gap receives the longest time from one look to the
 * next: a long one means that the thread lost its core while it spun, so somebody else needs that core
 * (possibly the peer), and spinning is harmful.  0: the first look found something, so nothing was gained by
 * looking for longer.
 * A look that takes far longer than those that find nothing, and keeps its core, has moved a piece of a large
 * message.  That is no gap, and the next piece is waited for, 50 us for each and 200 us in all, whatever the window:
 * whoever sleeps between pieces is woken for each of them by the peer, in the midst of its sendmsg (1 MiB on fds:
 * 388 us a sendmsg and 2.5 GB/s; waiting 190 us and 5.4). 50 us is what a wake-up costs both sides together; with 20
 * the same was 12 % slower with adaptive waiting, and writes of remote memory 30 %.
 * Whoever shares the core gets it after every 5 us: on one core the peer cannot answer otherwise, and a
 * look of 100 us in vain cost twice that.
 * The reason that this is C: a look costs 60 ns here and 400 ns through Python, and the time between
 * looks is what the caller waits for (64 B round trip 16 us with it, 20-29 us without).
 */
static inline ssize_t aiofabric_look(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr,
				     uint64_t window_ns, struct aiofabric_pace *pace)
{
	uint64_t begin = aiofabric_now(), start = begin, last = begin, yielded = begin, now, took, longest = 0;
	ssize_t got;
	int moved;

	for (;;) {
		got = src_addr ? fi_cq_readfrom(cq, buf, count, src_addr) : fi_cq_read(cq, buf, count);
		if (got != -FI_EAGAIN && last == begin)
			break;
		now = aiofabric_now();
		took = now - last;
		moved = took > AIOFABRIC_MOVED_NS && took > 4 * pace->vain;
		if (moved && aiofabric_displaced()) {
			longest = took > longest ? took : longest;
		} else {
			if (moved && now - begin < AIOFABRIC_MOVING_NS) {
				start = now;
				window_ns = window_ns < AIOFABRIC_PIECE_NS ? AIOFABRIC_PIECE_NS : window_ns;
			} else if (!moved && took > longest) {
				longest = took;
			}
			/* Creeps up: with more endpoints every look takes longer. */
			pace->vain = took < pace->vain ? took : pace->vain + pace->vain / 64 + 64;
		}
		last = now;
		if (got != -FI_EAGAIN || now - start >= window_ns)
			break;
		if (now - yielded >= AIOFABRIC_YIELD_NS) {
			sched_yield();
			yielded = now;
		}
	}
	pace->gap = longest;
	return got;
}

static ssize_t aiofabric_cq_look(struct fid_cq *cq, void *buf, size_t count, uint64_t window_ns,
				 struct aiofabric_pace *pace)
{
	return aiofabric_look(cq, buf, count, NULL, window_ns, pace);
}

static ssize_t aiofabric_cq_look_from(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr,
				      uint64_t window_ns, struct aiofabric_pace *pace)
{
	return aiofabric_look(cq, buf, count, src_addr, window_ns, pace);
}

/* A receive of a pool: where the message goes, and the slot that its completion names. */
struct aiofabric_receive {
	void *buf;
	void *context;
};

/*
 * Post some of a pool's receives, in the order of which[].  Answers how many were posted, or the error of the
 * first.  Through Python a receive costs 3,700 instructions of the 27,700 that a small message takes (64 in
 * flight, callgrind); as one of eight in a call like this, 600.
 */
static ssize_t aiofabric_recv_each(struct fid_ep *ep, const struct aiofabric_receive *receives,
				   const uint32_t *which, size_t count, size_t len, void *desc)
{
	ssize_t rc;
	size_t i;

	for (i = 0; i < count; i++) {
		const struct aiofabric_receive *receive = &receives[which[i]];

		rc = fi_recv(ep, receive->buf, len, desc, FI_ADDR_UNSPEC, receive->context);
		if (rc)
			return i ? (ssize_t) i : rc;
	}
	return (ssize_t) count;
}

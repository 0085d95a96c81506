/* An endpoint of one peer, or a fan of them: opening, posting, reading completions. Part of floor.c. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

enum { MAX_WIDTH = 256, BATCH = 64, MAX_FAN = 1000, LETTER = 64 };

/* Completions tell by the address of their context what they answer. */
static struct fi_context2 received[MAX_WIDTH], sent[MAX_WIDTH], fanned[MAX_FAN];

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_ep *ep;
static struct fid_mr *region;
static fi_addr_t peer = FI_ADDR_UNSPEC;
static char own_name[64], *memory;
/* Endpoints with one receive each, which is posted for good, and their queue; `fan` is how many there are. */
static struct fid_ep *fan_ep[MAX_FAN];
static struct fid_cq *fan_cq, *single_cq;
static char letters[MAX_FAN][LETTER];
static size_t fan;
static int connects, sleeps, cq_fd = -1;

static void die(const char *call, ssize_t rc)
{
	fprintf(stderr, "floor: %s: %s\n", call, fi_strerror((int) -rc));
	exit(1);
}

#define CHECK(call) do { ssize_t rc_ = (call); if (rc_ < 0) die(#call, rc_); } while (0)

/* Only a queue that is full says "again"; progress makes room. */
#define POST(call) do { \
		ssize_t rc_ = (call); \
		if (!rc_) \
			break; \
		if (rc_ != -FI_EAGAIN) \
			die(#call, rc_); \
		fi_cq_read(cq, NULL, 0); \
	} while (1)

/* ---- opening -------------------------------------------------------------------------------- */

static void find(const char *provider, const char *node, const char *service, uint64_t flags)
{
	struct fi_info *hints = fi_allocinfo();

	connects = !strcmp(provider, "tcp");
	hints->fabric_attr->prov_name = strdup(provider);
	hints->ep_attr->type = connects ? FI_EP_MSG : FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	CHECK(fi_getinfo(FI_VERSION(1, 17), node, service, flags, hints, &info));
	fi_freeinfo(hints);
}

static void open_domain(void)
{
	struct fi_eq_attr attr = {.wait_obj = FI_WAIT_UNSPEC};

	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	if (connects)
		CHECK(fi_eq_open(fabric, &attr, &eq, NULL));
}

static struct fid_cq *open_queue(void)
{
	struct fi_cq_attr attr = {.size = 1024, .wait_obj = sleeps ? FI_WAIT_FD : FI_WAIT_NONE};
	struct fid_cq *new;

	CHECK(fi_cq_open(domain, &attr, &new, NULL));
	return new;
}

/* From here on it is this one that is read. */
static void use_queue(struct fid_cq *queue)
{
	cq = queue;
	if (sleeps)
		CHECK(fi_control(&cq->fid, FI_GETWAIT, &cq_fd));
}

static void open_endpoint(struct fi_info *with)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	size_t length = sizeof own_name;

	single_cq = open_queue();
	use_queue(single_cq);
	CHECK(fi_endpoint(domain, with, &ep, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV));
	if (connects) {
		CHECK(fi_ep_bind(ep, &eq->fid, 0));
		CHECK(fi_enable(ep));
		return;
	}
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));
	CHECK(fi_getname(&ep->fid, own_name, &length));
}

static struct fi_info *await_event(uint32_t wanted)
{
	struct fi_eq_cm_entry entry;
	uint32_t event;

	do
		CHECK(fi_eq_sread(eq, &event, &entry, sizeof entry, -1, 0));
	while (event != wanted);
	return entry.info;
}

static void receive_letter(size_t i)
{
	POST(fi_recv(fan_ep[i], letters[i], LETTER, NULL, FI_ADDR_UNSPEC, &fanned[i]));
}

static struct fid_ep *widen(struct fi_info *with)
{
	struct fid_ep **new = &fan_ep[fan];

	CHECK(fi_endpoint(domain, with, new, NULL));
	CHECK(fi_ep_bind(*new, &cq->fid, FI_SEND | FI_RECV));
	CHECK(fi_ep_bind(*new, &eq->fid, 0));
	CHECK(fi_enable(*new));
	receive_letter(fan);
	return fan_ep[fan++];
}

static void open_fan(void)
{
	if (!fan_cq)
		fan_cq = open_queue();
	use_queue(fan_cq);
}

/* For other work, which would ask all of its sockets each time, and for fewer. Both sides do so at the same time. */
static void close_fan_unless(int wanted, size_t width)
{
	if (!fan_cq || (wanted && fan <= width))
		return;
	while (fan)
		CHECK(fi_close(&fan_ep[--fan]->fid));
	CHECK(fi_close(&fan_cq->fid));
	fan_cq = NULL;
}

static void meet(const char *name)
{
	if (fi_av_insert(av, name, 1, &peer, 0, NULL) != 1)
		die("fi_av_insert", -FI_EADDRNOTAVAIL);
}

static void reserve(size_t size)
{
	static size_t reserved;
	static uint64_t key = 1;
	const uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

	if (size <= reserved)
		return;
	if (region)
		CHECK(fi_close(&region->fid));
	free(memory);
	reserved = (size + 4095) / 4096 * 4096;
	memory = aligned_alloc(4096, reserved);
	memset(memory, 1, reserved);
	CHECK(fi_mr_reg(domain, memory, reserved, access, 0, key++, 0, &region, NULL));
}

/* ---- posting and completing ----------------------------------------------------------------- */

static void receive(size_t slot, size_t size)
{
	POST(fi_recv(ep, memory + slot * size, size, fi_mr_desc(region), peer, &received[slot]));
}

/* Says whether a completion is to be expected. */
static int send_from(const char *message, size_t size, size_t slot)
{
	if (size <= info->tx_attr->inject_size) {
		POST(fi_inject(ep, message, size, peer));
		return 0;
	}
	POST(fi_send(ep, message, size, fi_mr_desc(region), peer, &sent[slot]));
	return 1;
}

/* The context of the next completion, or NULL when the peer is gone. */
static void *next(void)
{
	static struct fi_cq_entry batch[BATCH];
	static ssize_t have, taken;
	struct fid *fids[1] = {&cq->fid};
	struct pollfd readable = {.fd = cq_fd, .events = POLLIN};

	while (taken == have) {
		have = fi_cq_read(cq, batch, BATCH);
		taken = 0;
		if (have > 0)
			break;
		if (have != -FI_EAGAIN)
			return have = 0, NULL;
		have = 0;
		if (cq_fd >= 0 && fi_trywait(fabric, fids, 1) == 0)
			poll(&readable, 1, -1);
	}
	return batch[taken++].op_context;
}

static int is_slot(const void *context, const struct fi_context2 *slots)
{
	return (const struct fi_context2 *) context >= slots
		&& (const struct fi_context2 *) context < slots + MAX_WIDTH;
}

static size_t slot_of(const void *context, const struct fi_context2 *slots)
{
	return (const struct fi_context2 *) context - slots;
}

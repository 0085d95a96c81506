/*
 * libfabric's types and calls, in the order of its headers.
 *
 * Structures that grew between versions, or that Python only passes on, end in "...": the compiler
 * supplies their size.  Attribute structures handed to an open call are best allocated as an array of two
 * (ffi.new("struct fi_cq_attr[2]")): libfabric 2.x copies its own, longer, layout from the pointer.
 * Constants are in constants.cdef.h.
 */

/* ---- system types ---- */

struct iovec {
	void *iov_base;
	size_t iov_len;
};

struct pollfd {
	int fd;
	short events;
	short revents;
};

char *strdup(const char *s);

/* ---- fabric.h ---- */

typedef uint64_t fi_addr_t;

struct fid {
	size_t fclass;
	void *context;
	...;
};
typedef struct fid *fid_t;

struct fid_fabric { struct fid fid; uint32_t api_version; ...; };
struct fid_domain { struct fid fid; ...; };
struct fid_av { struct fid fid; ...; };
struct fid_av_set { struct fid fid; ...; };
struct fid_poll { struct fid fid; ...; };
struct fid_eq { struct fid fid; ...; };
struct fid_cq { struct fid fid; ...; };
struct fid_cntr { struct fid fid; ...; };
struct fid_ep { struct fid fid; ...; };
struct fid_pep { struct fid fid; ...; };
struct fid_stx { struct fid fid; ...; };
struct fid_mr { struct fid fid; void *mem_desc; uint64_t key; };
struct fid_mc { struct fid fid; fi_addr_t fi_addr; };

enum fi_ep_type { ... };
enum fi_threading { ... };
enum fi_progress { ... };
enum fi_resource_mgmt { ... };
enum fi_av_type { ... };
enum fi_type { ... };
enum fi_wait_obj { ... };
enum fi_cq_format { ... };
enum fi_cq_wait_cond { ... };
enum fi_cntr_events { ... };
enum fi_datatype { ... };
enum fi_op { ... };
enum fi_collective_op { ... };
enum fi_hmem_iface { ... };
enum fi_bus_type { ... };
enum fi_link_state { ... };
enum fi_param_type { ... };
enum fi_trigger_event { ... };
enum fi_op_type { ... };

struct fi_context { ...; };
struct fi_context2 { ...; };

struct fi_ioc {
	void *addr;
	size_t count;
};

struct fi_tx_attr {
	uint64_t caps;
	uint64_t mode;
	uint64_t op_flags;
	uint64_t msg_order;
	uint64_t comp_order;
	size_t inject_size;
	size_t size;
	size_t iov_limit;
	size_t rma_iov_limit;
	uint32_t tclass;
	...;
};

struct fi_rx_attr {
	uint64_t caps;
	uint64_t mode;
	uint64_t op_flags;
	uint64_t msg_order;
	uint64_t comp_order;
	size_t total_buffered_recv;
	size_t size;
	size_t iov_limit;
	...;
};

struct fi_ep_attr {
	enum fi_ep_type type;
	uint32_t protocol;
	uint32_t protocol_version;
	size_t max_msg_size;
	size_t msg_prefix_size;
	size_t max_order_raw_size;
	size_t max_order_war_size;
	size_t max_order_waw_size;
	uint64_t mem_tag_format;
	size_t tx_ctx_cnt;
	size_t rx_ctx_cnt;
	size_t auth_key_size;
	uint8_t *auth_key;
	...;
};

struct fi_domain_attr {
	struct fid_domain *domain;
	char *name;
	enum fi_threading threading;
	enum fi_progress control_progress;
	enum fi_progress data_progress;
	enum fi_resource_mgmt resource_mgmt;
	enum fi_av_type av_type;
	int mr_mode;
	size_t mr_key_size;
	size_t cq_data_size;
	size_t cq_cnt;
	size_t ep_cnt;
	size_t tx_ctx_cnt;
	size_t rx_ctx_cnt;
	size_t max_ep_tx_ctx;
	size_t max_ep_rx_ctx;
	size_t max_ep_stx_ctx;
	size_t max_ep_srx_ctx;
	size_t cntr_cnt;
	size_t mr_iov_limit;
	uint64_t caps;
	uint64_t mode;
	uint8_t *auth_key;
	size_t auth_key_size;
	size_t max_err_data;
	size_t mr_cnt;
	uint32_t tclass;
	...;
};

/* The same with fields of later versions; a field is valid if that version was requested from fi_getinfo. */
struct aiofabric_domain_attr {
	struct fi_domain_attr attr;
	size_t max_ep_auth_key;
	uint32_t max_group_id;
	uint64_t max_cntr_value;
	uint64_t max_err_cntr_value;
	...;
};

struct fi_fabric_attr {
	struct fid_fabric *fabric;
	char *name;
	char *prov_name;
	uint32_t prov_version;
	uint32_t api_version;
	...;
};

struct fi_device_attr {
	char *name;
	char *device_id;
	char *device_version;
	char *vendor_id;
	char *driver;
	char *firmware;
	...;
};

struct fi_pci_attr {
	uint16_t domain_id;
	uint8_t bus_id;
	uint8_t device_id;
	uint8_t function_id;
};

struct fi_bus_attr {
	enum fi_bus_type bus_type;
	union {
		struct fi_pci_attr pci;
	} attr;
	...;
};

struct fi_link_attr {
	char *address;
	size_t mtu;
	size_t speed;
	enum fi_link_state state;
	char *network_type;
	...;
};

struct fid_nic {
	struct fid fid;
	struct fi_device_attr *device_attr;
	struct fi_bus_attr *bus_attr;
	struct fi_link_attr *link_attr;
	void *prov_attr;
	...;
};

struct fi_info {
	struct fi_info *next;
	uint64_t caps;
	uint64_t mode;
	uint32_t addr_format;
	size_t src_addrlen;
	size_t dest_addrlen;
	void *src_addr;
	void *dest_addr;
	fid_t handle;
	struct fi_tx_attr *tx_attr;
	struct fi_rx_attr *rx_attr;
	struct fi_ep_attr *ep_attr;
	struct fi_domain_attr *domain_attr;
	struct fi_fabric_attr *fabric_attr;
	struct fid_nic *nic;
	...;
};

struct fi_param {
	const char *name;
	enum fi_param_type type;
	const char *help_string;
	const char *value;
};

uint32_t fi_version(void);
const char *fi_strerror(int errnum);
int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
	       const struct fi_info *hints, struct fi_info **info);
void fi_freeinfo(struct fi_info *info);
struct fi_info *fi_dupinfo(const struct fi_info *info);
struct fi_info *fi_allocinfo(void);
char *fi_tostr(const void *data, enum fi_type datatype);
char *fi_tostr_r(char *buf, size_t len, const void *data, enum fi_type datatype);
int fi_getparams(struct fi_param **params, int *count);
void fi_freeparams(struct fi_param *params);
uint32_t fi_tc_dscp_set(uint8_t dscp);
uint8_t fi_tc_dscp_get(uint32_t tclass);

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int fi_fabric2(struct fi_info *info, struct fid_fabric **fabric, uint64_t flags, void *context);
int fi_open(uint32_t version, const char *name, void *attr, size_t attr_len, uint64_t flags,
	    struct fid **fid, void *context);
int fi_close(struct fid *fid);
int fi_control(struct fid *fid, int command, void *arg);
int fi_alias(struct fid *fid, struct fid **alias_fid, uint64_t flags);
int fi_get_val(struct fid *fid, int name, void *val);
int fi_set_val(struct fid *fid, int name, void *val);
int fi_open_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
int fi_set_ops(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);

/* ---- fi_domain.h ---- */

struct fi_av_attr {
	enum fi_av_type type;
	int rx_ctx_bits;
	size_t count;
	size_t ep_per_node;
	const char *name;
	void *map_addr;
	uint64_t flags;
	...;
};

struct fi_av_set_attr {
	size_t count;
	fi_addr_t start_addr;
	fi_addr_t end_addr;
	uint64_t stride;
	size_t comm_key_size;
	uint8_t *comm_key;
	uint64_t flags;
	...;
};

struct fi_mr_attr {
	const struct iovec *mr_iov;
	size_t iov_count;
	uint64_t access;
	uint64_t offset;
	uint64_t requested_key;
	void *context;
	size_t auth_key_size;
	uint8_t *auth_key;
	enum fi_hmem_iface iface;
	union {
		uint64_t reserved;
		int cuda;
		int ze;
		int neuron;
		int synapseai;
	} device;
	...;
};

int fi_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);
int fi_domain2(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, uint64_t flags,
	       void *context);
int fi_domain_bind(struct fid_domain *domain, struct fid *fid, uint64_t flags);

struct fi_eq_attr {
	size_t size;
	uint64_t flags;
	enum fi_wait_obj wait_obj;
	int signaling_vector;
	...;
};

struct fi_cq_attr {
	size_t size;
	uint64_t flags;
	enum fi_cq_format format;
	enum fi_wait_obj wait_obj;
	int signaling_vector;
	enum fi_cq_wait_cond wait_cond;
	...;
};

struct fi_cntr_attr {
	enum fi_cntr_events events;
	enum fi_wait_obj wait_obj;
	uint64_t flags;
	...;
};

struct fi_poll_attr {
	uint64_t flags;
	...;
};

int fi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
int fi_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
int fi_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **pollset);

int fi_mr_reg(struct fid_domain *domain, const void *buf, size_t len, uint64_t acs, uint64_t offset,
	      uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context);
int fi_mr_regv(struct fid_domain *domain, const struct iovec *iov, size_t count, uint64_t acs,
	       uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context);
int fi_mr_regattr(struct fid_domain *domain, const struct fi_mr_attr *attr, uint64_t flags,
		  struct fid_mr **mr);
void *fi_mr_desc(struct fid_mr *mr);
uint64_t fi_mr_key(struct fid_mr *mr);
int fi_mr_raw_attr(struct fid_mr *mr, uint64_t *base_addr, uint8_t *raw_key, size_t *key_size,
		   uint64_t flags);
int fi_mr_map_raw(struct fid_domain *domain, uint64_t base_addr, uint8_t *raw_key, size_t key_size,
		  uint64_t *key, uint64_t flags);
int fi_mr_unmap_key(struct fid_domain *domain, uint64_t key);
int fi_mr_bind(struct fid_mr *mr, struct fid *bfid, uint64_t flags);
int fi_mr_refresh(struct fid_mr *mr, const struct iovec *iov, size_t count, uint64_t flags);
int fi_mr_enable(struct fid_mr *mr);

int fi_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context);
int fi_av_bind(struct fid_av *av, struct fid *fid, uint64_t flags);
int fi_av_insert(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags,
		 void *context);
int fi_av_insertsvc(struct fid_av *av, const char *node, const char *service, fi_addr_t *fi_addr,
		    uint64_t flags, void *context);
int fi_av_insertsym(struct fid_av *av, const char *node, size_t nodecnt, const char *service, size_t svccnt,
		    fi_addr_t *fi_addr, uint64_t flags, void *context);
int fi_av_remove(struct fid_av *av, fi_addr_t *fi_addr, size_t count, uint64_t flags);
int fi_av_lookup(struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *addrlen);
const char *fi_av_straddr(struct fid_av *av, const void *addr, char *buf, size_t *len);
int fi_av_insert_auth_key(struct fid_av *av, const void *auth_key, size_t auth_key_size, fi_addr_t *fi_addr,
			  uint64_t flags);
int fi_av_lookup_auth_key(struct fid_av *av, fi_addr_t addr, void *auth_key, size_t *auth_key_size);
int fi_av_set_user_id(struct fid_av *av, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags);
fi_addr_t fi_rx_addr(fi_addr_t fi_addr, int rx_index, int rx_ctx_bits);

/* ---- fi_eq.h ---- */

struct fi_wait_pollfd {
	uint64_t change_index;
	size_t nfds;
	struct pollfd *fd;
};

struct fi_eq_entry {
	fid_t fid;
	void *context;
	uint64_t data;
};

struct fi_eq_err_entry {
	fid_t fid;
	void *context;
	uint64_t data;
	int err;
	int prov_errno;
	void *err_data;
	size_t err_data_size;
	...;
};

struct fi_eq_cm_entry {
	fid_t fid;
	struct fi_info *info;
	uint8_t data[];
};

struct fi_cq_entry {
	void *op_context;
};

struct fi_cq_msg_entry {
	void *op_context;
	uint64_t flags;
	size_t len;
};

struct fi_cq_data_entry {
	void *op_context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data;
};

struct fi_cq_tagged_entry {
	void *op_context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data;
	uint64_t tag;
};

struct fi_cq_err_entry {
	void *op_context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data;
	uint64_t tag;
	size_t olen;
	int err;
	int prov_errno;
	void *err_data;
	size_t err_data_size;
	...;
};

/* The longest layout that any libfabric writes: 1.20 appended src_addr. */
struct aiofabric_cq_err_entry {
	struct fi_cq_err_entry entry;
	fi_addr_t src_addr;
	...;
};

int fi_trywait(struct fid_fabric *fabric, struct fid **fids, int count);
int fi_poll(struct fid_poll *pollset, void **context, int count);
int fi_poll_add(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags);
int fi_poll_del(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags);

int fi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context);
ssize_t fi_eq_read(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags);
ssize_t fi_eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *buf, uint64_t flags);
ssize_t fi_eq_write(struct fid_eq *eq, uint32_t event, const void *buf, size_t len, uint64_t flags);
ssize_t fi_eq_sread(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags);
const char *fi_eq_strerror(struct fid_eq *eq, int prov_errno, const void *err_data, char *buf, size_t len);

ssize_t fi_cq_read(struct fid_cq *cq, void *buf, size_t count);
ssize_t fi_cq_readfrom(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr);
ssize_t fi_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags);
ssize_t fi_cq_sread(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout);
ssize_t fi_cq_sreadfrom(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr, const void *cond,
			int timeout);
int fi_cq_signal(struct fid_cq *cq);
const char *fi_cq_strerror(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf, size_t len);

uint64_t fi_cntr_read(struct fid_cntr *cntr);
uint64_t fi_cntr_readerr(struct fid_cntr *cntr);
int fi_cntr_add(struct fid_cntr *cntr, uint64_t value);
int fi_cntr_adderr(struct fid_cntr *cntr, uint64_t value);
int fi_cntr_set(struct fid_cntr *cntr, uint64_t value);
int fi_cntr_seterr(struct fid_cntr *cntr, uint64_t value);
int fi_cntr_wait(struct fid_cntr *cntr, uint64_t threshold, int timeout);

/* ---- fi_endpoint.h ---- */

struct fi_msg {
	const struct iovec *msg_iov;
	void **desc;
	size_t iov_count;
	fi_addr_t addr;
	void *context;
	uint64_t data;
};

int fi_passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context);
int fi_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
int fi_endpoint2(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, uint64_t flags,
		 void *context);
int fi_scalable_ep(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep, void *context);
int fi_ep_bind(struct fid_ep *ep, struct fid *bfid, uint64_t flags);
int fi_pep_bind(struct fid_pep *pep, struct fid *bfid, uint64_t flags);
int fi_scalable_ep_bind(struct fid_ep *sep, struct fid *bfid, uint64_t flags);
int fi_enable(struct fid_ep *ep);
ssize_t fi_cancel(fid_t fid, void *context);
int fi_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen);
int fi_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen);
int fi_ep_alias(struct fid_ep *ep, struct fid_ep **alias_ep, uint64_t flags);
int fi_tx_context(struct fid_ep *ep, int idx, struct fi_tx_attr *attr, struct fid_ep **tx_ep, void *context);
int fi_rx_context(struct fid_ep *ep, int idx, struct fi_rx_attr *attr, struct fid_ep **rx_ep, void *context);
ssize_t fi_rx_size_left(struct fid_ep *ep);
ssize_t fi_tx_size_left(struct fid_ep *ep);
int fi_stx_context(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx, void *context);
int fi_srx_context(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **rx_ep, void *context);

ssize_t fi_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr, void *context);
ssize_t fi_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t src_addr,
		 void *context);
ssize_t fi_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags);
ssize_t fi_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest_addr,
		void *context);
ssize_t fi_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest_addr,
		 void *context);
ssize_t fi_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags);
ssize_t fi_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr);
ssize_t fi_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
		    fi_addr_t dest_addr, void *context);
ssize_t fi_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest_addr);

/* ---- fi_cm.h ---- */

int fi_setname(fid_t fid, void *addr, size_t addrlen);
int fi_getname(fid_t fid, void *addr, size_t *addrlen);
int fi_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen);
int fi_listen(struct fid_pep *pep);
int fi_connect(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen);
int fi_accept(struct fid_ep *ep, const void *param, size_t paramlen);
int fi_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen);
int fi_shutdown(struct fid_ep *ep, uint64_t flags);
int fi_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context);
fi_addr_t fi_mc_addr(struct fid_mc *mc);

/* ---- fi_tagged.h ---- */

struct fi_msg_tagged {
	const struct iovec *msg_iov;
	void **desc;
	size_t iov_count;
	fi_addr_t addr;
	uint64_t tag;
	uint64_t ignore;
	void *context;
	uint64_t data;
};

ssize_t fi_trecv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr, uint64_t tag,
		 uint64_t ignore, void *context);
ssize_t fi_trecvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t src_addr,
		  uint64_t tag, uint64_t ignore, void *context);
ssize_t fi_trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags);
ssize_t fi_tsend(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest_addr,
		 uint64_t tag, void *context);
ssize_t fi_tsendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest_addr,
		  uint64_t tag, void *context);
ssize_t fi_tsendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags);
ssize_t fi_tinject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr, uint64_t tag);
ssize_t fi_tsenddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
		     fi_addr_t dest_addr, uint64_t tag, void *context);
ssize_t fi_tinjectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest_addr,
		       uint64_t tag);

/* ---- fi_rma.h ---- */

struct fi_rma_iov {
	uint64_t addr;
	size_t len;
	uint64_t key;
};

struct fi_rma_ioc {
	uint64_t addr;
	size_t count;
	uint64_t key;
};

struct fi_msg_rma {
	const struct iovec *msg_iov;
	void **desc;
	size_t iov_count;
	fi_addr_t addr;
	const struct fi_rma_iov *rma_iov;
	size_t rma_iov_count;
	void *context;
	uint64_t data;
};

ssize_t fi_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr, uint64_t addr,
		uint64_t key, void *context);
ssize_t fi_readv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t src_addr,
		 uint64_t addr, uint64_t key, void *context);
ssize_t fi_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags);
ssize_t fi_write(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest_addr,
		 uint64_t addr, uint64_t key, void *context);
ssize_t fi_writev(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest_addr,
		  uint64_t addr, uint64_t key, void *context);
ssize_t fi_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags);
ssize_t fi_inject_write(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr, uint64_t addr,
			uint64_t key);
ssize_t fi_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
		     fi_addr_t dest_addr, uint64_t addr, uint64_t key, void *context);
ssize_t fi_inject_writedata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
			    fi_addr_t dest_addr, uint64_t addr, uint64_t key);

/* ---- fi_atomic.h ---- */

struct fi_atomic_attr {
	size_t count;
	size_t size;
};

struct fi_msg_atomic {
	const struct fi_ioc *msg_iov;
	void **desc;
	size_t iov_count;
	fi_addr_t addr;
	const struct fi_rma_ioc *rma_iov;
	size_t rma_iov_count;
	enum fi_datatype datatype;
	enum fi_op op;
	void *context;
	uint64_t data;
};

struct fi_msg_fetch {
	struct fi_ioc *msg_iov;
	void **desc;
	size_t iov_count;
};

struct fi_msg_compare {
	const struct fi_ioc *msg_iov;
	void **desc;
	size_t iov_count;
};

ssize_t fi_atomic(struct fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t dest_addr,
		  uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context);
ssize_t fi_atomicv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
		   fi_addr_t dest_addr, uint64_t addr, uint64_t key, enum fi_datatype datatype,
		   enum fi_op op, void *context);
ssize_t fi_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags);
ssize_t fi_inject_atomic(struct fid_ep *ep, const void *buf, size_t count, fi_addr_t dest_addr,
			 uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op);
ssize_t fi_fetch_atomic(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
			void *result_desc, fi_addr_t dest_addr, uint64_t addr, uint64_t key,
			enum fi_datatype datatype, enum fi_op op, void *context);
ssize_t fi_fetch_atomicv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
			 struct fi_ioc *resultv, void **result_desc, size_t result_count,
			 fi_addr_t dest_addr, uint64_t addr, uint64_t key, enum fi_datatype datatype,
			 enum fi_op op, void *context);
ssize_t fi_fetch_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, struct fi_ioc *resultv,
			   void **result_desc, size_t result_count, uint64_t flags);
ssize_t fi_compare_atomic(struct fid_ep *ep, const void *buf, size_t count, void *desc, const void *compare,
			  void *compare_desc, void *result, void *result_desc, fi_addr_t dest_addr,
			  uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
			  void *context);
ssize_t fi_compare_atomicv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
			   const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
			   struct fi_ioc *resultv, void **result_desc, size_t result_count,
			   fi_addr_t dest_addr, uint64_t addr, uint64_t key, enum fi_datatype datatype,
			   enum fi_op op, void *context);
ssize_t fi_compare_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
			     const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
			     struct fi_ioc *resultv, void **result_desc, size_t result_count,
			     uint64_t flags);
int fi_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op, size_t *count);
int fi_fetch_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op, size_t *count);
int fi_compare_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op, size_t *count);
int fi_query_atomic(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
		    struct fi_atomic_attr *attr, uint64_t flags);

/* ---- fi_collective.h ---- */

struct fi_collective_attr {
	enum fi_op op;
	enum fi_datatype datatype;
	struct fi_atomic_attr datatype_attr;
	size_t max_members;
	uint64_t mode;
	...;
};

int fi_av_set(struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set, void *context);
int fi_av_set_union(struct fid_av_set *dst, const struct fid_av_set *src);
int fi_av_set_intersect(struct fid_av_set *dst, const struct fid_av_set *src);
int fi_av_set_diff(struct fid_av_set *dst, const struct fid_av_set *src);
int fi_av_set_insert(struct fid_av_set *set, fi_addr_t addr);
int fi_av_set_remove(struct fid_av_set *set, fi_addr_t addr);
int fi_av_set_addr(struct fid_av_set *set, fi_addr_t *coll_addr);
int fi_join_collective(struct fid_ep *ep, fi_addr_t coll_addr, const struct fid_av_set *set, uint64_t flags,
		       struct fid_mc **mc, void *context);
ssize_t fi_barrier(struct fid_ep *ep, fi_addr_t coll_addr, void *context);
ssize_t fi_barrier2(struct fid_ep *ep, fi_addr_t coll_addr, uint64_t flags, void *context);
ssize_t fi_broadcast(struct fid_ep *ep, void *buf, size_t count, void *desc, fi_addr_t coll_addr,
		     fi_addr_t root_addr, enum fi_datatype datatype, uint64_t flags, void *context);
ssize_t fi_alltoall(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		    void *result_desc, fi_addr_t coll_addr, enum fi_datatype datatype, uint64_t flags,
		    void *context);
ssize_t fi_allreduce(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		     void *result_desc, fi_addr_t coll_addr, enum fi_datatype datatype, enum fi_op op,
		     uint64_t flags, void *context);
ssize_t fi_allgather(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		     void *result_desc, fi_addr_t coll_addr, enum fi_datatype datatype, uint64_t flags,
		     void *context);
ssize_t fi_reduce_scatter(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
			  void *result_desc, fi_addr_t coll_addr, enum fi_datatype datatype, enum fi_op op,
			  uint64_t flags, void *context);
ssize_t fi_reduce(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		  void *result_desc, fi_addr_t coll_addr, fi_addr_t root_addr, enum fi_datatype datatype,
		  enum fi_op op, uint64_t flags, void *context);
ssize_t fi_scatter(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		   void *result_desc, fi_addr_t coll_addr, fi_addr_t root_addr, enum fi_datatype datatype,
		   uint64_t flags, void *context);
ssize_t fi_gather(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		  void *result_desc, fi_addr_t coll_addr, fi_addr_t root_addr, enum fi_datatype datatype,
		  uint64_t flags, void *context);
int fi_query_collective(struct fid_domain *domain, enum fi_collective_op coll,
			struct fi_collective_attr *attr, uint64_t flags);

/* ---- fi_trigger.h ---- */

struct fi_trigger_threshold {
	struct fid_cntr *cntr;
	size_t threshold;
};

struct fi_trigger_var {
	enum fi_datatype datatype;
	int count;
	void *addr;
	union {
		uint8_t val8;
		uint16_t val16;
		uint32_t val32;
		uint64_t val64;
		uint8_t *data;
	} value;
};

struct fi_trigger_xpu {
	int count;
	enum fi_hmem_iface iface;
	union {
		uint64_t reserved;
		int cuda;
		int ze;
	} device;
	struct fi_trigger_var *var;
};

struct fi_triggered_context {
	enum fi_trigger_event event_type;
	union {
		struct fi_trigger_threshold threshold;
		struct fi_trigger_xpu xpu;
		void *internal[3];
	} trigger;
};

struct fi_triggered_context2 {
	enum fi_trigger_event event_type;
	union {
		struct fi_trigger_threshold threshold;
		struct fi_trigger_xpu xpu;
		void *internal[7];
	} trigger;
};

struct fi_op_msg { struct fid_ep *ep; struct fi_msg msg; uint64_t flags; };
struct fi_op_tagged { struct fid_ep *ep; struct fi_msg_tagged msg; uint64_t flags; };
struct fi_op_rma { struct fid_ep *ep; struct fi_msg_rma msg; uint64_t flags; };
struct fi_op_atomic { struct fid_ep *ep; struct fi_msg_atomic msg; uint64_t flags; };
struct fi_op_fetch_atomic {
	struct fid_ep *ep;
	struct fi_msg_atomic msg;
	struct fi_msg_fetch fetch;
	uint64_t flags;
};
struct fi_op_compare_atomic {
	struct fid_ep *ep;
	struct fi_msg_atomic msg;
	struct fi_msg_fetch fetch;
	struct fi_msg_compare compare;
	uint64_t flags;
};
struct fi_op_cntr { struct fid_cntr *cntr; uint64_t value; };

struct fi_deferred_work {
	struct fi_context2 context;
	uint64_t threshold;
	struct fid_cntr *triggering_cntr;
	struct fid_cntr *completion_cntr;
	enum fi_op_type op_type;
	union {
		struct fi_op_msg *msg;
		struct fi_op_tagged *tagged;
		struct fi_op_rma *rma;
		struct fi_op_atomic *atomic;
		struct fi_op_fetch_atomic *fetch_atomic;
		struct fi_op_compare_atomic *compare_atomic;
		struct fi_op_cntr *cntr;
	} op;
};

/* Of the C library: see cm/workarounds/borrowed_socket.py. */
int getsockopt(int sockfd, int level, int optname, void *optval, unsigned int *optlen);
int setsockopt(int sockfd, int level, int optname, const void *optval, unsigned int optlen);
int getsockname(int sockfd, void *addr, unsigned int *addrlen);
int getpeername(int sockfd, void *addr, unsigned int *addrlen);
int shutdown(int sockfd, int how);
ssize_t recv(int sockfd, void *buf, size_t len, int flags);

/* Of aiofabric: see written_bytes.c. */
long long aiofabric_written_bytes(int descriptor);

/* Of aiofabric: see robust_locks.c. */
int aiofabric_make_locks_robust(int is_1_17);
int aiofabric_has_other_users(void);
int aiofabric_spin_lock(void *lock);

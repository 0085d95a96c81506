/*
 * Robust locks: a process that is killed while it holds libfabric's lock in shared memory does not hang its peers.
 *
 * The shm provider, except in 2.5, guards an endpoint's memory with a pthread_spin_lock that its peers take, too. 1.17
 * holds it while it copies a whole message (smr_msg.c, smr_progress.c). A spin lock does not record its owner. Of 450
 * senders that were killed, three held the lock, and their receivers spun in pthread_spin_lock for ever.
 *
 * This file makes libfabric call another lock function, which writes the process id into the lock. A waiter that has
 * waited for a millisecond checks whether that process still exists. The unlock function stays glibc's. Processes
 * without aiofabric share the lock and use glibc's functions: 1 is a free lock, and anything less is a taken one. A
 * process that finds it taken has subtracted 1, and waits. If such a process is killed while it holds the lock, waiters
 * still hang, because the owner is not known. But if the memory is that of a process that has ended, the lock counts as
 * free: no process reads that memory. (A process that crashed without a descriptor left had such a lock.)
 *
 * A process may end in the middle of the steps under the lock. Only the last step (ofi_cirque_commit) publishes them,
 * so incomplete steps have no effect. Entries that it had already taken out of a pool are lost, and must be
 * counted as taken.
 */
#define _GNU_SOURCE /* dlinfo */
#include "robust_locks.h"

#include <errno.h>
#include <pthread.h>

#if defined(__x86_64__) && defined(__GLIBC__)

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open /* headers from before Linux 5.3 */
#define SYS_pidfd_open 434
#endif

#define FREE 1
#define CHECK_AFTER 20000 /* polls of a taken lock until its owner is checked: a millisecond */
#define YIELD_AFTER 1000 /* polls until another process may have this core: the owner may have to run on it */

/*
 * A taken lock, from the highest bit:
 * - 1;
 * - four check bits, computed from the process id and never all set, unlike in glibc's own values 0, -1, -2 ...;
 * - the process id (Linux uses 22 bits);
 * - room for 31 other processes to subtract 1 each.
 * If more processes subtract, the check bits are wrong, and the owner is unknown.
 */
#define TAKEN 0x80000000u
#define CHECK_SHIFT 27
#define CHECKS 15
#define NUMBER_SHIFT 5
#define NUMBER_MASK 0x3fffffu
#define ROOM 31

static uint32_t own_mark;
static unsigned long own_space;

static uint32_t mark_of(uint32_t number)
{
	return TAKEN | number % CHECKS << CHECK_SHIFT | number << NUMBER_SHIFT | ROOM;
}

static void know_own_mark(void)
{
	own_mark = mark_of((uint32_t) getpid() & NUMBER_MASK);
}

/*
 * Containers may share /dev/shm and have process ids of their own: then an id means nothing here. The name of every
 * endpoint that aiofabric opens contains its PID namespace (transport/workarounds/shm_names.py).
 */
static int counts_alone(void)
{
	DIR *directory = opendir("/dev/shm");
	struct dirent *entry;
	unsigned long space;
	int alone = directory != NULL;

	while (alone && (entry = readdir(directory)))
		alone = sscanf(entry->d_name, "aiofabric-%lx-", &space) != 1 || space == own_space;
	if (directory)
		closedir(directory);
	return alone;
}

/*
 * Whether the process, with all its threads, has ended; a zombie counts as ended. If this cannot be determined, the
 * result is no.
 */
static int has_ended(pid_t number)
{
	struct pollfd process = { .events = POLLIN };
	int ended;

	process.fd = (int) syscall(SYS_pidfd_open, number, 0);
	if (process.fd < 0) { /* no such process; or an old kernel, or no descriptor left */
		ended = kill(number, 0) && errno == ESRCH;
	} else {
		ended = poll(&process, 1, 0) == 1;
		close(process.fd);
	}
	return ended && counts_alone();
}

/*
 * 1.17 counts the entries that senders may take out of an endpoint's pools, and does not check whether there are any.
 * Senders take an entry before they count it (smr_ep.c). So one entry of each pool is assumed lost with the dead
 * process.
 */
#define VERSION_1_17 4 /* SMR_VERSION, ofi_shm.h */
#define OWNER_AT 4
#define LOCK_AT 24
#define COUNTS_AT 48
#define COUNTS 2 /* cmd_cnt, sar_cnt */

static int counted;

/* The memory that has this lock; NULL: it is not known to have 1.17's layout. */
static unsigned char *region_of(uint32_t *lock)
{
	unsigned char *region = (unsigned char *) lock - LOCK_AT;

	if (!counted || (uintptr_t) region % (uintptr_t) sysconf(_SC_PAGESIZE) || *region != VERSION_1_17)
		return NULL;
	return region;
}

static void count_lost(uint32_t *lock)
{
	unsigned char *region = region_of(lock);
	size_t *counts;

	if (!region)
		return;
	counts = (size_t *) (region + COUNTS_AT);
	for (int i = 0; i < COUNTS; i++)
		counts[i] -= counts[i] > 0;
}

static int take(uint32_t *lock, uint32_t found)
{
	return __atomic_compare_exchange_n(lock, &found, own_mark, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Whether no process holds the lock any more: the one that took it has ended, or the one whose memory it guards. */
static int is_orphaned(uint32_t *lock, uint32_t found)
{
	uint32_t number = found >> NUMBER_SHIFT & NUMBER_MASK;
	unsigned char *region = region_of(lock);

	if ((found | ROOM) == mark_of(number))
		return has_ended((pid_t) number);
	return region && *(int *) (region + OWNER_AT) > 0 && has_ended(*(int *) (region + OWNER_AT));
}

/* Wait until the lock is free, or its owner has ended; return its value. */
static uint32_t wait_for(uint32_t *lock)
{
	uint32_t found;
	int before = errno;

	for (unsigned polls = 1; (found = __atomic_load_n(lock, __ATOMIC_RELAXED)) != FREE; polls++) {
		__builtin_ia32_pause();
		if (polls % YIELD_AFTER == 0)
			sched_yield();
		if (polls % CHECK_AFTER == 0 && is_orphaned(lock, found))
			break;
	}
	errno = before;
	return found;
}

int aiofabric_spin_lock(void *lock)
{
	uint32_t found = FREE;

	while (!take(lock, found))
		found = wait_for(lock);
	if (found != FREE)
		count_lost(lock);
	return 0;
}

/* The entry for the address of pthread_spin_lock in a table of relocations. */
static void **find(const ElfW(Rela) *entry, size_t size, const struct link_map *library, const ElfW(Sym) *symbols,
		   const char *strings)
{
	for (const ElfW(Rela) *end = entry + size / sizeof(*entry); entry < end; entry++) {
		if (ELF64_R_TYPE(entry->r_info) != R_X86_64_JUMP_SLOT && ELF64_R_TYPE(entry->r_info) != R_X86_64_GLOB_DAT)
			continue;
		if (!strcmp(strings + symbols[ELF64_R_SYM(entry->r_info)].st_name, "pthread_spin_lock"))
			return (void **) (library->l_addr + entry->r_offset);
	}
	return NULL;
}

/* The location where libfabric keeps the address of pthread_spin_lock. */
static void **find_slot(void)
{
	const void *table[DT_NUM] = { NULL };
	size_t size[DT_NUM] = { 0 };
	void *handle = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NOLOAD), **slot = NULL;
	struct link_map *library;
	int known;

	if (!handle)
		return NULL;
	known = !dlinfo(handle, RTLD_DI_LINKMAP, &library);
	dlclose(handle); /* the library is not unloaded meanwhile, because this module links to it */
	if (!known)
		return NULL;
	for (const ElfW(Dyn) *entry = library->l_ld; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag > 0 && entry->d_tag < DT_NUM) {
			table[entry->d_tag] = (const void *) entry->d_un.d_ptr;
			size[entry->d_tag] = entry->d_un.d_val;
		}
	if (table[DT_JMPREL])
		slot = find(table[DT_JMPREL], size[DT_PLTRELSZ], library, table[DT_SYMTAB], table[DT_STRTAB]);
	if (!slot && table[DT_RELA])
		slot = find(table[DT_RELA], size[DT_RELASZ], library, table[DT_SYMTAB], table[DT_STRTAB]);
	return slot;
}

/* The page may be read-only since the library was linked (RELRO); its protection is restored afterwards. */
static int write_slot(void **slot, void *function)
{
	uintptr_t page = (uintptr_t) slot & ~((uintptr_t) sysconf(_SC_PAGESIZE) - 1);
	unsigned long start, end;
	char line[512], mode[5];
	int protection = PROT_READ | PROT_WRITE;
	FILE *maps = fopen("/proc/self/maps", "re");

	if (!maps)
		return -errno;
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, mode) == 3 && start <= page && page < end)
			protection = PROT_READ | (mode[1] == 'w' ? PROT_WRITE : 0);
	fclose(maps);
	if (mprotect((void *) page, sizeof(void *), PROT_READ | PROT_WRITE))
		return -errno;
	__atomic_store_n(slot, function, __ATOMIC_RELEASE);
	mprotect((void *) page, sizeof(void *), protection);
	return 0;
}

/* The length of the path of the folder aiofabric/, of which this module's file is .../aiofabric/_ffi/name.so. */
static size_t package_length(const char *own)
{
	const char *end = own ? strrchr(own, '/') : NULL;

	while (end && --end >= own)
		if (*end == '/')
			return (size_t) (end - own) + 1;
	return 0;
}

/* Whether an object other than aiofabric's modules, and libfabric's own providers, is linked to libfabric. */
static int is_user(struct dl_phdr_info *object, size_t size, void *data)
{
	const ElfW(Dyn) *entry = NULL;
	const char *strings = NULL, *own = data;
	size_t package = package_length(own);

	(void) size;
	if ((package && !strncmp(object->dlpi_name, own, package)) || strstr(object->dlpi_name, "-fi.so"))
		return 0;
	for (int i = 0; i < object->dlpi_phnum; i++)
		if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
			entry = (const ElfW(Dyn) *) (object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
	for (const ElfW(Dyn) *each = entry; each && each->d_tag != DT_NULL; each++)
		if (each->d_tag == DT_STRTAB)
			strings = (const char *) each->d_un.d_ptr;
	if ((uintptr_t) strings < object->dlpi_addr) /* the kernel's own object (vdso) is not relocated */
		return 0;
	for (const ElfW(Dyn) *each = entry; strings && each->d_tag != DT_NULL; each++)
		if (each->d_tag == DT_NEEDED && !strcmp(strings + each->d_un.d_val, "libfabric.so.1"))
			return 1;
	return 0;
}

int aiofabric_has_other_users(void)
{
	Dl_info own = { .dli_fname = NULL };

	dladdr((void *) aiofabric_has_other_users, &own);
	return dl_iterate_phdr(is_user, (void *) own.dli_fname);
}

int aiofabric_make_locks_robust(int is_1_17)
{
	static int made; /* two threads at once do the same work twice, which is harmless */
	struct stat status;
	void **slot;
	int rc;

	if (made)
		return 0;
	if (!(slot = find_slot()))
		return -ENOENT;
	if (stat("/proc/self/ns/pid", &status))
		return -errno;
	own_space = status.st_ino;
	counted = is_1_17;
	know_own_mark();
	if ((rc = -pthread_atfork(NULL, NULL, know_own_mark)) || (rc = write_slot(slot, (void *) aiofabric_spin_lock)))
		return rc;
	made = 1;
	return 0;
}

#else

int aiofabric_spin_lock(void *lock)
{
	return pthread_spin_lock(lock);
}

int aiofabric_has_other_users(void)
{
	return 0;
}

int aiofabric_make_locks_robust(int is_1_17)
{
	return -ENOSYS;
}
#endif

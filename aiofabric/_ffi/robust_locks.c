/*
 * Robust locks: a process that is killed while it holds libfabric's lock in shared memory does not hang its peers.
 *
 * Until 2.5 the shm provider guards an endpoint's memory with a pthread_spin_lock that its peers take as well, 1.17
 * while they copy a whole message (smr_msg.c, smr_progress.c). A spin lock knows no owner: of 450 senders that were
 * killed, three took the lock with them, and whoever received from them turned in pthread_spin_lock for ever.
 *
 * Here libfabric is made to call another function in its place, which writes its process into the lock; who has waited
 * for long looks whether that process is still there. Unlocking stays glibc's, and so does all of it in processes
 * without aiofabric, which share the lock: 1 is a free lock, anything less a taken one, and who finds it taken has
 * subtracted 1 and waits. The lock of such a process, killed, is waited for as ever: its owner is not known.
 *
 * What a dead process leaves half done under the lock is at worst a buffer that nobody gets any more: what it wrote is
 * published by the last of its steps (ofi_cirque_commit).
 */
#define _GNU_SOURCE /* dlinfo */
#include "robust_locks.h"

#include <errno.h>
#include <pthread.h>

#if defined(__x86_64__) && defined(__GLIBC__)

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
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
#define PATIENCE 20000 /* looks at a taken lock until its owner is looked for: a millisecond */
#define TURN 1000 /* of these until another process may have this core: the owner may have to run on it */

/*
 * A lock that is taken, from the highest bit: 1; where the process has its number (4 bits, never all of them set, as
 * they are in glibc's own 0, -1, -2 ...); its number (Linux has 22 bits); and room for 31 others to subtract 1 each.
 */
#define TAKEN 0x80000000u
#define SPACE_SHIFT 27
#define SPACES 15
#define NUMBER_SHIFT 5
#define NUMBER_MASK 0x3fffffu
#define ROOM 31

static uint32_t space, own_mark;

static void know_own_mark(void)
{
	own_mark = TAKEN | space << SPACE_SHIFT | ((uint32_t) getpid() & NUMBER_MASK) << NUMBER_SHIFT | ROOM;
}

/* Ended, with all its threads, whether its parent has looked or not. In doubt it has not. */
static int has_ended(uint32_t mark)
{
	struct pollfd process = { .events = POLLIN };
	int ended;

	if (!(mark & TAKEN) || (mark >> SPACE_SHIFT & 15) != space)
		return 0;
	process.fd = (int) syscall(SYS_pidfd_open, (pid_t) (mark >> NUMBER_SHIFT & NUMBER_MASK), 0);
	if (process.fd < 0)
		return errno == ESRCH;
	ended = poll(&process, 1, 0) == 1;
	close(process.fd);
	return ended;
}

static int take(uint32_t *lock, uint32_t found)
{
	return __atomic_compare_exchange_n(lock, &found, own_mark, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Until the lock is free, or its owner has ended: what is in it then. */
static uint32_t wait_for(uint32_t *lock)
{
	uint32_t found;
	int before = errno;

	for (unsigned looks = 1; (found = __atomic_load_n(lock, __ATOMIC_RELAXED)) != FREE; looks++) {
		__builtin_ia32_pause();
		if (looks % TURN == 0)
			sched_yield();
		if (looks % PATIENCE == 0 && has_ended(found))
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
	return 0;
}

/* The place that this table of relocations has for the address of pthread_spin_lock. */
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

/* Where libfabric keeps the address of pthread_spin_lock. */
static void **find_slot(void)
{
	const void *table[DT_NUM] = { NULL };
	size_t size[DT_NUM] = { 0 };
	void *handle = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NOLOAD), **slot = NULL;
	struct link_map *library;

	if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &library))
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
	dlclose(handle);
	return slot;
}

/* The page may be for reading only since the library was linked (RELRO), and is again afterwards. */
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

int aiofabric_make_locks_robust(void)
{
	static int made; /* two threads at once do the same thing twice */
	struct stat status;
	void **slot;
	int rc;

	if (made)
		return 0;
	if (!(slot = find_slot()))
		return -ENOENT;
	if (stat("/proc/self/ns/pid", &status))
		return -errno;
	space = (uint32_t) (status.st_ino % SPACES);
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

int aiofabric_make_locks_robust(void)
{
	return -ENOSYS;
}
#endif

/* See robust_locks.c. */
#ifndef AIOFABRIC_ROBUST_LOCKS_H
#define AIOFABRIC_ROBUST_LOCKS_H

/*
 * Make libfabric's spin locks record their owner. `is_1_17`: shm has the entry counts of 1.17. Returns 0 for success,
 * -ENOENT if this libfabric calls no spin locks, -ENOSYS on unsupported machines, or another negative errno.
 */
int aiofabric_make_locks_robust(int is_1_17);

/* Whether another object of this process, such as an MPI, is linked to libfabric. */
int aiofabric_has_other_users(void);

/* Like pthread_spin_lock, but it takes over the lock of a process that has ended. */
int aiofabric_spin_lock(void *lock);

#endif

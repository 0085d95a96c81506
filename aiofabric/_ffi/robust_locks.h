/* See robust_locks.c. */
#ifndef AIOFABRIC_ROBUST_LOCKS_H
#define AIOFABRIC_ROBUST_LOCKS_H

/*
 * From now on libfabric's spin locks name their owner; `is_1_17`: and its shm counts as 1.17's does. 0; or -ENOENT: this
 * libfabric calls none; -ENOSYS: a machine for which this is not written; another negative errno.
 */
int aiofabric_make_locks_robust(int is_1_17);

/* Whether something else in this process, such as an MPI, is linked to libfabric. */
int aiofabric_has_other_users(void);

/* pthread_spin_lock, but for the lock of a process that has ended: that is taken over. */
int aiofabric_spin_lock(void *lock);

#endif

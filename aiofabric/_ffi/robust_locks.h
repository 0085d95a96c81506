/* See robust_locks.c. */
#ifndef AIOFABRIC_ROBUST_LOCKS_H
#define AIOFABRIC_ROBUST_LOCKS_H

/*
 * From now on libfabric's spin locks name their owner. 0, or -ENOENT: this libfabric has none (2.5); -ENOSYS: a machine
 * for which this is not written; another negative errno.
 */
int aiofabric_make_locks_robust(void);

/* pthread_spin_lock, but for the lock of a process that has ended: that is taken over. */
int aiofabric_spin_lock(void *lock);

#endif

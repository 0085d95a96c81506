/*
 * The current iteration of the event loop, as far as a source knows it: the awaits that returned at once, the tasks
 * that were woken, and whether other tasks have work. Only the functions of this file and of iteration.c change it;
 * the tests set its fields, too.
 */
#ifndef AIOFABRIC_ITERATION_H
#define AIOFABRIC_ITERATION_H

#include "base/clock.h"
#include "base/references.h"

#define STREAK 64 /* most awaits in a row that may return without an iteration of the loop */
/*
 * Nor does one return so after an iteration of this length: a program that computes between its awaits would keep
 * messages from leaving, and other tasks from running, for 64 times as long. The clock takes 25 ns.
 */
#define LONG_ITERATION_NS 10000000

struct iteration {
	long long began;		/* ns */
	long long streak;		/* awaits in a row that returned at once */
	long long wakes;		/* tasks that were woken since it began, or since the last poll of an awaiting call did */
	long long behind;		/* tasks that were woken when a pass was scheduled already: they run after it */
	long long poll_refused_at;	/* ns: a poll was refused then, so that the loop iterates; 0: none, or it may sleep */
	long long shared;		/* iterations for which other tasks are still assumed to have work */
	long long yielding;		/* tasks that could continue, and only let the loop iterate */
	long long postponements;	/* how often the scheduled pass may still be put off for them */
	char others_woken;		/* other tasks were woken and have not run yet: an awaiting call does not poll */
	char must_iterate;		/* a poll was refused after a useful one: the next receive lets the loop iterate first */
	char last_poll_hit;		/* the last poll of an awaiting call found a completion */
};

/* The loop has iterated. */
void iteration_begin(struct iteration *self);
/* So it has, but the tasks after this pass in the loop's queue have not run yet. */
void iteration_begin_pass(struct iteration *self);
/* Whether an awaiting call may not poll at `now`, because other tasks wait for the loop. */
int iteration_refuses_poll(struct iteration *self, long long now);
/* The poll of an awaiting call has begun; it has ended. */
void iteration_begin_poll(struct iteration *self);
void iteration_end_poll(struct iteration *self, int found);
/* A pass was scheduled before these tasks were woken. */
void iteration_run_behind_pass(struct iteration *self);
/* Whether the scheduled pass is put off once more for the tasks that let the loop iterate. */
int iteration_postpones_pass(struct iteration *self);

/* A task was woken. */
static inline void iteration_wake(struct iteration *self)
{
	self->wakes++;
}

/* Tasks are about to resume: if there are several, none of them polls before the others have run. */
static inline void iteration_resume_tasks(struct iteration *self)
{
	self->others_woken = self->wakes > 1;
}

static inline int iteration_is_long(const struct iteration *self)
{
	return self->began && now_ns() - self->began > LONG_ITERATION_NS;
}

/* Count an await that returns at once. Whether it must let the loop iterate instead. */
static inline int iteration_must_yield(struct iteration *self)
{
	return ++self->streak > STREAK || iteration_is_long(self);
}

/* Count one that a poll has found a message for: the time since the iteration began limits the polls. */
static inline void iteration_return(struct iteration *self)
{
	self->streak++;
}

/* Count an await that returns at once; 0: it must not, and its caller lets the loop iterate in another way. */
static inline int iteration_allows_return(struct iteration *self)
{
	if (self->streak >= STREAK || iteration_is_long(self))
		return 0;
	self->streak++;
	return 1;
}

/* A task suspends: others run now. */
static inline void iteration_suspend(struct iteration *self)
{
	self->streak = 0;
}

/* The loop may sleep now, so that the length of this iteration says nothing about other tasks. */
static inline void iteration_may_sleep(struct iteration *self)
{
	self->poll_refused_at = 0;
}

/* A task that could continue lets the loop iterate; it continues. */
static inline void iteration_yield(struct iteration *self)
{
	self->yielding++;
}

static inline void iteration_continue(struct iteration *self)
{
	self->yielding--;
}

#endif

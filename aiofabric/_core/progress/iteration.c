/* The rules of an iteration of the loop: when an awaiting call may poll, and when other tasks come first. */
#include "progress/iteration.h"
#include "base/clock.h"

/*
 * An awaiting call may poll only if the last iteration of the loop began less than this time ago. An iteration costs a
 * few us (10 to 20 on asyncio), and other tasks wait for it. Some tasks need three iterations: beside a busy connection
 * on asyncio, 1 % of them were 0.85 ms late. So the limit is a third of this while the length of the iterations shows
 * that other tasks have work; then those tasks are 0.5 ms late. With a third in all cases, a round trip on asyncio took
 * 27 us instead of 24.5.
 */
#define LONGEST_ITERATION_NS 180000
#define LONGEST_SHARED_ITERATION_NS 60000
#define SHARED_NS 40000 /* an iteration that took longer ran other tasks */
#define SHARED_FOR 32 /* iterations for which that is assumed */
#define POSTPONEMENTS 3 /* iterations after a useful poll: the reply's send, the next receive, and one more */

void iteration_begin(struct iteration *self)
{
	self->began = now_ns();
	if (self->poll_refused_at && self->began - self->poll_refused_at > SHARED_NS)
		self->shared = SHARED_FOR;
	else if (self->poll_refused_at && self->shared)
		self->shared--;
	self->poll_refused_at = 0;
	self->others_woken = self->must_iterate = 0;
	self->streak = self->wakes = 0;
}

void iteration_begin_pass(struct iteration *self)
{
	iteration_begin(self);
	self->wakes = self->behind;
	self->behind = 0;
	iteration_resume_tasks(self);
}

int iteration_refuses_poll(struct iteration *self, long long now)
{
	if (now - self->began <= (self->shared ? LONGEST_SHARED_ITERATION_NS : LONGEST_ITERATION_NS))
		return 0;
	self->must_iterate = self->last_poll_hit;
	self->poll_refused_at = now;
	return 1;
}

void iteration_begin_poll(struct iteration *self)
{
	self->wakes = 0;
}

void iteration_end_poll(struct iteration *self, int found)
{
	self->last_poll_hit = found;
	if (!found)
		return;
	self->others_woken = self->wakes > 0;
	self->postponements = POSTPONEMENTS;
}

void iteration_run_behind_pass(struct iteration *self)
{
	self->behind += self->wakes;
}

int iteration_postpones_pass(struct iteration *self)
{
	if (!self->yielding || !self->postponements)
		return 0;
	self->postponements--;
	return 1;
}

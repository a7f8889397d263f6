/* An OpenMP team with uneven shares of the work, and a rest between two regions. libgomp spends the remaining time of its threads waiting.
 * Arguments: microseconds of work of the first thread, of the others, and of rest; turns per microsecond. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define THREADS 64
#define GRAIN_NS 4000000

static uint64_t now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static volatile uint64_t sink;

static void work(double turns)
{
	uint64_t x = sink | 1;

	for (uint64_t i = turns; i; i--)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	sink = x;
}

int main(int argc, char **argv)
{
	static uint64_t worked[THREADS], noted[THREADS];
	double first, others, rest, turns;

	if (argc < 5)
		return 2;
	first = atof(argv[1]), others = atof(argv[2]), rest = atof(argv[3]), turns = atof(argv[4]);
#pragma omp parallel
	dprintf(1, "thread %d %d -\n", omp_get_thread_num(), gettid());
	for (;;) {
#pragma omp parallel
		{
			int me = omp_get_thread_num();
			uint64_t before = now(CLOCK_THREAD_CPUTIME_ID), after, at;

			if (me < THREADS) {
				work((me ? others : first) * turns);
				after = now(CLOCK_THREAD_CPUTIME_ID);
				worked[me] += after - before;
				at = now(CLOCK_MONOTONIC);
				if (at >= noted[me] + GRAIN_NS) {
					dprintf(1, "%lu %d %lu %lu\n", at, me, after - worked[me], worked[me]);
					noted[me] = at;
				}
			}
		}
		if (rest > 0)
			usleep(rest);
	}
}

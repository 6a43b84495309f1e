// Waits that look up now and then, so that somebody can end them.
#ifndef PJ_BASE_TICK_H_
#define PJ_BASE_TICK_H_

#include <pthread.h>
#include <time.h>

// As pthread_cond_wait, but returns after a tenth of a second at the latest.
static inline void pj_wait_a_tick(pthread_cond_t *changed, pthread_mutex_t *lock) {
  enum { TICK_NS = 100000000, SECOND_NS = 1000000000 };
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += TICK_NS;
  if (until.tv_nsec >= SECOND_NS) {
    until.tv_nsec -= SECOND_NS;
    ++until.tv_sec;
  }
  pthread_cond_timedwait(changed, lock, &until);
}

#endif

/* thread.h - starts a thread of the library: named, and deaf to the program's signals. */
#ifndef NW_BASE_THREAD_H
#define NW_BASE_THREAD_H

#include <pthread.h>

/* Returns 0 or an error number, as pthread_create does. The name is "NAME-INDEX", cut to 15 characters. */
int nw_thread_start(pthread_t *thread, const char *name, int index, void *(*run)(void *), void *argument);

#endif

/* thread.h - starts a thread of the library: named, and deaf to the program's signals; and lets one wait briefly. */
#ifndef NW_BASE_THREAD_H
#define NW_BASE_THREAD_H

#include <pthread.h>

/* Returns 0 or an error number, as pthread_create does. The name is "NAME-INDEX", cut to 15 characters. */
int nw_thread_start(pthread_t *thread, const char *name, int index, void *(*run)(void *), void *argument);

/* A moment for the other thread of this core, while waiting for what will come within microseconds. */
static inline void nw_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most cores */
#else
    __asm__ volatile("" ::: "memory");
#endif
}

#endif

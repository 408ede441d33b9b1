/*
 * thread.c - starts a thread of the library; see thread.h.
 *
 * Signals are the program's business and its own threads handle them; the library's threads take only those their own
 * code causes, and the profiler's. A thread inherits the mask of the one that starts it, so the mask is set around the
 * start and nothing can arrive in between.
 */
#define _GNU_SOURCE 1
#include "base/thread.h"

#include <signal.h>
#include <stdio.h>

int nw_thread_start(pthread_t *thread, const char *name, int index, void *(*run)(void *), void *argument)
{
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) sigdelset(&blocked, kept[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) return error;
    char text[16];
    snprintf(text, sizeof text, "%s-%d", name, index % 100000);
    pthread_setname_np(*thread, text);
    return 0;
}

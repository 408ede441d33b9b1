/*
 * terminal.c - what observers that write for people need to know of their output.
 *
 * No terminal description is read: carriage return and "erase to end of line" are understood by everything that calls
 * itself more than dumb.
 */
#define _GNU_SOURCE 1
#include "observe/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { USUAL_WIDTH = 80 };

int nw_terminal_width(FILE *out)
{
    int file = fileno(out);
    struct winsize size;
    if (file < 0 || !isatty(file)) return 0;
    if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return USUAL_WIDTH;
    return size.ws_col;
}

bool nw_terminal_can_rewrite(FILE *out)
{
    const char *term = getenv("TERM");
    return nw_terminal_width(out) > 0 && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

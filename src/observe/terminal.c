/*
 * terminal.c - whether the output is a terminal, and how wide it is.
 *
 * No terminal description is read: all terminals but those with TERM=dumb understand carriage return and "erase to end
 * of line".
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

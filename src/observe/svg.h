/*
 * svg.h - what drawings share: text that XML takes, and a file that is whole or absent.
 *
 * Drawings are made in memory and written at the end. The same drawing gives the same bytes.
 */
#ifndef NW_OBSERVE_SVG_H
#define NW_OBSERVE_SVG_H

#include "base/status.h"

#include <stdio.h>

/* Writes text as XML has it: markup escaped, control characters and bytes that are no UTF-8 as spaces. */
void nw_svg_text(FILE *out, const char *text);

/* A drawing in memory, to be freed, by a function that writes it. `what` names it in messages. */
nw_status nw_svg_draw(char **text, size_t *size, void (*draw)(FILE *out, const void *drawing), const void *drawing,
                      const char *what);

/* Writes it to `path`, which may be a device. NW_E_SYSTEM if that cannot be done whole; nothing is left behind then. */
nw_status nw_svg_save(const char *path, const char *text, size_t size);

#endif

/* svg.c - see svg.h. */
#define _GNU_SOURCE 1
#include "observe/svg.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void nw_svg_text(FILE *out, const char *text)
{
    for (size_t left = strlen(text), length; left > 0; left -= length, text += length) {
        unsigned char letter = (unsigned char)*text;
        length = letter < 0x80 ? 1 : nw_utf8_length((const unsigned char *)text, left);
        if (letter == '&')
            fputs("&amp;", out);
        else if (letter == '<')
            fputs("&lt;", out);
        else if (letter == '>')
            fputs("&gt;", out);
        else if (letter == '"')
            fputs("&quot;", out);
        else if (letter < ' ' || letter == 0x7F || length == 0)
            fputc(' ', out);
        else
            fwrite(text, 1, length, out);
        if (length == 0) length = 1;
    }
}

nw_status nw_svg_write(const char *path, void (*draw)(FILE *out, const void *drawing), const void *drawing)
{
    FILE *file = fopen(path, "w");
    NW_FAIL_IF(!file, NW_E_SYSTEM, "'%s' cannot be written: %s; name a file in a folder that exists and is yours", path,
               strerror(errno));
    struct stat status;
    bool regular = fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode); /* a device is not ours to remove */
    draw(file, drawing);
    bool written = fflush(file) == 0 && !ferror(file);
    int error = errno;
    written = fclose(file) == 0 && written;
    if (written) return NW_OK;
    if (regular) remove(path);
    return NW_FAIL(NW_E_SYSTEM, "'%s' could not be written whole: %s; is the disk full?", path, strerror(error));
}

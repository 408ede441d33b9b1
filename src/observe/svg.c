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

nw_status nw_svg_draw(char **text, size_t *size, void (*draw)(FILE *out, const void *drawing), const void *drawing,
                      const char *what)
{
    *text = NULL;
    FILE *memory = open_memstream(text, size);
    NW_FAIL_IF(!memory, NW_E_MEMORY, "no memory for a drawing of %s", what);
    draw(memory, drawing);
    if (fclose(memory) == 0) return NW_OK;
    free(*text);
    *text = NULL;
    return NW_FAIL(NW_E_MEMORY, "no memory for a drawing of %s", what);
}

nw_status nw_svg_save(const char *path, const char *text, size_t size)
{
    FILE *file = fopen(path, "w");
    NW_FAIL_IF(!file, NW_E_SYSTEM, "'%s' cannot be written: %s; name a file in a folder that exists and is yours", path,
               strerror(errno));
    struct stat status;
    bool regular = fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode); /* a device is not ours to remove */
    bool written = fwrite(text, 1, size, file) == size;
    written = fclose(file) == 0 && written;
    int error = errno;
    if (written) return NW_OK;
    if (regular) remove(path);
    return NW_FAIL(NW_E_SYSTEM, "'%s' could not be written whole: %s; is the disk full?", path, strerror(error));
}

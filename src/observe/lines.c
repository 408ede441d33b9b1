/*
 * lines.c - reads back the lines of metrics.jsonl and logs.tsv.
 *
 * Files may have been edited or damaged. So reading never goes past the given length, and a line that nowait cannot
 * have written is refused. Of each line only that part is read which tells its place in the run.
 */
#include "observe/lines.h"

#include <string.h>

typedef struct text_reader {
    const char *at, *end;
} text_reader;

static bool skip_text(text_reader *reader, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, text, length) != 0) return false;
    reader->at += length;
    return true;
}

static bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

static bool read_digits(text_reader *reader, int64_t *value)
{
    *value = 0;
    const char *first = reader->at;
    for (; reader->at < reader->end && is_digit(*reader->at); reader->at++) {
        if (*value > (INT64_MAX - 9) / 10) return false;
        *value = *value * 10 + (*reader->at - '0');
    }
    return reader->at > first;
}

static bool skip_digits(text_reader *reader)
{
    const char *first = reader->at;
    while (reader->at < reader->end && is_digit(*reader->at)) reader->at++;
    return reader->at > first;
}

static bool skip_decimal(text_reader *reader)
{
    return skip_digits(reader) && skip_text(reader, ".") && skip_digits(reader);
}

/* A key that may be missing or null: then -1. */
static void read_count(text_reader *reader, const char *key, int64_t *value)
{
    text_reader ahead = *reader;
    *value = -1;
    if (!skip_text(&ahead, key)) return;
    int64_t count;
    if (read_digits(&ahead, &count))
        *value = count;
    else if (!skip_text(&ahead, "null"))
        return;
    if (skip_text(&ahead, ",")) *reader = ahead;
}

bool nw_jsonl_line_place(const char *line, size_t length, nw_line_place *place)
{
    text_reader reader = {line, line + length};
    if (length == 0 || line[length - 1] != '}') return false;
    if (!skip_text(&reader, "{\"record\":\"")) return false;
    const char *kind = reader.at;
    while (reader.at < reader.end && *reader.at >= 'a' && *reader.at <= 'z') reader.at++;
    size_t letters = (size_t)(reader.at - kind);
    place->ends_epoch = letters == strlen("epoch") && memcmp(kind, "epoch", letters) == 0;
    bool ours = letters > 0 && skip_text(&reader, "\",\"step\":") && read_digits(&reader, &place->step) &&
                skip_text(&reader, ",");
    if (!ours) return false;
    read_count(&reader, "\"epoch\":", &place->epoch);
    read_count(&reader, "\"images\":", &place->images);
    return true;
}

bool nw_tsv_row_epoch(const char *row, size_t length, int64_t *epoch)
{
    text_reader reader = {row, row + length};
    return read_digits(&reader, epoch) && skip_text(&reader, "\t") && skip_decimal(&reader) &&
           skip_text(&reader, "\t") && skip_decimal(&reader) && reader.at == reader.end;
}

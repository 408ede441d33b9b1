/*
 * driver.c - runs a fuzz target without libFuzzer: every file of the corpus, then mutations of them for some seconds.
 *
 *   fuzz_NAME CORPUS_DIR [SECONDS [SEED]]
 *
 * A target defines LLVMFuzzerTestOneInput, as libFuzzer wants it, so the same file also builds with
 * clang -fsanitize=fuzzer. Mutations are drawn from the seed: bytes replaced, ranges copied, removed and repeated,
 * numbers at the edges of their types. An input that crashes is found in CRASH_FILE (fuzz-crash.bin): it is written
 * before it is run, and removed at the end. The seconds are those of the wall, so that a busy machine tries less
 * instead of taking longer.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_FILES = 4096, MOST_BYTES = 1 << 20 };

typedef struct input {
    uint8_t *data;
    size_t size;
} input;

static uint64_t state;
static uint64_t next(void) /* splitmix64 */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static size_t below(size_t bound) { return bound ? (size_t)(next() % bound) : 0; }

static int load(const char *dir, input *inputs)
{
    DIR *d = opendir(dir);
    if (!d) {
        fprintf(stderr, "fuzz: cannot open the corpus %s\n", dir);
        exit(1);
    }
    int count = 0;
    for (struct dirent *e; (e = readdir(d)) && count < MOST_FILES;) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!f) continue;
        uint8_t *data = malloc(MOST_BYTES);
        size_t size = fread(data, 1, MOST_BYTES, f);
        fclose(f);
        inputs[count++] = (input){data, size};
    }
    closedir(d);
    return count;
}

static size_t mutate(uint8_t *data, size_t size)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     0x7f,
                                     0x80,
                                     0xff,
                                     0x7fff,
                                     0xffff,
                                     0x7fffffff,
                                     0x80000000u,
                                     0xffffffffu,
                                     0x7fffffffffffffffu,
                                     0xffffffffffffffffu};
    for (size_t rounds = 1 + below(8); rounds > 0; rounds--) {
        size_t at = below(size), length = below(size - at) % 64 + 1;
        switch (size ? below(7) : 6) {
        case 0:
            data[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            data[at] = (uint8_t)next();
            break;
        case 2: { /* a number at the edge of its type */
            uint64_t value = edges[below(sizeof edges / sizeof edges[0])];
            size_t bytes = (size_t)1 << below(4);
            for (size_t i = 0; i < bytes && at + i < size; i++) data[at + i] = (uint8_t)(value >> (8 * i));
            break;
        }
        case 3: /* remove a range */
            if (at + length > size) length = size - at;
            memmove(data + at, data + at + length, size - at - length);
            size -= length;
            break;
        case 4: { /* repeat a range */
            if (at + length > size) length = size - at;
            if (size + length > MOST_BYTES) break;
            memmove(data + at + length, data + at, size - at);
            size += length;
            break;
        }
        case 5:
            size = at;
            break; /* cut */
        default:   /* append */
            for (size_t i = 0; i < length && size < MOST_BYTES; i++) data[size++] = (uint8_t)next();
        }
    }
    return size;
}

/* A copy of exactly the size, so that the sanitizer sees the first byte too far. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Through one descriptor: opening a file for every mutation would take most of the time. */
static void note(int file, const uint8_t *data, size_t size)
{
    if (pwrite(file, data, size, 0) == (ssize_t)size && ftruncate(file, (off_t)size) == 0) return;
    perror("fuzz: cannot write the file for inputs that crash");
    exit(1);
}

int main(int argc, char **argv)
{
    static input inputs[MOST_FILES];
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS_DIR [SECONDS [SEED]]\n", argv[0]);
        return 2;
    }
    double seconds = argc > 2 ? atof(argv[2]) : 0;
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    int count = load(argv[1], inputs);
    if (count == 0) {
        fprintf(stderr, "fuzz: the corpus %s is empty\n", argv[1]);
        return 1;
    }
    for (int i = 0; i < count; i++) run(inputs[i].data, inputs[i].size);
    uint8_t *data = malloc(MOST_BYTES + 64);
    long tried = 0;
    const char *crash = getenv("CRASH_FILE") ? getenv("CRASH_FILE") : "fuzz-crash.bin";
    int file = open(crash, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (file < 0) {
        fprintf(stderr, "fuzz: cannot write %s, where an input that crashes would go\n", crash);
        return 1;
    }
    for (double end = now() + seconds; now() < end; tried++) {
        const input *from = &inputs[below((size_t)count)];
        memcpy(data, from->data, from->size);
        size_t size = mutate(data, from->size);
        note(file, data, size);
        run(data, size);
    }
    close(file);
    unlink(crash);
    for (int i = 0; i < count; i++) free(inputs[i].data);
    free(data);
    printf("%d inputs, %ld mutations\n", count, tried);
    return 0;
}

/*
 * fetch.c - where datasets come from, and how they arrive whole; see fetch.h.
 *
 * One lock, on the root folder itself, orders all fetches into it, in all processes; it vanishes with its holder. Under
 * it: all pieces are downloaded and compared with their digests, unpacked into FOLDER.unpack, counted, and renamed.
 * What remains of an interrupted fetch is FILE.part, from which the next one goes on, and perhaps FOLDER.unpack, which
 * the next one removes first. MD5 is here because publishers give it: against damage, not against malice.
 */
#define _GNU_SOURCE 1
#include "data/fetch.h"

#include "base/clock.h"
#include "base/digest.h"
#include "data/bytes.h"
#include "data/download.h"
#include "data/extract.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_SECONDS = 4 * 3600 };

typedef nw_fetch_piece piece;
typedef nw_fetch_source source;

static const char *const idx_files[] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                        "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", NULL};

/* CIFAR: www.cs.toronto.edu/~kriz/cifar.html gives the MD5s. MNIST and Fashion-MNIST: their authors' pages and
 * torchvision. ImageNet32: image-net.org; the SHA-256s are those of TensorFlow Datasets (imagenet_resized). */
static const source sources[] = {
    {.name = "cifar10",
     .address = "https://www.cs.toronto.edu/~kriz/",
     .folder = "cifar-10-batches-bin",
     .archives = true,
     .unpacked = 1e9,
     .pieces = {{"cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"}},
     .files = (const char *const[]){"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                    "data_batch_5.bin", "test_batch.bin", NULL}},
    {.name = "cifar100",
     .address = "https://www.cs.toronto.edu/~kriz/",
     .folder = "cifar-100-binary",
     .archives = true,
     .unpacked = 1e9,
     .pieces = {{"cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"}},
     .files = (const char *const[]){"train.bin", "test.bin", NULL}},
    {.name = "imagenet32",
     .address = "https://image-net.org/data/downsample/",
     .folder = "imagenet32",
     .archives = true,
     .unpacked = 16e9,
     .pieces = {{"Imagenet32_train_npz.zip", "94226337ecc1b0309d9fcd0167127aaadc931587035fbcb53925235edbaec4fc"},
                {"Imagenet32_val_npz.zip", "013990e6dec1237dcd1f9beadbab81ead6604cc119af5cacbfb59ae28148377a"}},
     .files = (const char *const[]){"train_data_batch_1.npz", "train_data_batch_2.npz", "train_data_batch_3.npz",
                                    "train_data_batch_4.npz", "train_data_batch_5.npz", "train_data_batch_6.npz",
                                    "train_data_batch_7.npz", "train_data_batch_8.npz", "train_data_batch_9.npz",
                                    "train_data_batch_10.npz", "val_data.npz", NULL}},
    {.name = "mnist",
     .address = "https://ossci-datasets.s3.amazonaws.com/mnist/",
     .folder = "mnist",
     .pieces = {{"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"},
                {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"},
                {"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"},
                {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"}},
     .files = idx_files},
    {.name = "fashion-mnist",
     .address = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
     .folder = "fashion-mnist",
     .pieces = {{"train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"},
                {"train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"},
                {"t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"},
                {"t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"}},
     .files = idx_files},
};
enum { SOURCES = sizeof sources / sizeof sources[0] };

static const source *find_source(const char *name)
{
    for (int i = 0; i < SOURCES; i++)
        if (strcmp(sources[i].name, name) == 0) return &sources[i];
    return NULL;
}

const char *nw_fetch_address(const char *name)
{
    const source *p = find_source(name);
    return p ? p->address : NULL;
}

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

/* The first file of the dataset that is not in its folder, or NULL. */
static const char *first_missing(const source *p, const char *folder)
{
    char path[NW_PATH_SIZE];
    for (int i = 0; p->files[i]; i++)
        if (nw_path_put(path, folder, p->files[i]) != NW_OK || !nw_file_is_regular(path)) return p->files[i];
    return NULL;
}

/* The unpacked folder takes its place; where there is one already, file by file. */
static nw_status install(const char *unpack, const char *folder)
{
    if (rename(unpack, folder) == 0) return NW_OK;
    NW_FAIL_IF(errno != EEXIST && errno != ENOTEMPTY, NW_E_SYSTEM, "%s cannot be renamed to %s: %s", unpack, folder,
               strerror(errno));
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    NW_TRY(nw_directory_list(&names, unpack));
    for (int i = 0; i < names.count; i++) {
        char from[NW_PATH_SIZE], to[NW_PATH_SIZE];
        NW_TRY(nw_path_put(from, unpack, names.at[i]));
        NW_TRY(nw_path_put(to, folder, names.at[i]));
        NW_FAIL_IF(rename(from, to) != 0, NW_E_SYSTEM, "%s cannot be renamed to %s: %s", from, to, strerror(errno));
    }
    rmdir(unpack);
    return NW_OK;
}

/* Waits for other fetches into the same root; the lock goes when the descriptor is closed. */
static nw_status lock_root(const nw_fetch_options *o, int *lock)
{
    char waiting[NW_PATH_SIZE];
    int64_t end = nw_now_ns() + WAIT_SECONDS * (int64_t)1000000000;
    *lock = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NW_FAIL_IF(*lock < 0, NW_E_SYSTEM, "the folder %s cannot be opened: %s", o->dir, strerror(errno));
    snprintf(waiting, sizeof waiting, "waiting for another process that fetches into %.4000s", o->dir);
    while (flock(*lock, LOCK_EX | LOCK_NB) != 0) {
        bool goes_on = errno == EWOULDBLOCK && nw_now_ns() < end &&
                       (!o->progress || o->progress(o->progress_context, waiting, 0, 0));
        if (!goes_on) {
            close(*lock);
            return NW_FAIL(NW_E_SYSTEM, "stopped %s; end that process, or try later", waiting);
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    return NW_OK;
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

static nw_status digest_file(const char *path, bool sha256, char text[65])
{
    nw_digest digest = sha256 ? nw_sha256_begin() : nw_md5_begin();
    NW_CLEANUP(nw_file_unmap) nw_file file = {0};
    NW_TRY(nw_file_map(&file, path));
    nw_digest_add(&digest, file.data, file.size);
    nw_digest_end(&digest, text);
    return NW_OK;
}

/* Downloads one piece until its digest is right. Bytes of an earlier attempt may be the fault, so then once more. */
static nw_status get_piece(const nw_fetch_options *o, const char *base, const piece *p, const char *part)
{
    char url[NW_PATH_SIZE], digest[65];
    bool slash = base[0] && base[strlen(base) - 1] == '/', sha256 = strlen(p->digest) == 64;
    int wrote = snprintf(url, sizeof url, "%s%s%s", base, slash ? "" : "/", p->file);
    NW_FAIL_IF(wrote < 0 || wrote >= (int)sizeof url, NW_E_ARGUMENT, "the address %s is too long", base);
    for (;;) {
        bool resumed;
        NW_TRY(nw_download(url, part, o->progress, o->progress_context, &resumed));
        NW_FAIL_IF(!nw_file_is_regular(part), NW_E_FILE,
                   "%s is empty; let 'nowait data fetch' take it from another address with --url", url);
        NW_TRY(digest_file(part, sha256, digest));
        if (strcmp(digest, p->digest) == 0) return NW_OK;
        nw_download_forget(part);
        NW_FAIL_IF(!resumed, NW_E_FILE,
                   "%s has %s %s instead of the published %s and was removed; try again, or "
                   "let 'nowait data fetch' take it from another address with --url",
                   url, sha256 ? "SHA-256" : "MD5", digest, p->digest);
    }
}

static nw_status unpack_piece(const source *p, const char *part, const char *file, const char *unpack)
{
    char path[NW_PATH_SIZE];
    if (p->archives) return nw_extract(part, unpack, (int64_t)p->unpacked);
    NW_TRY(nw_path_put(path, unpack, file));
    NW_FAIL_IF(rename(part, path) != 0, NW_E_SYSTEM, "%s cannot be renamed to %s: %s", part, path, strerror(errno));
    return NW_OK;
}

static nw_status get_all(const nw_fetch_options *o, const source *p, const char *base, const char *unpack)
{
    char parts[NW_FETCH_PIECES][NW_PATH_SIZE];
    int count = 0;
    for (; count < NW_FETCH_PIECES && p->pieces[count].file; count++) {
        char name[128]; /* with the dataset's name: MNIST and Fashion-MNIST have files of the same names */
        snprintf(name, sizeof name, "%s-%s.part", p->name, p->pieces[count].file);
        NW_TRY(nw_path_put(parts[count], o->dir, name));
        NW_TRY(get_piece(o, base, &p->pieces[count], parts[count]));
    }
    NW_FAIL_IF(mkdir(unpack, 0755) != 0, NW_E_SYSTEM, "the folder %s cannot be made: %s", unpack, strerror(errno));
    for (int i = 0; i < count; i++) NW_TRY(unpack_piece(p, parts[i], p->pieces[i].file, unpack));
    const char *lacks = first_missing(p, unpack);
    NW_FAIL_IF(lacks, NW_E_FILE, "what %s has for %s does not contain %s", base, p->name, lacks);
    for (int i = 0; i < count; i++) nw_download_forget(parts[i]);
    return NW_OK;
}

static nw_status fetch_locked(const nw_fetch_options *o, const source *p, int lock, bool *already)
{
    char folder[NW_PATH_SIZE], unpack[NW_PATH_SIZE], name[128];
    const char *mirror = getenv("NOWAIT_MIRROR");
    const char *base = o->url && o->url[0] ? o->url : mirror && mirror[0] ? mirror : p->address;
    NW_TRY(nw_path_put(folder, o->dir, p->folder));
    *already = first_missing(p, folder) == NULL;
    if (*already) return NW_OK;
    snprintf(name, sizeof name, "%s.unpack", p->folder);
    NW_TRY(nw_path_put(unpack, o->dir, name));
    NW_TRY(nw_directory_remove(unpack));
    nw_status status = get_all(o, p, base, unpack);
    if (status == NW_OK && syncfs(lock) != 0) /* names must not reach the disk before contents */
        status = NW_FAIL(NW_E_SYSTEM, "%s cannot be written: %s", unpack, strerror(errno));
    if (status == NW_OK) status = install(unpack, folder);
    if (status != NW_OK) (void)nw_directory_remove(unpack);
    return status;
}

nw_status nw_fetch_from(const nw_fetch_options *o, const nw_fetch_source *p, bool *already)
{
    int lock = -1;
    *already = false;
    NW_TRY(nw_directory_make(o->dir));
    NW_TRY(lock_root(o, &lock));
    nw_status status = fetch_locked(o, p, lock, already);
    close(lock);
    return status;
}

nw_status nw_data_fetch(const nw_fetch_options *o, bool *already)
{
    const source *p = find_source(o->name);
    NW_FAIL_IF(!p, NW_E_UNKNOWN,
               "'%s' has no address to fetch it from; cifar10, cifar100, imagenet32, mnist and fashion-mnist have, and "
               "docs/datasets.md says how to get the others",
               o->name);
    return nw_fetch_from(o, p, already);
}

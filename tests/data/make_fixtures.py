#!/usr/bin/env python3
"""Makes the small files in tests/fuzz/corpus that unit tests read and fuzzing starts from.

Written by Python, numpy and PIL, so that our readers are tested against files that our writers did not make. Needs
python3-numpy and python3-pil. Run it only to change the files: they are committed.
"""
import gzip
import hashlib
import io
import os
import pickle
import struct

import numpy as np
from PIL import Image

corpus = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus")


def write(folder, name, data):
    os.makedirs(os.path.join(corpus, folder), exist_ok=True)
    with open(os.path.join(corpus, folder, name), "wb") as f:
        f.write(data)


# ---- Pickles: three images of 12 bytes, counting upwards; labels 1, 1000, 7 ------------------------------------------

pixels = np.arange(36, dtype=np.uint8).reshape(3, 12)
labels = [1, 1000, 7]
mean = np.arange(12, dtype=np.float64) / 2


class Python2:
    """Writes what Python 2's cPickle wrote with protocol 2: text as SHORT_BINSTRING and BINSTRING, memo from 1."""

    def __init__(self):
        self.out, self.memo = bytearray(b"\x80\x02"), 0

    def put(self):
        self.memo += 1
        self.out += b"q" + bytes([self.memo])

    def text(self, value, put=True):
        short = len(value) < 256
        self.out += (b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<I", len(value))) + value
        if put:
            self.put()

    def number(self, value):
        if value < 0:
            self.out += b"J" + struct.pack("<i", value)
        else:
            self.out += b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)

    def array(self, a):
        kind = a.dtype.str[1:].encode()
        self.out += b"cnumpy.core.multiarray\n_reconstruct\n"
        self.put()
        self.out += b"cnumpy\nndarray\n"
        self.put()
        self.number(0)
        self.out += b"\x85"
        self.put()
        self.text(b"b", False)
        self.out += b"\x87"
        self.put()
        self.out += b"R"
        self.put()
        self.out += b"("
        self.number(1)
        for n in a.shape:
            self.number(n)
        self.out += b"\x86" if a.ndim == 2 else b"\x85"
        self.put()
        self.out += b"cnumpy\ndtype\n"
        self.put()
        self.text(kind)
        self.number(0)
        self.number(1)
        self.out += b"\x87"
        self.put()
        self.out += b"R"
        self.put()
        self.out += b"("
        self.number(3)
        self.text(b"|")
        self.out += b"NNN"
        self.number(-1)
        self.number(-1)
        self.number(0)
        self.out += b"t"
        self.put()
        self.out += b"b\x89"
        self.text(a.tobytes(), False)
        self.out += b"t"
        self.put()
        self.out += b"b"


def python2_batch(rows, label_key, label_values):
    p = Python2()
    p.out += b"}"
    p.put()
    p.out += b"("
    p.text(b"batch_label")
    p.text(b"training batch 1 of 5")
    p.text(label_key)
    p.out += b"]"
    p.put()
    p.out += b"("
    for n in label_values:
        p.number(n)
    p.out += b"e"
    p.text(b"data")
    p.array(rows)
    p.out += b"u."
    return bytes(p.out)


batch = {"data": pixels, "labels": labels, "mean": mean}
for protocol in (2, 3, 4, 5):
    write("pickle", f"numpy-protocol{protocol}", pickle.dumps(batch, protocol))
write("pickle", "python2", python2_batch(pixels, b"labels", [1, 255, 7]))
write("pickle", "rows", pickle.dumps({"data": [row for row in pixels], "labels": np.array(labels, ">i2")}, 2))
write("pickle", "scalars", pickle.dumps({"labels": [np.int64(5), np.uint8(6)], "data": b"", "x": (1.5, None, True, -3)}, 3))
write("pickle", "shared", pickle.dumps({"a": labels, "b": labels, b"c": bytearray(b"xyz"), "d": 1 << 40}, 4))
big = np.arange(2 * 3072, dtype=np.uint32).astype(np.uint8).reshape(2, 3072)
write("pickle", "cifar10-python2", python2_batch(big, b"labels", [3, 9]))
write("pickle", "cifar100-python2", python2_batch(big[:1], b"fine_labels", [99]))
write("pickle", "imagenet32-python3", pickle.dumps({"data": big, "labels": [1, 1000]}, 3))
write("pickle", "names-python2", pickle.dumps({"label_names": ["c%d" % i for i in range(10)]}, 2))

# A pickle that would run a command.
write("pickle", "hostile", b"\x80\x02cposix\nsystem\nq\x01U\x04trueq\x02\x85q\x03Rq\x04.")

# ---- npz --------------------------------------------------------------------------------------------------------------

for name, save in (("stored.npz", np.savez), ("deflated.npz", np.savez_compressed)):
    out = io.BytesIO()
    save(out, data=pixels, labels=np.array(labels), mean=mean)
    write("npz", name, out.getvalue())
out = io.BytesIO()
np.savez_compressed(out, data=big, labels=np.array([1, 1000]))
write("npz", "imagenet32.npz", out.getvalue())
out = io.BytesIO()
np.save(out, np.arange(6, dtype=">i4").reshape(3, 2))
write("npz", "big-endian.npy", out.getvalue())

# ---- IDX ---------------------------------------------------------------------------------------------------------------

images = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
idx3 = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 4, 5) + images.tobytes()
idx1 = struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes([7, 0, 9])
write("idx", "images", idx3)
write("idx", "labels", idx1)
write("idx", "images.gz", gzip.compress(idx3, mtime=0))
write("idx", "labels.gz", gzip.compress(idx1[:6], mtime=0) + gzip.compress(idx1[6:], mtime=0))  # two members
write("idx", "shorts", struct.pack(">BBBBI", 0, 0, 11, 1, 2) + struct.pack(">hh", -2, 300))

# ---- CIFAR, binary -------------------------------------------------------------------------------------------------------

write("cifar", "cifar10.bin", bytes([3]) + big[0].tobytes() + bytes([9]) + big[1].tobytes())
write("cifar", "cifar100.bin", bytes([19, 99]) + big[1].tobytes())

# ---- Images: red = 16 x, green = 16 y, blue = 128 -------------------------------------------------------------------------

ramp = np.zeros((16, 12, 3), np.uint8)
ramp[:, :, 0] = 16 * np.arange(12)[None, :]
ramp[:, :, 1] = 16 * np.arange(16)[:, None]
ramp[:, :, 2] = 128
rgb = Image.fromarray(ramp)
gray = Image.fromarray(ramp[:, :, 0])
large = rgb.resize((96, 128), Image.BILINEAR)


def save(name, image, **options):
    out = io.BytesIO()
    image.save(out, **options)
    write("image", name, out.getvalue())


save("rgb.png", rgb, format="PNG")
save("gray.png", gray, format="PNG")
save("palette.png", rgb.quantize(200), format="PNG")
save("alpha.png", rgb.convert("RGBA"), format="PNG")
save("bits.png", gray.point(lambda v: 255 * (v > 80)).convert("1"), format="PNG")
save("deep.png", Image.fromarray((ramp[:, :, 0].astype(np.uint16) * 257)), format="PNG")
save("small32.png", rgb.resize((32, 32), Image.NEAREST), format="PNG")
save("rgb.jpg", rgb, format="JPEG", quality=95)
save("gray.jpg", gray, format="JPEG", quality=95)
save("cmyk.jpg", rgb.convert("CMYK"), format="JPEG", quality=95)
save("progressive.jpg", large, format="JPEG", quality=50, progressive=True)
save("large.jpg", large, format="JPEG", quality=50)

# An interlaced PNG, which PIL does not write: seven passes over a 2 x 2 image of gray bytes.
import zlib


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(header, rows):
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# Adam7 of 2 x 2: pass 1 has pixel (0,0), pass 6 pixel (0,1), pass 7 row 1.
write("image", "interlaced.png", png(struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 1), bytes([0, 10, 0, 20, 0, 30, 40])))

# ---- nowait-raw, written from its description --------------------------------------------------------------------------------


def raw(names, mean_image, splits, classes, shape):
    def pad(data, to):
        return data + bytes(-len(data) % to)

    body, at = b"", 320
    places = []
    for section in (names, mean_image):
        places.append(at if section else 0)
        body += pad(section, 64)
        at = 320 + len(body)
    label_at = []
    for values, _ in splits:
        label_at.append(320 + len(body))
        body += pad(struct.pack("<%di" % len(values), *values), 64)
    head_size = (320 + len(body) + 4095) // 4096 * 4096
    pixel_at, tail = [], b""
    for _, data in splits:
        pixel_at.append(head_size + len(tail))
        tail += pad(data, 64)
    digest = hashlib.sha256(b"".join(data for _, data in splits)).digest()
    header = b"nowait-raw 1\n".ljust(16, b"\0") + struct.pack("<Q4I", head_size + len(tail), classes, *shape)
    header += struct.pack("<3Q", *(len(v) for v, _ in splits)) + b"cifar10".ljust(32, b"\0")
    header += struct.pack("<8f", 0.5, 0.25, 0.125, 0, 1, 2, 4, 0)
    header += struct.pack("<3Q", places[0], len(names), places[1]) + struct.pack("<3Q", *label_at)
    header += struct.pack("<3Q", *pixel_at) + digest + bytes(32)
    assert len(header) == 264
    head = (pad(header, 64) + body).ljust(head_size, b"\0")
    head = head[:232] + hashlib.sha256(head).digest() + head[264:]
    return head + tail


write("raw", "tiny.nwraw", raw(b"cat\ndog\n", b"", [([0, 1, 1], bytes(range(36))), ([], b""), ([1], bytes(12))], 2, (3, 2, 2)))
write("raw", "mean.nwraw", raw(b"", struct.pack("<4f", 1, 2, 3, 4), [([0], bytes(4)), ([2], bytes(4)), ([], b"")], 3, (1, 2, 2)))

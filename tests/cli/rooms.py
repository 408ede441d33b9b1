#!/usr/bin/env python3
"""rooms.py - checks that the source is built as docs/architecture.md says.

  - One header of each folder of src/ begins with "Folder src/x:", and ends that paragraph with "May include: a, b.".
    The folder includes nothing else but itself, nothing that stands behind it in the list of docs/architecture.md, and
    the list names the same folders in brackets.
  - What the settings look like inside (config/settings.h) is seen by src/config alone: a command has a struct of its own.
  - No folder has more than 5,000 lines of code, no file more than 700 lines.
  - No ten lines of code in a row stand twice in src/.
  - Files and functions that architecture, glossary and comments name exist; what "Where is ...?" tells to look for stands
    in the files of its row.

usage: rooms.py [SOURCE_DIR]
"""
import collections
import pathlib
import re
import sys

FOLDER_CODE, FILE_LINES, SAME = 5000, 700, 10

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
root = root if root.is_dir() else root.parents[2]
complaints = []


def complain(where, what):
    complaints.append(f"{where}: {what}")


def blank_comments(text):
    """Comments become spaces, so that lines keep their numbers; texts stay."""
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*'
    keep = lambda m: m[0] if m[0][0] in "\"'" else re.sub(r"[^\n]", " ", m[0])
    return re.sub(pattern, keep, text, flags=re.S)


sources = {p: p.read_text() for p in sorted((root / "src").rglob("*.[ch]"))}
name = {p: str(p.relative_to(root)) for p in sources}
folder = {p: p.relative_to(root / "src").parts[0] for p in sources}
code = {p: [" ".join(line.split()) for line in blank_comments(text).split("\n")] for p, text in sources.items()}
architecture = (root / "docs/architecture.md").read_text()

# ---- folders and their arrows ----
listed = {}
for m in re.finditer(r"^src/(\w+)/ .*\((.*)\)$", architecture, re.M):
    listed[m[1]] = [] if m[2] == "nothing" else list(listed) if m[2] == "everything" else m[2].split(", ")
for d in sorted(set(folder.values())):
    if d not in listed:
        complain("docs/architecture.md", f"the list of folders lacks src/{d}/")
        continue
    heads = [text.split("\n *\n", 1)[0].replace("\n * ", " ") for p, text in sources.items() if folder[p] == d]
    said = [m[1] for head in heads if (m := re.match(rf"/\* Folder src/{d}: .* May include: ([^.]*)\.$", head))]
    if len(said) != 1:
        complain(f"src/{d}", f"{len(said)} of its files begin with 'Folder src/{d}:' and say what it may include, not 1")
        continue
    may = said[0]
    may = [] if may == "nothing" else [x for x in listed if x != d] if may == "everything" else may.split(", ")
    if set(may) - {"base"} != set(listed[d]) - {"base"}:
        complain(f"src/{d}", f"may include {may}, but docs/architecture.md says {listed[d]}")
    before = list(listed)[: list(listed).index(d)]
    for x in may:
        if x not in before:
            complain(f"src/{d}", f"includes src/{x}, which stands behind it in docs/architecture.md")
    for p in sources:
        for x in re.findall(r'^#include "(\w+)/', sources[p], re.M) if folder[p] == d else []:
            if x != d and x not in may and x in listed:
                complain(name[p], f"includes {x}/, which src/{d} may not")
    lines = sum(1 for p in sources if folder[p] == d for line in code[p] if line)
    if lines > FOLDER_CODE:
        complain(f"src/{d}", f"{lines} lines of code; at most {FOLDER_CODE}: find the room that wants to be its own")

# ---- each command reads its own options ----
inside = {"config/settings.h"} | {
    f"config/{p.name}" for p in sources if p.suffix == ".h" and '#include "config/settings.h"' in sources[p]
}
for p in sources:
    for x in inside & set(re.findall(r'^#include "(.*)"', sources[p], re.M)) if folder[p] != "config" else []:
        complain(name[p], f"includes {x}, which shows the options of all commands; take command_options.h")

# ---- sizes ----
for p, text in sources.items():
    count = text.count("\n")
    if count > FILE_LINES:
        complain(name[p], f"{count} lines; at most {FILE_LINES}")

# ---- nothing stands twice ----
seen = {}
until = collections.defaultdict(int)  # of a file: the line up to which a repetition was told
for p in sources:
    lines = [(i, line) for i, line in enumerate(code[p], 1) if line and not line.startswith("#include")]
    for at in range(len(lines) - SAME + 1):
        window = tuple(line for _, line in lines[at : at + SAME])
        first = seen.setdefault(window, (p, lines[at][0]))
        if first != (p, lines[at][0]) and lines[at][0] > until[p]:
            until[p] = lines[at + SAME - 1][0]
            complain(f"{name[p]}:{lines[at][0]}", f"the {SAME} lines of {name[first[0]]}:{first[1]} once more")

# ---- what is named exists ----
files = {p.name for top in ("src", "tests", "include", "docs", "bench", "scripts", "cmake") for p in (root / top).rglob("*")}
paths = lambda text: re.findall(r"\b((?:[\w-]+/)*[\w-]+\.[ch])\b", text)
everything = "\n".join(sources.values()) + (root / "include/nowait.h").read_text()
generated = {"events.pb-c.h", "events.pb-c.c"}


def exists(path):
    return path in generated or any((root / top / path).exists() for top in ("", "src", "tests", "include"))


for doc in sorted((root / "docs").glob("*.md")) + [root / "README.md", root / "CONTRIBUTING.md"]:
    text = doc.read_text()
    for path in set(re.findall(r"`([\w./-]+)`", text)):
        whole = re.match(r"(src|tests|include|docs|bench|scripts)/", path)
        if (whole or path.endswith((".c", ".h"))) and not exists(path) and (whole or path not in files):
            complain(doc.name, f"names {path}, which does not exist")
    for function in set(re.findall(r"`(nw_\w+)", text)) - {"nw_noun_verb", "nw_thing"}:
        if not re.search(r"\b" + function + r"\b", everything):
            complain(doc.name, f"names {function}, which does not exist")
    for link in set(re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text)):
        if not (doc.parent / link).exists():
            complain(doc.name, f"links to {link}, which does not exist")
for p, text in sources.items():
    for comment in re.findall(r"/\*.*?\*/", text, re.S):
        for path in paths(comment):
            if path.split("/")[-1] not in files and not exists(path):
                complain(name[p], f"names {path} in a comment, which does not exist")

for question, place, hint in re.findall(r"^\| (.*?) \| (`.*?) \| (.*) \|$", architecture, re.M):
    opened = [root / path for path in re.findall(r"`((?:src|include)/[\w/.]+)`", place + hint)]
    text = "\n".join(p.read_text() for p in opened if p.exists()).lower()
    for word in re.findall(r'`(\w+)`|"([^"]+)"|\b([A-Z]{4,})\b', hint):
        if not re.search(r"\b" + re.escape("".join(word).lower()) + r"\b", text):
            complain("docs/architecture.md", f"'{question}' tells to look for {''.join(word)}, which its files lack")

for c in complaints:
    print(c)
sys.exit(1 if complaints else 0)

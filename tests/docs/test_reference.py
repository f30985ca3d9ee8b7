"""test_reference.py ROOT - tools/docs builds the reference without a warning, and the reference has the comments of the
headers. Exits with 77 (skipped) where there is no Doxygen."""
import html
import importlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop()).resolve()
sys.path.insert(0, str(ROOT / "tools"))
api = importlib.import_module("api")
doxygen_filter = importlib.import_module("doxygen_filter")

HEADER = """/* a.h - about the file.
 *
 * More. */
#include <stddef.h>

/* Two functions; x < 0 is an @error, *out is not. */
lk_status lk_one(int x);
lk_status lk_two(int x,
                 int *out);
void lk_one_destroy(void);

/* Text about all that follows. */

/* A struct. */
typedef struct lk_s {
    int a; /* its a,
            * in pixels */
    /* its b */
    int b;
} lk_s;
"""
FILTERED = """/** @file
 a.h - about the file.

More. */
#include <stddef.h>

/** Two functions; x \\< 0 is an \\@error, \\*out is not. */
lk_status lk_one(int x);
/** Two functions; x \\< 0 is an \\@error, \\*out is not. */
lk_status lk_two(int x,
                 int *out);
/** Destroys the object, which may be NULL. */
void lk_one_destroy(void);

/** @file
 Text about all that follows. */

/** A struct. */
typedef struct lk_s {
    int a; /**< its a,
in pixels */
    /** its b */
    int b;
} lk_s;
"""


class Filter(unittest.TestCase):
    def test_comments(self):
        self.assertEqual(doxygen_filter.header(HEADER), FILTERED)

    def test_code_stays(self):
        def code(text):
            return "".join(re.sub(r"/\*.*?\*/", "", text, flags=re.S).split())
        for path in (ROOT / "include/lockstep").glob("*.h*"):
            self.assertEqual(code(doxygen_filter.header(path.read_text())), code(path.read_text()), path)

    def test_links_of_pages(self):
        self.assertEqual(doxygen_filter.page("[a](b.md), [c](https://d)"), "a, [c](https://d)")


class Reference(unittest.TestCase):
    def test_reference(self):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([ROOT / "tools/docs", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, check=False)
            self.assertEqual(run.returncode, 0, run.stdout)
            self.assertEqual(run.stdout.count("\n"), 1, run.stdout)
            pages = [path.read_text() for path in Path(folder, "html").glob("*.html")]
        text = html.unescape(re.sub(r"<[^>]*>", "", "\n".join(pages)))
        text = " ".join(text.split())
        for function in api.functions(ROOT):
            self.assertRegex(text, rf"\b{function.name} ?\(")
        for comment in ("Collective: forward, backward, sum of gradients and update.",  # of a function
                        "the largest batch of a step, in samples of all ranks; required",  # of a member
                        "The content of a batch is a pure function of (data, seed, epoch, batch index).",  # of a file
                        "LK_STATUS_NONFINITE", "The library in ten short programs",
                        "The scores of every sample of the whole batch, one sample after the other."):  # of C++
            self.assertIn(comment, text)


if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("skipped: there is no doxygen here (tools/setup docs)")
        sys.exit(77)
    unittest.main()

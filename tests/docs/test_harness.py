"""test_harness.py - the harness of this folder finds commands and the mistakes of a page."""
import os
import pathlib
import tempfile
import unittest

import page
import references
import transcript

PAGE = """# A page
Text.

    $ lockstep train
    data digits
    ...
    State hash 12

    OPTIONS="--model mlp
        --epochs 2"
    lockstep train $OPTIONS   # a comment

    lockstep: a message
    lockstep train: another

    int x;
"""


class Blocks(unittest.TestCase):
    def test_commands_are_told_from_text(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PAGE)
            found = page.commands(path)
        self.assertEqual([c.text.split()[0] for c in found], ["lockstep", 'OPTIONS="--model', "lockstep"])
        self.assertEqual(found[0].output, ["data digits", "...", "State hash 12"])
        self.assertEqual([c.line for c in found], [4, 9, 11])
        self.assertIsNone(found[2].output)


class Agreement(unittest.TestCase):
    def agree(self, shown, printed, varies=()):
        return transcript.agree(shown.split("\n"), printed.split("\n"), varies)

    def test_what_varies_is_not_compared(self):
        self.assertTrue(self.agree("rank 1 on host node7 (pid 4242) died", "rank 1 on host vm (pid 7) died"))
        self.assertTrue(self.agree("Total Training Time 0.12 seconds", "Total Training Time 3.40 seconds"))
        self.assertTrue(self.agree("after step 12", "after step 15", [r"step \d+"]))

    def test_the_table_at_the_end(self):
        table = "a\n  time         0.12 s: 0.10 s\n  peak memory  7 MB\nb"
        self.assertTrue(self.agree("a\nb", table))
        self.assertTrue(self.agree("a\n  time         3 s\n  peak memory  9 MB\nb", table))
        self.assertFalse(self.agree("a\n  time         3 s\nb", table))

    def test_another_line_is_found(self):
        self.assertFalse(self.agree("State hash 12", "State hash 13"))
        self.assertFalse(self.agree("a\n...\nc", "a\nb\nd"))
        self.assertFalse(self.agree("a", "a\nb"))
        self.assertFalse(self.agree("a\nb", "a"))
        self.assertFalse(self.agree("rank 1 died", "rank 2 died"))

    def test_dots_stand_for_lines_and_for_the_rest_of_one(self):
        self.assertTrue(self.agree("a\n...\nc", "a\nb\nb\nc"))
        self.assertTrue(self.agree("a\n...\nc", "a\nc"))
        self.assertTrue(self.agree("(known: step, ...)", "(known: step, eval)"))

    def test_ranks_come_in_any_order(self):
        self.assertTrue(self.agree("[0] a\n[1] b\n[1] c", "[1] b\n[0] a\n[1] c"))
        self.assertFalse(self.agree("[0] a\n[1] b\n[1] c", "[1] c\n[0] a\n[1] b"))

    def test_checkpoints_float_but_are_compared(self):
        self.assertTrue(self.agree("a\nCheckpoint saved to x\nb", "a\nb\nCheckpoint saved to x"))
        self.assertFalse(self.agree("a\nCheckpoint saved to x\nb", "a\nb\nCheckpoint saved to y"))
        self.assertFalse(self.agree("a\nb", "a\nb\nCheckpoint saved to y"))


class References(unittest.TestCase):
    VERSION = "#define LK_VERSION_MAJOR 1\n#define LK_VERSION_MINOR 2\n#define LK_VERSION_PATCH 0\n"
    FILES = {"include/lockstep/version.h": VERSION, "src/nn/plan.c": "lk__plan_run\nint y;\n", "README.md": "",
             "CHANGELOG.md": "# Changes\n## [1.2.0] - unreleased\n`lk_gone`"}

    def found(self, **changed):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {**self.FILES, **{name + ".md": text for name, text in changed.items()}}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return list(references.check(root))

    def test_what_exists_is_accepted(self):
        for text in ("`nn/plan.c`", "`src/nn`", "`plan.c`", "`a/b`", "[x](CHANGELOG.md)", "lk__plan_", "lk__plan_run"):
            self.assertEqual(self.found(README=text), [], text)

    def test_what_is_gone_is_found(self):
        for text in ("`nn/plans.c`", "`place.c`", "[x](docs/y.md)", "lk__plan_runs", "LK_GONE"):
            self.assertEqual(len(self.found(README=text)), 1, text)

    def test_quoted_rows_are_in_a_source(self):
        quote = "Text.\n\n```c\n{}\n```\n"
        self.assertEqual(self.found(CONTRIBUTING=quote.format("int x;")), ["CONTRIBUTING.md:3: no source has these lines"])
        self.assertEqual(self.found(CONTRIBUTING=quote.format("int y;")), [])

    def test_versions_are_equal(self):
        self.assertEqual(len(self.found(CHANGELOG="## [1.3.0]")), 1)


unittest.main()

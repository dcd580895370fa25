"""Runs named parts of Python's own test suite and writes one line a test: its name and how it ended.

    suite.py RESULTS PATTERN...

A PATTERN is MODULE, or MODULE:PART where PART must occur in the test's full name.
"""
import faulthandler
import sys
import unittest

faulthandler.dump_traceback_later(280, exit=True)


class Recorder(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def note(self, test, word):
        self.out.write(f"{test.id()} {word}\n")
        self.out.flush()

    def addSuccess(self, test):
        self.note(test, "ok")

    def addSkip(self, test, reason):
        self.note(test, "skipped")

    def addExpectedFailure(self, test, err):
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self.note(test, "unexpected success")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "FAILED")
        sys.stderr.write(self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "ERROR")
        sys.stderr.write(self.errors[-1][1])

    def addSubTest(self, test, subtest, err):
        if err is not None:
            super().addSubTest(test, subtest, err)
            self.note(subtest, "FAILED")
            sys.stderr.write("".join(str(e) for _, e in self.failures[-1:] + self.errors[-1:]))


def flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


def main():
    chosen = unittest.TestSuite()
    for pattern in sys.argv[2:]:
        module, _, part = pattern.partition(":")
        found = [t for t in flat(unittest.defaultTestLoader.loadTestsFromName(module)) if part in t.id()]
        if not found:
            sys.exit(f"no test matches {pattern}")
        chosen.addTests(found)
    with open(sys.argv[1], "w") as out:
        result = Recorder(out)
        chosen.run(result)
        out.write(f"ran {result.testsRun}\n")


if __name__ == "__main__":
    main()

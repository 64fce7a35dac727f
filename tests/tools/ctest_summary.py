#!/usr/bin/env python3
"""Turns ctest's JUnit file into the last line of a run: `N passed, N failed[, N skipped]`.

  ctest_summary.py JUNIT_FILE

Exits with 1 when a test failed or none ran.
"""
import sys
import xml.etree.ElementTree as ElementTree


def count(path):
    """(passed, failed, skipped) of one file; tests that were disabled or excluded do not count."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status == "notrun":
            skipped += 1
        elif status != "disabled":
            failed += 1
    return passed, failed, skipped


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        passed, failed, skipped = count(sys.argv[1])
    except (OSError, ElementTree.ParseError) as error:
        print(f"ctest_summary: {error}", file=sys.stderr)
        passed, failed, skipped = 0, 1, 0
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()

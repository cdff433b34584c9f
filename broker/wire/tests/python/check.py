#!/usr/bin/env python3
"""Decodes every golden file with the decoder beside, compares with the values stored beside the file, and sees to it that
damaged ones are refused. Another folder may be named as the first argument."""

import json
import re
import sys
import traceback
from pathlib import Path

from felix_wire import FIRST_OF_BATCH, HEADER, Refused, crc32c, frame, hash_of_key

HERE = Path(__file__).resolve().parent
GOLDEN = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "golden"
PAGE = (HERE.parents[3] / "docs/src/wire.md").read_text(encoding="utf-8")

# Bytes of a frame that mean nothing where they stand: an entry's last small number, and an end that is not there.
IGNORED = {"acks": [9, 21, 33], "gap-former-life": range(15, 23)}


def goldens():
    """Name, bytes and expected values of each file."""
    for path in sorted(GOLDEN.glob("*.hex")):
        values = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        yield path.stem, bytes.fromhex(path.read_text(encoding="ascii")), values


def each_file_holds_the_values_beside_it():
    decoded = 0
    for name, data, values in goldens():
        found = frame(data)
        assert found == values, f"{name}: {found} is not {values}"
        decoded += 1
    assert decoded >= 23, f"only {decoded} files in {GOLDEN}"
    return f"decoded {decoded} golden files"


def each_changed_byte_is_noticed():
    changed = 0
    for name, data, values in goldens():
        for at in range(len(data)):
            if at in IGNORED.get(name, ()):
                continue
            for bits in (0x01, 0x80):
                assert read(altered(data, at, bits)) != values, f"{name}: byte {at} may be {data[at] ^ bits:#04x}"
                changed += 1
    return f"changed {changed} bytes, one at a time"


def each_changed_byte_of_a_batch_is_refused():
    changed = 0
    for name, data, values in goldens():
        if values.get("batch"):
            for at in range(data.index(FIRST_OF_BATCH), len(data)):
                assert read(altered(data, at, 0x10)) is None, f"{name}: byte {at} of a batch was changed unnoticed"
                changed += 1
    return f"changed {changed} bytes of batches"


def each_cut_is_refused():
    cuts = 0
    for name, data, values in goldens():
        for length in range(len(data)):
            assert read(data[:length]) is None, f"{name}: its first {length} bytes are taken for the whole"
            if length >= 6 and values["frame"] not in ("acks", "skipped", "deliver"):
                # The head says that the body ends here.
                shorter = data[:2] + (length - 6).to_bytes(4, "little") + data[6:length]
                assert read(shorter) is None, f"{name}: a body of {length - 6} bytes is taken for the whole"
            cuts += 1
    return f"cut files at {cuts} places"


def what_later_versions_add_is_passed_over():
    for name, data, values in goldens():
        if values["frame"] not in ("publish", "acks", "deliver", "skipped"):
            longer = data[:2] + (len(data) - 6 + 3).to_bytes(4, "little") + data[6:] + b"new"
            assert read(longer) == values, f"{name}: a field at its end is not passed over"
    assert read(bytes.fromhex("3f00 00000000")) is None, "an unknown kind that must be understood"
    assert read(bytes.fromhex("3f80 00000000")) == {"frame": "skipped", "kind": 0x803F, "body": ""}


def batches_of_other_kinds_are_refused():
    for name, data, values in goldens():
        if not values.get("batch"):
            continue
        start = data.index(FIRST_OF_BATCH)
        for at, number, what in (
            (4, 2, "another version"),
            (6, data[start + 6] | 1, "a codec"),
            (7, 1, "an attribute that must be understood"),
            (8, 0, "no records"),
        ):
            assert read(summed_again(data, start, at, number)) is None, f"{name}: {what}"
        ignorable = summed_again(data, start, 6, data[start + 6] | 0x20)
        assert read(ignorable) == values, f"{name}: an attribute that may be ignored"


def the_examples_of_the_page_are_right():
    rows = re.findall(r"^\| (?:\(empty\)|`(.+)`) \| (0x[0-9a-f]{16}) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5, "the page has five keys"
    for key, hashed, of_64, of_12 in rows:
        found = hash_of_key(key.encode())
        assert (found, found % 64, found % 12) == (int(hashed, 16), int(of_64), int(of_12)), key
    sums = re.findall(r"(0x[0-9a-f]{8}|0)[,]? `123456789` in\s+ASCII has\s+(0x[0-9a-f]{8})", PAGE)
    sums += re.findall(r"from (0x[0-9a-f]{8}) (?:it has )?(0x[0-9a-f]{8})", PAGE)
    assert len(sums) == 3, f"the page has three sums: {sums}"
    for before, after in sums:
        assert crc32c(b"123456789", int(before, 16)) == int(after, 16), before
    return f"{len(rows)} keys and {len(sums)} sums of the page"


def read(data):
    """The values, or None where the bytes are refused."""
    try:
        return frame(data)
    except Refused:
        return None


def altered(data, at, bits):
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


def summed_again(data, start, at, number):
    """The frame with a byte of its batch changed by somebody who knows the sums."""
    data = bytearray(data)
    data[start + at] = number
    batch = memoryview(data)[start:]
    batch[68:72] = crc32c(batch[HEADER:], crc32c(batch[:68], 0x666C7870)).to_bytes(4, "little")
    if any(batch[72:HEADER]):
        batch[136:140] = crc32c(batch[:136], 0x666C7868).to_bytes(4, "little")
    return bytes(data)


CHECKS = (
    each_file_holds_the_values_beside_it,
    each_changed_byte_is_noticed,
    each_changed_byte_of_a_batch_is_refused,
    each_cut_is_refused,
    what_later_versions_add_is_passed_over,
    batches_of_other_kinds_are_refused,
    the_examples_of_the_page_are_right,
)


def main():
    failed = 0
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            told = check()
            print(f"ok      {name}" + (f": {told}" if told else ""))
        except Exception:  # whatever goes wrong fails the check
            failed += 1
            print(f"FAILED  {name}")
            traceback.print_exc(file=sys.stdout)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

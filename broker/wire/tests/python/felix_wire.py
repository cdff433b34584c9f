"""A decoder of the Felix protocol, version 1, written from docs/src/wire.md and nothing else, so that it proves the page.

For tests only: it checks everything that the page lets a receiver check, and is slow. Needs Python 3 and its standard
library. Values come under the page's names for the fields; ids and bytes as hexadecimal digits, what is absent as None.
"""

import re


class Refused(Exception):
    """The bytes are not what the page describes; the text says where."""


# --- sums ---------------------------------------------------------------------------------------------------------------


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def crc32c(data, before=0):
    """CRC-32C of `data`, continued from the sum of what came before."""
    register = before ^ 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ _CRC[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_64 = (1 << 64) - 1


def _turn(number, bits):
    return (number << bits | number >> 64 - bits) & _64


def _round(lane, word):
    return _turn(lane + word * _P2 & _64, 31) * _P1 & _64


def xxh64(data, seed):
    """XXH64, as its specification has it."""
    at, words = 0, lambda at: int.from_bytes(data[at : at + 8], "little")
    if len(data) >= 32:
        lanes = [seed + _P1 + _P2 & _64, seed + _P2 & _64, seed & _64, seed - _P1 & _64]
        while at + 32 <= len(data):
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], words(at + 8 * lane))
            at += 32
        hashed = sum(_turn(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & _64
        for lane in lanes:
            hashed = (hashed ^ _round(0, lane)) * _P1 + _P4 & _64
    else:
        hashed = seed + _P5 & _64
    hashed = hashed + len(data) & _64
    while at + 8 <= len(data):
        hashed = _turn(hashed ^ _round(0, words(at)), 27) * _P1 + _P4 & _64
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        hashed = _turn(hashed ^ word * _P1 & _64, 23) * _P2 + _P3 & _64
        at += 4
    for byte in data[at:]:
        hashed = _turn(hashed ^ byte * _P5 & _64, 11) * _P1 & _64
    hashed = (hashed ^ hashed >> 33) * _P2 & _64
    hashed = (hashed ^ hashed >> 29) * _P3 & _64
    return hashed ^ hashed >> 32


def hash_of_key(key):
    """The hash that places a key."""
    return xxh64(key, int.from_bytes(b"felix-k1", "big"))


# --- fields -------------------------------------------------------------------------------------------------------------


class Fields:
    """Takes fields from the front of some bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def raw(self, length):
        if length > len(self.data) - self.at:
            raise Refused(f"the bytes end inside the field at {self.at}")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, length):
        return int.from_bytes(self.raw(length), "little")

    def u8(self):
        return self.number(1)

    def u16(self):
        return self.number(2)

    def u32(self):
        return self.number(4)

    def u64(self):
        return self.number(8)

    def id(self):
        return f"{self.number(16):032x}"

    def varint(self):
        number = 0
        for group in range(10):
            byte = self.u8()
            number |= (byte & 0x7F) << 7 * group
            if byte < 0x80:
                break
        else:
            raise Refused("a varint has more than ten bytes")
        if number > _64:
            raise Refused("a varint has more than 64 bits")
        return number

    def zigzag(self):
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def utf8(self, length):
        try:
            return self.raw(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refused(f"not UTF-8: {error}") from error

    def text(self):
        length = self.u16()
        if length > 1024:
            raise Refused("a text is too long")
        return self.utf8(length)

    def stream_name(self):
        name = self.text()
        if len(name) > 253 or not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name, re.ASCII):
            raise Refused(f"{name!r} is not a stream name")
        return name

    def rest(self):
        return self.raw(len(self.data) - self.at)

    def is_at_end(self):
        return self.at == len(self.data)


# --- the batch ----------------------------------------------------------------------------------------------------------

FIRST_OF_BATCH = b"FLXB"
HEADER = 140
MAX_FRAME = 16 << 20
MAX_BATCH = MAX_FRAME - (128 << 10)


def batch(data, stamped):
    """A batch with its records. Without a stamp as a broker receives it, with one as a subscriber does."""
    if not HEADER <= len(data) <= MAX_BATCH:
        raise Refused("a batch is too short or too long")
    header = Fields(data[:HEADER])
    values, count = _producers_part(header, len(data) - HEADER)
    payload_sum = header.u32()
    if payload_sum != crc32c(data[HEADER:], crc32c(data[:68], 0x666C7870)):
        raise Refused("the payload checksum does not match")
    if stamped:
        values["stamp"] = _stamp(header)
        if header.u32() != crc32c(data[:136], 0x666C7868):
            raise Refused("the header checksum does not match")
    else:
        values["stamp"] = None
        if any(header.rest()):
            raise Refused("the leader's part is not zero")
        if values["control"] or not values["dense"]:
            raise Refused("a producer's batch is dense and not control")
    values["records"] = _records(Fields(data[HEADER:]), values, count)
    return values


def _producers_part(header, stored):
    if header.raw(4) != FIRST_OF_BATCH or header.u8() != 1 or header.u8() != 0:
        raise Refused("not a batch of version 1")
    attributes = header.u16()
    if attributes & 0xFF00:
        raise Refused("attributes that must be understood and are not")
    count = header.u32()
    values = {
        "codec": attributes & 7,
        "control": bool(attributes & 8),
        "dense": bool(attributes & 16),
        "last offset delta": header.u32(),
    }
    if values["codec"]:
        raise Refused("the codec is not defined")
    if header.u32() != stored:
        raise Refused("the length of the records is not what the header says")
    values["uncompressed length"] = header.u32()
    values["first timestamp"] = header.u64()
    values["highest timestamp"] = header.u64()
    values["producer id"] = header.id()
    values["sequence"] = header.u64()
    values["producer epoch"] = header.u32()
    offsets = values["last offset delta"] + 1
    if not 1 <= count <= 65536 or count > offsets or values["dense"] and count != offsets:
        raise Refused("the number of records does not agree with the offsets")
    if values["uncompressed length"] != stored:
        raise Refused("the lengths differ without a codec")
    return values, count


def _stamp(header):
    stamp = {
        "incarnation": header.id(),
        "term": header.u64(),
        "previous term": header.u64(),
        "base offset": header.u64(),
        "append time": header.u64(),
        "synced": header.u64(),
        "shard": header.u32(),
    }
    if header.u16() != HEADER:
        raise Refused("the batch has no stamp")
    header.u16()
    return stamp


def _records(fields, values, count):
    records, delta = [], -1
    for _ in range(count):
        if values["dense"]:
            delta += 1
        else:
            previous, delta = delta, fields.varint()
            if not previous < delta <= values["last offset delta"]:
                raise Refused("an offset does not rise or lies beyond the batch")
        records.append(_record(fields, delta, values))
    if not fields.is_at_end():
        raise Refused("something follows the last record")
    return records


def _record(fields, delta, values):
    timestamp = values["first timestamp"] + fields.zigzag()
    if not 0 <= timestamp <= values["highest timestamp"]:
        raise Refused("a timestamp is out of bounds")
    head = fields.varint()
    has_key, has_headers, deletes, length = head & 1, head & 2, head & 4, head >> 3
    if deletes and (not has_key or length):
        raise Refused("a record without a value has no key, or has a length")
    key, headers = None, []
    if has_key:
        key = fields.raw(_bounded(fields.varint(), 0, 65535, "the length of a key")).hex()
    if has_headers:
        for _ in range(_bounded(fields.varint(), 1, 64, "the number of headers")):
            name = fields.utf8(_bounded(fields.varint(), 1, 255, "the length of a header's name"))
            headers.append([name, fields.raw(fields.varint()).hex()])
    return {
        "offset delta": delta,
        "timestamp": timestamp,
        "key": key,
        "headers": headers,
        "value": None if deletes else fields.raw(length).hex(),
    }


def _bounded(number, lowest, highest, what):
    if not lowest <= number <= highest:
        raise Refused(f"{what} is {number}")
    return number


# --- frames -------------------------------------------------------------------------------------------------------------


def frame(data):
    """One whole frame."""
    head = Fields(data)
    kind, length = head.u16(), head.u32()
    if length > MAX_FRAME:
        raise Refused("FrameTooLarge")
    body = Fields(head.raw(length))
    if not head.is_at_end():
        raise Refused("bytes follow the frame")
    if kind in _FRAMES:
        name, decode = _FRAMES[kind]
        return {"frame": name, **decode(body)}
    if kind & 0x8000:
        return {"frame": "skipped", "kind": kind, "body": body.rest().hex()}
    raise Refused("UnknownFrame")


def _hello(body):
    values = {
        "lowest version": body.u16(),
        "highest version": body.u16(),
        "features": body.u64(),
        "agent": body.text(),
        "authentication method": body.u16(),
    }
    values["token"] = body.raw(_bounded(body.u16(), 0, 16384, "the length of the token")).hex()
    return values


def _welcome(body):
    return {
        "version": body.u16(),
        "features": body.u64(),
        "cluster id": body.text(),
        "broker id": body.text(),
    }


def _metadata_request(body):
    return {"stream name": body.stream_name()}


def _metadata(body):
    return {
        "stream name": body.stream_name(),
        "incarnation": body.id(),
        "class": body.u8(),
        "shards": _bounded(body.u32(), 1, 1024, "the number of shards"),
    }


def _open_publish(body):
    return {
        "stream name": body.stream_name(),
        "shard": body.u32(),
        "producer id": body.id(),
        "producer epoch": body.u32(),
    }


def _publish_opened(body):
    return {
        "incarnation": body.id(),
        "largest batch in bytes": body.u32(),
        "largest record in bytes": body.u32(),
    }


def _publish(body):
    return {"batch": batch(body.rest(), stamped=False)}


def _acks(body):
    entries = []
    while not body.is_at_end():
        error, reached = body.u16(), body.u8()
        body.u8()
        if error == 0 and reached == 0:
            raise Refused("an ack does not say what was reached")
        entries.append({"error": error, "reached": reached, "number": body.u64()})
    if len(entries) > 64:
        raise Refused("too many entries")
    return {"entries": entries}


def _subscribe(body):
    return {
        "stream name": body.stream_name(),
        "shard": body.u32(),
        "start kind": _bounded(body.u8(), 0, 3, "the start kind"),
        "number": body.u64(),
        "incarnation": body.id(),
        "policy": _bounded(body.u8(), 0, 3, "the policy"),
        "window": body.u64(),
        "credit": body.u64(),
    }


def _subscribed(body):
    return {
        "incarnation": body.id(),
        "from": body.u64(),
        "policy": body.u8(),
        "window": body.u64(),
    }


def _deliver(body):
    values = {"from": body.u64(), "to": body.u64()}
    if values["from"] >= values["to"]:
        raise Refused("the range is empty")
    length = body.u32()
    values["selection"] = None if length == 0xFFFFFFFF else _selection(Fields(body.raw(length)))
    rest = body.rest()
    values["batch"] = batch(rest, stamped=True) if rest else None
    return values


def _selection(fields):
    indices, last = [], -1
    while not fields.is_at_end():
        last += fields.varint() + 1
        indices.append(_bounded(last, 0, 65535, "an index"))
    return indices


def _gap(body):
    values = {"from": body.u64()}
    present, to = _bounded(body.u8(), 0, 1, "whether there is an end"), body.u64()
    if present and to <= values["from"]:
        raise Refused("the gap is empty")
    values["to"] = to if present else None
    values["reason"] = body.u8()
    values["precision"] = body.u8()
    values["lost"] = body.u64()
    return values


def _credit(body):
    return {"limit": body.u64()}


def _error(body):
    return {"code": body.u16(), "detail": body.u64(), "message": body.text()}


def _go_away(body):
    return {"code": body.u16(), "message": body.text()}


_FRAMES = {
    0x01: ("hello", _hello),
    0x02: ("welcome", _welcome),
    0x03: ("metadata request", _metadata_request),
    0x04: ("metadata", _metadata),
    0x10: ("open publish", _open_publish),
    0x11: ("publish opened", _publish_opened),
    0x12: ("publish", _publish),
    0x13: ("acks", _acks),
    0x20: ("subscribe", _subscribe),
    0x21: ("subscribed", _subscribed),
    0x22: ("deliver", _deliver),
    0x23: ("gap", _gap),
    0x24: ("credit", _credit),
    0x30: ("error", _error),
    0x31: ("go away", _go_away),
}

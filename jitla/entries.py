"""One entry of the disk cache: a header, the words it belongs to, machine code.

Knows: the form of the bytes. Must not know: directories, compilers.
Receives key, maker and code; returns the entry, or from an entry its code if every byte is as it was written.

The checksum finds accidents. It is no defence: whoever may write an entry may write its checksum, which is
why only directories that nobody else can write are read at all.
"""

from __future__ import annotations

import hashlib
import struct

__all__ = ["LARGEST", "MAGIC", "file_name", "pack", "parse"]

MAGIC = b"jitla\x00\x01\n"  # the last number but one is the form's: another one, another number
LARGEST = 16 << 20  # bytes of an entry that is written or read
_HEAD = struct.Struct("<8s32sIQ")  # magic, checksum of all that follows it, length of the words, of the code
_SUM = len(MAGIC) + hashlib.sha256().digest_size


def file_name(key: str, maker: str) -> str:
    """Return where the code of `key` made by `maker` is: a shard and a name, of hexadecimal digits only."""
    digest = hashlib.sha256(f"{maker}\0{key}".encode()).hexdigest()
    return f"{digest[0]}/{digest[1:]}"


def pack(key: str, maker: str, code: bytes) -> bytes:
    """Return the bytes of an entry."""
    words = f"{key}\n{maker}".encode()
    rest = struct.pack("<IQ", len(words), len(code)) + words + code
    return MAGIC + hashlib.sha256(rest).digest() + rest


def parse(entry: bytes, key: str, maker: str) -> bytes | None:
    """Return the code in `entry`; None if it is not whole, or not that of `key` made by `maker`."""
    if len(entry) < _HEAD.size:
        return None
    magic, checksum, length, size = _HEAD.unpack_from(entry)
    if magic != MAGIC or _HEAD.size + length + size != len(entry):
        return None
    if hashlib.sha256(memoryview(entry)[_SUM:]).digest() != checksum:
        return None
    start = _HEAD.size + length
    return entry[start:] if entry[_HEAD.size:start] == f"{key}\n{maker}".encode() else None

"""Bytes that one process publishes to the processes that were forked by the same parent, without a file.

They may contain secrets, so that they must not be on a disk. Each publication goes to the half of the memory that the last one has not used,
and becomes valid with the write of its number. If the process dies before, the last publication stays valid.
"""

import mmap
import struct
import zlib

_NUMBER = struct.Struct("=Q")
# The length of the bytes and their checksum.
_HEAD = struct.Struct("=QL")


class SharedBytes:
    """Created before the processes are forked. Only one process publishes, or several after each other.

    Args:
        capacity: the most bytes of a publication. Unused memory costs nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._memory = mmap.mmap(-1, _NUMBER.size + 2 * (_HEAD.size + capacity))

    @property
    def number(self) -> int:
        """The number of publications so far."""
        return int(_NUMBER.unpack_from(self._memory)[0])

    def publish(self, data: bytes) -> None:
        """Replace the published bytes.

        Raises:
            ValueError: there are more than the capacity.
        """
        if len(data) > self._capacity:
            raise ValueError(f"{len(data)} bytes do not fit into {self._capacity}")
        number = self.number + 1
        at = self._half(number)
        _HEAD.pack_into(self._memory, at, len(data), zlib.crc32(data))
        self._memory[at + _HEAD.size : at + _HEAD.size + len(data)] = data
        # Last: until then, readers find the bytes before.
        _NUMBER.pack_into(self._memory, 0, number)

    def read(self) -> tuple[int, bytes]:
        """Return the number of the last publication and its bytes."""
        while True:
            number = self.number
            at = self._half(number)
            size, checksum = _HEAD.unpack_from(self._memory, at)
            data = self._memory[at + _HEAD.size : at + _HEAD.size + size]
            # During the read, two publications may have followed each other.
            if zlib.crc32(data) == checksum:
                return number, data

    def _half(self, number: int) -> int:
        return _NUMBER.size + (number % 2) * (_HEAD.size + self._capacity)

"""Array arguments whose elements are no arrays themselves, which asyncpg need not find out."""

from collections.abc import Iterator
from typing import Any

import asyncpg

# In these versions an argument is iterated over twice, see `FlatArray`; tests/contract/test_flat_array.py.
_VERIFIED = "0.32."


class FlatArray(list[Any]):
    """The elements of an array of one dimension, as an argument of asyncpg.

    asyncpg passes over an argument twice: first for the array's shape, where it asks of each element whether it is iterable and
    sized, and then to encode the elements. The questions cost as much as all the rest of sending a row. Every other pass, from
    the first on, is of no elements; the length tells asyncpg how many there are. If its passes were others, PostgreSQL would get
    fewer elements than announced, and refuse the message.
    """

    __slots__ = ("_is_examined",)

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self._is_examined = False

    def __iter__(self) -> Iterator[Any]:
        """Iterate over nothing for the shape, over the elements to encode them."""
        self._is_examined = not self._is_examined
        return iter(()) if self._is_examined else super().__iter__()


array: type[list[Any]] = FlatArray if asyncpg.__version__.startswith(_VERIFIED) else list
"""What an array argument is made of."""

"""The length-prefixed frames between a worker and a transform process on a socket.

The worker is trusted, so its frames are pickled, which keeps every type of an order. A reply contains results of a user's function
and is not trusted, so it is encoded as MessagePack.
"""

import pickle
import struct
from typing import Any

import msgspec

from ingest.domain.orders.order import Order
from ingest.mapping.transforms.functions import MOST_BYTES, Returned

HEADER = struct.Struct(">I")
LARGEST_REPLY = 2 * MOST_BYTES


class Start(msgspec.Struct, frozen=True):
    """The first frame, which configures the process.

    Attributes:
        function: the user's function, `package.module:function`.
        memory: bytes that the process may use, or 0 for no limit.
        path: the search path of modules.
    """

    function: str
    memory: int
    path: list[str]


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a call, or of the start.

    Attributes:
        returned: the orders that the function returned.
        error: the error message, or empty on success.
        ends: whether the process ends now.
    """

    returned: list[Returned] = []
    error: str = ""
    ends: bool = False


decode_reply = msgspec.msgpack.Decoder(Reply).decode


def framed(message: Start | Reply | tuple[Order, bytes]) -> bytes:
    """Return the frame of a message."""
    payload = msgspec.msgpack.encode(message) if isinstance(message, Reply) else pickle.dumps(message)
    return HEADER.pack(len(payload)) + payload


def unpickled(payload: bytes) -> Any:
    """Return the content of a frame from the worker that started this process."""
    return pickle.loads(payload)  # noqa: S301

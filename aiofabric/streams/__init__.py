"""Streams over a fabric with anyio's interfaces, on asyncio, uvloop and trio."""

from aiofabric.channel.base import StreamStatistics as StreamStatistics
from aiofabric.streams.attributes import FabricAttribute as FabricAttribute
from aiofabric.streams.byte import FabricStream as FabricStream
from aiofabric.streams.connect import FabricConnectable as FabricConnectable
from aiofabric.streams.connect import connect_messages as connect_messages
from aiofabric.streams.connect import connect_stream as connect_stream
from aiofabric.streams.datagram import ConnectedDatagramStream as ConnectedDatagramStream
from aiofabric.streams.datagram import DatagramStatistics as DatagramStatistics
from aiofabric.streams.datagram import DatagramStream as DatagramStream
from aiofabric.streams.datagram import connect_datagrams as connect_datagrams
from aiofabric.streams.datagram import open_datagrams as open_datagrams
from aiofabric.streams.listener import FabricListener as FabricListener
from aiofabric.streams.listener import listen_messages as listen_messages
from aiofabric.streams.listener import listen_stream as listen_stream
from aiofabric.streams.message import MessageStream as MessageStream

__all__ = [
    "ConnectedDatagramStream",
    "DatagramStatistics",
    "DatagramStream",
    "FabricAttribute",
    "FabricConnectable",
    "FabricListener",
    "FabricStream",
    "MessageStream",
    "StreamStatistics",
    "connect_datagrams",
    "connect_messages",
    "connect_stream",
    "listen_messages",
    "listen_stream",
    "open_datagrams",
]

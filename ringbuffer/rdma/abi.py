"""Generated from ringbuffer/rdma/address.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import ctypes

RDMA_QUEUE_PAIRS = 2


class RdmaAddress(ctypes.Structure):
    _fields_ = (
        ("gid", ctypes.c_uint8 * 16),
        ("lid", ctypes.c_uint32),
        ("mtu", ctypes.c_uint32),
        ("reads", ctypes.c_uint32),
        ("numbers", ctypes.c_uint32 * 2),
        ("first_packets", ctypes.c_uint32 * 2),
    )

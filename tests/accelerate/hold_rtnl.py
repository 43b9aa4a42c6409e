#!/usr/bin/env python3
"""Holds the kernel's RTNL lock until a line, or the end, of standard input, for 20 s at most.

The kernel copies the names of a device's features to the caller's memory while it holds the lock (ETHTOOL_GSTRINGS). The
page for the names is missing, and this process is the one that fills it in (userfaultfd(2)): until then the kernel's
copy waits, and every other process that needs the lock waits, in all network namespaces. SIGKILL ends the copy, too.

Prints `held` when the lock is held and `released` behind it, or `expired`: the whole machine waits for the lock. Needs root, and CONFIG_USERFAULTFD.
"""

import ctypes
import fcntl
import mmap
import os
import platform
import select
import socket
import struct
import sys
import threading

SYSCALL = {"x86_64": 323, "aarch64": 282}  # asm/unistd.h
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04  # linux/userfaultfd.h
UFFD_API, MISSING = 0xAA, 1
SIOCETHTOOL, ETHTOOL_GSTRINGS, ETH_SS_FEATURES = 0x8946, 0x1B, 4  # linux/sockios.h, linux/ethtool.h
PAGE = mmap.PAGESIZE

libc = ctypes.CDLL(None, use_errno=True)
uffd = libc.syscall(SYSCALL[platform.machine()], os.O_CLOEXEC)
if uffd < 0:
    sys.exit(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
fcntl.ioctl(uffd, UFFDIO_API, struct.pack("QQQ", UFFD_API, 0, 0))

memory = mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fcntl.ioctl(uffd, UFFDIO_REGISTER, struct.pack("QQQQ", start + PAGE, PAGE, MISSING, 0))
# The question ends with the first page, the answer begins with the second.
question = struct.pack("III", ETHTOOL_GSTRINGS, ETH_SS_FEATURES, 0)
memory[PAGE - len(question) : PAGE] = question
request = struct.pack("16sP16x", b"lo", start + PAGE - len(question))

udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
holder = threading.Thread(target=fcntl.ioctl, args=(udp, SIOCETHTOOL, request), daemon=True)
holder.start()
os.read(uffd, 32)  # The fault: the kernel copies, and holds the lock.
print("held", flush=True)
ended = select.select([sys.stdin], [], [], 20)[0]
fcntl.ioctl(uffd, UFFDIO_ZEROPAGE, struct.pack("QQQQ", start + PAGE, PAGE, 0, 0))
holder.join()
print("released" if ended else "expired", flush=True)

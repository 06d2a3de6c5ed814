"""Telling network file systems: SQLite's locks and its shared memory do not work across hosts."""

from __future__ import annotations

import os
from pathlib import Path

# fmt: off
REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "smb3", "smbfs",
})
# fmt: on


def file_system(path: Path) -> str | None:
    """The type of the file system a path is on, where Linux tells; None elsewhere."""
    try:
        device = path.stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in reversed(mounts):
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0]
    return None


def is_remote(path: Path) -> bool:
    return file_system(path) in REMOTE

"""Tests in which processes of other users come to the daemons; they need root."""
import os


def become(uid):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def open_to_all(cluster):
    """Other users may come to the sockets."""
    for folder in (cluster.folder, *(node.folder for node in cluster)):
        os.chmod(folder, 0o755)

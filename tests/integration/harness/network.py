"""Hosts that are network namespaces, on one switch, with cables that can be cut.

    node 1, 10.77.0.1 ── p1 ┐
    node 2, 10.77.0.2 ── p2 ├── bridge sw0, in a namespace of its own
    node 3, 10.77.0.3 ── p3 ┘
"""
import os
import re

from . import carriers
from .system import new_network, run_in, skip


class Network:
    def __init__(self):
        self._switch, self._hosts, self._filtered, self._hand = new_network(), {}, set(), carriers.Hand()
        run_in(self._switch, "ip", "link", "add", "sw0", "type", "bridge")
        run_in(self._switch, "ip", "link", "set", "sw0", "up")

    def namespace(self, host):
        """The descriptor of a host's namespace; the host is made at its first use."""
        if host not in self._hosts:
            self._hosts[host] = namespace = new_network()
            path, port = f"/proc/{os.getpid()}/fd/{namespace}", f"p{host}"
            run_in(self._switch, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", path)
            run_in(self._switch, "ip", "link", "set", port, "master", "sw0", "up")
            run_in(namespace, "ip", "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            run_in(namespace, "ip", "link", "set", "eth0", "up")
            run_in(namespace, "ip", "link", "set", "lo", "up")
            carriers.prepare(namespace)
            self._hand.watch(self._hosts.values())
        return self._hosts[host]

    @staticmethod
    def address(host):
        return f"10.77.0.{host}"

    def unplug(self, host):
        run_in(self._switch, "ip", "link", "set", f"p{host}", "down")

    def plug(self, host):
        run_in(self._switch, "ip", "link", "set", f"p{host}", "up")

    def deafen(self, host, speaker):
        """What `speaker` sends no longer reaches `host`; the other direction works."""
        self.filter(host, f"ip saddr {self.address(speaker)} drop")

    def block(self, host, speaker, port):
        """The same, of what it sends over one port, of UDP or of TCP, in connections that either host has dialled."""
        for side in ("dport", "sport"):
            self.filter(host, f"ip saddr {self.address(speaker)} meta l4proto {{ tcp, udp }} th {side} {port} drop")

    def filter(self, host, rule):
        """A rule of nftables for what comes to the host."""
        namespace = self.namespace(host)
        if host not in self._filtered:
            try:
                run_in(namespace, "nft", "add table inet cut; add chain inet cut in "
                                         "{ type filter hook input priority 0; policy accept; }")
            except (RuntimeError, FileNotFoundError) as error:
                skip(f"nftables do not work here ({error})")
            self._filtered.add(host)
        run_in(namespace, "nft", f"add rule inet cut in {rule}")

    def cut(self, a, b):
        self.deafen(a, b)
        self.deafen(b, a)

    def lose(self, host, percent):
        """So many of all datagrams that come to the host are lost on the way."""
        self.filter(host, f"numgen random mod 100 < {percent} counter drop")

    def lost(self, host):
        """How many have been."""
        rules = run_in(self.namespace(host), "nft", "list chain inet cut in")
        return sum(int(number) for number in re.findall(r"packets (\d+)", rules))

    def shape(self, host, bits_per_second, both=False):
        """The host sends so much at most, with a queue of 20 ms; `both`: and receives so much, as is needed where several
        send to it. Of an idle link 0.5 ms pass at once: at 1 Gbit/s that is a packet of 64 KiB as the kernel makes it.
        Cutting these takes more of a processor than all else."""
        burst = max(3200, min(68000, bits_per_second // 8 * 545 // 10**6))  # bytes; two packets on the wire at least
        limits = ("rate", str(bits_per_second), "burst", str(burst), "latency", "20ms")
        for namespace, port in ((self.namespace(host), "eth0"), (self._switch, f"p{host}"))[:1 + both]:
            run_in(namespace, "tc", "qdisc", "replace", "dev", port, "root", "tbf", *limits)

    def crossed(self, host):
        """(bytes that have come to the host over its cable, bytes that it has sent)."""
        counters = run_in(self.namespace(host), "cat", "/proc/net/dev")
        fields = re.search(r"^ *eth0:(.*)$", counters, re.M).group(1).split()
        return int(fields[0]), int(fields[8])

    def stop_filtering(self):
        for host in self._filtered:
            run_in(self._hosts[host], "nft", "flush chain inet cut in")

    def heal(self):
        self.stop_filtering()
        for host in self._hosts:
            self.plug(host)

    def close(self):
        self._hand.end()
        for namespace in (self._switch, *self._hosts.values()):
            os.close(namespace)
        self._hosts.clear()

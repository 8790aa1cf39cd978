#!/bin/sh
# Two hosts become a cluster, and then run a job together. As root on each of them, where nexard runs (README.md):
#
#     two_hosts.sh first  SECRET PROGRAM...       on the first: prints the token to copy, then runs ranks 0 and 1
#     two_hosts.sh second SECRET PROGRAM...       on the second: asks for the token, then runs ranks 2 and 3
#
# SECRET is a file, the same on both: openssl rand -hex 32 > job.secret; chmod 600 job.secret
# PROGRAM is ./two_hosts (cc two_hosts.c $(pkg-config --cflags --libs nexar) -o two_hosts) or python3 two_hosts.py
set -eu

host=$1
secret=$2
shift 2
case $host in
    first)
        index=0
        nexarctl cluster init
        nexarctl token create # good for one join, for an hour
        ;;
    second)
        index=1
        nexarctl cluster join - # reads the token from standard input, so that `ps` does not show it
        ;;
    *)
        echo "two_hosts.sh: the first word is '$host'; allowed: first, second" >&2
        exit 2
        ;;
esac
# Two ranks here, and two on the other host; they wait for each other, for 30 s.
exec nexarctl run -n 2 --nodes 2 --node-index "$index" --secret-file "$secret" -- "$@"

"""A job on two hosts: every rank learns where the others run. two_hosts.sh makes the cluster and starts it."""
import nexar

with nexar.Session() as session, session.group() as group:
    nodes = group.all_gather_object(session.node)
    print(f"rank {group.rank}: {nodes.count(session.node)} of {group.size} ranks are on my host")

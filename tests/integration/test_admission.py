"""Who becomes a member, who stays one, and who does not. Each host can reach each other:

    node 1: issuer  ──┐
    node 2: member  ──┼── switch ── a second cluster, joiners with good and bad tokens, clones, tiny disks
    node 3: member  ──┘
"""
import base64
import shutil
import signal
import time

from harness import *
from harness.system import mount_tiny, unmount

JOINER_PATIENCE = 30  # how long a joiner looks for an issuer
ROOT_HASH, ID, SECRET_AT, EXPIRY, ADDRESSES = 0, 32, 48, 80, 88


def body_of(token):
    prefix, text = token.split(".")
    return prefix, bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def text_of(prefix, body):
    return prefix + "." + base64.urlsafe_b64encode(bytes(body)).decode().rstrip("=")


def changed(token, at, new):
    """The token with other bytes at one place."""
    prefix, body = body_of(token)
    body[at:at + len(new)] = new
    return text_of(prefix, body)


def pointing_at(token, address):
    prefix, body = body_of(token)
    return text_of(prefix, body[:ADDRESSES] + b"\1" + len(address).to_bytes(2, "little") + address.encode())


def joins(cluster, token, host=None):
    """A node that tries to join at its start. Not one of the cluster's: it is forgotten after the test."""
    node = cluster.node(host=host)
    return node.start(wait=False, NEXAR_CLUSTER_TOKEN=token)


def is_refused(node, *words, seconds=15):
    """The daemon ends by itself, with 1, and says these words."""
    node.expected_dead = True
    equal(node.process.wait(seconds), 1, f"exit status of {node}; its log: {node.log()}")
    contains(node.log(), *words)
    assert not (node.state / "node.crt").exists(), "a certificate was kept all the same"


def forget(cluster, *nodes):
    for node in nodes:
        node.end(signal.SIGKILL)
        del cluster.nodes[node.number]


def test_a_token_admits_as_often_as_it_says(cluster):
    """[A6] And it is in nobody's log."""
    token = cluster.token(uses=2)
    first, second = joins(cluster, token), joins(cluster, token)
    cluster.wait_connected()

    third = joins(cluster, token)

    is_refused(third, "the token is used up")
    eventually(lambda: "join_refused" in cluster[1].log(), "the refusal in the log, which a thread writes")
    assert token not in cluster[1].log() + first.log() + third.log(), "a token is in a log"
    equal(len({node.id for node in cluster.alive()}), 5, "number of identities")
    forget(cluster, first, second, third)


def test_of_two_joiners_with_one_use_one_gets_in(cluster):
    token = cluster.token(uses=1)
    joiners = [joins(cluster, token) for _ in range(3)]

    eventually(lambda: len([node for node in joiners if not node.alive()]) == 2, "two joiners to be refused")
    losers = [node for node in joiners if not node.alive()]
    for node in losers:
        is_refused(node, "the token is used up")
    cluster.wait_connected()
    forget(cluster, *joiners)


def test_a_captured_join_request_is_worthless_on_another_connection(cluster):
    """[A4]"""
    made = cluster[1].ask("token_create", uses=5, lifetime_s=60)
    output = cluster[2].member_client("replay", made["token"])
    contains(output, "first: admitted", "replayed: the token is unknown here, or its proof is wrong")
    eventually(lambda: "join_refused" in cluster[1].log(), "the refusal in the log, which a thread writes")
    entry, = [entry for entry in cluster[1].ask("token_list")["tokens"] if entry["id"] == made["id"]]
    equal(entry["uses_left"], 4, "uses left after one honest request and its replay")


def test_a_hello_that_lies_is_refused_by_name(cluster):
    """With a member's own key, so that only the hello is wrong."""
    liar = cluster.node().start(NEXAR_CLUSTER_TOKEN=cluster.token())
    cluster.wait_connected()
    name = liar.id[:12]
    liar.kill()
    cases = {"node": f"but its certificate is of {name}",
             "incarnation": "says that it is incarnation 1001000, but its connection began as incarnation 1000000",
             "cluster": "belongs to another cluster"}
    for how, words in cases.items():
        before = len(cluster[1].log())
        output = liar.member_client("hello", liar.state, cluster[1].endpoint, how)
        contains(output, "closed", words)
        def refusals():
            return [line for line in cluster[1].log()[before:].splitlines() if "peer_refused" in line]

        eventually(refusals, "the refusal in the log, which a thread writes")
        refusal, = refusals()
        contains(refusal, words, name)
    equal(liar.member_client("hello", liar.state, cluster[1].endpoint, "honest"), "accepted\n", "the same, honestly")
    forget(cluster, liar)


def test_a_restarted_daemon_resets_the_connections_of_its_former_incarnation(cluster):
    """A node that was dialled has given out reset tokens, and a joiner dials its issuer. The restarted issuer dials no node
    by itself, and no ICMP reaches the others: only the reset can end the joiner's connection."""
    issuer, peer = cluster[1], cluster.node().start(NEXAR_CLUSTER_TOKEN=cluster.token())
    cluster.wait_connected()
    secret = (issuer.state / "reset-secret").read_bytes()
    equal(len(secret), 32, "bytes of the secret")
    cluster.network.unplug(issuer.host)
    issuer.kill()
    (issuer.state / "roster").unlink()
    since = len(peer.log())
    issuer.start()
    cluster.network.plug(issuer.host)

    eventually(lambda: "peer_down" in peer.log()[since:], f"{peer} to notice")
    down = [line for line in peer.log()[since:].splitlines() if "peer_down" in line][0]
    contains(down, "stateless reset", issuer.id[:12])
    cluster.wait_connected()
    equal((issuer.state / "reset-secret").read_bytes(), secret, "the secret after the restart")
    forget(cluster, peer)


def test_an_expired_token_is_refused_by_both_ends(cluster):
    token = cluster.token(lifetime=1)
    time.sleep(2.1)  # sleep: the token's own time, in whole seconds

    honest = joins(cluster, token)
    liar = joins(cluster, changed(token, EXPIRY, (int(time.time()) + 3600).to_bytes(8, "little")))

    is_refused(honest, "the token has expired")
    is_refused(liar, "the token has expired")
    forget(cluster, honest, liar)


def test_a_wrong_proof_an_unknown_id_and_a_revoked_token_get_the_same_words(cluster):
    good, revoked = cluster.token(), cluster[1].ask("token_create", uses=1, lifetime_s=60)
    cluster[1].ask("token_revoke", id=revoked["id"])

    nodes = [joins(cluster, token) for token in
             (changed(good, SECRET_AT, b"\0" * 32), changed(good, ID, b"\0" * 16), revoked["token"])]

    for node in nodes:
        is_refused(node, "the token is unknown here, or its proof is wrong")
    forget(cluster, *nodes)


def test_a_damaged_token_is_refused_before_anybody_is_asked(cluster):
    token = cluster.token()
    for damaged in (token[:-8], token + "AAAA", "hello", token.replace("nexar1", "nexar9"), "nexar1.", "nexar1.%%%",
                    changed(token, ADDRESSES + 3, b"\0x")):
        node = joins(cluster, damaged)
        is_refused(node, "token")
        assert token[20:] not in node.log()
        forget(cluster, node)


def test_nobody_but_an_issuer_of_the_right_root_can_admit(cluster):
    """All of these look for an issuer until they give up, so they do it at the same time."""
    token = cluster.token(uses=10)
    other = cluster.node(host=20).start(NEXAR_INIT_CLUSTER="1")
    # Node 3 turns into a member that shows its own valid certificate as if it were an issuer's.
    cluster[3].kill()
    impostor_state = cluster[3].state.with_name("impostor")
    shutil.copytree(cluster[3].state, impostor_state)
    shutil.copy(impostor_state / "node.key", impostor_state / "issuer.key")
    shutil.copy(impostor_state / "node.crt", impostor_state / "issuer.crt")
    impostor = cluster.node(host=3)
    impostor.state = impostor_state
    impostor.start(wait=False)

    cases = {"another cluster's issuer": pointing_at(token, other.endpoint),
             "a member that is no issuer": pointing_at(token, cluster[2].endpoint),
             "a member that poses as an issuer": pointing_at(token, impostor.endpoint),
             "the right issuer of a wrong root": changed(token, ROOT_HASH, b"\7" * 32)}
    nodes = {what: joins(cluster, token) for what, token in cases.items()}

    for what, node in nodes.items():
        is_refused(node, "join_failed", seconds=JOINER_PATIENCE + 10)
        print(f"        {what}: {[line for line in node.log().splitlines() if 'join_failed' in line][-1]}")
        assert "node_admitted" not in other.log() + impostor.log(), f"{what} admitted somebody"
    # More than half a minute has passed since anybody joined.
    eventually(cluster[1].idle, "the issuer to be idle")
    forget(cluster, *nodes.values(), other, impostor)
    cluster[3].start()


def test_nodes_of_two_clusters_do_not_talk(cluster):
    foreign = cluster.node(host=21).start(NEXAR_INIT_CLUSTER="1")
    equal(foreign.peers_up(), set(), "peers of a new cluster")
    foreign.end()
    (foreign.state / "roster").write_text("".join(node.endpoint + "\n" for node in list(cluster)[:3]))
    before = {node: len(node.log()) for node in list(cluster)[:3]}

    foreign.start()
    for node in before:
        eventually(lambda: " connection_refused " in node.log()[before[node]:] + foreign.log(), "an attempt to fail")

    equal(foreign.peers_up(), set(), "peers of the foreign")
    for node in before:
        assert foreign.status()["node"] not in node.peers_up(), f"{node} takes the foreign for a member"
        assert len(node.log()) - before[node] < 20_000, f"{node} floods its log about a foreign"
    forget(cluster, foreign)


def test_a_certificate_without_its_key_is_worthless(cluster):
    """Node 3 dresses up as node 2: its certificate is public, its key is not."""
    thief = cluster[3]
    thief.kill()
    own = (thief.state / "node.crt").read_bytes()
    shutil.copy(cluster[2].state / "node.crt", thief.state / "node.crt")
    thief.start(wait=False)

    thief.expected_dead = True
    equal(thief.process.wait(10), 1, "exit status")
    contains(thief.log(), f"the certificate belongs to node {cluster[2].id}")
    (thief.state / "node.crt").write_bytes(own)
    thief.start()
    cluster.wait_connected()


def test_a_cloned_state_directory_is_refused_naming_both(cluster):
    original, clone = cluster[2], cluster.node(host=22)
    shutil.copytree(original.state, clone.state)

    clone.start()
    both = (original.network.address(original.host), clone.network.address(clone.host))
    eventually(lambda: "clone_refused" in cluster[1].log() and "clone_refused" in cluster[3].log(),
               "nodes 1 and 3 to refuse the clone", 10)

    for node in (cluster[1], cluster[3]):
        line = [line for line in node.log().splitlines() if "clone_refused" in line][-1]
        contains(line, *both, original.id[:8])
        assert original.id in node.peers_up(), f"{node} has lost the original"
    eventually(lambda: all(address in clone.log() for address in both), "the clone to receive the reason")
    # It dials again and again, and for a moment sees each as a peer, until the refusal has come.
    eventually(lambda: not clone.peers_up(), "the clone to have no peers")
    forget(cluster, clone)
    cluster.wait_connected()


def test_a_full_disk_at_the_start_is_a_clear_error_and_no_half_made_cluster(cluster):
    node = cluster.node(host=23)
    node.state.mkdir()
    mount_tiny(node.state, 12)
    node.start(wait=False, NEXAR_INIT_CLUSTER="1")

    node.expected_dead = True
    equal(node.process.wait(10), 1, "exit status")
    contains(node.log(), "No space left on device", node.state)
    assert not (node.state / "node.crt").exists(), "the half-made cluster looks whole"
    unmount(node.state)
    node.start(NEXAR_INIT_CLUSTER="1")
    forget(cluster, node)


def test_an_issuer_whose_disk_is_full_admits_nobody_and_keeps_running(cluster):
    issuer = cluster.node(host=24)
    issuer.state.mkdir()
    mount_tiny(issuer.state, 128)
    issuer.start(NEXAR_INIT_CLUSTER="1")
    token = issuer.ask("token_create", uses=5, lifetime_s=60)["token"]
    filler = issuer.state / "filler"
    try:
        with open(filler, "wb", buffering=0) as f:
            while True:
                f.write(b"x" * 1024)
    except OSError:
        pass

    joiner = joins(cluster, token)
    is_refused(joiner, "No space left on device")
    try:
        issuer.ask("token_create", uses=1, lifetime_s=60)
        raise AssertionError("a token was made although it could not be saved")
    except Refused as refused:
        contains(refused.args[1], "No space left on device")

    filler.unlink()
    second = joins(cluster, token)
    eventually(lambda: second.process.poll() is None and "cluster_joined" in second.log(), "a joiner to get in")
    issuer.end(signal.SIGKILL)
    unmount(issuer.state)
    forget(cluster, joiner, second, issuer)


def fill(folder):
    """Takes what is left of a tiny disk."""
    with open(folder / "filler", "wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 1024)
        except OSError:
            pass


def test_a_token_whose_revocation_cannot_be_saved_stays_listed_and_valid(cluster):
    """[H15] What the error says is what holds, before and after a restart; once there is room, the revocation counts."""
    issuer = cluster.node(host=25)
    issuer.state.mkdir()
    mount_tiny(issuer.state, 128)
    issuer.start(NEXAR_INIT_CLUSTER="1")
    tokens = [issuer.ask("token_create", uses=5, lifetime_s=3600) for _ in range(3)]
    before = issuer.ask("token_list")["tokens"]
    equal(len(before), 3, "tokens before")
    fill(issuer.state)

    for command, arguments in (("token_revoke", {"id": tokens[1]["id"]}), ("token_create", {"uses": 1, "lifetime_s": 60})):
        try:
            issuer.ask(command, **arguments)
            raise AssertionError(f"{command} says that it worked on a full disk")
        except Refused as refused:
            contains(refused.args[1], "No space left on device")
        equal(issuer.ask("token_list")["tokens"], before, f"tokens after {command} failed")
    issuer.kill()
    (issuer.state / "filler").unlink()
    issuer.start()
    equal(issuer.ask("token_list")["tokens"], before, "tokens after a restart")

    issuer.ask("token_revoke", id=tokens[1]["id"])
    left = [entry for entry in before if entry["id"] != tokens[1]["id"]]
    equal(issuer.ask("token_list")["tokens"], left, "tokens after a revocation that was saved")
    issuer.kill()
    issuer.start()
    equal(issuer.ask("token_list")["tokens"], left, "and after a restart")
    issuer.kill()
    unmount(issuer.state)
    forget(cluster, issuer)


def test_an_init_that_failed_leaves_nothing_and_the_node_joins_another_cluster_as_a_plain_member(cluster):
    """[H14] Whichever write it was that failed: more room lets init come further."""
    tried = 0
    for kilobytes in range(4, 64, 4):
        node = cluster.node(host=26)
        node.state.mkdir()
        mount_tiny(node.state, kilobytes)
        node.start()
        try:
            node.ask("cluster_init", seconds=15, name="other")
            break
        except Refused as refused:
            contains(refused.args[1], "No space left on device")
        finally:
            left = {file.name for file in node.state.iterdir()} - {"lock", "incarnation", "reset-secret"}
            forget(cluster, node)
            unmount(node.state)
        tried += 1
        equal(left, set(), f"files that an init on {kilobytes} KiB left")
    assert tried >= 5, f"init failed on {tried} sizes only: not at each of its files"


# What a node can do without: addresses that nobody needs to dial, a key that only `cluster init` used, tokens that
# were never made; a node without its certificate has not joined yet, and one without its issuer's key is a member.
HARMLESS = {("roster", "any"), ("root.key", "any"), ("lock", "any"), ("incarnation", "missing"), ("tokens", "missing"),
            ("tokens", "empty"), ("node.crt", "missing"), ("issuer.key", "missing"), ("reset-secret", "missing")}


def starts_with_damage(node, file, name, damage):
    """What is wrong with how the daemon takes it; None: nothing."""
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    node.log_file.unlink(missing_ok=True)
    node.start(wait=False)
    node.expected_dead = True
    eventually(lambda: not node.alive() or "node_started" in node.log() or "not_in_a_cluster" in node.log(),
               f"a decision about {file.name}, {name}", 10)
    if node.alive():
        node.end(signal.SIGKILL)
        return None if {(file.name, name), (file.name, "any")} & HARMLESS else "it started all the same"
    if node.process.returncode != 1:
        return f"it ended with {node.process.returncode}"
    return None if f"{node.state}/{file.name}" in node.log() else f"the file is not named: {node.log()}"


def test_damaged_state_files_are_an_error_that_names_the_file(cluster):
    node = cluster.node()
    cluster.network.namespace(node.host)
    cluster.network.unplug(node.host)  # where it is well enough to start, it would be a clone
    cluster[1].kill()
    shutil.copytree(cluster[1].state, node.state)  # the issuer's state has all the files
    whole = {file: file.read_bytes() for file in sorted(node.state.iterdir())}
    assert len(whole) >= 8, f"files of an issuer: {whole.keys()}"
    complaints = {}
    for file, content in whole.items():
        for name, damage in (("empty", b""), ("garbage", b"\x80garbage\0" * 50), ("missing", None),
                             ("huge", b"7" * (2 << 20))):
            complaint = starts_with_damage(node, file, name, damage)
            if complaint:
                complaints[file.name, name] = complaint
            file.write_bytes(content)
    forget(cluster, node)
    cluster[1].start()
    assert not complaints, "\n".join(f"{what}: {why}" for what, why in complaints.items())


main(globals())

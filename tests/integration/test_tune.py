"""nexarctl tune on two hosts: what it measures is stored on both, used for later groups, and found by a restart."""
import json
import os
import subprocess

from harness import *

PARAMETERS = {"small_start_ns", "small_ps_per_byte", "bulk_start_ns", "bulk_ps_per_byte", "memory_ps_per_byte",
              "shared_ps_per_byte"}


def started(node, *words, **environment):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NEXAR_")}
    command = [os.environ["NEXAR_TEST_NEXARCTL"], "--socket", node.admin, *map(str, words)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                            env={**inherited, "NEXAR_SOCKET": str(node.socket), **environment})


def ended(process, expect=0):
    output, complaint = process.communicate(timeout=60)
    equal(process.returncode, expect, f"exit status of {process.args} ({complaint})")
    return json.loads(output)


def tune(cluster, *words, seconds=(1, 1)):
    """The reports of both hosts."""
    secret = cluster.folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("0123456789abcdef\n")
    processes = [started(node, "tune", "--nodes", 2, "--node-index", index, "--secret-file", secret, "--seconds",
                         seconds[index], "--json", *words) for index, node in enumerate(cluster.alive())]
    return [ended(process) for process in processes]


def open_group(me):
    group = me.group(me.session())
    me.mark()
    me.wait_for_go(60)
    group.free()


def table_of(node, name):
    return node.ask("plan", group=name)["table"]


def test_what_tune_measures_is_kept_by_both_hosts_for_later_groups_and_over_a_restart(cluster):
    """[O6] [O7] [O2]"""
    built_in = cluster[1].ask("tune")
    equal(built_in["is_tuned"], False, "before")
    before = Job([cluster[1], cluster[2]], open_group, name="before")
    before.await_marks()

    one, two = tune(cluster)
    equal(one["model"], two["model"], "the slowest of both, on both")
    equal(set(one["model"]), PARAMETERS, "parameters")
    assert all(value >= 1 for value in one["model"].values()), one
    assert one["host_ns"] > 0, one
    equal(one["model"]["shared_ps_per_byte"], 1, "two hosts do not show what they share")
    for node in cluster:
        answer = node.ask("tune")
        equal((answer["is_tuned"], answer["model"]), (True, one["model"]), f"{node}")

    after = Job([cluster[1], cluster[2]], open_group, name="after")
    after.await_marks()
    for node in cluster:
        kept, new = table_of(node, "before"), table_of(node, "after")
        equal((kept["version"], kept["model"]), (2, built_in["model"]), "a group keeps its table, by size")
        equal((new["version"], new["model"]), (3, one["model"]), "of a group made later, by the model")
        contains((node.state / "plan_model").read_text(), f"bulk_start_ns = {one['model']['bulk_start_ns']}\n")
    for job in (before, after):
        job.go()
        job.outcomes()

    cluster[2].end()
    cluster[2].start()
    equal(cluster[2].ask("tune")["model"], one["model"], "after a restart")
    refused = started(cluster[2], "tune", "--forget", "--dry-run")
    contains(refused.communicate(timeout=60)[1], "not with --dry-run")
    equal((refused.returncode, (cluster[2].state / "plan_model").exists()), (2, True), "a dry run of --forget")
    shown = ended(started(cluster[2], "tune", "--forget", "--json"))
    equal(shown["model"], built_in["model"], "forgotten")
    assert not (cluster[2].state / "plan_model").exists(), "the file is removed"


def test_a_dry_run_changes_nothing_and_a_damaged_file_is_logged_and_not_used(cluster):
    """[O7]"""
    known = cluster[1].ask("tune")
    one, two = tune(cluster, "--dry-run", seconds=(1, 2))
    equal(one["model"], two["model"], "of hosts that were given different times")
    equal((one["stored"], one["before"]), (False, known["model"]), "dry run")
    equal(cluster[1].ask("tune"), known, "after a dry run")
    try:
        raise AssertionError(cluster[1].ask("tune", model={**known["model"], "bulk_start_ns": 0}))
    except Refused as refusal:
        contains(str(refusal), "bulk_start_ns")
    equal(cluster[1].ask("tune"), known, "after a refusal")

    file = cluster[1].state / "plan_model"
    whole = "".join(f"{name} = {value}\n" for name, value in known["model"].items())
    contents = (b"small_start_ns = 7\n", whole.replace(" = ", " = -").encode(), whole.replace("= ", "= nan").encode(),
                    b"\0\xff" * 1000, whole.encode() + b"\n" * (2 << 20), None)
    for number, content in enumerate(contents, 1):
        cluster[1].end()
        if content is None:
            file.unlink()
            file.mkdir()
        else:
            file.write_bytes(content)
        cluster[1].start()
        equal(cluster[1].log().count("tuned_model_ignored"), number, f"starts with a damaged file, {content and content[:40]}")
        equal(cluster[1].ask("tune")["is_tuned"], False, f"with a damaged file of {content and content[:40]}")
    file.rmdir()
    cluster[1].ask("tune", forget=True)


def test_what_is_configured_is_the_rule_of_groups_made_there_and_no_rule_goes_by_size(cluster):
    """[O2] The leader's keys travel; where there are none, and no tuned model, groups go by size."""
    def version_and_family(name):
        job = Job([cluster[1], cluster[2]], open_group, name=name)
        job.await_marks()
        tables = [table_of(node, name) for node in cluster]
        job.go()
        job.outcomes()
        equal(tables[0], tables[1], "of one group on both hosts")
        return tables[0]["version"], tables[0]["algorithms"]

    equal(version_and_family("plain"), (2, "automatic"), "without keys")
    for node in cluster:
        node.end()
    for node in cluster:
        node.start(NEXAR_ALGORITHMS="halving")
    cluster.wait_connected()
    equal(version_and_family("halved"), (3, "halving"), "with NEXAR_ALGORITHMS")
    for node in cluster:
        node.end()


def hangs(me):
    group = me.group(me.session())
    started_one = group.barrier_start() if me.rank == 0 else None
    me.mark()
    me.wait_for_go(60)
    (started_one or group.barrier_start()).wait()


def test_a_busy_host_is_not_measured_unless_it_is_wanted(cluster):
    """With an operation in flight tune ends at once, and says what is in its way."""
    job = Job([cluster[1], cluster[1]], hangs, name="busy")
    job.await_marks()
    eventually(lambda: cluster[1].status()["ops_in_flight"] > 0, "the operation to be in flight")
    answer = ended(started(cluster[1], "tune", "--node-index", 0, "--secret-file", "/dev/null", "--json"), expect=1)
    equal(answer["error"]["name"], "BAD_STATE", "of a busy host")
    contains(answer["error"]["text"], "1 operation is in flight")
    job.go()
    job.outcomes()


if __name__ == "__main__":
    main(globals(), nodes=2)

"""nexarctl tune on two hosts: what it measures is stored on both, used for later groups and by nexarctl plan, and found by a restart."""
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


def text_of(node, *words):
    process = started(node, *words)
    output, complaint = process.communicate(timeout=60)
    equal(process.returncode, 0, complaint)
    return output


def tune(cluster, *words, seconds=(1, 1), first=(), **environment):
    """The reports of both hosts; first: words of the first one alone."""
    secret = cluster.folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("0123456789abcdef\n")
    processes = [started(node, "tune", "--nodes", 2, "--node-index", index, "--secret-file", secret, "--seconds",
                         seconds[index], "--json", *words, *(first if index == 0 else ()), **environment) for index, node in enumerate(cluster.alive())]
    return [ended(process) for process in processes]


def expected_limit(raced):
    """By trying each limit: the one by which all sizes together lose least to the quicker algorithm; of equal ones the lowest.
    Where both take the same but for 3 %, it does not matter which."""
    def lost(each, algorithm):
        return min(each[algorithm] / min(each["doubling_ns"], each["ring_ns"]), 2)

    def lost_by(limit):
        decided = [each for each in raced if abs(lost(each, "doubling_ns") - lost(each, "ring_ns")) > 0.03]
        return sum(lost(each, "doubling_ns" if each["bytes"] <= limit else "ring_ns") for each in decided)
    return min([raced[0]["bytes"] // 2, *(each["bytes"] for each in raced)], key=lambda limit: (round(lost_by(limit), 9), limit))


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
    equal(set(one["model"]), {*PARAMETERS, "doubling_bytes_max"}, "parameters, and what the race found")
    equal([each["bytes"] for each in one["raced"]], [1024 * size for size in (8, 16, 32, 64, 128, 256)], "the sizes raced")
    assert all(each["doubling_ns"] > 0 and each["ring_ns"] > 0 for each in one["raced"]), one
    equal((one["raced"], one["why_no_race"]), (two["raced"], ""), "of the slowest of both, on both")
    costs, limit = {name: one["model"][name] for name in PARAMETERS}, one["model"]["doubling_bytes_max"]
    equal(limit, expected_limit(one["raced"]) // 2, "of what was raced, as two hosts keep it")
    contains((cluster[1].state / "plan_model").read_text(), f"doubling_bytes_max = {limit}\n")
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
        equal((new["version"], new["model"]), (3, costs), "of a group made later, by the model")
        equal(new["doubling_bytes_max"], 2 * limit, "what the race found, of two hosts")
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
    plan = ended(started(cluster[2], "plan", "--json"))
    equal((plan["model"], plan["model_from"][:5], plan["plan_function"]), (costs, "tuned", 3), "a plan by the host's model")
    equal(plan["doubling_bytes_max"], 2 * limit, "of a plan")
    equal(ended(started(cluster[2], "plan", "--json", "--doubling", "1K"))["doubling_bytes_max"], 2048, "as given")
    contains(text_of(cluster[2], "plan"), "cost model", "tuned: what nexarctl tune measured", "the cost model and the rules")
    given = ended(started(cluster[2], "plan", "--json", "--model", cluster[2].state / "plan_model"))
    equal((given["model"], given["doubling_bytes_max"], given["model_from"]), (costs, 2 * limit, f"given: --model {cluster[2].state / 'plan_model'}"), "of a file")
    forgotten = text_of(cluster[1], "tune", "--forget")
    contains(forgotten, "FORGOTTEN", f"{one['model']['bulk_start_ns']}", "choose by size")
    equal([word for word in ("BEFORE", "NOW", "kept") if word in forgotten], [], "as though a model were in use")
    contains(text_of(cluster[1], "tune", "--forget"), "was not tuned, so nothing was changed")
    shown = ended(started(cluster[2], "tune", "--forget", "--json"))
    equal((shown["was_tuned"], shown["forgotten"]), (True, True), "of a tuned host")
    plan = ended(started(cluster[2], "plan", "--json"))
    equal((plan["model"], plan["model_from"], plan["plan_function"]),
          (built_in["model"], "built in: this host is not tuned (nexarctl tune)", 2), "a plan of a host that is not tuned")
    contains(text_of(cluster[2], "plan"), "built in: this host is not tuned", "size")
    equal(shown["model"], built_in["model"], "forgotten")
    assert not (cluster[2].state / "plan_model").exists(), "the file is removed"


def refused(node, *words, expect=2, **environment):
    process = started(node, *words, **environment)
    output, complaint = process.communicate(timeout=60)
    equal((process.returncode, output), (expect, ""), complaint)
    return complaint


def test_a_plan_refuses_what_it_would_not_use_and_names_what_is_wrong_with_a_model(cluster):
    for given in (("--nodes", 3), ("--ranks-per-node", 2), ("--small", "1K"), ("--model", "1,2,3,4,5,6"), ("--lanes", 1), ("--segment", "1M"),
                  ("--large", "1M"), ("--algorithms", "ring"), ("--ring-nodes", 2)):
        contains(refused(cluster[1], "plan", "--group", "g", *given), f"nexarctl: plan: {given[0]} and --group: ", "allowed with --group: --op")
    contains(refused(cluster[1], "plan", "--group", "g", "--op", "barrier", expect=1), "'g'")
    whole = {name: 1 for name in sorted(PARAMETERS)}

    def lines(model):
        return "".join(f"{name} = {value}\n" for name, value in model.items())

    file = cluster.folder / "a model"
    for text, words in ((lines({**whole, "bulk_start_ns": "x"}), ("bulk_start_ns is 'x'; allowed: 1 to 1000000000",)),
                        (lines({**whole, "bulk_start_ns": 0}), ("bulk_start_ns is '0'; allowed: 1 to 1000000000",)),
                        (lines({**whole, "bulk_start_ns": 10**10}), ("bulk_start_ns is '10000000000'; allowed: 1 to",)),
                        (lines({**whole, "colour": 1}), ("'colour = 1' is no line", "allowed", "bulk_start_ns")),
                        (lines(whole) + "bulk_start_ns = 1\n", ("bulk_start_ns is there twice",)),
                        (lines({**whole, "doubling_bytes_max": 0}), ("doubling_bytes_max is '0'; allowed: 1 to 1073741824",)),
                        (lines({name: 1 for name in whole if name != "bulk_start_ns"}), ("bulk_start_ns is missing; allowed",)),
                        ("x" * 10000, ("more than a cost model has; allowed",))):
        file.write_text(text)
        contains(refused(cluster[1], "plan", "--model", file), f"nexarctl: plan: --model {file}: ", *words)
    contains(refused(cluster[1], "plan", "--model", "/no/such"), "plan: --model /no/such: No such file or directory; allowed: a file", "6 numbers: small_s")
    contains(refused(cluster[1], "plan", "--model", "/etc"), "plan: --model /etc: Is a directory; allowed: a file")
    contains(refused(cluster[1], "plan", "--model", "1,2,3"), "plan: --model 1,2,3: 3 numbers; allowed: 6, small_start_ns,small_ps_per_byte")
    contains(refused(cluster[1], "plan", "--model", "1,2,0,4,5,6"), "plan: --model 1,2,0,4,5,6: bulk_start_ns is '0'; allowed: 1 to")


def test_a_trial_is_of_the_groups_of_its_name_alone(cluster):
    """[O8]"""
    known = cluster[1].ask("tune")
    for node in cluster:
        equal(node.ask("tune", trial={"group": "raced", "doubling_bytes_max": 4096}), known, "it changes nothing that is kept")
    jobs = {name: Job([cluster[1], cluster[2]], open_group, name=name) for name in ("raced", "usual")}
    for job in jobs.values():
        job.await_marks()
    for node in cluster:
        equal([(table_of(node, name)["version"], table_of(node, name)["doubling_bytes_max"]) for name in jobs], [(2, 4096), (2, 128 * 1024)], f"{node}")
    for job in jobs.values():
        job.go()
        job.outcomes()
    try:
        raise AssertionError(cluster[1].ask("tune", trial={"group": "raced"}))
    except Refused as refusal:
        contains(str(refusal), "'trial': allowed: an object with group")


def test_tune_measures_the_daemon_that_socket_names(cluster):
    """Without NEXAR_SOCKET its configuration names its session socket; with one that nobody listens on, that is named."""
    one, two = tune(cluster, "--dry-run", NEXAR_SOCKET="")
    equal(one["model"], two["model"], "of both hosts")
    complaint = refused(cluster[1], "tune", "--node-index", 0, "--secret-file", "/dev/null", expect=3, NEXAR_SOCKET="/no/such")
    contains(complaint, "nexarctl: tune: no daemon takes sessions on /no/such; nothing was started.")
    equal("nexarctl run" in complaint, False, complaint)


def test_a_dry_run_changes_nothing_and_a_damaged_file_is_logged_and_not_used(cluster):
    """[O7]"""
    known = cluster[1].ask("tune")
    one, two = tune(cluster, "--dry-run", seconds=(1, 2))
    equal(one["model"], two["model"], "of hosts that were given different times")
    equal((one["stored"], one["before"]), (False, known["model"]), "dry run")
    equal(cluster[1].ask("tune"), known, "after a dry run")
    one, two = tune(cluster, first=("--dry-run",))
    equal((one["stored"], two["stored"]), (False, False), "as on one host so on all")
    equal([node.ask("tune") for node in cluster], [known] * 2, "after a dry run of one host")
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
        eventually(lambda: cluster[1].log().count("tuned_model_ignored") == number,
                   f"start {number} to ignore a damaged file, {content and content[:40]}")
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


def test_where_no_size_can_be_raced_there_is_no_limit_and_tune_says_why(cluster):
    for node in cluster:
        node.end()
    for node in cluster:
        node.start(NEXAR_SMALL_MSG_BYTES="4096")
    cluster.wait_connected()
    for report in tune(cluster, "--dry-run"):
        equal((set(report["model"]), report["raced"]), (PARAMETERS, []), "no limit")
        contains(report["why_no_race"], "small_message_bytes is less than")
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

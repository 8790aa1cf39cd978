"""Random programs, drawn from a seed."""
import dataclasses
import random

from .program import (ANY_SOURCE, ANY_TAG, CHILDREN_MAX, CREATES_MAX, FLAG_DETERMINISTIC, FLAG_F32_PARTIALS, GROUPS_MAX, NODES, OPS,
                      PAIRS, PRIVATE_TAG, CREATE_TAGS, RANKS_MAX, ROWS, TAGS, Death, End, Group,
                      Leave, Message, Program, Receive, Step, matches)


def draw(seed, kind):
    rng = random.Random(f"{kind} {seed}")
    ranks = 1 + int(RANKS_MAX * rng.random() ** 1.5)
    if kind != "plain":
        ranks = max(2, ranks)
    places = placement(rng, ranks)
    groups = [drawn_group(rng, number, ranks) for number in range(rng.randint(1, GROUPS_MAX))]
    groups += drawn_children(random.Random(f"children {kind} {seed}"), groups)
    # Each step has a generator of its own: a program without some of its steps has the others as they are.
    steps = []
    for number in range(rng.choice((3, 8, 15, 30))):
        own = random.Random(f"creates {kind} {seed}/{number}")
        if own.random() < 0.2 and sum(group.made == "create" for group in groups) < CREATES_MAX:
            steps.append(drawn_create(own, number, groups, kind))
            groups.append(steps[-1].group)
        else:
            steps.append(drawn_step(random.Random(f"{kind} {seed}/{number}"), number, rng.choice(groups), kind))
    death = leave = None
    at = rng.choice(steps)
    if kind == "leave":
        leave = Leave(rng.choice(at.group.members), at.number, rng.choice(("free", "abort")))
    if kind == "death":
        death = Death(rng.choice(at.group.members), at.number, rng.choice(("before", "started", "later")), rng.random() * 0.03)
    return Program(seed, kind, tuple(places), tuple(groups), tuple(steps), death, leave, tuple(hosts(kind, seed, places)))


def hosts(kind, seed, places):
    """A process each; in some programs several ranks of a node have one session. (A death is that of one rank.)"""
    rng, found = random.Random(f"hosts {kind} {seed}"), []
    together = kind != "death" and rng.random() < 0.25
    for rank, place in enumerate(places):
        others = [other for other in found if places[other] == place]
        found.append(rng.choice(others) if together and others and rng.random() < 0.5 else rank)
    return found


def placement(rng, ranks):
    nodes = rng.randint(1, min(NODES, ranks))
    names = rng.sample(range(NODES), nodes)
    how = rng.choice(("blocked", "cyclic", "random", "uneven"))
    if how == "blocked":
        return [names[rank * nodes // ranks] for rank in range(ranks)]
    if how == "cyclic":
        return [names[rank % nodes] for rank in range(ranks)]
    if how == "random":
        return [rng.choice(names) for _ in range(ranks)]
    places = names[1:] + [names[0]] * (ranks - nodes + 1)
    rng.shuffle(places)
    return places


def drawn_group(rng, number, ranks):
    members = list(range(ranks)) if number == 0 else rng.sample(range(ranks), rng.randint(1, ranks))
    if rng.random() < 0.5:
        rng.shuffle(members)
    return Group(number, tuple(members))


def drawn_children(rng, opened):
    """Half of the programs have some: of opened groups, and of other children."""
    groups = list(opened)
    while rng.random() < 0.5 and len(groups) < len(opened) + CHILDREN_MAX:
        parent, number = rng.choice(groups), len(groups)
        if rng.random() < 0.4:
            groups.append(Group(number, parent.members, "dup", parent.number, number))
            continue
        colours = [rng.randrange(3) for _ in parent.members]  # 2: none
        for colour in (0, 1):
            members = [member for member, own in zip(parent.members, colours) if own == colour]
            rng.shuffle(members)
            if members:
                groups.append(Group(len(groups), tuple(members), "split", parent.number, number))
    return groups[len(opened):]


def drawn_create(rng, number, groups, kind):
    """Of opened groups, of children, and of what was created before. Where calls may end early a tag is the step's own: a call
    that comes late would meet those of a later create with the same tag, and lists that differ."""
    parent = rng.choice(groups)
    members = rng.sample(parent.members, rng.randint(1, parent.size))
    group = Group(len(groups), tuple(members), "create", parent.number, number)
    step = Step(number, group, "create", tag=rng.choice(CREATE_TAGS) if kind == "plain" else PRIVATE_TAG + number)
    if kind == "ends" and group.size > 1 and rng.random() < 0.3:
        return dataclasses.replace(step, end=drawn_create_end(rng, group.size))
    return step


def drawn_create_end(rng, size):
    """Sometimes two at once; then both have the longer time."""
    seconds = {"cancel": 0.5, "again": 1.0, "late": 0.2, "differs": 2.5}
    how, rank = rng.choice(("cancel", "cancel", "again", "again", "late", "late", "differs")), rng.randrange(size)
    if rng.random() < 0.7:
        return End(how, rank, seconds[how])
    other = rng.choice(("cancel", "again", "late"))
    longer = max(seconds[how], seconds[other])
    return End(how, rank, longer, End(other, rng.choice([each for each in range(size) if each != rank]), longer))


def drawn_step(rng, number, group, kind):
    what = rng.choice([*ROWS, "messages", "messages", "messages"])
    step = drawn_messages(rng, number, group, kind) if what == "messages" else drawn_collective(rng, number, group, what)
    if kind in ("plain", "ends") and what != "messages" and rng.random() < 0.25:
        return dataclasses.replace(step, starts=rng.randint(2, 5))
    if kind == "ends" and group.size > 1 and rng.random() < 0.4:
        return with_end(rng, step)
    return step


def drawn_count(rng, size, bytes_each, bytes_max=7 << 20):
    """None, a few, up to a page; sometimes some segments, or so many that ordinary memory is staged where a session has little
    scratch memory. Of a side with a block for each rank, that is of all together."""
    how = rng.random()
    if how < 0.08:
        return 0
    if how < 0.25:
        return rng.randint(1, size + 1)
    largest = rng.choice((1 << 12, 1 << 12, 1 << 16, 1 << 16, 1 << 18, bytes_max) if how > 0.9 else (1 << 12,))
    return int(max(1, largest // bytes_each // size) ** rng.random())


def drawn_collective(rng, number, group, kind):
    row, size = ROWS[kind], group.size
    dtype = rng.choice(tuple(OPS))
    if kind == "barrier":
        return Step(number, group, kind, match_id=rng.choice((0, number + 1)))
    width = 16 if dtype in PAIRS else 8
    shared = size if {row.in_, row.out} & {"all", "all_at_root", "packed", "packed_at_root", "sent", "received"} else 1
    # What has counts of its own is not staged: it must fit.
    count = drawn_count(rng, shared, width, 1 << 20 if row.memory == "in_out_own_counts" else 7 << 20)
    counts = blocks = ()
    if row.memory == "in_out_counts":
        counts = uneven(rng, count, size)
    if row.memory == "in_out_own_counts":
        blocks = tuple(uneven(rng, count // size + 1, size) for _ in range(size))
    op = rng.choice([each for each in OPS[dtype] if (kind, each) != ("exclusive_scan", "avg")])
    flags = rng.choice((0, 0, 0, FLAG_DETERMINISTIC, FLAG_DETERMINISTIC, FLAG_F32_PARTIALS, FLAG_DETERMINISTIC | FLAG_F32_PARTIALS))
    return Step(number, group, kind, dtype, op, count, counts, blocks,
                rng.randrange(size) if row.rooted else 0, rng.random() < 0.5, rng.choice((0, number + 1)), flags=flags)


def uneven(rng, count, size):
    """Counts of size ranks, `count` each on average: as many each, some without any, or one with all."""
    how = rng.choice(("equal", "some", "random", "one"))
    if how == "one":
        one = rng.randrange(size)
        return tuple(count * size * (rank == one) for rank in range(size))
    return tuple({"equal": count, "some": rng.choice((0, count)), "random": rng.randint(0, 2 * count)}[how]
                 for rank in range(size))


def drawn_messages(rng, number, group, kind):
    """exact: every receive names source and tag, and tags are shared with other steps. any_source: under a tag of the
    step's own. fenced: any tag; each rank names its sources, or takes all from any. A receive from any
    rank waits on when one of them has left, so where one leaves all name their sources."""
    size, mode = group.size, rng.choice(("one", "exact") if kind == "leave" else ("one", "exact", "any_source", "fenced"))
    ranks = range(size)
    pairs = {"one": [(rng.choice(ranks), rng.choice(ranks))],
             "ring": [(rank, (rank + 1) % size) for rank in ranks],
             "random": [(rng.choice(ranks), rng.choice(ranks)) for _ in range(rng.randint(1, 2 * size))],
             "pair": [(0, size - 1)] * rng.randint(1, 6)}["one" if mode == "one" else rng.choice(("ring", "random", "pair"))]
    tags = (PRIVATE_TAG + number,) if mode == "any_source" else (*TAGS, PRIVATE_TAG + number)
    messages = tuple(Message(each, source, to, rng.choice(tags), drawn_count(rng, 1, 8))
                     for each, (source, to) in enumerate(pairs))
    receives = []
    for to in ranks:
        mine = [message for message in messages if message.to == to]
        rng.shuffle(mine)
        receives += drawn_receives(rng, to, mine, [m for m in messages if m.to == to], mode)
    return Step(number, group, "messages", rng.choice(tuple(OPS)), messages=messages, receives=tuple(receives),
                fenced=mode == "fenced")


def drawn_receives(rng, to, mine, messages, mode):
    """mine: the messages in the order of their receives; messages: in the order in which they are sent."""
    exact = [Receive(to, message.source, message.tag) for message in mine]
    if mode == "any_source":
        return [dataclasses.replace(each, source=ANY_SOURCE) for each in exact]
    if mode != "fenced":
        return exact
    if rng.random() < 0.5:
        return [Receive(to, ANY_SOURCE, ANY_TAG) for _ in mine]
    wild = [dataclasses.replace(each, tag=ANY_TAG) if rng.random() < 0.5 else each for each in exact]
    return wild if None not in matches(wild, messages) else exact


def with_end(rng, step):
    rank = rng.randrange(step.group.size)
    if step.kind != "messages":
        how = rng.choice(("cancel", "cancel", "late", "differs"))
        return dataclasses.replace(step, fenced=True, end=End(how, rank, rng.choice((0.1, 0.2)) if how == "late" else 0.0))
    source, to = rng.sample(range(step.group.size), 2)
    tag = PRIVATE_TAG + step.number
    how = rng.choice(("cancel_recv", "cancel_recv", "cancel_send", "cancel_send", "late_recv", "late_send"))
    return dataclasses.replace(step, fenced=True, messages=(Message(0, source, to, tag, drawn_count(rng, 1, 8)),),
                               receives=(Receive(to, source, tag),),
                               end=End(how, to if how.endswith("recv") else source, 0.1 if how.startswith("late") else 0.0))

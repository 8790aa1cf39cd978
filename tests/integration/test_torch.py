"""The Python package with tensors of torch itself, where it is installed: two ranks on two nodes, in place, without a copy, and with
torch's own results. (tools/setup does not install it: Debian's package is python3-torch.)

    node 1 ──┐
    node 2 ──┴── switch
"""
from harness import *

try:
    import torch
except ImportError:
    skip("torch is missing for this Python")

DTYPES = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8


def mine(rank, dtype, count=24):
    """Distinct for each rank and position; sums are exact in each dtype."""
    return (torch.arange(count) % 7 + 1 + rank).to(dtype)


def same(found, wanted, what):
    equal((found.dtype, found.shape, torch.equal(found, wanted)), (wanted.dtype, wanted.shape, True), f"{what}: {found} {wanted}")


def refused(call, text):
    try:
        call()
    except ValueError as error:
        return contains(str(error), text)
    raise AssertionError(f"it should have been refused: {text}")


def reduces(me):
    group = me.group()
    for dtype in DTYPES:
        x, wanted = mine(group.rank, dtype), mine(0, dtype) + mine(1, dtype)
        at, other = x.data_ptr(), x.view(4, 6)
        equal((group.all_reduce(x) is x, x.data_ptr()), (True, at), dtype)
        same(x, wanted, dtype)
        same(other, wanted.view(4, 6), "the view of it")
        x, out = mine(group.rank, dtype), torch.zeros(24, dtype=dtype)
        equal(group.all_reduce_start(x, out, op="max").wait() is out, True, dtype)
        same(out, torch.maximum(mine(0, dtype), mine(1, dtype)), "max")
        same(x, mine(group.rank, dtype), "the input")
    for op, wanted in (("land", torch.logical_and), ("lor", torch.logical_or), ("band", torch.bitwise_and), ("max", torch.logical_or)):
        sides = [torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])]
        x = sides[group.rank].clone()
        at = x.data_ptr()
        group.all_reduce(x, op=op)
        equal(x.data_ptr(), at, "bool")
        same(x, wanted(*sides), f"bool {op}")
    return True


def test_all_reduce_is_in_place_and_what_torch_computes(cluster):
    """Of each dtype: no copy, so the address is the same, and what else looks at the memory sees the result."""
    equal(run([cluster[1], cluster[2]], reduces), [True] * 2, "ranks")


def shapes(me):
    group = me.group()
    whole = torch.zeros(6, 4)
    group.all_reduce(whole[2:4].fill_(1 + group.rank))
    same(whole, torch.cat([torch.zeros(2, 4), torch.full((2, 4), 3.0), torch.zeros(2, 4)]), "a slice of rows")
    same(group.all_reduce(torch.tensor(1.5 + group.rank)), torch.tensor(4.0), "0-d")
    for empty in (torch.zeros(0), torch.zeros(3, 0), torch.zeros(0, dtype=torch.bool)):
        equal(group.all_reduce(empty, op="max").numel(), 0, "empty")
    same(group.all_reduce(torch.ones(5, 2, 3)[:, 1:2, 1:2][:1]), torch.full((1, 1, 1), 2.0), "one element with strides")
    for wrong in (torch.ones(4, 4)[:, 1], torch.ones(4, 3).t(), torch.ones(9)[::2], torch.ones(1).expand(4)):
        refused(lambda: group.all_reduce(wrong), "contiguous")
        refused(lambda: group.all_reduce(torch.ones(wrong.numel()), wrong), "contiguous")
        refused(lambda: group.recv(wrong, timeout=0), "contiguous")
    last, out = group.rank == 1, torch.zeros(0 if group.rank == 1 else 3)  # an empty one has no address
    for found in (group.scatterv(torch.ones(3) if not last else None, [3, 0], out), group.reduce_scatterv(torch.ones(3), [3, 0], out)):
        equal(found is out, True, "an empty result")
    x = torch.ones(3) if group.rank == 0 else np.ones(3, np.float32)
    equal([float(each) for each in group.all_reduce(x)], [2.0] * 3, "a partner with numpy")
    return True


def test_shapes_are_taken_where_they_are_contiguous(cluster):
    """A slice of rows is, a column or a transpose is not; 0-d and empty ones are; a numpy array and a tensor may be partners."""
    equal(run([cluster[1], cluster[2]], shapes), [True] * 2, "ranks")


def refusals(me):
    group = me.group()
    for begin in (group.all_reduce, group.all_reduce_start, lambda t: group.send(t, 1 - group.rank), lambda t: group.all_reduce(torch.ones(3), t)):
        refused(lambda: begin(torch.ones(3, requires_grad=True)), "detach()")
    leaf = torch.full((3,), 1.0 + group.rank, requires_grad=True)
    (leaf * leaf).sum().backward()
    group.all_reduce(leaf.grad, op="avg")
    same(leaf.grad, torch.full((3,), 3.0), "gradients")
    group.all_reduce(leaf.detach())
    same(leaf.detach(), torch.full((3,), 3.0), "a leaf's memory")
    refused(lambda: group.all_reduce(torch.ones(3, dtype=torch.complex64)), "DLPack type")
    refused(lambda: group.all_reduce(torch.ones(3), torch.ones(3, dtype=torch.float64)), "out is of dtype float64, and values is of dtype float32")
    refused(lambda: group.all_reduce(torch.eye(3).to_sparse()), "")
    negative = torch.tensor([1 + 2j]).conj().imag  # -2, over memory that has 2
    for begin in (group.all_reduce, group.all_reduce_start, group.all_reduce_init, lambda t: group.send(t, 1 - group.rank)):
        refused(lambda: begin(negative), "resolve_neg()")
        refused(lambda: begin(torch.nn.Parameter(torch.ones(3))), "detach()")
    same(group.all_reduce(negative.resolve_neg()), torch.tensor([-4.0]), "what was negative")
    return True


def test_what_cannot_be_given_is_refused_with_the_way_out(cluster):
    """Gradients go through detach(), what has the negative bit through resolve_neg(); dtypes that nexar lacks are named."""
    equal(run([cluster[1], cluster[2]], refusals), [True] * 2, "ranks")


def others(me):
    group = me.group()
    other, x = 1 - group.rank, mine(group.rank, torch.float32)
    same(group.broadcast(torch.full((3,), group.rank, dtype=torch.bfloat16), root=1), torch.ones(3, dtype=torch.bfloat16), "broadcast")
    equal(group.all_gather(torch.tensor([group.rank])).tolist(), [[0], [1]], "all_gather")
    same(group.all_gather(torch.tensor([group.rank]), torch.zeros(2, dtype=torch.int64)), torch.tensor([0, 1]), "all_gather to out")
    equal(group.reduce_scatter(x).tolist(), (mine(0, torch.float32) + mine(1, torch.float32)).chunk(2)[group.rank].tolist(), "reduce_scatter")
    room = torch.zeros(24)
    equal(group.sendrecv(x, other, room), (other, 0, 24), "sendrecv")
    same(room, mine(other, torch.float32), "sendrecv")
    equal(group.sendrecv_replace(x, other)[0], other, "sendrecv_replace")
    same(x, mine(other, torch.float32), "sendrecv_replace")
    parts = torch.zeros(10), torch.zeros(14)
    sent = group.sendv_start([x[:20], x[20:]], other, 7)
    equal(group.recvv([*parts], other, 7), (other, 7, 24), "recvv")
    sent.wait()
    same(torch.cat(parts), mine(group.rank, torch.float32), "in pieces")
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        same(group.all_reduce(torch.full((3,), 3.0 + group.rank, dtype=dtype), op="premul_sum", scalar=0.5), torch.full((3,), 3.5, dtype=dtype), dtype)
    step = group.all_reduce_init(x := torch.ones(2))
    for _ in range(3):
        step.start()
        equal(step.wait() is x, True, "persistent")
    same(x, torch.full((2,), 8.0), "persistent")
    step.free()
    return True


def test_the_other_operations_take_tensors(cluster):
    """Collectives with a result of another size, messages in all forms, premul_sum's scalar for each dtype."""
    equal(run([cluster[1], cluster[2]], others), [True] * 2, "ranks")


main(globals(), nodes=2)

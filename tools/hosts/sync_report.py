"""Tables and figures of the synchronisation benchmark, from one result per cell."""

import random
import statistics

BOOTSTRAPS = 1000
HIGHEST, LOWEST = 0.975, 0.025

median = statistics.median


def step_of(run):
    """Of the slowest rank: the job is as fast as that."""
    return max(median(rank["step_seconds"]) for rank in run)


def system_step(result, system):
    return median(step_of(run) for run in result["runs"][system])


def ratio(result, above, below):
    """The median over the rounds of one system's step over another's, and its 95 % interval.

    The bootstrap draws rounds, and steps within the runs of a round, with replacement.
    """
    pairs = list(zip(result["runs"][above], result["runs"][below]))
    generator = random.Random(0)

    def drawn(run):
        return max(median(generator.choices(rank["step_seconds"], k=len(rank["step_seconds"])))
                   for rank in run)

    draws = sorted(median(drawn(a) / drawn(b) for a, b in generator.choices(pairs, k=len(pairs)))
                   for _ in range(BOOTSTRAPS))
    value = median(step_of(a) / step_of(b) for a, b in pairs)
    return value, draws[int(LOWEST * BOOTSTRAPS)], draws[int(HIGHEST * BOOTSTRAPS)]


def sent_per_rank(result):
    """Bytes of slices that the busiest rank sends in a step."""
    return max(median(run[rank]["bytes_sent_per_step"] for run in result["runs"]["priority"])
               for rank in range(result["cell"]["hosts"]))


def bound(result):
    """No schedule is faster: compute, the busiest side of a link, or the way of the variable whose
    gradient comes last and which is needed first, to its owners and back."""
    hosts = result["cell"]["hosts"]
    carried = result["bytes_per_s"]
    chain = 2 * (hosts - 1) / hosts * result["first_parameter_bytes"] / carried
    if result["cell"]["model"] == "ncf-sparse":
        chain = 0  # its rows alone
    compute = system_step(result, "alone")
    return max(compute, sent_per_rank(result) / carried, compute + chain)


def cpu_per_gb(result, system="priority"):
    """CPU seconds of the engine at all hosts per GB that crossed the links."""
    values = []
    for engine, alone in zip(result["runs"][system], result["runs"]["alone"]):
        cpu = sum(rank["cpu_seconds_per_step"] for rank in engine)
        without = sum(rank["cpu_seconds_per_step"] for rank in alone)
        values.append((cpu - without) / (sum(r["bytes_sent_per_step"] for r in engine) / 1e9))
    return median(values)


def one_line(result):
    against = "" if "ddp" not in result["runs"] else \
        f", DDP over it {ratio(result, 'ddp', 'priority')[0]:.2f}"
    return (f"step {system_step(result, 'priority') * 1e3:.0f} ms, "
            f"{system_step(result, 'priority') / bound(result):.3f} of the bound{against}")


def over_priority(result, system):
    """Empty where the system was not measured."""
    if system not in result["runs"]:
        return ""
    return "{:.2f} ({:.2f} to {:.2f})".format(*ratio(result, system, "priority"))


def ms(seconds):
    return f"{seconds * 1e3:.0f}" if seconds >= 0.01 else f"{seconds * 1e3:.2f}"


def row(result):
    cell, plan = result["cell"], result["plan"]
    alone, limit = system_step(result, "alone"), bound(result)
    compute = ms(alone) + (" imitated" if result["imitated"] else "")
    bucket = f"{result['bucket']['best']}" + ("" if result["bucket"]["searched"] else " (not searched)")
    return [cell["model"], cell["ratio"], str(cell["hosts"]), cell["rate"], str(plan["rows"]),
            compute, ms(result["link_seconds"]), ms(limit), ms(system_step(result, "priority")),
            f"{system_step(result, 'priority') / limit:.3f}",
            over_priority(result, "ddp"), over_priority(result, "ddp-as-installed"), bucket,
            over_priority(result, "fifo-barrier"), over_priority(result, "fifo"),
            f"{cpu_per_gb(result):.2f}",
            f"{result['tcp_cpu_s_per_gb']:.2f}" if "tcp_cpu_s_per_gb" in result else "",
            over_priority(result, "encrypted"), f"{cpu_per_gb(result, 'encrypted'):.2f}"]


NEWER = {"torch-ddp": "DDP ÷ step", "torch-compiled": "compiled DDP ÷ step", "torch-fsdp2": "FSDP2 ÷ step"}


def of_newer_torch(results):
    """The cells in which peers of a newer PyTorch were measured, too; nothing where there are none."""
    measured = [each for each in results if "torch-ddp" in each["runs"]]
    if not measured:
        return ""
    versions = sorted({each["torch"] for each in measured})
    columns = ["model", "compute:link", "hosts", "rate", "step, ms", *NEWER.values()]
    rows = [[each["cell"]["model"], each["cell"]["ratio"], str(each["cell"]["hosts"]), each["cell"]["rate"],
             ms(system_step(each, "priority")), *(over_priority(each, system) for system in NEWER)]
            for each in measured]
    return (f"\n## Beside PyTorch {', '.join(versions)}\n\nIn the same rounds, with the same bucket size; "
            "*compiled* is torch.compile of the wrapped model, FSDP2 is fully_shard of every block of layers "
            "and of the rest.\n\n" + table(rows, columns))


COLUMNS = ["model", "compute:link", "hosts", "rate", "rows", "compute, ms", "link, ms", "bound, ms",
           "step, ms", "step ÷ bound", "DDP ÷ step", "DDP as installed ÷ step", "bucket, MB",
           "FIFO + barrier ÷ step", "sliced FIFO ÷ step", "engine CPU, s/GB", "TCP CPU, s/GB",
           "encrypted ÷ step", "encrypted CPU, s/GB"]


def find(results, model, ratio_name, hosts, rate):
    wanted = {"model": model, "ratio": ratio_name, "hosts": hosts, "rate": rate}
    return next((result for result in results if result["cell"] == wanted), None)


def figures(results):
    """By the names under which goals are stated; what was not measured is missing."""
    found = {}

    def put(name, result, value):
        if result is not None:
            found[name] = value(result)

    def over_bound(result, system="priority"):
        return system_step(result, system) / bound(result)

    for rate in ("250mbit", "1gbit"):
        balance = find(results, "vgg-like", "1:1", 2, rate)
        put(f"step_over_bound_{rate}", balance, over_bound)
        put(f"speedup_over_ddp_{rate}", balance, lambda r: ratio(r, "ddp", "priority")[0])
    fast = find(results, "vgg-like", "1:1", 2, "1gbit")
    put("step_over_bound_1gbit_encrypted", fast, lambda r: over_bound(r, "encrypted"))
    put("engine_cpu_s_per_gb", fast, cpu_per_gb)
    put("engine_cpu_s_per_gb_encrypted", fast, lambda r: cpu_per_gb(r, "encrypted"))
    balance = find(results, "vgg-like", "1:1", 2, "250mbit")
    put("priority_over_fifo_balance", balance, lambda r: ratio(r, "fifo-barrier", "priority")[0])
    put("engine_cpu_s_per_gb_250mbit", balance, cpu_per_gb)
    if balance is not None and "tcp_cpu_s_per_gb" in balance:
        found["tcp_cpu_s_per_gb"] = balance["tcp_cpu_s_per_gb"]
    put("engine_cpu_s_per_gb_encrypted_250mbit", balance, lambda r: cpu_per_gb(r, "encrypted"))
    put("curve_slowdown_250mbit", balance, lambda r: ratio(r, "encrypted", "priority")[0])
    off = [find(results, "vgg-like", each, 2, "250mbit") for each in ("1:2", "2:1")]
    if all(off):
        found["speedup_over_ddp_off_balance_min"] = min(ratio(r, "ddp", "priority")[0] for r in off)
    sparse = find(results, "ncf-sparse", "link", 2, "250mbit")
    put("speedup_over_ddp_sparse_embedding", sparse, lambda r: ratio(r, "ddp", "priority")[0])
    if sparse is not None and "ddp-dense" in sparse["runs"]:
        found["speedup_over_ddp_dense_embedding"] = ratio(sparse, "ddp-dense", "priority")[0]
    for hosts in (4, 8):
        put(f"step_over_bound_{hosts}_hosts", find(results, "vgg-like", "1:1", hosts, "250mbit"),
            over_bound)
    put("allreduce_64mb_of_bound", find(results, "flat", "1:1", 4, "1gbit"),
        lambda r: r["link_seconds"] / (system_step(r, "priority") - system_step(r, "alone")))
    for size, model in (("64mb", "flat"), ("4kb", "flat-4k")):
        flat = find(results, model, "1:1", 4, "1gbit")
        if flat is None or "gloo" not in flat["runs"]:
            continue
        exchange = system_step(flat, "priority") - system_step(flat, "alone")
        if exchange > 0:  # else noise
            found[f"gloo_over_allreduce_{size}"] = system_step(flat, "gloo") / exchange
    grid = [r for r in results if not r["cell"]["model"].startswith("flat")]
    if grid:
        found["worst_ratio_to_ddp_ci_low"] = min(ratio(r, "ddp", "priority")[1] for r in grid)
    return found


HEADER = """# Synchronisation on shaped links

Written by `tools/bench-sync`. Hosts are network namespaces on one machine ([testbed](index.md#the-testbed)),
links are shaped in both directions; DDP is PyTorch's over Gloo, with the bucket size that was best at
balance and glibc told to keep freed memory (*as installed*: without), on the same layers, first
values and samples, and all systems end with the same parameters.
Medians over rounds in which the systems take turns, 95 % intervals of the ratios by bootstrap over
rounds and steps. *Compute* is the step without communication at all hosts at once, *link* what each
rank has to send over what a link carried (measured in the same run), *bound* what no schedule can be
faster than. *TCP CPU* is what sockets alone cost on the same link, the bound of *engine CPU*.
Encryption is off on both sides, for Gloo has none; *encrypted* is ours with it. *flat* is an
all-reduce alone, of 64 MB or 4 KB; `gloo_over_allreduce` is what Gloo's all-reduce of one tensor takes
over our step without what the step takes alone. Runs of a cell lie
minutes apart: a step below its bound says that the machine was slower while it measured compute.

"""


def table(rows, columns=COLUMNS):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(each) + " |" for each in rows]) + "\n"


def page(results):
    def order(result):
        cell = result["cell"]
        compute, link = cell["ratio"].split(":") if ":" in cell["ratio"] else (0, 1)
        return cell["hosts"], cell["model"], cell["rate"], int(compute) / int(link)

    if not results:
        return HEADER + "No cell has been measured on this tree yet: `autodist bench sync`.\n"
    ordered = sorted(results, key=order)
    text = HEADER + table([row(result) for result in ordered]) + of_newer_torch(ordered)
    text += "\n## Figures\n\n| figure | value |\n|---|---|\n"
    for name, value in figures(results).items():
        text += f"| `{name}` | {value:.3f} |\n"
    rounds = sorted({len(result["runs"]["priority"]) for result in results})
    loads = [result["load_average"] for result in results]
    return text + (f"\nRounds per cell: {', '.join(map(str, rounds))}. Load average of the machine "
                   f"after a cell: {min(loads):.1f} to {max(loads):.1f} (two busy hosts make 2).\n")

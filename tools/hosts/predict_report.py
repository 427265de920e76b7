"""The page and the plot of `autodist bench predict`, from measured and predicted steps.

A row has `case`, `rounds` (seconds of a step, one per round), `default` and `predicted` (seconds, by
the uncalibrated simulator and by the fitted one), `fitted` (whether it was among the fitted half);
where memory was measured, `memory_bytes` by rank and `predicted_bytes` of the fullest.
"""

import collections
import itertools
import math
import statistics

KINDS = {"imitated": "hosts with shaped links, compute imitated",
         "computed": "two hosts with shaped links, compute real",
         "local": "ranks of one machine, compute real"}
# Of a median error. A floor of the runs takes the goal's place where it is that high, and where enough
# cases were measured twice to know it.
GOAL, FLOOR_THAT_COUNTS, FLOOR_CASES = 0.03, 0.015, 10
TRIED = 4  # plans that a job tries at most


def measured(row):
    return statistics.median(row["rounds"])


def error(row, by="predicted"):
    return row[by] / measured(row) - 1


def memory_error(row):
    return row["predicted_bytes"] / max(row["memory_bytes"]) - 1


def percentile(values, share):
    """The smallest value that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def kendall(pairs):
    """Of (predicted, measured): concordant less discordant pairs, over all that differ in both."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in itertools.combinations(pairs, 2)]
    ordered = [sign for sign in signs if sign != 0]
    return sum(1 if sign > 0 else -1 for sign in ordered) / len(ordered) if ordered else None


def groups(rows):
    """Rows that differ in the builder alone."""
    found = collections.defaultdict(list)
    for row in rows:
        case = row["case"]
        found[tuple(case[key] for key in ("kind", "model", "milliseconds", "ranks", "rate"))].append(
            row)
    return [group for group in found.values() if len(group) > 1]


def signs_within(rows, noise):
    """Of the pairs of plans of every job that differ by more than `noise` when they are run: 1 where the
    simulator has them in that order, else -1."""
    found = []
    for group in groups(rows):
        signs = []
        for a, b in itertools.combinations(group, 2):
            apart = measured(a) / measured(b)
            if max(apart, 1 / apart) > 1 + noise and a["predicted"] != b["predicted"]:
                signs.append(1 if (a["predicted"] < b["predicted"]) == (apart < 1) else -1)
        found.append(signs)
    return [signs for signs in found if signs]


def tau_within(rows, noise):
    """Kendall's tau over pairs of one job, and its standard error (jackknife over jobs)."""
    jobs = signs_within(rows, noise)
    if not jobs:
        return None, None
    without = [statistics.fmean(itertools.chain(*jobs[:i], *jobs[i + 1:])) for i in range(len(jobs))] \
        if len(jobs) > 1 else []
    error = math.sqrt((len(jobs) - 1) * statistics.pvariance(without)) if without else None
    return statistics.fmean(itertools.chain(*jobs)), error


def regret(rows):
    """How much slower than the best plan of its job the one is that the simulator takes (mean over jobs)."""
    regrets = [measured(min(group, key=lambda row: row["predicted"])) / min(map(measured, group)) - 1
               for group in groups(rows)]
    return statistics.fmean(regrets) if regrets else None


def regret_after_trials(rows):
    """regret() where the first round of as many plans as a job tries, those with the best
    predictions, says which is taken; by the other rounds."""
    def later(row):
        return statistics.median(row["rounds"][1:])

    regrets = []
    for group in groups(rows):
        tried = sorted(group, key=lambda row: row["predicted"])[:TRIED]
        taken = min(tried, key=lambda row: row["rounds"][0])
        regrets.append(later(taken) / min(map(later, group)) - 1)
    return statistics.fmean(regrets) if regrets else None


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value):
    return "-" if value is None else f"{value:.2f}"


class Report:
    def __init__(self, rows, again, failed, calibrations, steps, seed):
        self.rows, self.again, self.failed = rows, again, failed
        self.calibrations, self.steps, self.seed = calibrations, steps, seed

    def parts(self):
        """(name, rows) of every line of the summary."""
        lines = []
        for kind in KINDS:
            for fitted in (True, False):
                rows = [row for row in self.of_kind(kind) if row["fitted"] == fitted]
                if rows:
                    lines.append((f"{kind}, {'fitted' if fitted else 'held out'}", rows))
        for fitted in (True, False):
            lines.append((f"all, {'fitted' if fitted else 'held out'}",
                          [row for row in self.rows if row["fitted"] == fitted]))
        return [line for line in lines if line[1]]

    def floor(self, kind=None):
        """How far two runs of one case are apart: the median."""
        values = [abs(measured(b) / measured(a) - 1) for a, b in self.again
                  if kind is None or a["case"]["kind"] == kind]
        return statistics.median(values) if values else None

    def goal(self, kind):
        """Of a median error: twice the floor, where enough cases were measured twice to know one."""
        known = sum(a["case"]["kind"] == kind for a, _ in self.again) >= FLOOR_CASES
        floor = self.floor(kind) if known else 0
        return max(GOAL, 2 * floor) if floor > FLOOR_THAT_COUNTS else GOAL

    def spread(self, rows):
        """How far the slowest round is from the fastest: the median over cases."""
        return statistics.median(max(row["rounds"]) / min(row["rounds"]) - 1 for row in rows)

    def figures(self):
        held = [row for row in self.rows if not row["fitted"]]
        errors = [abs(error(row)) for row in held]
        tau, tau_error = tau_within(self.rows, self.floor() or 0)
        imitated = self.of_kind("imitated")
        return {"cases": len(self.rows), "repeated": len(self.again), "noise_floor": self.floor(),
                "held_out_median_error": statistics.median(errors),
                "held_out_p95_error": percentile(errors, 0.95),
                "held_out_kendall_tau": kendall([(r["predicted"], measured(r)) for r in held]),
                "within_job_tau": tau, "within_job_tau_error": tau_error,
                "regret_before_trials": regret(imitated),
                "regret_after_trials": regret_after_trials(imitated)}

    def of_kind(self, kind):
        return [row for row in self.rows if row["case"]["kind"] == kind]

    def summary(self):
        text = ("| cases | number | median error | 95th percentile | uncalibrated, median | τ | "
                "rounds apart |\n|---|---|---|---|---|---|---|\n")
        for name, rows in self.parts():
            errors = [abs(error(row)) for row in rows]
            plain = statistics.median(abs(error(row, "default")) for row in rows)
            tau = kendall([(row["predicted"], measured(row)) for row in rows])
            text += (f"| {name} | {len(rows)} | {percent(statistics.median(errors))} | "
                     f"{percent(percentile(errors, 0.95))} | {percent(plain)} | {number(tau)} | "
                     f"{percent(self.spread(rows))} |\n")
        return text

    def orders(self):
        text = ("| jobs | number | pairs | τ | its standard error | regret | after trials |\n"
                "|---|---|---|---|---|---|---|\n")
        for kind in KINDS:
            rows = self.of_kind(kind)
            noise = self.floor(kind) or 0
            tau, tau_error = tau_within(rows, noise)
            pairs = sum(map(len, signs_within(rows, noise)))
            text += (f"| {kind} | {len(groups(rows))} | {pairs} | {number(tau)} | {number(tau_error)} | "
                     f"{percent(regret(rows))} | {percent(regret_after_trials(rows))} |\n")
        return text

    def table(self):
        text = ("| kind | model | compute, ms | ranks | rate | builder | measured, ms | rounds, ms | "
                "predicted, ms | error | |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
        for row in sorted(self.rows, key=lambda row: [str(value) for value in row["case"].values()]):
            case = row["case"]
            rounds = f"{1e3 * min(row['rounds']):.1f} to {1e3 * max(row['rounds']):.1f}"
            text += (f"| {case['kind']} | {case['model']} | {case['milliseconds'] or 'real'} | "
                     f"{case['ranks']} | {case['rate'] or 'one machine'} | {case['builder']} | "
                     f"{1e3 * measured(row):.1f} | {rounds} | {1e3 * row['predicted']:.1f} | "
                     f"{100 * error(row):+.1f} % | {'fitted' if row['fitted'] else 'held out'} |\n")
        return text

    def fits(self):
        keys = sorted({key for point in self.calibrations.values() for key in point})
        names = [kind for kind in KINDS if kind in self.calibrations]
        text = f"| key | {' | '.join(names)} |\n|---{'|---' * len(names)}|\n"
        for key in keys:
            values = [self.calibrations[kind].get(key) for kind in names]
            shown = ["default" if value is None else f"{value:.4g}" for value in values]
            text += f"| `{key}` | {' | '.join(shown)} |\n"
        return text

    def causes(self):
        """How much longer than the uncalibrated simulator says steps took, by the machine's load;
        and how much of a step the busiest rank was given a core."""
        text = ("| kind | load average | number | measured ÷ uncalibrated | a rank's CPU ÷ step |\n"
                "|---|---|---|---|---|\n")
        for kind in KINDS:
            rows = sorted(self.of_kind(kind), key=lambda row: row["load_average"])
            middle = len(rows) // 2
            for part in (rows[:middle], rows[middle:]):
                if not part:
                    continue
                ratio = statistics.median(measured(row) / row["default"] for row in part)
                busy = [max(row["cpu_seconds_per_step"]) / measured(row) for row in part
                        if "cpu_seconds_per_step" in row]
                loads = [row["load_average"] for row in part]
                share = percent(statistics.median(busy)) if busy else "-"
                text += (f"| {kind} | {min(loads):.1f} to {max(loads):.1f} | {len(part)} | "
                         f"{ratio:.2f} | {share} |\n")
        return text

    def goals(self):
        """The design's goals beside what the held-out half shows."""
        lines = []
        for kind in KINDS:
            errors = [abs(error(row)) for row in self.of_kind(kind) if not row["fitted"]]
            if errors:
                lines.append((f"median error, {kind}", statistics.median(errors), self.goal(kind), "≤"))
        memory = [abs(memory_error(row)) for row in self.rows if row.get("memory_bytes")]
        if memory:
            lines.append(("median error of peak memory (all)", statistics.median(memory), 0.05, "≤"))
        figures = self.figures()
        lines.append(("95th percentile of errors", figures["held_out_p95_error"], 0.08, "≤"))
        for name, of, goal in (("regret, imitated (all)", "regret_before_trials", 0.04),
                               ("regret after trials, imitated (all)", "regret_after_trials", 0.02)):
            if figures[of] is not None:
                lines.append((name, figures[of], goal, "≤"))
        text = "| held out | value | goal | |\n|---|---|---|---|\n"
        for name, value, goal, sign in lines:
            text += (f"| {name} | {percent(value)} | {sign} {percent(goal)} | "
                     f"{'met' if value <= goal else 'missed'} |\n")
        for name, of, goal in (("τ", "held_out_kendall_tau", 0.95),
                               ("τ of plans of one job (all)", "within_job_tau", 0.6)):
            if figures[of] is not None:
                text += (f"| {name} | {number(figures[of])} | ≥ {goal} | "
                         f"{'met' if figures[of] >= goal else 'missed'} |\n")
        return text

    def memories(self):
        """Of the fullest rank: predicted beside measured, by model."""
        rows = [row for row in self.rows if row.get("memory_bytes")]
        if not rows:
            return "Peak memory was not measured.\n"
        text = ("| model | ranks | number | measured, MB | predicted, MB | error, median | largest |\n"
                "|---|---|---|---|---|---|---|\n")
        found = collections.defaultdict(list)
        for row in rows:
            found[row["case"]["model"], row["case"]["ranks"]].append(row)
        for (model, ranks), part in sorted(found.items()):
            errors = [abs(memory_error(row)) for row in part]
            measured_mb = statistics.median(max(row["memory_bytes"]) for row in part) / 1e6
            predicted_mb = statistics.median(row["predicted_bytes"] for row in part) / 1e6
            text += (f"| {model} | {ranks} | {len(part)} | {measured_mb:.1f} | {predicted_mb:.1f} | "
                     f"{percent(statistics.median(errors))} | {percent(max(errors))} |\n")
        return text

    def priorities(self):
        """How the jobs stood against other work of the machine."""
        first = sorted({row["nice"] for row in self.rows if "nice" in row})
        second = sorted({b["nice"] for _, b in self.again if "nice" in b})
        if not first or not second or first == second:
            return ""
        return (f" The first runs had nice {', '.join(map(str, first))}, the second ones "
                f"{', '.join(map(str, second))}.")

    def floors(self):
        text = ("| cases measured twice | number | apart, median | 95th percentile |\n"
                "|---|---|---|---|\n")
        for kind in KINDS:
            values = [abs(measured(b) / measured(a) - 1) for a, b in self.again
                      if a["case"]["kind"] == kind]
            if values:
                text += (f"| {kind} | {len(values)} | {percent(statistics.median(values))} | "
                         f"{percent(percentile(values, 0.95))} |\n")
        return text

    def page(self, plot):
        loads = [row["load_average"] for row in self.rows]
        kinds = "".join(f"- **{kind}**: {what}.\n" for kind, what in KINDS.items())
        return f"""# Predictions and real runs

Written by `autodist bench predict`. Each case is a job of this machine ([testbed](index.md#the-testbed) for
the hosts). The builders of a job take turns, in three rounds of {self.steps} steps (six times as many
where compute is real), each round's step the mean at the slowest rank; a case's step is their median.
The simulator got the ops' times from `autodist capture` and the same builder. Cases were drawn
with seed {self.seed}, and so was the half that a calibration per kind was fitted on; the other half
was held out.

{kinds}
The machine has two cores. Its load average was {min(loads):.1f} to {max(loads):.1f}; two ranks that
compute make two, and what is above that is other work.

{self.summary()}
*Error* is |predicted ÷ measured − 1|, *uncalibrated* that of the simulator's defaults, *τ* Kendall's
over all pairs of the line, *rounds apart* how much slower the slowest of a case's three rounds was
than the fastest (median). No prediction can be closer than runs are to each other. The same case
twice, in two jobs (median {percent(self.floor())}):{self.priorities()}

{self.floors()}
{self.goals()}
The goal of the median error is {percent(GOAL)}; it is twice the floor of the runs where that floor is
above {percent(FLOOR_THAT_COUNTS)} and known from {FLOOR_CASES} repeated cases of the kind or more. τ is over all
held-out cases, most of which are different jobs, far apart; of plans of the same job the next table says
what it is worth.

Which plan is faster on the same job: τ of the pairs that differ by more than the floor of the runs, with
its standard error over jobs. *Regret* is how much slower than the best plan of its job the one is that the
simulator would have taken (mean over jobs); *after trials* that of the one whose first round was fastest
among the {TRIED} that the simulator likes best, as a job's trials choose, judged by the other rounds:

{self.orders()}
![Measured and predicted steps]({plot})

## Where errors come from

{self.causes()}
The simulator knows of nobody else on the machine, and counts cores alone: ranks that compute beside
each other, and beside the engine's threads, also share caches and the memory's bandwidth, which makes
their ops slower than `autodist capture` measured them, more with one plan than with another. Where
compute is imitated, what remains is the engine's own work: a thread that has something to receive
waits for a core. What was fitted describes such sharing as much as the machine: a goodput of a few per
cent, or milliseconds per message, are no properties of links.

## Peak memory

Of the fullest rank during the steps: what no file backs, less what the process had before it opened
the model. In what is measured and not in what is predicted are libraries' own buffers (NNPACK, by which
Debian's libtorch computes convolutions, keeps 64 MiB; OpenBLAS some megabytes), a job's threads and
messages (two to three megabytes, up to eight over TCP) and the allocator's gaps: of models as small as
these they are much.

{self.memories()}
## What was fitted

{self.fits()}
## All cases

{self.table()}
{self.failures()}"""

    def failures(self):
        if not self.failed:
            return "Every case that was started ended.\n"
        return "Cases without a result:\n\n" + "".join(
            f"- {row['case']['kind']} {row['case']['model']} {row['case']['builder']}: "
            f"{row['failed'].splitlines()[0][:200]}\n" for row in self.failed)

    def plot(self):
        """Measured (across) and predicted (up) milliseconds, both logarithmic."""
        size, margin = 480, 60
        values = [1e3 * value for row in self.rows for value in (measured(row), row["predicted"])]
        low = math.floor(math.log10(min(values)) * 4) / 4
        high = math.ceil(math.log10(max(values)) * 4) / 4

        def at(value):
            return margin + (math.log10(1e3 * value) - low) / (high - low) * (size - 2 * margin)

        colours = dict(zip(KINDS, ("#1b6ca8", "#c0392b", "#27864a")))
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 160} {size}" '
                 'font-family="sans-serif" font-size="12">',
                 f'<rect width="{size + 160}" height="{size}" fill="white"/>',
                 f'<line x1="{margin}" y1="{size - margin}" x2="{size - margin}" y2="{margin}" '
                 'stroke="#999"/>']
        for exponent in range(math.ceil(low), math.floor(high) + 1):
            place = at(10**exponent / 1e3)
            parts.append(f'<text x="{place:.0f}" y="{size - margin + 18}" text-anchor="middle">'
                         f'{10**exponent:g}</text>')
            parts.append(f'<text x="{margin - 8}" y="{size - place + 4:.0f}" text-anchor="end">'
                         f'{10**exponent:g}</text>')
        parts.append(f'<path d="M{margin} {margin}V{size - margin}H{size - margin}" fill="none" '
                     'stroke="black"/>')
        parts.append(f'<text x="{size / 2}" y="{size - 15}" text-anchor="middle">measured, ms a '
                     'step</text>')
        parts.append(f'<text x="16" y="{size / 2}" text-anchor="middle" '
                     f'transform="rotate(-90 16 {size / 2})">predicted, ms a step</text>')
        for row in self.rows:
            colour = colours[row["case"]["kind"]]
            fill = "none" if row["fitted"] else colour
            parts.append(f'<circle cx="{at(measured(row)):.1f}" '
                         f'cy="{size - at(row["predicted"]):.1f}" r="4" fill="{fill}" '
                         f'stroke="{colour}"/>')
        for i, kind in enumerate(KINDS):
            y = margin + 20 * i
            parts.append(f'<circle cx="{size}" cy="{y}" r="4" fill="{colours[kind]}"/>'
                         f'<text x="{size + 12}" y="{y + 4}">{kind}</text>')
        parts.append(f'<text x="{size - 4}" y="{margin + 64}">hollow: fitted</text></svg>')
        return "\n".join(parts) + "\n"

"""The benchmark's arithmetic on results whose figures are known."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from hosts import sync_report  # noqa: E402
from hosts.cluster import rate_of  # noqa: E402


def rank(number, step, cpu=0.0, sent=0.0, spread=0.0):
    steps = [step + spread * i for i in (-2, -1, 0, 1, 2)]
    return {"rank": number, "step_seconds": steps, "cpu_seconds_per_step": cpu,
            "bytes_sent_per_step": sent}


def result(ours, ddp, alone=1.0, sent=25e6, ratio="1:1", spread=0.0):
    def runs(step, cpu=0.0, bytes_sent=0.0):
        return [[rank(0, step, cpu, bytes_sent, spread), rank(1, step / 2, cpu, bytes_sent)]] * 3

    return {"cell": {"model": "vgg-like", "ratio": ratio, "hosts": 2, "rate": "250mbit"},
            "imitated": False, "plan": {"rows": 7}, "bytes_per_s": 25e6, "link_seconds": 1.0,
            "first_parameter_bytes": 5e6, "bucket": {"best": 5, "searched": True},
            "load_average": 2.0,
            "runs": {"priority": runs(ours, 0.5, sent), "ddp": runs(ddp), "fifo": runs(1.5),
                     "fifo-barrier": runs(2.0), "encrypted": runs(1.21, 0.6, sent),
                     "alone": runs(alone, 0.4)}}


def main():
    balance = result(1.26, 1.89)
    # Compute 1 s, link 1 s; the first variable's 5 MB go halfway there and halfway back: 0.2 s.
    assert abs(sync_report.bound(balance) - 1.2) < 1e-9
    assert abs(sync_report.bound(result(3, 3, sent=75e6)) - 3) < 1e-9
    # Two ranks with 0.1 s more than alone for 50 MB.
    assert abs(sync_report.cpu_per_gb(balance) - 4) < 1e-9
    value, low, high = sync_report.ratio(balance, "ddp", "priority")
    assert value == low == high == 1.5, "the slowest rank counts, and nothing varies"
    value, low, high = sync_report.ratio(result(1.26, 1.89, spread=0.1), "ddp", "priority")
    assert low < value < high and abs(value - 1.5) < 1e-9, (low, value, high)
    found = sync_report.figures([balance, result(2, 2.4, ratio="1:2"), result(2, 2.6, ratio="2:1")])
    assert abs(found["step_over_bound_250mbit"] - 1.05) < 1e-9
    assert abs(found["speedup_over_ddp_off_balance_min"] - 1.2) < 1e-9
    assert abs(found["worst_ratio_to_ddp_ci_low"] - 1.2) < 1e-9
    assert "step_over_bound_1gbit" not in found, "what was not measured has no figure"
    flat = result(1.5, 2.0)
    flat["cell"].update(model="flat-4k", hosts=4, rate="1gbit")
    flat["runs"]["gloo"] = [[rank(0, 0.6), rank(1, 0.6)]] * 3
    assert abs(sync_report.figures([flat])["gloo_over_allreduce_4kb"] - 1.2) < 1e-9
    flat["runs"]["alone"] = flat["runs"]["priority"]
    assert "gloo_over_allreduce_4kb" not in sync_report.figures([flat]), "nothing but noise"
    assert (sync_report.ms(0.00123), sync_report.ms(1.2344)) == ("1.23", "1234")
    page = sync_report.page([balance])
    assert page.count("| vgg-like |") == 1 and "| 1.050 |" in page, page
    balance["runs"]["ddp-as-installed"] = [[rank(0, 2.52), rank(1, 1)]] * 3
    assert "| 2.00 (2.00 to 2.00) |" in sync_report.page([balance]), "beside the DDP of the figures"
    assert "Beside PyTorch" not in sync_report.page([balance])
    newer = {"torch-ddp": 1.89, "torch-compiled": 2.52, "torch-fsdp2": 3.15}
    balance["runs"] |= {system: [[rank(0, step), rank(1, 1)]] * 3 for system, step in newer.items()}
    balance["torch"] = "2.13.0"
    page = sync_report.page([balance])
    assert "Beside PyTorch 2.13.0" in page, page
    assert "| 1.50 (1.50 to 1.50) | 2.00 (2.00 to 2.00) | 2.50 (2.50 to 2.50) |" in page, page
    assert rate_of("250mbit") == 250e6 and rate_of("1gbit") == 1e9
    try:
        rate_of("fast")
        raise AssertionError("a rate that is none")
    except ValueError:
        pass
    print("as computed by hand")


if __name__ == "__main__":
    main()

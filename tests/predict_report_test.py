"""What `bench predict` works out, on results whose figures are known."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from hosts import fitting, predict_report  # noqa: E402


def row(builder, step, predicted, fitted=False, model="mlp-tiny"):
    case = {"kind": "imitated", "model": model, "milliseconds": 40, "ranks": 2, "rate": "1gbit",
            "builder": builder}
    return {"case": case, "rounds": [step, 2 * step, step / 2], "default": 2 * step,
            "predicted": predicted, "fitted": fitted, "load_average": 2.0}


def close(a, b):
    assert abs(a - b) < 1e-9, f"{a} is not {b}"


def check_figures():
    rows = [row("PS", 0.4, 0.44), row("P3", 0.2, 0.19), row("BytePS", 0.1, 0.2),
            row("PS", 0.3, 0.3, fitted=True, model="bert-tiny")]
    close(predict_report.error(rows[0]), 0.1)
    close(predict_report.error(rows[1]), -0.05)
    close(predict_report.kendall([(1, 1), (2, 3), (3, 2)]), 1 / 3)
    close(predict_report.percentile([1, 2, 3, 4], 0.95), 4)
    close(predict_report.percentile([1, 2, 3, 4], 0.5), 2)
    tau, tau_error = predict_report.tau_within(rows, noise=0)
    close(tau, 1 / 3)  # P3 and BytePS are the wrong way round
    assert tau_error is None  # of one job
    close(predict_report.tau_within(rows, noise=1.5)[0], 1)  # what is apart by so much: PS and BytePS
    two = rows + [row("PS", 0.4, 0.44, model="x"), row("P3", 0.2, 0.5, model="x")]
    tau, tau_error = predict_report.tau_within(two, noise=0)
    close(tau, 0)
    close(tau_error, 2 / 3)  # without the one job 1/3, without the other -1
    close(predict_report.regret(rows), 1.0)  # P3 in the place of BytePS: 0.2 for 0.1
    close(predict_report.regret_after_trials(rows), 0)  # BytePS is tried, too
    report = predict_report.Report(rows, [(rows[0], row("PS", 0.44, 0.44))], [], {"imitated": {}},
                                   10, 1)
    figures = report.figures()
    close(figures["noise_floor"], 0.1)
    close(figures["held_out_median_error"], 0.1)
    close(figures["held_out_p95_error"], 1.0)
    assert figures["cases"] == 4 and figures["repeated"] == 1
    close(figures["within_job_tau"], 1 / 3)
    close(figures["regret_before_trials"], 1.0)
    close(figures["regret_after_trials"], 0)
    page = report.page("predict.svg")
    for wanted in ("predict.svg", "| imitated, held out | 3 | 10.0 % | 100.0 % | 100.0 % |",
                   "+10.0 %", "-5.0 %", "Every case that was started ended."):
        assert wanted in page, f"the page lacks '{wanted}'"
    assert "Peak memory was not measured." in page
    for each, measured in zip(rows, (80e6, 100e6, 100e6, 100e6)):
        each.update(memory_bytes=[10e6, measured], predicted_bytes=88e6)
    page = report.page("predict.svg")
    for wanted in ("| mlp-tiny | 2 | 3 | 100.0 | 88.0 | 12.0 % | 12.0 % |",
                   "| median error of peak memory (all) | 12.0 % | ≤ 5.0 % | missed |"):
        assert wanted in page, f"the page lacks '{wanted}'"
    # Two runs 10 % apart: one repeated case is no floor, ten are.
    assert "| median error, imitated | 10.0 % | ≤ 3.0 % | missed |" in page
    again = [(rows[0], row("PS", 0.44, 0.44))] * predict_report.FLOOR_CASES
    page_of_many = predict_report.Report(rows, again, [], {"imitated": {}}, 10, 1).page("predict.svg")
    assert "| median error, imitated | 10.0 % | ≤ 20.0 % | met |" in page_of_many
    assert report.plot().count("<circle") == 4 + len(predict_report.KINDS)


def check_fit():
    """A step of compute and messages whose costs are known is found again."""
    true = {"compute_scale": 1.5, "message_seconds": 60e-6}
    jobs = [(0.1, 10), (0.01, 900), (0.05, 2000), (0.2, 100)]

    def predict(point):
        return [point["compute_scale"] * compute + point["message_seconds"] * messages
                for compute, messages in jobs]

    found = fitting.fit(predict, predict(true), {"cores": 2}, tuple(true))
    assert found["cores"] == 2
    for key, value in true.items():
        assert 0.9 < found[key] / value < 1.1, f"{key}: {found[key]} for {value}"
    assert fitting.fit(predict, [], {"cores": 2}, ()) == {"cores": 2}


if __name__ == "__main__":
    check_figures()
    check_fit()
    print("ok")

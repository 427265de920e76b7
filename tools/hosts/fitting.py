"""A calibration that makes predictions like measurements: coordinate descent, without derivatives."""

import math

# Of docs/formats/calibration.md, with the simulator's defaults (autodist/sim/cost_model.h).
DEFAULTS = {"compute_scale": 1.0, "goodput": 0.94, "message_seconds": 15e-6,
            "send_cpu_seconds_per_gb": 0.3, "install_gb_per_s": 8.0, "encode_gb_per_s": 1.5}
FACTORS = (1.7, 1.3, 1.1, 1.04)  # steps, from coarse to fine
LEAST_GAIN = 2e-4


def keys_of(kind):
    """What a kind of case can tell; other keys move its steps by less than runs differ."""
    if kind == "imitated":  # from who sleeps nothing is taken away
        return ("compute_scale", "goodput", "message_seconds", "install_gb_per_s", "encode_gb_per_s")
    if kind == "local":
        return ("compute_scale", "message_seconds", "send_cpu_seconds_per_gb")
    return ("compute_scale", "goodput", "message_seconds", "send_cpu_seconds_per_gb")


def distance(predicted, measured):
    """The mean of |log|: of ratios, and not moved far by a case that something disturbed."""
    return sum(abs(math.log(p / m)) for p, m in zip(predicted, measured)) / len(measured)


def fit(predict, measured, fixed, keys, say=lambda text: None):
    """`predict(calibration)` gives seconds per case. The calibration with `fixed` and fitted keys."""
    point = {**fixed, **{key: DEFAULTS[key] for key in keys}}
    if not measured:
        return point
    best = distance(predict(point), measured)
    for factor in FACTORS:
        improved = True
        while improved:
            improved = False
            for key in keys:
                for step in (factor, 1 / factor):
                    value = point[key] * step
                    if key == "goodput" and value > 1:
                        continue
                    trial = {**point, key: value}
                    error = distance(predict(trial), measured)
                    if error < best - LEAST_GAIN:
                        point, best, improved = trial, error, True
                        break
        say(f"  steps of {factor:g}: mean |log| {best:.4f}")
    return point

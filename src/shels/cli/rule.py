"""`shels rule`: accept another share of known samples, without training again."""

from __future__ import annotations

from typing import Annotated, Any

from shels.cli import options
from shels.cli.display import percent, print_facts, print_result
from shels.cli.options import option

EXAMPLES = """shels rule m
shels rule m --accept 0.99

Each change is a new version, so it can be taken back by shels revise m rollback."""


def rule(
    model: options.Model,
    accept: Annotated[
        float | None, option("--accept", "Share of known samples to accept, such as 0.99.", "S")
    ] = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Show which share of known samples is accepted, or set it.

    Thresholds move on the scores that the model keeps of its held-out samples;
    nothing is trained. A higher share means fewer false alarms, and more novel
    samples that pass for known.
    """
    from shels.agent.corrections import set_accept_share  # noqa: PLC0415
    from shels.agent.home import Home  # noqa: PLC0415
    from shels.learner.rule import doubt, expected_false_alarms, promised_share  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    options.share_to_accept("--accept", accept)
    home = Home(model)
    version = None
    if accept is None:
        learner = load_learner(model, device)
        version = home.version if home.exists else None
    else:
        changed = set_accept_share(home, accept, device)
        learner, version = changed.learner, changed.version
    limits = learner.detector.thresholds.tolist()
    false_alarms, measured_at = expected_false_alarms(learner)
    result = {
        "model": str(model),
        "accept": promised_share(learner),
        "false_alarms": false_alarms,
        "measured_at": measured_at,
        "thresholds": {str(name): limit for name, limit in zip(learner.classes, limits, strict=True)},
        "version": version,
        "doubt": doubt(learner),
    }
    print_result(result, _show, as_json=as_json)


def expected(result: dict[str, Any]) -> str:
    """Say which false alarms are expected, and when that was measured: the same of `rule` and `inspect`."""
    when = {
        "training": " at training",
        "rule-set": " when the rule was set",
        "not-novel": " when images were last called not novel",
    }
    at = when.get(result["measured_at"], "")
    rate = percent(result["false_alarms"])
    return f"{rate} false alarms, measured by halves of the held-out scores{at}"


def _show(result: dict[str, Any]) -> None:
    accept = "the paper's rule promises none" if result["accept"] is None else percent(result["accept"])
    facts = {"accepts": f"{accept} of known samples", "expected": expected(result)}
    if result["doubt"]:
        facts["doubt"] = result["doubt"]
    if result["version"] is not None:
        facts["version"] = f"{result['version']} of {result['model']}; all others are kept"
    print_facts(facts)

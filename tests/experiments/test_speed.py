"""The figures of docs/speed.md that were measured on two quiet cores are those of the raw lines."""

import json
import re
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "results"


def test_cores_as_devices():
    lines = [json.loads(line) for line in (RESULTS / "bench" / "cores-2-cores.jsonl").read_text().splitlines()]
    text = (RESULTS.parent / "docs" / "speed.md").read_text()
    assert len(lines) == 9
    for first, *others in (lines[i : i + 3] for i in (0, 3, 6)):
        assert (first["devices"], first["gain"]) == (1, 1)
        gains = [f"{line['gain']:.2f} ({' to '.join(f'{q:.2f}' for q in line['quartiles'])})" for line in others]
        assert f"| {first['agent_steps_per_second']:.0f}" in text
        assert f"| {' | '.join(gains)} |" in text, gains


def test_precision_on_a_second_processor():
    path = RESULTS / "bench" / "precision-2-cores-zen5.jsonl"
    lines = {line["benchmark"]: line for line in map(json.loads, path.read_text().splitlines())}
    text = " ".join((RESULTS.parent / "docs" / "speed.md").read_text().split())
    for name in ("sac", "dac"):
        one, ten = (lines[f"precision {name} x{members}"] for members in (1, 10))
        low, high = one["processor_time_quartiles"]
        clock, processor = one["bf16_over_float32"], one["by_processor_time"]
        assert f"{name.upper()} {processor:.2f}" in text
        assert f"({low:.2f} to {high:.2f}) and {clock:.2f}" in text
        assert f"{name.upper()} {ten['by_processor_time']:.2f} and {ten['bf16_over_float32']:.2f}" in text


def test_beside_other_libraries_on_a_quiet_machine():
    path = RESULTS / "bench" / "2-cores-compare-bf16.txt"
    rows = dict(re.match(r"(.*?)\s{3,}(.*)", line).groups() for line in path.read_text().splitlines()[1:])
    ratios = {name.strip(): values.split()[-1] for name, values in rows.items()}
    text = (RESULTS.parent / "docs" / "speed.md").read_text()
    assert f"| float32 | {ratios['dac: SAC']} | {ratios['dac: DAC']} |" in text
    assert f"| `--precision bf16` | {ratios['dac: SAC, bf16']} | {ratios['dac: DAC, bf16']} |" in text
    assert f"Stable-Baselines3's {ratios['SB3: SAC']}" in text

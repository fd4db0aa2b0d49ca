"""Layouts a second, growth to a million, memory and import time; the same candidates through three other planners.

Not among the tests, for it measures the machine as well:

    python tests/benchmarks/sweep.py [--peers PYTHON] [--calculon FOLDER] [--most 1000000]

`--peers` names an interpreter that has llm-analysis and dlcalc from PyPI (by default this one), `--calculon` a checkout
of its repository; the package of that name on PyPI is another program. A peer that is not there is reported as absent.
All figures are of one run, and ratios are printed, for the seconds are the machine's.

Conventions. Candidates: GPT-3 175B on 1,024 A100, the layouts that all four programs can express: no context or expert
ranks, ZeRO-1, no recomputation, 1F1B with one chunk, sequence parallelism where tensor ranks are several. Each program
counts and times by its own model: what is compared is the speed, not the answer. dlcalc has no other entry that gives a
step time than its command, so that is called with its output thrown away and its configuration handed over unparsed; it
refuses layouts without recomputation, and its own advice, "selective", stands for them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from course.examples import path
from course.predict.columns import Columns, derived
from course.predict.constants import constants_for
from course.problem import Run, load
from course.sweep import axes, search, space
from course.sweep.placement import evaluate_placed
from course.sweep.search import BLOCK, KEPT
from course.sweep.space import take

EXAMPLE = "gpt-3-175b-1024-a100"
SINGLE = 200
"""Candidates that go through the peers, which take them one at a time."""

PEERS = {
    "llm-analysis": """
import json, sys, time, logging
logging.disable(logging.CRITICAL)
from llm_analysis.analysis import LLMAnalysis, DSZeRO
from llm_analysis.config import ModelConfig, ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name
asked = json.load(sys.stdin)
m = asked["model"]
model = ModelConfig(name="gpt3", num_layers=m["layers"], n_head=m["heads"], hidden_dim=m["hidden"],
                    vocab_size=m["vocabulary"], max_seq_len=asked["sequence"], ffn_embed_dim=m["ffn"])
gpu, dtype = get_gpu_config_by_name("a100-sxm-80gb"), get_dtype_config_by_name("w16a16e16")
done, refused, began = 0, None, time.perf_counter()
for c in asked["candidates"]:
    try:
        LLMAnalysis(model, gpu, dtype, ParallelismConfig(tp_size=c["tensor"], pp_size=c["pipeline"], dp_size=c["data"],
                    sp_size=c["tensor"]), flops_efficiency=0.5).training(batch_size_per_gpu=c["micro_batch"],
                    global_batch_size=asked["batch"], seq_len=asked["sequence"], total_num_tokens=asked["tokens"],
                    ds_zero=DSZeRO(1))
        done += 1
    except Exception as error:
        refused = repr(error)
print(json.dumps({"done": done, "seconds": time.perf_counter() - began, "refused": refused}))
""",
    "dlcalc": """
import contextlib, io, json, os, sys, time
import dlcalc.training_3d as program
asked = json.load(sys.stdin)
m, done, refused, began = asked["model"], 0, None, time.perf_counter()
for c in asked["candidates"]:
    program.yaml.safe_load = lambda _: {
        "model": {"n_layers": m["layers"], "hidden_sz": m["hidden"], "n_q_heads": m["heads"], "n_kv_heads": m["heads"],
                  "head_dim": m["head_size"], "inter_sz": m["ffn"], "glu": False, "rotary_embeds": False,
                  "dropout": True, "vocab_sz": m["vocabulary"], "tie_embeddings": True},
        "parallelism": {"tp": c["tensor"], "pp": c["pipeline"], "dp": c["data"], "vpp": 1, "sp": True, "zero_level": 1,
                        "n_param_buckets": 5},
        "performance": {"activation_checkpointing_type": "selective"},
        "data": {"gbs": asked["batch"], "seqlen": asked["sequence"], "microbatch_sz": c["micro_batch"]},
        "hardware": {"node_type": "p4de.24xlarge"},
    }
    sys.argv = ["dlcalc", os.devnull]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            program.main()
        done += 1
    except (Exception, SystemExit) as error:
        refused = repr(error)
print(json.dumps({"done": done, "seconds": time.perf_counter() - began, "refused": refused}))
""",
    "calculon": """
import json, logging, sys, time
from pathlib import Path
asked = json.load(sys.stdin)
sys.path.insert(0, asked["calculon"])
from calculon import System
from calculon.llm import Llm
m, log = asked["model"], logging.getLogger("calculon")
log.setLevel(logging.CRITICAL)
app = Llm.Application({"name": "gpt3", "hidden": m["hidden"], "feedforward": m["ffn"], "seq_size": asked["sequence"],
                       "attn_heads": m["heads"], "attn_size": m["head_size"], "num_blocks": m["layers"]})
system = json.loads((Path(asked["calculon"]) / "systems" / "a100_80g.json").read_text())
done, refused, began = 0, None, time.perf_counter()
for c in asked["candidates"]:
    wide, many = c["tensor"] > 1, c["data"] > 1
    try:
        exe = Llm.Execution.from_json({
            "num_procs": c["tensor"] * c["pipeline"] * c["data"], "tensor_par": c["tensor"],
            "pipeline_par": c["pipeline"], "data_par": c["data"], "tensor_par_net": 0, "pipeline_par_net": 1,
            "data_par_net": 1, "batch_size": asked["batch"], "microbatch_size": c["micro_batch"],
            "datatype": "float16", "fused_activation": True, "attention_type": "multihead",
            "activation_recompute": "none", "pipeline_interleaving": 1, "optimizer_sharding": many,
            "tensor_par_comm_type": "rs_ag" if wide else "ar", "tensor_par_overlap": "none", "seq_par_ag_redo": wide,
            "data_par_overlap": many, "weight_offload": False, "activations_offload": False,
            "optimizer_offload": False, "training": True})
        syst = System(system, log)
        model = Llm(app, log)
        model.compile(syst, exe)
        model.run(syst)
        model.get_stats_json(False)
        done += 1
    except Llm.Error:
        done += 1  # too large for the memory: that is an answer
    except (AssertionError, KeyError, TypeError) as error:
        refused = repr(error)
print(json.dumps({"done": done, "seconds": time.perf_counter() - began, "refused": refused}))
""",
}
"""How each peer is asked: it reads the candidates as JSON and prints how many it answered in how many seconds."""


def peak_gb() -> float:
    """The most memory this process has held so far."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held * (1 if sys.platform == "darwin" else 1024) / 1e9


def legal(run: Run) -> Columns:
    """All legal layouts of a run, as columns."""
    parts = [block[0] for block in space.space(run, axes.axes(run)).blocks(BLOCK)]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return whole | {"order": np.zeros(len(whole["data"]))}


def blocks(columns: Columns, rows: int) -> Iterator[Columns]:
    """`rows` layouts in blocks, the given ones again and again."""
    count = len(columns["data"])
    for start in range(0, rows, BLOCK):
        yield take(columns, np.arange(start, min(start + BLOCK, rows)) % count)


def growth(run: Run, columns: Columns, most: int) -> float:
    """All quantities of predict for more and more layouts; returns layouts a second of the largest."""
    print(f"all quantities of predict, one process, blocks of {BLOCK:,}")
    constants, rate, before = constants_for(run), 0.0, None
    evaluate_placed(run, take(columns, slice(10)), constants)  # the first call compiles the formulas
    rows = 1000
    while rows <= most:
        began, kept = time.perf_counter(), []
        for block in blocks(columns, rows):
            values = evaluate_placed(run, derived(block, run), constants)
            kept.append({name: values[name] for name in KEPT})
        seconds = time.perf_counter() - began
        rate = rows / seconds
        times = "" if before is None else f", {seconds / before:5.1f} times the time of a tenth of them"
        print(f"  {rows:>9,} layouts  {seconds:8.3f} s  {rate:9,.0f} a second  {peak_gb():.2f} GB{times}")
        before, rows = seconds, rows * 10
    return rate


def searches() -> None:
    """Whole searches: what is enumerated, what is legal, what is evaluated."""
    print("whole searches, from the run file's question to the ranking")
    base = load(path(EXAMPLE))
    wide = dataclasses.replace(
        base,
        cluster=dataclasses.replace(base.cluster, devices=5040),
        training=dataclasses.replace(base.training, global_batch_sequences=10080, sequence_length=8192),
        goal=dataclasses.replace(base.goal, days=None),
    )
    for run in (base, wide):
        began = time.perf_counter()
        found = search(run)
        seconds = time.perf_counter() - began
        print(
            f"  {found.candidates:>10,} candidates, {found.legal:,} legal, {found.evaluated:,} placements timed: "
            f"{seconds:.2f} s, {found.candidates / seconds:,.0f} candidates and {found.legal / seconds:,.0f} legal "
            f"layouts a second, {peak_gb():.2f} GB"
        )


def imports() -> None:
    """Seconds a fresh interpreter needs to import, less what an empty one takes."""
    print("import time")

    def seconds(code: str) -> float:
        tries = []
        for _ in range(3):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            tries.append(time.perf_counter() - began)
        return min(tries)

    empty, numpy = seconds(""), seconds("import numpy")
    for name in ("course", "course.sweep"):
        took = seconds(f"import {name}") - empty
        print(f"  import {name}: {took:.2f} s, {took / max(numpy - empty, 1e-3):.1f} times that of numpy")


def peers(run: Run, columns: Columns, rate: float, python: str, calculon: Path | None) -> None:
    """The same candidates through each peer, and how many times as many we evaluate a second."""
    expressible = (
        (columns["context"] == 1) & (columns["sharding"] == 1) & (columns["recompute"] == 0)
        & (columns["schedule"] == 1) & ((columns["sequence_parallel"] > 0) == (columns["tensor"] > 1))
        & (run.model.layers % columns["pipeline"] == 0) & (columns["data"] > 1)
    )  # fmt: skip
    rows = np.flatnonzero(expressible)
    rows = rows[np.linspace(0, len(rows) - 1, min(SINGLE, len(rows))).astype(int)]
    same = take(columns, rows)
    began, repeats = time.perf_counter(), 20
    for _ in range(repeats):
        evaluate_placed(run, same, constants_for(run))
    ours = len(rows) * repeats / (time.perf_counter() - began)
    print(f"the same {len(rows)} candidates; ours {ours:,.0f} a second in one column, {rate:,.0f} in a long one")
    names = ("data", "tensor", "pipeline", "micro_batch")
    asked: dict[str, Any] = {
        "model": dataclasses.asdict(run.model), "sequence": run.training.sequence_length,
        "batch": run.training.global_batch_sequences, "tokens": int(run.training.tokens),
        "candidates": [{name: int(same[name][row]) for name in names} for row in range(len(rows))],
        "calculon": str(calculon),
    }  # fmt: skip
    for name, code in PEERS.items():
        if name == "calculon" and calculon is None:
            print("  calculon: absent (give --calculon the folder of its repository)")
            continue
        done = subprocess.run([python, "-c", code], input=json.dumps(asked), capture_output=True, text=True)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"  {name}: absent from {python} ({why[:120]})")
            continue
        answer = json.loads(done.stdout.splitlines()[-1])
        if not answer["done"]:
            print(f"  {name}: it answered none of the candidates ({answer['refused']})")
            continue
        theirs = answer["done"] / answer["seconds"]
        print(
            f"  {name}: answered {answer['done']} of {len(rows)}, {theirs:,.0f} a second; ours is {ours / theirs:,.0f} "
            f"times as fast on the same candidates, {rate / theirs:,.0f} times on a long column"
        )


def main() -> None:
    """Measure everything once and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=sys.executable, help="an interpreter that has llm-analysis and dlcalc")
    parser.add_argument("--calculon", type=Path, help="the folder of calculon's repository")
    parser.add_argument("--most", type=int, default=1_000_000, help="layouts of the largest column")
    given = parser.parse_args()
    run = dataclasses.replace(load(path(EXAMPLE)), layout=None)
    columns = legal(run)
    imports()
    rate = growth(run, columns, given.most)
    peers(run, columns, rate, given.peers, given.calculon)
    searches()


if __name__ == "__main__":
    main()

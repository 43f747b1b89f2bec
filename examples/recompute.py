"""Compute the numbers of a run again from its files, without populora: ``python examples/recompute.py RUN [FIGURES]``.

From settings, log and tables it computes solve rates, rewards, advantages, matchups, ratings, replacements and the numbers of the main
figures, whose CSV files `populora report RUN --figures FIGURES` writes. It prints a line for each column and metric, and exits with 1 if a
value differs by more than 1e-9, relative to the larger number or, below 1, absolutely. Verdicts and draws are taken as they are, but
for the members that ``evolution.cull = "random"`` draws.
"""

import csv
import json
import math
import sys
from collections import defaultdict
from hashlib import sha256
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.parquet as pq

COMPUTED = {  # by table, the beginnings of columns: of matchups also mean_rho_sql and problems_sql
    "proposals": ("rho", "reward", "advantage"), "attempts": ("reward", "advantage"), "children": ("parents", "generation", "born"),
    "ratings": ("member", "slot", "mu", "sigma", "generation", "born", "protected_until"),
    "matchups": ("expected", "mean_rho", "problems", "outcome")}  # fmt: skip
differences, first = defaultdict(list), {}  # by column or metric: all of them, and where the first is that is too large


def compare(name, place, recorded, computed):
    numbers = all(isinstance(value, int | float) for value in (recorded, computed))
    difference = abs(recorded - computed) / max(1.0, abs(recorded), abs(computed)) if numbers else float(recorded != computed)
    differences[name].append(difference)
    if not difference <= 1e-9:  # also if it is NaN
        first.setdefault(name, f"  DIFFERS in {place}: {recorded} on record, {computed} computed")


def grouped(rows, *columns):
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[column] for column in columns)].append(row)
    return groups


def rewards(proposals, attempts, pay):
    """Compute rho and the rewards (Eq. 1 and 2). Nobody is paid for a void problem."""
    void, asked = {row["problem_id"] for row in attempts if row["void"]}, grouped(attempts, "filled", "problem_id")
    for row in attempts:
        row["reward"] = pay["malformed"] if not row["formatted"] else pay["correct"] if row["correct"] else pay["incorrect"]
    for row in proposals:
        solved = [answer["correct"] for answer in asked[False, row["problem_id"]] if row["problem_id"] not in void]
        rho = fmean(solved) if solved else None
        factor = 4 * (rho or 0) if pay.get("valid_proposal") == "learnability" else 1
        valued = None if rho is None else pay["boundary"] if rho in (0, 1) else factor * (1 - rho)
        row |= {"rho": rho, "reward": valued if row["valid"] else pay["invalid_proposal"]}


def advantages(proposals, attempts, learner):
    """Compute REINFORCE++-baseline: centre by prompt, whiten over the tokens (or sequences) of a member's batch, weigh the role."""
    for row in proposals:
        row |= {"advantage": None, "used": row["reward"] is not None, "by": row["author"], "as": "teacher", "prompt": row["group"]}
    for row in attempts:
        row |= {"advantage": None, "used": row["trained"], "by": row["student"], "as": "student", "prompt": row["problem_id"]}
    rows = [row for row in proposals + attempts if row["used"]]
    for peers in grouped(rows, "by", "as", "prompt").values():
        mean = fmean(row["reward"] for row in peers) if len(peers) > 1 else 0.0
        for row in peers:
            row |= {"centred": row["reward"] - mean, "shifted": learner["centring"] == "batch" or len(peers) == 1}
    for row in rows:
        row["size"] = row["response_tokens"] if learner.get("loss_aggregation") != "sequence_mean" else 1
    sizes = {key: sum(row["size"] for row in of_role) for key, of_role in grouped(rows, "by", "as").items()}
    tokens_of = {by: sum(row["response_tokens"] for row in of_member) for (by,), of_member in grouped(rows, "by").items()}
    together = {"member": ("by",), "pooled": ("by", "as"), "per_type": ("by", "as", "task")}[learner["whitening"]]
    for batch in grouped(rows, *together).values():
        values, size, shifted = (np.array([row[name] for row in batch]) for name in ("centred", "size", "shifted"))
        values[shifted] -= (size * values)[shifted].sum() / max(size[shifted].sum(), 1)
        values /= math.sqrt((size * values**2).sum() / max(size.sum() - 1, 1) + 1e-8)
        for row, value in zip(batch, values.tolist(), strict=True):
            roles = [of_role for (by, _), of_role in sizes.items() if by == row["by"]]
            total = len(roles) * sizes[row["by"], row["as"]] if learner["role_weights"] == "equal" else sum(roles)
            row["advantage"] = value * tokens_of[row["by"]] * row["size"] / (total * row["response_tokens"])


def game(winner, loser, league):
    """Update both by TrueSkill for two players without draws (Herbrich et al. 2006)."""
    sigmas = [math.hypot(player["sigma"], league["tau"]) for player in (winner, loser)]
    c = math.sqrt(2 * league["beta"] ** 2 + sigmas[0] ** 2 + sigmas[1] ** 2)
    t = (winner["mu"] - loser["mu"]) / c
    v = math.sqrt(2 / math.pi) * math.exp(-t * t / 2) / math.erfc(-t / math.sqrt(2))  # density by distribution
    mus = winner["mu"] + sigmas[0] ** 2 / c * v, loser["mu"] - sigmas[1] ** 2 / c * v
    sigmas = [sigma * math.sqrt(1 - (sigma / c) ** 2 * v * (v + t)) for sigma in sigmas]
    return [{**player, "mu": mu, "sigma": sigma} for player, mu, sigma in zip((winner, loser), mus, sigmas, strict=True)]


def ratings(tables, members, league, domains):
    """Compute the matchups' expectations and outcomes, and the ratings after them."""
    before, beta = dict(members), league["beta"]
    for row in tables["matchups"]:
        t, s = before[row["teacher"]], before[row["student"]]
        row["expected"] = math.erfc((t["mu"] - s["mu"]) / math.hypot(beta, beta, s["sigma"], t["sigma"]) / math.sqrt(2)) / 2
        rated = [each for each in tables["proposals"] if each["author"] == row["teacher"] and each["rho"] is not None]
        for ending in [*(f"_{domain}" for domain in domains if len(domains) > 1), ""]:
            rhos = [each["rho"] for each in rated if ending in (f"_{each['domain']}", "")]
            row |= {f"mean_rho{ending}": fmean(rhos) if rhos else None, f"problems{ending}": len(rhos)}
        bar = row["expected"] if league["outcome"] == "expected" else league["threshold"]
        margin = row["mean_rho"] - bar if rhos and t is not s else 0.0
        unpaid = league["unsolved"] == "nobody" and fmean([rho or 1.0 for rho in rhos] or [1.0]) >= bar
        row["outcome"] = "none" if abs(margin) < 1e-6 else "student" if margin > 0 else "neither" if unpaid else "teacher"
        teacher, student = members[row["teacher"]], members[row["student"]]
        won, lost = game(student, teacher, league), game(teacher, student, league)  # by the student
        after = {"none": (student, teacher), "student": won, "teacher": lost[::-1], "neither": (student, won[1])}
        members[row["student"]], members[row["teacher"]] = after[row["outcome"]]
    tables["ratings"] = [{"member": name, **member} for name, member in members.items()]


def evolve(children, members, interval, settings, step):
    """Compute who is replaced, by the proposals of the ``interval`` and the ratings. Puts the children into ``members``, returns counts."""
    rates, bottom, best, until = dict.fromkeys(members, 1.0), [], [], step + settings["every"] * settings["protect_newborns"]
    for (name, _), rows in grouped(interval, "author", "task").items():
        rates[name] = min(rates[name], fmean(row["rho"] is not None for row in rows))  # of the type with the fewest valid problems
    share, least = settings["cull_fraction"] if interval else 0, settings.get("broken_valid_rate", 0.1)
    broken = sum(rate < least for rate in rates.values())
    bounds = {name: member["mu"] - settings["lcb_k"] * member["sigma"] for name, member in members.items()}
    if settings.get("teacher_fitness") == "reward":
        for (name,), rows in grouped([row for row in interval if row["reward"] is not None], "author").items():
            bounds[name] = fmean(row["reward"] for row in rows)
    for role in ("agent", "teacher", "student"):
        names = [name for name, member in members.items() if member["role"] == role]
        count = min(max(1, math.floor(share * len(names) + 1e-9)), len(names) - 1) if share else 0
        sound = {name: rates[name] >= least or members[name]["protected_until"] >= step for name in names}
        ranked = sorted(names, key=lambda name: (sound[name], bounds[name], rates[name]))  # equal ones by slot
        if settings.get("cull") == "random":
            key = sha256(json.dumps([settings["seed"], "evolve", step, "cull", role]).encode()).digest()[:16]
            ranked = np.random.Generator(np.random.PCG64(int.from_bytes(key, "little"))).permutation(ranked).tolist()
        bottom += ranked[:count]
        stay = [name for name in names if name not in bottom or members[name]["protected_until"] >= step]
        best += sorted(stay, key=lambda name: (rates[name] < least, -bounds[name]))[: math.ceil(len(names) / 2)]
    culled = [name for name, member in members.items() if name in bottom and member["protected_until"] < step]
    compare("children.member", f"step {step}", [row["member"] for row in children], culled)
    for row in children:
        member, rated = members[row["member"]], [members[parent.partition("#")[0]] for parent in row["parents"]]
        known = {f"{name}#{members[name]['generation']}" for name in best if name[0] == row["member"][0]}
        row["parents"] = [name for name in dict.fromkeys(row["parents"]) if name.partition(":")[0] in known]
        mu, sigma = fmean(parent["mu"] for parent in rated), max(settings["child_sigma"], *(parent["sigma"] for parent in rated))
        row |= {**member, "born": step, "generation": member["generation"] + 1, "protected_until": until, "mu": mu, "sigma": sigma}
    members |= {row["member"]: {key: row[key] for key in members[row["member"]]} for row in children}
    return {"evolution/children": len(culled), "evolution/spared": len(bottom) - len(culled), "evolution/broken": broken}


def metrics(tables, programs, domains):
    """Compute the metrics of a step. ``programs`` collects the measures of all that were written so far, behind their domain."""
    proposals, asked = tables["proposals"], [row for row in tables["attempts"] if not row["void"] and not row["filled"]]
    complexity = (names := list(proposals[0]))[names.index("advantage") + 1 : names.index("fingerprint")]  # null for other domains
    valued = [{**row, "difficulty": 1 - row["rho"]} for row in proposals if row["rho"] is not None]
    sources = {"teacher/validity": (proposals, "author", "valid"), "teacher/difficulty": (valued, "author", "difficulty")}
    sources |= {f"teacher/{name}": ([row for row in proposals if row[name] is not None], "author", name) for name in complexity}
    sources |= {"student/solve_rate": (asked, "student", "correct"), "student/format_rate": (asked, "student", "formatted")}
    values, parts = defaultdict(list), [(), ("task",), ("domain",)][: 2 + (len(domains) > 1)]
    for metric, (rows, member, column) in sources.items():
        written = [row for row in rows if column not in complexity or row["task"][-1] != "f"]  # kind f is given its program
        for columns in (*parts, *((member, *part) for part in parts)):
            for group, of_group in grouped(rows if "task" in columns else written, *columns).items():
                values["/".join((metric, *group))] = [row[column] for row in of_group]
    for key in ("role", "member"):
        values |= {f"rating/mu/{name}": [row["mu"] for row in rows] for (name,), rows in grouped(tables["ratings"], key).items()}
    played = [row for row in tables["matchups"] if row["outcome"] != "none"]
    values["matchup/student_wins"] = [row["outcome"] == "student" for row in played if row["outcome"] != "neither"]
    for name in [name for name in (played or [{}])[0] if name.startswith(("mean_rho", "problems_"))]:
        metric = name.replace("mean_rho_", "mean_rho/").replace("problems_", "problems/")
        values[f"matchup/{metric}"] = [row[name] for row in played if row[name] is not None]
    programs += [(row["domain"], *(row[name] for name in complexity)) for row in valued if row["task"][-1] != "f"]
    for domain in domains:
        archive, ending = [program for program in programs if program[0] == domain], f"/{domain}" * (len(domains) > 1)
        values |= {f"archive/total_problems{ending}": [len(archive)], f"archive/distinct_descriptors{ending}": [len(set(archive))]}
    return {name: fmean(of_name) for name, of_name in values.items() if of_name}


def main(run, figures=None):
    config, computed, programs, interval = json.loads((run / "config.json").read_text("utf-8")), {}, [], []
    league, settings, sizes, domains = (config[name] for name in ("league", "evolution", "population", "domains"))
    settings["seed"] = config["seed"]
    agents = 1 if sizes["single_agent"] else sizes["teachers"] if sizes.get("shared_adapters") else 0
    roles = ["agent"] * agents or ["teacher"] * sizes["teachers"] + ["student"] * sizes["students"]
    start = {"mu": league["mu"], "sigma": league["sigma"], "generation": 0, "born": 0, "protected_until": 0}
    members = {f"{role[0].upper()}{roles[:slot].count(role)}": {**start, "role": role, "slot": slot} for slot, role in enumerate(roles)}
    for step, folder in sorted((int(folder.name.removeprefix("step_")), folder) for folder in run.glob("steps/step_*[0-9]")):
        tables, recorded = ({name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in COMPUTED} for _ in range(2))
        for row in tables["proposals"] + tables["attempts"]:
            row["domain"] = "python" if row["task"].startswith("code_") else row["task"][:-2]
        rewards(tables["proposals"], tables["attempts"], config["rewards"])
        advantages(tables["proposals"], tables["attempts"], config["learner"])
        ratings(tables, members, league, domains)
        interval += tables["proposals"]
        due = settings["every"] and step % settings["every"] == 0 and step < config["steps"] and not sizes["single_agent"]
        computed[step] = metrics(tables, programs, domains) | evolve(tables["children"], members, interval if due else [], settings, step)
        interval = [] if due else interval
        for table, columns in COMPUTED.items():
            for number, (old, new) in enumerate(zip(recorded[table], tables[table], strict=True)):
                for column in [name for name in old if name.startswith(columns)]:
                    compare(f"{table}.{column}", f"step {step}, row {number}", old[column], new[column])
    log = map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
    logged = [("metrics.jsonl", line["step"], name, value) for line in log for name, value in line.items()]
    compare("figures", "FIGURES", bool(figures), bool(figures and any(figures.glob("*.csv"))))  # else a wrong folder would pass
    for file in sorted(figures.glob("*.csv")) if figures else ():
        for row in filter({"metric", "member", "step", "value"}.issubset, csv.DictReader(file.read_text("utf-8").splitlines())):
            (group, metric, *part), member = row["metric"].split("/"), [row["member"]] if row["member"] != "all" else []
            logged.append((file.name, int(row["step"]), "/".join((group, metric, *member, *part)), float(row["value"])))
    known = {"/".join(name.split("/")[:2]) for values in computed.values() for name in values}
    for file, step, name, value in logged:
        if (metric := "/".join(name.split("/")[:2])) in known:
            compare(f"{file} {metric}", f"step {step}, {name}", value, computed[step].get(name))
    counted = sum(len(values) for name, values in differences.items() if name.startswith("metrics.jsonl"))
    compare("metrics.jsonl", "number of values", counted, sum(map(len, computed.values())))
    for name, values in differences.items():
        print(f"{name}: {len(values)} values, largest difference {max(values):.1e}{first.get(name, '')}")
    return int(bool(first))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))

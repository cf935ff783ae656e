"""A test for ReFrame (https://reframe-hpc.readthedocs.io) from a scaling study: sites run it after every upgrade."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SLOWER, LEAST = 0.10, 0.05  # a step may take this much longer than in the study, or as much as it varied there
UNASKED = ("--no-ceiling", "--machine", "infiniband")  # a test looks at no price: this node need not be measured for it
TEMPLATE = '''\
"""{title}, {kind} scaling, as hpckit measured it on {cpu}; made by `{command}`.

    reframe -C SITE.py -c test_scaling_reframe.py -r

The references are those of the study, for any system. Give yours their own: a row "SYSTEM:PARTITION" in REFERENCES, and
`--ranks` as many as a node has. A step may take as much longer as the second number of its row says.
"""

import json

import reframe as rfm
import reframe.utility.sanity as sn

COUNTS = {counts}  # ranks, each a test of its own
WORDS = {words}  # the app and its settings
OPTIONS = {options}
# system:partition -> ranks -> (ms a step, lower and upper tolerance as fractions)
REFERENCES = {{
    "*": {references},
}}


@rfm.simple_test
class {name}(rfm.RunOnlyRegressionTest):
    """Milliseconds a step on so many ranks, and the parallel efficiency."""

    descr = {descr}
    ranks = parameter(COUNTS)
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "hpckit"
    local = False
    maintainers = ["hpckit"]
    tags = {{"scaling", "performance"}}
    time_limit = "30m"

    @run_after("init")
    def set_up(self):
        """One task starts the ranks in its allocation."""
        counts = ",".join(str(n) for n in sorted({{min(COUNTS), self.ranks}}))
        self.executable_opts = ["bench", "scaling", *WORDS, "--ranks", counts, *OPTIONS, "--json", "--out", "study"]
        self.reference = {{
            place: {{"ms_a_step": (rows[self.ranks][0], *rows[self.ranks][1:], "ms")}}
            for place, rows in REFERENCES.items()
            if self.ranks in rows
        }}

    @run_before("run")
    def start_once(self):
        """hpckit starts its ranks itself, in the tasks of the job."""
        self.job.launcher = _one_process()
        self.num_tasks = self.ranks
        self.num_tasks_per_core = 1

    @sanity_function
    def measured(self):
        """There is a time for the ranks of this test."""
        return sn.assert_eq(self.row()["ranks"], self.ranks)

    @performance_function("ms")
    def ms_a_step(self):
        """Median over rounds."""
        return self.row()["ms_a_step"]

    @performance_function("1")
    def efficiency(self):
        """Against the fewest ranks."""
        return self.row()["efficiency"]

    @deferrable
    def result(self):
        """What the study printed."""
        with open(self.stdout.evaluate() if hasattr(self.stdout, "evaluate") else self.stdout) as file:
            return json.load(file)

    def row(self):
        """The row of this test's ranks."""
        return self.result().evaluate()["results"][-1]


def _one_process():
    from reframe.core.backends import getlauncher

    return getlauncher("local")()
'''


def reframe_test(record: Mapping[str, Any]) -> str:
    """The text of the test. Texts of the user stand in it as Python literals."""
    references = {}
    for point in record["points"]:
        it = point["seconds"]
        spread = max(LEAST, it["high"] / it["value"] - 1) if it["value"] else LEAST
        references[point["ranks"]] = (round(1e3 * it["value"], 6), None, round(SLOWER + spread, 3))
    repeated = ["--repeats", str(record["rounds"])]
    name = "Hpckit" + "".join(
        word.title() for word in re.findall(r"[A-Za-z0-9]+", f"{record['title']} {record['kind']}")
    )
    return TEMPLATE.format(
        title=_comment(record["title"]),
        kind=record["kind"],
        cpu=_comment(record["machine"]["cpu"]),
        command=_comment(record["provenance"]["command"]),
        counts=[point["ranks"] for point in record["points"] if not point["oversubscribed"]] or [1],
        words=json.dumps([record["target"], *record["settings"]]),
        options=json.dumps([f"--{record['kind']}", "--steps", str(record["steps"]), *repeated, *UNASKED]),
        references=repr(references),
        name=name,
        descr=json.dumps(f"{record['title']}, {record['kind']} scaling"),
    )


def _comment(text: str) -> str:
    """A text that ends no docstring."""
    return text.replace("\\", "/").replace('"', "'").replace("\n", " ")

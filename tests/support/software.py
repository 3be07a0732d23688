"""A small catalogue of invented tools, an environment that offers the adviser's tools on it, and parts of episodes."""

from viewbox import BaseMultiTurnEnv
from viewbox.envs.software_adviser.catalogue import SoftwareTool
from viewbox.envs.software_adviser.repositories import Repositories
from viewbox.envs.software_adviser.retrieval import Retriever
from viewbox.envs.software_adviser.tools import ADVISER_TOOLS, MAX_TOTAL_CALLS, SearchContext


def make_tool(name, tasks=("segmentation",), modalities=("CT",), dimensions=("3D",), formats=("DICOM",), **more):
    given = {"features": "Does what it says.", "repository": f"https://github.com/owner/{name.lower()}", **more}
    return SoftwareTool(name=name, tasks=tasks, modalities=modalities, dimensions=dimensions, formats=formats, **given)


TOOLS = (
    make_tool("Cutter", formats=("DICOM", "NIfTI"), features="Outlines organs in scans of the body."),
    make_tool("Twin", formats=("NIfTI",), features="Outlines organs in scans of the body."),
    make_tool("Glow", modalities=("fluorescence",), dimensions=("2D",), formats=("TIFF",), features="Outlines nuclei."),
    make_tool("Tracer", ("tracking",), ("fluorescence",), ("2D+t",), ("TIFF",), features="Follows cells."),
    make_tool("Hush", ("denoising",), ("MR",), features="Takes noise away.", gpu="yes"),
    make_tool("Calm", ("denoising",), ("MR",), features="Takes noise away.", gpu="no", demo="https://calm.example/try"),
    make_tool("Nameless", ("de-identification",), ("any",), ("2D", "3D"), features="Hides who a patient is."),
)


class Advice(BaseMultiTurnEnv):
    """The adviser's tools, what the environment fills in, and plain text as the answer."""

    name = "advice"
    tools = (*ADVISER_TOOLS, "zoom")
    max_turns = 25
    max_total_calls = MAX_TOTAL_CALLS
    boundary = False
    retriever = Retriever(TOOLS)
    repositories = Repositories({})

    def default_reward(self):
        return lambda answer, reference: 1.0

    def tools_of(self, task):
        return tuple(name for name in super().tools_of(task) if name not in task.metadata.get("disabled", ()))

    def hidden_arguments(self, task, tool):
        if tool == "repo_info_batch":
            return {"repositories": self.repositories}
        keys = {key: task.metadata[key] for key in ("top_k", "exclude", "formats") if key in task.metadata}
        return {"context": SearchContext(self.retriever, max_chars=self.max_tool_chars, **keys)}


def find_task(env, category, several=False):
    """The first task of a category; with several suitable tools, if that is asked for."""
    return next(task for task in env.tasks[:300] if task.reference["category"] == category
                and (not several or len(task.reference["suitable"]) > 2))  # fmt: skip


def search_of(env, task):
    """The reply of the oracle that searches first."""
    return next(reply for reply in env.oracle(task) if "search_tools" in reply)


def choose(*names, accuracy=100, **fields):
    return {"choices": [{"name": name, "accuracy": accuracy, **fields} for name in names]}

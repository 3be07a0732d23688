"""The table of the commands of `viewbox`.

A row names a function, whose module is imported when the command runs. `command_builder.py` makes a command of a row.
"""

from . import figures
from .command_builder import Command, CommandGroup

COMMANDS: dict[str, Command | CommandGroup] = {
    "ask": Command(
        "cli.ask:ask",
        'viewbox ask chest_xray film.dcm "Is there an effusion?" --model package:tiny_chest\n'
        'viewbox ask vqa a.png b.png "Which is larger?" --endpoint http://127.0.0.1:8000/v1 --model my-model',
    ),
    "train": Command(
        "cli.play:train",
        "viewbox train quickstart train.seed=1",
        context={"ignore_unknown_options": True, "help_option_names": []},
    ),
    "rollout": Command(
        "cli.play:rollout",
        "viewbox rollout --env digits --endpoint http://127.0.0.1:8000/v1 --model my-model env.noise=3\n"
        "viewbox rollout --config quickstart --model package:tiny_viewer --tasks 50",
    ),
    "evaluate": Command(
        "cli.play:evaluate",
        "viewbox evaluate --config quickstart --model runs/quickstart-seed0/model --tasks 200",
        figures.show_evaluation,
    ),
    "score": Command(
        "rollouts.scoring.rescore:score_run",
        "viewbox score runs/quickstart-seed0 --reward strict.yaml --where 'info.step>=90'",
        figures.show_scores,
        failed=lambda report: int(report.skipped > 0),
    ),
    "view": Command("cli.episodes:view", "viewbox view runs/quickstart-seed0\nviewbox view quickstart env.noise=3"),
    "compare": Command(
        "rollouts.scoring.compare:compare_runs",
        "viewbox compare runs/base runs/tuned --by reference.label --format markdown",
        figures.show_comparison,
        failed=lambda found: int(bool(found.a.unreadable or found.b.unreadable)) if found.tasks else 2,
    ),
    "export": Command(
        "cli.episodes:export",
        "viewbox export runs/a --to sft --where 'reward>=0.8' --out good.parquet\n"
        "viewbox export runs/a --to run --where 'reward>=0.8' --best 2 --per-task --out runs/a-best\n"
        "viewbox export quickstart --to verl --out quickstart-verl",
    ),
    "import": Command("cli.episodes:import_", "viewbox import outputs/traces.jsonl --from verifiers --out runs/theirs"),
    "runs": CommandGroup(
        "List runs with their figures.\n\nExample: `viewbox runs`, or `viewbox runs FOLDER --format markdown`",
        {
            "list": Command(
                "rollouts.listing:list_runs",
                "viewbox runs list runs --format markdown",
                figures.show_runs,
                failed=lambda found: (
                    int(any([found.broken, *(run.skipped for run in found.runs)])) if found.runs or found.broken else 2
                ),
            )
        },
        default="list",
    ),
    "reward": CommandGroup(
        "Try a reward on one answer.",
        {
            "try": Command(
                "cli.reward:try_reward",
                """viewbox reward try reward.yaml --answer '{"label": "six"}' --reference '{"label": "seven"}'""",
                figures.show_trial,
                failed=lambda trial: int(bool(trial.problems)),
            )
        },
    ),
    "tools": CommandGroup(
        "Print the built-in tools, or try them on an image.\n\nExample: `viewbox tools`",
        {
            "list": Command("cli.tools:list_tools", "viewbox tools"),
            "try": Command("cli.tools:try_tools", "viewbox tools try scan.dcm zoom factor=2 crop box=0.1,0.1,0.5,0.5"),
            "mcp": Command(
                "cli.tools:list_mcp_tools",
                "viewbox tools mcp --picture image python -m hospital.server",
                context={"allow_interspersed_args": False},
            ),
        },
        default="list",
    ),
    "data": CommandGroup(
        "Look at the tasks of a config before training on them.\n\nExample: `viewbox data show quickstart`",
        {
            "check": Command("cli.data:check", "viewbox data check vqa_rad --path data/vqa-rad"),
            "show": Command("cli.data:show", "viewbox data show quickstart --tasks 4"),
        },
    ),
    "new": Command("cli.publish:new", "viewbox new bright-discs && viewbox check bright-discs"),
    "check": Command("cli.publish:check", "viewbox check bright-discs"),
    "publish": Command(
        "cli.publish:publish",
        "viewbox publish digits my-digits --set split=test\n"
        "viewbox publish digits --to prime --id me/my-digits\n"
        "viewbox publish runs/quickstart --to hf --id me/my-model",
    ),
    "openenv": Command(
        "cli.publish:openenv", "viewbox openenv digits --set split=test\nviewbox openenv digits --write digits-server"
    ),
    "config": CommandGroup(
        "Print what a config can set, and what it needs.\n\nExample: `viewbox config | less`",
        {
            "list": Command("cli.config:list_settings", "viewbox config | less"),
            "envs": Command("cli.config:list_environments", "viewbox config envs"),
            "memory": Command("cli.config:memory", "viewbox config memory qwen3_vl_4b_lora --device-memory 24GiB"),
        },
        default="list",
    ),
}

"""Tasks from data: rows of files and datasets, mapped to tasks by a block of YAML."""

from viewbox.envs.data.env import DataEnv
from viewbox.envs.data.fields import MappedRow, TaskField
from viewbox.envs.data.settings import DataSettings

__all__ = ["DataEnv", "DataSettings", "MappedRow", "TaskField"]

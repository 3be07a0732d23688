"""Tasks from data: rows of files and datasets, mapped to tasks by a block of YAML."""

from .env import DataEnv
from .fields import MappedRow, TaskField
from .settings import DataSettings

__all__ = ["DataEnv", "DataSettings", "MappedRow", "TaskField"]

"""What YAML may say about each reward: one model a class, its keys those of the class."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from viewbox.rewards.box_formats import Format, Frame
from viewbox.rewards.episode import PENALTIES, FormatReward, ToolUseReward
from viewbox.rewards.exact_match import ExactMatchReward
from viewbox.rewards.iou import IoUReward
from viewbox.rewards.label_set_f1 import LabelSetF1Reward
from viewbox.rewards.ranking import Metric, RankingReward
from viewbox.rewards.token_f1 import TokenF1Reward

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1)]


class Spec(BaseModel):
    """What every reward may say."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    weight: NotNegative | None = None  # its share of the combined reward it stands in; nowhere else
    needs: dict[Name, Annotated[float, Field(gt=0, le=1)]] = {}  # of the components beside it; nowhere else
    name: Name | None = None


class FieldSpec(Spec):
    """Of a reward that compares a field of the answer with one of the reference."""

    makes: ClassVar[type[Any]]
    field: Name
    reference_field: Name | None = None


class ExactMatchSpec(FieldSpec):
    makes = ExactMatchReward
    type: Literal["exact_match"]
    field: Name = "label"
    aliases: dict[str, list[str]] = {}
    tolerance: NotNegative | None = None


class TokenF1Spec(FieldSpec):
    makes = TokenF1Reward
    type: Literal["token_f1"]
    stop_words: bool | list[str] = False
    negation_scope: bool = True

    @field_validator("stop_words", mode="before")
    @classmethod
    def _one_of_both(cls, value: Any) -> Any:
        if not isinstance(value, bool | list | tuple):
            raise ValueError("allowed: true, false or a list of words")
        return value


class IoUSpec(FieldSpec):
    makes = IoUReward
    type: Literal["iou"]
    field: Name = "bbox"
    format: Format = "xyxy"
    threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    area_penalty: NotNegative = 0.0
    box_key: Name | None = None
    label_key: Name | None = None
    frame: Frame = "unit"
    reference_frame: Frame | None = None
    size_field: Name | None = None


class LabelSetF1Spec(FieldSpec):
    makes = LabelSetF1Reward
    type: Literal["label_set_f1"]
    field: Name = "labels"
    aliases: dict[str, list[str]] = {}
    item_key: Name | None = None


class RankingSpec(FieldSpec):
    makes = RankingReward
    type: Literal["ranking"]
    field: Name = "choices"
    metric: Metric = "mrr"
    k: Annotated[int, Field(ge=1)] | None = None
    item_key: Name | None = None


class FormatSpec(Spec):
    makes: ClassVar[type[Any]] = FormatReward
    type: Literal["format"]
    penalties: dict[Name, Share] = dict(PENALTIES)
    malformed: Share = 0.25


class ToolUseSpec(Spec):
    makes: ClassVar[type[Any]] = ToolUseReward
    type: Literal["tool_use"]
    at_least: Annotated[int, Field(ge=0)] | None = None
    at_most: Annotated[int, Field(ge=0)] | None = None
    tools: list[Name] | None = None

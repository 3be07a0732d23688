"""What a vLLM server is sent and what its reply says, at `POST /inference/v1/generate` (vLLM 0.31 and later).

A request holds one placeholder for each image and the images themselves; the server repeats each placeholder as often
as its image has tokens. vLLM does not refuse ids and images that do not fit together: it places the images elsewhere
and answers. So the ids of the prompt that it used are read back, and must be those of ours.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from ...configs.sections import SamplingParams
from ...images.ref import ImageRef
from ...network.errors import UnusableReplyError
from ...network.http import parse_body
from ..generator import ReplyError
from ..hf.chat_tokens import ChatTokens
from .generator import SampledTokens, TokenRequest

T = TypeVar("T")
NEVER = -100.0  # added to the logit of a token that a policy may not sample
OTHER_PROMPT = (
    "usually its image processor has other pixel bounds than ours (give the server `--mm-processor-kwargs`), or its "
    "model is another one"
)


def fold_ids(ids: Sequence[int], images: Sequence[ImageRef], tokens: ChatTokens) -> list[int]:
    """Return the ids with the placeholder of each image, as a chat template writes it, in place of what stands for
    it. Whitespace around it may be part of its neighbors. Raise `ReplyError` if the placeholders are not of these
    images."""
    folded, rest = list[int](), list(ids)
    for _, text in map(tokens.pixel_cache.describe, images):
        before, after = text.split(text.strip())
        expected = tokens.encode_plain(text.strip())
        start = rest.index(tokens.image_id) - expected.index(tokens.image_id) if tokens.image_id in rest else -1
        if start < 0 or rest[start : start + len(expected)] != expected:
            break
        head, rest = rest[:start], rest[start + len(expected) :]
        last = _count_tokens_of(before, head[::-1], tokens)
        ending = tokens.decode_all(head[len(head) - last :]).removesuffix(before)
        folded += head[: len(head) - last] + tokens.encode_plain(ending + tokens.architecture.placeholder)
        first = _count_tokens_of(after, rest, tokens)
        rest = tokens.encode_plain(tokens.decode_all(rest[:first]).removeprefix(after)) + rest[first:]
    else:
        if tokens.image_id not in rest:
            return folded + rest
    counts = [tokens.count_image_tokens(image) for image in images]
    raise ReplyError(
        f"the history has {list(ids).count(tokens.image_id)} image placeholders, its {len(counts)} images have "
        f"{sum(counts)} tokens: a placeholder was sampled, or an image is missing"
    )


def _count_tokens_of(space: str, ids: Sequence[int], tokens: ChatTokens) -> int:
    """Return how many of `ids` hold at least as much text as `space`."""
    return next((n for n in range(len(ids) + 1) if len(tokens.decode_all(ids[:n])) >= len(space)), len(ids))


def build_request(
    model: str, request: TokenRequest, tokens: ChatTokens, sampling: SamplingParams, *, bans: bool = False
) -> dict[str, Any]:
    """Return the body of a request. With `bans`, placeholders cannot be sampled; the log-probs are then a little
    higher. Raise `ImageError`, or `ReplyError` if ids and images do not fit together."""
    body: dict[str, Any] = {
        "model": model,
        "token_ids": fold_ids(request.ids, request.images, tokens),
        "return_token_ids": True,
        "sampling_params": {
            "n": 1,
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            "logprobs": 0,
            "skip_special_tokens": False,
            "stop_token_ids": sorted(tokens.stop_ids),
            **({"logit_bias": {str(token): NEVER for token in tokens.never_sampled}} if bans else {}),
            **sampling.model_dump(mode="json", exclude={"stop"}),
            **({"stop": list(sampling.stop)} if sampling.stop else {}),
        },
    }
    if request.images:
        body["content_parts"] = [
            {"type": "image_url", "url": image.render().to_data_url(), "uuid": image.hash} for image in request.images
        ]
    return body


class _LogProb(Struct):
    """vLLM 0.31 names a token "token_id:7" under `token`, later versions write 7 under `token_id`."""

    logprob: Any = None
    token: Any = None
    token_id: Any = None


class _LogProbs(Struct):
    content: list[_LogProb] | None = None


class _Weights(Struct):
    version: Any = None


class _ServedChoice(Struct):
    token_ids: list[Any]
    finish_reason: Any = None
    logprobs: _LogProbs | None = None
    weight_versions: list[_Weights] | None = None  # of each part of a reply, since they may change in its middle


class _Generated(Struct):
    choices: Annotated[list[_ServedChoice], Meta(min_length=1, max_length=1)]
    prompt_token_ids: list[Any] | None = None


def read_as(body: bytes, shape: type[T], name: str) -> T:
    """Return the JSON of a server as a `shape`. Raise `UnusableReplyError` if it has another one."""
    try:
        return msgspec.convert(parse_body(body, finite=False), shape)  # of log-probs, see `is_logprob`
    except msgspec.ValidationError as error:
        raise UnusableReplyError(f"{name} is malformed: {error}") from None
    except (ValueError, RecursionError):
        raise UnusableReplyError(f"{name} is not JSON") from None


def parse_generated(body: bytes, ids: Sequence[int], version: str | None = None) -> SampledTokens:
    """Return what was sampled after `ids`, by weights of this version (None: any).
    Raise `UnusableReplyError` if the reply is malformed, cut off, or of other weights: another attempt may help; and
    `ReplyError` if the server's prompt was not ours, or the log-probs are of other tokens."""
    reply = read_as(body, _Generated, "the reply")
    (choice,) = reply.choices
    _check_prompt(reply.prompt_token_ids, ids)
    versions = [item.version for item in choice.weight_versions or ()]
    if version is not None and (not versions or versions != [version] * len(versions)):
        said = ", ".join(f"{item!s:.40}" for item in versions[:4]) or "no version"
        raise UnusableReplyError(f"the reply was sampled by weights of {said}; wanted: {version}")
    if choice.finish_reason not in ("stop", "length"):
        raise UnusableReplyError(f"the reply was cut off ({choice.finish_reason!s:.40})")
    content = None if choice.logprobs is None else choice.logprobs.content
    if content is None:
        return SampledTokens(choice.token_ids, None)
    named = [item.token if item.token_id is None else item.token_id for item in content]
    pairs = zip(named, choice.token_ids, strict=False)
    if len(named) == len(choice.token_ids) and any(name not in (item, f"token_id:{item}") for name, item in pairs):
        raise ReplyError("the server sent the log-probs of other tokens than it sampled")
    return SampledTokens(choice.token_ids, [item.logprob for item in content])


def _check_prompt(found: list[Any] | None, ids: Sequence[int]) -> None:
    if found is None:
        allowed = "vLLM 0.31 or later"
        raise ReplyError(f"the server does not return the ids of its prompt (`prompt_token_ids`); allowed: {allowed}")
    if found != list(ids):
        pairs = enumerate(zip(ids, found, strict=False))
        place = next((n for n, (ours, its) in pairs if ours != its), min(len(ids), len(found)))
        raise ReplyError(
            f"the server's prompt has {len(found)} tokens and ours {len(ids)}; they differ first at token {place}: "
            f"{OTHER_PROMPT}"
        )

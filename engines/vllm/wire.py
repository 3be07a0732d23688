"""What a vLLM server is sent and what its reply says, at `POST /inference/v1/generate` (vLLM 0.31 and later).

A request holds one placeholder for each image and the images themselves; the server repeats each placeholder as often
as its image has tokens. vLLM does not refuse ids and images that do not fit together: it places the images elsewhere
and answers. So the ids of the prompt that it used are read back, and must be those of ours.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...configs.sections import SamplingParams
from ...images.ref import ImageRef
from ...network.body import parse_body
from ...network.errors import UnusableReplyError
from ..generator import ReplyError
from ..hf.chat_tokens import ChatTokens
from .generator import SampledTokens, TokenRequest

NEVER = -100.0  # added to the logit of a token that a policy may not sample
OTHER_PROMPT = (
    "usually its image processor has other pixel bounds than ours (give the server `--mm-processor-kwargs`), or its "
    "model is another one"
)


def fold_ids(ids: Sequence[int], counts: Sequence[int], image_id: int) -> list[int]:
    """The ids with one placeholder for each image.

    Args:
        ids: each image as many placeholders as it has tokens.
        counts: the tokens of each image, in order.
        image_id: the placeholder.

    Raises:
        ReplyError: the placeholders are not those of these images.

    >>> fold_ids([1, 9, 9, 9, 2, 9, 3], [3, 1], image_id=9)
    [1, 9, 2, 9, 3]
    """
    folded, place, left = [], 0, iter(counts)
    while place < len(ids):
        length = 1
        if ids[place] == image_id:
            length = next(left, 0)
            if not length or any(token != image_id for token in ids[place : place + length]):
                break
        folded.append(ids[place])
        place += length
    if place != len(ids) or next(left, None) is not None:
        raise ReplyError(
            f"the history has {sum(token == image_id for token in ids)} image placeholders, its {len(counts)} images "
            f"have {sum(counts)} tokens: a placeholder was sampled, or an image is missing"
        )
    return folded


def build_request(
    model: str,
    request: TokenRequest,
    tokens: ChatTokens,
    sampling: SamplingParams,
    stop: Sequence[str] = (),
    *,
    bans: bool = False,
) -> dict[str, Any]:
    """The body of a request.

    With `bans`, image placeholders cannot be sampled. The log-probs are then those of what is left, so they are a
    little higher than the model's.

    Raises:
        ImageError: an image cannot be opened.
        ReplyError: ids and images do not fit together.
    """
    counts = [tokens.count_image_tokens(image) for image in request.images]
    body: dict[str, Any] = {
        "model": model,
        "token_ids": fold_ids(request.ids, counts, tokens.image_id),
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
            **({"stop": list(stop)} if stop else {}),
        },
    }
    if request.images:
        body["content_parts"] = [
            {"type": "image_url", "url": _to_rgb(image).to_data_url(), "uuid": image.hash} for image in request.images
        ]
    return body


def _to_rgb(image: ImageRef) -> ImageRef:
    """The image as our processor sees it: a server would put transparent pixels on white."""
    return image if image.mode in ("L", "RGB") else ImageRef.of(image.open().convert("RGB"))


def parse_generated(body: bytes, ids: Sequence[int], version: str | None = None) -> SampledTokens:
    """What was sampled after `ids`.

    Args:
        body: of the server's reply.
        ids: of the prompt, each image as many placeholders as it has tokens.
        version: of the weights that must have sampled it; None: any.

    Raises:
        UnusableReplyError: the reply is malformed, cut off, or of other weights; another attempt may help.
        ReplyError: the server's prompt was another one than ours, or is missing; or the log-probs are of other tokens.
    """
    try:
        data = parse_body(body)
    except (ValueError, RecursionError):
        raise UnusableReplyError("the reply is not JSON") from None
    choices = data.get("choices") if isinstance(data, dict) else None
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    if not isinstance(data, dict) or not isinstance(choice, dict) or not isinstance(choice.get("token_ids"), list):
        raise UnusableReplyError("the reply has no single choice with token ids")
    _check_prompt(data.get("prompt_token_ids"), ids)
    if version is not None:
        _check_version(choice.get("weight_versions"), version)
    if choice.get("finish_reason") not in ("stop", "length"):
        raise UnusableReplyError(f"the reply was cut off ({choice.get('finish_reason')!s:.40})")
    return SampledTokens(choice["token_ids"], _read_logprobs(choice))


def _check_prompt(found: Any, ids: Sequence[int]) -> None:
    if found is None:
        raise ReplyError(
            "the server does not return the ids of its prompt (`prompt_token_ids`); allowed: vLLM 0.31 or later"
        )
    if not isinstance(found, list):
        raise UnusableReplyError("the ids of the server's prompt are no list")
    if found == list(ids):
        return
    place = next((n for n, (ours, its) in enumerate(zip(ids, found, strict=False)) if ours != its), None)
    where = f"first at token {min(len(ids), len(found)) if place is None else place}"
    raise ReplyError(
        f"the server's prompt has {len(found)} tokens and ours {len(ids)}; they differ {where}: {OTHER_PROMPT}"
    )


def _check_version(spans: Any, version: str) -> None:
    """vLLM names the weights of each part of a reply, since they may change in its middle."""
    found = [span.get("version") for span in spans if isinstance(span, dict)] if isinstance(spans, list) else []
    if found != [version] * len(found) or not found:
        said = ", ".join(f"{one!s:.40}" for one in found[:4]) or "no version"
        raise UnusableReplyError(f"the reply was sampled by weights of {said}; wanted: {version}")


def _read_logprobs(choice: Mapping[str, Any]) -> list[Any] | None:
    """The log-probs; vLLM 0.31 names a token "token_id:7" under `token`, later versions write 7 under `token_id`."""
    content = choice.get("logprobs")
    content = content.get("content") if isinstance(content, dict) else None
    if not isinstance(content, list):
        return None
    if any(not isinstance(entry, dict) for entry in content):
        raise UnusableReplyError("the log-probs are malformed")
    named = [entry.get("token_id", entry.get("token")) for entry in content]
    wanted = choice["token_ids"]
    if len(named) == len(wanted) and any(
        name not in (token, f"token_id:{token}") for name, token in zip(named, wanted, strict=True)
    ):
        raise ReplyError("the server sent the log-probs of other tokens than it sampled")
    return [entry.get("logprob") for entry in content]


def encode_body(body: Mapping[str, Any]) -> bytes:
    """The body as JSON. Every attempt sends the same, seed included: what was lost on the way is sampled again."""
    return json.dumps(body).encode()

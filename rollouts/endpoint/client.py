"""Any OpenAI-compatible endpoint as a generator; `connection.py` sends the requests."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from viewbox.configs.sections import SamplingParams
from viewbox.envs.messages import ToolImages, render_tools, to_openai_messages
from viewbox.frozen import thaw
from viewbox.network.body import parse_body
from viewbox.network.connection import MAX_ATTEMPTS, MAX_BODY, UNUSABLE_STATUS
from viewbox.network.data_policy import check_sending
from viewbox.records import Reply, RunConfig
from viewbox.rollouts.endpoint.connection import Connection, EndpointError
from viewbox.rollouts.endpoint.http import build_completions_url, encode_request
from viewbox.rollouts.endpoint.replies import Completion, assign_call_ids, parse_completion
from viewbox.rollouts.generator import Conversation, Load
from viewbox.rollouts.store.run_folder import get_versions

if TYPE_CHECKING:  # it imports torch
    from viewbox.rollouts.endpoint.token_check import TokenCheck

__all__ = ["UNUSABLE_STATUS", "EndpointError", "OpenAIGenerator"]

SERVER_SAMPLING = SamplingParams()  # no field is set, so the server's defaults apply


class OpenAIGenerator:
    """Replies from `POST <endpoint>/chat/completions`.

    If the environment's `reply_format` is "native", tool schemas are sent in the field `tools`; on the last turn with
    `tool_choice: none`. Otherwise the system message teaches them, and calls are parsed from the text. Token counts are
    summed in `conversation.info["usage"]`, failed attempts in `info["failed_attempts"]`.

    Args:
        endpoint: base URL, such as `http://127.0.0.1:8000/v1`; without a path, `/v1` is added.
        model: its name at the endpoint.
        api_key: sent as a bearer token.
        sampling: only the fields that were set are sent; the server chooses the others.
        max_tokens: limit of one reply; None: the server's.
        tool_images: which message carries the image of a tool result (see `viewbox.envs.messages`).
        token_check: compares each prompt with that of our engine; None: nothing is compared.
        extra: fields merged into every request; None removes a field (such as `seed`, if a server refuses it).
        attempts: attempts for one reply, the first included.
        first_pause: seconds before the second attempt.
        max_body: limit of a reply's body, in bytes.

    Raises:
        ConfigError: the endpoint is not a URL, or the key cannot be sent, or not safely.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        *,
        api_key: str | None = None,
        sampling: SamplingParams = SERVER_SAMPLING,
        max_tokens: int | None = None,
        tool_images: ToolImages = "user",
        token_check: "TokenCheck | None" = None,
        extra: Mapping[str, Any] | None = None,
        attempts: int = MAX_ATTEMPTS,
        first_pause: float = 0.5,
        max_body: int = MAX_BODY,
    ) -> None:
        self.url, self.model = build_completions_url(endpoint), model
        self.sampling, self.max_tokens = sampling, max_tokens
        self.tool_images, self.extra = tool_images, dict(extra or {})
        self.token_check = token_check
        sent = sampling.model_dump(include={"temperature"}, exclude_unset=True) | self.extra
        temperature, max_tokens = sent.get("temperature"), self.extra.get("max_tokens", max_tokens)
        self.run_config = RunConfig(
            model_name=model, temperature=temperature, max_tokens=max_tokens, versions=get_versions()
        )
        self.connection = Connection(
            self.url,
            subject=f"model {model!r}",
            api_key=api_key,
            extra=self.extra,
            attempts=attempts,
            first_pause=first_pause,
            max_body=max_body,
        )
        self._tokens: int | None = None  # of all replies, if the server counts them

    # ------------------------------------------------------------------ the Generator protocol
    def join(self, conversation: Conversation) -> None: ...

    def leave(self, conversation: Conversation) -> None:
        if self.token_check is not None:
            self.token_check.forget(conversation)

    async def close(self) -> None:
        await self.connection.close()

    def get_load(self) -> Load:
        return Load(self.connection.in_flight, tokens=self._tokens)

    async def reply(self, conversation: Conversation) -> Reply:
        check_sending(self.url)
        request, check, body = await asyncio.to_thread(self.build_request, conversation), self.token_check, b""
        if check is not None:
            request["return_token_ids"] = True
            expected = await asyncio.to_thread(check.expect, conversation)

        def parse(received: bytes) -> Completion:
            nonlocal body
            body = received
            return parse_completion(received)

        completion = await self.connection.post(
            lambda attempt: encode_request(request, attempt),
            parse,
            deadline=conversation.deadline,
            info=conversation.info,
        )
        if check is not None:
            await asyncio.to_thread(lambda: check.compare(conversation, expected, parse_body(body)))
        self._add_usage(conversation.info, completion.usage)
        taken = {call.id for message in conversation.messages for call in message.tool_calls}
        calls = assign_call_ids(completion.calls, taken, f"t{len(conversation.messages):05}")
        return Reply(completion.text, calls, completion.finish_reason)

    def build_request(self, conversation: Conversation) -> dict[str, Any]:
        """The request for the next reply of a conversation. Raises `ImageError`."""
        messages = to_openai_messages(conversation.visible_messages, tool_images=self.tool_images, text_calls=True)
        turn = len(conversation.messages)
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens}
        body["seed"] = (conversation.seed * 31 + turn) % 2**31
        sampling = self.sampling.model_dump(mode="json", exclude_unset=True)
        body |= {name: value for name, value in sampling.items() if value != []}
        if conversation.reply_format != "native":
            messages[0]["content"] += render_tools(conversation.tools, conversation.reply_format, conversation.prompts)
        elif conversation.tools:
            body["tools"] = [thaw(tool) for tool in conversation.tools]
            if conversation.last_turn:  # left out, they would change the prompt that the model was trained on
                body["tool_choice"] = "none"
        return {key: value for key, value in (body | self.extra).items() if value is not None}

    def _add_usage(self, info: dict[str, Any], usage: Mapping[str, int]) -> None:
        """Adds a reply's token counts, if the server counts them, to those of the episode and of all replies."""
        total = info.setdefault("usage", {"prompt_tokens": 0, "completion_tokens": 0}) if usage else {}
        for name, count in usage.items():
            total[name] += count
        if "completion_tokens" in usage:
            self._tokens = (self._tokens or 0) + usage["completion_tokens"]

"""Which episodes can be trained on, and the row that stands for one that cannot."""

from ...records import Episode, EpisodeTokens
from .chat_tokens import ChatTokens


def describe_mismatch(episode: EpisodeTokens, tokens: ChatTokens) -> str | None:
    """Why an episode cannot be trained on: it has more or fewer image tokens than its images need. None if it can."""
    ids = (*episode.prompt_ids, *episode.completion_ids)
    placeholders = ids.count(tokens.image_id)
    features = sum(tokens.count_image_tokens(image) for image in episode.images)
    if placeholders == features:
        return None
    return f"{placeholders} image tokens for {features} image features ({len(episode.images)} images)"


def describe_problem(episode: Episode, tokens: ChatTokens) -> str | None:
    """Why an episode teaches nothing; None if it does.

    A fault of the environment and a reward that fails say nothing about the policy. `max_turns`, `max_tokens` and
    `malformed` are its own doing.
    """
    if (problem := episode.explain_missing_score()) is not None:
        return problem
    if episode.tokens is None or not episode.tokens.completion_ids:
        return f"no tokens (end: {episode.end_reason})"
    return describe_mismatch(episode.tokens, tokens)


def build_stand_in(tokens: ChatTokens) -> EpisodeTokens:
    """The row of an episode that teaches nothing: no image, and no token to learn."""
    end = (tokens.end_id,)
    return EpisodeTokens(end, end, (0,), (0.0,))

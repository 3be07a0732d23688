"""Episodes of a tiny family made by hand, and their log-probs by the simplest code there is: the right values."""

import numpy as np
import torch

from tests.support.families import build_family
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.images.ref import ImageRef
from viewbox.records import EpisodeTokens
from viewbox.training.grpo.batch import collate, collect_pixels
from viewbox.training.grpo.logprobs import EpisodeLogProbs

SIZES = (48, 64), (64, 32), (96, 64)  # of the pictures
# groups: what is in their prompt, and then in each episode; a number is so many tokens of text, "a" to "c" a picture
GROUPS = (
    ([39, "a", 18], [[20], [34, "b", 31], [6, "b", 5, "c", 7]]),  # a picture in the prompt, others in later turns
    ([31], [[8, "a", 9], [47]]),  # none in the prompt
    ([5, "b", 1, "c", 6], [[12]]),  # two
    ([1], [[7, "c", 4]]),  # a prompt of one token
)


class FamilyKit:
    """A tiny family: its model, its tokens and episodes."""

    def __init__(self, name, dtype=torch.float32):
        self.model, processor = build_family(name)
        self.model.set_experts_implementation("eager")  # others compute no float64
        self.model.to(dtype)
        self.tokens = ChatTokens(processor, self.model.config, self.model.generation_config)
        self.architecture = self.tokens.architecture
        self.draw = torch.Generator().manual_seed(0)
        special = {*processor.tokenizer.all_special_ids, *processor.tokenizer.added_tokens_decoder}
        self.words = [i for i in range(len(processor.tokenizer)) if i not in special]
        noise = np.random.default_rng(0)
        pictures = [noise.integers(0, 256, (height, width, 3), dtype=np.uint8) for width, height in SIZES]
        self.pictures = {name: ImageRef.of(picture) for name, picture in zip("abc", pictures, strict=True)}

    def write(self, plan):
        """Ids of a plan, and its pictures; random words."""
        ids, images = [], []
        for part in plan:
            if isinstance(part, int):
                ids += [self.words[k] for k in torch.randint(len(self.words), (part,), generator=self.draw)]
            else:
                images.append(self.pictures[part])
                text = self.tokens.get_pixels(images[-1]).text
                ids += self.tokens.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids, images

    def make_episodes(self, groups=GROUPS):
        """Every word of a completion but its first two is a sampled token."""
        episodes = []
        for prompt, rests in groups:
            before, shown = self.write(prompt)
            for rest in rests:
                after, seen = self.write(rest)
                mask = [int(k > 1 and i in self.words) for k, i in enumerate(after)]
                given = tuple(before), tuple(after), tuple(mask), (0.0,) * len(after)
                episodes.append(EpisodeTokens(*given, images=(*shown, *seen), prompt_images=len(shown)))
        return episodes

    def score(self, model, batch, episodes, temperature=1.0, cache=None):
        """(log-probs, entropies) by the code under test."""
        pixels, tokens = collect_pixels(episodes, self.tokens), self.tokens
        scorer = EpisodeLogProbs(model, tokens.architecture, tokens.image_id, tokens.pad_id, temperature, pixels, cache)
        return scorer(batch)

    def score_plainly(self, model, episodes, width, temperature=1.0):
        """(log-probs, entropies): each episode alone in one plain forward of the whole model, with its pixels."""
        rows = []
        for episode in episodes:
            ids = torch.tensor([[*episode.prompt_ids, *episode.completion_ids]])
            pixels = [self.tokens.get_pixels(image) for image in episode.images]
            vision = self.architecture.build_vision_inputs(pixels, "cpu", model.dtype)
            types = self.architecture.build_token_types(ids)
            logits = model(input_ids=ids, use_cache=False, **types, **vision).logits[0].float() / temperature
            logp = torch.log_softmax(logits[len(episode.prompt_ids) - 1 : -1], dim=-1)
            mask = torch.tensor(episode.mask)
            chosen = logp.gather(1, torch.tensor(episode.completion_ids)[:, None])[:, 0] * mask
            pair = torch.stack([chosen, -(logp.exp() * logp).sum(-1) * mask])
            rows.append(torch.nn.functional.pad(pair, (0, width - pair.shape[1])))
        return torch.stack(rows, 1)

    def collate(self, episodes):
        return collate(episodes, self.tokens)


def compute_gradient(model, logps, entropies):
    """The gradient of some loss over both, one vector over all weights."""
    model.zero_grad()
    weights = torch.linspace(-1, 1, logps.numel()).view(logps.shape)
    (weights * logps + weights.flip(0) * entropies.square()).sum().backward()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()])

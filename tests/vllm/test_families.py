"""Each family: the ids that vLLM's own multimodal processor makes of what we send are the ids of our prompt."""

import pytest
from tokenizers import AddedToken
from vllm.config import ModelConfig
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import ProcessorInputs, TimingContext

from tests.engines.vllm.test_family_requests import PICTURES
from tests.support.families import FAMILIES, build_family
from tests.support.vllm_process import save_as_released
from viewbox.core.messages import Message
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.vllm import wire


@pytest.fixture(params=FAMILIES)
def family(request, tmp_path):
    model, processor = build_family(request.param)
    if request.param == "gemma3":  # as in the released vocabulary, where vLLM looks for them
        processor.tokenizer.add_tokens([AddedToken("\n" * count, normalized=False) for count in range(1, 5)])
        model.resize_token_embeddings(len(processor.tokenizer))
    save_as_released(request.param, model, processor, tmp_path)
    return tmp_path, ChatTokens(processor, model.config, model.generation_config)


def test_vllm_expands_what_it_is_sent_to_the_ids_of_our_engine(family):
    folder, tokens = family
    question = Message("user", (PICTURES[0], "\nWhat is this?\n", PICTURES[1], "Say.\n"))
    ids, images = tokens.encode_prompt([Message("system", ("You look.",)), question], [])
    said = [*tokens.tokenizer("zoom it\n", add_special_tokens=False)["input_ids"], tokens.end_id]
    seen, more = tokens.encode_observation([Message("tool", ("Result:", PICTURES[2], PICTURES[0]))], ended=True)
    ids, images = [*ids, *said, *seen], [*images, *more]
    config = ModelConfig(str(folder), dtype="float32", limit_mm_per_prompt={"image": 8}, enforce_eager=True)
    processor = MULTIMODAL_REGISTRY.create_processor(config)
    items = processor.info.parse_mm_data({"image": [image.open().convert("RGB") for image in images]})
    sent = wire.fold_ids(ids, images, tokens)
    assert len(sent) < len(ids)
    found = processor.apply(ProcessorInputs(prompt=sent, mm_data_items=items), TimingContext())
    assert list(found["prompt_token_ids"]) == ids

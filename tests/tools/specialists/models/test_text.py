"""`kind: text` on a real tiny model, compared with a plain `generate`."""

import json
import shutil

import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    BertConfig,
    BertLMHeadModel,
    BertTokenizerFast,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
    ViTModel,
)

from tests.support.refusals import check_refusal
from tests.support.specialist_env import call, get_picture, get_results, offer
from tests.support.tiny_specialists import save_gemma3
from viewbox.errors import ToolFault


@pytest.fixture(scope="module")
def folder(tmp_path_factory, qwen3):
    folder = tmp_path_factory.mktemp("vlm")
    model = qwen3.model()
    model.lm_head.bias = None  # no such model has one
    model.save_pretrained(folder)
    qwen3.processor.save_pretrained(folder)
    return str(folder)


def make(folder, **spec):
    spec = {"max_new_tokens": 12, "timeout": 60.0, **spec}
    return offer("text", folder, settings={"on_tool_fault": "end"}, **spec)


def write(folder, env, prompt, task=0):
    """The text of a plain `generate`."""
    processor, model = AutoProcessor.from_pretrained(folder), AutoModelForImageTextToText.from_pretrained(folder).eval()
    picture = get_picture(env, task)
    messages = [{"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": prompt}]}]
    form = {"tokenize": True, "return_dict": True, "return_tensors": "pt"}
    inputs = processor.apply_chat_template(messages, add_generation_prompt=True, **form)
    with torch.inference_mode():
        tokens = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    return processor.batch_decode(tokens[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)[0].strip()


def test_a_question_is_answered_as_the_model_does_also_by_one_built_as_medgemma(folder, tmp_path):
    for path, question in ((folder, "which digit is it"), (save_gemma3(tmp_path), "is it left")):
        env = make(path)
        (result,) = get_results(env, call("look", question=question))
        assert result.text == write(path, env, question)
        assert len(result.text) > 5


def test_a_chat_template_in_the_tokenizer_is_used(folder, tmp_path):
    """https://github.com/sgl-project/SpecForge/pull/480"""
    shutil.copytree(folder, tmp_path / "model")
    template, config = tmp_path / "model" / "chat_template.jinja", tmp_path / "model" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": template.read_text()}))
    template.unlink()
    (result,) = get_results(make(str(tmp_path / "model")), call("look", question="which digit is it"))
    assert result.text == write(folder, make(folder), "which digit is it")


def test_tokens_without_a_row_in_the_embedding_are_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    rows = json.loads((tmp_path / "model" / "config.json").read_text())["text_config"]["vocab_size"]
    tokenizer.add_tokens([f"<loc{number}>" for number in range(rows)])
    tokenizer.save_pretrained(tmp_path / "model")
    says = f", its embedding {rows} rows"
    check_refusal(make(str(tmp_path / "model")).prepare, "specialists.look.model", "tokenizer has tokens up to ", says)


def test_a_caption_and_a_report_need_no_question_and_a_prompt_may_stand_around_one(folder):
    prompt = "Describe the image"
    env = make(folder, task="report", prompt=prompt)
    (result,) = get_results(env, call("look"))
    assert result.text == write(folder, env, prompt)
    schema = env.tool_schemas[0]["function"]
    assert list(schema["parameters"]["properties"]) == ["image"]
    assert schema["description"] == "Writes a report of a picture: findings and impression."
    env = make(folder, prompt="Answer briefly: {question} Now.")
    (result,) = get_results(env, call("look", question="one or two?"))
    assert result.text == write(folder, env, "Answer briefly: one or two? Now.")


def test_questions_of_different_lengths_in_a_batch_have_the_answers_that_each_has_alone(folder):
    questions = ["which digit", "which digit is it", "which label", "find the digit and its box in the image"]
    env = make(folder, wait=10.0, max_batch=4)
    together = get_results(env, *[call("look", question=question) for question in questions])
    assert env.toolbox["look"].function.server.batches == [4]
    assert [one.text for one in together] == [write(folder, env, question) for question in questions]


def test_a_question_that_is_none_and_numbers_that_are_not_finite_are_errors(folder):
    env = make(folder)
    for question in ["  ", "why " * 1000]:
        (result,) = get_results(env, call("look", question=question))
        assert "allowed: 1 to 2000" in result.error
    env.prepare()
    env.toolbox["look"].function.server.runner.model.lm_head.weight[3] = float("nan")
    with pytest.raises(ToolFault, match="look gave numbers that are not finite"):
        get_results(env, call("look", question="which digit"))


# ---- VisionEncoderDecoder: most open report generators
def save_report_writer(folder):
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "no", "effusion", "left", "."]
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(3)
    model = VisionEncoderDecoderModel(
        encoder=ViTModel(ViTConfig(image_size=32, patch_size=16, **sizes)),
        decoder=BertLMHeadModel(BertConfig(vocab_size=9, is_decoder=True, add_cross_attention=True, **sizes)),
    )
    model.save_pretrained(folder)  # like the public ones, it does not say with which token a text begins
    BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return str(folder)


def test_a_report_generator_that_reads_the_picture_alone_writes_what_it_writes_by_itself(tmp_path):
    folder = save_report_writer(tmp_path / "ved")
    env = make(folder, task="report")
    (result,) = get_results(env, call("look"))
    pixels = ViTImageProcessor.from_pretrained(folder)(get_picture(env), return_tensors="pt").pixel_values
    model, words = VisionEncoderDecoderModel.from_pretrained(folder).eval(), BertTokenizerFast.from_pretrained(folder)
    ends = {"decoder_start_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    tokens = model.generate(pixels, max_new_tokens=12, do_sample=False, **ends)
    assert result.text == (words.batch_decode(tokens, skip_special_tokens=True)[0].strip() or "(no words)")

    says = "look.prompt = null: the model reads pictures only"
    check_refusal(make(folder).prepare, "specialists.look.prompt", says)
    begun = torch.tensor([[2, 7, 6, 8]])  # its prompt is what it begins with, and no part of what it says
    tokens = model.generate(pixels, max_new_tokens=12, do_sample=False, decoder_input_ids=begun, **ends)
    (result,) = get_results(make(folder, prompt="left {question}."), call("look", question="effusion"))
    assert result.text == (words.batch_decode(tokens[:, 4:], skip_special_tokens=True)[0].strip() or "(no words)")

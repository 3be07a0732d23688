"""Embedding models and cross-encoders of a search, by the names of folders with tiny random models."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from tests.support.software import TOOLS
from tests.support.tiny_specialists import widen
from viewbox.envs.software_adviser.retrieval import RetrievalSettings, Retriever, write_record, write_text
from viewbox.errors import ConfigError, ToolFault
from viewbox.tools.specialists.models.text_models import ModelEncoder

pytestmark = pytest.mark.slow
WORDS = sorted(
    {word for tool in TOOLS for word in write_text(write_record(tool)).replace(".", " ").replace(",", " ").split()}
)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def make_tokenizer():
    vocabulary = {
        word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", "outline", *WORDS])
    }
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks)


def save(folder, model):
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def make_config(**more):
    return BertConfig(vocab_size=len(WORDS) + 6, max_position_embeddings=64, **SIZES, **more)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("encoder"), widen(BertModel(make_config())))


@pytest.fixture(scope="module")
def crossing(tmp_path_factory):
    return save(tmp_path_factory.mktemp("crossing"), widen(BertForSequenceClassification(make_config(num_labels=1))))


def add_modules(folder, pooling):
    """Files as sentence-transformers writes them beside a model."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    rows = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (name, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **pooling}))


def encode_alone(folder, text, pooling="mean"):
    model, tokenizer = BertModel.from_pretrained(folder).eval(), make_tokenizer()
    with torch.no_grad():
        hidden = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=64)).last_hidden_state[0]
    vector = (hidden[0] if pooling == "cls" else hidden.mean(0)).numpy()
    return vector / np.linalg.norm(vector)


def build_encoder(folder, **settings):
    return ModelEncoder({"model": folder, "device": "cpu", **settings})


def test_vectors_are_those_of_the_model_whatever_stands_beside_them_and_prefixes_stand_before_texts(encoder):
    texts = [write_text(write_record(tool)) for tool in TOOLS]
    vectors = build_encoder(encoder).encode([*texts, "organs", texts[0]])
    assert vectors.shape == (len(TOOLS) + 2, 32)
    for text, vector in zip([*texts, "organs"], vectors, strict=False):
        np.testing.assert_allclose(vector, encode_alone(encoder, text), atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[-1])
    model = build_encoder(encoder, query_prefix="query ", text_prefix="organs ")
    np.testing.assert_allclose(model.encode_query("cells"), encode_alone(encoder, "query cells"), atol=1e-5)
    np.testing.assert_allclose(model.encode(["cells"])[0], encode_alone(encoder, "organs cells"), atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
def test_the_checkpoint_says_how_its_vectors_are_pooled(tmp_path, pooling, expected):
    folder = save(tmp_path, widen(BertModel(make_config())))
    add_modules(tmp_path, pooling)
    vector = build_encoder(folder).encode_query("organs Outlines")
    np.testing.assert_allclose(vector, encode_alone(folder, "organs Outlines", expected), atol=1e-5)


def test_a_checkpoint_that_cannot_be_used_and_settings_that_cannot_be_are_named(tmp_path, encoder):
    several = save(tmp_path / "several", BertForSequenceClassification(make_config(num_labels=3)))
    foreign = save(tmp_path / "foreign", BertModel(make_config()))
    rows = [{"idx": 0, "name": "0", "path": "", "type": "antigravity.fly"}]  # a class of another package
    (tmp_path / "foreign" / "modules.json").write_text(json.dumps(rows))
    for settings, key, words in [
        ({"embedding": foreign}, "embedding.model", "cannot be loaded"),
        ({"embedding": "./none"}, "embedding.model", "no such folder"),
        ({"embedding": {"model": "a", "devise": "cpu"}}, "embedding.devise", "device"),
        ({"embedding": {}}, "embedding.model", "missing"),
        ({"reranker": {"model": "./none"}}, "reranker.model", "no such folder"),
        ({"reranker": several}, "reranker.model", "with 3 outputs; allowed: a classifier"),
        ({"reranker": encoder}, "reranker.model", "it is BertModel"),
    ]:
        with pytest.raises(ConfigError, match=words) as caught:
            Retriever(TOOLS, RetrievalSettings(**settings)).prepare()
        assert caught.value.key == f"retrieval.{key}"


def test_a_checkpoint_without_a_pooler_and_another_family_are_taken_and_vectors_not_finite_are_an_error(tmp_path):
    config = RobertaConfig(vocab_size=len(WORDS) + 6, max_position_embeddings=66, pad_token_id=0, **SIZES)
    for model in (BertModel(make_config(), add_pooling_layer=False), RobertaModel(config)):
        folder = save(tmp_path / type(model).__name__, model)
        assert np.isfinite(build_encoder(folder).encode(["organs " * 500, ""])).all()
    model = BertModel(make_config())
    torch.nn.init.constant_(model.embeddings.LayerNorm.weight, float("nan"))
    with pytest.raises(ToolFault, match="the search failed"):
        build_encoder(save(tmp_path / "nan", model)).encode(["organs"])


def test_a_search_with_models_is_deterministic_in_threads_and_keeps_exclusions(encoder, crossing):
    embedding = {"model": encoder, "device": "cpu", "wait": 0.0}
    settings = RetrievalSettings(embedding=embedding, reranker={"model": crossing, "device": "cpu"})
    retriever = Retriever(TOOLS, settings)

    def search(_=None):
        return retriever.search("outline organs", top_k=5, exclude=["twin"], formats=["DICOM"])

    expected = search()
    assert len(expected) == 5
    assert "Twin" not in expected
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(search, range(8))) == [expected] * 8


def test_a_cross_encoder_decides_the_order_and_reads_the_formats(crossing):
    model, tokenizer = BertForSequenceClassification.from_pretrained(crossing).eval(), make_tokenizer()
    retriever = Retriever(TOOLS, RetrievalSettings(embedding="none", reranker={"model": crossing, "device": "cpu"}))
    names = retriever.search("outline organs", top_k=7, formats=["NIfTI"])
    assert len(names) > 1
    scores = []
    for name in names:
        text = write_text(write_record(retriever.by_name[name]))
        pair = tokenizer("outline organs (NIfTI)", text, return_tensors="pt", truncation=True, max_length=64)
        with torch.no_grad():
            scores.append(round(model(**pair).logits.item(), 4))
    assert scores == sorted(scores, reverse=True)


def test_torch_is_loaded_only_if_a_model_is_named():
    code = """
import sys
from tests.support.software import TOOLS
from viewbox.envs.software_adviser.retrieval import Retriever
Retriever(TOOLS).search("organs", top_k=3)
print([name for name in ("torch", "transformers") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr

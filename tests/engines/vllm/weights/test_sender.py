"""Weights on their way to a server: which tensors, which version, and servers that lose, refuse or half take them."""

import threading
import time

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.support.servers import hang_up, make_response
from tests.support.tables import each
from tests.support.vllm_server import TrainedVLLM
from viewbox.configs.schema import load, parse
from viewbox.configs.sections import ModelSection
from viewbox.engines.generator import GeneratorError
from viewbox.engines.hf import loading
from viewbox.engines.hf.adapters import use_merged_adapters
from viewbox.engines.openai.client import EndpointError
from viewbox.engines.table import get_engine
from viewbox.engines.vllm.weights import HEAD, WeightSender, iterate_weights, split_tensors
from viewbox.errors import ConfigError
from viewbox.training.findings import check
from viewbox.training.memory.forecast import predict
from viewbox.training.plan import Plan

UPDATE = [
    "/pause?mode=wait", "/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache",
    "/reset_mm_cache", "/reset_encoder_cache", "/resume",
]  # fmt: skip


@pytest.fixture
def policy(qwen3):
    return qwen3.model(seed=1)


@pytest.fixture
def served(qwen3):
    return TrainedVLLM(qwen3.model(seed=0), qwen3.processor)


async def find_model():
    return "policy"


@pytest.fixture
def make_sender(tmp_path):
    def make(url, **settings):
        return WeightSender(url, tmp_path / "weights", find_model, **{"wait": 5.0, "pause": 0.05} | settings)

    return make


def equal_weights(model, other):
    pairs = zip(model.state_dict().items(), other.state_dict().items(), strict=True)
    return all(name == twin and torch.equal(a, b) for (name, a), (twin, b) in pairs)


# What is sent of merged adapters, name by name: `test_family_requests.py`
def test_the_head_is_sent_also_where_it_is_the_embedding_and_adapters_that_are_not_merged_are_refused(policy):
    model = loading.load_model(ModelSection(name="package:tiny_viewer"))
    sent = dict(iterate_weights(model))
    assert model.config.get_text_config().tie_word_embeddings
    assert torch.equal(sent[HEAD], model.get_input_embeddings().weight)
    parts = [name for part in split_tensors(sent.items(), 2**31) for name in part]
    assert sorted(parts) == sorted(sent)
    adapted = get_peft_model(policy, LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(ConfigError, match="cannot be merged for the server"):
        list(iterate_weights(adapted))


@pytest.mark.parametrize(("weights", "server"), [("bfloat16", None), ("float32", "bfloat16")])
def test_what_a_two_byte_server_gets_holds_small_changes_on_average(policy, weights, server):
    on_grid = policy.to(torch.bfloat16).to(getattr(torch, weights))  # as checkpoints of real models are
    adapted = get_peft_model(on_grid, LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False))
    layer = adapted.base_model.model.model.language_model.layers[0].mlp.down_proj
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data *= 1e-3
    before = layer.base_layer.weight.detach().double()
    exact = 2 * (layer.lora_B["default"].weight.double() @ layer.lora_A["default"].weight.double())  # alpha / r = 8 / 4
    end = "layers.0.mlp.down_proj.base_layer.weight"
    name = next(name for name, _ in policy.named_parameters() if name.endswith(end)).replace(".base_layer", "")
    dtype = server and getattr(torch, server)
    with use_merged_adapters(adapted):
        rounds = [dict(iterate_weights(adapted, dtype, seed))[name] for seed in range(100)]
        again = dict(iterate_weights(adapted, dtype, 7))[name]
    assert {one.dtype for one in rounds} == {torch.bfloat16}
    assert torch.equal(again, rounds[7])
    assert not torch.equal(rounds[6], rounds[7])
    mean = torch.stack([one.double() for one in rounds]).mean(0) - before
    assert ((mean * exact).sum() / exact.square().sum()).item() == pytest.approx(1, abs=0.05)
    nearest = (before + exact).to(torch.bfloat16).double() - before
    assert ((nearest * exact).sum() / exact.square().sum()).item() < 0.7  # what rounding to the nearest would leave


def test_a_server_that_says_its_precision_is_sent_weights_rounded_for_it(served, policy, make_sender):
    adapted = get_peft_model(policy, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    served.dtype = "torch.bfloat16"
    with served.serve() as server, use_merged_adapters(adapted):
        sender = make_sender(server.url)
        sender.send(adapted, key=3)
    sent = {name for name, tensor in served.loaded.items() if tensor.dtype == torch.bfloat16}
    assert sent == {name for name in served.loaded if name.endswith("q_proj.weight") and "visual" not in name}


# ---------------------------------------------------------------------- when, and with which version
def test_a_server_has_the_new_weights_also_after_a_restart(served, policy, make_sender, tmp_path, qwen3):
    with served.serve() as server:
        sender = make_sender(server.url)
        found = sender.send(policy)
        assert equal_weights(served.model, policy)
        assert (found.model, found.version) == ("policy", served.version)
        assert served.calls == ["/init_weight_transfer_engine", *UPDATE]
        assert not list((tmp_path / "weights").iterdir())
        first = sender.send(policy, key=1)
        assert sender.send(policy, key=1) == first
        assert sender.num_sent == 2
        versions = {found.version, first.version, sender.send(policy, key=2).version, sender.send(policy).version}
    assert len(versions) == 4
    assert served.calls.count("/init_weight_transfer_engine") == 1
    with served.serve() as server:
        sender = make_sender(server.url)
        sender.send(policy, key=1)
        port = server.server_port
    again = TrainedVLLM(qwen3.model(seed=0), qwen3.processor)
    with again.serve(port):
        found = sender.send(policy, key=1)
    assert equal_weights(again.model, policy)
    assert again.version == found.version
    assert again.calls[0] == "/init_weight_transfer_engine"


# ---------------------------------------------------------------------- servers in trouble
def test_a_server_is_waited_for_or_ends_the_run(served, policy, make_sender, tmp_path):
    with served.serve() as server:
        port = server.server_port
    sender = make_sender(f"http://127.0.0.1:{port}", wait=30.0)
    found = []
    thread = threading.Thread(target=lambda: found.append(sender.send(policy)))
    thread.start()
    time.sleep(0.3)
    assert not found
    with served.serve(port):
        thread.join(30)
    assert found
    assert equal_weights(served.model, policy)
    with served.serve() as server:
        url = server.url
    with pytest.raises(GeneratorError, match=r"no weights could be sent for 0 s: .*the run can be resumed"):
        make_sender(url, wait=0.2).send(policy)

    async def check():
        raise EndpointError("raw log-probs")

    with served.serve() as server, pytest.raises(EndpointError, match="raw log-probs"):
        WeightSender(server.url, tmp_path, check).send(policy)


@pytest.mark.parametrize("path", ["/pause?mode=wait", "/update_weights", "/finish_weight_update", "/resume"])
def test_an_update_that_breaks_off_is_made_again_from_its_beginning(served, policy, make_sender, path):
    def break_once(body, answer):
        nonlocal broken
        if not broken:
            broken = True
            return hang_up if path == "/update_weights" else make_response(500, {"error": "engine died"})
        return answer(body)

    with served.serve() as server:
        sender = make_sender(server.url)
        sender.send(served.model, key=1)
        broken, whole = False, server.by_path[path]
        server.by_path[path] = lambda body: break_once(body, whole)
        found = sender.send(policy, key=1 if path == "/resume" else 2)
        if path == "/resume":  # the key is that of the last call, so nothing was sent
            found = sender.send(policy, key=2)
    assert equal_weights(served.model, policy)
    assert found.version == served.version
    assert not served.is_paused


def test_a_server_that_takes_no_weights_or_keeps_its_version_is_refused(served, policy, make_sender):
    info = "/server_info?config_format=json"
    with served.serve() as server:
        for path, answer, says in (
            (info, {"vllm_config": {}}, "its backend is None"),
            (info, [], "its backend is None"),
            (info, {"vllm_config": {"weight_transfer_config": {"backend": "nccl"}}}, "nccl"),
            ("/weight_info", make_response(404, "Not Found"), "VLLM_SERVER_DEV_MODE=1"),
        ):
            server.by_path[path] = lambda body, answer=answer: answer
            with pytest.raises(ConfigError, match="weight-transfer-config") as caught:
                make_sender(server.url).send(policy)
            assert says in str(caught.value)
    with served.serve() as server:
        server.by_path["/finish_weight_update"] = lambda body: {}
        with pytest.raises(GeneratorError, match="the server has the weights default after those of"):
            make_sender(server.url, wait=0.3).send(policy)


# ---------------------------------------------------------------------- settings
UNFIT = [
    ("model.tiny", {"model": {"tiny": {}}}), ("lora.quantize", {"lora": {"quantize": "4bit"}}),
    *((f"rollout.{name}", {"rollout": {name: value}}) for name, value in (
        ("top_p", 0.9), ("url", "here"), ("tool_wait_timeout", 1.0))),
]  # fmt: skip


@each("key, sections", UNFIT)
def test_settings_that_do_not_fit_a_server_are_named(key, sections):
    rollout = {"engine": "vllm", "url": "http://127.0.0.1:8000"} | sections.get("rollout", {})
    config = {"model": {"name": "m"}, "env": {"name": "digits"}, **sections, "rollout": rollout}
    with pytest.raises(ConfigError) as caught:
        get_engine("vllm").check(parse(config), ())
    assert caught.value.key == key


def test_the_plan_says_where_the_episodes_come_from_and_counts_no_memory_for_them():
    small = ("model.name=package:tiny_viewer", "env.num_tasks=64", "train.per_device_train_batch_size=8")
    given = (*small, "log.eval_tasks=8", "rollout={engine: vllm, url: 'http://127.0.0.1:8000'}")
    plan = check(Plan(load("quickstart", given)))
    assert "sampled by the vLLM server at http://127.0.0.1:8000, which is sent pictures and weights" in str(plan.lines)
    assert [phase.name for phase in predict(plan).phases] == ["update"]

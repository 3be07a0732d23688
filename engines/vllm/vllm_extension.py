"""Runs inside a vLLM server: takes new weights from files of safetensors.

    VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server …
        --worker-extension-cls viewbox.engines.vllm.vllm_extension.FileWeights
        --weight-transfer-config '{"backend": "file"}'

For a server that shares a file system with the trainer and has no NCCL connection to it, such as one on the same
machine. Of vLLM 0.32 it uses the interface of weight-transfer engines (`vllm.distributed.weight_transfer`), and from
`vllm.model_executor.model_loader.reload` the two functions with which vLLM's own NCCL engine begins and ends an update;
`tests/vllm/test_weights.py` checks them.
"""

from dataclasses import dataclass

from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload


class FileWeights:
    """The class that `--worker-extension-cls` names; importing it registers the engine "file"."""


@dataclass
class FileInit(WeightTransferInitInfo):
    """Nothing is agreed on beforehand."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """`path` names a file of safetensors with some of the weights."""

    path: str = ""


class FileEngine(WeightTransferEngine):
    """Loads each file that an update names; names and layouts are those of a checkpoint."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None: ...

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdate, load_weights: object = None) -> None:
        self.model.load_weights(load_file(update_info.path).items())

    def update_weights(self, update_info: object) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None: ...

    @staticmethod
    def trainer_send_weights(*args: object, **kwargs: object) -> None: ...

    @staticmethod
    def trainer_init(*args: object, **kwargs: object) -> None: ...


WeightTransferEngineFactory.register_engine("file", FileEngine)

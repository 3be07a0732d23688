"""Serves models that want an environment of their own as `http` specialists: here those of TorchXRayVision.

    pip install torchxrayvision
    python examples/specialist_server.py --port 9000 classify segment
    viewbox rollout --config examples/medrax.yaml --model … --tasks 5

A POST of {"pictures": {"image": "data:image/png;base64,…"}} to /classify or /segment is answered with JSON. Pictures
are prepared as the package's own page says: the middle square, 224 or 512 pixels a side, values in [-1024, 1024].
`seen` is that square, in fractions of the picture. A model of yours is one more function in `MODELS`.
"""

import argparse
import base64
import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

import numpy as np
import torch
import torchxrayvision as xrv
from PIL import Image


def prepare(picture: Image.Image, size: int) -> torch.Tensor:
    """Return (1, 1, size, size) in [-1024, 1024]."""
    film = xrv.utils.normalize(np.asarray(picture.convert("L")), 255)[None]
    return torch.from_numpy(xrv.datasets.XRayResizer(size)(xrv.datasets.XRayCenterCrop()(film)))[None]


def find_square(width: int, height: int) -> tuple[int, int, int]:
    """Return left, top and side of what `XRayCenterCrop` keeps."""
    side = min(width, height)
    return width // 2 - side // 2, height // 2 - side // 2, side


def build_classifier(weights: str = "densenet121-res224-all", cache: str | None = None) -> Any:
    model = xrv.models.DenseNet(weights=weights, cache_dir=cache).eval()

    def classify(picture: Image.Image, arguments: dict[str, Any]) -> dict[str, Any]:
        scores = model(prepare(picture, 224))[0].tolist()
        found = {name: round(score, 4) for name, score in zip(model.pathologies, scores, strict=True) if name}
        ordered = sorted(found.items(), key=lambda item: -item[1])
        return {"summary": "0.5 is the operating point of each finding", "findings": dict(ordered)}

    return classify


def build_segmenter(cache: str | None = None) -> Any:
    model = xrv.baseline_models.chestx_det.PSPNet(cache_dir=cache).eval()

    def segment(picture: Image.Image, arguments: dict[str, Any]) -> dict[str, Any]:
        left, top, side = find_square(*picture.size)
        shares = torch.sigmoid(model(prepare(picture, 512)))
        shares = torch.nn.functional.interpolate(shares, size=(side, side), mode="bilinear", antialias=side < 512)[0]
        regions = []
        for name, share in zip(model.targets, shares.numpy(), strict=True):
            mask = np.zeros(picture.size[::-1], np.uint8)
            mask[top : top + side, left : left + side] = 255 * (share > 0.5)
            if mask.any() and arguments.get("part", name) == name:
                regions.append({"label": name, "mask": encode(Image.fromarray(mask))})
        return {"summary": f"{len(regions)} regions", "regions": regions}

    return segment


MODELS = {"classify": build_classifier, "segment": build_segmenter}


def encode(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def serve(names: list[str], port: int = 9000, **options: Any) -> ThreadingHTTPServer:
    models = {name: (MODELS[name](**options), Lock()) for name in names}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, {"models": list(models)})

        def do_POST(self) -> None:
            try:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                run, lock = models[self.path.strip("/")]
                content = base64.b64decode(body["pictures"]["image"].rpartition(",")[2])
                picture = Image.open(io.BytesIO(content), formats=["PNG"])
                arguments = body.get("arguments") or {}
            except (KeyError, TypeError, ValueError, OSError) as error:
                return self.reply(400, {"error": f"not a call: {type(error).__name__}"})
            with lock, torch.inference_mode():
                result = run(picture, arguments)
            left, top, side = find_square(*picture.size)
            width, height = picture.size
            seen = [left / width, top / height, (left + side) / width, (top + side) / height]
            self.reply(200, {**result, "seen": seen})

        def reply(self, status: int, value: Any) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=list(MODELS))
    parser.add_argument("--port", type=int, default=9000)
    given = parser.parse_args()
    serve(given.models, given.port).serve_forever()

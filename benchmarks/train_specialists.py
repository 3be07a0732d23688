"""Trains four tiny specialists on drawn chest films, and measures them on others: classifier, segmenter, grounder, and
a writer of reports that also answers questions.

    python benchmarks/train_specialists.py --out build/chest_specialists --films 1600

Each is saved as a folder of float16 safetensors that the kinds `classification`, `segmentation`, `grounding` and `text`
load. `--calibrate FOLDER` scales and shifts the last layer of a classifier that was trained on other films.
Their films are neither those of `chest_xray`'s split train nor of its split test. NAME.json
beside it says how good it is.
"""

import argparse
import json
import re
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

import cv2
import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, interpolate
from torchvision.ops import generalized_box_iou
from transformers import (
    BertConfig,
    BertLMHeadModel,
    OwlViTConfig,
    OwlViTForObjectDetection,
    OwlViTImageProcessor,
    OwlViTProcessor,
    PreTrainedTokenizerFast,
    ResNetConfig,
    ResNetForImageClassification,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SegformerImageProcessor,
    SegformerModel,
    VisionEncoderDecoderModel,
    ViTImageProcessor,
)

from viewbox.envs.chest_xray.radiographs import DISPLAY, LABELS, SIDES, Finding, draw_film
from viewbox.images.ref import ImageRef
from viewbox.images.source import Source
from viewbox.rewards.iou import compute_iou
from viewbox.tools.specialists.models.model import Known

FIRST_SEED = 2**30  # between the two splits of the environment
SIZE, CLASSIFY_SIZE, GROUND_SIZE, PATCH = 128, 64, 96, 12
REGIONS = ("background", "right lung", "left lung", "heart", "effusion", "pneumothorax", "consolidation", "nodule")
PHRASES = (*LABELS, "heart", "left lung", "right lung",
           *(f"{side} {label}" for side in SIDES for label in LABELS if label != "cardiomegaly"))  # fmt: skip
CHUNK = 50


# ---------------------------------------------------------------------- films
def draw_one(number: int):
    """(picture (SIZE, SIZE) uint8, labels (5,), regions (SIZE, SIZE) uint8, [(phrase, box)])."""
    rng = np.random.default_rng([FIRST_SEED, number])
    chosen = rng.permutation(len(LABELS))[: rng.integers(4)]
    findings = tuple(draw_finding(LABELS[i], number, rng) for i in chosen)
    film = draw_film(FIRST_SEED + number, findings, difficulty=0.3)
    source = Source.of(film.pixels, display=DISPLAY)
    picture = cv2.resize(source.to_uint8(film.pixels), (SIZE, SIZE), interpolation=cv2.INTER_AREA)
    labels = np.array([any(one.label == label for one in findings) for label in LABELS], np.float32)
    regions = np.zeros(film.pixels.shape, np.uint8)
    boxes = []
    for name in ("right lung", "left lung", "heart"):
        regions[film.masks[name]] = REGIONS.index(name)
        boxes.append((name, find_box(film.masks[name])))
    for one in film.findings:
        if one.side is not None:
            regions[one.mask] = REGIONS.index(one.label)
            boxes.append((f"{one.side} {one.label}", one.box))
        boxes.append((one.label, one.box))
    small = cv2.resize(regions, (SIZE, SIZE), interpolation=cv2.INTER_NEAREST)
    return picture, labels, small, boxes


def draw_finding(label, number, rng):
    side = SIDES[rng.integers(2)]
    return Finding(label, None if label == "cardiomegaly" else side, float(rng.uniform(0.1, 0.9)), number)


def find_box(mask):
    x, y, width, height = cv2.boundingRect(mask.astype(np.uint8))
    return tuple(float(v) for v in np.array([x, y, x + width, y + height]) / mask.shape[0])


def draw_films(first: int, count: int, path: Path, workers: int):
    """Return the films, drawn once and kept in a file."""
    if not path.exists():
        with ProcessPoolExecutor(workers) as pool:
            drawn = list(pool.map(draw_one, range(first, first + count), chunksize=CHUNK))
        pictures, labels, regions, boxes = zip(*drawn, strict=True)
        np.savez(path, p=np.stack(pictures), l=np.stack(labels), r=np.stack(regions), b=np.array(json.dumps(boxes)))
    kept = np.load(path)
    return kept["p"], kept["l"], kept["r"], json.loads(str(kept["b"]))


def to_pixels(pictures: np.ndarray, size: int = SIZE) -> torch.Tensor:
    """Pictures as the processors give them: (N, 1, size, size), from -1 to 1."""
    pixels = torch.from_numpy(pictures).float()[:, None] / 127.5 - 1
    return pixels if size == SIZE else interpolate(pixels, size=(size, size), mode="bilinear", antialias=True)


def vary(pixels: torch.Tensor) -> torch.Tensor:
    """Another brightness, contrast and noise for each picture."""
    count = len(pixels)
    gain, shift = 1 + 0.15 * torch.randn(count, 1, 1, 1), 0.1 * torch.randn(count, 1, 1, 1)
    return pixels * gain + shift + 0.03 * torch.randn_like(pixels)


def fit(model, compute_loss, count: int, seconds: float, lr: float, batch: int = 32):
    """Train for so many seconds of processor time; the learning rate falls to zero."""
    groups = [
        {"params": [p for name, p in model.named_parameters() if ("box_head" in name) == slow], "scale": scale}
        for slow, scale in ((False, 1.0), (True, 0.3))
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=lr, weight_decay=0.02)
    start, step, losses = time.process_time(), 0, []
    while (share := (time.process_time() - start) / seconds) < 1:
        for part in torch.randperm(count).split(batch):
            share = min(1.0, (time.process_time() - start) / seconds)
            for group in optimizer.param_groups:
                group["lr"] = group["scale"] * lr * min(1.0, (step + 1) / 50) * (1 - share)
            loss = compute_loss(part)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            losses.append(float(loss.detach()))
        print(f"  {share:4.0%} step {step} loss {np.mean(losses[-40:]):.4f}", flush=True)
    model.eval()
    return step


def save(folder: Path, model, processor) -> int:
    """Save a model in float16; returns its bytes."""
    model.half().save_pretrained(folder)
    processor.save_pretrained(folder)
    model.float()
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def describe_known(pictures, rates=(), side=6, slack=1.15):
    """Return what the config of a model says of the pictures that it knows: two thirds give mean and covariance;
    `slack` times the distance within which 99 of 100 of the rest lie is allowed."""
    small = np.stack([cv2.resize(one.astype(np.float32), (side, side), interpolation=cv2.INTER_AREA).ravel()
                      for one in pictures])  # fmt: skip
    small = (small - small.mean(1, keepdims=True)) / small.std(1, keepdims=True)
    first = small[: len(small) * 2 // 3]
    spread = np.cov(first.T)
    spread = 0.95 * spread + 0.05 * np.trace(spread) / len(spread) * np.eye(len(spread))
    values, vectors = np.linalg.eigh(spread)
    mean, whiten = first.mean(0).round(4), (vectors / np.sqrt(values) @ vectors.T).round(3)
    found = Known(mean.tolist(), whiten.tolist(), np.inf)
    rest = [found.measure(ImageRef.of(one)) for one in pictures[len(first) :]]
    at_most = round(slack * float(np.quantile(rest, 0.99)), 3)
    return {**asdict(found), "at_most": at_most, "rates": [round(rate, 3) for rate in rates]}


def name_labels(labels):
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


# ---------------------------------------------------------------------- the three
def train_classifier(train, test, seconds, folder):
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 96], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    several = {"problem_type": "multi_label_classification", **name_labels(LABELS)}
    config = ResNetConfig(num_channels=1, **sizes, **several)
    model = ResNetForImageClassification(config).train()
    pixels, labels = to_pixels(train[0], CLASSIFY_SIZE), torch.from_numpy(train[1])

    def compute_loss(part):
        return binary_cross_entropy_with_logits(model(vary(pixels[part])).logits, labels[part])

    steps = fit(model, compute_loss, len(pixels), seconds, 3e-3)
    with torch.no_grad():
        scores = model(to_pixels(test[0], CLASSIFY_SIZE)).logits.sigmoid().numpy()
    square = {"height": CLASSIFY_SIZE, "width": CLASSIFY_SIZE}
    processor = ViTImageProcessor(size=square, image_mean=[0.5], image_std=[0.5])
    model.config.known = describe_known(train[0], train[1].mean(0).tolist())
    figures = {"steps": steps, "bytes": save(folder, model, processor)}
    for place, label in enumerate(LABELS):
        right, said = test[1][:, place] > 0.5, scores[:, place]
        figures[label] = {
            "auc": measure_auc(said, right),
            "accuracy": round(float(((said > 0.5) == right).mean()), 3),
        }
    return figures


def measure_auc(scores, right):
    """Area under the ROC curve; None where all films are alike."""
    if right.all() or not right.any():
        return None
    above = scores[right][:, None] - scores[~right][None]
    return round(float((above > 0).mean() + 0.5 * (above == 0).mean()), 3)


def train_segmenter(train, test, seconds, folder):
    config = SegformerConfig(num_channels=1, hidden_sizes=[16, 32, 64, 96], depths=[1, 1, 1, 1], sr_ratios=[2, 2, 1, 1],
                             num_attention_heads=[1, 2, 4, 4], mlp_ratios=[2, 2, 2, 2], decoder_hidden_size=64,
                             strides=[4, 2, 2, 2], **name_labels(REGIONS))  # fmt: skip
    model = SegformerForSemanticSegmentation(config).train()
    pixels, regions = to_pixels(train[0]), torch.from_numpy(train[2]).long()
    shares = torch.bincount(regions.flatten(), minlength=len(REGIONS)).float()
    weight = (shares.sum() / shares).sqrt().clamp(max=20)

    def compute_loss(part):
        logits = model(vary(pixels[part])).logits
        return cross_entropy(interpolate(logits, size=(SIZE, SIZE), mode="bilinear"), regions[part], weight=weight)

    steps = fit(model, compute_loss, len(pixels), seconds, 2e-3, batch=16)
    with torch.no_grad():
        logits = torch.cat([model(part).logits for part in to_pixels(test[0]).split(32)])
        found = interpolate(logits, size=(SIZE, SIZE), mode="bilinear").argmax(1).numpy()
    processor = SegformerImageProcessor(size={"height": SIZE, "width": SIZE}, image_mean=[0.5], image_std=[0.5])
    model.config.known = describe_known(train[0])
    figures = {"steps": steps, "bytes": save(folder, model, processor)}
    for number, name in enumerate(REGIONS[1:], 1):
        said, right = found == number, test[2] == number
        both = 2 * (said & right).sum() / max(1, said.sum() + right.sum())
        figures[name] = {"dice": round(float(both), 3)}
    return figures


def build_tokenizer():
    """Return a tokenizer of the words of the phrases. The text model reads its result at the token with the highest
    number."""
    words = sorted({word for phrase in PHRASES for word in phrase.split()})
    vocabulary = {token: i for i, token in enumerate(["!", "<|startoftext|>", "<unk>", *words, "<|endoftext|>"])}
    core = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>",
        special_tokens=[("<|startoftext|>", 1), ("<|endoftext|>", len(vocabulary) - 1)],
    )
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<unk>", "pad_token": "!"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=16, **special)


def train_grounder(train, test, seconds, folder):
    tokenizer = build_tokenizer()
    sizes = {"hidden_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 192}
    text = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 96}
    config = OwlViTConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 16,
            "eos_token_id": len(tokenizer) - 1,
            "bos_token_id": 1,
            "pad_token_id": 0,
            **text,
        },
        vision_config={"image_size": GROUND_SIZE, "patch_size": PATCH, "num_channels": 3, **sizes},
        projection_dim=48,
    )
    model = OwlViTForObjectDetection(config).train()
    with torch.no_grad():  # a score is (cosine + shift) * (elu(scale) + 1): few tokens are right, and cosines are small
        model.class_head.logit_scale.bias.fill_(9.0)
        model.class_head.logit_shift.bias.fill_(-0.4)
        model.box_head.dense2.weight.zero_()  # a box begins at its token; a large start would saturate its sigmoid
        model.box_head.dense2.bias.zero_()
    pixels, every = to_pixels(train[0], GROUND_SIZE).repeat(1, 3, 1, 1), train[3]
    given = tokenizer(list(PHRASES), padding="max_length", max_length=16, return_tensors="pt")
    side = GROUND_SIZE // PATCH
    grid = (torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy"), -1) + 0.5) / side
    centers = grid.reshape(-1, 2)
    rng = np.random.default_rng(0)

    def pick(number):
        """Return a phrase with the boxes it names: three in four times one that the film shows."""
        known = every[number]
        phrase = known[rng.integers(len(known))][0] if rng.random() < 0.75 else PHRASES[rng.integers(len(PHRASES))]
        return phrase, [box for name, box in known if name == phrase]

    def compute_loss(part):
        chosen = [pick(int(number)) for number in part]
        rows = torch.tensor([PHRASES.index(phrase) for phrase, _ in chosen])
        outputs = model(input_ids=given["input_ids"][rows], attention_mask=given["attention_mask"][rows],
                        pixel_values=vary(pixels[part]))  # fmt: skip
        logits, boxes = outputs.logits[..., 0], to_corners(outputs.pred_boxes)
        right = torch.zeros_like(logits)
        losses = []
        for row, (_, golds) in enumerate(chosen):
            for gold in golds:
                target = torch.tensor(gold)
                place = int((centers - (target[:2] + target[2:]) / 2).pow(2).sum(1).argmin())
                right[row, place] = 1
                said = boxes[row, place]
                giou = generalized_box_iou(said[None], target[None])[0, 0]
                losses.append(5 * (said - target).abs().mean() + 1 - giou)
        shares = logits.sigmoid()
        focus = torch.where(right > 0, 1 - shares, shares) ** 2 * torch.where(right > 0, 0.75, 0.25)
        found = (focus * binary_cross_entropy_with_logits(logits, right, reduction="none")).sum() / len(part)
        return 4 * found + (torch.stack(losses).mean() if losses else 0)

    steps = fit(model, compute_loss, len(pixels), seconds, 1.5e-3)
    hits, ious = {phrase: [] for phrase in PHRASES}, {phrase: [] for phrase in PHRASES}
    seen = to_pixels(test[0], GROUND_SIZE).repeat(1, 3, 1, 1)
    with torch.no_grad():
        for number, phrase in enumerate(PHRASES):
            shown = [i for i, known in enumerate(test[3]) if any(name == phrase for name, _ in known)]
            if not shown:
                continue
            ids, mask = (
                given[key][number : number + 1].repeat(len(shown), 1) for key in ("input_ids", "attention_mask")
            )
            outputs = model(input_ids=ids, attention_mask=mask, pixel_values=seen[shown])
            best = outputs.logits[..., 0].argmax(1)
            boxes = to_corners(outputs.pred_boxes)[torch.arange(len(shown)), best].tolist()
            for i, box in zip(shown, boxes, strict=True):
                overlap = max(compute_iou(box, gold) for name, gold in test[3][i] if name == phrase)
                ious[phrase].append(overlap)
                hits[phrase].append(overlap >= 0.5)
    square = {"height": GROUND_SIZE, "width": GROUND_SIZE}
    model.config.known = describe_known(train[0])
    images = OwlViTImageProcessor(size=square, crop_size=square, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    figures = {"steps": steps, "bytes": save(folder, model, OwlViTProcessor(images, tokenizer))}
    for phrase in (*LABELS, "heart", "left lung", "right lung"):
        if not ious[phrase]:
            figures[phrase] = None
            continue
        figures[phrase] = {
            "iou": round(float(np.mean(ious[phrase])), 3),
            "at_0.5": round(float(np.mean(hits[phrase])), 3),
        }
    return figures


# ---------------------------------------------------------------------- the writer
SIDED = (*(f"{side} {label}" for label in LABELS[:4] for side in SIDES), "cardiomegaly")
WRITE_SIZE, CONTEXT = 96, 24  # pixels of a side; tokens of a text
ASKED = ("Does the film show {article} {label}?", "Is there {article} {label}?")
SIDE_ASKED = ("On which side is the {label}?", "Is the {label} left or right?",
              "On which side of the patient is there {article} {label}?")  # fmt: skip
OPEN_ASKED = ("What does the film show?", "What is abnormal?", "Describe the findings.")


def list_sided(boxes):
    """Return the findings of a film with their sides, in the order of `SIDED`."""
    names = {name for name, _ in boxes}
    return [name for name in SIDED if name in names]


def write_report(names):
    return " and ".join(names) if names else "no finding"


def ask_about(names, rng):
    """Return a question about a film, and its answer."""
    label = LABELS[rng.integers(len(LABELS))]
    article = {"effusion": "an", "cardiomegaly": "", "consolidation": ""}.get(label, "a")
    sides = [name.split()[0] for name in names if name.endswith(label)]
    kind = rng.integers(5)
    if kind < 2:
        if label == "cardiomegaly" or rng.random() < 0.6:
            return fill(ASKED, rng, article, label), "yes" if sides else "no"
        side = SIDES[rng.integers(2)]
        return fill(ASKED, rng, f"a {side}", label), "yes" if side in sides else "no"
    if kind < 4 and label != "cardiomegaly":
        return fill(SIDE_ASKED, rng, article, label), "none" if not sides else "both" if len(sides) > 1 else sides[0]
    return fill(OPEN_ASKED, rng, "", ""), write_report(names)


def fill(forms, rng, article, label):
    return " ".join(forms[rng.integers(len(forms))].format(article=article, label=label).split())


def build_words():
    """Return a tokenizer of the words of questions and answers."""
    text = " ".join([*SIDED, *ASKED, *SIDE_ASKED, *OPEN_ASKED, "a an and yes no none both finding"]).lower()
    words = sorted({word for word in re.findall(r"[{a-z]+", text) if word.isalpha()})
    listed = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "?", ".", *words]
    core = Tokenizer(WordLevel({word: number for number, word in enumerate(listed)}, unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = Lowercase(), Whitespace()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=CONTEXT, **special)


def train_writer(train, test, seconds, folder):
    tokenizer = build_words()
    width, ends = 96, {"decoder_start_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    encoder = SegformerConfig(num_channels=1, hidden_sizes=[16, 32, 64, width], depths=[1, 1, 2, 2],
                              sr_ratios=[2, 2, 1, 1], num_attention_heads=[1, 2, 4, 4], mlp_ratios=[2, 2, 2, 2],
                              strides=[4, 2, 2, 1], reshape_last_stage=False, hidden_size=width)  # fmt: skip
    decoder = BertConfig(vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=2, num_attention_heads=4,
                         intermediate_size=192, max_position_embeddings=CONTEXT, is_decoder=True,
                         add_cross_attention=True, hidden_dropout_prob=0.0)  # fmt: skip
    model = VisionEncoderDecoderModel(encoder=SegformerModel(encoder), decoder=BertLMHeadModel(decoder)).train()
    for key, number in ends.items():
        setattr(model.config, key, number)
        setattr(model.generation_config, key, number)
    head = torch.nn.Linear(width, len(SIDED))  # names the sided findings while it learns, so that the encoder sees them
    both = torch.nn.ModuleDict({"model": model, "head": head})
    pixels, every = to_pixels(train[0], WRITE_SIZE), [list_sided(boxes) for boxes in train[3]]
    present = torch.tensor([[name in names for name in SIDED] for names in every], dtype=torch.float32)
    rng = np.random.default_rng(0)

    def encode(number):
        """Return the tokens of a report, or of a question and its answer, and the same with the question hidden."""
        asked, said = ("", write_report(every[number])) if rng.random() < 0.4 else ask_about(every[number], rng)
        begun = [2, *tokenizer(asked, add_special_tokens=False).input_ids]
        tokens = [*begun, *tokenizer(said, add_special_tokens=False).input_ids, 3]
        gap = [0] * (CONTEXT - len(tokens))
        return tokens + gap, [-100] * len(begun) + tokens[len(begun) :] + [-100] * len(gap)

    def compute_loss(part):
        tokens, labels = map(torch.tensor, zip(*(encode(int(number)) for number in part), strict=True))
        seen = model.encoder(vary(pixels[part])).last_hidden_state
        scores = model(encoder_outputs=(seen,), decoder_input_ids=tokens[:, :-1]).logits
        written = cross_entropy(scores.transpose(1, 2), labels[:, 1:], ignore_index=-100)
        return written + 2 * binary_cross_entropy_with_logits(head(seen.mean(1)), present[part])

    steps = fit(both, compute_loss, len(pixels), seconds, 2e-3)
    model.config.known = describe_known(train[0])
    square = {"height": WRITE_SIZE, "width": WRITE_SIZE}
    processor = ViTImageProcessor(size=square, image_mean=[0.5], image_std=[0.5])
    figures = {"steps": steps, "bytes": save(folder, model, processor)}
    tokenizer.save_pretrained(folder)
    return figures | measure_writer(model, tokenizer, test)


def measure_writer(model, tokenizer, test):
    """Return the share of reports that are right as a whole, and of answers that are right by kind of question."""
    pixels, rng, right = to_pixels(test[0], WRITE_SIZE), np.random.default_rng(1), {}
    for number, boxes in enumerate(test[3]):
        names = list_sided(boxes)
        for asked, wanted in (("", write_report(names)), *(ask_about(names, rng) for _ in range(3))):
            begun = torch.tensor([[2, *tokenizer(asked, add_special_tokens=False).input_ids]])
            tokens = model.generate(pixels[number : number + 1], decoder_input_ids=begun, max_new_tokens=16)
            said = tokenizer.decode(tokens[0, begun.shape[1] :], skip_special_tokens=True)
            form = "yes or no" if wanted in ("yes", "no") else "side" if wanted in (*SIDES, "both", "none") else "open"
            right.setdefault(form if asked else "report", []).append(said == wanted)
    return {kind: {"right": round(float(np.mean(one)), 3), "of": len(one)} for kind, one in sorted(right.items())}


def calibrate(folder, train, test):
    """Scale and shift each output of a classifier, so that its probabilities are right on films that are new to it."""
    model = ResNetForImageClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        fitted, others = (model(to_pixels(part[0], CLASSIFY_SIZE)).logits for part in (train, test))
    scale, shift = torch.ones(len(LABELS), requires_grad=True), torch.zeros(len(LABELS), requires_grad=True)
    optimizer = torch.optim.LBFGS([scale, shift], max_iter=200)

    def compute():
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(fitted * scale + shift, torch.from_numpy(train[1]))
        loss.backward()
        return loss

    optimizer.step(compute)
    last = model.classifier[-1]
    with torch.no_grad():
        last.weight.mul_(scale[:, None])
        last.bias.mul_(scale).add_(shift)
    rates = train[1].mean(0).tolist()
    model.config.known = describe_known(train[0], rates)
    model.half().save_pretrained(folder)
    figures = {}
    for name, logits in (("before", others), ("after", others * scale.detach() + shift.detach())):
        shares = logits.sigmoid().numpy()
        figures[name] = {label: measure_errors(shares[:, i], test[1][:, i]) for i, label in enumerate(LABELS)}
    return figures


def measure_errors(shares, right, bins=10):
    """Return the expected error of calibration (Guo et al. 2017) in equal bins, and the accuracy at 0.5."""
    places = np.minimum((shares * bins).astype(int), bins - 1)
    errors = [abs(shares[places == i].mean() - right[places == i].mean()) * (places == i).mean()
              for i in range(bins) if (places == i).any()]  # fmt: skip
    return {"ece": round(float(sum(errors)), 3), "accuracy": round(float(((shares > 0.5) == (right > 0.5)).mean()), 3)}


def to_corners(boxes):
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([center - half, center + half], -1)


TRAINERS = {"classifier": train_classifier, "segmenter": train_segmenter, "grounder": train_grounder,
            "writer": train_writer}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="build/chest_specialists")
    parser.add_argument("--first", type=int, default=0, help="number of the first film")
    parser.add_argument(
        "--calibrate", metavar="FOLDER", help="a classifier that learned from other films; nothing is trained"
    )
    parser.add_argument("--films", type=int, default=1600, help="to train on; a fifth as many to test")
    parser.add_argument("--seconds", type=float, default=180.0, help="of processor time, for each")
    parser.add_argument("--only", choices=[*TRAINERS])
    parser.add_argument("--workers", type=int, default=2, help="processes that draw")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    count = args.films + args.films // 5
    drawn = draw_films(args.first, count, out / f"films_{args.first}_{count}.npz", args.workers)
    train, test = (tuple(part[begin:end] for part in drawn) for begin, end in ((0, args.films), (args.films, count)))
    if args.calibrate:
        print(json.dumps(calibrate(args.calibrate, train, test)))
        return
    found = {}
    for name in [args.only] if args.only else TRAINERS:
        torch.manual_seed(0)
        figures = TRAINERS[name](train, test, args.seconds, out / name)
        (out / f"{name}.json").write_text(
            json.dumps({"films": args.films, "tested": len(test[0]), **figures}, indent=1)
        )
        found[name] = figures
    print(json.dumps(found))


if __name__ == "__main__":
    main()

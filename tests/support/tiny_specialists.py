"""Tiny models of every kind of specialist, with random weights that are drawn wide, saved as folders."""

import numpy as np
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

LABELS = ["clear", "opacity", "effusion"]


def draw(seed=0, size=(48, 32), color=False):
    """A picture of noise, uint8: (height, width), or (height, width, 3)."""
    shape = (*size[::-1], 3) if color else size[::-1]
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def widen(model, seed=0):
    """Draw the weights of a model wide, so that its outputs differ between pictures."""
    torch.manual_seed(seed)
    for weight in model.parameters():
        if weight.ndim >= 2:
            torch.nn.init.normal_(weight, std=0.2)
    return model.eval()


def save(folder, model, processor):
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def save_vit(folder, labels=LABELS, problem_type=None, seed=0, **config):
    """A classifier of 32 x 32 pixels."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    named = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    made = ViTConfig(image_size=32, patch_size=8, problem_type=problem_type, **sizes, **named, **config)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    return save(folder, widen(ViTForImageClassification(made), seed), processor)

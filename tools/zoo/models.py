"""The architectures that people train: models of `transformers`' default configurations at small
sizes, in training mode, with the padding masks that a loop passes. Nothing is downloaded.

`MODELS` has, by name, a function from (seed, size) to (model, loss function, batch). A batch is a
dictionary of tensors whose first dimension counts samples.
"""

import dataclasses

import torch

TOKENS = 97  # in every vocabulary


@dataclasses.dataclass(frozen=True)
class Size:
    rows: int  # of a batch
    length: int  # of a sequence, in tokens
    width: int
    layers: int
    pixels: int  # of an image's side


SMALL = Size(rows=4, length=12, width=32, layers=2, pixels=32)
TIMED = Size(rows=8, length=64, width=256, layers=4, pixels=64)


def _loss(model, batch):
    return model(**batch).loss


def _rng(seed):
    return torch.Generator().manual_seed(seed)


def _tokens(seed, size, length=None):
    """Token ids, their mask (the last samples are shorter, as padding makes them) and labels."""
    length = length or size.length
    ids = torch.randint(3, TOKENS, (size.rows, length), generator=_rng(seed))
    mask = torch.ones_like(ids)
    for row in range(size.rows):
        mask[row, length - row % 4 :] = 0
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _classes(seed, size):
    return torch.randint(0, 5, (size.rows,), generator=_rng(seed + 1000))


def _images(seed, size):
    pixels = torch.randn(size.rows, 3, size.pixels, size.pixels, generator=_rng(seed))
    return {"pixel_values": pixels, "labels": _classes(seed, size)}


def _decoder(kind, **more):
    """A causal language model of width 32 with two layers."""

    def make(seed, size):
        import transformers

        config = getattr(transformers, kind + "Config")(
            vocab_size=TOKENS, hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=4,
            intermediate_size=2 * size.width, max_position_embeddings=128, bos_token_id=1, eos_token_id=2,
            pad_token_id=0, **more)
        config.use_cache = False
        return getattr(transformers, kind + "ForCausalLM")(config), _loss, _tokens(seed, size)

    return make


def gpt2(seed, size):
    import transformers

    config = transformers.GPT2Config(
        vocab_size=TOKENS, n_positions=128, n_embd=size.width, n_layer=size.layers, n_head=4, bos_token_id=1,
        eos_token_id=2, use_cache=False)
    return transformers.GPT2LMHeadModel(config), _loss, _tokens(seed, size)


def mixtral(seed, size):
    import transformers

    # The gradients of the gathered experts add up in any order, on several threads, unless told not to.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    config = transformers.MixtralConfig(
        vocab_size=TOKENS, hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=size.width // 4, num_local_experts=4, num_experts_per_tok=2,
        max_position_embeddings=128, bos_token_id=1, eos_token_id=2, use_cache=False,
        experts_implementation="batched_mm")
    return transformers.MixtralForCausalLM(config), _loss, _tokens(seed, size)


def _encoder(kind, head="ForMaskedLM", **more):
    def make(seed, size):
        import transformers

        config = getattr(transformers, kind + "Config")(
            vocab_size=TOKENS, hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=4,
            intermediate_size=2 * size.width, max_position_embeddings=128, **more)
        return getattr(transformers, kind + head)(config), _loss, _tokens(seed, size)

    return make


def distilbert(seed, size):
    import transformers

    config = transformers.DistilBertConfig(
        vocab_size=TOKENS, dim=size.width, n_layers=size.layers, n_heads=4, hidden_dim=2 * size.width, max_position_embeddings=128)
    return transformers.DistilBertForMaskedLM(config), _loss, _tokens(seed, size)


def electra(seed, size):
    import transformers

    config = transformers.ElectraConfig(
        vocab_size=TOKENS, embedding_size=size.width, hidden_size=size.width, num_hidden_layers=size.layers,
        num_attention_heads=4, intermediate_size=2 * size.width, max_position_embeddings=128)
    batch = _tokens(seed, size)
    batch["labels"] = torch.randint(0, 2, batch["labels"].shape, generator=_rng(seed + 5))
    return transformers.ElectraForPreTraining(config), _loss, batch


def _translation(seed, size):
    batch = _tokens(seed, size)
    target = _tokens(seed + 1, size, length=size.length * 2 // 3)
    batch["labels"] = target["labels"]
    return batch


def t5(seed, size):
    import transformers

    config = transformers.T5Config(
        vocab_size=TOKENS, d_model=size.width, d_kv=size.width // 4, d_ff=2 * size.width, num_layers=size.layers, num_heads=4,
        decoder_start_token_id=0, use_cache=False)
    return transformers.T5ForConditionalGeneration(config), _loss, _translation(seed, size)


def bart(seed, size):
    import transformers

    config = transformers.BartConfig(
        vocab_size=TOKENS, d_model=size.width, encoder_layers=size.layers, decoder_layers=size.layers, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=2 * size.width, decoder_ffn_dim=2 * size.width, max_position_embeddings=128,
        use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
        forced_eos_token_id=2)
    return transformers.BartForConditionalGeneration(config), _loss, _translation(seed, size)


def vit(seed, size):
    import transformers

    config = transformers.ViTConfig(
        hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=4, intermediate_size=2 * size.width,
        image_size=size.pixels, patch_size=8, num_labels=5)
    return transformers.ViTForImageClassification(config), _loss, _images(seed, size)


def swin(seed, size):
    import transformers

    config = transformers.SwinConfig(
        image_size=size.pixels, patch_size=2, embed_dim=size.width // 2, depths=[size.layers, size.layers], num_heads=[2, 4], window_size=4,
        num_labels=5)
    return transformers.SwinForImageClassification(config), _loss, _images(seed, size)


def clip(seed, size):
    import transformers

    config = transformers.CLIPConfig(
        text_config={"vocab_size": TOKENS, "hidden_size": size.width, "intermediate_size": 2 * size.width,
                     "num_hidden_layers": size.layers, "num_attention_heads": 4,
                     "max_position_embeddings": 128, "eos_token_id": 2, "bos_token_id": 1,
                     "pad_token_id": 0},
        vision_config={"hidden_size": size.width, "intermediate_size": 2 * size.width, "num_hidden_layers": size.layers,
                       "num_attention_heads": 4, "image_size": size.pixels, "patch_size": 8},
        projection_dim=16)
    batch = _tokens(seed, size)
    batch["input_ids"][:, -1] = 2
    batch["pixel_values"] = _images(seed, size)["pixel_values"]
    del batch["labels"]

    def loss(model, batch):
        return model(**batch, return_loss=True).loss

    return transformers.CLIPModel(config), loss, batch


def whisper(seed, size):
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=TOKENS, num_mel_bins=8, d_model=size.width, encoder_layers=size.layers, decoder_layers=size.layers,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=2 * size.width, decoder_ffn_dim=2 * size.width,
        max_source_positions=2 * size.length, max_target_positions=128, use_cache=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    batch = {
        "input_features": torch.randn(size.rows, 8, 4 * size.length, generator=_rng(seed)),
        "labels": _tokens(seed, size)["labels"],
    }
    return transformers.WhisperForConditionalGeneration(config), _loss, batch


def wav2vec2(seed, size):
    import transformers

    # SpecAugment is NumPy's, on the host; its masks would have to be inputs.
    config = transformers.Wav2Vec2Config(
        vocab_size=TOKENS, hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=4,
        intermediate_size=2 * size.width, conv_dim=(size.width, size.width, size.width), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, apply_spec_augment=False,
        num_labels=5)
    batch = {
        "input_values": torch.randn(size.rows, 60 * size.length + 80, generator=_rng(seed)),
        "labels": _classes(seed, size),
    }
    return transformers.Wav2Vec2ForSequenceClassification(config), _loss, batch


def mamba(seed, size):
    import transformers

    config = transformers.MambaConfig(
        vocab_size=TOKENS, hidden_size=size.width, state_size=8, num_hidden_layers=size.layers, bos_token_id=1,
        eos_token_id=2, pad_token_id=0, use_cache=False)
    return transformers.MambaForCausalLM(config), _loss, _tokens(seed, size)


def time_series(seed, size):
    import transformers

    config = transformers.TimeSeriesTransformerConfig(
        prediction_length=4, context_length=8, lags_sequence=[1, 2, 3], num_time_features=1,
        encoder_layers=size.layers, decoder_layers=size.layers, d_model=size.width, encoder_ffn_dim=2 * size.width,
        decoder_ffn_dim=2 * size.width,
        encoder_attention_heads=2, decoder_attention_heads=2)
    generator = _rng(seed)
    past = 8 + 3
    batch = {
        "past_values": torch.rand(size.rows, past, generator=generator),
        "past_time_features": torch.rand(size.rows, past, 1, generator=generator),
        "past_observed_mask": torch.ones(size.rows, past),
        "future_values": torch.rand(size.rows, 4, generator=generator),
        "future_time_features": torch.rand(size.rows, 4, 1, generator=generator),
        "future_observed_mask": torch.ones(size.rows, 4),
    }
    return transformers.TimeSeriesTransformerForPrediction(config), _loss, batch


def convnext(seed, size):
    import transformers

    config = transformers.ConvNextConfig(
        hidden_sizes=[size.width // 4, size.width // 2, size.width, size.width],
        depths=[1, 1, size.layers, 1], image_size=size.pixels, patch_size=2,
        drop_path_rate=0.1, num_labels=5)
    return transformers.ConvNextForImageClassification(config), _loss, _images(seed, size)


def efficientnet(seed, size):
    import transformers

    config = transformers.EfficientNetConfig(
        image_size=size.pixels, width_coefficient=0.25, depth_coefficient=0.15 * size.layers,
        hidden_dim=320, num_labels=5)
    return transformers.EfficientNetForImageClassification(config), _loss, _images(seed, size)


MODELS = {
    "GPT-2": gpt2,
    "GPT-NeoX": _decoder("GPTNeoX"),
    "Llama": _decoder("Llama", num_key_value_heads=2),
    "Qwen2": _decoder("Qwen2", num_key_value_heads=2),
    "Mistral": _decoder("Mistral", num_key_value_heads=2, sliding_window=8),
    "Gemma": _decoder("Gemma", num_key_value_heads=2, head_dim=16),
    "Phi": _decoder("Phi"),
    "Mixtral": mixtral,
    "BERT": _encoder("Bert"),
    "RoBERTa": _encoder("Roberta"),
    "DeBERTa-v2": _encoder("DebertaV2"),
    "DistilBERT": distilbert,
    "ELECTRA": electra,
    "T5": t5,
    "BART": bart,
    "ViT": vit,
    "Swin": swin,
    "CLIP": clip,
    "Whisper": whisper,
    "wav2vec2": wav2vec2,
    "Mamba": mamba,
    "time-series Transformer": time_series,
    "ConvNeXt": convnext,
    "EfficientNet": efficientnet,
}


def make(name, seed, size, dtype=torch.float32):
    """(model in training mode, loss function, batch) of a name, the same for the same seed."""
    torch.manual_seed(seed)
    model, loss, batch = MODELS[name](seed, size)
    return model.to(dtype).train(), loss, in_dtype(batch, dtype)


def batch_of(name, seed, size, dtype=torch.float32):
    return in_dtype(MODELS[name](seed, size)[2], dtype)


def in_dtype(batch, dtype):
    return {key: each.to(dtype) if each.is_floating_point() else each for key, each in batch.items()}

"""A model with random weights and a tokenizer of its own, in a folder, as from_pretrained reads."""
import random

import tokenizers
import torch
import transformers

WORDS = [f"w{i}" for i in range(60)]
TINY = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def config_of(model_type, **options):
    return transformers.AutoConfig.for_model(model_type, **{**TINY, **options})


def write_model(folder, config, dtype=torch.bfloat16):
    """Writes weights, configuration and tokenizer; returns the model."""
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    model.save_pretrained(folder)
    words = tokenizers.models.WordLevel({word: i for i, word in enumerate(
        ["<pad>", "<bos>", "<eos>", "<unk>", *WORDS])}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return model


def text(seed, num_words):
    source = random.Random(seed)
    return " ".join(source.choices(WORDS, k=num_words))

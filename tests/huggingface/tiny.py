"""Models with random weights that are built in milliseconds, and a tokenizer that needs no file."""
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
TOKENS = 260  # a token a byte, and begin, end, padding and mask
BEGIN, END, PAD, MASK = range(256, 260)


def tokenizer() -> hf.PreTrainedTokenizerFast:
    """A token a byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return hf.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                                      mask_token="<mask>", padding_side="left", model_max_length=128,
                                      model_input_names=["input_ids", "attention_mask"])


def qwen3(**changed) -> hf.Qwen3ForCausalLM:
    torch.manual_seed(0)
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**{**SIZES, **dict(
        vocab_size=TOKENS, num_key_value_heads=2, head_dim=8, max_position_embeddings=128, pad_token_id=PAD,
        bos_token_id=BEGIN, eos_token_id=END), **changed}))


def bert(model_class=hf.BertForMaskedLM, **changed) -> hf.PreTrainedModel:
    torch.manual_seed(0)
    return model_class(hf.BertConfig(**{**SIZES, **dict(vocab_size=TOKENS, max_position_embeddings=128,
                                                        pad_token_id=PAD), **changed})).eval()


def train(model, steps: int = 3) -> list[float]:
    """The losses of a few steps of AdamW on a batch that is always the same."""
    device = next(model.parameters()).device
    batch = torch.randint(1, 256, (4, 10), generator=torch.Generator().manual_seed(2)).to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def tokens(rows: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(1, 256, (rows, length))

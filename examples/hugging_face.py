"""The language model in transformers: a step of Trainer, prompts of unequal length, saved and loaded again."""

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from nsa import NSAConfig, NSAForCausalLM

sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2}
model = NSAForCausalLM(NSAConfig(vocab_size=256, pad_token_id=0, w=64, n=4, **sizes))
rows = [{"input_ids": (ids := torch.randint(1, 256, (300,))), "labels": ids} for _ in range(4)]
how = TrainingArguments("nsa-example", max_steps=1, report_to=[], disable_tqdm=True, save_strategy="no")
Trainer(model, how, train_dataset=rows).train()
prompts, mask = torch.zeros(2, 40, dtype=torch.int64), torch.ones(2, 40, dtype=torch.int64)
prompts[0], prompts[1, 25:], mask[1, :25] = rows[0]["input_ids"][:40], rows[1]["input_ids"][:15], 0
inputs = {"input_ids": prompts.to(model.device), "attention_mask": mask.to(model.device)}
print(model.generate(**inputs, max_new_tokens=8, do_sample=False)[:, 40:].tolist())
model.save_pretrained("nsa-example")
print(AutoModelForCausalLM.from_pretrained("nsa-example").config.w)

"""The attention layer and its parts: compression, selection, gate, rotary embedding, cache."""

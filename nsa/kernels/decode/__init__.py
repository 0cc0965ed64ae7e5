"""One decoding step of the attention: a new token for every row of a batch, in memory of fixed shape."""

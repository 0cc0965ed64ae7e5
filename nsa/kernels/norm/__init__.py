"""The norm before attention and MLP, and the sum that it follows."""

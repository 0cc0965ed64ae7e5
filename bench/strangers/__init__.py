"""Programs that this project has never seen, with and without a fault, and what the instrument says of them."""

"""Two models read token by token over the same text: how far apart they are, and from where on."""

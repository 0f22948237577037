"""Networks made of plain chains of layers, with a cosine head."""

"""The backends for images, under NNabla's names: Pillow and pypng."""

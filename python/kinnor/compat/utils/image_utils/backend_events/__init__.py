"""What reads and writes images, by NNabla's names: Pillow and pypng."""

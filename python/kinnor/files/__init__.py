"""Files of parameters and solver states, and of pictures: how they are read, checked and written whole."""

"""Reading, checking and atomic writing of files: parameters, solver states, networks and images."""

"""How much memory a run needs, predicted from shapes: no weights are loaded and nothing is computed."""

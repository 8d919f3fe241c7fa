"""The executable papers: a folder for each paper, a file for each figure; `stepwell.figures` finds and runs them."""

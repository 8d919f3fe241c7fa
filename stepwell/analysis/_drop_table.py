"""A table that is printed whole."""

import pandas as pd


class DropTable(pd.DataFrame):
    """A pandas table of drops: printed with every column, and its remarks below. Parts of it are plain tables."""

    def __repr__(self) -> str:
        text = self.to_string(index=False, float_format=lambda value: f"{value:.5g}", na_rep="-")
        return "\n".join([text, *self.attrs.get("remarks", ())])

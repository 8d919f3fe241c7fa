"""Numbers as tables of predictions show them."""


def as_loss(value: float) -> str:
    return f"{value:.8f}" if 1e-4 < value < 1e4 else f"{value:.6g}"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")

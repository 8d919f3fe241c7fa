"""One field of an experiment, declared once, as an annotated keyword of a builder:

    heads: Annotated[int, Field("attention heads", symbol="H", least=1, slider=(1, 8))] = 4

Validation is msgspec's; flags, files, schema, messages and controls of the page are derived from the declaration.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from stepwell._util.errors import InvalidInput
from stepwell._util.text import listed, shown

_LARGEST = 1.7976931348623157e308
_LARGEST_INTEGER = 2**63 - 1
LONGEST_LIST = 4096
"""Entries of a list, at the most."""
LONGEST_STRING = 1000
"""Characters of a string, at the most."""
_PRINTABLE = r"^[^\x00-\x1f\x7f\ud800-\udfff]*$(?!\n)"
"""No control characters, nor halves of a pair that stands for one character: files cannot hold them."""


@dataclasses.dataclass(frozen=True)
class Field:
    """What a declaration says of a field beside its type and default.

    **Arguments:**

    - `help`: one line that says what it is.
    - `symbol`: what papers write for it, such as "H".
    - `unit`: of a number, such as "t/τ".
    - `least`, `above`, `most`: bounds of a number, or of each of several: from `least`, or above `above`, to `most`.
    - `slider`: from where to where a slider of the page goes; by default from `least` to `most`, if both are declared.
    - `log`: whether that slider is logarithmic.
    - `when`: other fields of the same kind, each with the values at which this one has an effect. Elsewhere a value
      that is given is refused.
    - `free`: whether sweeps may vary it without checking every combination: a number that no other field, default or
      check depends on.

    **Example:**

    >>> from typing import Annotated
    >>> from stepwell.experiments import Field
    >>> Gate = Annotated[float, Field("opening of the gate", symbol="g", least=0.0, most=1.0)]
    """

    help: str
    _: dataclasses.KW_ONLY
    symbol: str = ""
    unit: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    slider: tuple[float, float] | None = None
    log: bool = False
    when: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    free: bool = False


@dataclasses.dataclass(frozen=True)
class DeclaredField:
    """A field with its name, type and default, ready to check values."""

    name: str
    kind: Any
    """Its type as declared, without `Annotated`."""
    default: Any
    about: Field
    checked: Any
    """The type with its bounds, for msgspec."""

    @classmethod
    def of(cls, name: str, annotation: Any, default: Any) -> "DeclaredField":
        """Return the field of a parameter of a builder."""
        about = Field("")
        if get_origin(annotation) is Annotated:
            annotation, *notes = get_args(annotation)
            about = next((note for note in notes if isinstance(note, Field)), about)
        parts = _parts(annotation)
        if int in parts and float in parts:
            raise TypeError(f"the field {name} is an int or a float, so that 1 and 1.0 are two values; declare a float")
        if default is not None and type(None) in parts:
            raise TypeError(f"the field {name} may be None, which stands for the default; its default must be None")
        made = cls(name, annotation, default, about, _bounded(annotation, about))
        if default is None:
            return made
        try:
            return dataclasses.replace(made, default=made.convert(default))  # 1 for a float is 1.0, as if it were given
        except InvalidInput as error:
            raise TypeError(f"the default of the field {error}") from None

    @property
    def is_list(self) -> bool:
        """Whether its value may be a list."""
        return any(_is_list(part) for part in _parts(self.kind))

    @property
    def may_be_empty(self) -> bool:
        """Whether its value may be a list without entries: of words, not of numbers."""
        return any(_is_list(part) and _may_be_empty(part) for part in _parts(self.kind))

    @property
    def choices(self) -> tuple[Any, ...]:
        """The words it may be, if it may be some."""
        return tuple(word for part in _parts(self.kind) if get_origin(part) is Literal for word in get_args(part))

    @property
    def scalar(self) -> type | None:
        """`bool`, `int`, `float` or `str`, if its value is one such; else None."""
        plain = [part for part in _parts(self.kind) if part is not type(None) and get_origin(part) is not Literal]
        return plain[0] if len(plain) == 1 and plain[0] in (bool, int, float, str) else None

    def convert(self, value: Any, *, name: str | None = None, text: bool = False) -> Any:
        """Return the value, if it is allowed; with `text` it is read from the strings of a command line."""
        given: Any = " ".join(value) if text and isinstance(value, list) else value
        plain: Any = getattr(value, "tolist", None)  # of NumPy's and JAX's numbers and arrays
        if plain is not None:
            value = plain()
        if isinstance(value, range):
            value = list(value)
        if text and isinstance(value, list) and len(value) == 1 and not self._needs_list:
            value = value[0]
        if text and isinstance(value, str) and self._needs_list:
            value = [value]
        if text and self.scalar is not str:
            value = [_padded(word) for word in value] if isinstance(value, list) else _padded(value)
        try:
            made = msgspec.convert(value, self.checked, strict=not text)
            allowed = not text or made is not None  # msgspec reads the word null as None
        except (msgspec.ValidationError, OverflowError):
            made, allowed = None, False
        if not allowed:
            raise InvalidInput(f"{name or self.name} is {shown(given)}; it must be {self.allowed()}")
        return _without_minus_zero(made)

    @property
    def _needs_list(self) -> bool:
        return all(_is_list(part) for part in _parts(self.kind) if part is not type(None))

    def allowed(self) -> str:
        """Return what a value must be, in words."""
        return " or ".join(_words(part, self.about) for part in _parts(self.kind) if part is not type(None))

    def schema(self) -> dict[str, Any]:
        """Return the field in JSON Schema."""
        made = _without_limits(msgspec.json.schema(self.checked))
        if self.about.help:
            made["description"] = self.description()
        if self.default is not None:
            made["default"] = msgspec.to_builtins(self.default)
        return made

    def description(self) -> str:
        """Return its help with symbol and unit."""
        notes = ", ".join(filter(None, (self.about.symbol, self.about.unit)))
        return self.about.help + (f" ({notes})" if notes else "")


def _without_minus_zero(value: Any) -> Any:
    """0 for -0, which is the same number and would have another name."""
    if isinstance(value, tuple):
        return tuple(map(_without_minus_zero, value))
    return value + 0.0 if isinstance(value, float) else value


def _padded(word: Any) -> Any:
    """A number of a command line with digits on both sides of its point and no plus, as msgspec wants: .4 is 0.4."""
    found = re.fullmatch(r"([+-]?)(\d*)(?:\.(\d*))?((?:[eE][+-]?\d+)?)", word) if isinstance(word, str) else None
    if found is None or not (found[2] or found[3]):
        return word
    point = "" if found[3] is None else f".{found[3] or 0}"
    return f"{found[1].strip('+')}{found[2] or 0}{point}{found[4]}"


def _parts(kind: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _may_be_empty(kind: Any) -> bool:
    inner = get_args(kind)[0]
    return inner is str or get_origin(inner) is Literal


def _bounded(kind: Any, about: Field) -> Any:
    """A type with the bounds of a declaration at each of its numbers."""
    if get_origin(kind) in (Union, types.UnionType):
        return Union[tuple(_bounded(part, about) for part in get_args(kind))]  # noqa: UP007
    if _is_list(kind):
        inner = get_args(kind)
        if len(inner) != 2 or inner[1] is not Ellipsis:
            raise TypeError(f"a field has the type {kind}; lists are declared as tuple[int, ...] and the like")
        return Annotated[
            tuple[_bounded(inner[0], about), ...],  # pyright: ignore[reportInvalidTypeForm]
            msgspec.Meta(min_length=0 if _may_be_empty(kind) else 1, max_length=LONGEST_LIST),
        ]
    if kind is int or kind is float:
        largest = _LARGEST_INTEGER if kind is int else _LARGEST
        low: dict[str, Any] = {"ge": kind(-largest if about.least is None else about.least)}
        low = low if about.above is None else {"gt": kind(about.above)}
        return Annotated[kind, msgspec.Meta(**low, le=kind(largest if about.most is None else about.most))]
    if kind is str:
        return Annotated[str, msgspec.Meta(max_length=LONGEST_STRING, pattern=_PRINTABLE)]
    if kind in (bool, type(None)) or get_origin(kind) is Literal:
        return kind
    raise TypeError(
        f"a field has the type {kind}; it may be bool, int, float, str, a Literal, a tuple of one of them, or a union"
    )


def _words(kind: Any, about: Field) -> str:
    if _is_list(kind):
        inner = _words(get_args(kind)[0], about)
        return "a list of " + re.sub("^an? (integer|number|string)", r"\1s", inner)
    if get_origin(kind) is Literal:
        words = [str(word) for word in get_args(kind)]
        return f"one of {listed(words)}" if len(words) > 1 else words[0]
    if kind is bool:
        return "true or false"
    if kind is str:
        return f"a string of at most {LONGEST_STRING} printable characters"
    word = "an integer" if kind is int else "a number"
    most = str(about.most) if isinstance(about.most, int) else f"{about.most or 0:g}"
    if about.above is None and about.least is not None:
        return f"{word} from {about.least:g} " + ("on" if about.most is None else f"to {most}")
    low = "" if about.above is None else f" above {about.above:g}"
    return word + low + ("" if about.most is None else f", at most {most}")


def _without_limits(schema: Any) -> Any:
    """A schema without bounds that are those of the machine."""
    if isinstance(schema, dict):
        limits = {"maximum": (_LARGEST, _LARGEST_INTEGER), "minimum": (-_LARGEST, -_LARGEST_INTEGER)}
        return {k: _without_limits(v) for k, v in schema.items() if not (k in limits and v in limits[k])}
    return [_without_limits(one) for one in schema] if isinstance(schema, list) else schema


def fields_of(builder: Any) -> dict[str, DeclaredField]:
    """The fields of a kind: the keyword-only parameters of its builder."""
    import inspect

    annotations = typing.get_type_hints(builder, include_extras=True)
    made = {}
    for name, parameter in inspect.signature(builder).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if name not in annotations or parameter.default is inspect.Parameter.empty:
            raise TypeError(f"the field {name} of {builder.__name__} needs a type and a default: {name}: float = 1.0")
        if name == "kind":
            raise TypeError(f"{builder.__name__} has a field kind, which is the name of the kind; call it otherwise")
        made[name] = DeclaredField.of(name, annotations[name], parameter.default)
    for name, field in made.items():
        for other in field.about.when:
            if other not in made:
                raise TypeError(f"the field {name} of {builder.__name__} has an effect when {other}, which is no field")
    return made

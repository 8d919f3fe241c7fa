"""The type checker of the import hook: beartype, with an int allowed where a float is asked for, as PEP 484 has it."""

from beartype import BeartypeConf
from beartype import beartype as _beartype

check = _beartype(conf=BeartypeConf(is_pep484_tower=True))

"""`python -m stepwell.experiments` prints the JSON Schema of experiments."""

import json

from . import json_schema

print(json.dumps(json_schema(), indent=2, ensure_ascii=False))

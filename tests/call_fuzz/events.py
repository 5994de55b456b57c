"""Code that runs in the midst of other code: handlers, finalizers, callbacks of NumPy, threads.

Statements by feature. Handlers write into no array that others hold: docs/dev/semantics.md says why.
"""

from __future__ import annotations

SIGNALS = (
    (2, "signal.raise_signal(signal.SIGUSR1)"),
    (1, "signal.raise_signal(signal.SIGUSR1)\n<v> = <a>\nsignal.raise_signal(signal.SIGUSR1)"),
)
FINALIZERS = (
    (2, "<q> = Gone(<a>, <s>)\ndel <q>"),
    (1, "Gone(<a>, <s>)"),
    (1, "<q> = Gone(<a>, <s>)\n<q>.me = <q>\ndel <q>\ngc.collect()"),
    (1, "<k>.gone = Gone(<a>, <s>)"),
    (1, "<q> = Gone(<a>, <s>)\n<v> = <q>.a + 1.0\n<q> = None"),
    (1, "<q> = Box()\nweakref.finalize(<q>, log, 'final', <s>)\ndel <q>"),
    (1, "<q> = Box()\n<k>.wr = weakref.ref(<q>, lambda ref: log('ref', <s>))\n<v> = <a>\ndel <q>"),
    (1, "<q> = Gone(<a>, <s>)\n<q>.me = <q>\n<q> = None\nfor <q2> in range(30):\n    <q> = [Box()]\n"
        "<v> = <a>"),
)
RAISED = (
    (2, "with np.errstate(all='call', call=on_error):\n    <v> = (<a>) / ((<x>) - (<x>))\n    log(<v>)"),
    (1, "with np.errstate(divide='call', invalid='call', call=on_error):\n    <v> = np.sqrt((<a>) - 2.0)\n"
        "    <B>"),
    (1, "with np.errstate(all='log', call=WRITER):\n    <v> = 1.0 / np.floor(<a>)\n    log(<v>)"),
    (1, "try:\n    with np.errstate(all='raise'):\n        <v> = (<a>) / np.floor(<x>)\n        <B>\n"
        "except FloatingPointError as <q>:\n    log(str(<q>))\n    <v> = <a>"),
    (1, "with np.errstate(all='ignore'):\n    <v> = (<a>) / np.floor(<x>)\n    log(<v>)"),
    (1, "with np.errstate(all='print'):\n    <v> = (<a>) / np.floor(<x>)\n    log(<v>)"),
    (1, "<q> = np.seterr(all='call')\n<q2> = np.seterrcall(on_error)\ntry:\n    <v> = 1.0 / np.floor(<a>)\n"
        "    log(<v>)\nfinally:\n    np.seterrcall(<q2>)\n    np.seterr(**<q>)"),
)
WARNED = (
    (2, "with warnings.catch_warnings(record=True) as <q>:\n    warnings.simplefilter('always')\n"
        "    <v> = (<a>) / np.floor(<x>)\n    log(<v>)\nSHOWN.extend([str(t.message) for t in <q>])"),
    (1, "with warnings.catch_warnings():\n    warnings.simplefilter('always')\n"
        "    warnings.showwarning = show\n"
        "    <v> = (<a>) / np.floor(<x>)\n    log(<v>)\n    <B>"),
    (1, "with warnings.catch_warnings():\n    warnings.simplefilter('error')\n    try:\n"
        "        <v> = (<a>) / np.floor(<x>)\n        <B>\n    except RuntimeWarning as <q>:\n"
        "        log(str(<q>))\n        <v> = <a>"),
    (1, "warnings.warn('w {}'.format(<s>))"),
    (1, "with warnings.catch_warnings():\n    warnings.simplefilter('always')\n"
        "    warnings.showwarning = show\n"
        "    warnings.warn('own')\n    <B>"),
    (1, "with contextlib.redirect_stderr(Stream()):\n    print(<s>, file=sys.stderr)\n"
        "    <v> = (<a>) / np.floor(<x>)\n    log(<v>)"),
    (1, "with contextlib.redirect_stdout(Stream()):\n    print(<s>, (<a>)[:2])\n    <B>"),
)
THREADS = (
    (2, "<q> = {}\n<q2> = threading.Thread(target=lambda: <q>.update(v=<f>(<x1>.copy())))\n<q2>.start()\n"
        "<q2>.join()\n<v> = fit(<q>.get('v'), <x1>)"),
    (1, "<q> = []\n"
        "<q2> = [threading.Thread(target=lambda t: <q>.append(<f>(t)), args=(t,)) for t in (<a>,)]\n"
        "for t in <q2>:\n    t.start()\nfor t in <q2>:\n    t.join()\nlog(<q>)"),
    (1, "with futures.ThreadPoolExecutor(1) as <q>:\n    <v> = <q>.submit(<f>, <a>).result()"),
    (1, "with futures.ThreadPoolExecutor(2) as <q>:\n    <q2> = list(<q>.map(np.abs, [<a>, <a>]))\n"
        "<v> = <q2>[1]\n"
        "log(<q2>)"),
    (1, "<q> = threading.Timer(0, keep, (<k>, 'z', <a>))\n<q>.start()\n<q>.join()"),
    (1, "<v> = in_thread(lambda: <f>(<x1>))"),
    (1, "<w> = in_thread(lambda: <g>(<x1>))"),
)

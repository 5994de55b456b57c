"""Panels of a matrix, as IR: columns copied to where they stay in the cache, edges copied back.

Knows: element types, strides. Must not know: what panels are multiplied with.
Receives lanes; returns functions.

A panel that is not full repeats its last column: zeros would make NaN of infinities.
"""

from __future__ import annotations

from jitla.codegen.lanes import Lanes

__all__ = ["any_panel", "edge", "panel"]


def panel(w: Lanes, vectors: int) -> str:
    """Write @panel2 or @panel3: copy the rows of a full panel, which lie in one run."""
    size = w.width * w.size
    copy = "".join(
        f"  %f{c} = getelementptr i8, ptr %v, i64 {c * size}\n"
        f"  %t{c} = getelementptr i8, ptr %p, i64 {c * size}\n"
        f"  %e{c} = load {w.vector}, ptr %f{c}, align {w.size}\n"
        f"  store {w.vector} %e{c}, ptr %t{c}, align {size}\n" for c in range(vectors))
    return f"""define internal void @panel{vectors}(ptr %to, ptr %from, i64 %kc, i64 %down) nounwind {{
entry:
  br label %row
row:
  %k = phi i64 [ 0, %entry ], [ %k.next, %go ]
  %p = phi ptr [ %to, %entry ], [ %p.next, %go ]
  %v = phi ptr [ %from, %entry ], [ %v.next, %go ]
  %more = icmp slt i64 %k, %kc
  br i1 %more, label %go, label %end
go:
{copy}  %p.next = getelementptr i8, ptr %p, i64 {vectors * size}
  %v.next = getelementptr i8, ptr %v, i64 %down
  %k.next = add i64 %k, 1
  br label %row
end:
  ret void
}}
"""


def any_panel(w: Lanes) -> str:
    """Write @panel: copy columns that lie anyhow."""
    return _ANY_PANEL.replace("@REAL@", w.real).replace("@SIZE@", str(w.size))


def edge(w: Lanes) -> str:
    """Write @edge: store the first columns of some rows, or add them to what is there."""
    return _EDGE.replace("@REAL@", w.real).replace("@SIZE@", str(w.size))


_ANY_PANEL = """
define internal void @panel(ptr %p, ptr %v, i64 %kc, i64 %down, i64 %across, i64 %cols,
                            i64 %width) nounwind {
entry:
  %wide = mul i64 %width, @SIZE@
  br label %column
column:
  %c = phi i64 [ 0, %entry ], [ %c.next, %column.end ]
  %last = sub i64 %cols, 1
  %real = call i64 @llvm.umin.i64(i64 %c, i64 %last)
  %fo = mul i64 %real, %across
  %f0 = getelementptr i8, ptr %v, i64 %fo
  %t0 = getelementptr @REAL@, ptr %p, i64 %c
  br label %row
row:
  %k = phi i64 [ 0, %column ], [ %k.next, %put ]
  %f = phi ptr [ %f0, %column ], [ %f.next, %put ]
  %t = phi ptr [ %t0, %column ], [ %t.next, %put ]
  %more = icmp slt i64 %k, %kc
  br i1 %more, label %put, label %column.end
put:
  %e = load @REAL@, ptr %f, align @SIZE@
  store @REAL@ %e, ptr %t, align @SIZE@
  %f.next = getelementptr i8, ptr %f, i64 %down
  %t.next = getelementptr i8, ptr %t, i64 %wide
  %k.next = add i64 %k, 1
  br label %row
column.end:
  %c.next = add i64 %c, 1
  %left = icmp slt i64 %c.next, %width
  br i1 %left, label %column, label %end
end:
  ret void
}
"""

_EDGE = """
; Store the first columns of some rows, or add them to what is there.
define internal void @edge(ptr %from, i64 %wide, ptr %o, i64 %apart, i64 %rows, i64 %cols,
                           i1 %first) nounwind {
entry:
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.end ]
  %fo = mul i64 %r, %wide
  %f = getelementptr i8, ptr %from, i64 %fo
  %to = mul i64 %r, %apart
  %t = getelementptr i8, ptr %o, i64 %to
  br label %column
column:
  %c = phi i64 [ 0, %row ], [ %c.next, %put ]
  %fc = getelementptr @REAL@, ptr %f, i64 %c
  %tc = getelementptr @REAL@, ptr %t, i64 %c
  %e = load @REAL@, ptr %fc, align @SIZE@
  br i1 %first, label %put, label %add
add:
  %before = load @REAL@, ptr %tc, align @SIZE@
  %sum = fadd @REAL@ %before, %e
  br label %put
put:
  %value = phi @REAL@ [ %e, %column ], [ %sum, %add ]
  store @REAL@ %value, ptr %tc, align @SIZE@
  %c.next = add i64 %c, 1
  %more = icmp slt i64 %c.next, %cols
  br i1 %more, label %column, label %row.end
row.end:
  %r.next = add i64 %r, 1
  %left = icmp slt i64 %r.next, %rows
  br i1 %left, label %row, label %end
end:
  ret void
}
"""

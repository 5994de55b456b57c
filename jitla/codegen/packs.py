"""Vectors that lie anyhow copied into one run, as IR.

Knows: argument blocks of products. Must not know: products. Receives the lanes of a dtype; returns text.
"""

from __future__ import annotations

from jitla.codegen.lanes import Lanes
from jitla.codegen.passes import head

__all__ = ["pack_text"]


def pack_text(w: Lanes) -> str:
    """Return the entry @k that copies rows of any distances, between elements too, one after the other."""
    return _PACK.replace("@REAL@", w.real).replace("@SIZE@", str(w.size)).replace("@HEAD@", head(w))


_PACK = """define void @k(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
@HEAD@  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.end ]
  %more = icmp ult i64 %i, %rows
  br i1 %more, label %go, label %done
go:
  %skip = mul i64 %i, %step
  %from = getelementptr i8, ptr %x, i64 %skip
  %before = mul i64 %i, %n
  br label %element
element:
  %j = phi i64 [ 0, %go ], [ %j.next, %put ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %put, label %row.end
put:
  %far = mul i64 %j, %apart
  %p = getelementptr i8, ptr %from, i64 %far
  %e = load @REAL@, ptr %p, align @SIZE@
  %at = add i64 %before, %j
  %to = getelementptr @REAL@, ptr %out, i64 %at
  store @REAL@ %e, ptr %to, align @SIZE@
  %j.next = add i64 %j, 1
  br label %element
row.end:
  %i.next = add i64 %i, 1
  br label %row
done:
  ret void
}
"""

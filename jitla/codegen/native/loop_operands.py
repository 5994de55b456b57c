"""Text of the native entry of loop programs: comparison of arguments with a table, and writing of a state."""

from __future__ import annotations

__all__ = ["READ_OPERANDS", "TEST_GUARDS"]

# What is read of the arguments: words of a frame on the stack.
# 0: length, 1: bytes of arrays, 2: number of arrays; from 8 on pointers to sequences of operands; from 24 on
# arrays: object, begin and end of its memory, bytes, item size, and three unused words.
READ_OPERANDS = """
; Read an int of at most 62 bits, or report that it is none.
define internal { i64, i1 } @entry.int(ptr %o) nounwind {
entry:
  $int_size
  %some = icmp ugt i64 %digits, 0
  br i1 %some, label %one, label %zero
zero:
  ret { i64, i1 } { i64 0, i1 true }
one:
  %d0 = field i32 %o, $digits_at
  %v0 = zext i32 %d0 to i64
  %several = icmp ugt i64 %digits, 1
  br i1 %several, label %two, label %sign
two:
  %d1 = field i32 %o, $digit1_at
  %w1 = zext i32 %d1 to i64
  %s1 = shl i64 %w1, 30
  %v1 = or i64 %v0, %s1
  %many = icmp ugt i64 %digits, 2
  br i1 %many, label %three, label %sign
three:
  %d2 = field i32 %o, $digit2_at
  %w2 = zext i32 %d2 to i64
  %s2 = shl i64 %w2, 60
  %v2 = or i64 %v1, %s2
  %exact = icmp eq i64 %digits, 3
  %low = icmp ult i64 %w2, 4
  %fits = and i1 %exact, %low
  br i1 %fits, label %sign, label %large
sign:
  %v = phi i64 [ %v0, %one ], [ %v1, %two ], [ %v2, %three ]
  %minus = sub i64 0, %v
  %signed = select i1 %negative, i64 %minus, i64 %v
  %pair = insertvalue { i64, i1 } { i64 0, i1 true }, i64 %signed, 0
  ret { i64, i1 } %pair
large:
  ret { i64, i1 } { i64 0, i1 false }
}
; Read an argument of `range`: an int or np.int64 of at most 62 bits.
define internal { i64, i1 } @entry.index(ptr %o) nounwind {
  %type = field ptr %o, $type_at
  %int = object int
  %plain = icmp eq ptr %type, %int
  br i1 %plain, label %python, label %other
python:
  %r = call { i64, i1 } @entry.int(ptr %o)
  ret { i64, i1 } %r
other:
  %int64 = object int64
  %numpy = icmp eq ptr %type, %int64
  br i1 %numpy, label %word, label %none
word:
  %v = field i64 %o, $header
  %size = call i64 @llvm.abs.i64(i64 %v, i1 false)
  %fits = icmp ult i64 %size, 4611686018427387904
  %pair = insertvalue { i64, i1 } { i64 0, i1 true }, i64 %v, 0
  br i1 %fits, label %fine, label %none
fine:
  ret { i64, i1 } %pair
none:
  ret { i64, i1 } { i64 0, i1 false }
}
; Write a number at %p to the state.
define internal i1 @entry.number(ptr %r, ptr %p, ptr %state) nounwind {
  %copy = word %r, 4
  %word = word %r, 5
  %tagword = word %r, 6
  %to = getelementptr i64, ptr %state, i64 %word
  switch i64 %copy, label %no [
    i64 $C_NONE, label %yes
    i64 $C_TAG, label %tag
    i64 $C_BYTE, label %byte
    i64 $C_BYTES_2, label %two
    i64 $C_BYTES_4, label %four
    i64 $C_BYTES_8, label %eight
    i64 $C_BYTES_16, label %sixteen
    i64 $C_INT_TO_FLOAT, label %real
    i64 $C_SINGLE_TO_FLOAT, label %double
    i64 $C_FLOAT_TO_COMPLEX, label %complex
    i64 $C_INT_TO_COMPLEX, label %real ]
byte:
  %v1 = load i8, ptr %p
  store i8 %v1, ptr %to
  br label %tag
two:
  %v2 = load i16, ptr %p
  store i16 %v2, ptr %to
  br label %tag
four:
  %v4 = load i32, ptr %p
  store i32 %v4, ptr %to
  br label %tag
eight:
  %v8 = load i64, ptr %p
  store i64 %v8, ptr %to
  br label %tag
sixteen:
  %low = load i64, ptr %p
  %high = word %p, 1
  store i64 %low, ptr %to
  put i64 %high, %to, 1
  br label %tag
real:
  %integer = load i64, ptr %p
  %size = call i64 @llvm.abs.i64(i64 %integer, i1 false)
  %exact = icmp ule i64 %size, 9007199254740992
  br i1 %exact, label %convert, label %no
convert:
  %float = sitofp i64 %integer to double
  store double %float, ptr %to
  %wide = icmp eq i64 %copy, $C_INT_TO_COMPLEX
  br i1 %wide, label %imaginary, label %tag
double:
  %single = load float, ptr %p
  %extended = fpext float %single to double
  store double %extended, ptr %to
  br label %tag
complex:
  %part = load i64, ptr %p
  store i64 %part, ptr %to
  br label %imaginary
imaginary:
  put i64 0, %to, 1
  br label %tag
tag:
  %tagged = icmp sge i64 %tagword, 0
  br i1 %tagged, label %write, label %yes
write:
  %value = word %r, 7
  %code = trunc i64 %value to i8
  %pt = getelementptr i64, ptr %state, i64 %tagword
  store i8 %code, ptr %pt
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
; Note an array in the frame, and write it to the state.
define internal i1 @entry.array(ptr %r, ptr %o, ptr %state, ptr %frame) nounwind {
entry:
  %low = alloca i64
  %high = alloca i64
  %size = alloca i64
  %i = alloca i64
  %single = alloca i64
  %type = field ptr %o, $type_at
  %ndarray = object ndarray
  %exact = icmp eq ptr %type, %ndarray
  br i1 %exact, label %kind, label %no
kind:
  %descr = field i64 %o, $descr_at
  %wanted = word %r, 3
  %same = icmp eq i64 %descr, %wanted
  %nd32 = field i32 %o, $nd_at
  %nd = zext i32 %nd32 to i64
  %allflags = field i32 %o, $flags_at
  %flags32 = and i32 %allflags, 1280
  %flags = zext i32 %flags32 to i64
  %upper = shl i64 %flags, 32
  %form = or i64 %nd, %upper
  %form.wanted = word %r, 4
  %form.rest = and i64 %form.wanted, -4294967041 ; without the axes of one element, in bits 8 to 31
  %right = icmp eq i64 %form, %form.rest
  %fine = and i1 %same, %right
  br i1 %fine, label %measure, label %no
measure:
  %data = field i64 %o, $header
  %dims = field ptr %o, $dims_at
  %strides = field ptr %o, $strides_at
  %word = word %r, 5
  %itemsize = word %r, 7
  store i64 %itemsize, ptr %size
  store i64 %data, ptr %low
  %end0 = add i64 %data, %itemsize
  store i64 %end0, ptr %high
  store i64 0, ptr %i
  store i64 0, ptr %single
  br label %axes
axes:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %nd
  br i1 %more, label %axis, label %compare
axis:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %d = word %dims, %k
  %isone = icmp eq i64 %d, 1
  %one = zext i1 %isone to i64
  %place1 = add i64 %k, 8
  %bit = shl i64 %one, %place1
  %single0 = load i64, ptr %single
  %single1 = or i64 %single0, %bit
  store i64 %single1, ptr %single
  %s = word %strides, %k
  %size0 = load i64, ptr %size
  %size1 = mul i64 %size0, %d
  store i64 %size1, ptr %size
  %less = sub i64 %d, 1
  %extent = mul i64 %less, %s
  %back = icmp slt i64 %s, 0
  %down = select i1 %back, i64 %extent, i64 0
  %up = select i1 %back, i64 0, i64 %extent
  %low0 = load i64, ptr %low
  %low1 = add i64 %low0, %down
  store i64 %low1, ptr %low
  %high0 = load i64, ptr %high
  %high1 = add i64 %high0, %up
  store i64 %high1, ptr %high
  %stored = icmp sge i64 %word, 0
  br i1 %stored, label %write, label %axes
write:
  %at = add i64 %word, %k1
  put i64 %d, %state, %at
  %at2 = add i64 %at, %nd
  put i64 %s, %state, %at2
  br label %axes
compare:
  %single2 = load i64, ptr %single
  %single.wanted = and i64 %form.wanted, 4294967040
  %samesingle = icmp eq i64 %single2, %single.wanted
  br i1 %samesingle, label %bounds, label %no
bounds:
  %nbytes = load i64, ptr %size
  %orders = and i32 %allflags, 3
  %whole = icmp ne i32 %orders, 0
  %low2 = load i64, ptr %low
  %high2 = load i64, ptr %high
  %end = add i64 %data, %nbytes
  %first = select i1 %whole, i64 %data, i64 %low2
  %last = select i1 %whole, i64 %end, i64 %high2
  %number = word %frame, 2
  %number1 = add i64 %number, 1
  put i64 %number1, %frame, 2
  %scaled = shl i64 %number, 3
  %place = add i64 %scaled, 24
  %record = getelementptr i64, ptr %frame, i64 %place
  store ptr %o, ptr %record
  put i64 %first, %record, 1
  put i64 %last, %record, 2
  put i64 %nbytes, %record, 3
  put i64 %itemsize, %record, 4
  %sum = word %frame, 1
  %sum1 = add i64 %sum, %nbytes
  put i64 %sum1, %frame, 1
  %isitems = word %r, 0
  %through = icmp eq i64 %isitems, $O_ITEMS
  br i1 %through, label %shorten, label %finish
shorten:
  %length = load i64, ptr %dims
  call void @entry.shorten(ptr %frame, i64 %length)
  br label %finish
finish:
  %stored2 = icmp sge i64 %word, 0
  br i1 %stored2, label %pointer, label %yes
pointer:
  put i64 %data, %state, %word
  %tagword = word %r, 6
  %tagged = icmp sge i64 %tagword, 0
  br i1 %tagged, label %tag, label %yes
tag:
  %pt = getelementptr i64, ptr %state, i64 %tagword
  store i8 $object_tag, ptr %pt
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
define internal void @entry.shorten(ptr %frame, i64 %length) nounwind {
  %before = word %frame, 0
  %least = call i64 @llvm.smin.i64(i64 %before, i64 %length)
  put i64 %least, %frame, 0
  ret void
}
; Read the arguments of a range, and compare it with the one the program was compiled for.
define internal i1 @entry.range(ptr %r, ptr %args, ptr %state, ptr %frame) nounwind {
entry:
  %n = word %r, 3
  %a = load ptr, ptr %args
  %pa = call { i64, i1 } @entry.index(ptr %a)
  %va = extractvalue { i64, i1 } %pa, 0
  %ga = extractvalue { i64, i1 } %pa, 1
  br i1 %ga, label %second, label %no
second:
  %two = icmp sgt i64 %n, 1
  br i1 %two, label %readsecond, label %compare
readsecond:
  %pb = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %pb
  %pv = call { i64, i1 } @entry.index(ptr %b)
  %vb = extractvalue { i64, i1 } %pv, 0
  %gb = extractvalue { i64, i1 } %pv, 1
  br i1 %gb, label %third, label %no
third:
  %three = icmp sgt i64 %n, 2
  br i1 %three, label %readthird, label %compare
readthird:
  %pc = getelementptr ptr, ptr %args, i64 2
  %c = load ptr, ptr %pc
  %pw = call { i64, i1 } @entry.index(ptr %c)
  %vc = extractvalue { i64, i1 } %pw, 0
  %gc = extractvalue { i64, i1 } %pw, 1
  br i1 %gc, label %compare, label %no
compare:
  %start = phi i64 [ 0, %second ], [ %va, %third ], [ %va, %readthird ]
  %stop = phi i64 [ %va, %second ], [ %vb, %third ], [ %vb, %readthird ]
  %step = phi i64 [ 1, %second ], [ 1, %third ], [ %vc, %readthird ]
  %step.wanted = word %r, 4
  %samestep = icmp eq i64 %step, %step.wanted
  %down = icmp slt i64 %step, 0
  %smaller = call i64 @llvm.smin.i64(i64 %start, i64 %stop)
  %one = zext i1 %down to i64
  %least = add i64 %smaller, %one
  %capped = call i64 @llvm.smin.i64(i64 %least, i64 2)
  %class = call i64 @llvm.smax.i64(i64 %capped, i64 -1)
  %class.wanted = word %r, 5
  %sameclass = icmp eq i64 %class, %class.wanted
  %as = call i64 @llvm.abs.i64(i64 %start, i1 false)
  %at = call i64 @llvm.abs.i64(i64 %stop, i1 false)
  %bits = or i64 %as, %at
  %small = icmp ult i64 %bits, 2147483648
  %small64 = zext i1 %small to i64
  %small.wanted = word %r, 6
  %samesize = icmp eq i64 %small64, %small.wanted
  %both = and i1 %samestep, %sameclass
  %all = and i1 %both, %samesize
  br i1 %all, label %count, label %no
count:
  %forward = sub i64 %stop, %start
  %backward = sub i64 %start, %stop
  %span = select i1 %down, i64 %backward, i64 %forward
  %apart = call i64 @llvm.abs.i64(i64 %step, i1 false)
  %some = icmp sgt i64 %span, 0
  br i1 %some, label %divide, label %done
divide:
  %unit = icmp eq i64 %apart, 1
  br i1 %unit, label %done, label %quotient
quotient:
  %less = sub i64 %span, 1
  %q = udiv i64 %less, %apart
  %q1 = add i64 %q, 1
  br label %done
done:
  %length = phi i64 [ 0, %count ], [ %span, %divide ], [ %q1, %quotient ]
  call void @entry.shorten(ptr %frame, i64 %length)
  %word = word %r, 7
  %stored = icmp sge i64 %word, 0
  br i1 %stored, label %write, label %yes
write:
  put i64 %start, %state, %word
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
; Compare all operands with their records, and write them to the state.
define internal i1 @entry.read(ptr %t, ptr %args, ptr %state, ptr %frame) nounwind {
entry:
  %i = alloca i64
  %number = alloca i64
  store i64 0, ptr %i
  %count = word %t, $H_OPERAND_COUNT
  %offset = word %t, $H_OPERANDS
  %first = getelementptr i64, ptr %t, i64 %offset
  br label %head
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %count
  br i1 %more, label %next, label %yes
next:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %eight = shl i64 %k, 3
  %r = getelementptr i64, ptr %first, i64 %eight
  %op = load i64, ptr %r
  %sequence = word %r, 1
  %index = word %r, 2
  %w3 = word %r, 3
  %p3 = inttoptr i64 %w3 to ptr
  %at = add i64 %sequence, 8
  %pbase = getelementptr i64, ptr %frame, i64 %at
  %base = load ptr, ptr %pbase
  %po = getelementptr ptr, ptr %base, i64 %index
  %o = load ptr, ptr %po
  %type = field ptr %o, $type_at
  switch i64 %op, label %no [
    i64 $O_SAME, label %same
    i64 $O_TYPE, label %type.is
    i64 $O_SEQUENCE, label %items
    i64 $O_ARRAY, label %array
    i64 $O_ITEMS, label %array
    i64 $O_SCALAR, label %scalar
    i64 $O_INT, label %int
    i64 $O_BOOL, label %bool
    i64 $O_CONSTANT, label %constant
    i64 $O_RANGE, label %range
    i64 $O_MARK, label %mark ]
mark:
  %marked = word %r, 5
  %pm = getelementptr i64, ptr %state, i64 %marked
  %byte = trunc i64 %w3 to i8
  store i8 %byte, ptr %pm
  br label %head
same:
  %is = icmp eq ptr %o, %p3
  br i1 %is, label %same.tag, label %no
same.tag:
  %ignored = call i1 @entry.number(ptr %r, ptr %number, ptr %state)
  br label %head
type.is:
  %kind = icmp eq ptr %type, %p3
  br i1 %kind, label %head, label %no
items:
  %suits = icmp eq ptr %type, %p3
  br i1 %suits, label %sized, label %no
sized:
  %n = field i64 %o, $header
  %n.wanted = word %r, 4
  %samesize = icmp eq i64 %n, %n.wanted
  br i1 %samesize, label %first.item, label %no
first.item:
  %slot = word %r, 5
  %islist = word %r, 6
  %list = icmp ne i64 %islist, 0
  %inside = getelementptr i8, ptr %o, i64 $tuple_items_at
  %far = field ptr %o, $list_items_at
  %where = select i1 %list, ptr %far, ptr %inside
  %target = add i64 %slot, 8
  put ptr %where, %frame, %target
  br label %head
array:
  %ga = call i1 @entry.array(ptr %r, ptr %o, ptr %state, ptr %frame)
  br i1 %ga, label %head, label %no
scalar:
  %typed = icmp eq ptr %type, %p3
  br i1 %typed, label %value, label %no
value:
  %pv = getelementptr i8, ptr %o, i64 $header
  %gv = call i1 @entry.number(ptr %r, ptr %pv, ptr %state)
  br i1 %gv, label %head, label %no
int:
  %int.type = object int
  %isint = icmp eq ptr %type, %int.type
  br i1 %isint, label %int.value, label %no
int.value:
  %pair = call { i64, i1 } @entry.int(ptr %o)
  %v = extractvalue { i64, i1 } %pair, 0
  %gi = extractvalue { i64, i1 } %pair, 1
  %natural = icmp sge i64 %v, 0
  %sign = select i1 %natural, i64 256, i64 0
  %size = call i64 @llvm.abs.i64(i64 %v, i1 false)
  %small = icmp ult i64 %size, 2147483648
  %bits = select i1 %small, i64 31, i64 62
  %class = or i64 %bits, %sign
  %sameclass = icmp eq i64 %class, %w3
  %fits = and i1 %gi, %sameclass
  store i64 %v, ptr %number
  br i1 %fits, label %store, label %no
bool:
  %bool.type = object bool
  %isbool = icmp eq ptr %type, %bool.type
  %true = object true
  %istrue = icmp eq ptr %o, %true
  %truth = zext i1 %istrue to i64
  store i64 %truth, ptr %number
  br i1 %isbool, label %store, label %no
store:
  %gn = call i1 @entry.number(ptr %r, ptr %number, ptr %state)
  br i1 %gn, label %head, label %no
constant:
  %int.type2 = object int
  %isint2 = icmp eq ptr %type, %int.type2
  br i1 %isint2, label %constant.value, label %no
constant.value:
  %pair2 = call { i64, i1 } @entry.int(ptr %o)
  %v2 = extractvalue { i64, i1 } %pair2, 0
  %g2 = extractvalue { i64, i1 } %pair2, 1
  %samevalue = icmp eq i64 %v2, %w3
  %both = and i1 %g2, %samevalue
  br i1 %both, label %head, label %no
range:
  %gr = call i1 @entry.range(ptr %r, ptr %po, ptr %state, ptr %frame)
  br i1 %gr, label %head, label %no
yes:
  ret i1 true
no:
  ret i1 false
}
"""

TEST_GUARDS = """
; Compare which arrays overlap with those that did when the program was compiled.
define internal i1 @entry.overlaps(ptr %t, ptr %frame) nounwind {
entry:
  %i = alloca i64
  %j = alloca i64
  %mask = alloca i64
  %n = word %frame, 2
  %offset = word %t, $H_OVERLAPS
  store i64 1, ptr %i
  br label %outer
outer:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %n
  br i1 %more, label %one, label %yes
one:
  %ks = shl i64 %k, 3
  %kp = add i64 %ks, 24
  %a = getelementptr i64, ptr %frame, i64 %kp
  %begin = word %a, 1
  %end = word %a, 2
  store i64 0, ptr %j
  store i64 0, ptr %mask
  br label %inner
inner:
  %m = load i64, ptr %j
  %left = icmp slt i64 %m, %k
  br i1 %left, label %other, label %compare
other:
  %ms = shl i64 %m, 3
  %mp = add i64 %ms, 24
  %b = getelementptr i64, ptr %frame, i64 %mp
  %first = word %b, 1
  %last = word %b, 2
  %before = icmp ult i64 %first, %end
  %behind = icmp ult i64 %begin, %last
  %both = and i1 %before, %behind
  %bit = zext i1 %both to i64
  %shifted = shl i64 %bit, %m
  %mask0 = load i64, ptr %mask
  %mask1 = or i64 %mask0, %shifted
  store i64 %mask1, ptr %mask
  %m1 = add i64 %m, 1
  store i64 %m1, ptr %j
  br label %inner
compare:
  %at = add i64 %offset, %k
  %wanted = word %t, %at
  %is = load i64, ptr %mask
  %same = icmp eq i64 %is, %wanted
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  br i1 %same, label %outer, label %no
yes:
  ret i1 true
no:
  ret i1 false
}
; Compare what names, functions and variables around stand for with what the program was compiled for.
define internal i1 @entry.guards(ptr %t) {
entry:
  %i = alloca i64
  store i64 0, ptr %i
  %count = word %t, $H_GUARD_COUNT
  %offset = word %t, $H_GUARDS
  %first = getelementptr i64, ptr %t, i64 %offset
  br label %head
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %count
  br i1 %more, label %next, label %yes
next:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %eight = shl i64 %k, 3
  %r = getelementptr i64, ptr %first, i64 %eight
  %op = load i64, ptr %r
  %w1 = word %r, 1
  %w2 = word %r, 2
  %w3 = word %r, 3
  %p1 = inttoptr i64 %w1 to ptr
  %p2 = inttoptr i64 %w2 to ptr
  %p3 = inttoptr i64 %w3 to ptr
  switch i64 %op, label %no [
    i64 $G_NAME, label %name
    i64 $G_FUNCTION, label %function
    i64 $G_CELL, label %cell
    i64 $G_ITEM, label %item
    i64 $G_LENGTH, label %length
    i64 $G_CALL, label %call ]
name:
  %value = host ptr PyDict_GetItemWithError(ptr %p1, ptr %p2)
  %same = icmp eq ptr %value, %p3
  br i1 %same, label %head, label %failed
function:
  %code = host ptr PyFunction_GetCode(ptr %p1)
  %samecode = icmp eq ptr %code, %p2
  br i1 %samecode, label %defaults, label %no
defaults:
  %d = host ptr PyFunction_GetDefaults(ptr %p1)
  %samedefaults = icmp eq ptr %d, %p3
  br i1 %samedefaults, label %keywords, label %no
keywords:
  %w4 = word %r, 4
  %p4 = inttoptr i64 %w4 to ptr
  %kw = host ptr PyFunction_GetKwDefaults(ptr %p1)
  %samekeywords = icmp eq ptr %kw, %p4
  br i1 %samekeywords, label %head, label %no
cell:
  %content = host ptr PyCell_Get(ptr %p1)
  %samecontent = icmp eq ptr %content, %p2
  %some = icmp ne ptr %content, null
  br i1 %some, label %drop, label %dropped
drop:
  host void Py_DecRef(ptr %content)
  br label %dropped
dropped:
  br i1 %samecontent, label %head, label %no
item:
  %size = host i64 PyList_Size(ptr %p1)
  %inside = icmp slt i64 %w2, %size
  br i1 %inside, label %get, label %no
get:
  %it = host ptr PyList_GetItem(ptr %p1, i64 %w2)
  %sameitem = icmp eq ptr %it, %p3
  br i1 %sameitem, label %head, label %failed
length:
  %n = host i64 PyList_Size(ptr %p1)
  %samelength = icmp eq i64 %n, %w2
  br i1 %samelength, label %head, label %no
call:
  %answer = host ptr PyObject_Vectorcall(ptr %p1, ptr null, i64 0, ptr null)
  %true = object true
  %holds = icmp eq ptr %answer, %true
  %answered = icmp ne ptr %answer, null
  br i1 %answered, label %forget, label %failed
forget:
  host void Py_DecRef(ptr %answer)
  br i1 %holds, label %head, label %no
yes:
  ret i1 true
failed:
  host void PyErr_Clear()
  ret i1 false
no:
  ret i1 false
}
; Whether a tracing function is set, which wants to see each line.
define internal i1 @entry.traced() {
  %gettrace = object gettrace
  %r = host ptr PyObject_Vectorcall(ptr %gettrace, ptr null, i64 0, ptr null)
  %none = object none
  %plain = icmp eq ptr %r, %none
  %some = icmp ne ptr %r, null
  br i1 %some, label %drop, label %failed
drop:
  host void Py_DecRef(ptr %r)
  %traced = xor i1 %plain, true
  ret i1 %traced
failed:
  host void PyErr_Clear()
  ret i1 true
}
; How NumPy treats floating-point errors: three bits each for divide, over, under, invalid; or -1.
define internal i32 @entry.modes() {
entry:
  %place = alloca ptr
  store ptr null, ptr %place
  %variable = object error_modes
  %status = host i32 PyContextVar_Get(ptr %variable, ptr null, ptr %place)
  %capsule = load ptr, ptr %place
  %some = icmp ne ptr %capsule, null
  br i1 %some, label %read, label %failed
read:
  %name = object capsule_name
  %record = host ptr PyCapsule_GetPointer(ptr %capsule, ptr %name)
  host void Py_DecRef(ptr %capsule)
  %valid = icmp ne ptr %record, null
  br i1 %valid, label %mask, label %failed
mask:
  %modes = field i32 %record, 0
  ret i32 %modes
failed:
  host void PyErr_Clear()
  ret i32 -1
}
; Whether one of the floating-point flags is set that NumPy reports.
define internal i1 @entry.reported(i64 %flags, i32 %modes) nounwind {
  %divide = and i32 %modes, 7
  %over = and i32 %modes, 56
  %invalid = and i32 %modes, 3584
  %d = icmp ne i32 %divide, 0
  %o = icmp ne i32 %over, 0
  %v = icmp ne i32 %invalid, 0
  %dw = zext i1 %d to i64
  %ow = select i1 %o, i64 2, i64 0
  %vw = select i1 %v, i64 4, i64 0
  %low = or i64 %dw, %ow
  %all = or i64 %low, %vw
  %set = and i64 %flags, %all
  %r = icmp ne i64 %set, 0
  ret i1 %r
}
"""

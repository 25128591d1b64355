package pickle

import (
	"math"

	"github.com/optimem/optimem/loader/internal/fault"
)

// container checks an opcode that makes a container of what is on the stack.
func (v *verifier) container(op byte) error {
	switch op {
	case opEmptyTuple:
		v.write(op)
		return v.pushTuple(0, 1, headerCost)
	case opEmptyList:
		v.write(op)
		return v.pushValue(kindList, listCost)
	case opEmptyDict:
		v.writeEmpty(memoDict)
		return v.pushKeyed(kindDict, dictCost)
	case opEmptySet:
		v.writeEmpty(memoSet)
		return v.pushKeyed(kindSet, setCost)
	case opTuple1, opTuple2, opTuple3:
		n := int(op-opTuple1) + 1
		items, err := v.top(n)
		if err != nil {
			return err
		}
		depth, err := v.above(items...)
		if err != nil {
			return err
		}
		v.write(op)
		v.drop(n)
		return v.pushTuple(n, depth, headerCost+int64(n)*tupleItemCost)
	}
	items, err := v.sinceMark()
	if err != nil {
		return err
	}
	depth, err := v.above(items...)
	if err != nil {
		return err
	}
	n := len(items)
	made := slot{depth: depth}
	cost := int64(0)
	switch op {
	case opDict:
		if err := v.checkKeys(items); err != nil {
			return err
		}
		made.kind, cost = kindDict, dictCost
	case opFrozenSet:
		if err := v.checkElements(items); err != nil {
			return err
		}
		made.kind, cost = kindFrozenSet, setCost
	case opList:
		made.kind = kindList
	}
	if err := v.writeContainer(op, n); err != nil {
		return err
	}
	class, isClassID := v.classID(items)
	room := int64(v.popMark())
	switch {
	case op == opTuple && isClassID:
		if err := v.pushTuple(n, depth, headerCost+room*tupleItemCost); err != nil {
			return err
		}
		top := &v.stack[len(v.stack)-1]
		top.kind, top.n = kindClassID, class
		return nil
	case op == opTuple && room <= 256:
		return v.pushTuple(n, depth, headerCost+room*tupleItemCost)
	case op == opTuple:
		return v.pushTuple(n, depth, headerCost+room*arrayCost)
	case op == opList:
		cost = headerCost + room*machineCost
	}
	if v.emit {
		if err := v.charge(cost); err != nil {
			return err
		}
	}
	return v.push(made)
}

// writeContainer writes an opcode that takes the n items since the MARK, and charges for their keys.
func (v *verifier) writeContainer(op byte, n int) error {
	if !v.emit {
		return nil
	}
	switch op {
	case opDict:
		v.writeFilled(memoDict)
		return v.chargeKeys(n/2, dictItemCost)
	case opFrozenSet:
		v.writeFilled(memoFrozenSet)
		return v.chargeKeys(n, setItemCost)
	}
	v.write(op)
	return nil
}

// pushKeyed pushes a new dict or set.
func (v *verifier) pushKeyed(k kind, cost int64) error {
	if v.emit {
		if err := v.chargeKeys(0, 0); err != nil {
			return err
		}
	}
	return v.pushValue(k, cost)
}

// classID tells whether the items of a tuple are a persistent id of a class, ('module', class, …, …), and which.
func (v *verifier) classID(items []slot) (class uint32, ok bool) {
	if !v.opts.ClassIDs || len(items) != classIDItems || items[1].kind != kindGlobal ||
		string(v.recall(items[0])) != "module" {
		return 0, false
	}
	return items[1].n, true
}

func (v *verifier) pushTuple(n int, depth uint16, cost int64) error {
	if v.emit {
		if err := v.charge(cost); err != nil {
			return err
		}
	}
	return v.push(slot{kind: kindTuple, depth: depth, n: uint32(n), ref: uint32(min(cost, math.MaxUint32))})
}

// checkKeys checks that items are pairs with keys that Python would take.
func (v *verifier) checkKeys(items []slot) error {
	if len(items)%2 != 0 {
		return v.broken("a key without a value")
	}
	for i := 0; i < len(items); i += 2 {
		if k := items[i].kind; !k.hashable() {
			if err := v.complain(fault.ErrFormat, opSetItem, 0, uint32(k), "%s is a dict's key", k); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkElements checks that items may be in a set.
func (v *verifier) checkElements(items []slot) error {
	for _, it := range items {
		if it.kind.hashable() {
			continue
		}
		if err := v.complain(fault.ErrFormat, opAddItems, 0, uint32(it.kind), "%s is in a set", it.kind); err != nil {
			return err
		}
	}
	return nil
}

// fill checks an opcode that adds to a container below the items.
func (v *verifier) fill(op byte) error {
	below, items, err := v.containerBelow(op)
	if err != nil {
		return err
	}
	depth, err := v.above(items...)
	if err != nil {
		return err
	}
	target := &v.stack[below]
	ok, keys, cost := target.kind == kindObject, 0, int64(0)
	switch op {
	case opAppend, opAppends:
		ok = ok || target.kind == kindList
		cost = int64(len(items)) * listItemCost
	case opSetItem, opSetItems:
		ok = ok || target.kind == kindDict || target.kind == kindMapping
		keys, cost = len(items)/2, dictItemCost
		err = v.checkKeys(items)
	case opAddItems:
		ok = ok || target.kind == kindSet
		keys, cost = len(items), setItemCost
		err = v.checkElements(items)
	}
	if err == nil && !ok {
		class := fault.ErrFormat
		if target.kind == kindOpaque || target.kind == kindGlobal {
			class = fault.ErrUnsafe
		}
		err = v.complain(class, op, 1, uint32(target.kind), "items are added to %s", target.kind)
	}
	if err == nil && v.emit {
		v.write(op)
		if target.kind == kindObject || target.kind == kindMapping {
			err = v.charge(objectRest)
		}
		if err == nil && op != opAppend && op != opAppends {
			err = v.chargeKeys(keys, cost)
		} else if err == nil {
			err = v.charge(cost)
		}
	}
	if err != nil {
		return err
	}
	target.depth = max(target.depth, depth)
	if op == opAppend || op == opSetItem {
		v.drop(len(items))
	} else {
		v.popMark()
	}
	return nil
}

// containerBelow returns the place of the container that op fills, and the items.
func (v *verifier) containerBelow(op byte) (int, []slot, error) {
	switch op {
	case opAppend, opSetItem:
		n := 2
		if op == opSetItem {
			n = 3
		}
		s, err := v.top(n)
		if err != nil {
			return 0, nil, err
		}
		return len(v.stack) - n, s[1:], nil
	}
	items, err := v.sinceMark()
	if err != nil {
		return 0, nil, err
	}
	if outer := v.marks[len(v.marks)-1]; v.seg.base == outer.base {
		return 0, nil, v.broken("stack underflow: nothing below the MARK")
	}
	return v.seg.base - 1, items, nil
}

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
		v.write(op)
		return v.pushValue(kindDict, dictCost)
	case opEmptySet:
		v.write(op)
		return v.pushValue(kindSet, setCost)
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
		made.kind, cost = kindDict, dictCost+int64(n/2)*dictItemCost
	case opFrozenSet:
		if err := v.checkElements(items); err != nil {
			return err
		}
		made.kind, cost = kindFrozenSet, setCost+int64(n)*setItemCost
	case opList:
		made.kind = kindList
	}
	v.write(op)
	room := int64(v.popMark())
	switch {
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

// checkElements checks that items may be in a set. Bytes may not, because they cannot be in the machine's.
func (v *verifier) checkElements(items []slot) error {
	for _, it := range items {
		class := fault.ErrFormat
		if it.kind == kindBytes {
			class = fault.ErrUnsupported
		} else if it.kind.hashable() {
			continue
		}
		if err := v.complain(class, opAddItems, 0, uint32(it.kind), "%s is in a set", it.kind); err != nil {
			return err
		}
	}
	return nil
}

// fill checks an opcode that adds to a container below the items.
func (v *verifier) fill(op byte) error {
	var items []slot
	var err error
	marked := op == opAppends || op == opSetItems || op == opAddItems
	below := 0 // the container's place
	switch op {
	case opAppend:
		items, err = v.top(2)
	case opSetItem:
		items, err = v.top(3)
	default:
		if items, err = v.sinceMark(); err == nil {
			if outer := v.marks[len(v.marks)-1]; v.seg.base == outer.base {
				err = v.broken("stack underflow: nothing below the MARK")
			}
		}
	}
	if err != nil {
		return err
	}
	if marked {
		below = v.seg.base - 1
	} else {
		items = items[1:]
		below = len(v.stack) - len(items) - 1
	}
	depth, err := v.above(items...)
	if err != nil {
		return err
	}
	target := &v.stack[below]
	ok, cost := false, int64(0)
	switch op {
	case opAppend, opAppends:
		ok = target.kind == kindList || target.kind == kindObject
		cost = int64(len(items)) * listItemCost
	case opSetItem, opSetItems:
		ok = target.kind == kindDict || target.kind == kindMapping || target.kind == kindObject
		cost = int64(len(items)/2) * dictItemCost
		err = v.checkKeys(items)
	case opAddItems:
		ok = target.kind == kindSet || target.kind == kindObject
		cost = int64(len(items)) * setItemCost
		if target.kind == kindSet {
			err = v.checkElements(items)
		}
	}
	if err == nil && !ok {
		class := fault.ErrFormat
		if target.kind == kindOpaque || target.kind == kindGlobal {
			class = fault.ErrUnsafe
		}
		err = v.complain(class, op, 1, uint32(target.kind), "items are added to %s", target.kind)
	}
	if err != nil {
		return err
	}
	v.write(op)
	if v.emit {
		if target.kind == kindObject || target.kind == kindMapping {
			cost += objectRest
		}
		if err := v.charge(cost); err != nil {
			return err
		}
	}
	target.depth = max(target.depth, depth)
	if marked {
		v.popMark()
	} else {
		v.drop(len(items))
	}
	return nil
}

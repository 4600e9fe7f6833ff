package stream

// window is a point in the log, as deed.windows has it: a number, and the
// transaction id that tells it from another that was given the same number
// after a failover. The zero value is none.
type window struct {
	n int64
	h string
}

// slotLate is where a window's reading begins: with the late rows, those of
// transactions that the window before did not see although it was past their
// numbers. See deed.page for what follows.
const slotLate = -2

// position is a place in the log. Everything up to the window passed has been
// read. If there is a window reading, it is being read: of what it shows and
// passed does not, the rows up to (slot, id) have been read, in the order that
// deed.page gives them. Between two windows slot is slotLate and id is 0.
//
// Positions with the same fields are the same place; a row of deed.progress says
// one.
type position struct {
	passed, reading window
	slot            int32
	id              int64
}

// begin is where the reading of the window to begins.
func (p position) begin(to window) position {
	return position{passed: p.passed, reading: to, slot: slotLate}
}

// end is where the window has been read.
func (p position) end() position { return position{passed: p.reading, slot: slotLate} }

// at is within the window, after a row.
func (p position) at(slot int32, id int64) position {
	p.slot, p.id = slot, id
	return p
}

// lateRows say which rows between two windows are late, as deed.window_late does.
// Who does not know lets deed.page find out.
type lateRows struct {
	low  *int64   // no late row has a lower number; nil: not known
	xids []string // of the transactions whose rows they are
}

// slots are a range of them, with both ends.
type slots struct{ from, upto int32 }

func (s slots) has(slot int32) bool { return s.from <= slot && slot <= s.upto }

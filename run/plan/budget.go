package plan

import (
	"regexp/syntax"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// budget charges what CEL does not: it takes a call whose types are not known when it is compiled for one of
// a fixed cost, whatever texts it reads and makes; it never looks into lists in lists; and it charges a call when
// that is over. Here no value may be made that the budget has no room for, so that no call is long: what a
// value holds, each time that it holds it, is paid for by what made it, but for the data given.
type budget struct{}

// extra is a call of CEL's that no expression can make: what budget charges besides.
type extra struct{}

func (extra) Function() string   { return "@extra" }
func (extra) OverloadID() string { return "" }

// pay charges n units, and ends the evaluation where they are not there.
func pay(frame *interpreter.ExecutionFrame, id int64, n uint64) {
	if costs := frame.CostTracker(); costs != nil && n > 0 {
		costs.EvalUnary(frame, id, extra{}, types.Uint(n), types.True)
	}
}

// weigher counts what values hold, a text as one and one more for each hundred bytes: it is shared, and only
// compared. It remembers what it has counted in the values that CEL makes.
var weigher = types.NewSizeCalculator(types.SizeCalculatorMaxDepth(costLimit), types.SizeCalculatorMaxTraversal(10*costLimit),
	types.SizeCalculatorStringUnitLength(100))

// CallCost is what a call costs, or nil for what CEL says itself.
func (budget) CallCost(function, overload string, args []ref.Val, _ ref.Val) *uint64 {
	if function == (extra{}).Function() {
		n := uint64(args[0].(types.Uint))
		return &n
	}
	if more := besides(function, overload, args); more > 0 {
		n := 1 + more
		return &n
	}
	return nil
}

// besides is what a call costs besides 1, and 0 where CEL knows.
func besides(function, overload string, args []ref.Val) uint64 {
	switch function {
	case overloads.Contains, overloads.StartsWith, overloads.EndsWith, overloads.Matches:
		return 0
	case operators.Equals, operators.NotEquals:
		if count(args[0]) != count(args[1]) {
			return 0
		}
		return held(args[0]) + held(args[1])
	case operators.In:
		list, ok := args[1].(traits.Lister)
		if !ok {
			break // a look into a map
		}
		n := texts(args[0]) + held(list)
		if overload == overloads.InList {
			n += uint64(count(list))
		}
		return n
	case operators.Add:
		if _, ok := args[0].(traits.MutableLister); ok {
			return held(args[1]) // by a macro, which adds entry by entry to one list
		}
		return texts(args...) + held(args[0]) + held(args[1])
	}
	return texts(args...)
}

// texts is one for ten bytes of the texts among args.
func texts(args ...ref.Val) uint64 {
	n := 0
	for _, a := range args {
		switch a := a.(type) {
		case types.String:
			n += len(a)
		case types.Bytes:
			n += len(a)
		}
	}
	return uint64(n / 10)
}

// held is one for ten values that v holds, where it is a list, a map or a message.
func held(v ref.Val) uint64 {
	switch v.(type) {
	case traits.Lister, traits.Mapper, traits.Indexer:
		return uint64(weigher.AggregateSize(v)) / 10
	}
	return 0
}

// count is how many entries v has, and 0 for what has none.
func count(v ref.Val) types.Int {
	switch v := v.(type) {
	case traits.Lister:
		return v.Size().(types.Int)
	case traits.Mapper:
		return v.Size().(types.Int)
	}
	return 0
}

// budgeted has a part of an expression pay for what CEL would take for cheap.
func budgeted(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch i := i.(type) {
	case interpreter.InterpretableConstructor:
		return &maker{i}, nil
	case interpreter.InterpretableCall:
		if args := i.Args(); i.Function() == overloads.Matches && len(args) == 2 {
			return &matcher{i, args[0], args[1]}, nil
		}
	}
	return i, nil
}

// maker makes a list, a map or a message, and pays for it.
type maker struct {
	interpreter.InterpretableConstructor
}

func (m *maker) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := m.InterpretableConstructor.Exec(frame)
	pay(frame, m.ID(), held(v))
	return v
}

func (m *maker) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

// matcher looks through a text by a pattern, and pays before: a pattern of some bytes may be one of a hundred
// thousand steps, each of which may be taken for each byte.
type matcher struct {
	interpreter.InterpretableCall
	text, pattern interpreter.InterpretableV2
}

func (m *matcher) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	text := m.text.Exec(frame)
	if types.IsUnknownOrError(text) {
		return text
	}
	pattern := m.pattern.Exec(frame)
	if types.IsUnknownOrError(pattern) {
		return pattern
	}
	s, isText := text.(types.String)
	p, isPattern := pattern.(types.String)
	if !isText || !isPattern {
		return types.NewErrWithNodeID(m.ID(), "no such overload: %s", m.Function())
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, m.ID(), m, s, p, types.True)
	}
	parsed, err := syntax.Parse(string(p), syntax.Perl)
	if err != nil {
		return types.LabelErrNode(m.ID(), types.WrapErr(err))
	}
	if n := size(parsed); n > uint64(len(p)) || n > 1000 {
		pay(frame, m.ID(), n+n*uint64(len(s))/100) // it is compiled, and then asked of the text
	}
	return s.Match(p)
}

func (m *matcher) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

// size is how many steps a pattern has when its repeats are written out.
func size(re *syntax.Regexp) uint64 {
	n := uint64(1)
	if re.Op == syntax.OpLiteral {
		n = uint64(len(re.Rune))
	}
	for _, sub := range re.Sub {
		n += size(sub)
	}
	if re.Op == syntax.OpRepeat {
		n = (n - 1) * uint64(max(1, re.Min, re.Max))
	}
	return n
}
